"use strict";
// What the page knows: its data, and light or dark. All scripts of the page stand in one, in the order of report_page.py.

const page = { data: JSON.parse(document.getElementById("data").textContent), tables: new Map() };

function theme(wanted) {
  if (wanted) document.documentElement.dataset.theme = wanted;
  try {
    if (wanted) localStorage.setItem("passwright-theme", wanted);
    const stored = localStorage.getItem("passwright-theme");
    if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
  } catch {
    // storage is closed to this page: the choice holds until it is left
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

theme();
