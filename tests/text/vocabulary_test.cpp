#include "transformer/text/vocabulary.h"

#include <algorithm>
#include <random>
#include <set>
#include <thread>

#include "text_support.h"
#include "transformer/base/checksum.h"
#include "transformer/base/unicode.h"
#include "transformer/text/learn_vocabulary.h"
#include "transformer/text/lines.h"

namespace transformer::test {

using Algorithm = VocabularySettings::Algorithm;

namespace {

const std::vector<std::string>& odd_texts() {
  static const std::vector<std::string> texts = {
      "",
      "Hello world.",
      "Grüß Gott, \u201Ewie geht's?\u201C \u2013 \u00ABbien\u00BB",
      " a",
      "a ",
      "  two  spaces   everywhere    ",
      " ",
      "   ",
      "tab\tand\u00A0no-break\u2009thin\u3000wide\u200Bzero\uFEFFwidth",
      "\U0001F600 \U0001F468\u200D\U0001F469\u200D\U0001F467\U0001F3FD \U0001F1E9\U0001F1EA",
      "日本語のテキスト、中文，한국어",
      "e\u0301 a\u0308 Z\u0351\u036B\u0343\u036A",
      "\uFB01ligature \uFF21\uFF22 \u2460 \u212B x\u00B2",
      "שלום مرحبا हिन्दी ไทย",
      std::string("nul\0inside", 10),
      "\x01\x7F\u0085\u2028",
      "<s> </s> <unk> <pad> <0x41> \u2047",
      "\uFFFD \uFFFF",
      "space symbol \u2581 itself\u2581\u2581\U0001F600",
      "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588",
      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
  };
  return texts;
}

}  // namespace

TEST_CASE("a vocabulary has exactly the size asked for and the reserved ids") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder, {.algorithm = GENERATE(Algorithm::bpe, Algorithm::unigram)}, 1234);
  CHECK(vocabulary.size() == 1234);
  CHECK(vocabulary.piece(Vocabulary::padding) == "<pad>");
  CHECK(vocabulary.piece(Vocabulary::begin) == "<s>");
  CHECK(vocabulary.piece(Vocabulary::end) == "</s>");
  CHECK(vocabulary.piece(Vocabulary::unknown) == "<unk>");
  std::set<std::string> different;
  for (int64_t id = 0; id < vocabulary.size(); ++id) different.insert(vocabulary.piece(id));
  CHECK(different.size() == 1234);
}

TEST_CASE("text comes back as it was, or in its normal form") {
  const TemporaryDirectory folder;
  const auto normalization = GENERATE(Normalization::none, Normalization::nfc);
  const auto vocabulary = small_vocabulary(
      folder, {.algorithm = GENERATE(Algorithm::bpe, Algorithm::unigram), .normalization = normalization});
  CHECK(vocabulary.normalization() == normalization);
  auto texts = odd_texts();
  for (const char* file : {"valid.en.gz", "valid.de.gz"}) {
    for (auto& line : read_lines(demo_data(file))) texts.push_back(std::move(line));
  }
  size_t pieces = 0, bytes = 0;
  for (const auto& text : texts) {
    const auto ids = vocabulary.encode(text);
    INFO("text: '" << text << "'");
    CHECK(vocabulary.decode(ids) == (normalization == Normalization::none ? text : normalized(text)));
    for (const int64_t id : ids) CHECK((id > Vocabulary::unknown && id < vocabulary.size()));
    pieces += ids.size();
    bytes += text.size();
  }
  CHECK(pieces < bytes / 2);  // words, not letters
}

TEST_CASE("texts that look alike become the same pieces") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  const auto expected = vocabulary.pieces("Guten Tag, sch\u00F6ne Gr\u00FC\u00DFe");
  for (const char* text :
       {"Guten\tTag, sch\u00F6ne Gr\u00FC\u00DFe", "Guten\u00A0Tag,\u2009sch\u00F6ne  Gr\u00FC\u00DFe\u3000",
        "Guten Tag, scho\u0308ne Gru\u0308\u00DFe", "\x02Guten Tag, sch\u00F6ne\x7F Gr\u00FC\u00DFe\r"}) {
    CHECK(vocabulary.pieces(text) == expected);
    CHECK(normalized(vocabulary.decode(vocabulary.sample(text, 0.2))) == normalized(text));
  }
  const auto as_it_is = small_vocabulary(folder, {.normalization = Normalization::none});
  CHECK(as_it_is.pieces("Guten Tag, sch\u00F6ne Gr\u00FC\u00DFe") == expected);  // the text was normal
  CHECK(as_it_is.pieces("Guten\tTag, sch\u00F6ne Gr\u00FC\u00DFe") != expected);
  const auto inner = as_it_is.encode("Guten  Tag");
  for (const char* line : {"Guten  Tag", "  Guten  Tag", "Guten  Tag \t", "\u00A0Guten  Tag\r"}) {
    CHECK(as_it_is.encode_line(line) == inner);
  }
  CHECK(as_it_is.encode_line(" \t").empty());
  CHECK(as_it_is.encode_line("").empty());
}

