// Ties the list and the attempt to the address, the keyboard and the buttons.
"use strict";

const FILTERS = ["q", "in", "outcome", "teacher", "violations", "kept", "stop", "min", "max"];
let listAddress = "#";

function readAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function setAddress(hash) {
  history.replaceState(null, "", hash || "#");
}

function follow() {
  const state = readAddress();
  const isAttempt = state.attempt !== undefined;
  document.getElementById("list").hidden = isAttempt;
  document.getElementById("attempt-view").hidden = !isAttempt;
  if (isAttempt) {
    if (!list.shown.length) applyFilters({}); // opened by a link: previous and next go through the whole list
    return showAttempt(state.attempt, state.turn);
  }
  attempt.row = null;
  document.title = document.querySelector("#list h1").textContent;
  listAddress = location.hash || "#";
  const form = document.getElementById("filters");
  for (const name of FILTERS) form.elements[name].value = state[name] || "";
  applyFilters(state);
  if (list.chosen >= 0) choose(list.chosen);
}

function filtersChanged() {
  const form = document.getElementById("filters");
  const state = {};
  for (const name of FILTERS) if (form.elements[name].value) state[name] = form.elements[name].value;
  if (list.state.sort) state.sort = list.state.sort;
  list.chosen = -1;
  document.getElementById("rows").scrollTop = 0;
  setAddress("#" + new URLSearchParams(state));
  listAddress = location.hash || "#";
  applyFilters(state);
}

function clearFilters(event) {
  event.preventDefault(); // the browser clears the form after this event: too late to read it here
  for (const name of FILTERS) event.target.elements[name].value = "";
  filtersChanged();
}

function sortBy(column) {
  const now = list.state.sort || "task";
  const natural = column.text ? column.name : "-" + column.name;
  const other = column.text ? "-" + column.name : column.name;
  list.state.sort = now === natural ? other : natural;
  filtersChanged();
}

function option(select, value, text) {
  const element = document.createElement("option");
  element.value = value;
  element.textContent = text;
  select.append(element);
}

function fillFilters() {
  const form = document.getElementById("filters");
  const tally = (of) => {
    const counts = new Map();
    for (const row of passwright.entries) for (const value of of(row)) counts.set(value, (counts.get(value) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  };
  const choices = {
    in: tally((row) => [row.collection]),
    teacher: tally((row) => (row.teacher ? [row.teacher] : [])),
    stop: tally((row) => (row.stop ? [row.stop] : [])),
  };
  for (const select of form.querySelectorAll("select")) option(select, "", "any");
  for (const [name, counts] of Object.entries(choices)) {
    for (const [value, rows] of counts) option(form.elements[name], value, `${value} (${count(rows)})`);
    form.elements[name].parentElement.hidden = counts.length < 2;
  }
  for (const [value, rows] of tally((row) => [row.outcome || "NOT_EVALUATED"])) {
    option(form.elements.outcome, `all ${value}`, value === "CORRECT" ? `every graph CORRECT (${count(rows)})` : `mostly ${value} (${count(rows)})`);
  }
  for (const [value, rows] of tally((row) => Object.keys(row.outcomes || {}))) {
    option(form.elements.outcome, `some ${value}`, `a graph ${value} (${count(rows)})`);
  }
  option(form.elements.violations, "none", "none");
  option(form.elements.violations, "some", "some rule broken");
  for (const [value, rows] of tally((row) => row.rules || [])) option(form.elements.violations, value, `${value} (${count(rows)})`);
  option(form.elements.kept, "kept", "kept");
  option(form.elements.kept, "refused", "refused");
  for (const [value, rows] of tally((row) => (row.kept ? [] : [row.why]))) option(form.elements.kept, value, `${value} (${count(rows)})`);
}

function makeHeader() {
  const severalCollections = new Set(passwright.entries.map((row) => row.collection)).size > 1;
  list.columns = COLUMNS.filter((column) => column.name !== "collection" || severalCollections);
  const head = document.querySelector("#rows thead tr");
  for (const column of list.columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.dataset.name = column.name;
    if (column.text || column.name === "outcome") cell.className = "left";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.title;
    button.onclick = () => sortBy(column);
    cell.append(button);
    head.append(cell);
  }
}

const DO = {
  back: () => { location.hash = listAddress; },
  previous: () => stepAttempt(-1),
  next: () => stepAttempt(1),
  reasoning: () => fold(".reasoning"),
  all: () => fold("details"),
  theme: () => passwright.theme(passwright.isDark() ? "light" : "dark"),
  keys: () => document.getElementById("keys").showModal(),
};
const KEYS = { t: DO.theme, "?": DO.keys };
const LIST_KEYS = {
  j: () => choose(list.chosen + 1),
  k: () => choose(list.chosen - 1),
  Enter: () => list.shown[list.chosen] && (location.hash = attemptLink(list.shown[list.chosen])),
  "/": () => document.getElementById("filters").elements.q.focus(),
};
LIST_KEYS.ArrowDown = LIST_KEYS.j;
LIST_KEYS.ArrowUp = LIST_KEYS.k;
const ATTEMPT_KEYS = {
  j: () => stepTurn(1),
  k: () => stepTurn(-1),
  "]": DO.next,
  "[": DO.previous,
  u: DO.back,
  Escape: DO.back,
  r: DO.reasoning,
  e: DO.all,
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  const field = event.target.closest("input, select, textarea");
  if (field) {
    if (event.key === "Escape" || (event.key === "Enter" && field.name === "q")) {
      event.preventDefault();
      document.getElementById("rows").focus();
      if (event.key === "Enter") choose(0);
    }
    return;
  }
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const action = (document.getElementById("list").hidden ? ATTEMPT_KEYS : LIST_KEYS)[event.key] || KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function onClick(event) {
  const button = event.target.closest("[data-do]");
  if (button) return DO[button.dataset.do]();
  const section = event.target.closest("a[data-section]");
  if (section) {
    event.preventDefault();
    return document.getElementById(section.dataset.section).scrollIntoView({ block: "start" });
  }
  const row = event.target.closest("tr[data-index]");
  if (row && !event.target.closest("a") && !String(getSelection())) {
    list.chosen = Number(row.dataset.index);
    location.hash = attemptLink(list.shown[list.chosen]);
  }
}

let unfolded = [];

function beforePrint() {
  unfolded = [...document.querySelectorAll("#attempt details:not([open])")];
  for (const each of unfolded) each.open = true;
  drawRows(true, true);
}

function afterPrint() {
  for (const each of unfolded) each.open = false;
  drawRows(true);
}

makeHeader();
fillFilters();
document.getElementById("filters").addEventListener("input", filtersChanged);
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("filters").addEventListener("reset", clearFilters);
document.getElementById("rows").addEventListener("scroll", () => drawRows(false), { passive: true });
document.addEventListener("keydown", onKey);
document.addEventListener("click", onClick);
window.addEventListener("resize", () => (document.getElementById("list").hidden ? measureBar() : drawRows(false)));
window.addEventListener("hashchange", follow);
window.addEventListener("beforeprint", beforePrint);
window.addEventListener("afterprint", afterPrint);
follow();
