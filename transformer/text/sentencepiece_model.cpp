#include "transformer/text/sentencepiece_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <unordered_set>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {
namespace {

using Type = SentencePieceModel::Type;
using LanguagePlace = SentencePieceModel::LanguagePlace;

// sentencepiece_model.proto sets fields from 200 on aside for programs of others.
constexpr uint32_t own_field = 200;
constexpr std::string_view own_prefix = "transformer.";
constexpr std::string_view nfc_record = "transformer.normalization=nfc";
constexpr std::string_view table_record = "transformer.pieces=table";
constexpr uint32_t table_field = 201;  // an entry of the table each, where the record says that there is one
// The same with languages, whose records say where a source names its own; then entries of the table are repeated in
// these fields.
constexpr std::string_view language_before_record = "transformer.pieces=table, language before the text";
constexpr std::string_view language_behind_record = "transformer.pieces=table, language behind the end";
constexpr uint32_t language_field = 202, control_field = 203;

// What SentencePiece's matchers have room for: more would be read from beyond the end of an array.
constexpr size_t longest_rewritten = 32;    // bytes of a text that a normalisation table replaces
constexpr size_t most_nested_symbols = 64;  // symbols defined by the user, each the beginning of the next
// A line may not become a thousand times as long: Unicode's own tables write up to 11 bytes for one.
constexpr size_t most_growth = 16;
constexpr size_t most_table_bytes = size_t{1} << 20;
constexpr size_t most_self_test_bytes = size_t{1} << 20;
constexpr float largest_score = 1e9F;

enum class Wire { varint = 0, eight_bytes = 1, length = 2, four_bytes = 5 };

struct Field {
  uint32_t number = 0;
  Wire wire = Wire::varint;
  uint64_t value = 0;      // of numbers
  std::string_view bytes;  // of Wire::length
};

/// The fields of one message, one after the other: protobuf's wire format.
class Message {
 public:
  Message(std::string_view bytes, const char* whole, const std::string& file)
      : bytes_(bytes), whole_(whole), file_(file) {}

  /// False at the end.
  bool next(Field& field) {
    start_ = position_;
    if (position_ == bytes_.size()) return false;
    const uint64_t tag = varint();
    field = {};
    if (tag >> 3 == 0 || tag >> 32 != 0) fail("has a field without a number");
    field.number = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0:
        field.wire = Wire::varint;
        field.value = varint();
        break;
      case 1:
        field.wire = Wire::eight_bytes;
        field.value = fixed(8);
        break;
      case 2:
        field.wire = Wire::length;
        field.bytes = take(varint());
        break;
      case 5:
        field.wire = Wire::four_bytes;
        field.value = fixed(4);
        break;
      default:
        fail(fmt::format("has field {} of a kind that is not used", field.number));
    }
    return true;
  }

  /// Behind the last field.
  size_t position() const { return position_; }

  /// For fields that stand once at most: protobuf would take the last one, or join them.
  void once(const Field& field) {
    if (!seen_.insert(field.number).second) fail(fmt::format("has field {} twice", field.number));
  }
  void expect(const Field& field, Wire wire) const {
    if (field.wire != wire) fail(fmt::format("has field {} of another type", field.number));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(
        file_,
        fmt::format("is no SentencePiece model or is damaged (byte {}: {})", start_ + (bytes_.data() - whole_), what),
        "expected a SentencePiece model as train writes it");
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - position_) fail("ends too early");
    const auto taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  uint64_t fixed(size_t count) {
    uint64_t value = 0;
    const auto taken = take(count);
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(taken[i])) << 8 * i;
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint64_t byte = fixed(1);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("has a number of more than 64 bits");
  }

  std::string_view bytes_;
  const char* whole_;  // where the file's bytes begin
  const std::string& file_;
  size_t position_ = 0;
  size_t start_ = 0;  // of the field
  std::set<uint32_t> seen_;
};

