#include "transformer/base/tensor_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "transformer/base/atomic_file.h"
#include "transformer/base/checked.h"
#include "transformer/base/error.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"

namespace transformer {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using Json = nlohmann::json;

constexpr uint64_t largest_header = 100'000'000;
constexpr size_t most_dimensions = 64;
constexpr const char* metadata_key = "__metadata__";

struct KnownType {
  ElementType type;
  const char* in_file;
  const char* name;
  int64_t size;
};
constexpr KnownType known_types[] = {
    {ElementType::float64, "F64", "float64", 8}, {ElementType::float32, "F32", "float32", 4},
    {ElementType::float16, "F16", "float16", 2}, {ElementType::bfloat16, "BF16", "bfloat16", 2},
    {ElementType::int64, "I64", "int64", 8},     {ElementType::int32, "I32", "int32", 4},
    {ElementType::int16, "I16", "int16", 2},     {ElementType::int8, "I8", "int8", 1},
    {ElementType::uint8, "U8", "uint8", 1},      {ElementType::boolean, "BOOL", "bool", 1}};

const KnownType* find_type(const std::string& in_file) {
  const auto* found = std::find_if(std::begin(known_types), std::end(known_types),
                                   [&](const KnownType& type) { return type.in_file == in_file; });
  return found == std::end(known_types) ? nullptr : found;
}

const KnownType& known(ElementType type) {
  return *std::find_if(std::begin(known_types), std::end(known_types),
                       [&](const KnownType& candidate) { return candidate.type == type; });
}

/// IEEE 754's binary16, whose every number is a float32.
float from_half(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
  return sign ? -magnitude : magnitude;
}

class File {
 public:
  explicit File(const std::filesystem::path& file) : file_(file) {
    struct stat status = {};
    // O_NONBLOCK: opening a pipe that nobody writes to would otherwise wait forever. It changes nothing for files.
    descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) throw_unread(file, "cannot be opened", errno);
    const int error_number = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
    size_ = static_cast<uint64_t>(status.st_size);
    if (error_number == 0 && S_ISREG(status.st_mode)) return;
    ::close(descriptor_);
    if (error_number != 0) throw_unread(file, "cannot be looked at", error_number);
    throw Error(file.string(), "is not a regular file", "name a safetensors file");
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  uint64_t size() const { return size_; }

  void read(uint64_t offset, void* data, uint64_t bytes) const {
    auto* target = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t count =
          ::pread(descriptor_, target, std::min<uint64_t>(bytes, uint64_t{1} << 30), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        throw Failure("cannot read " + file_.string(), std::strerror(errno), "look at its disk, and start again");
      }
      if (count == 0) throw Failure("cannot read " + file_.string(), "the file became shorter while it was read");
      target += count;
      offset += static_cast<uint64_t>(count);
      bytes -= static_cast<uint64_t>(count);
    }
  }

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// What the header says of one tensor; offsets count from the end of the header.
struct NamedEntry : TensorReader::Entry {
  std::string name;
  uint64_t end;
};

/// Refuses, before anything is built from it, JSON that names something twice, which a parser would silently resolve,
/// and JSON that nests deeper than the three levels of real headers: a few megabytes of brackets would take gigabytes.
struct HeaderCheck : nlohmann::json_sax<Json> {
  static constexpr size_t deepest = 8;
  std::vector<std::set<std::string>> open;  // the names so far in every object or list that is open
  std::string problem;

  bool begin() {
    if (open.size() >= deepest) problem = "the header is nested too deeply";
    open.emplace_back();
    return problem.empty();
  }
  bool finish() {
    open.pop_back();
    return true;
  }
  bool start_object(std::size_t) override { return begin(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_object() override { return finish(); }
  bool end_array() override { return finish(); }
  bool key(std::string& name) override {
    if (!open.back().insert(name).second) problem = fmt::format("the header names {} twice", in_quotes(name));
    return problem.empty();
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
};

class HeaderParser {
 public:
  HeaderParser(const std::filesystem::path& file, uint64_t data_bytes) : file_(file), data_bytes_(data_bytes) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(file_.string(), what, "the file is damaged or is no safetensors file");
  }

  /// The tensors in the order of their data, which together cover all data exactly once.
  std::vector<NamedEntry> parse(const std::string& text, std::map<std::string, std::string>& metadata) const {
    const Json header = parse_json(text);
    std::vector<NamedEntry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name != metadata_key) {
        entries.push_back(parse_entry(name, value));
        continue;
      }
      if (!value.is_object()) fail("the header's __metadata__ is not a mapping of texts");
      for (const auto& [key, entry] : value.items()) {
        if (!entry.is_string()) fail(fmt::format("the header's __metadata__ {} is not a text", in_quotes(key)));
        metadata[key] = entry.get<std::string>();
      }
    }
    std::sort(entries.begin(), entries.end(), [](const NamedEntry& left, const NamedEntry& right) {
      return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
    });
    uint64_t covered = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const NamedEntry& entry = entries[i];
      if (entry.begin < covered) {
        fail(fmt::format("tensor {} overlaps tensor {}", in_quotes(entry.name), in_quotes(entries[i - 1].name)));
      }
      if (entry.begin > covered) {
        fail(fmt::format("tensor {} begins at byte {} of the data, but the one before it ends at byte {}",
                         in_quotes(entry.name), entry.begin, covered));
      }
      covered = entry.end;
    }
    if (covered != data_bytes_) {
      fail(fmt::format("the tensors take {} bytes, but the file holds {} bytes of data", covered, data_bytes_));
    }
    return entries;
  }

