#include "transformer/interface/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/base/described.h"
#include "transformer/base/error.h"
#include "transformer/base/settings.h"
#include "transformer/base/threads.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/translator.h"
#include "transformer/text/lines.h"

using transformer::DecodingSettings;
using transformer::Error;

struct transformer_model {
  transformer::Translator translator;
  int64_t threads;
};

struct transformer_translations {
  std::vector<std::vector<transformer::Translation>> lines;
};

namespace {

// Of fixed size, so that running out of memory can be told, too.
thread_local char last_error[4096];

void set_error(std::string_view text) noexcept {
  const size_t length = std::min(text.size(), sizeof last_error - 1);
  std::memcpy(last_error, text.data(), length);
  last_error[length] = '\0';
}

/// The frame of every entry that can fail: no exception goes on from here.
template <class Body>
transformer_status guarded(Body body) noexcept {
  set_error("");
  try {
    body();
    return TRANSFORMER_OK;
  } catch (...) {
    try {
      const auto described = transformer::described_exception();
      set_error(transformer::printable(described.text, sizeof last_error - 4));
      return described.mistake ? TRANSFORMER_MISTAKE : TRANSFORMER_FAILURE;
    } catch (...) {
      set_error("out of memory");
      return TRANSFORMER_FAILURE;
    }
  }
}

// Of the structs of the first version.
constexpr size_t first_options_size = offsetof(transformer_options, threads) + sizeof(size_t);
constexpr size_t first_search_size = offsetof(transformer_search, batch_sentences) + sizeof(size_t);

void need(const void* argument, const char* name) {
  if (!argument) throw Error(name, "is NULL");
}

void need_folder(const char* path, const char* name) {
  need(path, name);
  if (!*path) throw Error(name, "is empty", "name a folder");
}

/// Throws Error for a struct's size that no version has: of one that was never set, or between two fields.
void check_size(size_t size, size_t first_size, const char* name) {
  constexpr size_t most = 4096;  // far beyond any later version's
  static_assert(sizeof(transformer_options) % alignof(void*) == 0 && sizeof(transformer_search) % alignof(void*) == 0);
  if (size >= first_size && size <= most && size % alignof(void*) == 0) return;
  throw Error(fmt::format("{}.size", name),
              size < first_size ? fmt::format("is {}, less than it ever was", size)
                                : fmt::format("is {}, which it is in no version", size),
              fmt::format("set it to sizeof({})", name));
}

/// The options that a program hands over, which may know fewer fields than the library, the last of which then have
/// their value in `defaults`, or more, which then must be 0.
template <class Options>
Options read_options(const Options* given, const Options& defaults, size_t first_size, const char* name) {
  if (!given) return defaults;
  check_size(given->size, first_size, name);
  const auto* bytes = reinterpret_cast<const char*>(given);
  if (given->size > sizeof(Options) &&
      std::any_of(bytes + sizeof(Options), bytes + given->size, [](char byte) { return byte != 0; })) {
    throw Error(name, "has fields that this library does not know",
                fmt::format("it is version {}; use a later one", transformer_version()));
  }
  Options options = defaults;
  std::memcpy(&options, given, std::min(given->size, sizeof(Options)));
  return options;
}

/// As a setting; what is too large for one is too large for any.
int64_t number(size_t value) {
  return static_cast<int64_t>(std::min<size_t>(value, std::numeric_limits<int64_t>::max()));
}

std::optional<transformer::Precision> precision_of(const char* name) {
  if (!name) return std::nullopt;
  const std::string_view given = name;
  const auto precision = transformer::precision_named(given);
  if (precision && *precision != transformer::Precision::fp16) return precision;
  throw Error("transformer_options.precision",
              fmt::format("takes one of: float32, bf16, int8, found {}", transformer::in_quotes(given)));
}

transformer_search defaults_of(const transformer_model& model) {
  const auto& settings = model.translator.settings();
  transformer_search search{};
  search.size = sizeof search;
  search.beam = static_cast<size_t>(settings.beam);
  search.n_best = static_cast<size_t>(settings.n_best);
  search.alpha = settings.alpha;
  search.length_penalty = settings.length_penalty == DecodingSettings::LengthPenalty::gnmt
                              ? TRANSFORMER_LENGTH_PENALTY_GNMT
                              : TRANSFORMER_LENGTH_PENALTY_POWER;
  search.stop =
      settings.stop == DecodingSettings::Stop::exact ? TRANSFORMER_STOP_EXACT : TRANSFORMER_STOP_BEAM_FINISHED;
  search.max_extra_length = static_cast<size_t>(settings.max_extra_length);
  search.batch_sentences = static_cast<size_t>(settings.batch_sentences);
  search.settings = nullptr;
  return search;
}

/// `settings` with what `lines`, of name=value, say; NULL: as they are.
DecodingSettings with_lines(const DecodingSettings& settings, const char* lines) {
  if (!lines) return settings;
  std::vector<transformer::SettingOverride> overrides;
  for (std::string_view left = lines; !left.empty();) {
    const auto line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    if (transformer::trim(line).empty()) continue;
    const auto where = "setting " + transformer::printable(line);
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw Error(where, "name=value was expected", "write, for instance, beam=4");
    }
    overrides.push_back(
        {fmt::format("decoding.{}", line.substr(0, equals)), std::string(line.substr(equals + 1)), where});
  }
  return settings.with([&](DecodingSettings& changed) {
    transformer::Settings named;
    named.section("decoding", changed, "");
    named.override_with(overrides);
  });
}

