#include "transformer/training/distributed/rank_state.h"

#include <fmt/format.h>

#include <sstream>

namespace transformer {

std::vector<uint8_t> RankState::bytes() const {
  const auto text = fmt::format("{} {} {} {:d} {} {} {} {}", beat, entered, sections, alone, static_cast<char>(phase),
                                origin, world_size, reason);
  return {text.begin(), text.end()};
}

RankState RankState::read(const std::vector<uint8_t>& bytes) {
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  RankState state;
  char phase = 'r';
  text >> state.beat >> state.entered >> state.sections >> state.alone >> phase >> state.origin >> state.world_size;
  state.phase = static_cast<Phase>(phase);
  text.get();
  std::getline(text, state.reason, '\0');
  return state;
}

std::string state_key(int rank) {
  return fmt::format("state/{}", rank);
}

}  // namespace transformer
