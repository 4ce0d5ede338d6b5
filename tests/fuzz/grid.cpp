// A grid of ablations.

#include "transformer/sweep/grid.h"

#include <set>

#include "fuzz/fuzz.h"

using namespace transformer;

namespace {

const fuzz::Target target("grid", [](std::string_view input) {
  const auto grid = read_grid(fuzz::write_scratch("grid.yaml", input), {"model", "training", "data"});
  std::set<std::string> names;
  for (const auto& row : grid.rows) {
    fuzz::require(names.insert(row.name).second, "rows have names of their own");
    fuzz::require(!row.name.empty() && row.name.find('/') == std::string::npos && row.name != "." && row.name != "..",
                  "a row's name is a folder's");
    fuzz::require(!row.seeds.empty(), "a row has seeds");
  }
});

}  // namespace
