#include "transformer/serving/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <string>

#include "transformer/base/check_ranges.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

/// What a browser may say that a page is from, to be compared letter by letter: SCHEME://HOST[:PORT], or null. It says
/// names in small letters, and no port that the scheme has anyway.
bool is_origin(const std::string& text) {
  static const std::regex origin(R"(([a-z][a-z0-9+.-]*)://([a-z0-9._~-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?)");
  constexpr size_t longest = 300;
  std::smatch parts;
  if (text.size() > longest || !std::regex_match(text, parts, origin)) return text == "null";
  return !(parts[1] == "http" && parts[3] == ":80") && !(parts[1] == "https" && parts[3] == ":443");
}

}  // namespace

void ServingSettings::describe(Fields<ServingSettings>& field) {
  field("models", &ServingSettings::models, "model directories, as train writes them").free();
  field("languages", &ServingSettings::languages,
        "what each model translates, in their order: en:de; empty, or ? for one of them: as the names of its training "
        "files end, and each of its languages into each other where a model knows many")
      .free();
  field("drafts", &ServingSettings::drafts,
        "a small model of the same vocabulary for each model, in their order, that guesses what it then checks: faster "
        "where a request has one hypothesis a line and few are translated at once, and the same to the last bit; "
        "empty, or none for one of them: none")
      .free();
  field("host", &ServingSettings::host,
        "address to listen at; 0.0.0.0 or ::, to which all can connect, is for behind a proxy")
      .free();
  field("port", &ServingSettings::port, "port to listen at; 0: any that is free, which the log names",
        between(0, 65535))
      .free();
  field("precision", &ServingSettings::precision,
        "what weights and activations are rounded to; stored: as a model is, float32 or what it was packed to",
        {{"stored", Rounding::stored},
         {"float32", Rounding::float32},
         {"bf16", Rounding::bf16},
         {"int8", Rounding::int8}})
      .free();
  field("threads", &ServingSettings::threads, "workers of each model; 0: OMP_NUM_THREADS, or one for each core",
        between(0, 1024))
      .free();
  field("batch_sentences", &ServingSettings::batch_sentences,
        "sentences that a worker decodes at once; 0: as the model's config.yaml says", between(0, 100000))
      .free();
  field("batch_wait_ms", &ServingSettings::batch_wait_ms,
        "milliseconds that a sentence waits for others to begin with, where none is translated and fewer have come "
        "than a batch holds, for less than deadline_seconds; 0: none, and whoever comes later joins what is under way",
        between(0, 60000))
      .free();
  field("api_keys", &ServingSettings::api_keys,
        "file of keys, one a line, each of at least 8 bytes, one of which every request for a translation must bring; "
        "# begins a comment, at a line's beginning or behind a blank; empty: none is needed")
      .free();
  field("trust_proxy", &ServingSettings::trust_proxy,
        "take the client's address from the last entry of X-Forwarded-For: for a server that only a proxy reaches")
      .free();
  field("allow_origin", &ServingSettings::allow_origin,
        "whose pages may ask this server, as Access-Control-Allow-Origin says it: https://example.org, or *; empty: "
        "its own alone")
      .free();
  field("document", &ServingSettings::document,
        "whether lines are paragraphs that are split into sentences, as translate --document does it, where a request "
        "does not say; otherwise only those longer than the model takes are")
      .free();
  field("page", &ServingSettings::page, "whether there is a page to translate by hand at /").free();
  field("log_texts", &ServingSettings::log_texts, "whether the log holds what was to be translated").free();

  field("max_connections", &ServingSettings::max_connections,
        "open connections, or fewer where the limit of open files is lower; more are told to come back",
        between(1, 1000000))
      .free();
  field("max_header_bytes", &ServingSettings::max_header_bytes, "of a request", between(1024, 1 << 20)).free();
  field("max_body_bytes", &ServingSettings::max_body_bytes, "of a request", between(1024, 1 << 30)).free();
  field("max_bodies_bytes", &ServingSettings::max_bodies_bytes,
        "of all requests that are received, or wait to be read, or as many as a single one may have; with more, those "
        "of over 64 KiB are told to come back",
        between(1024, int64_t{1} << 40))
      .free();
  field("max_texts", &ServingSettings::max_texts, "texts of a request", between(1, 1000000)).free();
  field("max_characters", &ServingSettings::max_characters, "of all texts of a request", between(1, 1 << 28)).free();
  field("max_beam", &ServingSettings::max_beam, "beam, and translations of a line, that a request may ask for",
        between(1, 10000))
      .free();
  field("max_extra_length", &ServingSettings::max_extra_length, "that a request may ask for", between(0, 1000000))
      .free();
  field("max_waiting", &ServingSettings::max_waiting, "lines that wait for a model; with more, requests are refused",
        between(1, 100000000))
      .free();
  field("max_waiting_of_client", &ServingSettings::max_waiting_of_client, "the same of a single client",
        between(1, 100000000))
      .free();

  field("deadline_seconds", &ServingSettings::deadline_seconds, "until a request that is not done is given up",
        between(0.01, 1e6))
      .free();
  field("idle_seconds", &ServingSettings::idle_seconds, "until a connection without a request is closed",
        between(0.01, 1e6))
      .free();
  field("receive_seconds", &ServingSettings::receive_seconds,
        "that a client may take to send a request, from its first byte on", between(0.01, 1e6))
      .free();
  field("send_seconds", &ServingSettings::send_seconds, "that a client may take to accept an answer, or a part of one",
        between(0.01, 1e6))
      .free();
  field("drain_seconds", &ServingSettings::drain_seconds,
        "after SIGTERM, until requests that are not done are given up", between(0, 1e6))
      .free();
}

std::optional<Precision> ServingSettings::asked_precision() const {
  switch (precision) {
    case Rounding::float32:
      return Precision::float32;
    case Rounding::bf16:
      return Precision::bf16;
    case Rounding::int8:
      return Precision::int8;
    case Rounding::stored:
      break;
  }
  return std::nullopt;
}

ServingSettings ServingSettings::validated() const {
  ServingSettings settings = *this;
  check_ranges("serving", settings);
  if (models.empty()) throw Error("serving.models", "no model is named", "--model DIR, once for each");
  if (batch_wait_ms / 1000 >= deadline_seconds) {
    throw Error("serving.batch_wait_ms",
                fmt::format("{} milliseconds leave no time until serving.deadline_seconds, {}", batch_wait_ms,
                            deadline_seconds),
                "wait for less, or set a later deadline");
  }
  if (!languages.empty() && languages.size() != models.size()) {
    throw Error("serving.languages", "there is one entry for each model, in their order", "? is as the model says");
  }
  if (!drafts.empty() && drafts.size() != models.size()) {
    throw Error("serving.drafts", "there is one entry for each model, in their order", "none is for one without");
  }
  const auto refuse_empty = [](const char* name, const std::vector<std::string>& folders) {
    if (std::find(folders.begin(), folders.end(), "") == folders.end()) return;
    throw Error(name, "a folder's name is empty", "name a folder");
  };
  refuse_empty("serving.models", models);
  refuse_empty("serving.drafts", drafts);
  if (!allow_origin.empty() && allow_origin != "*" && !is_origin(allow_origin)) {
    throw Error("serving.allow_origin", in_quotes(allow_origin) + " is no origin of pages",
                "write *, or one as browsers spell it, such as https://example.org or http://localhost:8080");
  }
  return settings;
}

}  // namespace transformer
