#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/least_risk.h"
#include "apps/line_work.h"
#include "apps/messages.h"
#include "apps/program.h"
#include "apps/translation_json.h"
#include "apps/wish_options.h"
#include "transformer/base/error.h"
#include "transformer/base/threads.h"
#include "transformer/inference/marked_translation.h"
#include "transformer/inference/text_translation.h"
#include "transformer/inference/translator.h"
#include "transformer/inference/tree_constraint.h"
#include "transformer/inference/word_alignment.h"

namespace transformer {

namespace {

struct Format {
  bool n_best = false;  // Moses' n-best format
  bool scores = false;
  bool json = false;        // an object a line, alignments among the rest
  bool alignments = false;  // to a file of their own
  std::string mbr;          // by what the one of least risk is chosen; empty: the likeliest is the best
  int64_t threads = 1;      // that choose
};

/// Of whole texts.
struct TextFormat {
  bool sentences = false;  // --document
  bool markup = false;
  bool placeholders = false;
  SentenceLanguage language = SentenceLanguage::any;
  bool json = false;

  bool any() const { return sentences || markup || placeholders; }
  bool has_tags() const { return markup || placeholders; }
  /// Whether tags, comments and scripts may go over lines.
  bool pages() const { return sentences && markup; }
  CarriedOver carried() const { return {.tags = markup, .placeholders = placeholders}; }
  /// The option that asks for it.
  std::string option() const { return sentences ? "--document" : markup ? "--markup" : "--placeholders"; }
};

std::string formatted(const std::vector<Translation>& translations, int64_t line, const Format& format) {
  std::string text;
  for (const auto& translation : translations) {
    if (format.n_best) {
      text += fmt::format("{} ||| {} ||| {:.6f}\n", line, translation.text, translation.score);
    } else {
      text +=
          format.scores ? fmt::format("{:.6f}\t{}\n", translation.score, translation.text) : translation.text + '\n';
      break;
    }
  }
  return text;
}

/// Leaves of every line's translations the one of least risk, of those that lack no more of what is required than the
/// first does.
void choose(std::vector<std::vector<Translation>>& translations, const Format& format) {
  struct Candidate {
    std::string text;
    double score;
    size_t place;
  };
  const auto utility = utility_named(format.mbr);
  in_parallel(translations.size(), 1, format.threads, [&](size_t first, size_t last) {
    for (size_t line = first; line < last; ++line) {
      auto& found = translations[line];
      std::vector<Candidate> candidates;
      for (size_t i = 0; i < found.size(); ++i) candidates.push_back({found[i].text, found[i].score, i});
      put_in_order_of_risk(candidates, utility);
      // The search puts first what lacks least, if it came to an end.
      const auto lacking = found.front().missing.size();
      const auto chosen = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
        return found[candidate.place].missing.size() <= lacking;
      });
      std::swap(found.front(), found[chosen->place]);
      found.resize(1);
    }
  });
}

/// `found`, of all `owners` together, as the part of each, which are as many as `count` says.
template <class Owners, class Count>
std::vector<TranslationLinks> shared_out(TranslationLinks found, const Owners& owners, Count count) {
  std::vector<TranslationLinks> parts;
  auto next = found.begin();
  for (const auto& owner : owners) {
    const auto end = next + static_cast<std::ptrdiff_t>(count(owner));
    parts.emplace_back(std::move_iterator(next), std::move_iterator(end));
    next = end;
  }
  return parts;
}

/// The links of every translation of every line; none of one that is too long to align.
std::vector<TranslationLinks> aligned(const WordAligner& aligner, const std::vector<std::string>& lines,
                                      const std::vector<std::vector<int64_t>>& sources,
                                      const std::vector<std::vector<Translation>>& translations) {
  // All at once, so that pairs of one length share a pass.
  std::vector<std::string> from;
  std::vector<size_t> pieces;
  std::vector<const Translation*> to;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const auto& translation : translations[i]) {
      from.push_back(lines[i]);
      pieces.push_back(sources[i].size());
      to.push_back(&translation);
    }
  }
  auto found = aligner.align_what_fits(from, pieces, to);
  return shared_out(std::move(found), translations, [](const auto& alternatives) { return alternatives.size(); });
}

class Translating {
 public:
  /// `wishes`: null where there are none.
  Translating(const Translator& translator, const WordAligner* aligner, Format format, const LineWork& work,
              const BadLines& bad_lines, WishOptions* wishes)
      : translator_(translator),
        aligner_(aligner),
        format_(format),
        work_(work),
        bad_lines_(bad_lines),
        wishes_(wishes) {}

