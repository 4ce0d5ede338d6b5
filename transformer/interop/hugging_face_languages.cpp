#include "transformer/interop/hugging_face_languages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "transformer/base/ascii.h"
#include "transformer/base/error.h"
#include "transformer/base/number.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/hugging_face_configuration.h"
#include "transformer/interop/json_value.h"
#include "transformer/text/sentencepiece_model.h"

namespace transformer {
namespace {

namespace fs = std::filesystem;

// In the order of their ids.
constexpr const char* m2m_100_codes =
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd "
    "si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";
constexpr const char* wmt21_codes = "en ha is ja cs ru zh de";
constexpr const char* mbart_50_codes =
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN "
    "pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";

// NLLB has 202. A server tells of each into each other one.
constexpr size_t most_languages = 1000;

const std::vector<std::string> reserved = {"<s>", "<pad>", "</s>", "<unk>"};
constexpr const char* mask = "<mask>";

std::vector<std::string> words_of(const std::string& text, const std::string& before = "",
                                  const std::string& behind = "") {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(before + word + behind);
  return words;
}

bool is_core(const std::string& token) {
  return token == mask || std::find(reserved.begin(), reserved.end(), token) != reserved.end();
}

/// Whether a token can name a language: "eng_Latn", "en_XX", "__en__". Letters alone are part of any text.
bool is_language(std::string token) {
  const bool is_marked = token.starts_with("__") && token.ends_with("__") && token.size() > 4;
  if (is_marked) token = token.substr(2, token.size() - 4);
  const auto letters =
      static_cast<size_t>(std::find_if_not(token.begin(), token.end(), is_ascii_lower) - token.begin());
  const bool plain =
      std::all_of(token.begin(), token.end(), [](char c) { return is_ascii_alphanumeric(c) || c == '_' || c == '-'; });
  return plain && (letters == 2 || letters == 3) && token.size() <= 16 &&
         (letters == token.size() ? is_marked : token[letters] == '_' || token[letters] == '-');
}

/// A token as the files give it: its text, or an object with its "content".
const std::string& token_text(const JsonValue& token, const Configuration& config, const char* key) {
  const auto* content = token.kind() == JsonValue::Kind::object ? token.find("content") : &token;
  if (!content || content->kind() != JsonValue::Kind::text) config.refuse(key, "holds what is no token");
  return content->text();
}

/// Tokens beside SentencePiece's.
struct AddedTokens {
  std::map<int64_t, std::string> by_id;
  std::vector<std::string> listed;  // in the order of their ids, which follow on the pieces'

