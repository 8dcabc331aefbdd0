// What the page knows, and what its data files call: the list of attempts, and the page of each.
"use strict";

const passwright = {
  entries: [],
  pages: new Map(), // script -> HTML of an attempt, the latest few
  waiting: new Map(), // script -> what to do when it has come

  addEntries(entries) {
    for (const entry of entries) this.entries.push(entry);
  },

  addPage(script, html) {
    this.pages.delete(script);
    this.pages.set(script, html);
    const kept = 12;
    if (this.pages.size > kept) this.pages.delete(this.pages.keys().next().value);
    const then = this.waiting.get(script);
    this.waiting.delete(script);
    if (then) then(html);
  },

  // A script element is the one way to read a file of one's own folder from file://.
  load(script, then) {
    if (this.pages.has(script)) return then(this.pages.get(script));
    this.waiting.set(script, then);
    const element = document.createElement("script");
    element.src = script;
    element.onload = () => element.remove();
    element.onerror = () => {
      element.remove();
      this.waiting.delete(script);
      then(null);
    };
    document.head.append(element);
  },

  // An attempt by the name that links use: the whole key, or the attempt's own id where it is the only one.
  find(name) {
    const exact = this.entries.find((entry) => entry.key === name);
    if (exact) return exact;
    const named = this.entries.filter((entry) => entry.attempt_id === name);
    return named.length === 1 ? named[0] : null;
  },

  theme(wanted) {
    if (wanted) document.documentElement.dataset.theme = wanted;
    try {
      if (wanted) localStorage.setItem("passwright-theme", wanted);
      const stored = localStorage.getItem("passwright-theme");
      if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
    } catch {
      // storage is closed to this page: the choice holds until it is left
    }
  },

  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  },
};

passwright.theme();