  LineWork::Done operator()(std::vector<InputLine>& lines, int64_t first) const {
    std::vector<std::string> texts;
    for (const auto& line : lines) texts.push_back(line.usable() ? line.text : "");
    auto sources = translator_.encode(texts);
    for (size_t i = 0; i < lines.size(); ++i) {
      auto problem = translator_.problem(sources[i].size());
      if (problem.empty()) continue;
      lines[i].refuse(std::move(problem), translator_.remedy);
      sources[i].clear();
    }
    std::vector<EncodedWishes> wishes;
    if (wishes_) wishes = encode_wishes(lines, sources, first);
    sources.resize(work_.usable(lines));
    auto translations =
        wishes_ ? translator_.translate_encoded(sources, wishes) : translator_.translate_encoded(sources);
    if (!format_.mbr.empty()) choose(translations, format_);
    if (format_.alignments) find_unalignable(lines, sources, translations);
    const size_t count = std::min(sources.size(), work_.usable(lines));
    sources.resize(count);
    translations.resize(count);
    texts.resize(count);
    for (size_t i = 0; i < count; ++i) {
      if (lines[i].usable()) continue;
      translations[i] = {Translation{.text = bad_lines_.instead_of(lines[i]), .tokens = {}}};
      texts[i].clear();
      sources[i].clear();
    }
    if (format_.json) find_entropies(sources, translations);
    LineWork::Done done{.lines = count, .texts = {""}};
    std::vector<TranslationLinks> links;
    if (aligner_) links = aligned(*aligner_, texts, sources, translations);
    for (size_t i = 0; i < count; ++i) {
      auto& written = done.texts[0];
      const auto number = first + static_cast<int64_t>(i);
      std::vector<std::string> required;
      if (wishes_ && lines[i].usable()) required = wishes_->of(number, texts[i]).required;
      if (const auto& missing = translations[i].front().missing; !missing.empty()) {
        done.tally.lacking.add(number, required.at(missing.front()));
      }
      if (!format_.json) {
        written += formatted(translations[i], first - 1 + static_cast<int64_t>(i), format_);
      } else if (lines[i].usable()) {
        written +=
            to_json(texts[i], translations[i], links[i], *translator_.vocabularies().target, format_.n_best, required);
      } else {
        written += to_json(translations[i].front().text, lines[i].problem);
      }
    }
    if (format_.alignments) {
      auto& text = done.texts.emplace_back();
      for (const auto& line : links) {
        for (size_t rank = 0; rank < (format_.n_best ? line.size() : 1); ++rank) {
          text.append(to_pharaoh(*line[rank])).append("\n");
        }
      }
    }
    return done;
  }

 private:
  void find_entropies(const std::vector<std::vector<int64_t>>& sources,
                      std::vector<std::vector<Translation>>& translations) const {
    // All at once, so that pairs of one length share a pass.
    std::vector<std::vector<int64_t>> read;
    std::vector<Translation*> written;
    for (size_t i = 0; i < sources.size(); ++i) {
      for (auto& translation : translations[i]) {
        read.push_back(sources[i]);
        written.push_back(&translation);
      }
    }
    translator_.find_entropies(read, written);
  }

  /// What is wished of each line; lines that it cannot be had of become bad ones.
  std::vector<EncodedWishes> encode_wishes(std::vector<InputLine>& lines, std::vector<std::vector<int64_t>>& sources,
                                           int64_t first) const {
    std::vector<EncodedWishes> encoded(lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!lines[i].usable()) continue;
      const auto wishes = wishes_->of(first + static_cast<int64_t>(i), lines[i].text);
      try {
        encoded[i] = translator_.encode_wishes(wishes);
      } catch (const Error& error) {
        lines[i].problem = fmt::format("cannot be translated as asked: {}", error.what());
        sources[i].clear();
      }
    }
    return encoded;
  }

  void find_unalignable(std::vector<InputLine>& lines, const std::vector<std::vector<int64_t>>& sources,
                        const std::vector<std::vector<Translation>>& translations) const {
    for (size_t i = 0; i < sources.size(); ++i) {
      for (const auto& translation : translations[i]) {
        if (!lines[i].usable() || sources[i].empty()) break;
        lines[i].refuse(aligner_->problem(sources[i].size(), translation.tokens.size()), translator_.remedy);
      }
    }
  }

  const Translator& translator_;
  const WordAligner* aligner_;
  Format format_;
  const LineWork& work_;
  const BadLines& bad_lines_;
  WishOptions* wishes_;
};

