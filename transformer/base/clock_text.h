#pragma once

#include <string>

namespace transformer {

/// A time as clocks show it: "4:05", and "1:02:03" from an hour on; "0:00" of what is negative or no number.
std::string clock_text(double seconds);

}  // namespace transformer
