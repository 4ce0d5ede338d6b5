#include "transformer/sweep/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "transformer/base/ascii.h"
#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/number.h"
#include "transformer/base/spelling.h"

namespace transformer {

namespace {

// More than anybody trains; a slip in a product should not fill the memory.
constexpr size_t most_rows = 10000;

std::string text_of(const Document::Entry& entry) {
  if (entry.value.kind() != Document::Kind::scalar || entry.value.text().empty()) {
    throw Error(entry.where, fmt::format("{} takes a text, found {}", entry.key, entry.value.found()));
  }
  return entry.value.text();
}

std::vector<uint64_t> seeds_of(const Document::Entry& entry) {
  std::vector<uint64_t> seeds;
  std::set<uint64_t> known;
  auto add = [&](const Document& value) {
    const auto number = value.setting_value().integer();
    if (!number || *number < 0) {
      throw Error(value.where(), fmt::format("seeds takes integers of at least 0, found {}", value.found()),
                  "write, for instance, seeds: [1, 2, 3]");
    }
    const auto seed = static_cast<uint64_t>(*number);
    if (!known.insert(seed).second) {
      throw Error(value.where(), fmt::format("the seed {} is given twice", seed), "remove one of them");
    }
    seeds.push_back(seed);
  };
  if (entry.value.kind() == Document::Kind::list) {
    for (const auto& element : entry.value.elements()) add(element);
  } else {
    add(entry.value);
  }
  if (seeds.empty()) throw Error(entry.where, "seeds is an empty list", "write, for instance, seeds: [1, 2, 3]");
  return seeds;
}

PublishedFigures paper_of(const Document::Entry& entry) {
  PublishedFigures paper;
  for (const auto& figure : entry.value.entries("a row of the paper", {"perplexity", "bleu", "parameters"})) {
    const auto number = number_in<double>(figure.value.text());
    if (!number || !std::isfinite(*number) || *number < 0) {
      throw Error(figure.where, fmt::format("{} takes a number, found {}", figure.key, figure.value.found()));
    }
    (figure.key == "perplexity" ? paper.perplexity
     : figure.key == "bleu"     ? paper.bleu
                                : paper.parameters_millions) = *number;
  }
  return paper;
}

void check_name(const std::string& name, const std::string& where) {
  const auto fits = [](char c) {
    return is_ascii_alphanumeric(c) || std::string_view("._+=-").find(c) != std::string_view::npos;
  };
  if (name.empty() || name.front() == '.' || name.size() > 100 || !std::all_of(name.begin(), name.end(), fits)) {
    throw Error(where, fmt::format("'{}' cannot be a row's name", name),
                "it names a folder, too: up to 100 letters, digits, '-', '_', '=', '+' and '.', which it may not begin "
                "with");
  }
  std::vector<std::string> own(sweep_report_names.begin(), sweep_report_names.end());
  own.insert(own.end(), job_array_names.begin(), job_array_names.end());
  own.insert(own.end(), {sweep_record_name, sweep_corpus_name});
  if (std::find(own.begin(), own.end(), name) != own.end()) {
    throw Error(where, fmt::format("the sweep's folder has a '{}' of its own", name), "choose another name");
  }
}

void check_setting(const SettingOverride& setting) {
  if (setting.name == "training.seed") {
    throw Error(setting.where, "training.seed belongs to the sweep", "write, for instance, seeds: [1, 2, 3]");
  }
  if (setting.name == "training.output") {
    throw Error(setting.where, "training.output belongs to the sweep, which gives every run a folder in its own",
                "set 'output' at the head of the grid, or --output");
  }
}

// A setting with one value, or, in a product, with several.
struct Axis {
  std::string name, where;
  std::vector<std::string> values;
};

std::vector<Axis> axes_of(const Document::Entry& section, bool product) {
  std::vector<Axis> axes;
  for (const auto& setting : section.value.entries("a section of settings")) {
    Axis axis{fmt::format("{}.{}", section.key, setting.key), setting.where, {}};
    check_setting({axis.name, "", axis.where});
    if (product && setting.value.kind() == Document::Kind::list) {
      for (const auto& element : setting.value.elements()) axis.values.push_back(element.override_value());
      if (axis.values.empty()) throw Error(setting.where, fmt::format("{} has no values", axis.name));
    } else {
      axis.values.push_back(setting.value.override_value());
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

// `name` with every {section.setting} replaced by its value.
std::string filled(const std::string& name, const std::vector<SettingOverride>& overrides, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < name.size();) {
    if (name[i] != '{') {
      text += name[i++];
      continue;
    }
    const size_t close = name.find('}', i);
    if (close == std::string::npos) throw Error(where, fmt::format("'{}' has a '{{' without a '}}'", name));
    const std::string key = name.substr(i + 1, close - i - 1);
    const auto found =
        std::find_if(overrides.begin(), overrides.end(), [&](const auto& setting) { return setting.name == key; });
    if (found == overrides.end()) {
      std::vector<std::string> names;
      for (const auto& setting : overrides) names.push_back(setting.name);
      throw Error(where, fmt::format("the product does not set '{}', which its name asks for", key),
                  did_you_mean(nearest_word(key, names), fmt::format("it sets: {}", fmt::join(names, ", "))));
    }
    text += found->value;
    i = close + 1;
  }
  return text;
}

struct Reader {
  const std::vector<std::string>& sections;
  Grid grid = {};
  std::map<std::string, std::string> names = {};  // of rows, and where they stand

  void add_row(GridRow row) {
    check_name(row.name, row.where);
    const auto [first, is_new] = names.emplace(row.name, row.where);
    if (!is_new) {
      throw Error(row.where, fmt::format("two rows are called '{}' (the first at {})", row.name, first->second),
                  "give each a name of its own; in a product, a {section.setting} for each list");
    }
    row.changes = changes_of(row.overrides);
    grid.rows.push_back(std::move(row));
  }

  void read_row(const Document& document, bool product, const std::vector<uint64_t>& seeds) {
    std::vector<std::string> known = {"name", "group", "seeds"};
    if (!product) known.emplace_back("paper");  // the paper has no row for a combination
    known.insert(known.end(), sections.begin(), sections.end());
    const std::string what = product ? "a product" : "a row";
    GridRow row{.name = "", .group = "", .overrides = {}, .changes = "", .seeds = seeds, .paper = {}, .where = ""};
    row.where = document.where();
    std::vector<Axis> axes;
    for (const auto& entry : document.entries(what, known)) {
      if (entry.key == "name") {
        row.name = text_of(entry);
        row.where = entry.where;
      } else if (entry.key == "group") {
        row.group = text_of(entry);
      } else if (entry.key == "seeds") {
        row.seeds = seeds_of(entry);
      } else if (entry.key == "paper") {
        row.paper = paper_of(entry);
      } else {
        for (auto& axis : axes_of(entry, product)) axes.push_back(std::move(axis));
      }
    }
    if (row.name.empty()) throw Error(row.where, fmt::format("{} has no name", what), "write 'name: ..'");

    size_t combinations = 1;
    for (const auto& axis : axes) combinations = std::min(combinations * axis.values.size(), most_rows + 1);
    if (grid.rows.size() + combinations > most_rows) {
      throw Error(row.where, fmt::format("the grid has more than {} rows", most_rows), "leave values out");
    }
    for (size_t i = 0; i < combinations; ++i) {
      GridRow combination = row;
      size_t rest = i, period = combinations;
      for (const auto& axis : axes) {
        period /= axis.values.size();
        combination.overrides.push_back({axis.name, axis.values[rest / period], axis.where});
        rest %= period;
      }
      if (product) combination.name = filled(row.name, combination.overrides, row.where);
      add_row(std::move(combination));
    }
  }

  void read(const std::filesystem::path& file) {
    grid.file = file;
    grid.title = file.stem().string();
    grid.output = std::filesystem::path("runs") / file.stem();
    const auto document = Document::read(file);
    const auto entries = document.entries(
        "a grid", {"title", "description", "base", "output", "seeds", "base_row", "set", "rows", "products"});
    std::vector<uint64_t> seeds = {1};
    std::string base_row_where;
    for (const auto& entry : entries) {
      if (entry.key == "title") grid.title = text_of(entry);
      if (entry.key == "description") grid.description = text_of(entry);
      if (entry.key == "base") {
        grid.base = (file.parent_path() / text_of(entry)).lexically_normal();
        if (std::error_code refused; !std::filesystem::is_regular_file(grid.base, refused)) {
          throw Error(entry.where, fmt::format("base: there is no file {}", grid.base.string()),
                      "name a configuration, relative to this file");
        }
      }
      if (entry.key == "output") grid.output = text_of(entry);
      if (entry.key == "seeds") seeds = seeds_of(entry);
      if (entry.key == "base_row") {
        grid.base_row = text_of(entry);
        base_row_where = entry.where;
      }
      if (entry.key == "set") {
        for (const auto& section : entry.value.entries("a set of settings", sections)) {
          for (const auto& axis : axes_of(section, false)) {
            grid.overrides.push_back({axis.name, axis.values[0], axis.where});
          }
        }
      }
    }
    for (const auto& entry : entries) {
      if (entry.key != "rows" && entry.key != "products") continue;
      if (entry.value.kind() != Document::Kind::list) {
        throw Error(entry.where, fmt::format("{} takes a list, found {}", entry.key, entry.value.found()),
                    "begin each with '- name: ..'");
      }
      for (const auto& element : entry.value.elements()) read_row(element, entry.key == "products", seeds);
    }
    if (grid.base.empty()) {
      throw Error(file.string(), "the grid has no base", "write 'base: FILE', a configuration that train takes");
    }
    if (grid.rows.empty()) throw Error(file.string(), "the grid has no rows", "write 'rows:' or 'products:'");
    if (grid.base_row.empty()) {
      for (const auto& row : grid.rows) {
        if (grid.base_row.empty() && row.overrides.empty()) grid.base_row = row.name;
      }
    } else if (!names.contains(grid.base_row)) {
      std::vector<std::string> known;
      for (const auto& row : grid.rows) known.push_back(row.name);
      throw Error(base_row_where, fmt::format("there is no row '{}'", grid.base_row),
                  did_you_mean(nearest_word(grid.base_row, known)));
    }
  }
};

}  // namespace

std::string changes_of(const std::vector<SettingOverride>& overrides) {
  std::string text;
  for (const auto& [name, value, where] : overrides) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name.substr(name.find('.') + 1), value);
  }
  return text;
}

Grid read_grid(const std::filesystem::path& file, const std::vector<std::string>& sections) {
  Reader reader{.sections = sections};
  reader.read(file);
  return std::move(reader.grid);
}

}  // namespace transformer