/// `settings`: the model's own, for what no field says.
DecodingSettings settings_of(const transformer_search& search, DecodingSettings settings) {
  const auto check = [](int value, int last, const char* name) {
    if (value < 0 || value > last) throw Error(name, fmt::format("takes a number from 0 to {}, found {}", last, value));
  };
  check(search.length_penalty, TRANSFORMER_LENGTH_PENALTY_POWER, "decoding.length_penalty");
  check(search.stop, TRANSFORMER_STOP_BEAM_FINISHED, "decoding.stop");
  settings.beam = number(search.beam);
  settings.n_best = number(search.n_best);
  settings.alpha = search.alpha;
  settings.length_penalty = search.length_penalty == TRANSFORMER_LENGTH_PENALTY_GNMT
                                ? DecodingSettings::LengthPenalty::gnmt
                                : DecodingSettings::LengthPenalty::power;
  settings.stop =
      search.stop == TRANSFORMER_STOP_EXACT ? DecodingSettings::Stop::exact : DecodingSettings::Stop::beam_finished;
  settings.max_extra_length = number(search.max_extra_length);
  return with_lines(settings, search.settings);
}

/// Lines as text, each checked; `name` is what messages call them.
std::vector<std::string> checked_lines(const char* const* lines, size_t count, const char* name) {
  if (count > 0) need(lines, name);
  std::vector<std::string> texts;
  texts.reserve(std::min(count, size_t{1} << 20));  // a count that cannot be shows at the lines
  for (size_t i = 0; i < count; ++i) {
    const auto where = [&] { return fmt::format("line {} of {}", i + 1, name); };
    if (!lines[i]) throw Error(where(), "is NULL");
    const std::string_view line(lines[i], strnlen(lines[i], transformer::most_line_bytes + 1));
    if (line.size() > transformer::most_line_bytes) {
      throw Error(where(), "is longer than 1 MiB", "split it into sentences");
    }
    if (const size_t broken = transformer::find_broken_utf8(line); broken != std::string_view::npos) {
      throw Error(where(),
                  fmt::format("not UTF-8 (byte {} is 0x{:02X})", broken + 1, static_cast<unsigned char>(line[broken])));
    }
    texts.emplace_back(line);
  }
  return texts;
}

/// The pieces of each line, on a side whose vocabulary is given.
std::vector<std::vector<int64_t>> pieces_of(const std::vector<std::string>& lines,
                                            const transformer::Vocabulary& vocabulary,
                                            const transformer::Translator& translator, const char* name) {
  std::vector<std::vector<int64_t>> all;
  for (size_t i = 0; i < lines.size(); ++i) {
    all.push_back(vocabulary.encode_line(lines[i]));
    if (const auto problem = translator.problem(all.back().size()); !problem.empty())
      throw Error(fmt::format("line {} of {}", i + 1, name), problem, translator.remedy);
  }
  return all;
}

const transformer::Translation* find(const transformer_translations* translations, size_t line, size_t rank) {
  const transformer::Translation* found = nullptr;
  guarded([&] {
    need(translations, "translations");
    const auto& lines = translations->lines;
    if (line >= lines.size()) {
      throw Error(fmt::format("line {}", line), fmt::format("there are {}, counted from 0", lines.size()));
    }
    if (rank >= lines[line].size()) {
      throw Error(fmt::format("rank {}", rank),
                  fmt::format("line {} has {} translations, counted from 0", line, lines[line].size()));
    }
    found = &lines[line][rank];
  });
  return found;
}

}  // namespace

uint32_t transformer_abi(void) {
  return TRANSFORMER_ABI;
}

const char* transformer_version(void) {
  return TRANSFORMER_VERSION;
}

const char* transformer_error(void) {
  return last_error;
}

