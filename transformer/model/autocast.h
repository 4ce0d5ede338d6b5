#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>

namespace transformer {

/// Autocast of products in a given state while this lives, and then as it was. Casts of weights are kept for that long
/// where `cached`; one made without gradients would stand between a weight and its gradient.
class Autocast {
 public:
  struct State {
    bool enabled = false;
    at::ScalarType type = at::kBFloat16;

    static State of(const c10::Device& device) {
      return {at::autocast::is_autocast_enabled(device.type()), at::autocast::get_autocast_dtype(device.type())};
    }
  };

  Autocast(const c10::Device& device, const State& state, bool cached)
      : type_(device.type()), before_(State::of(device)), cached_before_(at::autocast::is_autocast_cache_enabled()) {
    set(state);
    at::autocast::set_autocast_cache_enabled(cached);
  }
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
