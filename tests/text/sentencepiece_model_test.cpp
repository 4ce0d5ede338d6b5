#include "transformer/text/sentencepiece_model.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>

#include "text_support.h"

namespace transformer::test {

using Type = SentencePieceModel::Type;

namespace {

// --- protobuf's wire format, written by hand -----------------------------------------------------------------

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string number_field(uint32_t number, uint64_t value) {
  return fmt::format("{}{}", varint(number << 3), varint(value));
}

std::string text_field(uint32_t number, const std::string& bytes) {
  return fmt::format("{}{}{}", varint(number << 3 | 2), varint(bytes.size()), bytes);
}

std::string float_field(uint32_t number, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  std::string bytes = varint(number << 3 | 5);
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(bits >> 8 * i);
  return bytes;
}

std::string piece(const std::string& text, Type type = Type::normal, float score = -1) {
  return text_field(1, text_field(1, text) + float_field(2, score) + number_field(3, static_cast<uint64_t>(type)));
}

std::string reserved_pieces() {
  return piece("<pad>", Type::control) + piece("<s>", Type::control) + piece("</s>", Type::control) +
         piece("<unk>", Type::unknown);
}

// BPE, with the reserved ids of ours.
const std::string training =
    number_field(3, 2) + number_field(40, 3) + number_field(41, 1) + number_field(42, 2) + number_field(43, 0);

std::string small_model() {
  return reserved_pieces() + piece("\u2581") + piece("a") +
         piece(
             "\u2581"
             "a",
             Type::normal, 0) +
         text_field(2, training);
}

// --- normalisation tables ------------------------------------------------------------------------------------

// The block of a table that replaces "a" by "b": 512 units of a double-array trie and the replacement.
struct Table {
  std::vector<uint32_t> units = std::vector<uint32_t>(512, 0x80000000);
  std::string replacements = std::string("b\0", 2);

  Table() {
    units[0] = 256u << 10;                        // the root's children are at 256 ^ byte
    units[256 ^ 'a'] = 1u << 10 | 1u << 8 | 'a';  // its value is beside it
    units[256 ^ 'a' ^ 1] = 0x80000000;            // the replacement at 0
  }
  std::string block() const {
    std::string bytes(4 + units.size() * 4, '\0');
    const auto size = static_cast<uint32_t>(units.size() * 4);
    std::memcpy(bytes.data(), &size, 4);
    std::memcpy(bytes.data() + 4, units.data(), size);
    return bytes + replacements;
  }
};

std::string with_table(const std::string& block, uint32_t field = 3) {
  return small_model() + text_field(field, text_field(1, "x") + text_field(2, block) + number_field(3, 1));
}

// ------------------------------------------------------------------------------------------------------------

// Loads the bytes as a vocabulary and uses it, if it is one. False: it was refused as it should be.
bool works(const std::filesystem::path& file, const std::string& bytes) {
  write_file(file, bytes);
  try {
    const Vocabulary vocabulary(file);
    for (const char* text : {"", " a", "Hello, w\u00F6rld 12", "\u2581\u65E5\x01 \U0001F600", "aaaa"}) {
      const auto ids = vocabulary.encode(text);
      for (const int64_t id : ids) {
        if (id < 0 || id >= vocabulary.size()) throw std::logic_error("an id out of range");
      }
      if (vocabulary.words_of_pieces(text).size() != ids.size()) throw std::logic_error("a word for each piece");
      vocabulary.decode(ids);
      vocabulary.decode(vocabulary.sample(text, 0.3));
    }
    return true;
  } catch (const Error& error) {
    if (!std::string_view(error.what()).starts_with(file.string() + ": ")) throw;
    return false;
  }
}

std::string refusal(const std::string& bytes) {
  return error_of([&] { SentencePieceModel::read(bytes, "file"); });
}

}  // namespace

TEST_CASE("a vocabulary is read as it was written") {
  const TemporaryDirectory folder;
  const auto vocabulary =
      small_vocabulary(folder, {.normalization = GENERATE(Normalization::none, Normalization::nfc)});
  const std::string bytes = read_file(folder / "small.model");
  const auto model = SentencePieceModel::read(bytes, "file");
  CHECK(model.normalization == vocabulary.normalization());
  REQUIRE(static_cast<int64_t>(model.pieces.size()) == vocabulary.size());
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    CHECK(model.pieces[static_cast<size_t>(id)].text == vocabulary.piece(id));
  }
  CHECK(works(folder / "made", small_model()));
  CHECK(works(folder / "table", with_table(Table().block())));
}

