#include "transformer/decoding/attention_maps.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <string_view>

#include "transformer/base/unicode.h"

namespace transformer {

using torch::Tensor;

namespace {

constexpr std::string_view space_symbol = "\xE2\x96\x81";  // ▁

/// Rows of ids [B, longest], padded on the right.
Tensor padded(const std::vector<std::vector<int64_t>>& rows, torch::Device device) {
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  auto ids = torch::full({static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)}, Vocabulary::padding,
                         torch::kInt64);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), ids.mutable_data_ptr<int64_t>() + i * longest);
  }
  return ids.to(device);
}

/// A row's layers stacked, [L, H, T, S].
Tensor stacked(const std::vector<Tensor>& layers, int64_t row, int64_t queries, int64_t keys) {
  std::vector<Tensor> own;
  for (const auto& weights : layers) own.push_back(weights[row].narrow(1, 0, queries).narrow(2, 0, keys));
  return torch::stack(own).to(torch::kCPU);
}

int hexadecimal(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/// The bytes that a piece stands for, the space symbol as a space.
std::string surface(const std::string& piece) {
  if (piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>' && hexadecimal(piece[3]) >= 0 &&
      hexadecimal(piece[4]) >= 0) {
    return std::string(1, static_cast<char>(hexadecimal(piece[3]) * 16 + hexadecimal(piece[4])));
  }
  std::string bytes;
  for (size_t i = 0; i < piece.size();) {
    const bool space = std::string_view(piece).substr(i).starts_with(space_symbol);
    bytes += space ? ' ' : piece[i];
    i += space ? space_symbol.size() : 1;
  }
  return bytes;
}

/// Where blanks stand among the bytes of each of `texts`, which together are one text: a blank of several bytes may be
/// spelled in several pieces.
std::vector<std::vector<bool>> blanks_of(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) all += text;
  std::vector<bool> blank;
  for (size_t position = 0; position < all.size();) {
    const bool found = is_blank(next_code_point(all, position));
    blank.resize(position, found);
  }
  std::vector<std::vector<bool>> result;
  auto begin = blank.cbegin();
  for (const auto& text : texts) {
    const auto end = begin + static_cast<std::ptrdiff_t>(text.size());
    result.emplace_back(begin, end);
    begin = end;
  }
  return result;
}

/// `word_of` as a matrix [words, tokens] of ones.
Tensor membership(const JoinedTokens& joined, torch::ScalarType type) {
  const auto words = static_cast<int64_t>(joined.words.size()), tokens = static_cast<int64_t>(joined.word_of.size());
  auto matrix = torch::zeros({words, tokens}, type);
  return matrix.scatter_(0, torch::tensor(joined.word_of, torch::kInt64).unsqueeze(0), 1);
}

}  // namespace

AttentionMaps attention_maps(Transformer model, const std::vector<int64_t>& source,
                             const std::vector<int64_t>& target) {
  c10::InferenceMode inference;
  const auto device = model->projection_weight().device();
  const auto from = written_tokens(source), read = read_tokens(target);
  const auto encoded = model->encode(padded({from}, device), /*weights=*/true);
  const auto decoded = model->decode(padded({read}, device), encoded, /*weights=*/true);
  const auto keys = static_cast<int64_t>(from.size()), queries = static_cast<int64_t>(read.size());
  return {stacked(encoded.weights, 0, keys, keys), stacked(decoded.self_weights, 0, queries, queries),
          stacked(decoded.memory_weights, 0, queries, keys)};
}

std::vector<Tensor> cross_attention(Transformer model, const std::vector<std::vector<int64_t>>& sources,
                                    const std::vector<std::vector<int64_t>>& targets) {
  c10::InferenceMode inference;
  TORCH_CHECK(sources.size() == targets.size(), sources.size(), " sources and ", targets.size(), " targets");
  if (sources.empty()) return {};
  const auto device = model->projection_weight().device();
  std::vector<std::vector<int64_t>> from, read;
  for (const auto& source : sources) from.push_back(written_tokens(source));
  for (const auto& target : targets) read.push_back(read_tokens(target));
  const auto decoded = model->decode(padded(read, device), model->encode(padded(from, device)), /*weights=*/true);
  std::vector<Tensor> maps;
  for (size_t row = 0; row < sources.size(); ++row) {
    maps.push_back(stacked(decoded.memory_weights, static_cast<int64_t>(row), static_cast<int64_t>(read[row].size()),
                           static_cast<int64_t>(from[row].size())));
  }
  return maps;
}

std::vector<int64_t> written_tokens(std::vector<int64_t> pieces) {
  pieces.push_back(Vocabulary::end);
  return pieces;
}

std::vector<int64_t> read_tokens(std::vector<int64_t> pieces) {
  pieces.insert(pieces.begin(), Vocabulary::begin);
  return pieces;
}

JoinedTokens joined_tokens(const Vocabulary& vocabulary, const std::vector<int64_t>& tokens) {
  const auto is_special = [](int64_t token) {
    return token == Vocabulary::padding || token == Vocabulary::begin || token == Vocabulary::end;
  };
  std::vector<std::string> texts;
  for (const int64_t token : tokens) {
    // No blank reaches over a token that is no text: a line end stands there.
    texts.push_back(is_special(token) ? "\n" : token == Vocabulary::unknown ? "⁇" : surface(vocabulary.piece(token)));
  }
  const auto blanks = blanks_of(texts);
  struct Word {
    std::vector<int64_t> pieces;
    bool special = false;
    bool blank = true;       // nothing else is in it
    bool ends_blank = true;  // its last byte
  };
  std::vector<Word> words;
  // White space behind which no piece comes belongs to the word before it.
  const auto end_of_text = [&] {
    if (words.size() < 2 || words.back().special || !words.back().blank || words[words.size() - 2].special) return;
    const auto blank = std::move(words.back());
    words.pop_back();
    words.back().pieces.insert(words.back().pieces.end(), blank.pieces.begin(), blank.pieces.end());
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool special = is_special(tokens[i]);
    const auto& blank = blanks[i];
    if (special) end_of_text();
    if (words.empty() || special || words.back().special ||
        (!words.back().blank && (words.back().ends_blank || blank.front()))) {
      words.emplace_back();
    }
    auto& word = words.back();
    word.blank = word.blank && std::find(blank.begin(), blank.end(), false) == blank.end();
    word.ends_blank = blank.back();
    word.special = special;
    word.pieces.push_back(tokens[i]);
  }
  end_of_text();
  JoinedTokens joined;
  for (const auto& word : words) {
    joined.word_of.insert(joined.word_of.end(), word.pieces.size(), static_cast<int64_t>(joined.words.size()));
    joined.words.push_back(word.special ? vocabulary.piece(word.pieces.front())
                                        : std::string(trim(vocabulary.decode(word.pieces))));
  }
  return joined;
}

Tensor joined_weights(const Tensor& weights, const JoinedTokens& queries, const JoinedTokens& keys) {
  const auto type = weights.scalar_type();
  const auto rows = membership(queries, type);                                 // [words, T]
  const auto mean = rows / rows.sum(1, /*keepdim=*/true);                      // [words, T]
  return mean.matmul(weights).matmul(membership(keys, type).transpose(0, 1));  // [.., words, words]
}

}  // namespace transformer
