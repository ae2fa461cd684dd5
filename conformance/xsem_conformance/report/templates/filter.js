"use strict";
// Without this script the page shows everything. The script adds the filter, and opens the group of a linked row.
const filter = document.querySelector(".filter");
if (filter) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const texts = new Map(rows.map((row) => {
    const head = row.closest("[data-card]")?.querySelector("[data-head]");
    return [row, `${head ? head.textContent : ""} ${row.textContent}`.toLowerCase()];
  }));
  const count = filter.querySelector("output");
  const apply = () => {
    const words = filter.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    const choices = [...filter.querySelectorAll("select")].filter((each) => each.value);
    let left = 0;
    for (const row of rows) {
      row.hidden = !(words.every((word) => texts.get(row).includes(word))
        && choices.every((each) => row.dataset[each.name] === each.value));
      left += !row.hidden;
    }
    for (const group of document.querySelectorAll("[data-card]:not([data-row]), [data-group]")) {
      const found = group.querySelector("[data-row]:not([hidden])");
      group.hidden = !found;
      if (found && group.matches("[data-group]") && (words.length || choices.length)) group.open = true;
    }
    count.textContent = `${left} of ${rows.length} shown`;
  };
  filter.addEventListener("input", apply);
  filter.hidden = false;
  apply();
}
const open = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let each = target && target.closest("details"); each; each = each.parentElement.closest("details")) {
    each.open = true;
  }
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", open);
open();
