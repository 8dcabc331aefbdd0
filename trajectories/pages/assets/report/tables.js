// Tables that sort and filter: lines that stand in the page, or lines made from its data (data-from), some at a time.

const MADE_AT_ONCE = 200;
const MADE_FOR_PAPER = 2000;

class PageTable {
  constructor(element) {
    this.element = element;
    this.name = element.id.replace("-table", "");
    this.body = element.tBodies[0];
    this.data = element.dataset.from ? page.data[element.dataset.from] : null;
    this.lines = this.data || [...this.body.rows];
    this.columns = [...element.tHead.rows[0].cells].map((cell, index) => ({
      cell, index, key: cell.dataset.key, title: cell.textContent.trim(), filter: cell.dataset.filter,
      isSearched: "search" in cell.dataset, isStill: "still" in cell.dataset,
    }));
    this.facets = this.columns.map((column) => column.filter).filter(Boolean);
    if (this.name === "graphs") this.facets.push(...page.data.groupings);
    this.state = {};
    this.limit = MADE_AT_ONCE;
    this.open = new Set();
    this.makeHeaders();
    this.makeForm();
    this.draw();
  }

  makeHeaders() {
    for (const column of this.columns) {
      if (column.isStill || !column.title) continue;
      const button = make("button", column.title);
      button.type = "button";
      button.onclick = () => this.sortBy(column);
      column.cell.replaceChildren(button);
    }
  }

  // A field a facet that tells lines apart; a link may still set another.
  makeForm() {
    this.form = document.querySelector(`form[data-for="${this.element.id}"]`);
    if (!this.form) return;
    if (this.columns.some((column) => column.isSearched)) {
      const search = make("input");
      Object.assign(search, { type: "search", name: "q", placeholder: "search  ( / )", autocomplete: "off", spellcheck: false });
      search.setAttribute("aria-label", `Search ${this.name}`);
      this.form.append(search);
    }
    for (const facet of this.facets) {
      const field = facet === "faster" ? this.makeNumber() : this.makeChoice(facet);
      if (!field) continue;
      field.name = facet;
      const label = make("label", `${facet === "faster" ? "speedup at least" : facet} `);
      label.append(field);
      this.form.append(label);
    }
    const clear = make("button", "clear");
    clear.type = "button";
    clear.onclick = () => this.changed({});
    this.status = make("span", "", "soft");
    this.status.setAttribute("role", "status");
    this.form.append(clear, this.status);
    this.form.oninput = () => this.changed({ ...this.read(), ...(this.state.sort && { sort: this.state.sort }) });
    this.form.onsubmit = (event) => event.preventDefault();
  }

  makeNumber() {
    return Object.assign(make("input"), { type: "number", step: "0.1", min: "0" });
  }

  makeChoice(facet) {
    const counts = new Map();
    for (const line of this.lines) for (const value of this.valuesOf(line, facet)) counts.set(value, (counts.get(value) || 0) + 1);
    const isRules = facet === "rules";
    if (counts.size < (isRules ? 1 : 2)) return null;
    const select = make("select");
    const add = (value, text) => select.append(Object.assign(make("option", text), { value }));
    add("", "any");
    if (isRules) add("some", "some rule"), add("none", "none");
    for (const [value, number] of counts) add(value, `${value} (${number})`);
    return select;
  }

  read() {
    return Object.fromEntries([...this.form.elements].filter((field) => field.name && field.value).map((field) => [field.name, field.value]));
  }

  valuesOf(line, facet) {
    if (this.data) {
      const group = page.data.groupings.indexOf(facet);
      const value = group >= 0 && this.name === "graphs" ? (line.groups || [])[group] : line[facet];
      return value === undefined ? [] : Array.isArray(value) ? value : [String(value)];
    }
    const column = this.columns.find((each) => each.filter === facet);
    const cell = column && line.cells[column.index];
    if (!cell) return [];
    return cell.dataset.f ? JSON.parse(cell.dataset.f) : [cell.textContent.trim()];
  }

  // For sorting; null where there is nothing, which comes last either way.
  valueOf(line, column) {
    if (this.data) {
      const value = line[column.key];
      return value === undefined ? null : Array.isArray(value) ? value.join(" ") : value;
    }
    const cell = line.cells[column.index];
    const text = cell ? cell.textContent.trim() : "";
    if (text === "-" || text === "") return null;
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const number = Number(text.replaceAll(",", ""));
    return Number.isNaN(number) ? text : number;
  }

  textOf(line) {
    const searched = this.columns.filter((column) => column.isSearched);
    const parts = searched.map((column) => (this.data ? line[column.key] : line.cells[column.index].textContent));
    return [...parts, this.data && line.told !== undefined ? page.data.texts[line.told] : ""].join(" ").toLowerCase();
  }