TEST_CASE("no cut and no flipped bit of a vocabulary harms anybody") {
  const TemporaryDirectory folder;
  write_file(folder / "text", "the cat sat on the mat\nthe dog sat on the log\nthe cat and the dog\n");
  const auto algorithm = GENERATE(VocabularySettings::Algorithm::bpe, VocabularySettings::Algorithm::unigram);
  const bool bytes_too = GENERATE(false, true);
  Vocabulary::train({folder / "text"}, bytes_too ? 276 : 20, {.algorithm = algorithm, .byte_fallback = bytes_too},
                    folder / "whole");
  const std::string whole = read_file(folder / "whole");
  REQUIRE(works(folder / "changed", whole));
  // All of a small file; of one with 256 alike pieces some.
  const size_t step = bytes_too ? 29 : 1;
  size_t working = 0, refused = 0;
  for (size_t size = 0; size < whole.size(); size += step) {
    // Cut behind a field, it is whole for everybody.
    (works(folder / "changed", whole.substr(0, size)) ? working : refused) += 1;
  }
  CHECK(refused > working);
  for (size_t at = 0; at < whole.size(); at += step) {
    auto changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1 << at % 8);
    (works(folder / "changed", changed) ? working : refused) += 1;
  }
  CHECK(working > 0);
  // Everything there is once more at the end, and in the beginning.
  CHECK(!works(folder / "changed", whole + whole));
  CHECK(!works(folder / "changed", piece("a") + piece("a") + whole));
}

TEST_CASE("a normalisation table is followed to its ends, or refused") {
  const TemporaryDirectory folder;
  run_reference("normalizing_vocabulary.py", demo_data("valid.en.gz").string() + " " + (folder / "nfkc").string());
  const auto vocabulary = Vocabulary(folder / "nfkc.model");
  CHECK(vocabulary.decode(vocabulary.encode("\uFB01ne\tA\u030A")) == "fine \u00C5");

  // Every tenth byte of its 200,000 and all of those where the file's structure stands, changed: refused, or working.
  const std::string whole = read_file(folder / "nfkc.model");
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); at += 997) {
    auto changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    refused += !works(folder / "changed", changed);
  }
  CHECK(refused > 10);

  for (const uint32_t field : {3u, 5u}) {
    CHECK(refusal(with_table(Table().block(), field)).empty());
    const auto refused_with = [&](const auto& change, const std::string& what) {
      Table table;
      change(table);
      CHECK_THAT(refusal(with_table(table.block(), field)), Contains("file: ") && Contains(what));
      CHECK(!works(folder / "changed", with_table(table.block(), field)));
    };
    refused_with([](Table& t) { t.units[256 ^ 'a'] = 0x1FFFFFu << 10 | 'a'; }, "leads out of itself");
    refused_with([](Table& t) { t.units[0] = 512u << 10; }, "leads out of itself");
    refused_with([](Table& t) { t.units[0] = 1u << 9 | 256u << 10; }, "leads out of itself");  // 256 << 8
    refused_with([](Table& t) { t.units.resize(300); }, "leads out of itself");
    refused_with([](Table& t) { t.units[256 ^ 'a' ^ 1] = 0x80000002; }, "beyond its end");
    refused_with([](Table& t) { t.units[256 ^ 'a' ^ 1] = 0xFFFFFFFF; }, "beyond its end");
    refused_with([](Table& t) { t.replacements.pop_back(); }, "within a replacement");
    refused_with([](Table& t) { t.replacements = std::string("\xFF\0", 2); }, "not UTF-8");
    refused_with([](Table& t) { t.replacements = std::string(1000, 'b') + '\0'; }, "too long");
    // "a" over and over: SentencePiece has room for 32 ends of texts, one within the other.
    refused_with([](Table& t) { t.units[256 ^ 'a'] = static_cast<uint32_t>('a') << 10 | 1u << 8 | 'a'; },
                 "too long a text");
    const std::string block = Table().block();
    for (const size_t size : {size_t{1}, size_t{4}, size_t{5}, size_t{1000}, size_t{2052}, block.size() - 1}) {
      CHECK_THAT(refusal(with_table(block.substr(0, size), field)), Contains("precompiled_charsmap"));
    }
    CHECK_THAT(refusal(with_table(std::string("\x03\0\0\0abc\0", 8), field)), Contains("precompiled_charsmap"));
    CHECK_THAT(refusal(with_table(std::string("\0\0\0\0b\0", 6), field)), Contains("precompiled_charsmap"));
    CHECK_THAT(refusal(with_table(std::string((size_t{1} << 20) + 1, 'x'), field)), Contains("1 MiB"));
  }
  // The same field appended, as protobuf joins messages.
  CHECK_THAT(refusal(with_table(Table().block()) + text_field(3, text_field(2, "xxxx"))), Contains("field 3 twice"));
}

