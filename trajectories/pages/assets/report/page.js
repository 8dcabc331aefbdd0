// Ties tables and plots to the address, the keyboard and paper.

function unfold(element) {
  for (let each = element; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
}

function reveal(element) {
  unfold(element);
  element.scrollIntoView({ block: "start" });
}

// "#table=graphs&row=..." sets a table's filters; any other address names a place, which may be folded.
function follow() {
  const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const table = page.tables.get(state.table);
  if (table) {
    delete state.table;
    table.apply(state);
    return reveal(table.element.closest("section") || table.element);
  }
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (place) reveal(place);
}

function sectionInSight() {
  const sections = [...document.querySelectorAll("main > section")];
  const line = document.querySelector(".bar-top").offsetHeight + 80;
  return sections.findLastIndex((each) => each.getBoundingClientRect().top <= line);
}

function stepSection(by) {
  const sections = [...document.querySelectorAll("main > section")];
  const next = sections[Math.max(0, Math.min(sections.length - 1, Math.max(0, sectionInSight()) + by))];
  next.scrollIntoView({ block: "start" });
  next.focus({ preventScroll: true });
}

// The filtered table that a reader looks at, else the tasks.
function tableInSight() {
  const section = document.querySelectorAll("main > section")[sectionInSight()];
  const name = section && page.tables.has(section.id) && page.tables.get(section.id).form ? section.id : "tasks";
  return page.tables.get(name);
}

function search() {
  const table = tableInSight();
  const field = table.form.elements.q || table.form.elements[0];
  if (sectionOf(table) !== document.querySelectorAll("main > section")[sectionInSight()]) reveal(sectionOf(table));
  field.focus({ preventScroll: true });
}

function sectionOf(table) {
  return table.element.closest("section");
}

function foldAll() {
  const all = [...document.querySelectorAll("main details")];
  const anyFolded = all.some((each) => !each.open);
  for (const each of all) each.open = anyFolded;
}

const DO = {
  theme: () => theme(isDark() ? "light" : "dark"),
  keys: () => document.getElementById("keys").showModal(),
};
const KEYS = { t: DO.theme, "?": DO.keys, j: () => stepSection(1), k: () => stepSection(-1), "/": search, e: foldAll };

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  const form = event.target.closest("form.filters");
  if (event.key === "Escape") {
    const table = form ? [...page.tables.values()].find((each) => each.form === form) : tableInSight();
    if (form) event.target.blur();
    return table.changed({});
  }
  if (event.target.closest("input, select, textarea")) return;
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

let unfolded = [];

function beforePrint() {
  unfolded = [...document.querySelectorAll("main details:not([open])")];
  for (const each of unfolded) each.open = true;
  for (const table of page.tables.values()) {
    if (!table.data) continue;
    table.limit = MADE_FOR_PAPER;
    table.draw();
  }
}

function afterPrint() {
  for (const each of unfolded) each.open = false;
}

for (const element of document.querySelectorAll("table.sorts")) {
  const table = new PageTable(element);
  page.tables.set(table.name, table);
}
for (const figure of document.querySelectorAll("figure.plot")) setUpPlot(figure);
document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) DO[button.dataset.do]();
  // a link to where the page already is changes no address, but is followed all the same
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) follow();
});
window.addEventListener("hashchange", follow);
window.addEventListener("beforeprint", beforePrint);
window.addEventListener("afterprint", afterPrint);
if (location.hash) follow();
