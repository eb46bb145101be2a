// The front page: facts, counts, what needs attention, the trend of all tests, and the table.

const hasHistory = content.trend.length > 1;
const severalFiles = new Set(content.tests.map((test) => test.file)).size > 1;
const severalDevices = content.devices.length > 1;
const MOST_LISTED = 5, MOST_ROWS = 300, MOST_SWEEPS = 4, AT_ONCE = 40;

// Filters: key, text, which rows, and whether the tile is there even with none.
const FILTERS = [
  ["fail", "FAIL", (row) => row.status === "fail" && !row.soft, true],
  ["invalid", "INVALID", (row) => row.status === "invalid" && !row.soft, true],
  ["inconclusive", "INCONCLUSIVE", (row) => row.status === "inconclusive" && !row.soft, true],
  ["pass", "PASS", (row) => row.status === "pass", true],
  ["slower", "slower than baseline", (row) => row.change && row.change.word === "slower", content.baseline],
  ["faster", "faster than baseline", (row) => row.change && row.change.word === "faster", content.baseline],
  ["changed", "changed in the saved runs", (row) => row.changes.length, false],
  ["new", "new", (row) => row.isNew, false],
  ["soft", "not enforced", (row) => row.soft, false],
  ["none", "no limit, or NOT JUDGED", (row) => row.status === "measured" || row.status === "not judged", false],
  ["unmeasured", "not measured", (row) => row.status === "unmeasured", false],
  ["all", "all rows", () => true, true],
];
const filterOf = (name) => {
  const run = /^run (\d+)$/.exec(name);
  return run ? (row) => row.changes.some(([, first]) => first === Number(run[1])) : FILTERS.find(([key]) => key === name)[2];
};

const has = (key) => rows.some((row) => row[key] || (row.item && row.item[key]));
const COLUMNS = [
  { key: "verdict", name: "Verdict", value: (row) => row.rank, cell: (row) => [badge(row.status, row.soft)] },
  { key: "test", name: "Test", value: (row) => row.test.id.toLowerCase(), cell: testCell },
  { key: "time", name: "Time", right: true, value: ({ item }) => item && item.median, cell: timeCell },
  { key: "speedup", name: "Speedup", right: true, value: ({ item }) => item && item.speedup && item.speedup.ratio, cell: speedupCell, is: has("speedup") },
  { key: "limit", name: "Limits", value: ({ margin }) => margin && margin.middle, cell: limitCell, is: has("verdicts") },
  { key: "change", name: "Baseline", right: true, value: ({ change }) => change && change.ratio, cell: changeCell, is: content.baseline || has("change") },
  { key: "history", name: "History", value: ({ changes }) => changes.length && -changes.at(-1)[1], cell: ({ item }) => [sparkline(item)], is: hasHistory },
].filter(({ is = true }) => is);

const sub = (text) => text && el("span", { class: "sub" }, text);

function testCell(row) {
  const { test, item } = row;
  const where = [severalFiles && test.file, severalDevices && test.device].filter(Boolean).join(" · ");
  const example = item && item.example;
  const worst = row.more ? `worst of ${row.more + 1}${example ? `: ${example}` : ""}` : example;
  const what = row.label + (row.against && ` against ${row.against}`);
  return [el("a", { href: `#t/${row.index}` }, test.name), sub([what, where].filter(Boolean).join(" · ")), sub(worst)];
}
function timeCell({ item }) {
  if (!item || !known(item.median)) return [el("span", { class: "soft", title: item && item.why }, "–")];
  const unit = unitOf(item.median);
  return [time(item.median, unit), sub(between(item.interval, unit[1]) || plural(item.reps, "rep"))];
}
function speedupCell({ item }) {
  return item && item.speedup ? [times(item.speedup.ratio), sub(between(item.speedup.interval) || "no interval")] : [];
}
function limitCell(row) {
  return [marginBar(row), row.limits.map(({ limit, measured, outcome, sentence }) => el("div", { class: "limit-line-text", title: sentence },
    el("i", { class: `tone-${statusOf(outcome).tone}`, "aria-hidden": "true" }, statusOf(outcome).mark), el("code", {}, limit), " ", el("span", { class: "sub" }, measured)))];
}
function changeCell(row) {
  return [changeText(row), row.change && row.change.interval && sub(`[${row.change.interval.map(signed).join(", ")}]`)];
}

// the table

const view = { filter: "all", words: [], sort: "worst", down: false, most: MOST_ROWS };
let listed = rows;