 private:
  Json parse_json(const std::string& text) const {
    if (text.empty() || text[0] != '{') fail("the header is not a JSON object");
    // The parser would take a zero byte for the end of the text.
    if (text.find('\0') != std::string::npos) fail("the header is not valid JSON");
    HeaderCheck check;
    if (!Json::sax_parse(text, &check)) {
      fail(check.problem.empty() ? "the header is not valid JSON" : check.problem);
    }
    return Json::parse(text);
  }

  NamedEntry parse_entry(const std::string& name, const Json& value) const {
    const auto fail_tensor = [&](const std::string& what) { fail("tensor " + in_quotes(name) + ": " + what); };
    if (!value.is_object()) fail_tensor("its header entry is not a mapping");
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) fail_tensor(fmt::format("its header entry has no {}", key));
    }
    const Json& type = value["dtype"];
    const KnownType* element = type.is_string() ? find_type(type.get<std::string>()) : nullptr;
    if (!element) {
      fail_tensor("the element type " + (type.is_string() ? in_quotes(type.get<std::string>()) : "given") +
                  " is not known");
    }

    NamedEntry entry{{element->type, {}, 0}, name, 0};
    const Json& shape = value["shape"];
    if (!shape.is_array()) fail_tensor("its shape is not a list");
    if (shape.size() > most_dimensions) fail_tensor(fmt::format("it has more than {} dimensions", most_dimensions));
    for (const auto& size : shape) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        fail_tensor("its shape holds something else than sizes");
      }
      entry.shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
    }
    auto sizes = entry.shape;
    sizes.push_back(element->size);
    const auto needed = checked_product(sizes);
    if (!needed) fail_tensor(fmt::format("its shape {} is too large to be real", printable(shape.dump())));
    const auto bytes = static_cast<uint64_t>(*needed);

    const Json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      fail_tensor("its data_offsets are not two byte positions");
    }
    entry.begin = offsets[0].get<uint64_t>();
    entry.end = offsets[1].get<uint64_t>();
    if (entry.begin > entry.end) fail_tensor("its data ends before it begins");
    if (entry.end > data_bytes_) {
      fail_tensor(fmt::format("its data ends at byte {}, but the file holds {} bytes of data", entry.end, data_bytes_));
    }
    if (entry.end - entry.begin != bytes) {
      fail_tensor(fmt::format("its data takes {} bytes, but shape {} of {} needs {}", entry.end - entry.begin,
                              printable(shape.dump()), element->in_file, bytes));
    }
    return entry;
  }

  std::filesystem::path file_;
  uint64_t data_bytes_;
};

}  // namespace

int64_t element_size(ElementType type) {
  return known(type).size;
}

const char* element_name(ElementType type) {
  return known(type).name;
}

bool is_floating_point(ElementType type) {
  return type == ElementType::float64 || type == ElementType::float32 || type == ElementType::float16 ||
         type == ElementType::bfloat16;
}

void to_float(ElementType type, const void* elements, int64_t count, float* numbers) {
  const auto convert = [&](const auto* from, const auto& number) {
    std::transform(from, from + count, numbers, number);
  };
  switch (type) {
    case ElementType::float32:
      std::copy_n(static_cast<const float*>(elements), count, numbers);
      return;
    case ElementType::float64:
      convert(static_cast<const double*>(elements), [](double number) { return static_cast<float>(number); });
      return;
    case ElementType::float16:
      convert(static_cast<const uint16_t*>(elements), from_half);
      return;
    case ElementType::bfloat16:
      convert(static_cast<const uint16_t*>(elements),
              [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); });
      return;
    default:
      throw std::invalid_argument(fmt::format("to_float: {} is no floating-point type", element_name(type)));
  }
}

