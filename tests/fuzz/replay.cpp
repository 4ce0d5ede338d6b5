// A program of targets without libFuzzer: runs one on each file given, and on each file of each folder given.
//
//   base_fuzz --target=settings tests/fuzz/corpus/settings
//
// The name of each comes first, so that the last one printed is the one that ended the process.

#include <stdint.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/base/read_file.h"

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  LLVMFuzzerInitialize(&argc, &argv);
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("-")) continue;
    if (!fs::is_directory(argument)) {
      files.emplace_back(argument);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argument)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);
    // As long as it is and no longer: a byte read beyond it is found.
    const std::string bytes = transformer::read_file(file);
    const std::vector<uint8_t> input(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  if (files.empty()) std::fprintf(stderr, "no files to replay\n");
  return files.empty() ? 2 : 0;
}
