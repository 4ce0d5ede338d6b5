#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>

namespace transformer {

/// Autocast of products in a given state while this lives, and then as it was. Casts of weights are kept for that long
/// where `cached`; one made without gradients would stand between a weight and its gradient.
class Autocast {
 public:
  /// Whether products are cast, and to what.
  struct State {
    bool enabled = false;                 // off: products are made in their factors' types
    at::ScalarType type = at::kBFloat16;  // that factors of products are cast to

    /// What this thread does now on a device.
    static State of(const c10::Device& device) {
      return {at::autocast::is_autocast_enabled(device.type()), at::autocast::get_autocast_dtype(device.type())};
    }
  };

  /// Takes effect on the calling thread, on the kind of device that `device` is.
  Autocast(const c10::Device& device, const State& state, bool cached)
      : type_(device.type()), before_(State::of(device)), cached_before_(at::autocast::is_autocast_cache_enabled()) {
    set(state);
    at::autocast::set_autocast_cache_enabled(cached);
  }
  /// Puts back what was in effect, and drops casts of weights that nobody needs any more.
  ~Autocast() {
    const bool cached = at::autocast::is_autocast_cache_enabled();
    set(before_);
    at::autocast::set_autocast_cache_enabled(cached_before_);
    if (cached && !before_.enabled) at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  void set(const State& state) const {
    at::autocast::set_autocast_enabled(type_, state.enabled);
    at::autocast::set_autocast_dtype(type_, state.type);
  }

  c10::DeviceType type_;
  State before_;
  bool cached_before_;
};

}  // namespace transformer
