#include "transformer/report/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "transformer/report/markup.h"

namespace transformer {

void drop_empty_columns(ReportTable& table, const std::function<bool(const ReportTable::Column&)>& may_go) {
  for (size_t column = table.columns.size(); column-- > 0;) {
    const auto is_empty = [&](const auto& cells) { return cells[column].text.empty(); };
    if (!may_go(table.columns[column]) || !std::all_of(table.rows.begin(), table.rows.end(), is_empty)) continue;
    const auto place = static_cast<std::ptrdiff_t>(column);
    table.columns.erase(table.columns.begin() + place);
    for (auto& cells : table.rows) cells.erase(cells.begin() + place);
  }
}

std::string html_table(const ReportTable& table, const std::string& look) {
  std::string out = fmt::format("<div class=\"scroll\"><table class=\"{}\">\n<thead><tr>", look);
  for (const auto& column : table.columns) {
    fmt::format_to(std::back_inserter(out), "<th scope=\"col\" tabindex=\"0\"{}{}>{}</th>",
                   column.number ? " class=\"number\"" : "",
                   column.explanation.empty() ? "" : fmt::format(" title=\"{}\"", escape_markup(column.explanation)),
                   column.head.empty() ? "&#160;" : escape_markup(column.head));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      std::string names = table.columns[i].number ? "number" : "";
      if (!row[i].look.empty())
        fmt::format_to(std::back_inserter(names), "{}{}", names.empty() ? "" : " ", row[i].look);
      const std::string sort =
          row[i].sort && std::isfinite(*row[i].sort) ? fmt::format(" data-sort=\"{}\"", *row[i].sort) : "";
      fmt::format_to(std::back_inserter(out), "<td{}{}>{}</td>",
                     names.empty() ? "" : fmt::format(" class=\"{}\"", names), sort, escape_markup(row[i].text));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace transformer