TEST_CASE("what is wrong with a vocabulary is said") {
  const auto refused = [](const std::string& bytes, const std::string& what) {
    CHECK_THAT(refusal(bytes), Contains("file: ") && Contains("byte") && Contains(what));
  };
  const std::string spec = text_field(2, training);
  CHECK(refusal(small_model()).empty());
  refused("", "no pieces");
  refused(spec, "no pieces");
  refused(piece("a") + spec, "no piece is unknown");
  refused(small_model() + piece("<unk2>", Type::unknown), "two pieces are unknown");
  refused(small_model() + piece("a"), "'a' stands there twice");
  refused(small_model() + piece("a", Type::control), "twice");
  refused(small_model() + piece(""), "empty");
  refused(small_model() + text_field(1, ""), "empty");
  refused(small_model() + piece(std::string(513, 'x')), "513 bytes");
  refused(small_model() + piece("\xFF"), "no text");
  refused(small_model() + piece(std::string("b\0c", 3)), "no text");
  for (const float score : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), 3e38F}) {
    refused(small_model() + piece("b", Type::normal, score), "score");
  }
  refused(small_model() + text_field(1, text_field(1, "b") + number_field(3, 7)), "type 7");
  refused(small_model() + text_field(1, text_field(1, "b") + number_field(3, 0)), "type 0");
  refused(small_model() + text_field(1, text_field(1, "b") + text_field(1, "c")), "field 1 twice");
  refused(small_model() + text_field(1, text_field(1, "b") + number_field(2, 1)), "another type");
  refused(small_model() + piece("<0x41>", Type::byte), "1 of the 256 bytes");
  refused(small_model() + piece("<0x4g>", Type::byte), "is no byte");
  refused(reserved_pieces() + text_field(2, training + number_field(35, 1)), "0 of the 256 bytes");
  refused(small_model() + spec, "field 2 twice");
  CHECK_THAT(refusal(reserved_pieces() + text_field(2, number_field(3, 3))),
             Contains("file: is of SentencePiece's word"));
  CHECK_THAT(refusal(reserved_pieces() + text_field(2, number_field(3, 4))),
             Contains("file: is of SentencePiece's char"));
  refused(reserved_pieces() + text_field(2, number_field(3, 5)), "neither algorithm");
  refused(reserved_pieces() + text_field(2, training + number_field(3, 1)), "twice");
  refused(small_model() + text_field(4, std::string((size_t{1} << 20) + 1, 'x')), "self-test");
  refused(small_model() + varint(3 << 3 | 0) + varint(1), "another type");
  refused(small_model() + varint(9 << 3 | 3), "kind that is not used");
  refused(small_model() + varint(2) + varint(0), "without a number");
  refused(small_model() + varint(9 << 3 | 2) + std::string(9, '\xFF') + "\x01", "too early");
  refused(small_model() + varint(9 << 3) + std::string(10, '\xFF'), "64 bits");
  refused(small_model() + varint(9 << 3) + std::string(9, '\xFF') + "\x02", "64 bits");
  CHECK(refusal(small_model() + number_field(9, ~uint64_t{0}) + text_field(77, "x") + float_field(99, 1)).empty());

  // 64 symbols of users, one within the other, are all that SentencePiece has room for.
  std::string symbols;
  for (size_t length = 1; length <= 64; ++length) symbols += piece(std::string(length, 'b'), Type::user_defined);
  const TemporaryDirectory folder;
  CHECK(works(folder / "m", small_model() + symbols));
  refused(small_model() + symbols + piece(std::string(65, 'b'), Type::user_defined), "one another");
}

