#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace transformer {

/// A YAML file other than one of settings: a tree that knows where in the file each part stands, for messages. Copies
/// are cheap and share the tree. Implemented in settings.cpp, the one file that knows the YAML library.
class Document {
 public:
  enum class Kind { nothing, scalar, list, mapping };
  struct Entry;

  /// Throws Error for a file that is missing, no text, no YAML or empty, and for one that holds several documents.
  static Document read(const std::filesystem::path& file);

  Kind kind() const;
  /// "grid.yaml:7".
  const std::string& where() const { return where_; }
  /// For messages that say what was found instead: "'wide'", "a list", "nothing".
  std::string found() const;

  /// The text of a scalar; empty for everything else.
  std::string text() const;
  /// The parts of a list; none for everything else.
  std::vector<Document> elements() const;
  /// A mapping's keys and values in the file's order. Throws Error for everything else (naming `what`, which this
  /// should have been), for a key that is no plain name or is given twice, and for one that is none of `known`, unless
  /// that is empty.
  std::vector<Entry> entries(const std::string& what, const std::vector<std::string>& known = {}) const;
  /// A scalar, or a list of scalars, as the value of a --set: 0.1, [a.en, b.en]. Throws Error for everything else.
  std::string override_value() const;

 private:
  struct Node;
  Document(std::filesystem::path file, std::shared_ptr<const Node> node);

  std::filesystem::path file_;
  std::shared_ptr<const Node> node_;
  std::string where_;
};

struct Document::Entry {
  std::string key;
  std::string where;  // of the key
  Document value;
};

/// The word of `known` that looks most like `word`, for "did you mean ..?"; nothing where none does.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace transformer
