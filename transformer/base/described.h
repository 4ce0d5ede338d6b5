#pragma once

#include <string>

namespace transformer {

/// What an exception says to the person who runs the program.
struct Described {
  std::string text;      // one line, but for line ends in what it quotes
  bool mistake = false;  // theirs (Error), else something failed while running
};

/// The exception that is being handled: for a handler of everything, at the edge where no exception goes on.
Described described_exception();

}  // namespace transformer
