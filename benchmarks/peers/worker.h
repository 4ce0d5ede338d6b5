#pragma once

#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "transformer/base/error.h"
#include "transformer/base/number.h"

namespace transformer {

/// A field of /proc/self/status that counts kB, in bytes.
inline int64_t status(const std::string& field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

/// Obeys a command a line from standard input, and answers each with a line: `memory` with "PEAK NOW", in bytes of
/// resident memory, `run` with what `run` makes of its arguments, and any of `others` with what that does. Returns at
/// the end of input. Throws Error at any other line, and where arguments could not be read, marked by the stream's
/// failbit.
using Answer = std::function<std::string(std::istringstream& arguments)>;
inline void obey(const Answer& run, const std::map<std::string, Answer>& others = {}) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, answer;
    words >> verb;
    if (verb == "memory") {
      answer = std::to_string(status("VmHWM")) + " " + std::to_string(status("VmRSS"));
    } else if (verb == "run") {
      answer = run(words);
    } else if (const auto other = others.find(verb); other != others.end()) {
      answer = other->second(words);
    } else {
      words.setstate(std::ios::failbit);
    }
    if (words.fail()) throw Error("standard input", "cannot be obeyed: '" + line + "'");
    std::cout << answer << std::endl;
  }
}

/// A count on the command line, by its name there. Throws Error where it is no number above 0.
inline int count_of(const std::string& name, std::string_view text) {
  const auto count = number_in<int>(text);
  if (!count || *count < 1) throw Error(name, "expected a number above 0, not '" + std::string(text) + "'");
  return *count;
}

/// The exit status of a worker whose main is `serve`.
inline int worker_main(const char* name, int argc, char** argv, void (*serve)(int argc, char** argv)) {
  try {
    serve(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    return 2;
  }
}

}  // namespace transformer