const tiles = el("div", { class: "tiles", role: "group", "aria-label": "Show only" });
const search = el("input", {
  type: "search", id: "search", placeholder: "Search tests, functions, limits  ( / )", "aria-label": "Search", autocomplete: "off", spellcheck: "false",
  oninput: () => show({ words: search.value.toLowerCase().split(/\s+/).filter(Boolean) }),
});
const sortSelect = el("select", { class: "sort-select", "aria-label": "Sort by", onchange: () => show({ sort: sortSelect.value, down: false }) },
  el("option", { value: "worst" }, "Worst first"), el("option", { value: "run" }, "In the order of the run"),
  COLUMNS.map(({ key, name }) => el("option", { value: key }, name)));
const shownCount = el("span", { class: "soft", role: "status", id: "shown" });
const clear = el("button", { class: "plain-button", type: "button", onclick: () => { search.value = ""; show({ filter: "all", words: [] }); } }, "Show all");
const tools = el("div", { class: "tools" }, search, sortSelect, clear, shownCount);
const header = el("tr", {}, COLUMNS.map(({ key, name, right }) =>
  el("th", { scope: "col", class: right && "right" }, el("button", { type: "button", "data-sort": key, onclick: () => sortBy(key) }, name))));
const body = el("tbody");
const under = el("div");

// A second click turns the order round, a third returns to the worst first.
function sortBy(key) {
  if (view.sort !== key) show({ sort: key, down: false });
  else if (!view.down) show({ down: true });
  else show({ sort: "worst", down: false });
}

function show(changed) {
  Object.assign(view, { most: MOST_ROWS }, changed);
  const keep = filterOf(view.filter);
  listed = ordered(rows.filter((row) => keep(row) && view.words.every((word) => row.text.includes(word))));
  const now = listed;
  body.replaceChildren(...now.slice(0, AT_ONCE).map(tableRow));
  setTimeout(() => { if (now === listed) body.append(...now.slice(AT_ONCE, view.most).map(tableRow)); }, 30); // once these are seen
  under.replaceChildren();
  if (!listed.length) under.append(el("p", { class: "empty" }, rows.length ? "Nothing fits." : "Nothing was measured."));
  if (listed.length > view.most) {
    const all = el("button", { class: "plain-button", type: "button", onclick: () => show({ most: Infinity }) }, `Show all ${listed.length.toLocaleString("en")}`);
    under.append(el("p", { class: "more-rows" }, all));
  }
  for (const [index, cell] of [...header.children].entries()) {
    if (COLUMNS[index].key === view.sort) cell.setAttribute("aria-sort", view.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  }
  for (const button of document.querySelectorAll("[data-filter]")) button.setAttribute("aria-pressed", String(button.dataset.filter === view.filter));
  sortSelect.value = view.sort;
  shownCount.textContent = listed.length === rows.length ? plural(rows.length, "row") : `${listed.length.toLocaleString("en")} of ${plural(rows.length, "row")}`;
  clear.classList.toggle("hidden", view.filter === "all" && !view.words.length);
}

function setFilter(name, scroll) {
  show({ filter: view.filter === name && !scroll ? "all" : name });
  if (scroll) tools.scrollIntoView({ block: "start" });
}

// What sorts rows of one verdict: a limit that is missed, but not on time or speedup, has no margin.
const marginOfRow = (row) => (row.margin ? row.margin.middle : row.status === "fail" ? 0 : 99);

function ordered(list) {
  if (view.sort === "run") return list;
  const column = COLUMNS.find(({ key }) => key === view.sort), value = column ? column.value : (row) => row.rank;
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)));
  return list.map((row) => [row, value(row)]).sort(([one, a], [other, b]) => {
    const missing = (found) => found === null || found === undefined || found === "" || found === false;
    if (missing(a) || missing(b)) return missing(a) - missing(b) || one.index - other.index;
    return (view.down ? -1 : 1) * compare(a, b) || (column ? 0 : marginOfRow(one) - marginOfRow(other)) || one.index - other.index;
  }).map(([row]) => row);
}

function tableRow(row) {
  const open = (event) => { if (!event.target.closest("a") && !String(getSelection())) location.hash = `#t/${row.index}`; };
  return el("tr", { "data-row": row.index, onclick: open }, COLUMNS.map(({ key, name, right, cell }) => {
    const inside = cell(row).flat().filter(Boolean);
    return el("td", { class: `${key}${right ? " right" : ""}${inside.length ? "" : " blank"}`, "data-name": name }, inside);
  }));
}