/// Follows a normalisation table through every text that it can be applied to: a double-array trie of Darts, behind
/// its size, whose values are where replacements begin in the block behind it, each ended by a zero byte.
class RewritingTable {
 public:
  RewritingTable(std::string_view table, const Message& message) : message_(message) {
    uint32_t size = 0;
    if (table.size() <= sizeof(size)) refuse("is too short");
    std::memcpy(&size, table.data(), sizeof(size));
    table.remove_prefix(sizeof(size));
    if (size >= table.size() || size % sizeof(uint32_t) != 0 || size == 0) refuse("has another size than it says");
    units_.resize(size / sizeof(uint32_t));
    std::memcpy(units_.data(), table.data(), size);
    replacements_ = table.substr(size);
    if (replacements_.back() != '\0') refuse("ends within a replacement");
    if (find_broken_utf8(replacements_) != std::string_view::npos) refuse("holds replacements that are not UTF-8");
  }

  void check() const {
    // The states that texts of `length` bytes lead to. They may be reached by several texts, of other lengths, and a
    // hostile table runs in circles.
    std::vector<size_t> states{offset(units_[0])};
    for (size_t length = 1; !states.empty(); ++length) {
      std::vector<size_t> next;
      std::vector<bool> reached(units_.size(), false);
      for (const size_t state : states) {
        // SentencePiece looks at the unit of any byte that may follow before it knows whether there is one.
        if ((state | 0xFF) >= units_.size()) refuse("leads out of itself");
        for (uint32_t byte = 0; byte < 256; ++byte) {
          const size_t node = state ^ byte;
          const uint32_t unit = units_[node];
          if ((unit & (uint32_t{1} << 31 | 0xFF)) != byte) continue;
          if (length > longest_rewritten) refuse("replaces too long a text");
          const size_t after = node ^ offset(unit);
          if (after >= units_.size()) refuse("leads out of itself");
          if ((unit >> 8 & 1) != 0) check_replacement(units_[after] & ~(uint32_t{1} << 31), length);
          if (!reached[after]) next.push_back(after);
          reached[after] = true;
        }
      }
      states = std::move(next);
    }
  }

 private:
  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & uint32_t{1} << 9) >> 6); }

  void check_replacement(size_t start, size_t replaced) const {
    if (start >= replacements_.size()) refuse("has a replacement beyond its end");
    const auto text = replacements_.substr(start, replacements_.find('\0', start) - start);
    if (text.size() > most_growth * replaced) refuse("makes texts too long");
    if (continues_character(replacements_[start])) refuse("has half a character");
  }

  [[noreturn]] void refuse(const char* what) const {
    message_.fail(fmt::format("its table of normalisation (precompiled_charsmap) {}", what));
  }

  const Message& message_;
  std::vector<uint32_t> units_;
  std::string_view replacements_;
};

/// Whether it has a table.
bool read_normalizer(const Field& spec, const char* whole, const std::string& file) {
  bool has_table = false;
  Message message(spec.bytes, whole, file);
  for (Field field; message.next(field);) {
    if (field.number > 5) continue;
    message.once(field);
    message.expect(field, field.number <= 2 ? Wire::length : Wire::varint);
    if (field.number != 2 || field.bytes.empty()) continue;
    if (field.bytes.size() > most_table_bytes) message.fail("its table of normalisation is larger than 1 MiB");
    RewritingTable(field.bytes, message).check();
    has_table = true;
  }
  return has_table;
}

void check_text(std::string_view piece, const Message& message) {
  if (piece.empty()) message.fail("a piece is empty");
  if (piece.size() > SentencePieceModel::longest_piece) {
    message.fail(fmt::format("a piece has {} bytes, more than {}", piece.size(), SentencePieceModel::longest_piece));
  }
  if (find_broken_utf8(piece) != std::string_view::npos || piece.find('\0') != std::string_view::npos) {
    message.fail(fmt::format("the piece {} is no text", in_quotes(piece)));
  }
}

SentencePieceModel::Piece read_piece(const Field& piece, const char* whole, const std::string& file) {
  SentencePieceModel::Piece result;
  Message message(piece.bytes, whole, file);
  for (Field field; message.next(field);) {
    if (field.number > 3) continue;
    message.once(field);
    if (field.number == 1) {
      message.expect(field, Wire::length);
      result.text = field.bytes;
    } else if (field.number == 2) {
      message.expect(field, Wire::four_bytes);
      result.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
      if (!(std::abs(result.score) <= largest_score)) message.fail("a piece's score is not finite or far too large");
    } else {
      message.expect(field, Wire::varint);
      if (field.value < 1 || field.value > 6) message.fail(fmt::format("a piece is of type {}", field.value));
      result.type = static_cast<Type>(field.value);
    }
  }
  check_text(result.text, message);
  return result;
}

