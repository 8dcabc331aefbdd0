// The list of attempts: filters, sorting, and a table that holds only the rows in sight.
"use strict";

const ROW_HEIGHT = 31; // as in viewer.css: 30 and the rule below
const ROWS_BEYOND = 12;
const number = (digits) => (value) => (value === undefined ? "-" : value.toFixed(digits));
const count = (value) => (value || 0).toLocaleString("en");

// name, title, how a row sorts, what a cell shows; numbers come first in falling order
const COLUMNS = [
  { name: "task", title: "task", text: true, of: (row) => row.task },
  { name: "attempt", title: "#", of: (row) => row.attempt ?? -1, show: (row) => row.attempt ?? "" },
  { name: "outcome", title: "outcome", of: (row) => outcomeRank(row), show: showOutcome },
  { name: "as", title: "AS", of: (row) => row.as_score ?? -1, show: (row) => number(3)(row.as_score) },
  { name: "covered", title: "covered", of: (row) => row.as_covered ?? -1, show: (row) => number(3)(row.as_covered) },
  { name: "shown", title: "best shown", of: (row) => row.shown_covered ?? -1, show: (row) => number(3)(row.shown_covered) },
  { name: "teacher", title: "teacher", text: true, of: (row) => row.teacher || "" },
  { name: "collection", title: "collection", text: true, of: (row) => row.collection },
  { name: "selection", title: "selection", text: true, of: (row) => (row.kept ? "0" : "1") + row.why, show: showSelection },
  { name: "violations", title: "violations", of: (row) => row.num_violations || 0, show: showViolations },
  { name: "turns", title: "turns", of: (row) => row.num_turns || 0 },
  { name: "evaluations", title: "evals", of: (row) => row.num_evaluations || 0 },
  { name: "tokens", title: "tokens", of: (row) => row.num_tokens || 0, show: (row) => count(row.num_tokens) },
  { name: "cost", title: "USD", of: (row) => row.cost_usd || 0, show: (row) => (row.cost_usd || 0).toFixed(4) },
  { name: "time", title: "seconds", of: (row) => row.duration_s || 0, show: (row) => count(Math.round(row.duration_s || 0)) },
  { name: "stop", title: "stopped by", text: true, of: (row) => row.stop || "" },
];

const list = { shown: [], chosen: -1, state: {}, columns: [] };

function outcomeRank(row) {
  const outcomes = row.outcomes || {};
  const total = Object.values(outcomes).reduce((sum, some) => sum + some, 0);
  return total ? (outcomes.CORRECT || 0) / total : -1;
}

function badge(text, kind) {
  const element = document.createElement("span");
  element.className = "badge " + kind;
  element.textContent = text;
  return element;
}

function showOutcome(row) {
  const outcomes = Object.entries(row.outcomes || {});
  if (!outcomes.length) return row.outcome;
  const parts = document.createDocumentFragment();
  for (const [name, graphs] of outcomes) {
    parts.append(badge(outcomes.length === 1 ? name : `${graphs} ${name}`, name === "CORRECT" ? "good" : "bad"), " ");
  }
  return parts;
}

function showViolations(row) {
  return row.num_violations ? badge(row.num_violations, "bad") : "";
}

function showSelection(row) {
  const element = document.createElement("span");
  element.textContent = row.kept ? "kept" : row.why;
  element.className = row.kept ? "kept" : "soft";
  element.title = row.why;
  return element;
}

function fits(row, state, words) {
  if (words.length) {
    const id = (row.task + " " + row.attempt_id).toLowerCase();
    if (!words.every((word) => id.includes(word))) return false;
  }
  if (state.in && row.collection !== state.in) return false;
  if (state.outcome) {
    const [how, outcome] = state.outcome.split(" ");
    if (how === "all" ? row.outcome !== outcome : !(row.outcomes || {})[outcome]) return false;
  }
  if (state.teacher && row.teacher !== state.teacher) return false;
  if (state.violations === "none" && row.num_violations) return false;
  if (state.violations === "some" && !row.num_violations) return false;
  if (state.violations && !["some", "none"].includes(state.violations) && !(row.rules || []).includes(state.violations)) return false;
  if (state.kept === "kept" && !row.kept) return false;
  if (state.kept === "refused" && row.kept) return false;
  if (state.kept && !["kept", "refused"].includes(state.kept) && (row.kept || row.why !== state.kept)) return false;
  if (state.stop && row.stop !== state.stop) return false;
  if (state.min && (row.num_turns || 0) < Number(state.min)) return false;
  if (state.max && (row.num_turns || 0) > Number(state.max)) return false;
  return true;
}

