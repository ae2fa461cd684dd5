"use strict";
// The page of requirements shows everything without this script, which adds the filter.
const form = document.querySelector(".xsem-filter");
if (form) {
  const [words, level, subject] = form.elements;
  const headings = document.querySelectorAll(".xsem-filter ~ h3");
  const tables = document.querySelectorAll(".xsem-filter ~ table, .xsem-filter ~ * table");   // one below each heading
  const apply = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0, all = 0;
    for (const [index, table] of tables.entries()) {
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !(wanted.every((word) => text.includes(word))
          && ["", row.cells[1].textContent].includes(level.value)
          && ["", row.cells[2].textContent].includes(subject.value));
        left += !row.hidden;
        all += 1;
      }
      const place = table.closest(".md-typeset__scrollwrap") ?? table;   // the theme wraps the table
      headings[index].hidden = place.hidden = rows.every((row) => row.hidden);
    }
    form.querySelector("output").textContent = `${left} of ${all}`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
}
