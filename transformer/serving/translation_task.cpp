#include "transformer/serving/translation_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/base/described.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/request_error.h"
#include "transformer/serving/translation_call.h"

namespace transformer {

namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

HttpResponse answer_of(const RequestError& error) {
  auto response = error_response(error.status(), error.what());
  if (error.retry_seconds() > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_seconds()));
  return response;
}

/// The answer to what is being thrown.
HttpResponse answer_of_exception() {
  try {
    throw;
  } catch (const RequestError& error) {
    return answer_of(error);
  } catch (...) {
    const auto described = described_exception();
    return error_response(described.mistake ? 400 : 500, described.text);
  }
}

class TranslationTask : public HttpTask, public std::enable_shared_from_this<TranslationTask> {
 public:
  TranslationTask(ServingContext context, TranslationInterface interface, HttpRequest request,
                  std::shared_ptr<HttpReply> reply)
      : context_(std::move(context)), interface_(interface), request_(std::move(request)), reply_(std::move(reply)) {}

  void start() {
    context_.pool.post([self = shared_from_this()] {
      try {
        self->prepare();
      } catch (...) {
        self->reply_->send(answer_of_exception(), {});
      }
    });
  }

  void cancel() override {
    std::shared_ptr<Dispatcher::Ticket> ticket;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      ticket = ticket_;
    }
    if (ticket) model_->dispatcher().cancel(*ticket);
  }

 private:
  struct Line {
    size_t text;  // that it belongs to
    std::string source;
    std::vector<Translation> found;                      // best first
    std::vector<std::vector<AlignmentLink>> alignments;  // of each, where they are wanted
  };

  // --- on the pool, before decoding

  void read_body() {
    const auto most = static_cast<size_t>(context_.settings.max_texts);
    // Some clients put the form's fields into the address.
    const bool is_query = request_.body.empty() && !request_.query.empty();
    if (is_query) request_.body.swap(request_.query);
    const bool is_form = is_query || request_.content_type == "application/x-www-form-urlencoded";
    const bool is_json = request_.content_type.empty() || request_.content_type == "application/json" ||
                         request_.content_type.ends_with("+json");
    if (!is_json && !(is_form && interface_ == TranslationInterface::libretranslate)) {
      throw RequestError(415, fmt::format("a body of the type {} is not read here: send application/json",
                                          printable(request_.content_type)));
    }
    call_ = interface_ == TranslationInterface::own ? parse_translation(request_.body, most)
            : is_form                               ? parse_libretranslate_form(request_.body, most)
                                                    : parse_libretranslate_json(request_.body, most);
    request_.body = {};
  }

  void check_key() {
    if (!context_.keys->needed()) return;
    const auto& key = request_.api_key.empty() ? call_.api_key : request_.api_key;
    if (key.empty()) throw RequestError(403, "an API key is needed");
    const auto number = context_.keys->find(key);
    if (!number) throw RequestError(403, "the API key is none of this server's");
    request_.client = fmt::format("key {}", *number + 1);
  }

  void check_length() const {
    size_t characters = 0;
    for (const auto& text : call_.texts) characters += count_characters(text);
    if (characters > static_cast<size_t>(context_.settings.max_characters)) {
      throw RequestError(413, fmt::format("a request holds {} characters at most, and this has {}",
                                          context_.settings.max_characters, characters));
    }
  }

  /// The model's own settings of the search with those that the request gives.
  DecodingSettings search() const {
    auto search = model_->translator().settings();
    const auto batch_sentences = search.batch_sentences;
    Settings settings;
    settings.section("decoding", search, "");
    settings.override_with(call_.decoding);
    if (call_.alternatives > 0) {
      search.n_best = call_.alternatives + 1;
      search.beam = std::max(search.beam, search.n_best);
    }
    const auto check = [&](const char* name, int64_t value, int64_t own, int64_t most) {
      if (value <= std::max(own, most)) return;
      throw RequestError(400,
                         fmt::format("{} of {} is more than this server allows: {}", name, value, std::max(own, most)));
    };
    const auto& own = model_->translator().settings();
    check("a beam", search.beam, own.beam, context_.settings.max_beam);
    check("a number of translations", search.n_best, own.n_best, context_.settings.max_beam);
    check("an extra length", search.max_extra_length, own.max_extra_length, context_.settings.max_extra_length);
    if (search.batch_sentences != batch_sentences) {
      throw RequestError(400, "decoding.batch_sentences is the server's to choose");
    }
    return search.validated();
  }

  void split_lines() {
    for (size_t i = 0; i < call_.texts.size(); ++i) {
      first_lines_.push_back(lines_.size());
      for (std::string_view rest = call_.texts[i];;) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        auto line = rest.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        lines_.push_back({i, std::string(line), {}, {}});
        if (end == rest.size()) break;
        rest.remove_prefix(end + 1);
      }
    }
    first_lines_.push_back(lines_.size());
  }

  void prepare() {
    read_body();
    check_key();
    check_length();
    model_ = context_.models->find(call_.source, call_.target, call_.model);
    const auto settings = search();
    split_lines();

    std::vector<std::string> texts;
    for (const auto& line : lines_) texts.push_back(line.source);
    auto sources = model_->translator().encode(texts);
    std::vector<DecodingRequest> requests;
    std::vector<size_t> places;  // of lines with text
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].empty()) {
        lines_[i].found.emplace_back();
        continue;
      }
      if (static_cast<int64_t>(sources[i].size()) > model_->translator().longest_source()) {
        throw RequestError(413, fmt::format("line {} {}; split it into sentences", i + 1,
                                            model_->translator().too_long(sources[i].size())));
      }
      served_.source_tokens += static_cast<int64_t>(sources[i].size());
      requests.push_back(model_->translator().request(std::move(sources[i]), settings));
      places.push_back(i);
    }
    served_.model = model_->name();
    served_.lines = static_cast<int64_t>(requests.size());
    if (context_.settings.log_texts) served_.texts = dumped(call_.texts);

    const std::lock_guard lock(mutex_);  // what is done early waits until all is begun
    if (is_over_) return;
    left_ = requests.size();
    if (left_ > 0) {
      ticket_ = model_->dispatcher().submit(
          request_.client, std::move(requests),
          [self = shared_from_this(), places = std::move(places)](size_t index, DecodingResult result) {
            // Workers are for decoding.
            self->context_.pool.post(
                [self, line = places[index], result = std::move(result)] { self->decoded(line, result); });
          });
    }
    if (call_.stream) {
      reply_->begin(
          {.status = 200, .content_type = "text/event-stream", .body = {}, .headers = {{"Cache-Control", "no-store"}}});
      for (size_t i = 0; i < lines_.size(); ++i) {
        if (!lines_[i].found.empty()) reply_->write(line_event(i));
      }
    }
    if (left_ == 0) answer();
  }

  // --- on the pool, line by line

  void decoded(size_t index, const DecodingResult& result) {
    try {
      if (result.error) std::rethrow_exception(result.error);
      auto& line = lines_[index];  // nobody else's
      for (const auto& hypothesis : result.hypotheses)
        line.found.push_back(model_->translator().translation(hypothesis));
      if (call_.alignments) align(line);
      const std::lock_guard lock(mutex_);
      if (is_over_) return;
      served_.output_tokens += static_cast<int64_t>(line.found.front().tokens.size());
      if (call_.stream) reply_->write(line_event(index));
      if (--left_ == 0) answer();
    } catch (...) {
      const auto response = answer_of_exception();
      cancel();
      if (call_.stream) {
        reply_->write(fmt::format("event: error\ndata: {}\n\n", response.body));
        reply_->end({});
      } else {
        reply_->send(response, {});
      }
    }
  }

  void align(Line& line) const {
    for (const auto& translation : line.found) {
      const auto pieces = model_->translator().encode({line.source}).front().size();
      const bool possible = model_->aligner().problem(pieces, translation.tokens.size()).empty();
      line.alignments.push_back(
          possible ? model_->aligner().align({line.source}, {translation.text}, 1, {translation.tokens}).front()
                   : std::vector<AlignmentLink>());
    }
  }

  // --- the answer

  Json line_json(const Line& line) const {
    Json hypotheses = Json::array();
    for (size_t i = 0; i < line.found.size(); ++i) {
      const auto& found = line.found[i];
      Json tokens = Json::array();
      for (const auto id : found.tokens) tokens.push_back(model_->translator().vocabularies().target->piece(id));
      Json hypothesis = {{"text", found.text},
                         {"score", found.score},
                         {"log_probability", found.log_probability},
                         {"tokens", std::move(tokens)}};
      if (call_.alignments) {
        Json links = Json::array();
        if (i < line.alignments.size()) {
          for (const auto& link : line.alignments[i]) links.push_back({link.source, link.target});
        }
        hypothesis["alignment"] = std::move(links);
      }
      hypotheses.push_back(std::move(hypothesis));
    }
    return {{"source", line.source}, {"hypotheses", std::move(hypotheses)}};
  }

  std::string line_event(size_t index) const {
    const size_t text = lines_[index].text;
    Json event = {{"text", text}, {"line", index - first_lines_[text]}};
    event.update(line_json(lines_[index]));
    return fmt::format("event: line\ndata: {}\n\n", dumped(event));
  }

  /// A text as its lines' translations of this rank make it, the best where a line has fewer.
  std::string joined(size_t text, size_t rank) const {
    std::string whole;
    for (size_t i = first_lines_[text]; i < first_lines_[text + 1]; ++i) {
      if (i > first_lines_[text]) whole += '\n';
      whole += lines_[i].found[rank < lines_[i].found.size() ? rank : 0].text;
    }
    return whole;
  }

  Json libretranslate_answer() const {
    std::vector<size_t> ranks(call_.texts.size());  // how many translations a text has
    for (const auto& line : lines_) ranks[line.text] = std::max(ranks[line.text], line.found.size());
    Json texts = Json::array(), alternatives = Json::array();
    for (size_t i = 0; i < call_.texts.size(); ++i) {
      texts.push_back(joined(i, 0));
      Json others = Json::array();
      for (size_t rank = 1; rank < ranks[i]; ++rank) others.push_back(joined(i, rank));
      alternatives.push_back(std::move(others));
    }
    Json answer;
    answer["translatedText"] = call_.is_list ? texts : texts[0];
    if (call_.alternatives > 0) answer["alternatives"] = call_.is_list ? alternatives : alternatives[0];
    return answer;
  }

  Json summary() const {
    return {{"model", model_->name()},
            {"source", model_->languages().source},
            {"target", model_->languages().target},
            {"source_tokens", served_.source_tokens},
            {"output_tokens", served_.output_tokens}};
  }

  Json own_answer() const {
    auto answer = summary();
    Json translations = Json::array();
    for (size_t i = 0; i < call_.texts.size(); ++i) {
      translations.push_back({{"text", joined(i, 0)}, {"lines", Json::array()}});
    }
    for (const auto& line : lines_) translations[line.text]["lines"].push_back(line_json(line));
    answer["translations"] = std::move(translations);
    return answer;
  }

  /// All lines are done.
  void answer() {
    is_over_ = true;
    if (call_.stream) {
      reply_->write(fmt::format("event: done\ndata: {}\n\n", dumped(summary())));
      reply_->end(served_);
      return;
    }
    const auto json = interface_ == TranslationInterface::own ? own_answer() : libretranslate_answer();
    reply_->send({.status = 200, .body = dumped(json)}, served_);
  }

  const ServingContext context_;
  const TranslationInterface interface_;
  HttpRequest request_;
  const std::shared_ptr<HttpReply> reply_;

  // Written before decoding:
  TranslationCall call_;
  std::shared_ptr<const ServedModel> model_;
  std::vector<Line> lines_;          // and by their own `decoded`
  std::vector<size_t> first_lines_;  // of each text, and behind the last

  std::mutex mutex_;  // of what follows
  Served served_;
  size_t left_ = 0;  // lines that are not done
  std::shared_ptr<Dispatcher::Ticket> ticket_;
  bool is_over_ = false;  // answered, or nobody waits any more
};

}  // namespace

std::shared_ptr<HttpTask> start_translation(const ServingContext& context, TranslationInterface interface,
                                            HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const auto task = std::make_shared<TranslationTask>(context, interface, std::move(request), std::move(reply));
  task->start();
  return task;
}

}  // namespace transformer