function compare(column, falling) {
  const sign = falling ? -1 : 1;
  return (a, b) => {
    const x = column.of(a), y = column.of(b);
    if (x !== y) return sign * (column.text ? (x < y ? -1 : 1) : x - y);
    return a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
  };
}

// Filters and sorts anew; state is what the address says.
function applyFilters(state) {
  list.state = state;
  const words = (state.q || "").toLowerCase().split(/\s+/).filter(Boolean);
  list.shown = passwright.entries.filter((row) => fits(row, state, words));
  const sort = state.sort || "task";
  const column = COLUMNS.find((each) => each.name === sort.replace("-", "")) || COLUMNS[0];
  list.shown.sort(compare(column, sort.startsWith("-")));
  list.chosen = Math.min(list.chosen, list.shown.length - 1);
  for (const header of document.querySelectorAll("#rows thead th")) {
    if (header.dataset.name !== column.name) header.removeAttribute("aria-sort");
    else header.setAttribute("aria-sort", sort.startsWith("-") ? "descending" : "ascending");
  }
  showFigures();
  document.getElementById("nothing").hidden = list.shown.length > 0;
  drawRows(true);
}

function showFigures() {
  const shown = list.shown;
  document.getElementById("shown").textContent = `${count(shown.length)} of ${count(passwright.entries.length)} attempts`;
  const scores = shown.map((row) => row.as_covered).filter((score) => score !== undefined).sort((a, b) => a - b);
  const middle = scores.length >> 1;
  const median = scores.length % 2 ? scores[middle] : (scores[middle - 1] + scores[middle]) / 2;
  const sum = (of) => shown.reduce((total, row) => total + (of(row) || 0), 0);
  document.getElementById("figures").textContent = [
    `${count(new Set(shown.map((row) => row.task)).size)} tasks`,
    `${count(shown.filter((row) => row.outcome === "CORRECT").length)} with every graph correct`,
    `${count(shown.filter((row) => row.kept).length)} kept`,
    scores.length ? `median covered AS ${median.toFixed(3)}` : "no score yet",
    `${count(shown.filter((row) => row.num_violations).length)} with violations`,
    `${count(sum((row) => row.num_turns))} turns`,
    `${sum((row) => row.cost_usd).toFixed(2)} USD`,
  ].join(", ");
}

let drawn = "";

// Only the rows in sight are in the document; `whole` draws them all, for paper.
function drawRows(anew, whole) {
  const box = document.getElementById("rows");
  const body = box.querySelector("tbody");
  const visible = Math.ceil(box.clientHeight / ROW_HEIGHT) + 2 * ROWS_BEYOND;
  const scrolled = Math.floor(box.scrollTop / ROW_HEIGHT) - ROWS_BEYOND;
  const first = whole ? 0 : Math.max(0, Math.min(scrolled, list.shown.length - visible)); // the list may have shrunk
  const last = whole ? list.shown.length : Math.min(list.shown.length, first + visible);
  const now = `${first} ${last}`;
  if (!anew && now === drawn) return;
  drawn = now;
  const parts = document.createDocumentFragment();
  parts.append(space(first * ROW_HEIGHT));
  for (let index = first; index < last; index++) parts.append(rowElement(list.shown[index], index));
  parts.append(space((list.shown.length - last) * ROW_HEIGHT));
  body.replaceChildren(parts);
}

function space(height) {
  const row = document.createElement("tr");
  row.className = "space";
  const cell = row.insertCell();
  cell.colSpan = list.columns.length;
  cell.style.height = `${height}px`;
  return row;
}

function rowElement(row, index) {
  const element = document.createElement("tr");
  element.dataset.index = index;
  if (index === list.chosen) element.className = "chosen";
  for (const column of list.columns) {
    const cell = element.insertCell();
    const shown = (column.show || column.of)(row);
    if (column.text) cell.className = "left";
    if (column.name === "outcome") cell.className = "left";
    if (column.name === "task") {
      const link = document.createElement("a");
      link.href = attemptLink(row);
      link.textContent = shown;
      link.tabIndex = -1;
      cell.append(link);
      cell.title = row.attempt_id;
    } else cell.append(shown);
  }
  return element;
}

function choose(index) {
  if (!list.shown.length) return;
  list.chosen = Math.max(0, Math.min(list.shown.length - 1, index));
  const box = document.getElementById("rows");
  const head = box.querySelector("thead").offsetHeight;
  const top = list.chosen * ROW_HEIGHT;
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + ROW_HEIGHT + head > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW_HEIGHT + head - box.clientHeight;
  drawRows(true);
}