void write_tensor_file(const std::filesystem::path& file, const std::map<std::string, TensorSource>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto bytes_of = [](const std::string& name, const TensorSource& tensor) {
    auto sizes = tensor.shape;
    sizes.push_back(element_size(tensor.type));
    const auto bytes = checked_product(sizes);
    if (!bytes) throw std::invalid_argument("tensor '" + name + "' is too large to be real");
    return static_cast<uint64_t>(*bytes);
  };
  // First what fills whole lines, then wide elements before narrow ones: every tensor is aligned for readers that map
  // the file into memory.
  constexpr uint64_t line = 64;
  std::vector<const std::pair<const std::string, TensorSource>*> order;
  for (const auto& item : tensors) {
    if (item.first == metadata_key) throw std::invalid_argument("no tensor can be called '" + item.first + "'");
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto* left, const auto* right) {
    const auto rank = [&](const auto& item) {
      const bool whole = bytes_of(item.first, item.second) % line == 0;
      return whole ? INT64_MAX : element_size(item.second.type);
    };
    return rank(*left) > rank(*right);
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[metadata_key] = metadata;
  uint64_t offset = 0;
  for (const auto* item : order) {
    const auto& [name, tensor] = *item;
    const uint64_t bytes = bytes_of(name, tensor);
    header[name] = {
        {"dtype", known(tensor.type).in_file}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((line - (sizeof(uint64_t) + text.size()) % line) % line, ' ');
  const uint64_t header_bytes = text.size();

  AtomicFile out(file);
  out.write(&header_bytes, sizeof header_bytes);
  out.write(text);
  for (const auto* item : order) {
    if (const auto bytes = bytes_of(item->first, item->second)) out.write(item->second.data(), bytes);
  }
  out.commit();
}

struct TensorReader::Implementation {
  std::filesystem::path path;
  File file;
  uint64_t data_begin = 0;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;

  explicit Implementation(const std::filesystem::path& given) : path(given), file(given) {
    uint64_t header_bytes = 0;
    constexpr uint64_t prefix_bytes = sizeof header_bytes;
    if (file.size() < prefix_bytes) fail(fmt::format("the file is cut short: it has {} bytes", file.size()));
    file.read(0, &header_bytes, prefix_bytes);
    if (header_bytes > largest_header) {
      fail(fmt::format("the header claims {} bytes, more than the {} that are read", header_bytes, largest_header));
    }
    if (header_bytes > file.size() - prefix_bytes) {
      fail(
          fmt::format("the file is cut short: the header claims {} bytes, the file has {}", header_bytes, file.size()));
    }
    std::string text(header_bytes, '\0');
    file.read(prefix_bytes, text.data(), header_bytes);
    data_begin = prefix_bytes + header_bytes;
    for (auto& entry : HeaderParser(path, file.size() - data_begin).parse(text, metadata)) {
      entries.emplace(entry.name, std::move(entry));
    }
  }

  [[noreturn]] void fail(const std::string& what) const { HeaderParser(path, 0).fail(what); }

  /// `count` elements that lie `offset` elements after the tensor's first.
  void read(const std::string& name, const Entry& entry, int64_t offset, int64_t count, void* data) const {
    const auto size = static_cast<uint64_t>(element_size(entry.type));
    const uint64_t bytes = static_cast<uint64_t>(count) * size;
    if (bytes == 0) return;
    file.read(data_begin + entry.begin + static_cast<uint64_t>(offset) * size, data, bytes);
    if (entry.type == ElementType::boolean) {
      const auto* values = static_cast<const unsigned char*>(data);
      // Any other bit pattern is undefined behaviour in whatever computes with it.
      if (std::any_of(values, values + bytes, [](unsigned char value) { return value > 1; })) {
        fail(fmt::format("tensor {}: holds a byte that is neither false nor true", in_quotes(name)));
      }
    }
  }
};

int64_t TensorReader::Entry::elements() const {
  return *checked_product(shape);  // the header was refused where it is none
}

TensorReader::TensorReader(const std::filesystem::path& file)
    : implementation_(std::make_unique<Implementation>(file)) {}
TensorReader::~TensorReader() = default;
TensorReader::TensorReader(TensorReader&&) noexcept = default;

const std::map<std::string, TensorReader::Entry>& TensorReader::entries() const {
  return implementation_->entries;
}

uint64_t TensorReader::data_begin() const {
  return implementation_->data_begin;
}

uint64_t TensorReader::file_bytes() const {
  return implementation_->file.size();
}

const std::map<std::string, std::string>& TensorReader::metadata() const {
  return implementation_->metadata;
}

void TensorReader::read(const std::string& name, void* data) const {
  const Entry& entry = implementation_->entries.at(name);
  implementation_->read(name, entry, 0, entry.elements(), data);
}

void TensorReader::read_rows(const std::string& name, int64_t first, int64_t count, void* data) const {
  const Entry& entry = implementation_->entries.at(name);
  if (entry.shape.empty() || first < 0 || count < 0 || first > entry.shape[0] - count) {
    throw std::invalid_argument(fmt::format("tensor '{}' has no rows {} to {}", name, first, first + count));
  }
  const int64_t row = entry.shape[0] == 0 ? 0 : entry.elements() / entry.shape[0];
  implementation_->read(name, entry, first * row, count * row, data);
}

std::string metadata_of(const std::filesystem::path& file, const std::string& key) {
  if (!is_file(file)) return {};
  try {
    const TensorReader reader(file);
    const auto found = reader.metadata().find(key);
    return found == reader.metadata().end() ? "" : found->second;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace transformer