// what needs attention

function attention(key, title, sentence) {
  const worst = (row) => (key === "slower" ? -row.change.ratio : key === "faster" ? row.change.ratio : marginOfRow(row));
  const found = rows.filter(filterOf(key)).sort((a, b) => worst(a) - worst(b));
  if (!found.length) return null;
  const mark = (STATUS[key] || { mark: key === "slower" ? "▲" : "▼" }).mark;
  return el("section", { class: `card tone-${key}` },
    el("h2", {}, el("span", { class: "badge" }, el("i", { "aria-hidden": "true" }, mark), title), el("span", { class: "soft" }, plural(found.length, "measurement"))),
    el("ul", { class: "attention" }, found.slice(0, MOST_LISTED).map((row) => el("li", {},
      el("a", { class: "name", href: `#t/${row.index}` }, row.test.name), row.label && el("span", { class: "soft" }, ` ${row.label}`), el("p", {}, sentence(row))))),
    found.length > MOST_LISTED && el("button", { class: "link-button", type: "button", onclick: () => setFilter(key, true) }, `and ${found.length - MOST_LISTED} more`));
}
function worstSentence(row) {
  const all = verdictsOf(row.item, row.reference);
  const worst = all.find((verdict) => verdict.outcome === row.status) || all[0];
  return worst ? worst.sentence : "";
}

// the trend of all tests

function trendCard() {
  if (!hasHistory) return null;
  const { trend, runs } = content, numbers = trend.map(([number]) => number), at = (place) => trend.map((point) => point[place]);
  const changed = changesByRun();
  const said = (index) => {
    const [number, many, ratio, low, high] = trend[index], found = changed.get(number);
    return `${fullName(runs[number])}\n${number === own ? "this run" : `time ${signed(ratio)} against this run`}, ${plural(many, "measurement")}\n${
      number === own ? "" : `middle half: ${signed(low)} to ${signed(high)}`}\n${found ? counted(found) : ""}`;
  };
  const picture = chart({
    height: 190, label: "Trend of all tests over the saved runs",
    x: { range: [-0.4, own + 0.4], ticks: runTicks }, y: { title: "time, this run = 1", include: [0.98, 1.02] },
    marks: [
      [...changed].map(([number, found]) => ({ kind: "flag", x: number, tone: found.slower.length >= found.faster.length ? "slower" : "faster" })),
      { kind: "area", xs: numbers, lows: at(3), highs: at(4), tone: "candidate" }, { kind: "rule", y: 1, tone: "none", dash: "2 3" },
      { kind: "line", xs: numbers, ys: at(2), tone: "candidate" }, { kind: "dots", xs: numbers, ys: at(2), tone: "candidate", size: 6, text: said },
    ],
  });
  return el("section", { class: "card trend" },
    el("div", {}, el("h2", {}, "All tests over the saved runs", el("span", { class: "soft" }, `${plural(trend.length, "run")}, ${range(runs[trend[0][0]], runs[own])}`)), picture,
      el("p", { class: "note" }, "Line: the geometric mean of all times, against the reference where a test has one. Area: the middle half of them. Drag to zoom.")),
    el("div", {}, el("h2", {}, "Changes"), changeList(changed)));
}

function changesByRun() {
  const found = new Map();
  for (const row of rows) for (const [before, first, ratio] of row.changes) {
    if (!found.has(first)) found.set(first, { first, before, slower: [], faster: [] });
    const here = found.get(first);
    here.before = Math.max(here.before, before);
    here[ratio > 1 ? "slower" : "faster"].push([row, ratio]);
  }
  return new Map([...found].sort(([a], [b]) => b - a));
}
const counted = ({ slower, faster }) => [slower.length && `${slower.length} slower`, faster.length && `${faster.length} faster`].filter(Boolean).join(", ");

