#include "transformer/interop/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "transformer/base/checked.h"
#include "transformer/base/error.h"
#include "transformer/base/mapped_file.h"
#include "transformer/base/read_file.h"
#include "transformer/base/tensor_file.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/byte_cursor.h"
#include "transformer/interop/zip_archive.h"

namespace transformer {
namespace {

using Bytes = std::string_view;

Refusal refusal_of(const std::string& file) {
  return {file, "expected a state dict that torch.save wrote; model.safetensors is read, too"};
}

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  refusal_of(file)(what);
}

/// The files of a zip archive, none of them compressed: views of its bytes.
std::map<Bytes, Bytes> stored_files(Bytes archive, const std::string& file) {
  std::map<Bytes, Bytes> files;
  for (const auto& [name, entry] : zip_entries(archive, refusal_of(file))) {
    if (entry.is_deflated) {
      refuse(file, fmt::format("its file {} is compressed, which torch.save never does", in_quotes(name)));
    }
    files.emplace(name, entry.packed);
  }
  return files;
}

struct Storage {
  ElementType type = ElementType::float32;
  Bytes key;
  int64_t elements = 0;
};

struct Value {
  enum class Kind { none, boolean, integer, text, sequence, dictionary, callable, storage, tensor };
  Kind kind = Kind::none;
  int64_t integer = 0;
  Bytes text;                       // or the name of what can be called
  std::vector<const Value*> items;  // of a dictionary: keys and values by turns; of a tensor: its storage
  Storage storage;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // of a tensor in its storage, in elements
};

const std::map<Bytes, ElementType>& storage_types() {
  static const std::map<Bytes, ElementType> types = {
      {"torch FloatStorage", ElementType::float32},     {"torch HalfStorage", ElementType::float16},
      {"torch BFloat16Storage", ElementType::bfloat16}, {"torch DoubleStorage", ElementType::float64},
      {"torch LongStorage", ElementType::int64},        {"torch IntStorage", ElementType::int32},
      {"torch ShortStorage", ElementType::int16},       {"torch CharStorage", ElementType::int8},
      {"torch ByteStorage", ElementType::uint8},        {"torch BoolStorage", ElementType::boolean}};
  return types;
}

/// Follows a pickle's instructions, so far as a state dict needs them. Every instruction makes one value at most, so
/// that what is made is bounded by the bytes that are read.
class Unpickler {
 public:
  static constexpr size_t most_bytes = size_t{2} << 20;  // a thousand tensors take a tenth of it

  Unpickler(Bytes pickle, const std::string& file)
      : cursor_(pickle.substr(0, most_bytes), refusal_of(file)), file_(file) {}

  /// The value of the pickle that begins where the last one ended. Values live as long as this object.
  const Value& next() {
    using Kind = Value::Kind;
    stack_.clear();
    marks_.clear();
    memo_.clear();
    for (;;) {
      const auto code = cursor_.number<uint8_t>();
      switch (code) {
        case 0x80:  // protocol
          cursor_.take(1);
          break;
        case 0x95:  // frame
          cursor_.take(8);
          break;
        case '(':
          marks_.push_back(stack_.size());
          break;
        case '.': {
          if (stack_.size() != 1 || !marks_.empty()) fail("ends with more than one value, or none");
          return *stack_.back();
        }
        case 'N':
          push(Kind::none);
          break;
        case 0x88:
        case 0x89:
          push(Kind::boolean).integer = code == 0x88 ? 1 : 0;
          break;
        case 'J':
          push(Kind::integer).integer = cursor_.number<int32_t>();
          break;
        case 'K':
          push(Kind::integer).integer = cursor_.number<uint8_t>();
          break;
        case 'M':
          push(Kind::integer).integer = cursor_.number<uint16_t>();
          break;
        case 0x8a:
          push(Kind::integer).integer = long_integer();
          break;
        case 'X':
          push(Kind::text).text = cursor_.take(cursor_.number<uint32_t>());
          break;
        case 0x8c:
          push(Kind::text).text = cursor_.take(cursor_.number<uint8_t>());
          break;
        case '}':
          push(Kind::dictionary);
          break;
        case ']':
        case ')':
          push(Kind::sequence);
          break;
        case 't':
          sequence(since_mark());
          break;
        case 0x85:
        case 0x86:
        case 0x87:
          sequence(last(code - 0x84u));
          break;
        case 'a':
          append(Kind::sequence, last(1));
          break;
        case 'e':
          append(Kind::sequence, since_mark());
          break;
        case 's':
          append(Kind::dictionary, last(2));
          break;
        case 'u':
          append(Kind::dictionary, since_mark());
          break;
        case 'c': {
          const auto module = cursor_.line(), name = cursor_.line();
          call_name(fmt::format("{} {}", module, name));
          break;
        }
        case 0x93: {
          const auto names = last(2);
          call_name(fmt::format("{} {}", text_of(*names[0]), text_of(*names[1])));
          break;
        }
        case 'R': {
          const auto call = last(2);
          reduce(*call[0], *call[1]);
          break;
        }
        case 'b':  // the attributes of a state dict: which version of each module wrote it
          last(1);
          if (stack_.empty() || stack_.back()->kind != Kind::dictionary) fail("gives attributes to what has none");
          break;
        case 'Q':
          persistent(*last(1)[0]);
          break;
        case 'q':
          memo_[cursor_.number<uint8_t>()] = top();
          break;
        case 'r':
          memo_[cursor_.number<uint32_t>()] = top();
          break;
        case 0x94:
          memo_[static_cast<uint32_t>(memo_.size())] = top();
          break;
        case 'h':
          recall(cursor_.number<uint8_t>());
          break;
        case 'j':
          recall(cursor_.number<uint32_t>());
          break;
        default:
          fail(fmt::format("has the instruction {:#04x} (byte {}), which no state dict needs", code,
                           cursor_.position() - 1));
      }
    }
  }