TEST_CASE("the record of normalisation is ours alone") {
  const TemporaryDirectory folder;
  const auto nfc = SentencePieceModel::normalization_field(Normalization::nfc);
  CHECK(SentencePieceModel::normalization_field(Normalization::none).empty());
  CHECK(nfc == text_field(200, "transformer.normalization=nfc"));
  const auto of = [&](const std::string& bytes) { return SentencePieceModel::read(bytes, "file").normalization; };
  CHECK(of(small_model()) == Normalization::none);
  CHECK(of(small_model() + nfc) == Normalization::nfc);
  CHECK(of(nfc + small_model()) == Normalization::nfc);
  CHECK(of(small_model() + text_field(200, "another program's") + nfc) == Normalization::nfc);
  CHECK_THAT(refusal(small_model() + nfc + nfc), Contains("twice"));
  CHECK_THAT(refusal(small_model() + text_field(200, "transformer.normalization=nfd")), Contains("later version"));
  CHECK(works(folder / "m", small_model() + nfc));
}

TEST_CASE("ids of a table are the places of its pieces, and no text is a reserved one") {
  const TemporaryDirectory folder;
  const std::vector<std::string> table = {"<none>",
                                          "<go>",
                                          "<stop>",
                                          "<what>",
                                          ">>fra<<",
                                          "\u2581"
                                          "a",
                                          "b",
                                          "<stop> "};
  const auto bytes = Vocabulary::with_table(small_model() + piece("b"), table, "file");
  write_file(folder / "m", bytes);
  const Vocabulary vocabulary(folder / "m");
  CHECK(vocabulary.has_table());
  CHECK(vocabulary.size() == 8);
  for (size_t id = 0; id < table.size(); ++id) CHECK(vocabulary.piece(static_cast<int64_t>(id)) == table[id]);
  using Ids = std::vector<int64_t>;
  CHECK(vocabulary.encode("a") == Ids{5});
  CHECK(vocabulary.encode(">>fra<<a") == Ids{4, 5});
  CHECK(vocabulary.encode(">>fra<< a") == Ids{4, 5});
  CHECK(vocabulary.encode(">>deu<<a") == Ids{3, 5});
  CHECK(vocabulary.code_of(">>fra<<a") == ">>fra<<");
  CHECK(vocabulary.code_of(">>deu<< a << b") == ">>deu<<");
  for (const auto& text : {"", "a >>fra<<", ">>fra", "<<a"}) CHECK(vocabulary.code_of(text).empty());
  CHECK(vocabulary.encode("ab") == Ids{5, 6});
  // Without such pieces, what looks like a code is text.
  write_file(folder / "plain", Vocabulary::with_table(small_model() + piece("b"),
                                                      {"<none>", "<go>", "<stop>", "<what>",
                                                       "\u2581"
                                                       "a",
                                                       "b"},
                                                      "file"));
  const Vocabulary plain(folder / "plain");
  CHECK(plain.code_of(">>fra<<a").empty());
  CHECK(plain.encode(">>a<<b").size() > 2);
  CHECK(plain.encode(">>a<<b").back() == 5);
  // Pieces that the model has and the table has not, and those that neither has.
  CHECK(vocabulary.encode("aa") == Ids{5, 3});
  for (const auto& reserved : {"<none>", "<go>", "<stop>", ">>fra", "<<>>"}) {
    for (const auto id : vocabulary.encode(reserved)) CHECK(id >= Vocabulary::unknown);
  }
  CHECK(vocabulary.decode({1, 5, 3, 6, 2, 0}) == "ab");
  CHECK(vocabulary.decode({4, 5, 5}) == ">>fra<< a a");
  for (const auto id : vocabulary.sample("ab", 0.5)) CHECK((id == Vocabulary::unknown || id >= 5));

  // A vocabulary without a table says so, and gives the model back as it was.
  write_file(folder / "plain", small_model());
  CHECK_FALSE(Vocabulary(folder / "plain").has_table());
  CHECK(SentencePieceModel::without_own_fields(bytes, "file") == small_model() + piece("b"));
  const auto nfc = SentencePieceModel::normalization_field(Normalization::nfc);
  CHECK(SentencePieceModel::without_own_fields(small_model() + nfc + text_field(201, "x"), "file") ==
        small_model() + text_field(201, "x"));

  CHECK_THAT(error_of([&] { Vocabulary::with_table(bytes, table, "file"); }), Contains("already"));
  const auto mistake = [&](std::vector<std::string> pieces) {
    return error_of([&] { Vocabulary::with_table(small_model(), pieces, "file"); });
  };
  CHECK_THAT(mistake({"a", "b", "c", "d"}), Contains("no pieces but the reserved"));
  CHECK_THAT(mistake({"a", "b", "c", "d", "a"}), Contains("'a' twice"));
  CHECK_THAT(mistake({"a", "b", "c", "d", ""}), Contains("empty"));
  CHECK_THAT(mistake({"a", "b", "c", "d", "\xff"}), Contains("no text"));
  CHECK_THAT(mistake({"a", "b", "c", "d", std::string(513, 'x')}), Contains("513 bytes"));
  CHECK_THAT(refusal(bytes + text_field(200, "transformer.pieces=table")), Contains("twice"));
  CHECK_THAT(refusal(bytes + nfc), Contains("twice"));
}