/// Lines of a page as they are read.
struct Page {
  int64_t lines = 0;
  OpenMarkup open;  // behind them
};

/// --document, --markup, --placeholders: lines are texts of several sentences, or with tags, and come back as they
/// were.
class TranslatingTexts {
 public:
  TranslatingTexts(const Translator& translator, const WordAligner* aligner, const TextFormat& format,
                   const LineWork& work, const BadLines& bad_lines, WishOptions& wishes)
      : translator_(translator),
        aligner_(aligner),
        format_(format),
        work_(work),
        bad_lines_(bad_lines),
        wishes_(wishes) {}

  LineWork::Done operator()(const std::vector<InputLine>& lines, int64_t first) const {
    const size_t count = work_.usable(lines);
    std::vector<std::string> given;
    std::vector<OpenMarkup> open;
    for (size_t i = 0; i < count; ++i) {
      given.push_back(lines[i].usable() ? lines[i].text : "");
      if (format_.pages()) open.push_back(lines[i].open);
    }
    std::vector<std::string> outputs;
    auto texts = translated(given, open, outputs);
    if (format_.json) find_entropies(texts);
    LineWork::Done done{.lines = count, .texts = {""}};
    auto& written = done.texts[0];
    std::vector<TranslationLinks> links;
    if (format_.json) links = aligned(texts);
    for (size_t i = 0; i < count; ++i) {
      const auto instead = lines[i].usable() ? "" : bad_lines_.instead_of(lines[i]);
      if (format_.json) {
        written += lines[i].usable() ? to_json(outputs[i], texts[i], links[i], *translator_.vocabularies().target)
                                     : to_json(instead, lines[i].problem);
      } else {
        written += lines[i].usable() ? outputs[i] : instead;
        written += format_.sentences ? lines[i].end : "\n";
      }
      done.tally.cut += texts[i].cut;
      if (!texts[i].missing.empty()) done.tally.lacking.add(first + static_cast<int64_t>(i), texts[i].missing.front());
    }
    return done;
  }

 private:
  /// The texts' translations, and what is written of each.
  std::vector<TranslatedText> translated(const std::vector<std::string>& given, const std::vector<OpenMarkup>& open,
                                         std::vector<std::string>& outputs) const {
    std::vector<TranslatedText> texts;
    if (format_.has_tags()) {
      const MarkupOptions options{.sentences = format_.sentences,
                                  .language = format_.language,
                                  .glossary = wishes_.glossary(),
                                  .carried = format_.carried()};
      for (auto& result : translate_marked(translator_, *aligner_, given, options, open)) {
        texts.push_back(std::move(result.translated));
        outputs.push_back(std::move(result.text));
      }
      return texts;
    }
    std::vector<SplitText> sources;
    for (const auto& text : given) sources.emplace_back(text, format_.language);
    texts = translate_texts(translator_, std::move(sources), wishes_.glossary());
    for (const auto& text : texts) outputs.push_back(text.joined.text);
    return texts;
  }

  void find_entropies(std::vector<TranslatedText>& texts) const {
    std::vector<std::string> segments;
    std::vector<Translation*> written;
    for (auto& text : texts) {
      for (size_t i = 0; i < text.segments.size(); ++i) {
        segments.push_back(as_read(text.said[i], text.source.segment(i)));
        written.push_back(&text.segments[i]);
      }
    }
    translator_.find_entropies(translator_.encode(segments), written);
  }

  std::vector<TranslationLinks> aligned(const std::vector<TranslatedText>& texts) const {
    std::vector<std::string> from, said;
    std::vector<size_t> pieces;
    std::vector<const Translation*> to;
    for (const auto& text : texts) {
      said.insert(said.end(), text.said.begin(), text.said.end());
      for (size_t i = 0; i < text.segments.size(); ++i) {
        from.emplace_back(text.source.segment(i));
        pieces.push_back(text.pieces[i]);
        to.push_back(&text.segments[i]);
      }
    }
    auto found = aligner_->align_what_fits(from, pieces, to, said);
    return shared_out(std::move(found), texts, [](const auto& text) { return text.segments.size(); });
  }

