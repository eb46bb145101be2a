// Elements, numbers and words. Text is only ever set as text.

const content = JSON.parse(document.getElementById("content").textContent);

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [rule, setting] of Object.entries(value)) node.style.setProperty(rule, setting);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}
const el = (name, attributes, ...children) => filled(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// numbers

const UNITS = [["s", 1e6], ["ms", 1e3], ["us", 1], ["ns", 1e-3]];
const known = (value) => typeof value === "number" && Number.isFinite(value);
const sorted = (values) => values.filter(known).sort((a, b) => a - b);
const quantile = (ordered, share) => ordered[Math.round(share * (ordered.length - 1))];

function digits(value, many = 4) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const shown = Number(value.toPrecision(many));
  return shown.toFixed(Math.min(20, Math.max(0, many - 1 - Math.floor(Math.log10(Math.abs(shown))))));
}
const unitOf = (us) => UNITS.find(([, scale]) => Number((Math.abs(us || 1) / scale).toPrecision(4)) >= 1) || UNITS[3];
const time = (us, unit = unitOf(us)) => (known(us) ? `${digits(us / unit[1])} ${unit[0]}` : "–");
const between = (ends, scale = 1) => (ends ? `[${digits(ends[0] / scale)}, ${digits(ends[1] / scale)}]` : "");
const times = (ratio) => (known(ratio) ? `${digits(ratio)}x` : "–");
const percent = (fraction) => (known(fraction) ? `${digits(100 * fraction, 2)} %` : "–");
const plural = (many, noun) => `${many.toLocaleString("en")} ${noun}${many === 1 ? "" : "s"}`;

function signed(ratio) {
  if (ratio >= 10 || ratio <= 0.1) return ratio > 1 ? `×${digits(ratio, 3)}` : `÷${digits(1 / ratio, 3)}`;
  const share = 100 * (ratio - 1);
  const text = Math.abs(share).toFixed(Math.abs(share) < 9.95 ? 1 : 0);
  return `${Number(text) === 0 ? "±" : share > 0 ? "+" : "−"}${text} %`;
}

// runs

const when = (text) =>
  text.replace("T", " ").replace(/\.\d+/, "").replace(/(\d\d:\d\d):\d\d/, "$1").replace(/\+00:00|Z$/, " UTC");
const commitOf = (run) => run.commit + (run.dirty ? "*" : "");
const shortName = (run) => (run.commit ? run.commit.slice(0, 7) + (run.dirty ? "*" : "") : run.name || run.when.slice(0, 10));
const fullName = (run) => [...new Set([run.name, commitOf(run), run.branch, when(run.when)])].filter(Boolean).join(", ");
const range = (older, newer) => [...new Set([older, newer].map(shortName))].join("..");
const own = content.runs.length - 1;

// outcomes

const STATUS = {
  invalid: { mark: "⊘", text: "INVALID", tone: "invalid", rank: 0 },
  fail: { mark: "✕", text: "FAIL", tone: "fail", rank: 1 },
  inconclusive: { mark: "?", text: "INCONCLUSIVE", tone: "inconclusive", rank: 3 },
  pass: { mark: "✓", text: "PASS", tone: "pass", rank: 5 },
  "not judged": { mark: "–", text: "NOT JUDGED", tone: "none", rank: 6 },
  measured: { mark: "·", text: "no limit", tone: "none", rank: 7 },
  unmeasured: { mark: "·", text: "not measured", tone: "none", rank: 8 },
};
const statusOf = (name) => STATUS[name] || STATUS.measured;

const badge = (name, soft) =>
  el("span", { class: `badge tone-${soft ? "none" : statusOf(name).tone}` },
    el("i", { "aria-hidden": "true" }, statusOf(name).mark), statusOf(name).text, soft && " (not enforced)");

const pairList = (pairs) =>
  el("dl", { class: "pairs" }, pairs.filter(([, text]) => text).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
