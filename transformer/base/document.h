#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace transformer {

struct SettingValue;

/// A YAML file: a tree that knows where in the file each part stands, for messages. Copies are cheap and share the
/// tree. document.cpp is the one file that knows the YAML library.
class Document {
 public:
  /// What a part of the tree is.
  enum class Kind {
    nothing,  // no value, as behind `key:`, or null
    scalar,   // one text: whether it is a number is not asked here
    list,     // parts without names
    mapping   // parts with names, in the file's order
  };
  struct Entry;

  /// Throws Error for a file that is missing, no text, no YAML or empty, and for one that holds several documents;
  /// Unreadable for one that cannot be read.
  static Document read(const std::filesystem::path& file);
  /// The same where another file or a command line names `file`: `where` and `subject` begin what is said of one that
  /// cannot be read, `content` is what an empty one should hold.
  static Document read(const std::filesystem::path& file, const std::string& where, const std::string& subject,
                       const std::string& content);
  /// YAML of a command line, which `where` names. Throws Error for what is none, to its end.
  static Document parse(const std::string& text, const std::string& where);

  /// What may be asked of it: text(), elements() or keys().
  Kind kind() const;
  /// "grid.yaml:7".
  const std::string& where() const { return where_; }
  /// For messages that say what was found instead: "'wide'", "a list", "nothing".
  std::string found() const;

  /// The text of a scalar; empty for everything else.
  std::string text() const;
  /// The parts of a list; none for everything else.
  std::vector<Document> elements() const;
  /// A mapping's keys and values in the file's order; none for everything else. Throws Error for a key that is no plain
  /// name or is given twice; `prefix` stands before it in the message.
  std::vector<Entry> keys(const std::string& prefix = "") const;
  /// The same of what must be a mapping. Throws Error for everything else (naming `what`, which this should have been),
  /// and for a key that is none of `known`, unless that is empty.
  std::vector<Entry> entries(const std::string& what, const std::vector<std::string>& known = {}) const;
  /// A scalar or a list of scalars; of everything else the kind.
  SettingValue setting_value() const;
  /// A scalar, or a list of scalars, as the value of a --set: 0.1, [a.en, b.en]. Throws Error for everything else.
  std::string override_value() const;

 private:
  struct Node;
  Document(std::filesystem::path file, std::shared_ptr<const Node> node);

  std::filesystem::path file_;
  std::shared_ptr<const Node> node_;
  std::string where_;
};

/// A key of a mapping, and what it stands for.
struct Document::Entry {
  std::string key;    // a plain name, given once
  std::string where;  // of the key
  Document value;     // of any kind
};

}  // namespace transformer