  fits(line, words) {
    const state = this.state;
    if (words.length) {
      const text = this.textOf(line);
      if (!words.every((word) => text.includes(word))) return false;
    }
    for (const facet of this.facets) {
      const wanted = state[facet];
      if (!wanted) continue;
      if (facet === "faster") {
        if (line.outcome !== "CORRECT" || !(line.speedup >= Number(wanted))) return false;
        continue;
      }
      const values = this.valuesOf(line, facet);
      if (facet === "rules" && wanted === "some") {
        if (!values.length) return false;
      } else if (facet === "rules" && wanted === "none") {
        if (values.length) return false;
      } else if (!values.includes(wanted)) return false;
    }
    return true;
  }

  sortBy(column) {
    const name = column.key || column.title;
    const first = column.cell.classList.contains("left") || column.index === 0 ? name : "-" + name;
    const other = first.startsWith("-") ? name : "-" + name;
    this.changed({ ...this.state, sort: this.state.sort === first ? other : first });
  }

  changed(state) {
    this.apply(state);
    history.replaceState(null, "", Object.keys(state).length ? "#" + new URLSearchParams({ table: this.name, ...state }) : "#" + this.name);
  }

  // state: as the address says it, without the table.
  apply(state) {
    this.state = state;
    this.limit = MADE_AT_ONCE;
    if (this.form) {
      for (const field of this.form.elements) {
        if (field.name && field.value !== (state[field.name] || "")) field.value = state[field.name] || "";
      }
    }
    this.draw();
  }

  draw() {
    const words = (this.state.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const shown = this.lines.filter((line) => this.fits(line, words));
    const sort = this.state.sort || "";
    const column = this.columns.find((each) => (each.key || each.title) === sort.replace(/^-/, ""));
    if (column) {
      const sign = sort.startsWith("-") ? -1 : 1;
      const values = new Map(shown.map((line) => [line, this.valueOf(line, column)]));
      shown.sort((a, b) => compareValues(values.get(a), values.get(b), sign));
    }
    for (const each of this.columns) {
      if (each === column) each.cell.setAttribute("aria-sort", sort.startsWith("-") ? "descending" : "ascending");
      else each.cell.removeAttribute("aria-sort");
    }
    if (this.status) this.status.textContent = `${grouped(shown.length)} of ${grouped(this.lines.length)}`;
    if (this.data) this.drawMade(shown);
    else {
      const wanted = new Set(shown);
      for (const line of this.lines) line.hidden = !wanted.has(line);
      this.body.append(...shown);
    }
  }

  drawMade(shown) {
    const rows = document.createDocumentFragment();
    for (const line of shown.slice(0, this.limit)) {
      rows.append(this.rowOf(line));
      if (this.open.has(line)) rows.append(this.toldOf(line));
    }
    const left = shown.length - this.limit;
    if (left > 0) {
      const row = make("tr");
      const cell = row.insertCell();
      cell.colSpan = this.columns.length;
      const more = make("button", `${grouped(Math.min(left, MADE_AT_ONCE))} more of ${grouped(left)}`);
      more.type = "button";
      more.onclick = () => { this.limit += MADE_AT_ONCE; this.draw(); };
      cell.append(more);
      rows.append(row);
    }
    this.body.replaceChildren(rows);
  }

  rowOf(line) {
    const row = make("tr");
    for (const column of this.columns) {
      const cell = row.insertCell();
      if (column.cell.classList.contains("left")) cell.className = "left";
      const value = line[column.key];
      if (column.key === "see") {
        cell.classList.add("see");
        cell.append(...this.linksOf(line));
      } else if (column.index === 0 && line.told !== undefined) cell.append(this.opener(line));
      else if (value === undefined) cell.textContent = cell.className ? "" : "-";
      else cell.append(SHOWN[column.key] ? SHOWN[column.key](value, line) : String(value));
    }
    return row;
  }

  opener(line) {
    const button = make("button", line.task, "opener");
    button.type = "button";
    button.setAttribute("aria-expanded", String(this.open.has(line)));
    button.onclick = () => {
      const row = button.closest("tr");
      const isOpen = this.open.delete(line);
      if (isOpen) row.nextElementSibling.remove();
      else this.open.add(line), row.after(this.toldOf(line));
      button.setAttribute("aria-expanded", String(!isOpen));
    };
    return button;
  }

  toldOf(line) {
    const row = make("tr", undefined, "told");
    const cell = row.insertCell();
    cell.colSpan = this.columns.length;
    const links = make("p", undefined, "see");
    links.append(...this.linksOf(line));
    cell.append(links, make("pre", page.data.texts[line.told] || "nothing was said"));
    return row;
  }

  linksOf(line) {
    const links = [];
    if (line.address) {
      const viewer = make("a", "conversation");
      viewer.href = line.address;
      links.push(viewer);
    }
    const own = { row: line.row, task: line.task };
    for (const other of ["graphs", "attempts"]) {
      const isThere = page.data[other].some((each) => each.row === line.row);
      if (this.name !== other && isThere) links.push(linkTo(other, own, other));
    }
    if (this.name === "graphs") links.push(linkTo("graphs", { task: line.task }, "this task in every row"));
    const code = codeLink(line);
    if (code) links.push(code);
    return links.flatMap((link) => [link, " "]);
  }
}
