// One attempt: its page is loaded when it is opened; turns are stepped through and linked to.
"use strict";

const attempt = { row: null };

function attemptLink(row, turn) {
  const name = encodeURIComponent(row.key);
  return `#attempt=${name}` + (turn === undefined ? "" : `&turn=${turn}`);
}

function showAttempt(name, turn) {
  const row = passwright.find(name);
  const main = document.getElementById("attempt");
  if (row && row === attempt.row) return goToTurn(turn);
  attempt.row = row;
  document.title = row ? `${row.task} #${row.attempt ?? ""}` : "no such attempt";
  showPlace();
  if (!row) return message(main, `No attempt ${name} in this page. It may have been built before the attempt was made.`);
  if (!row.page) return message(main, `${row.attempt_id}: ${row.why}`);
  message(main, "loading");
  passwright.load(row.page, (html) => {
    if (attempt.row !== row) return;
    if (html === null) return message(main, `${row.page} is missing: build the page again.`);
    main.innerHTML = html; // made by the build, which escapes every text of a model
    for (const place of main.querySelectorAll("[data-row=selection]")) {
      place.textContent = (row.kept ? "kept: " : "refused: ") + row.why;
    }
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
    goToTurn(turn);
  });
}

function message(main, text) {
  const paragraph = document.createElement("p");
  paragraph.className = "warning";
  paragraph.textContent = text;
  main.replaceChildren(paragraph);
}

function showPlace() {
  const index = list.shown.indexOf(attempt.row);
  const place = document.getElementById("place");
  place.textContent = index < 0 ? "" : `${count(index + 1)} of ${count(list.shown.length)}`;
  document.querySelector("[data-do=previous]").disabled = index <= 0;
  document.querySelector("[data-do=next]").disabled = index < 0 || index >= list.shown.length - 1;
}

function turns() {
  return [...document.querySelectorAll("#attempt .turn[data-turn]")];
}

// Links go below the bar, whose height follows the window's width.
function measureBar() {
  const height = document.querySelector("#attempt-view .bar-top").offsetHeight;
  document.documentElement.style.setProperty("--bar", `${height}px`);
}

function goToTurn(turn) {
  measureBar();
  if (turn === undefined || turn === null) return;
  const element = turns().find((each) => each.dataset.turn === String(turn));
  if (!element) return;
  element.scrollIntoView({ block: "start" });
  element.focus({ preventScroll: true });
  markTurn(element);
}

function markTurn(element) {
  for (const each of document.querySelectorAll("#attempt .here")) each.classList.remove("here");
  element.classList.add("here");
  const link = document.querySelector(`#attempt .turns a[data-turn="${element.dataset.turn}"]`);
  if (link) {
    link.classList.add("here");
    const nav = link.closest("nav");
    if (nav.scrollHeight > nav.clientHeight) nav.scrollTop = link.offsetTop - nav.clientHeight / 2;
  }
}

// The next or previous turn, counted from the marked one while it is in sight, else from what is on top.
function stepTurn(by) {
  const all = turns();
  if (!all.length) return;
  const edge = document.querySelector("#attempt-view .bar-top").offsetHeight + 16;
  const here = all.findIndex((each) => each.classList.contains("here"));
  const box = here < 0 ? null : all[here].getBoundingClientRect();
  let index;
  if (box && box.bottom > edge && box.top < window.innerHeight) index = here + by;
  else {
    const below = all.findIndex((each) => each.getBoundingClientRect().top > edge);
    index = below < 0 ? all.length - 1 : by > 0 ? below : below - 1;
  }
  const element = all[Math.max(0, Math.min(all.length - 1, index))];
  setAddress(attemptLink(attempt.row, element.dataset.turn));
  goToTurn(element.dataset.turn);
}

function stepAttempt(by) {
  const next = list.shown[list.shown.indexOf(attempt.row) + by];
  if (!next || list.shown.indexOf(attempt.row) < 0) return;
  list.chosen = list.shown.indexOf(next);
  location.hash = attemptLink(next);
}

// Unfolds; folds if nothing is left to unfold.
function fold(selector) {
  const all = [...document.querySelectorAll(`#attempt ${selector}`)];
  const open = !all.every((each) => each.open);
  for (const each of all) each.open = open;
}