  const Translator& translator_;
  const WordAligner* aligner_;
  TextFormat format_;
  const LineWork& work_;
  const BadLines& bad_lines_;
  WishOptions& wishes_;
};

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Translates text, a sentence a line: one line out for every line in, in the same order. Where output goes to a "
        "file, the same command goes on after whatever ended it: what is done is kept in FILE.partial until all is.");
    std::string input_file, output_file, alignments_file;
    Format format;
    DecodingOptions decoding(app, /*several=*/true);
    WishOptions wishes(app);
    SettingOptions<AlignmentSettings> alignment(app, "Word alignments", {}, /*tells_defaults=*/true);
    app.add_option("--input", input_file, "Text to translate, plain or .gz; standard input for - or if not given")
        ->type_name("FILE");
    app.add_option("--output", output_file,
                   "Where translations go, once all are done; standard output for - or if not given")
        ->type_name("FILE");
    BadLines bad_lines(app, "not UTF-8, longer than 1 MiB, or of more word pieces than the model takes");
    auto* const scores = app.add_flag("--scores", format.scores, "Put the score and a tab before each translation");
    std::string output_format = "text";
    app.add_option(
           "--output-format", output_format,
           "text, or jsonl: an object for every line of input, with the translation's text, score and word "
           "pieces, how probable each was, how sure each word is (confidence) and how open its choice was "
           "(entropy, in nats; null with several models and on a GPU), and word alignments; --n-best lists others")
        ->check(CLI::IsMember({"text", "jsonl"}))
        ->option_text("{text,jsonl} [text]");
    app.add_option("--mbr", format.mbr,
                   "With --n-best: write that one of a line's translations alone that is most like all others "
                   "(minimum Bayes risk), as `evaluate mbr --best` chooses it, but for what lacks more than others of "
                   "what is required; with --search sampling as it is meant")
        ->check(CLI::IsMember(utility_names))
        ->option_text("{chrf,chrf++,bleu}");
    TextFormat text_format;
    auto* const document =
        app.add_flag("--document", text_format.sentences,
                     "Lines are paragraphs: they are split into sentences, cut where one is longer than the model "
                     "takes, and put together again, blanks and line ends as they were")
            ->group("Long text and markup");
    app.add_flag("--markup", text_format.markup,
                 "Text is HTML or XML: its tags come back, round the words that stand for those they were around, and "
                 "characters that tags are made of, and names that HTML 4 does not know, as references. Each line is a "
                 "text of its own; with --document lines "
                 "make a page, in which tags, comments and scripts go over lines")
        ->group("Long text and markup");
    app.add_flag("--placeholders", text_format.placeholders,
                 "Placeholders of programs' texts come back, byte for byte, where their neighbours went, and are not "
                 "translated: {name}, {0}, {price:.2f}, {{name}}, ${name}, %s, %d, %1$s, %(name)s, %{name}; web and "
                 "mail addresses, too. A percent sign behind a number is one")
        ->group("Long text and markup");
    std::string language = "any";
    app.add_option("--document-language", language,
                   "Whose abbreviations and ordinals a full stop may belong to: english, german or any")
        ->check(CLI::IsMember({"any", "english", "german"}))
        ->option_text("{any,english,german} [any]")
        ->needs(document)
        ->group("Long text and markup");
    auto* const wanted =
        app.add_option("--alignments", alignments_file,
                       "Write word alignments there, once all are done: a line for every line of output, such as "
                       "0-0 2-1 for the source's first and third words and the output's first two; words are what "
                       "white space separates")
            ->type_name("FILE")
            ->group("Word alignments");
    parse();
    format.json = output_format == "jsonl";
    format.alignments = wanted->count() > 0;
    if (format.json && scores->count() > 0) {
      throw Error("--scores", "has no place in --output-format jsonl, which has scores", "leave it out");
    }
    const bool texts = text_format.any();
    const std::string of_texts = text_format.option();
    if (texts && (scores->count() > 0 || format.alignments)) {
      throw Error(format.alignments ? "--alignments" : "--scores",
                  fmt::format("is of sentences, and {} writes texts", of_texts),
                  "--output-format jsonl has it for every sentence");
    }
    if (texts && !wishes.given().empty()) {
      throw Error(wishes.given(), fmt::format("is of lines, and {} translates sentences", of_texts),
                  "leave one of the two out");
    }
    if (texts && !format.mbr.empty()) {
      throw Error("--mbr",
                  fmt::format("chooses among the translations of a line, and {} translates sentences", of_texts),
                  "leave one of the two out");
    }
    for (const char* name : {"--alignment-layer", "--alignment-head", "--alignment-at"}) {
      if (app.get_option(name)->count() > 0 && !format.alignments && !format.json && !text_format.has_tags()) {
        throw Error(name, "is of word alignments, which nothing asks for",
                    "give --alignments FILE, --markup, --placeholders or --output-format jsonl with it");
      }
    }

    LineWork::Options options{.program = "translate", .input = input_file, .outputs = {output_file}};
    if (format.alignments) options.outputs.push_back(alignments_file);
    options.also_read = decoding.inputs();
    for (auto& file : wishes.inputs()) options.also_read.push_back(std::move(file));
    const auto page = std::make_shared<Page>();
    if (text_format.pages()) {
      options.as_read = [page, carried = text_format.carried()](InputLine& line) {
        ++page->lines;
        line.open = page->open;
        parse_markup(line.text, carried, page->open);
      };
    }
    LineWork work(options, bad_lines);
    decoding.check_device();
    work.open_input();
    const Translator translator = decoding.open();
    work.set_windows(decoding.windows(translator));
    if (TreeConstraints(translator.vocabularies().target).has_labels()) {
      std::cerr << one_line(fmt::format("translate: warning: {} writes trees; `parse` makes sure that they are",
                                        decoding.model()))
                << '\n';
    }
    wishes.load(translator);
    if (!format.mbr.empty() && translator.settings().n_best == 1) {
      throw Error("--mbr", "chooses among several translations of a line, and there is one",
                  "give --n-best 2 or more with it");
    }
    format.threads = decoding.threads();
    format.n_best = format.mbr.empty() && (translator.settings().n_best > 1 || app.get_option("--n-best")->count() > 0);
    if (texts && translator.settings().n_best > 1) {
      throw Error(app.get_option("--n-best")->count() > 0 ? "--n-best" : "decoding.n_best",
                  "a text is put together from the best translation of each of its sentences",
                  fmt::format("give --n-best 1, or translate without {}", of_texts));
    }
    const auto alignment_settings = alignment.over({});
    std::unique_ptr<WordAligner> aligner;
    if (format.alignments || format.json || text_format.has_tags()) {
      aligner = std::make_unique<WordAligner>(decoding.packed(translator), translator.vocabularies(),
                                              alignment_settings, translator.settings());
    }

    const auto identity = [&] {
      auto all = decoding.identity(translator);
      all["form of output"] = fmt::format("{}, scores: {}, n-best: {}, least risk by: {}", output_format, format.scores,
                                          format.n_best, format.mbr);
      if (texts) {
        all["way of splitting"] =
            fmt::format("document: {}, markup: {}, placeholders: {}, language: {}", text_format.sentences,
                        text_format.markup, text_format.placeholders, language);
      }
      wishes.identify(all);
      if (aligner) {
        auto settings = alignment_settings;
        Settings aligning;
        aligning.section("alignment", settings, "");
        all["way of aligning"] = aligning.yaml();
      }
      return all;
    };
    // Where the output's reader has gone, lines may be left to read.
    const auto all_lines = [&](int status) { return status == 0 ? work.lines() : 0; };
    if (texts) {
      text_format.json = format.json;
      if (language != "any") {
        text_format.language = language == "english" ? SentenceLanguage::english : SentenceLanguage::german;
      }
      const int status =
          work.run(identity, TranslatingTexts(translator, aligner.get(), text_format, work, bad_lines, wishes));
      wishes.report("translate", work.tally().lacking, all_lines(status));
      if (status == 0 && page->open.kind != OpenMarkup::Kind::none) {
        std::cerr << fmt::format(
            "translate: warning: what begins in line {} as a tag, a comment or a script does not end, "
            "so that nothing behind it was translated\n",
            page->lines - page->open.lines);
      }
      if (work.tally().cut > 0) {
        std::cerr << fmt::format(
            "translate: warning: {} longer than the {} word pieces that the model takes, and cut\n",
            work.tally().cut == 1 ? "1 sentence was" : fmt::format("{} sentences were", work.tally().cut),
            translator.longest_source());
      }
      return status;
    }
    const int status = work.run(
        identity, Translating(translator, aligner.get(), format, work, bad_lines, wishes.any() ? &wishes : nullptr));
    wishes.report("translate", work.tally().lacking, all_lines(status));
    return status;
  });
}