TEST_CASE("a vocabulary is learned from normal text") {
  const TemporaryDirectory folder;
  std::string composed, odd;
  for (int i = 0; i < 40; ++i) {
    composed += "sch\u00F6ne Gr\u00FC\u00DFe an alle\n";
    odd += "scho\u0308ne\tGru\u0308\u00DFe \u00A0an\x01 alle \n\t\n";
  }
  write_file(folder / "composed", composed);
  write_file(folder / "odd", odd);
  Vocabulary::train({folder / "composed"}, 290, {}, folder / "composed.model");
  Vocabulary::train({folder / "odd"}, 290, {}, folder / "odd.model");
  CHECK(read_file(folder / "composed.model") == read_file(folder / "odd.model"));
}

TEST_CASE("a vocabulary is learned from long lines, too") {
  const TemporaryDirectory folder;
  std::string words, line, without_blanks;
  for (const auto& sentence : read_lines(demo_data("valid.de.gz"))) {
    for (const auto word : split_words(sentence)) {
      words.append(word).append("\n");
      line.append(line.empty() ? "" : " ").append(word);
    }
    without_blanks += "日本語";
  }
  REQUIRE(line.size() > 50000);
  REQUIRE(without_blanks.size() > 8400);
  write_file(folder / "words", words);
  write_file(folder / "line", line);
  Vocabulary::train({folder / "words"}, 600, {}, folder / "words.model");
  Vocabulary::train({folder / "line"}, 600, {}, folder / "line.model");
  CHECK(read_file(folder / "words.model") == read_file(folder / "line.model"));
  // Nor is a character cut, wherever a part would have ended.
  for (const char* before : {"", "a", "bc"}) {
    write_file(folder / "without", before + without_blanks);
    Vocabulary::train({folder / "without", folder / "words"}, 600, {}, folder / "without.model");
    CHECK(Vocabulary(folder / "without.model").pieces("日本語").size() < 4);
    CHECK(read_file(folder / "without.model").find("\uFFFD") == std::string::npos);
  }
}

TEST_CASE("characters without a symbol are spelled in bytes, or are unknown") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  const auto pieces = vocabulary.pieces("語");
  CHECK(pieces == std::vector<std::string>{"\u2581", "<0xE8>", "<0xAA>", "<0x9E>"});

  const auto without = small_vocabulary(folder, {.byte_fallback = false}, 800);
  CHECK(without.size() == 800);
  const auto ids = without.encode("語");
  CHECK(std::count(ids.begin(), ids.end(), Vocabulary::unknown) == 1);
  CHECK(without.decode(without.encode("Hello there.")) == "Hello there.");
}

TEST_CASE("rarer characters than the coverage asks for become bytes") {
  const TemporaryDirectory folder;
  const auto all = small_vocabulary(folder);
  CHECK(all.encode("\u00DF").size() == 2);
  const auto some = small_vocabulary(folder, {.character_coverage = 0.98});
  CHECK(some.encode("\u00DF").size() == 3);
  CHECK(some.decode(some.encode("Gr\u00FC\u00DFe")) == "Gr\u00FC\u00DFe");
}

TEST_CASE("a bracket and its label are one piece where scripts are not split") {
  const TemporaryDirectory folder;
  std::string trees;
  for (int i = 0; i < 50; ++i) trees += "(S (NP XX XX )NP (VP XX (NP XX )NP )VP )S\n";
  write_file(folder / "trees.txt", trees);
  const auto pieces = [&](bool split) {
    Vocabulary::train({folder / "trees.txt"}, split ? 275 : 282, {.split_scripts = split}, folder / "trees.model");
    const Vocabulary vocabulary(folder / "trees.model");
    CHECK(vocabulary.decode(vocabulary.encode("(S (NP XX )NP )S")) == "(S (NP XX )NP )S");
    return vocabulary.pieces("(NP XX )NP").size();
  };
  CHECK(pieces(false) == 3);
  CHECK(pieces(true) > 4);
}