  /// Behind the last pickle.
  size_t position() const { return cursor_.position(); }

  [[noreturn]] void fail(const std::string& what) const { refuse(file_, "its pickle " + what); }

 private:
  Value& push(Value::Kind kind) {
    auto& value = values_.emplace_back();
    value.kind = kind;
    stack_.push_back(&value);
    return value;
  }
  Value* top() const {
    if (stack_.empty()) fail("takes a value where there is none");
    return stack_.back();
  }
  std::vector<Value*> last(size_t count) {
    const size_t reach = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < reach + count) fail("takes a value where there is none");
    std::vector<Value*> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }
  std::vector<Value*> since_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) fail("ends a list that it never began");
    const size_t count = stack_.size() - marks_.back();
    auto values = last(count);
    marks_.pop_back();
    return values;
  }
  void sequence(const std::vector<Value*>& items) {
    push(Value::Kind::sequence).items.assign(items.begin(), items.end());
  }
  void append(Value::Kind kind, const std::vector<Value*>& items) {
    auto& to = *top();
    if (to.kind != kind || (kind == Value::Kind::dictionary && items.size() % 2 != 0)) {
      fail("puts values into what holds none");
    }
    to.items.insert(to.items.end(), items.begin(), items.end());
  }
  int64_t long_integer() {
    const auto bytes = cursor_.take(cursor_.number<uint8_t>());
    if (bytes.size() > sizeof(int64_t)) fail("has an integer of more than 64 bits");
    int64_t number = bytes.empty() || static_cast<signed char>(bytes.back()) >= 0 ? 0 : -1;
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }
  void recall(uint32_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) fail("recalls what it never kept");
    stack_.push_back(found->second);
  }

  void call_name(const std::string& name) {
    static const Bytes known[] = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2",
                                  "torch._utils _rebuild_parameter"};
    auto& value = push(Value::Kind::callable);
    const auto function = std::find(std::begin(known), std::end(known), name);
    const auto storage = storage_types().find(name);
    if (function != std::end(known)) {
      value.text = *function;
    } else if (storage != storage_types().end()) {
      value.text = storage->first;
    } else {
      fail(fmt::format("asks for {}, which no state dict needs", in_quotes(name)));
    }
  }

  Bytes text_of(const Value& value) const {
    if (value.kind != Value::Kind::text) fail("has another value where a text should be");
    return value.text;
  }
  int64_t size_of(const Value& value) const {
    if (value.kind != Value::Kind::integer || value.integer < 0) fail("has another value where a size should be");
    return value.integer;
  }
  std::vector<int64_t> sizes_of(const Value& value) const {
    constexpr size_t most_dimensions = 64;
    if (value.kind != Value::Kind::sequence || value.items.size() > most_dimensions) fail("has a shape that is none");
    std::vector<int64_t> sizes;
    for (const auto* item : value.items) sizes.push_back(size_of(*item));
    return sizes;
  }

  void reduce(const Value& function, const Value& arguments) {
    if (function.kind != Value::Kind::callable || arguments.kind != Value::Kind::sequence) fail("calls what cannot be");
    const auto& given = arguments.items;
    if (function.text == "collections OrderedDict" && given.empty()) {
      push(Value::Kind::dictionary);
    } else if (function.text == "torch._utils _rebuild_parameter" && !given.empty() &&
               given[0]->kind == Value::Kind::tensor) {
      auto& tensor = push(Value::Kind::tensor);
      tensor = *given[0];
    } else if (function.text == "torch._utils _rebuild_tensor_v2" && given.size() >= 4 &&
               given[0]->kind == Value::Kind::storage) {
      const auto shape = sizes_of(*given[2]), strides = sizes_of(*given[3]);
      const auto elements = checked_product(shape);
      auto& tensor = push(Value::Kind::tensor);
      tensor.items = {given[0]};
      tensor.shape = shape;
      tensor.offset = size_of(*given[1]);
      const int64_t held = given[0]->storage.elements;
      if (!elements || tensor.offset > held || *elements > held - tensor.offset)
        fail("has a tensor beyond its numbers");
      int64_t stride = 1;
      for (size_t i = shape.size(); i-- > 0;) {
        if (i >= strides.size() || (shape[i] > 1 && strides[i] != stride)) fail("has a tensor that is not row-major");
        if (*elements > 0) stride *= shape[i];
      }
    } else {
      fail(fmt::format("calls {} in a way that no state dict does", in_quotes(function.text)));
    }
  }

  void persistent(const Value& id) {
    const auto& parts = id.items;
    if (id.kind != Value::Kind::sequence || parts.size() < 5 || text_of(*parts[0]) != "storage" ||
        parts[1]->kind != Value::Kind::callable || !storage_types().contains(parts[1]->text)) {
      fail("names numbers in a way that no state dict does");
    }
    if (parts.size() > 5 && parts[5]->kind != Value::Kind::none) fail("has views of numbers, which are not read");
    auto& value = push(Value::Kind::storage);
    value.storage = {storage_types().at(parts[1]->text), text_of(*parts[2]), size_of(*parts[4])};
  }

  ByteCursor cursor_;
  const std::string& file_;
  std::deque<Value> values_;  // whose places stay
  std::vector<Value*> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, Value*> memo_;
};

