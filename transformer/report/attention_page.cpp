#include "transformer/report/attention_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "transformer/report/attention_page.css.h"
#include "transformer/report/attention_page.html.h"
#include "transformer/report/attention_page.js.h"
#include "transformer/report/markup.h"
#include "transformer/report/page.css.h"
#include "transformer/report/plot.h"

namespace transformer {
namespace {

using Json = nlohmann::ordered_json;

std::string base64(const std::vector<float>& weights) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  bytes.reserve(weights.size() * 2);
  for (const float weight : weights) {
    const auto number = static_cast<unsigned>(std::lround(std::clamp(weight, 0.0f, 1.0f) * 65535.0f));
    bytes += static_cast<char>(number & 0xFF);
    bytes += static_cast<char>(number >> 8);
  }
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    unsigned three = 0;
    for (size_t k = 0; k < 3; ++k) {
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? digits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

Json json_of(const AttentionView& view) {
  using Kind = AttentionView::Kind;
  constexpr std::array<const char*, 3> names = {"Encoder", "Decoder", "Cross"};
  constexpr std::array<const char*, 3> left = {"source →", "written →", "output →"};
  constexpr std::array<const char*, 3> right = {"source", "read before", "source"};
  constexpr std::array<const char*, 3> asks = {"the source", "the output", "the output"};
  constexpr std::array<const char*, 3> gives = {"the source", "what was read before it", "the source"};
  const auto kind = static_cast<size_t>(view.kind);
  // Where the reader starts: the layer before the last, as in the paper's figures.
  const int64_t before_last = std::max<int64_t>(1, view.layer_count - 1);
  const bool has = std::find(view.layers.begin(), view.layers.end(), before_last) != view.layers.end();
  return {{"kind", name_of(view.kind)},
          {"name", names[kind]},
          {"title", title_of(view.kind)},
          {"left", left[kind]},
          {"right", right[kind]},
          {"asks", asks[kind]},
          {"gives", gives[kind]},
          {"treeSide", view.kind == Kind::encoder ? "left"
                       : view.kind == Kind::cross ? "right"
                                                  : ""},
          {"layerCount", view.layer_count},
          {"start", has ? before_last : view.layers.back()},
          {"layers", view.layers},
          {"heads", view.heads},
          {"queries", view.queries},
          {"keys", view.keys},
          {"weights", base64(view.weights)}};
}

/// JSON that may stand in a <script>: "</script>" or "<!--" in a word would end it.
std::string script_data(const Json& json) {
  const auto text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string attention_html(const AttentionReport& report, const AttentionPageOptions& options) {
  Json data{{"unit", report.words ? "word" : "word piece"},
            {"views", Json::array()},
            {"tree", Json::array()},
            {"treeRows", report.tree_word.size()},
            {"picked", nullptr}};
  if (options.picked) data["picked"] = *options.picked;
  for (const auto& view : report.views) data["views"].push_back(json_of(view));
  for (const auto& node : tree_layout(report)) {
    data["tree"].push_back({{"label", node.label},
                            {"level", node.level},
                            {"row", node.row},
                            {"first", node.first},
                            {"last", node.last},
                            {"parent", node.parent},
                            {"leaves", node.leaf_rows}});
  }
  // Head colours in the style are those of attention_picture.cpp, the others plot_style()'s.
  return fmt::format(fmt::runtime(embedded::attention_page_html), fmt::arg("format", attention_report_version),
                     fmt::arg("title", escape_markup(fmt::format("Attention: {}", report.source))),
                     fmt::arg("plot_style", plot_style()),
                     fmt::arg("page_style", fmt::format("{}{}", embedded::page_css, embedded::attention_page_css)),
                     fmt::arg("source", escape_markup(report.source)), fmt::arg("output", escape_markup(report.target)),
                     fmt::arg("model", escape_markup(report.model)), fmt::arg("data", script_data(data)),
                     fmt::arg("script", embedded::attention_page_js));
}

}  // namespace transformer
