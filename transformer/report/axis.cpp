#include "transformer/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "transformer/report/number_text.h"

namespace transformer {
namespace {

bool is_logarithmic(Scale scale) {
  return scale != Scale::linear;
}

std::vector<double> linear_ticks(double lower, double upper, int64_t most) {
  // Below the smallest normal number a step has no reciprocal, and may be nothing; and its multiples are to be counted.
  using Limits = std::numeric_limits<double>;
  const double rough = std::max({(upper - lower) / static_cast<double>(most), Limits::min(),
                                 10 * Limits::epsilon() * std::max(std::abs(lower), std::abs(upper))});
  double power = std::pow(10, std::floor(std::log10(rough)));
  for (;; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double step = factor * power;
      // Multiples of the step, not sums of it, so that 0 is 0; a tolerance keeps ends that are ticks up to rounding.
      const double first = std::ceil(lower / step - 1e-9), last = std::floor(upper / step + 1e-9);
      if (last - first + 1 > static_cast<double>(most)) continue;
      std::vector<double> values;
      for (double i = first; i <= last; ++i) {
        // 3 * 0.1 is not 0.3: divided by a whole number the multiple is rounded once.
        const double value = step < 1 ? i / std::round(1 / step) : i * step;
        values.push_back(std::clamp(i == 0 ? 0.0 : value, lower, upper));
      }
      return values;
    }
  }
}

std::vector<double> logarithmic_ticks(double lower, double upper, Scale scale, int64_t most) {
  const double base = scale == Scale::binary ? 2 : 10;
  const auto exponent = [&](double value) { return std::log(value) / std::log(base); };
  const auto first = static_cast<int64_t>(std::floor(exponent(lower) + 1e-9));
  const auto last = static_cast<int64_t>(std::ceil(exponent(upper) - 1e-9));
  const auto within = [&](double value) { return value >= lower * (1 - 1e-9) && value <= upper * (1 + 1e-9); };
  const std::vector<std::vector<double>> choices =
      scale == Scale::binary ? std::vector<std::vector<double>>{{1}} : std::vector<std::vector<double>>{{1, 2, 5}, {1}};
  std::vector<double> values;
  for (int64_t stride = 1;; ++stride) {
    for (const auto& factors : choices) {
      if (stride > 1 && factors.size() > 1) continue;
      values.clear();
      for (int64_t i = first; i <= last; ++i) {
        if (i % stride != 0) continue;
        for (const double factor : factors) {
          const double value = factor * std::pow(base, static_cast<double>(i));
          if (within(value)) values.push_back(std::clamp(value, lower, upper));
        }
      }
      if (static_cast<int64_t>(values.size()) <= most) return values;
    }
  }
}

}  // namespace

bool can_show(Scale scale, double value) {
  return std::isfinite(value) && (!is_logarithmic(scale) || value > 0);
}

std::vector<Tick> axis_ticks(double lower, double upper, Scale scale, int64_t most) {
  const bool valid = std::isfinite(lower) && std::isfinite(upper) && lower < upper && most >= 2;
  if (!valid || (is_logarithmic(scale) && lower <= 0)) {
    throw std::invalid_argument(fmt::format("axis_ticks: from {} to {}, at most {}", lower, upper, most));
  }
  std::vector<double> values;
  if (is_logarithmic(scale)) values = logarithmic_ticks(lower, upper, scale, most);
  if (values.size() < 3 && (scale == Scale::linear || upper < 8 * lower)) values = linear_ticks(lower, upper, most);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  // As many digits as make all labels different; 17 do.
  for (int digits = scale == Scale::linear ? 4 : 6;; ++digits) {
    std::vector<Tick> ticks;
    std::set<std::string> labels;
    for (const double value : values) {
      ticks.push_back({value, short_number(value, digits)});
      labels.insert(ticks.back().label);
    }
    if (labels.size() == values.size() || digits >= 17) return ticks;
  }
}

Projection::Projection(const Axis& axis, const std::vector<double>& values, double low, double high, int64_t most_ticks)
    : scale_(axis.scale), low_(low), high_(high) {
  lower_ = std::numeric_limits<double>::infinity();
  upper_ = -lower_;
  for (const double value : values) {
    lower_ = std::min(lower_, value);
    upper_ = std::max(upper_, value);
  }
  if (!(lower_ <= upper_)) lower_ = upper_ = 1;
  // A little room, so that no mark lies on the frame; more about a single value, which would be read to six digits.
  // (A tenth of a logarithm could be all there is of a number.)
  const bool single = lower_ == upper_ && scale_ == Scale::linear;
  const double least = (single ? 0.1 : 1e-3) * std::abs(to_scale(upper_));
  const double room = std::max((to_scale(upper_) - to_scale(lower_)) * 0.05, least);
  const double pad = room > 0 ? room : 1;
  // With that room, too, there is an axis, whose extent is a number.
  using Limits = std::numeric_limits<double>;
  const double least_shown = is_logarithmic(scale_) ? Limits::denorm_min() : -Limits::max() / 4;
  const double most_shown = is_logarithmic(scale_) ? Limits::max() : Limits::max() / 4;
  const double padded_lower = std::clamp(from_scale(to_scale(lower_) - pad), least_shown, most_shown),
               padded_upper = std::clamp(from_scale(to_scale(upper_) + pad), least_shown, most_shown);
  // Values that are all positive are not shown beside negative ones.
  lower_ = axis.lower.value_or(lower_ >= 0 && scale_ == Scale::linear ? std::max(0.0, padded_lower) : padded_lower);
  upper_ = axis.upper.value_or(padded_upper);
  if (!(lower_ < upper_)) upper_ = lower_ == 0 ? 1 : lower_ + std::abs(lower_);
  ticks_ = axis_ticks(lower_, upper_, scale_, most_ticks);
}

double Projection::operator()(double value) const {
  // Far outside the picture it does not matter how far, but it is a number.
  constexpr double most = 1e6;
  const double share = (to_scale(value) - to_scale(lower_)) / (to_scale(upper_) - to_scale(lower_));
  return low_ + (high_ - low_) * std::clamp(share, -most, most);
}

double Projection::to_scale(double value) const {
  return is_logarithmic(scale_) ? std::log(value) : value;
}

double Projection::from_scale(double value) const {
  return is_logarithmic(scale_) ? std::exp(value) : value;
}

}  // namespace transformer
