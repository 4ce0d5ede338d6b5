#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace transformer {

/// Where ticks stand, and values between them.
enum class Scale {
  linear,       // ticks at round values, equally far apart
  logarithmic,  // ticks at 1, 2 and 5 times powers of ten
  binary,       // logarithmic, ticks at powers of two
};

/// Whether an axis of this scale has a place for `value`: finite, and positive on a logarithmic one.
bool can_show(Scale scale, double value);

/// A place of an axis that is named.
struct Tick {
  double value = 0;   // in the axis's own unit
  std::string label;  // short: "20k"
};

/// Round values from `lower` to `upper`, both included, ascending, at most `most` (at least 2) of them. All labels
/// differ. A logarithmic axis of less than three octaves has the ticks of a linear one, where its own would be fewer
/// than three. Throws std::invalid_argument unless lower < upper and both are finite, and for a logarithmic axis
/// positive.
std::vector<Tick> axis_ticks(double lower, double upper, Scale scale, int64_t most = 7);

/// One of a plot's two axes.
struct Axis {
  std::string label;                   // what is measured, and in what unit
  Scale scale = Scale::linear;         // of places by values
  std::optional<double> lower, upper;  // absent: so that all points fit
};

/// Where the values of an axis lie in a picture.
class Projection {
 public:
  /// `low` and `high` are the places of the least and the greatest value shown; `values` can be shown, and all fit with
  /// a little room around them where `axis` leaves an end open.
  Projection(const Axis& axis, const std::vector<double>& values, double low, double high, int64_t most_ticks);

  /// The place of `value`, which may lie outside.
  double operator()(double value) const;
  /// Whether `value` is among those shown.
  bool contains(double value) const { return value >= lower_ && value <= upper_; }
  /// The least value shown.
  double lower() const { return lower_; }
  /// The greatest value shown.
  double upper() const { return upper_; }
  /// Those of axis_ticks that are shown.
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double to_scale(double value) const;
  double from_scale(double value) const;

  Scale scale_;
  double low_, high_, lower_ = 0, upper_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace transformer
