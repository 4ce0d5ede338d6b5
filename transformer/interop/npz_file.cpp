#include "transformer/interop/npz_file.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "transformer/base/checked.h"
#include "transformer/base/error.h"
#include "transformer/base/mapped_file.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/byte_cursor.h"
#include "transformer/interop/zip_archive.h"

namespace transformer {
namespace {

constexpr uint64_t longest_header = 65536;

/// What a .npy file says before its numbers.
struct Header {
  ElementType type = ElementType::float32;
  std::vector<int64_t> shape;
  size_t bytes = 0;  // that come before the numbers
};

std::optional<ElementType> type_named(std::string_view name) {
  static const std::map<std::string_view, ElementType> types = {
      {"<f4", ElementType::float32}, {"<f8", ElementType::float64}, {"<f2", ElementType::float16},
      {"<i8", ElementType::int64},   {"<i4", ElementType::int32},   {"<i2", ElementType::int16},
      {"<i1", ElementType::int8},    {"|i1", ElementType::int8},    {"<u1", ElementType::uint8},
      {"|u1", ElementType::uint8},   {"|b1", ElementType::boolean}};
  const auto found = types.find(name);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

/// Reads a .npy file's header, a dictionary in Python's spelling with just the three keys that there are.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& array, const Refusal& refuse)
      : text_(text), array_(array), refuse_(refuse) {}

  Header read() {
    Header header;
    bool has_type = false, has_order = false, has_shape = false;
    need('{');
    while (!accept('}')) {
      const auto key = quoted();
      need(':');
      if (key == "descr" && !std::exchange(has_type, true)) {
        const auto name = quoted();
        const auto type = type_named(name);
        if (!type) fail(fmt::format("holds elements of the type {}", in_quotes(name)));
        header.type = *type;
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        if (word() != "False") fail("does not lie row by row");
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        header.shape = sizes();
      } else {
        fail("has a header that is none");
      }
      if (!accept(',')) {
        need('}');
        break;
      }
    }
    skip_spaces();
    if (!has_type || !has_order || !has_shape || text_.substr(position_) != "\n") fail("has a header that is none");
    return header;
  }

 private:
  [[noreturn]] void fail(const char* what) const { fail(std::string(what)); }
  [[noreturn]] void fail(const std::string& what) const {
    refuse_(fmt::format("its array {} {}", in_quotes(array_), what));
  }

  void skip_spaces() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  }
  bool accept(char c) {
    skip_spaces();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void need(char c) {
    if (!accept(c)) fail("has a header that is none");
  }
  std::string_view quoted() {
    need('\'');
    const size_t begin = position_, end = text_.find('\'', begin);
    if (end == std::string_view::npos) fail("has a header that is none");
    position_ = end + 1;
    return text_.substr(begin, end - begin);
  }
  std::string_view word() {
    skip_spaces();
    const size_t begin = position_;
    while (position_ < text_.size() && text_[position_] >= 'A' && text_[position_] <= 'z') ++position_;
    return text_.substr(begin, position_ - begin);
  }
  std::vector<int64_t> sizes() {
    constexpr size_t most_dimensions = 8;
    std::vector<int64_t> sizes;
    need('(');
    while (!accept(')')) {
      skip_spaces();
      int64_t size = 0;
      const char* begin = text_.data() + position_;
      const auto [end, problem] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (problem != std::errc() || size < 0 || sizes.size() == most_dimensions) fail("has a shape that is none");
      position_ += static_cast<size_t>(end - begin);
      sizes.push_back(size);
      if (!accept(',')) {
        need(')');
        break;
      }
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& array_;
  const Refusal& refuse_;
  size_t position_ = 0;
};

Header read_header(const ZipEntry& entry, const std::string& array, const Refusal& refuse) {
  constexpr uint64_t longest_preamble = 12;
  const auto begin = unzipped_begin(entry, array, longest_preamble + longest_header, refuse);
  ByteCursor cursor(begin, refuse);
  if (cursor.left() < 8 || cursor.take(6) != std::string_view("\x93NUMPY", 6)) {
    refuse(fmt::format("its file {} is no array", in_quotes(array)));
  }
  const auto version = cursor.number<uint8_t>();
  cursor.number<uint8_t>();
  const uint64_t length = version == 1 ? cursor.number<uint16_t>() : cursor.number<uint32_t>();
  if (version < 1 || version > 3 || length > longest_header) {
    refuse(fmt::format("its array {} is of a version that is not known", in_quotes(array)));
  }
  auto header = HeaderReader(cursor.take(length), array, refuse).read();
  header.bytes = cursor.position();
  auto sizes = header.shape;
  sizes.push_back(element_size(header.type));
  const auto bytes = checked_product(sizes);
  if (!bytes || entry.size < header.bytes || static_cast<uint64_t>(*bytes) != entry.size - header.bytes) {
    refuse(fmt::format("its array {} has not the numbers that its shape asks for", in_quotes(array)));
  }
  return header;
}

}  // namespace

std::map<std::string, NpzArray> npz_arrays(std::string_view bytes, std::shared_ptr<const void> owner,
                                           const std::string& name) {
  const Refusal refuse{name, "expected an .npz file as Marian writes it"};
  if (!bytes.starts_with("PK")) refuse("is no zip archive");
  std::map<std::string, NpzArray> arrays;
  for (const auto& [file, entry] : zip_entries(bytes, refuse)) {
    constexpr std::string_view ending = ".npy";
    const std::string array(file.ends_with(ending) ? file.substr(0, file.size() - ending.size()) : file);
    const auto header = read_header(entry, array, refuse);
    const auto read = [owner, entry = entry, array, refuse, before = header.bytes] {
      auto all = unzipped(entry, array, refuse);
      all.erase(0, before);  // and elements are aligned for any type
      return all;
    };
    if (!arrays.emplace(array, NpzArray{header.type, header.shape, read}).second) {
      refuse(fmt::format("has the array {} twice", in_quotes(array)));
    }
  }
  return arrays;
}

std::map<std::string, NpzArray> npz_arrays(const std::filesystem::path& file) {
  if (!is_file(file)) throw Error(file.string(), "is not a file");
  const auto mapped = std::make_shared<const MappedFile>(file);
  const auto bytes = mapped->as<char>();
  return npz_arrays({bytes.data(), bytes.size()}, mapped, file.string());
}

StoredWeight stored_weight(const NpzArray& array) {
  const int64_t width =
      array.shape.empty() ? 0 : checked_product(std::vector(array.shape.begin() + 1, array.shape.end())).value();
  return {array.type, array.shape,
          [type = array.type, bytes = array.bytes, width](int64_t first, int64_t count, float* to) {
            const auto all = bytes();
            to_float(type, all.data() + first * width * element_size(type), count * width, to);
          }};
}

}  // namespace transformer