  bool has_languages() const {
    return std::any_of(by_id.begin(), by_id.end(), [](const auto& token) { return is_language(token.second); }) ||
           !listed.empty();
  }
  void take(const Configuration& config, const char* key, std::optional<int64_t> id, const std::string& token) {
    if (is_core(token)) return void(id ? by_id.emplace(*id, token).second : false);
    if (!is_language(token)) config.refuse_token(key, token);
    if (std::max(listed.size(), by_id.size()) >= most_languages)
      config.refuse(key, fmt::format("names more than {} languages", most_languages));
    if (!id) {
      if (std::find(listed.begin(), listed.end(), token) == listed.end()) listed.push_back(token);
    } else if (const auto [at, fresh] = by_id.emplace(*id, token); !fresh && at->second != token) {
      config.refuse(key, fmt::format("gives {} and {} the id {}", in_quotes(at->second), in_quotes(token), *id));
    }
  }
};

void take_listed(const Configuration& config, AddedTokens& added) {
  for (const char* key : listed_tokens) {
    const auto* others = config.find(key);
    if (!others) continue;
    for (const auto& token : others->elements()) added.take(config, key, {}, token_text(token, config, key));
    for (const auto& [name, token] : others->entries()) added.take(config, key, {}, token_text(token, config, key));
  }
}

/// What the files say of tokens, the largest of them only where the others say nothing.
AddedTokens read_added(const fs::path& folder, MultilingualText& text) {
  AddedTokens added;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (!is_file(folder / name)) continue;
    const Configuration config(folder / name);
    for (const auto& [key, usual] : std::initializer_list<std::pair<const char*, const char*>>{
             {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}, {"unk_token", "<unk>"}}) {
      if (const auto token = config.text(key, usual); token != usual) {
        config.refuse(key, fmt::format("is {}, expected {}", in_quotes(token), usual));
      }
    }
    for (const auto& [key, token] : config.tokens()) {
      if (!is_core(token)) config.refuse_token(key, token);
    }
    take_listed(config, added);
    if (const auto* tokens = config.find("added_tokens_decoder")) {
      for (const auto& [id, token] : tokens->entries()) {
        const auto number = number_in<int64_t>(id);
        if (!number) config.refuse("added_tokens_decoder", "has no ids");
        added.take(config, "added_tokens_decoder", *number, token_text(token, config, "added_tokens_decoder"));
      }
    }
    if (const auto* options = config.find("sp_model_kwargs"); options && !options->entries().empty()) {
      config.refuse("sp_model_kwargs", "gives SentencePiece options");
    }
    text.behind_end = config.flag("legacy_behaviour", text.behind_end);
    text.source_language = config.text("src_lang", text.source_language);
    text.target_language = config.text("tgt_lang", text.target_language);
  }
  if (const auto file = folder / "added_tokens.json"; is_file(file)) {  // of older versions
    const Configuration config(file);
    for (const auto& [token, id] : config.entries()) {
      if (!id.whole()) config.refuse(token, "has no id");
      added.take(config, "added_tokens.json", *id.whole(), token);
    }
  }
  if (added.has_languages() || !is_file(folder / "tokenizer.json")) return added;
  const Configuration config(folder / "tokenizer.json", size_t{256} << 20, SentencePieceModel::most_pieces);
  if (const auto* tokens = config.find("added_tokens")) {
    for (const auto& token : tokens->elements()) {
      const auto* id = token.find("id");
      if (!id || !id->whole()) config.refuse("added_tokens", "has a token without an id");
      added.take(config, "added_tokens", *id->whole(), token_text(token, config, "added_tokens"));
    }
  }
  return added;
}

/// The pieces of vocab.json, which has an id for each from 0 on.
std::vector<std::string> pieces_of_json(const fs::path& file, int64_t most) {
  const auto json = JsonValue::read(file, size_t{256} << 20, SentencePieceModel::most_pieces + 1);
  const auto refuse = [&](const std::string& what) { throw Error(file.string(), what, "it should map pieces to ids"); };
  if (json.kind() != JsonValue::Kind::object) refuse("is no object");
  if (std::ssize(json.entries()) > most) {
    refuse(fmt::format("has {} pieces, and config.json's 'vocab_size' is {}", json.entries().size(), most));
  }
  std::vector<std::string> pieces(json.entries().size());
  for (const auto& [piece, id] : json.entries()) {
    const auto place = id.whole();
    if (!place || *place < 0 || *place >= std::ssize(pieces)) {
      refuse(fmt::format("gives {} the id {}", in_quotes(piece), id.found()));
    }
    auto& to = pieces[static_cast<size_t>(*place)];
    if (!to.empty() || piece.empty()) refuse(fmt::format("has no or two pieces of the id {}", *place));
    to = piece;
  }
  return pieces;
}

/// The pieces of SentencePiece's model by fairseq's ids.
std::vector<std::string> pieces_of_model(const fs::path& file) {
  const auto bytes = read_file(file, SentencePieceModel::most_bytes);
  const auto model = SentencePieceModel::read(bytes, file.string());
  constexpr size_t own = 3;  // <unk>, <s>, </s>
  using Type = SentencePieceModel::Type;
  const bool as_usual = model.pieces.size() > own && model.pieces[0].type == Type::unknown &&
                        model.pieces[1].type == Type::control && model.pieces[2].type == Type::control;
  if (!as_usual) {
    throw Error(file.string(), "does not begin with <unk>, <s> and </s>, on which its ids rest",
                "such a model cannot be imported");
  }
  auto pieces = reserved;
  for (size_t i = own; i < model.pieces.size(); ++i) pieces.emplace_back(model.pieces[i].text);
  return pieces;
}

}  // namespace

