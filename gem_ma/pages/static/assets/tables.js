// Tables: what is too wide says so and scrolls by keys; a click on a head sorts by that column.
const sized = (box) => {
  const wide = box.scrollWidth > box.clientWidth + 1;
  box.classList.toggle("wide", wide);
  if (wide) box.tabIndex = 0; else box.removeAttribute("tabindex");
};
const boxes = [...document.querySelectorAll(".scroll")];
const fit = () => boxes.forEach(sized);
addEventListener("resize", fit);
for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", fit);

const sortValue = (row, column) => {
  const text = row.cells[column] ? row.cells[column].textContent.trim() : "";
  const number = /^[-+\u2212]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?/i.exec(text);
  return number ? Number(number[0].replace(/,/g, "").replace("\u2212", "-")) : text;
};

for (const table of document.querySelectorAll(".scroll table")) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 3) continue;
  const original = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.title = "sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { none: "descending", descending: "ascending", ascending: "none" }[head.getAttribute("aria-sort") || "none"];
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (next !== "none") head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const rows = next === "none" ? original : [...original].sort((a, b) => {
        const [x, y] = [sortValue(a, column), sortValue(b, column)];
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;  // anything that is not a number stands last
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
      });
      body.append(...rows);
    });
  });
}
// The filter of the list of runs: rows that hold all words; a folded study that has one opens.
const find = document.getElementById("find");
if (find) {
  find.hidden = false;
  find.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });  // it compares nothing
  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.querySelectorAll(".scroll tbody tr")) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    for (const study of document.querySelectorAll("div.study")) {
      const any = Boolean(study.querySelector("tbody tr:not([hidden])"));
      study.hidden = !any;
      study.querySelector("details").open = any && words.length > 0;
    }
  });
}
fit();
