#include <cstdio>
#include <string>

#include "inference/tiny_model.h"

/// make_model DIR [two]: writes a model directory with untrained weights, for tests of programs that need one; `two`:
/// with a vocabulary for each language.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: make_model DIR [two]\n", stderr);
    return 2;
  }
  transformer::test::write_tiny_model(argv[1], {.max_extra_length = 6}, argc > 2 && std::string(argv[2]) == "two");
}
