// A shortlist, and the vocabulary that it is for: files shortlist, in which 32 times "v" stands for the vocabulary's
// checksum, and vocabulary.model.

#include "transformer/inference/shortlist.h"

#include <algorithm>
#include <string>

#include "fuzz/fuzz.h"

using namespace transformer;

namespace {

const fuzz::Target target("shortlist", [](std::string_view input) {
  auto files = fuzz::files_of(input);
  const auto vocabulary =
      std::make_shared<const Vocabulary>(fuzz::write_scratch("vocabulary.model", files["vocabulary.model"]));
  std::string bytes(files["shortlist"]);
  const std::string stand_in(32, 'v');
  fuzz::require(vocabulary->checksum().size() == stand_in.size(), "checksums are as long as what stands for them");
  for (size_t at = bytes.find(stand_in); at != std::string::npos; at = bytes.find(stand_in, at + stand_in.size())) {
    bytes.replace(at, stand_in.size(), vocabulary->checksum());
  }
  const auto list = Shortlist::read(fuzz::write_scratch("shortlist", bytes), {vocabulary, vocabulary});
  fuzz::require(list.mean_translations() >= 0, "translations are counted");
  std::vector<int64_t> all;
  for (int64_t id = 0; id < vocabulary->size(); ++id) {
    all.push_back(id);
    const auto candidates = list.candidates(all);
    fuzz::require(std::is_sorted(candidates.begin(), candidates.end()) &&
                      std::adjacent_find(candidates.begin(), candidates.end()) == candidates.end(),
                  "candidates ascend, each once");
    fuzz::require(
        !candidates.empty() && candidates.front() == Vocabulary::end && candidates.back() < vocabulary->size(),
        "candidates are pieces that outputs are written in, the end among them");
  }
});

}  // namespace