MultilingualText read_multilingual_text(const fs::path& folder, LanguageList list, int64_t count) {
  MultilingualText text;
  text.file = folder / "sentencepiece.bpe.model";
  if (!is_file(text.file)) {
    throw Error(folder.string(), "has no sentencepiece.bpe.model",
                "a model of many languages needs it; that of the original is as good");
  }
  const bool has_json = list == LanguageList::m2m_100 && is_file(folder / "vocab.json");
  if (list == LanguageList::m2m_100 && !has_json) list = LanguageList::folder;
  auto& pieces = text.pieces;
  pieces = has_json ? pieces_of_json(folder / "vocab.json", count) : pieces_of_model(text.file);
  auto added = read_added(folder, text);
  // Only NLLB's tokenizer knows another place.
  text.behind_end = text.behind_end && list == LanguageList::folder;
  const std::string origin = (has_json ? folder / "vocab.json" : text.file).string();
  const auto refuse = [&](const std::string& what) { throw Error(origin, what, "such a model cannot be imported"); };
  const auto known = std::ssize(pieces);
  std::map<int64_t, std::string> said;  // by the files, where the list is the architecture's
  if (list != LanguageList::folder) {
    bool wmt21 = false;
    if (const auto file = folder / "tokenizer_config.json"; is_file(file)) {
      const auto codes = Configuration(file).text("language_codes", "m2m100");
      if (codes != "m2m100" && codes != "wmt21") Configuration(file).refuse("language_codes", "is of no known list");
      wmt21 = codes == "wmt21";
    }
    said = std::exchange(added, {}).by_id;
    added.listed = list == LanguageList::mbart_50 ? words_of(mbart_50_codes)
                                                  : words_of(wmt21 ? wmt21_codes : m2m_100_codes, "__", "__");
  }
  const bool by_id =
      std::any_of(added.by_id.begin(), added.by_id.end(), [](const auto& one) { return is_language(one.second); });
  if (!by_id) {
    for (auto& [id, token] : added.by_id) {
      if (id >= known) refuse(fmt::format("{} has the id {}, and languages have none", in_quotes(token), id));
    }
    int64_t id = known;
    for (auto& token : added.listed) added.by_id.emplace(id++, token);
    if (added.listed.empty()) refuse("names no languages, and neither does a file beside it");
    if (!has_json) added.by_id.emplace(id, mask);
    for (const auto& [own, token] : said) {
      const auto listed = added.by_id.find(own);
      if (!is_language(token) || (listed != added.by_id.end() && listed->second == token)) continue;
      refuse(fmt::format("{} has the id {} by another file, which its kind of model does not know", in_quotes(token),
                         own));
    }
  }
  pieces.resize(static_cast<size_t>(std::max(count, known)));
  for (const auto& [id, token] : added.by_id) {
    if (id < 0 || id >= count) {
      refuse(fmt::format("{} would have the id {}, and config.json's 'vocab_size' is {}", in_quotes(token), id, count));
    }
    auto& piece = pieces[static_cast<size_t>(id)];
    if (id < known ? piece != token : !piece.empty()) {
      refuse(fmt::format("{} and {} have one id", in_quotes(piece), in_quotes(token)));
    }
    piece = token;
    if (is_language(token)) {
      text.languages.push_back(token);
    } else if (id >= known || token == reserved[0]) {
      text.controls.push_back(token);
    }
  }
  if (known > count) {
    refuse(fmt::format("has {} pieces, and config.json's 'vocab_size' is {}", known, count));
  }
  std::set<std::string> taken(pieces.begin(), pieces.end());
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty()) continue;
    auto name = fmt::format("<nothing {}>", id);
    while (!taken.insert(name).second) name = "<" + name + ">";
    text.controls.push_back(name);
    pieces[id] = std::move(name);
  }
  // What begins a text for others and is written by nobody.
  if (std::find(text.controls.begin(), text.controls.end(), reserved[0]) == text.controls.end() &&
      taken.contains(reserved[0])) {
    text.controls.push_back(reserved[0]);
  }
  for (auto* code : {&text.source_language, &text.target_language}) {
    const auto names = [&](const std::string& piece) { return piece == *code || piece == "__" + *code + "__"; };
    if (std::none_of(text.languages.begin(), text.languages.end(), names)) code->clear();
  }
  return text;
}

std::vector<float> m2m_100_positions(int64_t first, int64_t count, int64_t d_model) {
  const int64_t half = d_model / 2;
  const auto step = static_cast<float>(-std::log(10000.0) / static_cast<double>(half - 1));
  std::vector<float> table(static_cast<size_t>(count * d_model));
  for (int64_t position = 0; position < count; ++position) {
    float* row = table.data() + position * d_model;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(first + position) * std::exp(static_cast<float>(i) * step);
      row[i] = std::sin(angle);
      row[half + i] = std::cos(angle);
    }
  }
  return table;
}

}  // namespace transformer