transformer_status transformer_load(const char* directory, const transformer_options* options,
                                    transformer_model** model) {
  if (model) *model = nullptr;
  return guarded([&] {
    need_folder(directory, "directory");
    need(model, "model");
    const transformer_options defaults{
        .size = sizeof(transformer_options), .precision = nullptr, .threads = 0, .draft = nullptr};
    const auto given = read_options(options, defaults, first_options_size, "transformer_options");
    constexpr size_t most_threads = 1024;
    if (given.threads > most_threads) {
      throw Error("transformer_options.threads",
                  fmt::format("takes a number from 0 to {}, found {}", most_threads, given.threads));
    }
    if (given.draft) need_folder(given.draft, "transformer_options.draft");
    const int64_t threads = given.threads ? number(given.threads) : transformer::default_threads();
    transformer::Translator translator(directory, "cpu",
                                       {.precision = precision_of(given.precision), .threads = threads});
    if (given.draft) translator.set_draft(given.draft, transformer::Translator::OtherSearches::decoded_without_it);
    *model = new transformer_model{std::move(translator), threads};
  });
}

void transformer_model_free(transformer_model* model) {
  delete model;
}

transformer_status transformer_search_defaults(const transformer_model* model, transformer_search* search) {
  return guarded([&] {
    need(model, "model");
    need(search, "search");
    const size_t size = search->size;
    auto defaults = defaults_of(*model);
    check_size(size, first_search_size, "transformer_search");
    defaults.size = size;
    std::memset(search, 0, size);
    std::memcpy(search, &defaults, std::min(size, sizeof defaults));
  });
}

transformer_status transformer_translate(const transformer_model* model, const char* const* lines, size_t count,
                                         const transformer_search* search, transformer_translations** translations) {
  if (translations) *translations = nullptr;
  return guarded([&] {
    need(model, "model");
    need(translations, "translations");
    const auto given = read_options(search, defaults_of(*model), first_search_size, "transformer_search");
    const auto translator = model->translator.with(settings_of(given, model->translator.settings()));
    const auto sources =
        pieces_of(checked_lines(lines, count, "lines"), *translator.vocabularies().source, translator, "lines");
    auto result = std::make_unique<transformer_translations>();
    result->lines = translator.translate_encoded(sources);
    for (auto& alternatives : result->lines) {
      // Byte pieces can spell a NUL, which would end the text.
      for (auto& translation : alternatives) std::replace(translation.text.begin(), translation.text.end(), '\0', ' ');
    }
    *translations = result.release();
  });
}

void transformer_translations_free(transformer_translations* translations) {
  delete translations;
}

size_t transformer_translations_lines(const transformer_translations* translations) {
  return translations ? translations->lines.size() : 0;
}

size_t transformer_translations_of_line(const transformer_translations* translations, size_t line) {
  return translations && line < translations->lines.size() ? translations->lines[line].size() : 0;
}

const char* transformer_translation_text(const transformer_translations* translations, size_t line, size_t rank) {
  const auto* translation = find(translations, line, rank);
  return translation ? translation->text.c_str() : nullptr;
}

double transformer_translation_score(const transformer_translations* translations, size_t line, size_t rank) {
  const auto* translation = find(translations, line, rank);
  return translation ? translation->score : std::numeric_limits<double>::quiet_NaN();
}

double transformer_translation_log_probability(const transformer_translations* translations, size_t line, size_t rank) {
  const auto* translation = find(translations, line, rank);
  return translation ? translation->log_probability : std::numeric_limits<double>::quiet_NaN();
}

transformer_status transformer_score(const transformer_model* model, const char* const* sources,
                                     const char* const* targets, size_t count, double* log_probabilities,
                                     size_t* tokens) {
  return transformer_score_with(model, nullptr, sources, targets, count, log_probabilities, tokens);
}

transformer_status transformer_score_with(const transformer_model* model, const char* settings,
                                          const char* const* sources, const char* const* targets, size_t count,
                                          double* log_probabilities, size_t* tokens) {
  return guarded([&] {
    need(model, "model");
    const auto wanted = with_lines(model->translator.settings(), settings).validated();
    if (count > 0) need(log_probabilities, "log_probabilities");
    const auto& vocabularies = model->translator.vocabularies();
    const auto source =
        pieces_of(checked_lines(sources, count, "sources"), *vocabularies.source, model->translator, "sources");
    const auto target =
        pieces_of(checked_lines(targets, count, "targets"), *vocabularies.target, model->translator, "targets");
    const auto found = model->translator.score(source, target, wanted, model->threads);
    for (size_t i = 0; i < count; ++i) {
      log_probabilities[i] = std::accumulate(found[i].begin(), found[i].end(), 0.0);
      if (tokens) tokens[i] = found[i].size();
    }
  });
}
