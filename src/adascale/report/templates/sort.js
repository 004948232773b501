// Sorts a table by the column whose heading is pressed: first its good end, then the other. Unknown values stay last.
for (const table of root.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.querySelectorAll("th[aria-sort]")];
  const compare = (one, two) =>
    one.classList.contains("number") ? one.dataset.value - two.dataset.value
      : one.dataset.value.localeCompare(two.dataset.value, "en");
  for (const head of heads) {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const column = Number(button.dataset.column);
      const now = head.getAttribute("aria-sort");
      const other = now === "ascending" ? "descending" : "ascending";
      const order = now === "none" ? button.dataset.first : other;
      const sign = order === "ascending" ? 1 : -1;
      for (const each of heads) each.setAttribute("aria-sort", each === head ? order : "none");
      const rows = [...body.rows].sort((above, below) => {
        const one = above.cells[column], two = below.cells[column];
        const unknown = !("value" in one.dataset) - !("value" in two.dataset);
        return unknown || ("value" in one.dataset ? sign * compare(one, two) : 0);
      });
      body.append(...rows);
    });
  }
}