/// What the trainer's record says that applying a vocabulary depends on.
struct Training {
  uint64_t algorithm = 1;
  bool byte_fallback = false;
};

Training read_training(const Field& spec, const char* whole, const std::string& file) {
  constexpr uint32_t algorithm = 3, byte_fallback = 35;
  Training training;
  Message message(spec.bytes, whole, file);
  for (Field field; message.next(field);) {
    if (field.number != algorithm && field.number != byte_fallback) continue;
    message.once(field);
    message.expect(field, Wire::varint);
    if (field.number == algorithm) {
      if (field.value == 3 || field.value == 4) {
        throw Error(file, fmt::format("is of SentencePiece's {} pieces", field.value == 3 ? "word" : "char"),
                    "learn one with --model_type unigram or bpe");
      }
      if (field.value != 1 && field.value != 2) message.fail("it is of neither algorithm, unigram (1) nor BPE (2)");
      training.algorithm = field.value;
    } else {
      training.byte_fallback = field.value != 0;
    }
  }
  return training;
}

/// Of a record that says that there is a table; none where it says something else.
std::optional<LanguagePlace> place_of(std::string_view record) {
  if (record == table_record) return LanguagePlace::nowhere;
  if (record == language_before_record) return LanguagePlace::before_text;
  if (record == language_behind_record) return LanguagePlace::behind_end;
  return std::nullopt;
}

/// A field of bytes, as the file has it.
std::string field_of(uint32_t number, std::string_view bytes) {
  std::string field;
  const auto varint = [&](size_t value) {
    for (; value >= 0x80; value >>= 7) field += static_cast<char>((value & 0x7F) | 0x80);
    field += static_cast<char>(value);
  };
  varint(number << 3 | static_cast<uint32_t>(Wire::length));
  varint(bytes.size());
  return field.append(bytes);
}

}  // namespace

