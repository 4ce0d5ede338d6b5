#include "transformer/interop/ctranslate2_file.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "transformer/base/checked.h"
#include "transformer/base/error.h"
#include "transformer/base/mapped_file.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/byte_cursor.h"

namespace transformer {
namespace {

constexpr std::array<int64_t, 6> element_bytes = {4, 1, 2, 4, 2, 2};  // by Ctranslate2Type

class Reader {
 public:
  Reader(std::string_view bytes, Refusal refuse) : cursor_(bytes, refuse), refuse_(std::move(refuse)) {}

  Ctranslate2Variables read() {
    if (const auto version = cursor_.number<uint32_t>(); version != ctranslate2_binary_version) {
      refuse_(fmt::format("is of version {} of its format", version));
    }
    if (const auto kind = text(); kind != ctranslate2_specification) {
      refuse_(fmt::format("holds {}, no Transformer with encoder and decoder", in_quotes(kind)));
    }
    if (const auto revision = cursor_.number<uint32_t>(); revision != ctranslate2_specification_revision) {
      refuse_(fmt::format("is of revision {} of its specification", revision));
    }
    Ctranslate2Variables variables;
    for (auto count = cursor_.number<uint32_t>(); count > 0; --count) {
      const std::string name(text());
      if (!variables.values.emplace(name, variable(name)).second) refuse_(fmt::format("has {} twice", in_quotes(name)));
    }
    for (auto count = cursor_.number<uint32_t>(); count > 0; --count) {
      const std::string alias(text()), name(text());
      if (!variables.values.contains(name)) {
        refuse_(fmt::format("has no {}, which {} stands for", in_quotes(name), in_quotes(alias)));
      }
      if (variables.values.contains(alias) || !variables.aliases.emplace(alias, name).second) {
        refuse_(fmt::format("has {} twice", in_quotes(alias)));
      }
    }
    if (cursor_.left() > 0) refuse_("has more bytes than it says");
    return variables;
  }

 private:
  /// Its size is that of the zero behind it, too.
  std::string_view text() {
    const auto size = cursor_.number<uint16_t>();
    const auto all = cursor_.take(size);
    if (all.empty() || all.find('\0') != all.size() - 1) refuse_("has a text that is none");
    return all.substr(0, all.size() - 1);
  }

  Ctranslate2Variable variable(const std::string& name) {
    Ctranslate2Variable variable;
    for (auto rank = cursor_.number<uint8_t>(); rank > 0; --rank) variable.shape.push_back(cursor_.number<uint32_t>());
    const auto type = cursor_.number<uint8_t>();
    if (type >= element_bytes.size()) refuse_(fmt::format("{} is of a type that is not known", in_quotes(name)));
    variable.type = static_cast<Ctranslate2Type>(type);
    auto sizes = variable.shape;
    sizes.push_back(element_bytes[type]);
    const auto bytes = cursor_.number<uint32_t>();
    if (checked_product(sizes) != bytes) {
      refuse_(fmt::format("{} has not the bytes that its shape asks for", in_quotes(name)));
    }
    variable.bytes = cursor_.take(bytes);
    return variable;
  }

  ByteCursor cursor_;
  Refusal refuse_;
};

}  // namespace

const Ctranslate2Variable* Ctranslate2Variables::find(const std::string& name) const {
  const auto alias = aliases.find(name);
  const auto found = values.find(alias == aliases.end() ? name : alias->second);
  return found == values.end() ? nullptr : &found->second;
}

Ctranslate2Variables read_ctranslate2(std::string_view bytes, std::shared_ptr<const void> owner,
                                      const std::string& name) {
  auto variables = Reader(bytes, {name, "expected a Transformer's model.bin as CTranslate2 4 writes it"}).read();
  variables.owner = std::move(owner);
  return variables;
}

Ctranslate2Variables read_ctranslate2(const std::filesystem::path& file) {
  if (!is_file(file)) throw Error(file.string(), "is not a file");
  const auto mapped = std::make_shared<const MappedFile>(file);
  const auto bytes = mapped->as<char>();
  return read_ctranslate2({bytes.data(), bytes.size()}, mapped, file.string());
}

}  // namespace transformer
