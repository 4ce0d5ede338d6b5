// Shows what a model attends to while it reads a sentence and writes its output.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/line_input.h"
#include "apps/line_work.h"
#include "apps/number_option.h"
#include "apps/output.h"
#include "apps/program.h"
#include "transformer/architecture/longest_text.h"
#include "transformer/base/ascii.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/attention_maps.h"
#include "transformer/inference/told_languages.h"
#include "transformer/inference/translator.h"
#include "transformer/inference/tree_constraint.h"
#include "transformer/inference/word_alignment.h"
#include "transformer/report/attention_page.h"
#include "transformer/report/attention_picture.h"
#include "transformer/report/attention_report.h"
#include "transformer/text/characters.h"
#include "transformer/text/normalization.h"
#include "transformer/text/treebank.h"

namespace {

using namespace transformer;
using Kind = AttentionView::Kind;

// Far beyond any sentence; the weights grow with the square, and a picture of more could not be read.
constexpr size_t longest_sentence = 400;

enum class Format { svg, html, json };

struct Request {
  std::vector<Kind> kinds;             // none: all
  std::vector<int64_t> layers, heads;  // from 1; none: all
  bool words = false, tree = false;
};

/// Why a sentence cannot be shown; thrown for what shows only on the way.
struct Problem {
  std::string where, what, remedy;
  Error error() const { return {where, what, remedy}; }
};

/// A sentence, where it comes from, and its output where one is given.
struct Sentence {
  std::string where, source;
  std::optional<std::string> target;
  int64_t line = 0;  // of the input; 0: it is no line
  std::optional<Problem> problem;
};

/// The model's numbers that are asked for: `asked`, or all from 1 to `count`.
std::vector<int64_t> chosen(const std::vector<int64_t>& asked, int64_t count, const std::string& option,
                            const std::string& what) {
  std::vector<int64_t> numbers = asked;
  if (asked.empty()) {
    for (int64_t number = 1; number <= count; ++number) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  for (const int64_t number : numbers) {
    if (number < 1 || number > count) {
      throw Error(option, fmt::format("there is no {} {}", what, number), fmt::format("this model has 1 to {}", count));
    }
  }
  return numbers;
}

class Attention {
 public:
  /// `before_last`: where no layer is asked for, the one before the last alone, as in the paper's figures.
  Attention(const DecodingOptions& decoding, Request request, bool before_last)
      : directory_(decoding.model()),
        request_(std::move(request)),
        translator_(decoding.open()),
        model_(decoding.packed(translator_)),
        vocabularies_(translator_.vocabularies()),
        told_(vocabularies_, translator_.settings()) {
    if (told_.any() && vocabularies_.source->languages().behind_end) {
      throw Error(printable(directory_.string()), "reads a source's language behind its end, which is not shown here",
                  "give a model that reads it before the text");
    }
    const auto& settings = model_->settings();
    const bool recurrent = settings.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru;
    if (request_.kinds.empty()) {
      request_.kinds = {Kind::encoder, Kind::decoder, Kind::cross};
      if (recurrent) std::erase(request_.kinds, Kind::decoder);
    }
    if (recurrent && std::find(request_.kinds.begin(), request_.kinds.end(), Kind::decoder) != request_.kinds.end()) {
      throw Error("--kind decoder",
                  fmt::format("the decoder of {} does not attend to itself (model.decoder_self_attention: ssru)",
                              printable(directory_.string())),
                  "ask for encoder or cross");
    }
    heads_ = chosen(request_.heads, settings.heads, "--head", "head");
    for (const Kind kind : request_.kinds) {
      chosen(request_.layers, layer_count(kind), "--layer", kind == Kind::encoder ? "encoder layer" : "decoder layer");
    }
    if (before_last && request_.layers.empty()) {
      request_.layers = {std::max<int64_t>(1, layer_count(request_.kinds.front()) - 1)};
    }
  }

  struct Shown {
    AttentionReport report;
    std::vector<std::string> query_words;  // of every query of the first view, the word it belongs to
  };

  /// Throws Problem for a sentence that cannot be shown.
  Shown show(const Sentence& sentence) {
    Shown shown;
    AttentionReport& report = shown.report;
    report.model = directory_.string();
    report.words = request_.words;
    report.source = sentence.source;
    if (request_.tree) {
      // In the treebank's spelling, as `parse` reads it.
      std::vector<std::string> words;
      for (const auto word : alignment_words(sentence.source)) words.push_back(escaped_word(word));
      report.source = fmt::format("{}", fmt::join(words, " "));
    }
    const auto text = vocabularies_.source->encode(report.source);
    const auto source = read_by_encoder(text);
    check_length(source, sentence.where, "has");
    std::vector<int64_t> target;
    if (sentence.target) {
      report.target = *sentence.target;
      target = told_.target(vocabularies_.target->encode(report.target));
    } else {
      Translator::ConstraintOf constraint_of;
      if (request_.tree) {
        const TreeConstraints trees(vocabularies_.target);
        if (!trees.can_write_trees()) {
          throw Error("--tree", fmt::format("{} is no parser", directory_.string()),
                      "give the directory of a model that parses, or the tree itself");
        }
        constraint_of = [trees, words = split(report.source)](size_t) { return trees.over(words); };
      }
      target = translator_.translate_ids({text}, constraint_of).front().front().tokens;
      report.target = vocabularies_.target->decode(target);
    }
    check_length(target, sentence.where, sentence.target ? "its output has" : "the model's output has");
    if (request_.tree) add_tree(report, sentence.where, source);

    const auto maps = attention_maps(*model_, source, target);
    const auto read = tokens_of(*vocabularies_.source, written_tokens(source));
    const auto written = tokens_of(*vocabularies_.target, written_tokens(target));
    const auto reread = tokens_of(*vocabularies_.target, read_tokens(target));
    for (const Kind kind : request_.kinds) {
      if (kind == Kind::encoder) report.views.push_back(view(kind, maps.encoder, read, read));
      if (kind == Kind::decoder) report.views.push_back(view(kind, maps.decoder, written, reread));
      if (kind == Kind::cross) report.views.push_back(view(kind, maps.cross, written, read));
    }
    const auto& queries = request_.kinds.front() == Kind::encoder ? read : written;
    if (request_.words) {
      shown.query_words = queries.joined.words;
    } else {
      for (const int64_t word : queries.joined.word_of) {
        shown.query_words.push_back(queries.joined.words[static_cast<size_t>(word)]);
      }
    }
    return shown;
  }

 private:
  struct Tokens {
    std::vector<std::string> texts;
    JoinedTokens joined;
  };

  /// What stands before the end where these pieces of a text are read.
  std::vector<int64_t> read_by_encoder(std::vector<int64_t> text) const {
    auto tokens = told_.source(std::move(text));
    tokens.pop_back();
    return tokens;
  }

  int64_t layer_count(Kind kind) const {
    return kind == Kind::encoder ? model_->settings().encoder_layers : model_->settings().decoder_layers;
  }

  void check_length(const std::vector<int64_t>& pieces, const std::string& where, const char* whose) const {
    const auto most = std::min(longest_sentence, static_cast<size_t>(most_tokens(model_->settings())));
    if (pieces.size() > most) {
      throw Problem{where, fmt::format("{} {} word pieces, and at most {} are shown", whose, pieces.size(), most),
                    "give a shorter sentence"};
    }
  }

  Tokens tokens_of(const Vocabulary& vocabulary, const std::vector<int64_t>& ids) const {
    auto joined = joined_tokens(vocabulary, ids);
    if (request_.words) return {joined.words, std::move(joined)};
    std::vector<std::string> texts;
    for (const int64_t id : ids) texts.push_back(vocabulary.piece(id));
    return {std::move(texts), std::move(joined)};
  }

  AttentionView view(Kind kind, const AttentionWeights& maps, const Tokens& queries, const Tokens& keys) const {
    AttentionView view{kind,   queries.texts,     keys.texts, chosen(request_.layers, layer_count(kind), "", ""),
                       heads_, layer_count(kind), {}};
    AttentionWeights weights{
        static_cast<int64_t>(view.layers.size()), static_cast<int64_t>(heads_.size()), maps.queries, maps.keys, {}};
    for (const int64_t layer : view.layers) {
      for (const int64_t head : heads_) {
        for (int64_t query = 0; query < maps.queries; ++query) {
          const auto row = maps.row(layer - 1, head - 1, query);
          weights.values.insert(weights.values.end(), row.begin(), row.end());
        }
      }
    }
    if (request_.words) weights = joined_weights(weights, queries.joined, keys.joined);
    view.weights = std::move(weights.values);
    return view;
  }

  static std::vector<std::string> split(const std::string& text) {
    const auto words = alignment_words(text);
    return {words.begin(), words.end()};
  }

  void add_tree(AttentionReport& report, const std::string& where, const std::vector<int64_t>& source) const {
    if (report.target.find('(') == std::string::npos) {
      throw Problem{where, fmt::format("has an output that is no tree, for --tree: {}", in_quotes(report.target)),
                    "give the directory of a model that parses"};
    }
    report.tree = delinearize(report.target, split(report.source)).tree;
    const auto joined = joined_tokens(*vocabularies_.source, written_tokens(source));
    const auto last = static_cast<int64_t>(joined.words.size()) - 1;  // the end token
    std::vector<int64_t> word_of = joined.word_of;
    if (request_.words) word_of.erase(std::unique(word_of.begin(), word_of.end()), word_of.end());
    for (const int64_t word : word_of) report.tree_word.push_back(word == last ? -1 : word);
  }

  std::filesystem::path directory_;
  Request request_;
  Translator translator_;
  std::shared_ptr<const InferenceModel> model_;
  Vocabularies vocabularies_;
  ToldLanguages told_;
  std::vector<int64_t> heads_;
};

/// Text of a word without punctuation around it, for comparing with --pick.
std::string_view bare(std::string_view word) {
  const auto is_punctuation = [](char32_t c) {
    using enum CharacterKind;
    const auto kind = kind_of(c);
    return kind == opening || kind == closing || kind == quote || kind == dash || kind == punctuation ||
           (c < 0x80 && is_ascii_punctuation(static_cast<char>(c)));
  };
  size_t begin = word.size(), end = 0;
  bool within = false;  // a mark goes with what is before it
  for (size_t next = 0; next < word.size();) {
    const size_t at = next;
    const char32_t c = next_code_point(word, next);
    if (kind_of(c) != CharacterKind::mark) within = !is_punctuation(c);
    if (!within) continue;
    begin = std::min(begin, at);
    end = next;
  }
  return begin < end ? word.substr(begin, end - begin) : word;
}

/// Which of `view`'s queries are the words that are asked for, in all their occurrences and however their accents are
/// composed. A word of several pieces is all of them.
std::vector<size_t> picked(const Attention::Shown& shown, const std::vector<std::string>& asked) {
  const auto& view = shown.report.views.front();
  const auto& words = shown.query_words;  // of every query of the view, the word it belongs to
  std::vector<size_t> indices;
  for (const auto& given : asked) {
    const auto wanted = normalized(given);
    const size_t before = indices.size();
    for (size_t i = 0; i < view.queries.size(); ++i) {
      if (normalized(words[i]) == wanted || normalized(bare(words[i])) == wanted) indices.push_back(i);
    }
    if (indices.size() == before) {
      auto known = words;
      known.erase(std::unique(known.begin(), known.end()), known.end());
      throw Error("--pick", fmt::format("there is no word {}", in_quotes(given)),
                  fmt::format("the words of this view are: {}", fmt::join(known, " ")));
    }
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

/// What --format says, or else the output file's ending.
Format format_of(const std::string& given, const std::string& output) {
  static const std::map<std::string, Format> formats = {
      {"svg", Format::svg}, {"html", Format::html}, {"json", Format::json}};
  if (!given.empty()) return formats.at(given);
  if (is_standard(output) || is_stream(output)) return Format::json;
  auto ending = std::filesystem::path(output).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), ascii_lower);
  if (ending == ".htm") ending = ".html";
  if (ending == ".jsonl") ending = ".json";  // an object a line
  const auto found = ending.empty() ? formats.end() : formats.find(ending.substr(1));
  if (found == formats.end()) {
    throw Error("--output", fmt::format("'{}' does not end with .svg, .html, .json or .jsonl", output),
                "name it so, or say which with --format");
  }
  return found->second;
}

/// Lines of one or two files, or of standard input, or the sentence of the command line.
class Sentences {
 public:
  Sentences(const std::string& source, const std::string& target, const std::string& source_file,
            const std::string& target_file)
      : source_(source), target_(target) {
    if (!source.empty() && !(source_file.empty() && target_file.empty())) {
      throw Error("arguments", "a sentence and files are given at once", "give either");
    }
    if (!target_file.empty() && source_file.empty()) {
      throw Error("--target", "is for the lines of --input", "give both, or the two sentences themselves");
    }
    if (!target_file.empty() && is_standard(source_file) && is_standard(target_file)) {
      throw Error("--target", "and --input are both standard input", "name a file for one");
    }
    if (source.empty()) source_lines_.emplace(source_file);
    if (!target_file.empty()) target_lines_.emplace(target_file);
  }

  /// False at the end. A line that cannot be shown comes with its problem. Throws Error where one file is longer than
  /// the other, and for the command line's own mistakes.
  bool next(Sentence& sentence) {
    ++number_;
    sentence = {};
    if (!source_.empty()) {
      sentence.where = "the sentence";
      if (number_ > 1) return false;
      for (const auto& text : {source_, target_}) {
        if (const size_t broken = find_broken_utf8(text); broken != std::string::npos) {
          throw Error(sentence.where, fmt::format("is not UTF-8 (byte {})", broken + 1), "convert the text");
        }
      }
      sentence.source = source_;
      if (!target_.empty()) sentence.target = target_;
    } else {
      sentence.where = source_lines_->where(number_);
      InputLine source, target;
      const bool more = source_lines_->next(source);
      const bool more_targets = target_lines_ && target_lines_->next(target);
      if (target_lines_ && more != more_targets) {
        throw more ? ends_early(*target_lines_, *source_lines_, number_ - 1)
                   : ends_early(*source_lines_, *target_lines_, number_ - 1);
      }
      if (!more) return false;
      sentence.line = number_;
      sentence.source = source.text;
      if (target_lines_) sentence.target = target.text;
      if (!source.usable()) {
        sentence.problem = {source_lines_->where(number_), source.problem, source.remedy};
      } else if (!target.usable()) {
        sentence.problem = {target_lines_->where(number_), target.problem, target.remedy};
      }
    }
    sentence.source = trim(sentence.source);
    if (sentence.target) sentence.target = trim(*sentence.target);
    if (!sentence.problem && sentence.source.empty()) {
      sentence.problem = {sentence.where, "is blank", "give a sentence"};
    }
    if (!sentence.problem && sentence.target && sentence.target->empty()) {
      sentence.problem = {target_lines_ ? target_lines_->where(number_) : "the output", "is blank",
                          "give the sentence's output, or leave it out for the model's own"};
    }
    return true;
  }

 private:
  std::string source_, target_;
  std::optional<LineInput> source_lines_, target_lines_;
  int64_t number_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Shows what a model attends to while it reads a sentence and writes its output, in every layer and head: a "
        "page to look around in (.html), a picture in the form of the paper's Figures 3 to 5 (.svg), or all weights "
        "for other programs (.json). Without an output sentence it is the model's own, found by beam search.");
    std::string source, target, source_file, target_file, output_file, format_name;
    std::vector<std::string> words, kind_names;
    Request request;
    bool heat_map = false;
    DecodingOptions decoding(app);
    app.add_option("sentence", source, "The sentence; if not given, --input or standard input");
    app.add_option("output_sentence", target, "Its output, a translation or a tree; the model's own if not given");
    app.add_option("--input", source_file,
                   "Sentences, plain or .gz, standard input for -; several are for --format json, an object a line")
        ->type_name("FILE");
    app.add_option("--target", target_file,
                   "Their outputs, line for line, standard input for -; the model's own if not given")
        ->type_name("FILE");
    app.add_option("--output", output_file, "What to write; standard output for - or if not given")->type_name("FILE");
    BadLines bad_lines(app,
                       "blank, not UTF-8, longer than 1 MiB, or of more word pieces than are shown; for --format json",
                       /*copies=*/false);
    app.add_option("--format", format_name, "If not given, by --output's ending; json for standard output")
        ->type_name("KIND")
        ->check(CLI::IsMember({"svg", "html", "json"}));
    const auto several = [](CLI::Option* option) { return option->delimiter(',')->allow_extra_args(false); };
    several(app.add_option("--kind", kind_names,
                           "Of the encoder over the source, of the decoder over what it has read, or across, of the "
                           "decoder over the source: encoder, decoder, cross; all, in an SVG cross"))
        ->check(CLI::IsMember({"encoder", "decoder", "cross"}))
        ->option_text("{encoder,decoder,cross},...");
    several(app.add_option("--layer", request.layers, "From 1; all, in an SVG of lines the one before the last"))
        ->type_name("N,...")
        ->transform(number_between(int64_t{1}, int64_t{1000}));
    several(app.add_option("--head", request.heads, "From 1; all"))
        ->type_name("N,...")
        ->transform(number_between(int64_t{1}, int64_t{4096}));
    app.add_option(
           "--pick", words,
           "Show the attention of this word alone; may be given several times, in a page once, which shows a word of "
           "several pieces by the first")
        ->type_name("WORD")
        ->allow_extra_args(false);
    app.add_flag("--words", request.words,
                 "Join pieces to words: what a word receives is the sum over its pieces, how it attends their mean");
    app.add_flag("--heat-map", heat_map, "In an SVG, draw a heat map for each layer and head instead of lines");
    app.add_flag("--tree", request.tree, "Draw the tree that the model, a parser, writes, beside the words");
    parse();

    const Format format = format_of(format_name, output_file);
    for (const auto& name : kind_names) {
      request.kinds.push_back(name == "encoder" ? Kind::encoder : name == "decoder" ? Kind::decoder : Kind::cross);
    }
    std::sort(request.kinds.begin(), request.kinds.end());
    request.kinds.erase(std::unique(request.kinds.begin(), request.kinds.end()), request.kinds.end());
    if (format == Format::svg) {
      if (request.kinds.empty()) request.kinds = {Kind::cross};
      if (request.kinds.size() > 1) throw Error("--kind", "an SVG shows one kind of attention", "give one");
      if (!heat_map && request.layers.size() > 1) {
        throw Error("--layer", "an SVG of lines shows one layer", "give one, or --heat-map");
      }
    } else if (heat_map) {
      throw Error("--heat-map", "is for SVG", "the page has heat maps, too; leave it out");
    }
    if (format == Format::json && !words.empty()) throw Error("--pick", "is for SVG and HTML", "leave it out");
    if (format == Format::html && words.size() > 1) {
      throw Error("--pick", "a page begins with one word, and shows any other at a click", "give one");
    }
    if (heat_map && !words.empty()) throw Error("--pick", "is for lines", "leave out --heat-map or --pick");

    const auto models = decoding.inputs();
    std::vector<std::filesystem::path> inputs(models.begin(), models.end());
    if (source.empty()) inputs.push_back(input_path(source_file));
    if (!target_file.empty()) inputs.push_back(input_path(target_file));
    check_output("--output", output_file, inputs);
    if (format != Format::json && app.get_option("--bad-lines")->count() > 0) {
      throw Error("--bad-lines", "is for --format json, which has a line for every sentence", "leave it out");
    }

    decoding.check_device();
    Sentences sentences(source, target, source_file, target_file);
    Attention attention(decoding, request, /*before_last=*/format == Format::svg && !heat_map);
    Output output(output_file);

    Sentence sentence, another;
    if (format == Format::json) {
      while (sentences.next(sentence)) {
        try {
          if (sentence.problem) throw *sentence.problem;
          output.write(attention_json(attention.show(sentence).report));
        } catch (const Problem& problem) {
          if (sentence.line == 0 || bad_lines.stop()) throw problem.error();
          bad_lines.add(sentence.line, problem.what);
          output.write("\n");
        }
        output.flush();
      }
    } else {
      if (!sentences.next(sentence))
        throw Error(is_standard(source_file) ? standard_input : source_file, "is empty", "give a sentence");
      if (sentence.problem) throw sentence.problem->error();
      if (sentences.next(another)) {
        throw Error(another.where, "is a second sentence, and a picture shows one", "give one, or --format json");
      }
      const auto shown = [&] {
        try {
          return attention.show(sentence);
        } catch (const Problem& problem) {
          throw problem.error();
        }
      }();
      const auto& view = shown.report.views.front();
      const auto indices = picked(shown, words);
      if (format == Format::html) {
        output.write(attention_html(shown.report,
                                    indices.empty() ? AttentionPageOptions{} : AttentionPageOptions{indices.front()}));
      } else if (heat_map) {
        output.write(attention_heat_maps(view));
      } else {
        output.write(attention_lines(shown.report, view, {.picked = indices}));
      }
    }
    output.commit();
    bad_lines.report("attend");
  });
}