function changeList(changed) {
  if (!changed.size) return el("p", { class: "soft" }, content.trend.length < content.least_runs ? `None can be found in fewer than ${content.least_runs} runs.` : "None found.");
  return el("ul", { class: "attention" }, [...changed.values()].slice(0, MOST_LISTED).map((found) => {
    const all = [...found.slower, ...found.faster].sort(([, a], [, b]) => Math.abs(Math.log(b)) - Math.abs(Math.log(a)));
    const [largest, ratio] = all[0];
    const filter = `run ${found.first}`, onclick = () => setFilter(filter, true);
    return el("li", {}, el("button", { class: "link-button", type: "button", "data-filter": filter, onclick }, counted(found)),
      el("code", { class: "soft" }, ` ${range(content.runs[found.before], content.runs[found.first])}`),
      el("p", {}, `${largest.test.name} ${signed(ratio)}${all.length > 1 ? `, and ${all.length - 1} more` : ""} · ${when(content.runs[found.first].when)}`));
  }));
}

function runTicks([low, high], room) {
  const first = Math.max(0, Math.ceil(low)), last = Math.min(own, Math.floor(high));
  const every = Math.max(1, Math.ceil((last - first + 1) / (room / 62)));
  const found = [];
  for (let number = last; number >= first; number -= every) found.push([number, shortName(content.runs[number])]);
  return found;
}

// the sweeps of parametrised tests, and the rooflines

function chartCards() {
  const groups = new Map(), place = el("div", { class: "sweeps" });
  for (const sweep of content.sweeps) {
    const key = `${sweep.test.split("::").slice(severalFiles ? 0 : 1).join("::")}${severalDevices ? ` · ${sweep.device}` : ""}`;
    groups.set(key, [...(groups.get(key) || []), sweep]);
  }
  const figures = ([key, sweeps]) => sweepFigureOf(key, sweeps, null), all = [...groups];
  const rest = all.slice(MOST_SWEEPS), more = rest.length > 0 && el("button", { class: "plain-button", type: "button" }, `Show all ${all.length} sweeps`);
  if (more) more.addEventListener("click", () => more.replaceWith(...rest.map(figures)));
  const shown = [all.slice(0, MOST_SWEEPS).map(figures), more, content.rooflines.map(frontRoofline)];
  return all.length || content.rooflines.length ? filled(place, {}, shown) : null;
}

// all of it

function frontPage() {
  const { baseline, gone, foreign } = content;
  const facts = [...content.facts, ["Date", when(content.datetime)]];
  if (baseline) facts.push(["Baseline", fullName(baseline)]);
  if (baseline && baseline.commit && content.runs[own].commit) facts.push(["Commits since", range(baseline, content.runs[own])]);
  const cards = [
    attention("invalid", "INVALID", worstSentence), attention("fail", "FAIL", worstSentence), attention("inconclusive", "INCONCLUSIVE", worstSentence),
    attention("slower", "Slower than the baseline", changeSentence), attention("faster", "Faster than the baseline", changeSentence),
    gone.length && el("section", { class: "card" }, el("h2", {}, "Gone since the baseline", el("span", { class: "soft" }, plural(gone.length, "test"))),
      el("ul", { class: "lines" }, gone.slice(0, MOST_LISTED).map((id) => el("li", {}, id)),
        gone.length > MOST_LISTED && el("li", { class: "soft" }, `and ${gone.length - MOST_LISTED} more`))),
    foreign.length && el("section", { class: "card" }, el("h2", {}, "Not compared"), el("p", { class: "soft" }, `The baseline has no measurements on ${foreign.join(", ")}.`)),
  ].filter(Boolean);
  if (!cards.length && rows.length) cards.push(el("p", { class: "card calm" }, "✓ Nothing to look at: no FAIL, INVALID or INCONCLUSIVE, and no change."));
  for (const [key, text, keep, always] of FILTERS) {
    const many = rows.filter(keep).length;
    if (!many && !always) continue;
    const words = key === "all" && rows.length !== content.tests.length ? `all rows, of ${plural(content.tests.length, "test")}` : text;
    const attributes = { class: `tile tone-${key}${many ? "" : " zero"}`, type: "button", "data-filter": key, onclick: () => setFilter(key) };
    tiles.append(el("button", attributes, el("b", {}, many.toLocaleString("en")), el("span", {}, words)));
  }
  return el("main", { class: "frame", id: "front" },
    el("h1", { class: "sr" }, content.title),
    el("dl", { class: "facts" }, facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
    tiles, trendCard(), el("div", { class: "panels" }, cards), chartCards(), tools,
    el("div", { class: "table-box" }, el("table", { class: "results" }, el("caption", { class: "sr" }, "All measurements"), el("thead", {}, header), body), under),
    el("details", { class: "more" }, el("summary", {}, "Machine and options"), pairList([...content.machine, ...content.settings, ["pytest-gpubench", content.version]])));
}
