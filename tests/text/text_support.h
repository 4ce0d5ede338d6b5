#pragma once

#include <zlib.h>

#include <string>
#include <vector>

#include "error_of.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/text/vocabulary.h"

namespace transformer::test {

inline std::filesystem::path demo_data(const std::string& name) {
  return std::filesystem::path(TRANSFORMER_SOURCE_DIR) / "data" / "tatoeba-en-de" / name;
}

/// A small vocabulary of the demo corpus's validation text.
inline Vocabulary small_vocabulary(const TemporaryDirectory& folder, const VocabularySettings& settings = {},
                                   int64_t size = 1000) {
  const auto model = folder / "small.model";
  Vocabulary::train({demo_data("valid.en.gz"), demo_data("valid.de.gz")}, size, settings, model);
  return Vocabulary(model);
}

inline std::string gzip(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string result(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

}  // namespace transformer::test