TEST_CASE("languages of a table are told by their pieces, and no text names them") {
  const TemporaryDirectory folder;
  const std::vector<std::string> table = {"<none>", "<go>",  "<stop>", "<what>",   "__fr__",
                                          "b",      "de_DE", "<mask>", "<nothing>"};
  const std::vector<std::string> languages = {"__fr__", "de_DE"}, controls = {"<mask>", "<nothing>"};
  const auto bytes = [&](bool behind_end) {
    return Vocabulary::with_languages(small_model() + piece("b") + piece("de_DE"), table, languages, controls,
                                      behind_end, "file");
  };
  using Ids = std::vector<int64_t>;
  for (const bool behind_end : {false, true}) {
    write_file(folder / "m", bytes(behind_end));
    const Vocabulary vocabulary(folder / "m");
    CHECK(vocabulary.has_table());
    CHECK(vocabulary.languages().pieces == std::map<std::string, int64_t>{{"fr", 4}, {"de_DE", 6}});
    CHECK(vocabulary.languages().source({5, 5}, 4) == (behind_end ? Ids{5, 5, 2, 4} : Ids{4, 5, 5, 2}));
    CHECK(vocabulary.languages().piece("de_DE", "somewhere") == 6);
    CHECK_THAT(error_of([&] { vocabulary.languages().piece("de", "somewhere"); }),
               Contains("somewhere: is 'de'") && Contains("none of this model's 2 languages") &&
                   Contains("nearest are de_DE"));
    CHECK_THAT(error_of([&] { vocabulary.languages().piece("", "somewhere"); }), Contains("has to be said"));
    CHECK_THAT(error_of([&] { vocabulary.languages().piece(std::string(100000, 'x'), "somewhere"); }),
               Contains("none of"));
    // What a text says is no language, not even where SentencePiece has a piece of the same letters.
    for (const auto& text : {"de_DE", "__fr__", ">>fra<< b", "<mask>"}) {
      for (const auto id : vocabulary.encode(text)) CHECK((id == Vocabulary::unknown || id == 5));
    }
    CHECK(vocabulary.decode({4, 5, 7, 8, 5, 6}) == "bb");
    for (int64_t id = 0; id < vocabulary.size(); ++id) CHECK(vocabulary.is_control(id) == (id != 5));
    CHECK(SentencePieceModel::without_own_fields(bytes(behind_end), "file") ==
          small_model() + piece("b") + piece("de_DE"));
  }
  write_file(folder / "plain", small_model());
  CHECK(Vocabulary(folder / "plain").languages().empty());
  CHECK_THAT(error_of([&] { Vocabulary(folder / "plain").languages().piece("de", "x"); }), Contains("cannot be told"));
  const auto mistake = [&](std::vector<std::string> named, std::vector<std::string> others) {
    return error_of([&] { Vocabulary::with_languages(small_model(), table, named, others, false, "file"); });
  };
  CHECK_THAT(mistake({}, {}), Contains("names no languages"));
  CHECK_THAT(mistake({"fr"}, {}), Contains("lacks 'fr'"));
  CHECK_THAT(mistake({"b", "b"}, {}), Contains("twice"));
  CHECK_THAT(mistake({"b"}, {"b"}), Contains("twice"));
  CHECK_THAT(mistake({"<stop>"}, {}), Contains("reserved piece"));
}

}  // namespace transformer::test
