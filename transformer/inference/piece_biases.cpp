#include "transformer/inference/piece_biases.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "transformer/base/error.h"
#include "transformer/base/number.h"
#include "transformer/base/unicode.h"
#include "transformer/text/normalization.h"

namespace transformer {

std::vector<std::pair<int64_t, double>> piece_biases(std::span<const std::string> lines, const std::string& file,
                                                     const Vocabulary& vocabulary) {
  std::map<std::string, int64_t> ids;
  for (int64_t id = Vocabulary::first_written; id < vocabulary.size(); ++id) ids.emplace(vocabulary.piece(id), id);
  std::map<int64_t, double> biases;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const auto where = [&] { return fmt::format("{}:{}", file, i + 1); };
    const size_t tab = line.find('\t');
    const auto written = line.substr(0, tab);
    auto piece = ids.find(written);
    if (piece == ids.end() && vocabulary.normalization() == Normalization::nfc && trim(written) == written) {
      piece = ids.find(normalized(written));
    }
    if (piece == ids.end()) throw Error(where(), fmt::format("{} is no piece", in_quotes(written)));
    const auto text = tab == std::string::npos ? std::string_view() : trim(std::string_view(line).substr(tab + 1));
    const auto number = number_in<double>(text);
    if (!number || !(std::abs(*number) <= 100)) {
      throw Error(where(),
                  fmt::format("expected a piece, a tab and a number from -100 to 100, found {}", in_quotes(line)));
    }
    if (!biases.emplace(piece->second, *number).second) throw Error(where(), "this piece came before", "give it once");
  }
  return {biases.begin(), biases.end()};
}

}  // namespace transformer
