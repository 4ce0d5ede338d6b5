#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace transformer::benchmark {

/// Table 1 of the paper (§4), measured: what a layer of width d costs on a sequence of n positions, by its type. The
/// shape alphabet is the table's: n positions, d width, r neighbourhood of restricted self-attention, k kernel width.

enum class LayerType {
  self_attention,             // multi-head, with its four projections
  attention_alone,            // without them: what the table counts
  restricted_self_attention,  // with them
  lstm,
  gru,
  convolution,
  separable_convolution,
};

/// All of them, in the order of reports.
const std::vector<LayerType>& layer_types();

struct LayerDescription {
  const char* key;         // in files: "self-attention"
  const char* name;        // in reports
  const char* complexity;  // per layer, in the table
  const char* sequential;  // operations
  const char* path;        // maximum length
};
LayerDescription describe(LayerType type);

/// What fixes a measurement besides n, d and the batch.
struct LayerSizes {
  int64_t window = 128;  // r
  int64_t kernel = 3;    // k
};

/// Floating-point operations of the layer's matrix products and convolutions, forward and backward, for a batch of
/// sequences; a multiplication and an addition count two. Every product has a gradient for each of its two factors, of
/// the same cost, so that this is three times the forward pass. With every head's keys and values together d wide:
///   self-attention 8nd² + 4n²d, alone 4n²d, restricted 8nd² + 4d·(pairs within the window), LSTM 16nd², GRU 12nd²,
///   convolution 2knd², separable 2knd + 2nd².
double training_flops(LayerType type, int64_t batch, int64_t n, int64_t d, const LayerSizes& sizes);

struct Measurement {
  LayerType type = LayerType::self_attention;
  int64_t batch = 1, n = 0, d = 0;
  double milliseconds = 0;  // forward and backward: median
  double fastest = 0, slowest = 0;
  int64_t samples = 0;
  double flops = 0;
};

struct Measurements {
  std::string cpu, torch_version;
  int64_t threads = 1;
  LayerSizes sizes;
  std::vector<Measurement> list;

  const Measurement* find(LayerType type, int64_t batch, int64_t n, int64_t d) const;
};

/// value ≈ c · n^of_n · d^of_d, by least squares over the logarithms.
struct Exponents {
  double of_n = 0, of_d = 0;
  double residual = 0;  // standard deviation of ln(value) around the fit
  int64_t points = 0;
};

struct FitPoint {
  double n, d, value;
};
/// Absent where the points do not determine both exponents: fewer than three, or n and d that do not vary
/// independently.
std::optional<Exponents> fit_exponents(const std::vector<FitPoint>& points);

/// Where self-attention stops being cheaper than `other` at width d: the n from which on its time is greater,
/// interpolated in the logarithms between the neighbouring measured n.
struct Crossover {
  enum class Kind { at, below_all, above_all, unknown };
  Kind kind = Kind::unknown;
  double n = 0;  // at: the place; below_all and above_all: the least and the greatest n that both were measured at
};
Crossover find_crossover(const Measurements& measurements, LayerType other, int64_t batch, int64_t d);

/// The same in arithmetic: 2d for the LSTM, d for the GRU, by training_flops.
double arithmetic_crossover(LayerType other, int64_t d);

/// A JSON document with a format version. `parse` throws Error for another one.
std::string to_json(const Measurements& measurements);
Measurements parse_measurements(const std::string& text, const std::string& where);

/// The report in Markdown, with the pictures linked by these names. Exponents are fitted over n >= fit_from.
std::string markdown(const Measurements& measurements, int64_t fit_from, const std::string& time_picture,
                     const std::string& crossover_picture);
/// Time over n for every type, at the greatest d that self-attention and a recurrent layer were measured at.
std::string time_plot(const Measurements& measurements);
std::string crossover_plot(const Measurements& measurements);

}  // namespace transformer::benchmark
