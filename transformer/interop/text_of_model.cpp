#include "transformer/interop/text_of_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/model_files.h"
#include "transformer/base/read_file.h"
#include "transformer/text/sentencepiece_model.h"
#include "transformer/text/vocabulary.h"

namespace transformer {
namespace {

namespace fs = std::filesystem;

std::pair<fs::path, fs::path> sentencepiece_files(const fs::path& folder, const std::vector<fs::path>& given) {
  if (!given.empty()) return {given.front(), given.back()};
  for (const auto& [source, target] : {std::pair{"source.spm", "target.spm"},
                                       {source_vocabulary_name, target_vocabulary_name},
                                       {vocabulary_name, vocabulary_name},
                                       {"sentencepiece.model", "sentencepiece.model"}}) {
    if (is_file(folder / source) && is_file(folder / target)) return {folder / source, folder / target};
  }
  throw Error(folder.string(), "has no SentencePiece models (source.spm and target.spm) that make text into pieces",
              "name them with --sentencepiece");
}

/// Whether the model numbers its pieces like this already, so that it needs no table, or no other.
bool numbers_as(const std::string& bytes, const fs::path& file, const std::vector<std::string>& pieces) {
  const auto model = SentencePieceModel::read(bytes, file.string());
  using Type = SentencePieceModel::Type;
  if (!model.table.empty()) return std::equal(pieces.begin(), pieces.end(), model.table.begin(), model.table.end());
  return model.pieces.size() == pieces.size() &&
         std::equal(pieces.begin(), pieces.end(), model.pieces.begin(),
                    [](const auto& piece, const auto& own) { return piece == own.text; }) &&
         model.pieces[Vocabulary::unknown].type == Type::unknown &&
         std::all_of(model.pieces.begin(), model.pieces.begin() + Vocabulary::unknown,
                     [](const auto& piece) { return piece.type == Type::control; });
}

}  // namespace

std::map<std::string, std::string> vocabulary_files(const fs::path& folder, const std::vector<fs::path>& given,
                                                    const Renumbering& source, const Renumbering& target) {
  const auto [source_file, target_file] = sentencepiece_files(folder, given);
  const auto of = [](const fs::path& file, const Renumbering& numbering) {
    auto bytes = read_file(file, SentencePieceModel::most_bytes);
    if (numbers_as(bytes, file, numbering.pieces)) return std::pair(std::move(bytes), true);
    // With another numbering it is another vocabulary, and what of ours lies in the file is not this one's.
    return std::pair(Vocabulary::with_table(SentencePieceModel::without_own_fields(bytes, file.string()),
                                            numbering.pieces, file.string()),
                     false);
  };
  auto [source_model, as_it_is] = of(source_file, source);
  auto target_model = of(target_file, target).first;
  if (as_it_is && source_model == target_model) return {{vocabulary_name, std::move(source_model)}};
  return {{source_vocabulary_name, std::move(source_model)}, {target_vocabulary_name, std::move(target_model)}};
}

}  // namespace transformer
