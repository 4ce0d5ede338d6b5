#include "fuzz/fuzz.h"

#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "transformer/base/error.h"

namespace transformer::fuzz {

namespace fs = std::filesystem;

namespace {

std::map<std::string, Target::Run>& targets() {
  static std::map<std::string, Target::Run> all;
  return all;
}

Target::Run chosen = nullptr;

struct Scratch {
  fs::path path;
  Scratch() {
    auto pattern = (fs::temp_directory_path() / "transformer-fuzz-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make a folder in " + pattern);
    path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

bool names_a_file(std::string_view name) {
  const auto known = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  return !name.empty() && name.size() <= 40 && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), known);
}

}  // namespace

Target::Target(const char* name, Run run) {
  targets()[name] = run;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  abort();
}

const fs::path& scratch() {
  static const Scratch folder;
  return folder.path;
}

fs::path write_scratch(const std::string& name, std::string_view bytes) {
  auto file = scratch() / name;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  require(!out.fail(), "the scratch folder can be written to");
  return file;
}

std::map<std::string, std::string_view> files_of(std::string_view input) {
  constexpr std::string_view mark = "=== ";
  std::map<std::string, std::string_view> files;
  std::string name;
  size_t begin = 0;  // of the file `name`
  for (size_t at = 0; at < input.size();) {
    const size_t newline = std::min(input.find('\n', at), input.size());
    const auto line = input.substr(at, newline - at);
    const size_t next = std::min(newline + 1, input.size());
    if (line.starts_with(mark) && names_a_file(line.substr(mark.size()))) {
      files[name] = input.substr(begin, at > begin ? at - begin - 1 : 0);
      name = line.substr(mark.size());
      begin = next;
    }
    at = next;
  }
  files[name] = input.substr(begin);
  return files;
}

fs::path write_folder(const std::string& folder, const std::map<std::string, std::string_view>& files) {
  const auto path = scratch() / folder;
  fs::remove_all(path);
  fs::create_directory(path);
  for (const auto& [name, bytes] : files) {
    if (!name.empty()) write_scratch(folder + "/" + name, bytes);
  }
  return path;
}

}  // namespace transformer::fuzz

using namespace transformer;

// libFuzzer's two functions, which replay.cpp calls as well. --target=NAME chooses among this program's targets;
// libFuzzer takes no notice of what begins with two hyphens.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr std::string_view flag = "--target=";
  for (int i = 1; i < *count; ++i) {
    const std::string_view argument = (*arguments)[i];
    if (!argument.starts_with(flag)) continue;
    const auto found = fuzz::targets().find(std::string(argument.substr(flag.size())));
    if (found != fuzz::targets().end()) fuzz::chosen = found->second;
  }
  if (!fuzz::chosen) {
    std::fprintf(stderr, "fuzz: name one of this program's targets:");
    for (const auto& [name, run] : fuzz::targets()) std::fprintf(stderr, " --target=%s", name.c_str());
    std::fprintf(stderr, "\n");
    exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    fuzz::chosen({reinterpret_cast<const char*>(data), size});
  } catch (const Error&) {
  } catch (const Failure&) {
  }
  return 0;
}
