// What stands in a cell: figures, badges, links; and the order of two values.

const fixed = (digits) => (value) => value.toFixed(digits);
const grouped = (value) => Math.round(value).toLocaleString("en");

// How a value of the data is shown; a missing one is a dash, a text as it is.
const SHOWN = {
  speedup: (value) => `${value.toFixed(2)}x`,
  low: (value, line) => `${value.toFixed(2)} to ${line.high.toFixed(2)}`,
  gpu: (value) => `${value.toFixed(2)}x`,
  coverage: (value) => `${(100 * value).toFixed(1)}%`,
  eager_us: fixed(1),
  pass_us: fixed(1),
  as_score: fixed(3),
  as_covered: fixed(3),
  shown_covered: fixed(3),
  num_tokens: grouped,
  duration_s: grouped,
  cost_usd: fixed(4),
  graph: (value) => value.replace(/^graphs\//, ""),
  outcome: (value, line) => badges(line.outcomes || { [value]: 1 }),
  rules: (value) => badges(Object.fromEntries(value.map((rule) => [rule, 1]))),
};

function badges(counts) {
  const parts = document.createDocumentFragment();
  const entries = Object.entries(counts);
  for (const [name, number] of entries) {
    const text = entries.length > 1 && number > 1 ? `${number} ${name}` : name;
    parts.append(make("span", text, `badge ${name === "CORRECT" ? "good" : "bad"}`), " ");
  }
  return parts;
}

function linkTo(table, filters, text) {
  const link = make("a", text);
  link.href = "#" + new URLSearchParams({ table, ...filters });
  return link;
}

function codeLink(line) {
  if (!line.code || !page.data.codes.includes(line.code)) return null;
  const link = make("a", "code");
  link.href = `#code-${line.code}`;
  return link;
}

function compareValues(x, y, sign) {
  if (x === y) return 0;
  if (x === null || y === null) return x === null ? 1 : -1;
  if (typeof x === "number" && typeof y === "number") return sign * (x - y);
  return sign * String(x).localeCompare(String(y), "en", { numeric: true });
}
