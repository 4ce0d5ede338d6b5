// outside_inference MODEL: translates standard input.
#include <transformer/inference/translator.h>

#include <iostream>
#include <string>
#include <vector>

#if __has_include(<torch/torch.h>)
#error "LibTorch can be seen"
#endif

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const transformer::Translator translator(argv[1]);
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  for (const auto& translations : translator.translate(lines)) std::cout << translations.front().text << "\n";
}