void check_dictionary(const Value& value, const std::string& file) {
  if (value.kind != Value::Kind::dictionary) refuse(file, "holds no dictionary of tensors");
}

/// `numbers_of` gives the bytes of a storage, at least as many as it has elements.
template <class NumbersOf>
StoredWeights weights_of(const Value& dictionary, const NumbersOf& numbers_of, const std::shared_ptr<const void>& owner,
                         const std::string& file) {
  check_dictionary(dictionary, file);
  StoredWeights weights;
  for (size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
    const auto &name = *dictionary.items[i], &tensor = *dictionary.items[i + 1];
    if (name.kind != Value::Kind::text || tensor.kind != Value::Kind::tensor) {
      refuse(file, fmt::format("holds {} beside tensors",
                               name.kind == Value::Kind::text ? in_quotes(name.text) : "other things"));
    }
    const auto& storage = tensor.items.front()->storage;
    const Bytes numbers = numbers_of(storage);
    const int64_t size = element_size(storage.type);
    const int64_t width =
        tensor.shape.empty() ? 0 : checked_product(std::vector(tensor.shape.begin() + 1, tensor.shape.end())).value();
    const auto rows = [owner, numbers, type = storage.type, size, width, first_element = tensor.offset](
                          int64_t first, int64_t count, float* to) {
      // What lies in the archive is aligned for no type.
      const auto bytes = numbers.substr(static_cast<size_t>((first_element + first * width) * size),
                                        static_cast<size_t>(count * width * size));
      const std::vector<char> aligned(bytes.begin(), bytes.end());
      to_float(type, aligned.data(), count * width, to);
    };
    if (!weights.emplace(std::string(name.text), StoredWeight{storage.type, tensor.shape, rows}).second) {
      refuse(file, fmt::format("names {} twice", in_quotes(name.text)));
    }
  }
  return weights;
}