TEST_CASE("a symbol is one piece, whether the text has it or not") {
  const TemporaryDirectory folder;
  for (const auto algorithm : {VocabularySettings::Algorithm::bpe, VocabularySettings::Algorithm::unigram}) {
    VocabularySettings settings;
    settings.algorithm = algorithm;
    write_file(folder / "tagged.model",
               learn_vocabulary({demo_data("valid.en.gz")}, 600, settings, {"<BT>", "<noise>", "\"q\"", "\"q"}, {}));
    const Vocabulary vocabulary(folder / "tagged.model");
    CHECK(vocabulary.size() == 600);
    for (const std::string tag : {"<BT>", "<noise>", "\"q\"", "\"q"}) {
      const auto pieces = vocabulary.pieces(tag + " You and I.");
      CHECK(std::count(pieces.begin(), pieces.end(), tag) == 1);
      CHECK(vocabulary.encode(tag).size() == 2);  // behind the mark of a word's beginning
      CHECK(vocabulary.decode(vocabulary.encode(tag + " You and I.")) == tag + " You and I.");
    }
  }
}

TEST_CASE("a symbol is none of the pieces that there are") {
  VocabularySettings settings;
  for (const char* symbol : {"<pad>", "<s>", "</s>", "<unk>", "<0x41>"}) {
    CHECK_THAT(error_of([&] {
                 check_symbols("data.train_tags", {"<BT>", symbol}, settings);
               }),
               Contains("data.train_tags") && Contains(symbol));
    CHECK_THAT(error_of([&] { learn_vocabulary({demo_data("valid.en.gz")}, 600, settings, {symbol}, {}); }),
               Contains(symbol));
  }
  settings.byte_fallback = false;
  CHECK(error_of([&] { check_symbols("data.train_tags", {"<0x41>", "<BT>", "<0x4>", ""}, settings); }) == "");
}

TEST_CASE("what SentencePiece has a use of its own for costs no sentence") {
  const TemporaryDirectory folder;
  std::string plain, barred;
  for (int i = 0; i < 400; ++i) {
    const auto sentence = fmt::format("number {} of the dogs and the {} cats", i * i, i);
    plain += sentence + "\n";
    barred += (i % 3 == 0 ? sentence + " \u2585" : i % 3 == 1 ? "\u2585\u2585" + sentence : sentence) + "\n";
  }
  write_file(folder / "plain", plain);
  write_file(folder / "barred", barred);
  for (const auto algorithm : {VocabularySettings::Algorithm::bpe, VocabularySettings::Algorithm::unigram}) {
    VocabularySettings settings;
    settings.algorithm = algorithm;
    CHECK(learn_vocabulary({folder / "plain"}, 300, settings, {}, {}) ==
          learn_vocabulary({folder / "barred"}, 300, settings, {}, {}));
  }
  write_file(folder / "nothing", "\u2585\n \u2585 \u2585\n");
  CHECK_THAT(error_of([&] { learn_vocabulary({folder / "nothing"}, 300, {}, {}, {}); }),
             Contains("no text to learn a vocabulary from"));
}

TEST_CASE("decoding leaves reserved ids out") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  auto ids = vocabulary.encode("Hello world.");
  ids.insert(ids.begin(), Vocabulary::begin);
  ids.insert(ids.end(), {Vocabulary::end, Vocabulary::padding, Vocabulary::padding});
  CHECK(vocabulary.decode(ids) == "Hello world.");
  CHECK(vocabulary.decode({Vocabulary::unknown}) != "");
  CHECK(vocabulary.decode({}) == "");
  CHECK_THROWS(vocabulary.decode({vocabulary.size()}));
  CHECK_THROWS(vocabulary.decode({-1}));
  CHECK_THROWS(vocabulary.piece(vocabulary.size()));
  // A model may well put out half a character.
  CHECK(vocabulary.decode({4 + 0xE8, 4 + 0xAA}).find("\uFFFD") != std::string::npos);
}

TEST_CASE("learning is deterministic, and the same from plain and compressed text") {
  const TemporaryDirectory folder;
  const VocabularySettings settings{.algorithm = GENERATE(Algorithm::bpe, Algorithm::unigram)};
  std::string text;
  for (const auto& line : read_lines(demo_data("valid.de.gz"))) text += line + "\r\n";
  write_file(folder / "plain.de", text);
  Vocabulary::train({demo_data("valid.de.gz")}, 900, settings, folder / "a.model");
  Vocabulary::train({folder / "plain.de"}, 900, settings, folder / "b.model");
  CHECK(read_file(folder / "a.model") == read_file(folder / "b.model"));
  CHECK(read_file(folder / "a.model").find("plain.de") == std::string::npos);
  CHECK(Vocabulary(folder / "a.model").checksum() == file_checksum(folder / "b.model"));

  auto sampled = settings;
  sampled.sample_sentences = 700;
  Vocabulary::train({demo_data("valid.de.gz")}, 600, sampled, folder / "c.model");
  Vocabulary::train({demo_data("valid.de.gz")}, 600, sampled, folder / "d.model");
  Vocabulary::train({demo_data("valid.de.gz")}, 600, settings, folder / "e.model");
  CHECK(read_file(folder / "c.model") == read_file(folder / "d.model"));
  CHECK(read_file(folder / "c.model") != read_file(folder / "e.model"));
}

