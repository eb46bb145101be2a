// One test, opened: its verdicts, its numbers beside those of its reference, and its figures.

const section = (title, ...inside) => el("div", { class: "block" }, el("h3", {}, title), inside);

function speedupCard(item, status) {
  const speed = item.speedup;
  if (!speed || !known(speed.ratio)) return null;
  return el("section", { class: `card tone-${limitOf(item, "min_speedup") ? statusOf(status).tone : "all"}` },
    el("div", { class: "big" }, el("b", {}, times(speed.ratio)),
      el("span", { class: "soft number" }, `${between(speed.interval) || "no interval: too few quads,"} as fast as ${speed.reference}`)),
    marginBar({ status, margin: marginOf({ item }) }), el("p", { class: "soft" }, `${plural(speed.quads, "quad")}, alpha ${speed.alpha}, seed ${speed.seed}`));
}

function verdictLine({ outcome, limit, measured, enforced, sentence, reasons = [] }) {
  const { mark, text, tone } = statusOf(outcome);
  return el("li", { class: `tone-${tone}` }, el("i", { "aria-hidden": "true" }, mark), el("span", { class: "sr" }, `${text}: `),
    el("code", {}, limit), " ", el("b", {}, measured), !enforced && el("span", { class: "soft" }, " not enforced"), el("p", { class: "soft" }, sentence), reasons.map((each) => el("p", {}, each)));
}

function verdictsCard(row, test, item, reference) {
  const { change } = item, list = (lines) => el("ul", { class: "lines" }, lines.map((line) => el("li", {}, line)));
  const verdicts = verdictsOf(item, reference), blocks = [
    verdicts.length && el("ul", { class: "sentences block" }, verdicts.map(verdictLine)),
    change && section(`Against ${change.baseline}`,
      el("p", { class: change.word && `delta wrapped sure tone-${change.word}` }, changeSentence({ item, change }), change.word && ` (${change.word})`)),
    item.base && item.base.new && section("Against the baseline", el("p", {}, "Not in the baseline.")),
    item.differences && section("Outputs against the reference's", list(item.differences)),
    test.warnings.length && section("Warnings", list(test.warnings)),
  ].filter(Boolean);
  return blocks.length ? el("section", { class: "card" }, blocks) : null;
}

// A number of content.metrics, a time in the unit of the page; a pair that is no interval has a dash between.
function metricText(name, value, kind, unit) {
  const scale = kind === "us" ? unit[1] : 1;
  if (Array.isArray(value)) return name === "interval" ? between(value, scale) : value.map((each) => digits(each / scale)).join(" – ");
  if (!known(value)) return "";
  const write = { us: () => time(value, unit), share: () => percent(value), x: () => times(value), MHz: () => `${Math.round(value)} MHz`, "": () => String(value) }[kind];
  return write ? write() : `${digits(value)} ${kind}`;
}

const NUMBERS = [
  ...content.metrics.map(([name, label, kind]) => [label, (arm, unit) => metricText(name, arm[name], kind, unit)]),
  ["throttled", (arm) => (arm.throttled || []).join(", ")],
  ["notes", (arm) => (arm.notes || []).join(", ")],
];

function numbersCard(item, reference) {
  const arms = [[item, item.label, "candidate"]];
  if (reference) arms.push([reference, reference.label, "reference"]);
  if (item.base && known(item.base.median)) arms.push([item.base, "baseline", "older"]);
  const first = arms.find(([arm]) => known(arm.median));
  if (!first) return item.why ? el("section", { class: "card" }, el("h2", {}, "Not measured"), el("p", {}, item.why)) : null;
  const unit = unitOf(first[0].median);
  const told = NUMBERS.map(([name, text]) => [name, arms.map(([arm]) => text(arm, unit))]).filter(([, texts]) => texts.some(Boolean));
  return el("section", { class: "card" }, el("table", { class: "arms" },
    el("thead", {}, el("tr", {}, el("th"), arms.map(([, label, tone]) => el("th", { scope: "col" }, el("i", { class: `key tone-${tone}` }), label)))),
    el("tbody", {}, told.map(([name, texts]) => el("tr", {}, el("td", {}, name), texts.map((text) => el("td", {}, text || "–")))))));
}

// Which of a test's functions and examples is shown.
function choice(row, test, place) {
  const choices = test.items.map((item, index) => [item, index]).filter(([item, index]) => item.role !== "reference" || index === place);
  const text = (item, nth) => [item.label, item.example || (choices.filter(([each]) => each.label === item.label).length > 1 && `no. ${nth + 1}`),
    item.speedup ? times(item.speedup.ratio) : known(item.median) && time(item.median)].filter(Boolean).join(" · ");
  const go = (event) => { location.hash = `#t/${row.index}/${event.target.value}`; };
  return choices.length > 1 && el("select", { class: "choice", "aria-label": "Measurement", onchange: go },
    choices.map(([item, index], nth) => el("option", { value: index, selected: index === place }, text(item, nth))));
}

function testPage(row, chosen) {
  const { test } = row, place = test.items[chosen] ? chosen : row.item === null ? null : test.items.indexOf(row.item);
  const item = place === null ? null : test.items[place], reference = item && known(item.ref) ? test.items[item.ref] : null;
  const isRow = item === row.item, outcomes = verdictsOf(item, reference).map((verdict) => verdict.outcome);
  const status = isRow ? row.status : outcomes.sort((a, b) => statusOf(a).rank - statusOf(b).rank)[0] || "measured";
  const chip = (text) => text && el("span", { class: "chip" }, text);
  return [
    el("div", { class: "head" },
      el("p", { class: "path" }, el("a", { href: "#", id: "back" }, "← All tests"), test.file && ` · ${test.file}`),
      el("div", { class: "line" }, el("h1", {}, test.name), badge(status, isRow && row.soft)),
      el("div", { class: "chips" }, Object.entries(test.params).map((pair) => chip(pair.join("="))),
        item && [chip(item.example), chip(`${item.timer}, ${item.cache}`)], severalDevices && chip(test.device)),
      item && choice(row, test, place)),
    item ? el("div", { class: "hero" }, el("div", {}, speedupCard(item, status), verdictsCard(row, test, item, reference)), numbersCard(item, reference))
      : el("p", { class: "card" }, "This test measured nothing.", test.warnings.map((line) => el("p", {}, line))),
    el("div", { class: "figures" }, item && figuresOf(row, test, item, reference)),
    el("details", { class: "more" }, el("summary", {}, "Device and extra information"), pairList([...test.facts, ...test.extra, ["full name", test.id]])),
  ];
}