void check_storage(const Storage& storage, uint64_t bytes, const std::string& file) {
  const auto needed = checked_product({storage.elements, element_size(storage.type)});
  if (needed && static_cast<uint64_t>(*needed) <= bytes) return;
  refuse(file, fmt::format("has fewer numbers than {} should hold", in_quotes(storage.key)));
}

StoredWeights of_archive(Bytes bytes, const std::shared_ptr<const void>& owner, const std::string& file) {
  const auto files = stored_files(bytes, file);
  constexpr Bytes pickle_name = "/data.pkl";
  const auto pickle =
      std::find_if(files.begin(), files.end(), [&](const auto& entry) { return entry.first.ends_with(pickle_name); });
  if (pickle == files.end()) refuse(file, "is a zip archive without a pickle");
  const std::string root(pickle->first.substr(0, pickle->first.size() - pickle_name.size()));
  const auto order = files.find(root + "/byteorder");
  if (order != files.end() && order->second != "little") refuse(file, "holds numbers of another byte order");
  Unpickler unpickler(pickle->second, file);
  const auto numbers_of = [&](const Storage& storage) {
    const auto found = files.find(fmt::format("{}/data/{}", root, storage.key));
    if (found == files.end()) refuse(file, fmt::format("lacks the numbers {}", in_quotes(storage.key)));
    check_storage(storage, found->second.size(), file);
    return found->second;
  };
  return weights_of(unpickler.next(), numbers_of, owner, file);
}

constexpr Bytes older_magic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);

/// A magic number, a version, a dictionary about the machine, the state dict and the keys of storages, a pickle each;
/// then every storage's size and numbers.
StoredWeights of_pickles(Bytes bytes, const std::shared_ptr<const void>& owner, const std::string& file) {
  bytes.remove_prefix(older_magic.size());
  Unpickler unpickler(bytes, file);
  unpickler.next();
  const auto& machine = unpickler.next();
  for (size_t i = 0; i + 1 < machine.items.size(); i += 2) {
    const auto &key = *machine.items[i], &value = *machine.items[i + 1];
    if (key.text == "little_endian" && value.integer != 1) refuse(file, "holds numbers of another byte order");
  }
  const auto& dictionary = unpickler.next();
  check_dictionary(dictionary, file);
  std::map<Bytes, Storage> storages;
  for (size_t i = 1; i < dictionary.items.size(); i += 2) {
    const auto& tensor = *dictionary.items[i];
    if (tensor.kind == Value::Kind::tensor) storages[tensor.items[0]->storage.key] = tensor.items[0]->storage;
  }
  const auto& keys = unpickler.next();
  std::map<Bytes, Bytes> numbers;
  ByteCursor cursor(bytes.substr(unpickler.position()), refusal_of(file));
  for (const auto* key : keys.items) {
    const auto found = storages.find(key->text);
    if (found == storages.end()) refuse(file, fmt::format("has numbers {} of no tensor", in_quotes(key->text)));
    const auto count = cursor.number<int64_t>();
    const auto needed = checked_product({count, element_size(found->second.type)});
    if (!needed) refuse(file, "has a size that cannot be");
    numbers[key->text] = cursor.take(static_cast<uint64_t>(*needed));
  }
  const auto numbers_of = [&](const Storage& storage) {
    const auto found = numbers.find(storage.key);
    if (found == numbers.end()) refuse(file, fmt::format("lacks the numbers {}", in_quotes(storage.key)));
    check_storage(storage, found->second.size(), file);
    return found->second;
  };
  return weights_of(dictionary, numbers_of, owner, file);
}

}  // namespace

StoredWeights torch_weights(Bytes bytes, std::shared_ptr<const void> owner, const std::string& name) {
  if (bytes.starts_with("PK\x03\x04")) return of_archive(bytes, owner, name);
  if (bytes.starts_with(older_magic)) return of_pickles(bytes, owner, name);
  refuse(name, "is neither a zip archive nor a pickle");
}

StoredWeights torch_weights(const std::filesystem::path& file) {
  if (!is_file(file)) throw Error(file.string(), "is not a file");
  const auto mapped = std::make_shared<const MappedFile>(file);
  const auto bytes = mapped->as<char>();
  return torch_weights({bytes.data(), bytes.size()}, mapped, file.string());
}

}  // namespace transformer