SentencePieceModel SentencePieceModel::read(std::string_view bytes, const std::string& file) {
  SentencePieceModel model;
  Training training;
  std::unordered_set<std::string_view> texts, entries, named;
  bool has_table = false;
  std::vector<std::string_view> symbols;  // defined by the user
  std::vector<bool> spelled(256, false);
  size_t unknown = 0, byte_pieces = 0;
  Message message(bytes, bytes.data(), file);
  if (bytes.size() > most_bytes) message.fail(fmt::format("it is larger than {} MiB", most_bytes >> 20));
  for (Field field; message.next(field);) {
    if (field.number == table_field && has_table) {
      message.expect(field, Wire::length);
      if (model.table.size() == most_pieces)
        message.fail(fmt::format("its table has more than {} pieces", most_pieces));
      check_text(field.bytes, message);
      if (!entries.insert(field.bytes).second) {
        message.fail(fmt::format("its table has the piece {} twice", in_quotes(field.bytes)));
      }
      model.table.push_back(field.bytes);
      continue;
    }
    if ((field.number == language_field || field.number == control_field) &&
        model.language_place != LanguagePlace::nowhere) {
      message.expect(field, Wire::length);
      if (!entries.contains(field.bytes)) {
        message.fail(
            fmt::format("its table lacks {}, which should name a language or nothing", in_quotes(field.bytes)));
      }
      if (!named.insert(field.bytes).second) {
        message.fail(fmt::format("{} names a language or nothing twice", in_quotes(field.bytes)));
      }
      (field.number == language_field ? model.languages : model.controls).push_back(field.bytes);
      continue;
    }
    if (field.number > 5 && field.number != own_field) continue;
    message.expect(field, Wire::length);
    if (field.number != 1) {
      // Fields of this number may be another program's as well; only ours is ours to judge.
      if (field.number == own_field && !field.bytes.starts_with(own_prefix)) continue;
      message.once(field);
    }
    if (field.number == 1) {
      if (model.pieces.size() == most_pieces) message.fail(fmt::format("it has more than {} pieces", most_pieces));
      const auto piece = read_piece(field, bytes.data(), file);
      if (!texts.insert(piece.text).second) {
        message.fail(fmt::format("the piece {} stands there twice", in_quotes(piece.text)));
      }
      if (piece.type == Type::unknown && ++unknown > 1) message.fail("two pieces are unknown");
      if (piece.type == Type::user_defined) symbols.push_back(piece.text);
      if (piece.type == Type::byte) {
        unsigned value = 0;
        while (value < 256 && piece.text != fmt::format("<0x{:02X}>", value)) ++value;
        if (value == 256) message.fail(fmt::format("the piece {} is no byte", in_quotes(piece.text)));
        spelled[value] = true;
        ++byte_pieces;
      }
      model.pieces.push_back(piece);
    } else if (field.number == 2) {
      training = read_training(field, bytes.data(), file);
    } else if (field.number == 4) {
      // SentencePiece splits these texts as it loads.
      if (field.bytes.size() > most_self_test_bytes) message.fail("its texts for a self-test are larger than 1 MiB");
    } else if (field.number == own_field) {
      if (const auto place = place_of(field.bytes)) {
        has_table = true;
        model.language_place = *place;
      } else if (field.bytes == nfc_record) {
        model.normalization = Normalization::nfc;
      } else {
        message.fail(fmt::format("{} is not known here; it may be a later version's", in_quotes(field.bytes)));
      }
    } else {
      const bool has_charsmap = read_normalizer(field, bytes.data(), file);
      model.has_charsmap |= has_charsmap && field.number == 3;  // 5 is for decoding
    }
  }
  if (model.pieces.empty()) message.fail("it has no pieces");
  if (unknown != 1) message.fail("no piece is unknown");
  if (has_table && model.table.size() < 5) message.fail("its table has no pieces but the reserved ones");
  if (model.language_place != LanguagePlace::nowhere && model.languages.empty()) {
    message.fail("its table names no languages");
  }
  for (size_t id = 0; id < std::min<size_t>(4, model.table.size()); ++id) {
    if (named.contains(model.table[id])) message.fail("a reserved piece of its table names a language or nothing");
  }
  if (byte_pieces != (training.byte_fallback ? 256U : 0U)) {
    message.fail(fmt::format("it has {} of the 256 bytes; its training says {}", byte_pieces,
                             training.byte_fallback ? "all" : "none"));
  }
  std::sort(symbols.begin(), symbols.end());
  std::vector<std::string_view> nested;
  for (const auto symbol : symbols) {
    while (!nested.empty() && !symbol.starts_with(nested.back())) nested.pop_back();
    nested.push_back(symbol);
    if (nested.size() > most_nested_symbols) message.fail("too many user-defined symbols begin with one another");
  }
  return model;
}

std::string SentencePieceModel::normalization_field(Normalization normalization) {
  return normalization == Normalization::none ? "" : field_of(own_field, nfc_record);
}

std::string SentencePieceModel::table_fields(const std::vector<std::string>& table) {
  return table_fields(table, {}, {}, LanguagePlace::nowhere);
}

std::string SentencePieceModel::table_fields(const std::vector<std::string>& table,
                                             const std::vector<std::string>& languages,
                                             const std::vector<std::string>& controls, LanguagePlace place) {
  std::string fields = field_of(own_field, place == LanguagePlace::nowhere       ? table_record
                                           : place == LanguagePlace::before_text ? language_before_record
                                                                                 : language_behind_record);
  for (const auto& piece : table) fields += field_of(table_field, piece);
  for (const auto& piece : languages) fields += field_of(language_field, piece);
  for (const auto& piece : controls) fields += field_of(control_field, piece);
  return fields;
}

std::string SentencePieceModel::without_own_fields(std::string_view bytes, const std::string& file) {
  read(bytes, file);
  std::string kept;
  Message message(bytes, bytes.data(), file);
  bool has_table = false, has_languages = false;
  size_t begin = 0;
  for (Field field; message.next(field); begin = message.position()) {
    const bool own = field.number == own_field && field.bytes.starts_with(own_prefix);
    if (const auto place = own ? place_of(field.bytes) : std::nullopt) {
      has_table = true;
      has_languages = *place != LanguagePlace::nowhere;
    }
    const bool names = field.number == language_field || field.number == control_field;
    if (own || (has_table && field.number == table_field) || (has_languages && names)) continue;
    kept.append(bytes.substr(begin, message.position() - begin));
  }
  return kept;
}

}  // namespace transformer