TEST_CASE("a size that the text cannot give is refused with one that it can") {
  const TemporaryDirectory folder;
  const VocabularySettings settings{.algorithm = GENERATE(Algorithm::bpe, Algorithm::unigram)};
  write_file(folder / "text", "the cat sat on the mat\nthe dog sat on the log\nthe cat and the dog\n");
  const auto train = [&](int64_t size) { Vocabulary::train({folder / "text"}, size, settings, folder / "m.model"); };

  // The size after `words` in the message, tried out.
  const auto suggested = [&](const std::string& message, const std::string& words) -> int64_t {
    const size_t at = message.find(words);
    REQUIRE(at != std::string::npos);
    return std::stoll(message.substr(at + words.size()));
  };
  const auto large = error_of([&] { train(5000); });
  CHECK_THAT(large, Contains("too small for 5000 pieces") && Contains((folder / "text").string()));
  CHECK(!std::filesystem::exists(folder / "m.model"));
  const int64_t largest = suggested(large, "at most ");
  CHECK(largest > 260);
  train(largest);
  CHECK(Vocabulary(folder / "m.model").size() == largest);
  const std::string before = read_file(folder / "m.model");
  CHECK_THROWS_AS(train(largest + 1), Error);

  const auto small = error_of([&] { train(100); });
  CHECK_THAT(small, Contains("a size of 100") && Contains("256 bytes"));
  const int64_t smallest = suggested(small, "at least ");
  CHECK(smallest > 256 + 4);
  CHECK_THROWS_AS(train(smallest - 1), Error);
  CHECK_THROWS_AS(train(0), Error);
  CHECK_THROWS_AS(train(-5), Error);
  CHECK(read_file(folder / "m.model") == before);
}

TEST_CASE("text that nothing can be learned from is refused") {
  const TemporaryDirectory folder;
  const auto train = [&](const std::vector<std::filesystem::path>& files) {
    Vocabulary::train(files, 300, {}, folder / "m.model");
  };
  write_file(folder / "empty", "");
  write_file(folder / "blank", "\n\n\r\n");
  write_file(folder / "broken", "fine\nnot \xFF fine\n");
  CHECK_THAT(error_of([&] { train({}); }), Contains("no files"));
  CHECK_THAT(error_of([&] { train({folder / "empty", folder / "blank"}); }), Contains("blank") && Contains("empty"));
  CHECK_THAT(error_of([&] { train({folder / "absent"}); }), Contains("absent: no such file"));
  CHECK_THAT(error_of([&] { train({demo_data("valid.en.gz"), folder / "absent"}); }), Contains("absent: no such file"));
  CHECK_THAT(error_of([&] { train({folder / "broken"}); }), Contains("broken:2: not UTF-8"));
  CHECK_THAT(error_of([&] { Vocabulary::train({demo_data("valid.en.gz")}, 300, {}, folder / "no" / "m.model"); }),
             Contains("no such folder"));
  CHECK(!std::filesystem::exists(folder / "m.model"));
}

TEST_CASE("files that are no vocabulary are refused") {
  const TemporaryDirectory folder;
  const auto load = [&](const std::string& name) { return error_of([&] { Vocabulary{folder / name}; }); };
  CHECK_THAT(load("absent.model"), Contains("absent.model: no such file"));
  std::filesystem::create_directory(folder / "folder.model");
  CHECK_THAT(load("folder.model"), Contains("folder.model: is not a file"));
  write_file(folder / "empty.model", "");
  CHECK_THAT(load("empty.model"), Contains("empty.model"));
  write_file(folder / "text.model", "This is text.\n");
  CHECK_THAT(load("text.model"), Contains("text.model") && Contains("damaged"));

  small_vocabulary(folder);
  const std::string model = read_file(folder / "small.model");
  for (const size_t size : {size_t{1}, size_t{5}, size_t{1000}, model.size() / 2, model.size() - 1}) {
    write_file(folder / "cut.model", model.substr(0, size));
    CHECK_THAT(load("cut.model"), Contains("cut.model"));
  }

  run_reference("other_reserved_ids.py", demo_data("valid.en.gz").string() + " " + (folder / "other").string());
  CHECK_THAT(load("other.model"), Contains("other.model: reserves id -1 for padding") && Contains("padding 0"));
}

