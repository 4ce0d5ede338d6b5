"use strict";
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("th")];
  heads.forEach((head, column) => {
    head.addEventListener("keydown", event => { if (event.key === "Enter") head.click(); });
    head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1, body = table.tBodies[0];
      const key = row => {
        const cell = row.cells[column];
        return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
      };
      const rows = [...body.rows].map(row => [key(row), row]);
      rows.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
        return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, {numeric: true}));
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
}
