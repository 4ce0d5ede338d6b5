#include "transformer/architecture/sinusoids.h"

#include <cmath>

namespace transformer {

std::vector<double> sinusoids(int64_t first, int64_t count, int64_t d_model) {
  std::vector<double> wavelengths;  // over 2 pi
  for (int64_t even = 0; even < d_model; even += 2) {
    wavelengths.push_back(std::pow(10000.0, static_cast<double>(even) / static_cast<double>(d_model)));
  }
  std::vector<double> encodings;
  encodings.reserve(static_cast<size_t>(count * d_model));
  for (int64_t position = first; position < first + count; ++position) {
    for (int64_t dimension = 0; dimension < d_model; ++dimension) {
      const double angle = static_cast<double>(position) / wavelengths[static_cast<size_t>(dimension / 2)];
      encodings.push_back(dimension % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return encodings;
}

}  // namespace transformer