TEST_CASE("pieces are of the words that they were made of, whatever SentencePiece makes of blanks") {
  const TemporaryDirectory folder;
  run_reference("normalizing_vocabulary.py",
                fmt::format("'{}' '{}'", demo_data("valid.en.gz").string(), (folder / "nfkc").string()));
  const Vocabulary changing(folder / "nfkc.model"), own = small_vocabulary(folder, {}, 500);
  CHECK(changing.has_charsmap());
  CHECK(!own.has_charsmap());
  const std::vector<std::string> parts = {"the", "cat",    " ",      "  ",     " ", "\u200B", "\u200C", "\u00B4",
                                          ".",   "\uFDFA", "\u00E9", "\u65E5", "▁", "\u00A0", "\uFB01", "\U0001F600"};
  std::mt19937 random(1);
  for (const auto* vocabulary : {&changing, &own}) {
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (size_t i = random() % 12; i > 0; --i) text += parts[random() % parts.size()];
      text = trim(text);
      CAPTURE(text);
      const auto ids = vocabulary->encode(text);
      const auto words = vocabulary->words_of_pieces(text);
      REQUIRE(words.size() == ids.size());
      CHECK(std::is_sorted(words.begin(), words.end()));
      const auto expected = split_words(text);
      std::vector<std::vector<int64_t>> pieces(expected.size());
      for (size_t i = 0; i < ids.size(); ++i) pieces.at(static_cast<size_t>(words[i])).push_back(ids[i]);
      for (size_t word = 0; word < expected.size(); ++word) {
        CAPTURE(expected[word]);
        CHECK(trim(vocabulary->decode(pieces[word])) == trim(vocabulary->decode(vocabulary->encode(expected[word]))));
      }
    }
  }
  // Where ids are a table's, what says the language is a piece, and a word or the beginning of one.
  write_file(folder / "table.model",
             Vocabulary::with_table(read_file(folder / "nfkc.model"),
                                    {"<pad>", "<s>", "</s>", "<unk>", ">>fra<<", "▁a"}, "table.model"));
  const Vocabulary table(folder / "table.model");
  CHECK(table.words_of_pieces(">>fra<< a \u200B a") == std::vector<int64_t>{0, 1, 3});
  CHECK(table.words_of_pieces(">>fra<<a a") == std::vector<int64_t>{0, 0, 1});
  CHECK(table.words_of_pieces("\u200B").empty());
}

TEST_CASE("Python's sentencepiece gives the same ids with the same model") {
  const TemporaryDirectory folder;
  const auto normalization = GENERATE(Normalization::none, Normalization::nfc);
  const auto vocabulary = small_vocabulary(
      folder, {.algorithm = GENERATE(Algorithm::bpe, Algorithm::unigram), .normalization = normalization});
  std::vector<std::string> texts = read_lines(demo_data("valid.de.gz"));
  for (const auto& text : odd_texts()) {
    // Python would give back a space for the space symbol, and it passes over the record of normalisation: it is right
    // for text that is normal.
    if (text.find("\u2581") != std::string::npos) continue;
    texts.push_back(normalization == Normalization::none ? text : normalized(text));
  }
  std::string all;
  for (const auto& text : texts) all += text + "\n";
  write_file(folder / "text", all);
  run_reference("sentencepiece_ids.py",
                fmt::format("{0}/small.model {0}/text {0}/ids {0}/decoded", folder.path().string()));
  CHECK(read_file(folder / "decoded") == all);
  std::string ours;
  for (const auto& text : texts) {
    std::string line;
    for (const int64_t id : vocabulary.encode(text)) {
      if (!line.empty()) line += ' ';
      line += std::to_string(id);
    }
    ours += line + "\n";
  }
  CHECK(read_file(folder / "ids") == ours);
}

TEST_CASE("threads share a vocabulary") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  const auto lines = read_lines(demo_data("valid.en.gz"));
  std::vector<std::vector<int64_t>> expected;
  for (const auto& line : lines) expected.push_back(vocabulary.encode(line));
  std::vector<int> different(4);
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < different.size(); ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t i = 0; i < lines.size(); ++i) different[thread] += vocabulary.encode(lines[i]) != expected[i];
      });
    }
  }
  CHECK(different == std::vector<int>(4, 0));
}

}  // namespace transformer::test
