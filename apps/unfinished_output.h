#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transformer/base/atomic_file.h"

namespace transformer {

/// Files that are written window by window, over which a process may die and another go on.
///
/// Text goes to NAME.partial beside each file; NAME.partial.journal, beside the first, says what work it is of, and for
/// every window what was read and what was written, with checksums: what does not agree is done again, and what cannot
/// be read ends it. At the end the partial files get their names and the journal goes. Files that lie there under such
/// names and are none of these are refused, never touched.
class UnfinishedOutput {
 public:
  /// Lines that are told of at the end.
  struct ToldLines {
    int64_t count = 0;
    std::vector<std::pair<int64_t, std::string>> first = {};  // line, and what is wrong: a few of them

    void add(int64_t number, const std::string& wrong);
    /// Those of lines further on.
    void add(const ToldLines& others);
  };
  /// Those that could not be used, and what became of them, in --bad-lines' words.
  struct BadLines : ToldLines {
    std::string choice = {};
    bool too_long = false;  // some were, of which nothing is copied

    using ToldLines::add;
    /// Those of lines further on.
    void add(const BadLines& others);
  };
  /// What else there is to tell of at the end.
  struct Tally {
    int64_t cut = 0;         // sentences that were done in parts
    int64_t repaired = 0;    // outputs that had to be put right
    ToldLines lacking = {};  // whose outputs lack a phrase that was required

    /// That of lines further on.
    void add(const Tally& other);
  };
  struct Window {
    int64_t lines = 0;
    std::string input;  // checksum of these lines
    BadLines bad;
    Tally tally = {};
  };

  /// `work` by name: everything that decides what is written, input apart. Throws Error where another process writes
  /// the same file, or a file of others is in the way; Failure where nothing can be written, or what lies there cannot
  /// be read at the moment.
  UnfinishedOutput(const std::vector<std::string>& files, const std::map<std::string, std::string>& work);
  /// Without commit() all stays, unless there is nothing yet.
  ~UnfinishedOutput();
  UnfinishedOutput(const UnfinishedOutput&) = delete;
  UnfinishedOutput& operator=(const UnfinishedOutput&) = delete;

  /// What is done already: windows from the beginning on.
  const std::vector<Window>& done() const { return done_; }
  /// Why what lies there, windows of it written, cannot be gone on with: the name of what differs in `work`. Empty: it
  /// can, or nothing lies there.
  const std::string& difference() const { return difference_; }

  /// Before anything is written: the first `windows` of done() hold, and what follows them goes.
  void go_on_after(size_t windows);
  /// A window's text for each file. Written before it is recorded, so that a record is of text that is there.
  void write(const std::vector<std::string>& texts);
  void record(const Window& window);
  void commit();

  /// Whether nothing was written, by this process or those before it.
  bool empty() const;
  /// What then goes when the process ends, with this or without.
  void remove_if_empty() const;
  /// Where what is done lies, of the file `index`.
  std::filesystem::path partial(size_t index = 0) const { return parts_[index].partial; }
  /// The journal of files of which this is the first. Where it is, there is work that may go on.
  static std::filesystem::path journal_of(const std::string& file);
  /// Where the text of `file` lies meanwhile.
  static std::filesystem::path partial_of(const std::string& file);

 private:
  struct Part {
    std::string file;
    std::filesystem::path partial;
    std::unique_ptr<AtomicFile> output;
    uint64_t bytes = 0;               // written
    std::vector<uint64_t> ends = {};  // behind each window of done()
    uint64_t window_bytes = 0;        // of the latest window
    std::string window_checksum = {};
  };

  void lock();
  bool holds_text() const;
  void read_journal(const std::string& text, const std::map<std::string, std::string>& work);
  void keep_what_agrees();
  void take_back(Part& part, size_t index) const;
  void append(const std::string& text);
  [[noreturn]] void fail(int error_number) const;

  std::vector<Part> parts_;
  std::filesystem::path journal_;
  int descriptor_ = -1;             // of the journal, which is locked
  std::string header_;              // what a journal of this work begins with
  std::vector<std::string> lines_;  // of the journal, of each of done()
  std::vector<Window> done_;
  std::string difference_;
  bool committed_ = false;
};

}  // namespace transformer
