#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

/// What targets of fuzzing share. A target is given bytes that are not to be trusted and may throw Error or Failure, as
/// the library promises; whatever else it throws, a sanitizer's finding or a property that does not hold ends the
/// process.
///
/// The same sources make two kinds of programs: linked with libFuzzer (preset fuzz, scripts/fuzz) they look for such
/// bytes; linked with replay.cpp (every other preset) they are tests that read the files of tests/fuzz/corpus.
namespace transformer::fuzz {

/// Makes a target known by its name, which is its corpus's, too:
///
///     const Target target("checksums", [](std::string_view input) { ... });
struct Target {
  using Run = void (*)(std::string_view input);
  Target(const char* name, Run run);
};

/// Ends the process with `what` unless it holds.
void require(bool holds, const char* what);

/// A folder of this process's own, the same at every call; it goes when the process ends well.
const std::filesystem::path& scratch();

/// Writes a file into scratch() and returns its path.
std::filesystem::path write_scratch(const std::string& name, std::string_view bytes);

/// An input that stands for several files: "=== NAME" on a line of its own begins each, and the line's end before the
/// next such line belongs to neither. What stands before the first is the file "". Names of anything but letters,
/// digits, '.', '-' and '_', or of more than 40, begin no file.
std::map<std::string, std::string_view> files_of(std::string_view input);

/// Makes scratch()/`folder` hold exactly these files (those with a name), and returns its path.
std::filesystem::path write_folder(const std::string& folder, const std::map<std::string, std::string_view>& files);

}  // namespace transformer::fuzz
