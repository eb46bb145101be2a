"use strict";
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const root = document.documentElement;
  const page = document.getElementById("page");

  // ---- elements: text is only ever set as text

  function el(name, attributes, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "style") for (const [rule, setting] of Object.entries(value)) node.style.setProperty(rule, setting);
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
    return node;
  }

  // ---- numbers

  const UNITS = [["s", 1e6], ["ms", 1e3], ["us", 1], ["ns", 1e-3]];
  const known = (value) => typeof value === "number" && Number.isFinite(value);

  function digits(value, many = 4) {
    if (!known(value)) return "–";
    if (value === 0) return "0";
    const shown = Number(value.toPrecision(many));
    return shown.toFixed(Math.min(20, Math.max(0, many - 1 - Math.floor(Math.log10(Math.abs(shown))))));
  }
  const unitOf = (us) => UNITS.find(([, scale]) => Number((Math.abs(us || 1) / scale).toPrecision(4)) >= 1) || UNITS[3];
  const time = (us, unit = unitOf(us)) => (known(us) ? `${digits(us / unit[1])} ${unit[0]}` : "–");
  const between = (ends, scale = 1) => (ends ? `[${digits(ends[0] / scale)}, ${digits(ends[1] / scale)}]` : "");
  const times = (ratio) => (known(ratio) ? `${digits(ratio)}×` : "–");
  const percent = (fraction) => (known(fraction) ? `${digits(100 * fraction, 2)} %` : "–");
  const plural = (many, noun) => `${many.toLocaleString("en")} ${noun}${many === 1 ? "" : "s"}`;
  const signed = (ratio) => {
    const share = 100 * (ratio - 1);
    const text = Math.abs(share).toFixed(Math.abs(share) < 9.95 ? 1 : 0);
    return `${Number(text) === 0 ? "±" : share > 0 ? "+" : "−"}${text} %`;
  };
  const compact = (value) => (value >= 1e4 && Number.isInteger(value) ? value.toLocaleString("en") : String(value));
  const when = (text) => text.replace("T", " ").replace(/\.\d+/, "").replace(/(\d\d:\d\d):\d\d/, "$1").replace(/\+00:00|Z$/, " UTC");

  // ---- outcomes

  const STATUS = {
    invalid: { mark: "⊘", text: "invalid", tone: "invalid", rank: 0 },
    fail: { mark: "✕", text: "failed", tone: "fail", rank: 1 },
    inconclusive: { mark: "?", text: "uncertain", tone: "inconclusive", rank: 3 },
    pass: { mark: "✓", text: "passed", tone: "pass", rank: 5 },
    "not judged": { mark: "–", text: "not judged", tone: "none", rank: 6 },
    measured: { mark: "·", text: "no limit", tone: "none", rank: 7 },
    unmeasured: { mark: "·", text: "not measured", tone: "none", rank: 8 },
  };
  const statusOf = (name) => STATUS[name] || STATUS.measured;

  function badge(name, soft) {
    const status = statusOf(name);
    return el("span", { class: `badge tone-${soft ? "none" : status.tone}` }, el("i", { "aria-hidden": "true" }, status.mark), status.text, soft ? " (not enforced)" : "");
  }

  // ---- rows: what the table and the front page are made of

  const rows = content.rows.map((row, index) => {
    const test = content.tests[row.test];
    const item = row.item === null ? null : test.items[row.item];
    const reference = item && known(item.ref) ? test.items[item.ref] : null;
    const change = item && item.base && item.base.change;
    const limits = item ? item.verdicts || [] : [];
    const made = {
      ...row, index, test, itemIndex: row.item, item, reference, limits,
      change: change || null,
      isNew: Boolean(item && item.base && item.base.new),
      label: item ? item.label : "",
      referenceName: item && item.speedup ? item.speedup.reference : reference ? reference.label : "",
    };
    made.margin = marginOf(made);
    made.rank = statusOf(row.status).rank + (row.soft ? 3.5 : 0) - (change && change.word === "slower" && statusOf(row.status).rank > 2 ? 2.5 : 0);
    made.text = [test.id, made.label, made.referenceName, limits.map((v) => v.limit).join(" "), Object.entries(test.params).map((p) => p.join("=")).join(" "),
      content.devices.length > 1 ? test.device : "", statusOf(row.status).text, change ? change.word : "", item ? item.example || "" : ""].join(" ").toLowerCase();
    return made;
  });

  // how far on the good side of its limit a row is, as a ratio: above 1 is good
  function marginOf(row) {
    const { item, limits } = row;
    if (!item || !known(item.median)) return null;
    const speed = limits.find((v) => v.kind === "min_speedup" && known(v.value) && v.value > 0);
    if (item.speedup && known(item.speedup.ratio)) {
      const limit = speed ? speed.value : 1;
      const ends = item.speedup.interval || [item.speedup.ratio, item.speedup.ratio];
      return { low: ends[0] / limit, high: ends[1] / limit, middle: item.speedup.ratio / limit, of: speed ? `of ${speed.text}` : "of 1×", sure: Boolean(item.speedup.interval), judged: Boolean(speed) };
    }
    const most = limits.find((v) => v.kind === "max_time_us" && known(v.value) && v.value > 0);
    if (!most || !(item.median > 0)) return null;
    const ends = item.interval || [item.median, item.median];
    return { low: most.value / ends[1], high: most.value / ends[0], middle: most.value / item.median, of: `of ${most.text}`, sure: Boolean(item.interval), judged: true };
  }

  const FARTHEST = Math.log(1.6);

  function marginBar(row) {
    const margin = row.margin;
    if (!margin || !known(margin.low) || !known(margin.high)) return null;
    const place = (ratio) => 50 + 46 * Math.max(-1, Math.min(1, Math.log(ratio) / FARTHEST));
    const low = place(margin.low), high = place(margin.high);
    const tone = margin.judged ? statusOf(row.status).tone : "none";
    const text = `${margin.judged ? "" : "no limit; "}${times(margin.middle)} ${margin.of}${margin.sure ? ` [${digits(margin.low)}, ${digits(margin.high)}]` : ""}`;
    return el("div", { class: `margin tone-${tone}`, role: "img", "aria-label": text, title: text },
      el("span", { class: "good" }), el("span", { class: "axis" }), el("span", { class: "limit-line" }),
      low >= 96 ? el("span", { class: "off", style: { right: "0" } }, "▶")
        : high <= 4 ? el("span", { class: "off", style: { left: "0" } }, "◀")
        : el("span", { class: "span", style: { left: `${low}%`, width: `max(4px, ${high - low}%)` } }));
  }

  function changeText(row) {
    if (row.isNew) return el("span", { class: "delta tone-new" }, "new");
    if (!row.change || !known(row.change.ratio)) return null;
    const word = row.change.word;
    const title = `${row.change.of} against the baseline: ${signed(row.change.ratio)} time${row.change.interval ? `, [${row.change.interval.map(signed).join(", ")}]` : ", too few samples for an interval"}`;
    return el("span", { class: `delta ${word ? `sure tone-${word}` : ""}`, title }, signed(row.change.ratio), word ? ` ${word}` : "");
  }

  // ---- the bar at the top, theme

  const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("gpubench-theme"); } catch { /* a file: page may have no storage */ }

  function applyTheme() {
    const theme = chosen === "dark" || chosen === "light" ? chosen : wantsDark.matches ? "dark" : "light";
    root.dataset.theme = theme;
    themeButton.textContent = theme === "dark" ? "☀ Light" : "☾ Dark";
    redraw();
  }
  const themeButton = el("button", {
    class: "plain-button", type: "button", id: "theme", onclick: () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("gpubench-theme", chosen); } catch { /* likewise */ }
      applyTheme();
    },
  });
  wantsDark.addEventListener("change", applyTheme);

  const stepper = el("span", { class: "hidden", id: "stepper" });
  const bar = el("header", { class: "bar" }, el("div", { class: "bar-inner" },
    el("a", { class: "brand", href: "#" }, "GPU benchmarks", el("small", {}, [content.name, when(content.datetime)].filter(Boolean).join(" · "))),
    el("span", { class: "grow" }), stepper,
    el("button", { class: "plain-button hide-small", type: "button", onclick: () => window.print() }, "Print"), themeButton));
  const front = el("main", { class: "frame", id: "front" });
  const opened = el("main", { class: "frame hidden", id: "opened", tabindex: "-1" });
  page.append(bar, front, opened);

  // ---- the front page

  const FILTERS = [
    ["fail", "failed", (row) => row.status === "fail" && !row.soft],
    ["invalid", "invalid", (row) => row.status === "invalid"],
    ["inconclusive", "uncertain", (row) => row.status === "inconclusive" && !row.soft],
    ["slower", "slower than baseline", (row) => row.change && row.change.word === "slower"],
    ["faster", "faster than baseline", (row) => row.change && row.change.word === "faster"],
    ["new", "new", (row) => row.isNew],
    ["pass", "passed", (row) => row.status === "pass"],
    ["soft", "not enforced", (row) => row.soft],
    ["none", "no limit, or not judged", (row) => row.status === "measured" || row.status === "not judged"],
    ["unmeasured", "not measured", (row) => row.status === "unmeasured"],
    ["all", "all", () => true],
  ];
  const ALWAYS = new Set(["fail", "invalid", "inconclusive", "pass", "all"]);
  const WITH_BASELINE = new Set(["slower", "faster"]);
  const view = { filter: "all", words: [], sort: "worst", down: false, most: 300 };
  const filterOf = (name) => FILTERS.find(([key]) => key === name);

  const COLUMNS = [
    { key: "verdict", name: "Verdict", value: (row) => row.rank },
    { key: "test", name: "Test", value: (row) => row.test.id.toLowerCase() },
    { key: "label", name: "Function", value: (row) => row.label.toLowerCase() },
    { key: "reference", name: "Reference", value: (row) => referenceTime(row) },
    { key: "time", name: "Time", right: true, value: (row) => row.item && row.item.median },
    { key: "speedup", name: "Speedup", right: true, value: (row) => row.item && row.item.speedup && row.item.speedup.ratio },
    { key: "limit", name: "Limit", value: (row) => (row.limits[0] ? row.limits[0].text : null) },
    { key: "margin", name: "Against limit", value: (row) => row.margin && row.margin.middle },
    { key: "change", name: "Baseline", right: true, value: (row) => row.change && row.change.ratio },
  ];
  const referenceTime = (row) => (row.item && row.item.speedup ? row.item.speedup.reference_us : row.reference && row.reference.median);
  const shownColumns = COLUMNS.filter(({ key }) => (key !== "change" || content.baseline)
    && (key !== "reference" || rows.some((row) => row.referenceName)) && (key !== "speedup" || rows.some((row) => row.item && row.item.speedup)));
  const severalFiles = new Set(content.tests.map((test) => test.file)).size > 1;
  const severalDevices = content.devices.length > 1;

  function cellOf(key, row) {
    const item = row.item, measured = item && known(item.median);
    if (key === "verdict") return [badge(row.status, row.soft)];
    if (key === "test") {
      return [el("a", { href: `#t/${row.index}`, class: "clip" }, row.test.name),
        severalFiles || severalDevices ? el("span", { class: "sub" }, [severalFiles ? row.test.file : "", severalDevices ? row.test.device : ""].filter(Boolean).join(" · ")) : ""];
    }
    if (key === "label") {
      return [el("span", { class: "clip" }, row.label || "–"),
        row.more ? el("span", { class: "sub clip" }, `worst of ${row.more + 1}${item.example ? `: ${item.example}` : ""}`) : item && item.example ? el("span", { class: "sub clip" }, item.example) : ""];
    }
    if (key === "reference") return row.referenceName ? [el("span", { class: "clip" }, row.referenceName), el("span", { class: "sub" }, time(referenceTime(row)))] : [];
    if (key === "time") {
      if (!measured) return [item && item.why ? el("span", { class: "soft", title: item.why }, "–") : "–"];
      const unit = unitOf(item.median);
      return [time(item.median, unit), el("span", { class: "sub" }, between(item.interval, unit[1]) || plural(item.reps, "rep"))];
    }
    if (key === "speedup") return item && item.speedup ? [times(item.speedup.ratio), el("span", { class: "sub" }, between(item.speedup.interval) || "no interval")] : [];
    if (key === "limit") return row.limits.map((v) => el("div", { title: v.limit }, v.text));
    if (key === "margin") return [marginBar(row)];
    return [changeText(row), row.change && row.change.interval ? el("span", { class: "sub" }, `[${row.change.interval.map(signed).join(", ")}]`) : ""];
  }

  const tiles = el("div", { class: "tiles", role: "group", "aria-label": "Show only" });
  const search = el("input", {
    type: "search", id: "search", placeholder: "Search tests, functions, parameters  ( / )", "aria-label": "Search", autocomplete: "off", spellcheck: "false",
    oninput: () => { view.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); view.most = 300; fillTable(); },
  });
  const sortSelect = el("select", { class: "sort-select", "aria-label": "Sort by", onchange: () => sortBy(sortSelect.value, false) },
    el("option", { value: "worst" }, "Worst first"), el("option", { value: "run" }, "In the order of the run"), shownColumns.map(({ key, name }) => el("option", { value: key }, name)));
  const shownCount = el("span", { class: "soft", role: "status", id: "shown" });
  const clear = el("button", { class: "plain-button hidden", type: "button", onclick: () => { search.value = ""; view.words = []; setFilter("all"); } }, "Show all");
  const header = el("tr", {});
  const body = el("tbody", {});
  const under = el("div", {});

  function sortBy(key, toggle) {
    if (toggle && view.sort === key) {
      if (!view.down) view.down = true;
      else { view.sort = "worst"; view.down = false; }
    } else { view.sort = key; view.down = false; }
    sortSelect.value = view.sort;
    fillTable();
  }

  function ordered(list) {
    if (view.sort === "run") return list;
    const column = COLUMNS.find(({ key }) => key === view.sort);
    const value = column ? column.value : (row) => row.rank;
    const collator = new Intl.Collator("en", { numeric: true });
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)));
    const missing = (v) => v === null || v === undefined || v === "" || v === false;
    return [...list].sort((one, other) => {
      const a = value(one), b = value(other);
      if (missing(a) || missing(b)) return missing(a) - missing(b) || one.index - other.index;
      const first = (view.down ? -1 : 1) * compare(a, b);
      if (first) return first;
      if (!column) return (one.margin ? one.margin.middle : 99) - (other.margin ? other.margin.middle : 99) || one.index - other.index;
      return one.index - other.index;
    });
  }

  let listed = rows;

  function fillTable() {
    const [, , keep] = filterOf(view.filter);
    listed = ordered(rows.filter((row) => keep(row) && view.words.every((word) => row.text.includes(word))));
    for (const [index, cell] of [...header.children].entries()) {
      if (shownColumns[index].key === view.sort) cell.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    body.replaceChildren(...listed.slice(0, view.most).map(tableRow));
    under.replaceChildren();
    if (!listed.length) under.append(el("p", { class: "empty" }, rows.length ? "Nothing fits." : "Nothing was measured."));
    if (listed.length > view.most) under.append(el("p", { class: "more-rows" }, el("button", { class: "plain-button", type: "button", onclick: () => { view.most = Infinity; fillTable(); } }, `Show all ${listed.length.toLocaleString("en")}`)));
    shownCount.textContent = listed.length === rows.length ? plural(rows.length, "row") : `${listed.length.toLocaleString("en")} of ${plural(rows.length, "row")}`;
    clear.classList.toggle("hidden", view.filter === "all" && !view.words.length);
  }

  function tableRow(row) {
    return el("tr", { "data-row": row.index, onclick: (event) => { if (!event.target.closest("a") && !String(getSelection())) location.hash = `#t/${row.index}`; } },
      shownColumns.map(({ key, name, right }) => {
        const inside = cellOf(key, row).filter((part) => part !== null && part !== "");
        return el("td", { class: `${key === "margin" ? "margin-cell" : key}${right ? " right" : ""}${inside.length ? "" : " blank"}`, "data-name": name }, inside);
      }));
  }

  function setFilter(name, scroll) {
    view.filter = name;
    view.most = 300;
    for (const tile of tiles.children) tile.setAttribute("aria-pressed", String(tile.dataset.filter === name));
    fillTable();
    if (scroll) tools.scrollIntoView({ block: "start" });
  }

  function fillTiles() {
    for (const [key, text, keep] of FILTERS) {
      const many = rows.filter(keep).length;
      if (!many && !ALWAYS.has(key) && !(content.baseline && WITH_BASELINE.has(key))) continue;
      if (key === "new" && !content.baseline) continue;
      tiles.append(el("button", { class: `tile tone-${key === "soft" || key === "unmeasured" ? "none" : key}${many ? "" : " zero"}`, type: "button", "data-filter": key, "aria-pressed": String(key === view.filter), onclick: () => setFilter(view.filter === key ? "all" : key) },
        el("b", {}, many.toLocaleString("en")), el("span", {}, key === "all" && rows.length !== content.tests.length ? `all, of ${plural(content.tests.length, "test")}` : text)));
    }
  }

  const MOST_LISTED = 5;

  function attention(key, title, sentence) {
    const found = rows.filter(filterOf(key)[2]).sort((a, b) => (key === "slower" ? b.change.ratio - a.change.ratio : key === "faster" ? a.change.ratio - b.change.ratio : (a.margin ? a.margin.middle : 0) - (b.margin ? b.margin.middle : 0)));
    if (!found.length) return null;
    return el("section", { class: `card tone-${key}` }, el("h2", {}, badgeFor(key, title), el("span", { class: "soft" }, plural(found.length, "measurement"))),
      el("ul", { class: "attention" }, found.slice(0, MOST_LISTED).map((row) => el("li", {},
        el("a", { class: "name", href: `#t/${row.index}` }, row.test.name), row.label ? el("span", { class: "soft" }, ` ${row.label}`) : "",
        el("p", { title: sentence(row) }, sentence(row))))),
      found.length > MOST_LISTED ? el("button", { class: "link-button", type: "button", onclick: () => setFilter(key, true) }, `and ${found.length - MOST_LISTED} more`) : null);
  }
  const badgeFor = (key, title) => el("span", { class: "badge" }, el("i", { "aria-hidden": "true" }, (STATUS[key] || { mark: key === "slower" ? "▲" : "▼" }).mark), title);

  function worstSentence(row) {
    const all = [...row.limits, ...(row.reference ? row.reference.verdicts || [] : [])];
    const worst = all.find((v) => v.outcome === row.status) || all[0];
    return worst ? worst.sentence : "";
  }
  function changeSentence(row) {
    const { item, change } = row, base = item.base;
    const range = change.interval ? ` [${change.interval.map(signed).join(", ")}]` : "";
    const values = change.of === "speedup" && item.speedup && known(base.ratio) ? `speedup: ${times(base.ratio)} → ${times(item.speedup.ratio)}` : `median: ${time(base.median)} → ${time(item.median)}`;
    return `time ${signed(change.ratio)}${range}, by its ${values}`;
  }

  const tools = el("div", { class: "tools" }, search, sortSelect, clear, shownCount);

  function baselineText(run) {
    return [run.name, run.commit + (run.dirty ? " (dirty)" : ""), when(run.when)].filter(Boolean).join(", ");
  }

  function buildFront() {
    const facts = [...content.facts, ["Date", when(content.datetime)]];
    if (content.baseline) facts.push(["Baseline", baselineText(content.baseline)]);
    const sections = [
      attention("invalid", "Invalid", worstSentence), attention("fail", "Failed", worstSentence), attention("inconclusive", "Uncertain", worstSentence),
      attention("slower", "Slower than the baseline", changeSentence), attention("faster", "Faster than the baseline", changeSentence),
      content.gone.length ? el("section", { class: "card" }, el("h2", {}, "Gone since the baseline", el("span", { class: "soft" }, plural(content.gone.length, "test"))),
        el("ul", { class: "lines" }, content.gone.slice(0, MOST_LISTED).map((id) => el("li", {}, id)), content.gone.length > MOST_LISTED ? el("li", { class: "soft" }, `and ${content.gone.length - MOST_LISTED} more`) : null)) : null,
      content.foreign.length ? el("section", { class: "card" }, el("h2", {}, "Not compared"), el("p", { class: "soft" }, `The baseline has no measurements on ${content.foreign.join(", ")}.`)) : null,
    ].filter(Boolean);
    const nothing = !sections.length && rows.length ? el("p", { class: "calm" }, content.baseline ? "✓ Nothing failed, nothing is uncertain, nothing changed." : "✓ Nothing failed, and nothing is uncertain.") : null;
    fillTiles();
    header.append(...shownColumns.map(({ key, name, right }) => el("th", { scope: "col", class: right ? "right" : "" }, el("button", { type: "button", "data-sort": key, onclick: () => sortBy(key, true) }, name))));
    front.append(
      el("h1", { class: "sr" }, content.title),
      el("dl", { class: "facts" }, facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
      tiles, el("div", { class: "panels" }, sections, nothing ? el("div", { class: "card" }, nothing) : null), tools,
      el("div", { class: "table-box" }, el("table", { class: "results" }, el("caption", { class: "sr" }, "All measurements"), el("thead", {}, header), body), under),
      el("details", { class: "more" }, el("summary", {}, "Machine and options"), pairList([...content.machine, ...content.settings, ["pytest-gpubench", content.version]])));
    fillTable();
  }
  const pairList = (pairs) => el("dl", { class: "pairs" }, pairs.filter(([, text]) => text).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));

  // ---- one test

  function limitOf(item, kind) {
    return (item.verdicts || []).find((v) => v.kind === kind && known(v.value) && v.value > 0) || null;
  }

  function speedupCard(item, status) {
    const speed = item.speedup;
    if (!speed || !known(speed.ratio)) return null;
    const limit = limitOf(item, "min_speedup"), base = item.base || {};
    const ends = speed.interval || [speed.ratio, speed.ratio];
    const all = [1, ...ends, ...(limit ? [limit.value] : []), ...(base.ratio_interval || (known(base.ratio) ? [base.ratio] : []))].filter((v) => v > 0).map(Math.log);
    let low = Math.min(...all), high = Math.max(...all);
    const room = Math.max(0.02, (high - low) * 0.14);
    low -= room; high += room;
    const place = (ratio) => 100 * (Math.log(ratio) - low) / (high - low);
    const ticks = niceTicks(Math.exp(low), Math.exp(high), innerWidth < 500 ? 4 : 7);
    const text = `${times(speed.ratio)} ${between(speed.interval)}`;
    return el("section", { class: `card tone-${limit ? statusOf(status).tone : "all"}` },
      el("div", { class: "big" }, el("b", {}, times(speed.ratio)), el("span", { class: "soft number" }, `${between(speed.interval) || "no interval: too few quads"} as fast as ${speed.reference}`)),
      el("div", { class: "scale", role: "img", "aria-label": text },
        limit ? el("span", { class: "good", style: { left: `${place(limit.value)}%` } }) : null, el("span", { class: "axis" }),
        ticks.map((tick) => el("span", { class: "tick", style: { left: `${place(tick)}%` } }, el("span", {}, `${Number(tick.toPrecision(6))}×`))),
        base.ratio_interval ? el("span", { class: "older", title: `baseline ${times(base.ratio)} ${between(base.ratio_interval)}`, style: { left: `${place(base.ratio_interval[0])}%`, width: `max(3px, ${place(base.ratio_interval[1]) - place(base.ratio_interval[0])}%)` } }) : null,
        el("span", { class: "span", style: { left: `${place(ends[0])}%`, width: `${place(ends[1]) - place(ends[0])}%` } }), el("span", { class: "point", style: { left: `${place(speed.ratio)}%` } }),
        limit ? el("span", { class: "limit-line", style: { left: `${place(limit.value)}%` } }, el("span", {}, `limit ${limit.text}`)) : null),
      el("p", { class: "soft" }, `${plural(speed.quads, "quad")}, alpha ${speed.alpha}, seed ${speed.seed}${base.ratio_interval ? "; below the line, the baseline" : ""}`));
  }

  function niceTicks(low, high, most) {
    const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((each) => (high - low) / each <= most) || high - low;
    const ticks = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high && ticks.length < 20; tick += step) if (tick > 0) ticks.push(tick);
    return ticks;
  }

  function armsTable(test, item, reference) {
    const arms = [[item, item.label, "candidate"]];
    if (reference) arms.push([reference, reference.label, "reference"]);
    const base = item.base && known(item.base.median) ? item.base : null;
    if (base) arms.push([{ median: base.median, interval: base.interval, reps: base.reps, clock: base.clock }, "baseline", "older"]);
    const first = arms.find(([arm]) => known(arm.median));
    if (!first) return item.why ? el("section", { class: "card" }, el("h2", {}, "Not measured"), el("p", {}, item.why)) : null;
    const unit = unitOf(first[0].median);
    const rowsOf = [
      ["median", (arm) => time(arm.median, unit)], ["95 % interval", (arm) => (arm.interval ? between(arm.interval, unit[1]) : "")],
      ["quartiles", (arm) => (arm.quartiles ? `${digits(arm.quartiles[0] / unit[1])} – ${digits(arm.quartiles[2] / unit[1])}` : "")],
      ["min – max", (arm) => (known(arm.min) ? `${digits(arm.min / unit[1])} – ${digits(arm.max / unit[1])}` : "")],
      ["relative std", (arm) => (known(arm.rel_std) ? percent(arm.rel_std) : "")], ["reps", (arm) => (arm.reps ? String(arm.reps) : "")],
      ["bandwidth", (arm) => (known(arm.gbps) ? `${digits(arm.gbps)} GB/s` : "")], ["arithmetic", (arm) => (known(arm.tflops) ? `${digits(arm.tflops)} TFLOP/s` : "")],
      ["kernels, copies", (arm) => (arm.launches ? String(arm.launches) : "")],
      ["first to last", (arm) => (known(arm.span) ? time(arm.span, unit) : "")],
      ["SM clock", (arm) => (known(arm.clock) ? `${Math.round(arm.clock)} MHz` : "")],
      ["throttled", (arm) => (arm.throttled || []).join(", ")], ["notes", (arm) => (arm.notes || []).join(", ")],
    ].map(([name, text]) => [name, arms.map(([arm]) => text(arm))]).filter(([, texts]) => texts.some(Boolean));
    return el("section", { class: "card" }, el("table", { class: "arms" },
      el("thead", {}, el("tr", {}, el("th", {}, ""), arms.map(([, label, tone]) => el("th", { scope: "col" }, el("span", { class: "key", style: { background: `var(--${tone})` } }), label)))),
      el("tbody", {}, rowsOf.map(([name, texts]) => el("tr", {}, el("td", {}, name), texts.map((text) => el("td", {}, text || "–")))))));
  }

  function sentencesCard(test, item, reference) {
    const verdicts = [...(item.verdicts || []), ...(reference ? reference.verdicts || [] : [])];
    const blocks = [];
    if (verdicts.length) blocks.push(el("ul", { class: "sentences" }, verdicts.map((v) => el("li", { class: `tone-${statusOf(v.outcome).tone}` }, el("i", { "aria-hidden": "true" }, statusOf(v.outcome).mark), el("span", { class: "sr" }, `${statusOf(v.outcome).text}: `), v.sentence, " ", el("small", {}, v.limit, v.enforced ? "" : ", not enforced")))));
    if (item.base && (item.base.change || item.base.new)) {
      const word = item.base.new ? "" : item.base.change.word;
      blocks.push(section("Against the baseline", el("p", { class: word ? `tone-${word}` : "" }, item.base.new ? "Not in the baseline." : el("span", { class: word ? "delta sure" : "", style: { "white-space": "normal" } }, changeSentence({ item, change: item.base.change }), word ? ` (${word})` : ""))));
    }
    if (item.differences) blocks.push(section("Outputs against the reference's", el("ul", { class: "lines" }, item.differences.map((line) => el("li", {}, line)))));
    if (test.warnings.length) blocks.push(section("Warnings", el("ul", { class: "lines" }, test.warnings.map((line) => el("li", {}, line)))));
    return blocks.length ? el("section", { class: "card" }, blocks.map((block) => el("div", { class: "block" }, block))) : null;
  }
  const section = (title, ...inside) => [el("h3", {}, title), ...inside];

  function switches(row, test, place) {
    const choices = [];
    test.items.forEach((item, index) => { if (item.role !== "reference" || index === place) choices.push([index, item]); });
    if (choices.length < 2) return null;
    const go = (index) => { location.hash = `#t/${row.index}/${index}`; };
    const labels = [...new Set(choices.map(([, item]) => item.label))];
    const current = test.items[place];
    const same = choices.filter(([, item]) => item.label === current.label);
    return el("div", { class: "switch" },
      labels.length > 1 ? el("label", {}, "Function", el("select", { onchange: (event) => go(choices.find(([, item]) => item.label === event.target.value)[0]) }, labels.map((label) => el("option", { value: label, selected: label === current.label }, label)))) : null,
      same.length > 1 ? el("label", {}, current.example ? "Example" : "Measurement", el("select", { onchange: (event) => go(Number(event.target.value)) },
        same.map(([index, item], nth) => el("option", { value: index, selected: index === place }, `${item.example || `no. ${nth + 1}`}${item.speedup ? ` · ${times(item.speedup.ratio)}` : known(item.median) ? ` · ${time(item.median)}` : ""}`)))) : null);
  }

  function openTest(index, chosenItem) {
    const row = rows[index], test = row.test;
    const place = Number.isInteger(chosenItem) && test.items[chosenItem] ? chosenItem : row.itemIndex;
    const item = place === null ? null : test.items[place];
    const reference = item && known(item.ref) ? test.items[item.ref] : null;
    forgetFigures();
    const outcomes = item ? [...(item.verdicts || []), ...(reference ? reference.verdicts || [] : [])] : [];
    const status = place === row.itemIndex ? row.status : outcomes.length ? outcomes.map((v) => v.outcome).sort((a, b) => statusOf(a).rank - statusOf(b).rank)[0] : "measured";
    const at = listed.indexOf(row);
    stepper.classList.remove("hidden");
    stepper.replaceChildren(stepButton("‹", "Previous", listed[at - 1]), " ", stepButton("›", "Next", at >= 0 ? listed[at + 1] : null));
    opened.replaceChildren(
      el("div", { class: "head" }, el("p", { class: "path" }, el("a", { href: "#", id: "back" }, "← All tests"), test.file ? `  ·  ${test.file}` : ""),
        el("div", { class: "line" }, el("h1", {}, test.name), badge(status, place === row.itemIndex && row.soft)),
        el("div", { class: "chips" }, Object.entries(test.params).map(([name, value]) => el("span", { class: "chip" }, `${name}=${value}`)),
          item && item.example ? el("span", { class: "chip" }, item.example) : null, item ? el("span", { class: "chip" }, `${item.timer}, ${item.cache}`) : null, severalDevices ? el("span", { class: "chip" }, test.device) : null),
        item ? switches(row, test, place) : null),
      item ? el("div", { class: "hero" }, el("div", {}, speedupCard(item, status), sentencesCard(test, item, reference)), el("div", {}, armsTable(test, item, reference))) : el("p", { class: "card" }, "This test measured nothing.", test.warnings.map((line) => el("p", {}, line))),
      el("div", { class: "figures" }, item ? figuresOf(row, test, item, reference) : null),
      el("details", { class: "more" }, el("summary", {}, "Device and extra information"), pairList([...test.facts, ...test.extra, ["full name", test.id]])));
    front.classList.add("hidden");
    opened.classList.remove("hidden");
    document.title = `${test.name} · ${content.title}`;
    scrollTo(0, 0);
    opened.focus({ preventScroll: true });
    watchFigures();
  }
  function stepButton(mark, title, row) {
    return el("button", { class: "plain-button", type: "button", title, "aria-label": title, disabled: !row, onclick: () => { if (row) location.hash = `#t/${row.index}`; } }, mark);
  }

  function showFront() {
    forgetFigures();
    opened.classList.add("hidden");
    opened.replaceChildren();
    stepper.classList.add("hidden");
    front.classList.remove("hidden");
    document.title = content.title;
    scrollTo(0, frontScroll);
    const link = lastOpened === null ? null : body.querySelector(`[data-row="${lastOpened}"] a`);
    if (link) link.focus({ preventScroll: true });
  }

  // ---- figures: drawn by plotly, which is read when the first is in view

  let figures = [];
  let watcher = null;
  let ready = false;

  function loadPlotly() {
    if (ready) return;
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
    ready = true;
  }
  // what plotly would take for markup or for an entity is written as entities
  const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text, most = 46) => { const all = [...String(text)]; return safe(all.length > most ? `${all.slice(0, most - 1).join("")}…` : text); };
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const faded = (value, share) => {
    const parts = /^#(..)(..)(..)$/.exec(value);
    return parts ? `rgba(${parts.slice(1).map((part) => parseInt(part, 16)).join(",")},${share})` : value;
  };

  function forgetFigures() {
    if (watcher) watcher.disconnect();
    for (const figure of figures) if (figure.drawn) Plotly.purge(figure.plot);
    figures = [];
  }
  function watchFigures() {
    watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        watcher.unobserve(entry.target);
        draw(figures.find((figure) => figure.plot === entry.target));
      }
    }, { rootMargin: "300px" });
    for (const figure of figures) watcher.observe(figure.plot);
  }
  function draw(figure) {
    if (!figure) return;
    loadPlotly();
    const { data, layout } = figure.make();
    Plotly.react(figure.plot, data, { ...baseLayout(figure.height), ...layout }, {
      responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset", scrollZoom: false, showSendToCloud: false,
    });
    figure.drawn = true;
  }
  function redraw() { for (const figure of figures) if (figure.drawn) draw(figure); }
  const axis = (more) => ({ gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"), tickcolor: colour("line"), automargin: true, ticks: "", exponentformat: "power", ...more });
  const titled = (text, more) => axis({ title: { text, standoff: 8 }, ...more });
  function baseLayout(height) {
    return {
      height, margin: { l: 50, r: 12, t: 12, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("text"), size: 12 }, align: "left", namelength: 0 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } }, dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      showlegend: false, hovermode: "closest", colorway: PALETTE(),
    };
  }
  const PALETTE = () => (root.dataset.theme === "dark"
    ? ["#6aa5ff", "#f0a94a", "#58c7a5", "#e886b3", "#b79af0", "#d5cf5f", "#7fd0e8", "#f2856f", "#9fb36a", "#c3a68c"]
    : ["#2563c9", "#c47a0a", "#168f74", "#b8437b", "#7a5bb5", "#8a8412", "#1b86a8", "#c4472c", "#5d7a26", "#8a6747"]);

  // a card with a figure: make() says what to draw, and is asked again when a choice or the theme changes
  function figureCard(title, height, make, { wide = false, note = "", choices = null, extra = null, name = "" } = {}) {
    const plot = el("div", { class: "plot", style: { "min-height": `${height}px` } });
    const noteLine = el("p", { class: "note" });
    const figure = { plot, height, drawn: false, make: null };
    const state = { choice: choices ? choices.chosen : null };
    figure.make = () => { const made = make(state.choice); noteLine.textContent = [made.note, note].filter(Boolean).join(" "); return made; };
    figures.push(figure);
    const select = choices && choices.options.length > 1 ? el("select", { "aria-label": `${title}: over`, onchange: (event) => { state.choice = event.target.value; draw(figure); } },
      choices.options.map((option) => el("option", { value: option, selected: option === choices.chosen }, `over ${option}`))) : null;
    return el("figure", { class: `card figure${wide ? " wide" : ""}`, "data-figure": name || title }, el("div", { class: "top" }, el("h2", {}, title), select), plot, noteLine, extra);
  }

  function figuresOf(row, test, item, reference) {
    return [samplesFigure(item, reference), quadsFigure(item), kernelsFigure(item, reference), examplesFigure(test, item), sweepFigure(row, item),
      rooflineFigure(row, test, item, reference), clocksFigure(item, reference), historyFigure(item)].filter(Boolean);
  }

  const steps = (values, step) => values.map((_, index) => index * (step || 1) + 1);
  const sorted = (values) => values.filter(known).sort((a, b) => a - b);
  const quantile = (ordered, share) => ordered[Math.round(share * (ordered.length - 1))];

  // where most samples are: one that lasts very much longer is drawn at the edge
  function usualRange(values) {
    const all = sorted(values);
    if (!all.length) return [0, 1];
    const first = quantile(all, 0.25), third = quantile(all, 0.75);
    const reach = Math.max(8 * (third - first), 0.01 * Math.abs(third));
    const low = Math.max(all[0], first - reach), high = Math.min(all[all.length - 1], third + reach);
    const room = 0.06 * (high - low) || 0.01 * Math.abs(high) || 1;
    return [low - room, high + room];
  }

  function samplesFigure(item, reference) {
    const arms = [[item, "candidate"], [reference, "reference"]].filter(([arm]) => arm && arm.samples && arm.samples.length);
    if (!arms.length) return null;
    return figureCard("Samples", arms.length > 1 ? 430 : 290, () => {
      const data = [], layout = { annotations: [], shapes: [], bargap: 0.04, margin: { l: 56, r: 10, t: 24, b: 40 }, hovermode: "closest" };
      let beyond = 0, thinned = 1;
      const axisNames = [["x", "y", "x3"], ["x2", "y2", "x4"]];
      const most = Math.max(...arms.map(([arm]) => arm.reps));
      arms.forEach(([arm, tone], nth) => {
        const unit = unitOf(arm.median), paint = colour(tone), values = arm.samples.map((v) => (known(v) ? v / unit[1] : null));
        const base = nth === 0 && item.base && item.base.quantiles && item.base.quantiles.length ? item.base.quantiles.map((v) => v / unit[1]) : [];
        const ranges = [usualRange(values), ...(base.length ? [usualRange(base)] : [])];
        const low = Math.min(...ranges.map(([end]) => end)), high = Math.max(...ranges.map(([, end]) => end));
        const [xAxis, yAxis, sideAxis] = axisNames[nth];
        const height = 1 / arms.length, top = 1 - nth * height, bottom = top - height + (nth < arms.length - 1 ? 0.1 : 0);
        const domain = [Math.max(0, bottom), top], inset = 0.03 * (high - low);
        const far = values.map((v) => known(v) && (v > high || v < low));
        beyond += far.filter(Boolean).length; thinned = Math.max(thinned, arm.step || 1);
        data.push({
          type: "scatter", mode: "markers", x: steps(values, arm.step), y: values.map((v, i) => (far[i] ? (v > high ? high - inset : low + inset) : v)), xaxis: xAxis, yaxis: yAxis,
          marker: { line: { width: 0 }, color: paint, size: far.map((f) => (f ? 8 : values.length > 400 ? 3.5 : 5)), opacity: 0.8, symbol: far.map((f, i) => (f ? (values[i] > high ? "triangle-up" : "triangle-down") : "circle")) },
          text: values.map((v) => `${digits(v, 5)} ${unit[0]}`), hovertemplate: "rep %{x}: %{text}<extra></extra>",
        });
        const inside = values.filter((v, i) => known(v) && !far[i]), size = (high - low) / 36;
        data.push({ type: "histogram", y: inside, xaxis: sideAxis, yaxis: yAxis, histnorm: "probability", ybins: { start: low, end: high, size }, marker: { color: faded(paint, 0.75) }, hovertemplate: "%{y}: %{x:.0%}<extra></extra>" });
        if (base.length) data.push({ type: "histogram", y: base.filter((v) => v >= low && v <= high), xaxis: sideAxis, yaxis: yAxis, histnorm: "probability", ybins: { start: low, end: high, size }, marker: { color: "rgba(0,0,0,0)", line: { color: colour("older"), width: 1.3 } }, hovertemplate: "baseline %{y}: %{x:.0%}<extra></extra>" });
        const suffix = nth ? "2" : "";
        layout[`xaxis${suffix}`] = nth === arms.length - 1 ? titled("rep", { domain: [0, 0.74], anchor: yAxis, range: [0, most + 1], zeroline: false }) : axis({ domain: [0, 0.74], anchor: yAxis, range: [0, most + 1], showticklabels: false, zeroline: false });
        layout[`yaxis${suffix}`] = titled(unit[0], { domain, range: [low, high], zeroline: false, anchor: xAxis });
        layout[`xaxis${sideAxis.slice(1)}`] = axis({ domain: [0.76, 1], anchor: yAxis, showticklabels: false, showgrid: false, zeroline: false });
        layout.annotations.push({ xref: "paper", yref: "paper", x: 0, y: domain[1], yanchor: "bottom", xanchor: "left", showarrow: false, text: short(arm.label), font: { color: paint, size: 12 } });
        layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: yAxis, y0: arm.median / unit[1], y1: arm.median / unit[1], line: { color: paint, width: 1.3 } });
        if (arm.interval) layout.shapes.push({ type: "rect", xref: "paper", x0: 0, x1: 0.74, yref: yAxis, y0: arm.interval[0] / unit[1], y1: arm.interval[1] / unit[1], fillcolor: faded(paint, 0.18), line: { width: 0 }, layer: "below" });
        const limit = limitOf(arm, "max_time_us");
        if (limit) layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: yAxis, y0: limit.value / unit[1], y1: limit.value / unit[1], line: { color: colour("text"), width: 1.3, dash: "dash" } });
      });
      layout.barmode = "overlay";
      const note = ["Left in the order they were taken, right as a distribution; line and band: the median and its 95 % interval."];
      if (item.base && item.base.quantiles && item.base.quantiles.length) note.push("Outlined: the baseline.");
      if (limitOf(item, "max_time_us")) note.push("Dashed: the limit.");
      if (beyond) note.push(`${plural(beyond, "sample")} beyond the edge (triangles).`);
      if (thinned > 1) note.push(`One sample in ${thinned} is drawn.`);
      return { data, layout, note: note.join(" ") };
    }, { wide: true, name: "samples" });
  }

  function quadsFigure(item) {
    const speed = item.speedup;
    if (!speed || !speed.ratios || !speed.ratios.length) return null;
    return figureCard("Speedup, quad by quad", 290, () => {
      const limit = limitOf(item, "min_speedup"), paint = colour("candidate");
      const shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: speed.ratio, y1: speed.ratio, line: { color: paint, width: 1.5 } }];
      if (speed.interval) shapes.push({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: speed.interval[0], y1: speed.interval[1], fillcolor: faded(paint, 0.2), line: { width: 0 }, layer: "below" });
      const annotations = [];
      const [low, high] = usualRange(speed.ratios);
      let range = [Math.min(low, ...(speed.interval || [])), Math.max(high, ...(speed.interval || []))];
      if (limit) {
        const reach = 1.6 * (range[1] - range[0]);
        if (limit.value > range[0] - reach && limit.value < range[1] + reach) range = [Math.min(range[0], limit.value - 0.05 * reach), Math.max(range[1], limit.value + 0.05 * reach)];
        const shown = limit.value >= range[0] && limit.value <= range[1];
        if (shown) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit.value, y1: limit.value, line: { color: colour("text"), width: 1.5, dash: "dash" } });
        annotations.push({ xref: "paper", x: 1, bgcolor: colour("card"), xanchor: "right", showarrow: false, font: { color: colour("text"), size: 11.5 },
          ...(shown ? { y: limit.value, yanchor: limit.value > speed.ratio ? "bottom" : "top" } : { yref: "paper", y: limit.value < range[0] ? 0 : 1, yanchor: limit.value < range[0] ? "bottom" : "top" }),
          text: `limit ${short(limit.text)}${shown ? "" : limit.value < range[0] ? " ↓" : " ↑"}` });
      }
      const clipped = speed.ratios.map((v) => (known(v) ? Math.max(range[0], Math.min(range[1], v)) : null));
      return {
        data: [{ type: "scatter", mode: "markers", x: steps(speed.ratios, speed.step), y: clipped, text: speed.ratios.map((v) => times(v)), marker: { color: paint, opacity: 0.75, size: 5, symbol: speed.ratios.map((v) => (v > range[1] ? "triangle-up" : v < range[0] ? "triangle-down" : "circle")) }, hovertemplate: "quad %{x}: %{text}<extra></extra>" }],
        layout: { xaxis: titled("quad", { zeroline: false, range: [0, speed.quads + 1] }), yaxis: titled("speedup", { range, ticksuffix: "×", zeroline: false }), shapes, annotations },
        note: "A quad is two calls of each arm, one after the other. Line and band: the speedup and its interval.",
      };
    }, { name: "speedup" });
  }

  const KEPT_KERNELS = 9;

  function kernelsFigure(item, reference) {
    const arms = [[item, item.label]];
    if (item.base && item.base.kernels && item.base.kernels.length) arms.push([item.base, `${item.label}, baseline`]);
    if (reference) arms.push([reference, reference.label]);
    const shown = arms.filter(([arm]) => arm.kernels && arm.kernels.length);
    if (!shown.length) return null;
    const totals = new Map(), kinds = new Map();
    for (const [arm] of shown) for (const [name, kind, , us] of arm.kernels) { totals.set(name, Math.max(totals.get(name) || 0, us || 0)); kinds.set(name, kind); }
    const names = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a));
    const kept = names.slice(0, KEPT_KERNELS), rest = names.slice(KEPT_KERNELS);
    const ofArm = (arm, name) => arm.kernels.filter((kernel) => kernel[0] === name).reduce((sum, kernel) => sum + (kernel[3] || 0), 0);
    const unit = unitOf(Math.max(...shown.map(([arm]) => arm.kernels.reduce((sum, kernel) => sum + (kernel[3] || 0), 0))));
    const keys = [];
    const list = el("table", { class: "kernel-list" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "kernel"), shown.map(([, label]) => el("th", { scope: "col" }, el("span", { class: "clip" }, label))))),
      el("tbody", {}, names.slice(0, 20).map((name, nth) => {
        const key = el("span", { class: "key" });
        keys.push([key, Math.min(nth, KEPT_KERNELS)]);
        return el("tr", {}, el("td", { title: content.kernels[name].at(-1) }, key, content.kernels[name][0], kinds.get(name) === "kernel" ? "" : ` (${kinds.get(name)})`), shown.map(([arm]) => {
          const launches = arm.kernels.filter((kernel) => kernel[0] === name).reduce((sum, kernel) => sum + kernel[2], 0);
          return el("td", {}, launches ? time(ofArm(arm, name), unit) : "–", launches > 1 ? el("span", { class: "soft" }, ` (${launches}×)`) : "");
        }));
      }), names.length > 20 ? el("tr", {}, el("td", {}, `and ${names.length - 20} more`), shown.map(() => el("td", {}, ""))) : null));
    return figureCard("Kernels of one call", 84 + 40 * shown.length, () => {
      const paints = [...PALETTE().slice(2), ...PALETTE()].slice(0, KEPT_KERNELS).concat(colour("none"));
      for (const [key, nth] of keys) key.style.background = paints[nth];
      const labels = shown.map(([, label], nth) => `${short(label, innerWidth < 600 ? 16 : 28)}${"\u200b".repeat(nth)}`);
      const series = kept.map((name) => [content.kernels[name][0], shown.map(([arm]) => ofArm(arm, name))]);
      if (rest.length) series.push([`${rest.length} others`, shown.map(([arm]) => rest.reduce((sum, name) => sum + ofArm(arm, name), 0))]);
      return {
        data: series.map(([name, us], nth) => ({ type: "bar", orientation: "h", y: labels, x: us.map((v) => v / unit[1]), text: us.map((v) => `${short(name, 70)}<br>${time(v, unit)}`), textposition: "none", hovertemplate: "%{text}<extra></extra>", marker: { color: paints[nth], line: { color: colour("card"), width: 1 } } })),
        layout: { barmode: "stack", bargap: 0.35, xaxis: titled(unit[0], { rangemode: "tozero" }), yaxis: axis({ autorange: "reversed", showgrid: false, type: "category" }), margin: { l: 20, r: 12, t: 4, b: 40 } },
      };
    }, { extra: list, name: "kernels" });
  }

  const spread = (values) => { const all = values.filter((v) => known(v) && v > 0); return all.length > 1 && all.length === values.filter(known).length ? Math.max(...all) / Math.min(...all) : 1; };
  // a logarithmic axis where values are far apart, with whole labels at 1, 2 and 5, or at powers of ten
  function scaleOf(values) {
    const above = values.filter((v) => known(v) && v > 0);
    return spread(values) > 20 ? logScale(Math.min(...above), Math.max(...above)) : { type: "linear", exponentformat: "SI" };
  }
  function logScale(least, most) {
    const low = Math.log10(least), high = Math.log10(most), room = 0.04 * (high - low) || 0.1;
    const marks = high - low > 2.2 ? [1] : high - low > 1.2 ? [1, 3] : [1, 2, 5];
    const tickvals = [];
    for (let power = Math.floor(low - room); power <= high + room; power += 1) for (const mark of marks) tickvals.push(mark * 10 ** power);
    return { type: "log", range: [low - room, high + room], tickvals, ticktext: tickvals.map(inThousands) };
  }
  function inThousands(value) {
    const [scale, letter] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([each]) => value >= each * 0.9999999) || [1, ""];
    return `${Number((value / scale).toPrecision(4))}${letter}`;
  }

  function rateOf(items) {
    if (items.some((item) => known(item.tflops)) && items.some((item) => item.flops && item.bytes && item.flops / item.bytes > 60)) return ["tflops", "TFLOP/s"];
    if (items.some((item) => known(item.gbps))) return ["gbps", "GB/s"];
    return items.some((item) => known(item.tflops)) ? ["tflops", "TFLOP/s"] : null;
  }

  // panels over one x: time, rate, speedup; as many as there is something to say of
  function overFigure(series, xName, xValues, limit, mode) {
    const marks = [...new Set(xValues)].sort((a, b) => a - b);
    const xScale = { ...scaleOf(xValues), ...(mode === "lines" && marks.length <= 8 ? { tickvals: marks, ticktext: marks.map((mark) => String(Number(mark.toPrecision(6)))) } : {}) };
    const items = series.flatMap(({ points }) => points.map(({ item }) => item));
    const rate = rateOf(items);
    const unit = unitOf(quantile(sorted(items.map((item) => item.median)), 0.5));
    const panels = [{ name: unit[0], title: "time", of: (item) => item.median / unit[1], ends: (item) => item.interval && item.interval.map((v) => v / unit[1]), text: (item) => time(item.median) }];
    if (rate) panels.push({ name: rate[1], title: "rate", of: (item) => item[rate[0]], text: (item) => `${digits(item[rate[0]])} ${rate[1]}` });
    if (items.some((item) => item.speedup)) panels.push({ name: "speedup", title: "speedup", of: (item) => (item.speedup ? item.speedup.ratio : null), ends: (item) => item.speedup && item.speedup.interval, text: (item) => (item.speedup ? `${times(item.speedup.ratio)} ${between(item.speedup.interval)}` : "") });
    const data = [], layout = { margin: { l: 58, r: 12, t: 30, b: 44 }, showlegend: series.length > 1, shapes: [], annotations: [] };
    const narrow = innerWidth < 700, gap = 0.075;
    panels.forEach((panel, nth) => {
      const suffix = nth ? String(nth + 1) : "", width = (1 - gap * (panels.length - 1)) / panels.length, height = (1 - 0.1 * (panels.length - 1)) / panels.length;
      const across = [nth * (width + gap), nth * (width + gap) + width], down = [1 - nth * (height + 0.1) - height, 1 - nth * (height + 0.1)];
      const values = [];
      for (const { name, points, tone, dash } of series) {
        const drawn = points.filter(({ item }) => known(panel.of(item)));
        if (!drawn.length) continue;
        values.push(...drawn.map(({ item }) => panel.of(item)));
        const ends = drawn.map(({ item }) => (panel.ends && panel.ends(item)) || [panel.of(item), panel.of(item)]);
        data.push({
          type: "scatter", mode: mode === "lines" ? "lines+markers" : "markers", name: short(name, 36), legendgroup: name, showlegend: nth === 0 || (panel.title === "speedup" && false), x: drawn.map(({ x }) => x), y: drawn.map(({ item }) => panel.of(item)), xaxis: `x${suffix}`, yaxis: `y${suffix}`,
          marker: { color: tone, size: drawn.map(({ here }) => (here ? 11 : 6)), line: { color: colour("text"), width: drawn.map(({ here }) => (here ? 1.5 : 0)) }, opacity: mode === "lines" ? 1 : 0.8 }, line: { color: tone, width: 1.6, dash: dash || "solid" },
          error_y: { type: "data", symmetric: false, array: ends.map(([, high], i) => high - panel.of(drawn[i].item)), arrayminus: ends.map(([low], i) => panel.of(drawn[i].item) - low), color: tone, thickness: 1, width: 2 },
          text: drawn.map(({ item, about }) => `${short(name)}<br>${short(about || "", 90)}<br>${safe(panel.text(item))}`), hovertemplate: "%{text}<extra></extra>",
        });
      }
      layout[`xaxis${suffix}`] = titled(short(xName), { domain: narrow ? [0, 1] : across, anchor: `y${suffix}`, ...xScale, zeroline: false, nticks: narrow ? 6 : 7, ...(narrow && nth < panels.length - 1 ? { title: { text: "" } } : {}) });
      layout[`yaxis${suffix}`] = axis({ domain: narrow ? down : [0, 1], anchor: `x${suffix}`, ...scaleOf(values), zeroline: false, rangemode: panel.title === "speedup" ? "normal" : "tozero", ticksuffix: panel.title === "speedup" ? "×" : "" });
      layout.annotations.push({ xref: "paper", yref: "paper", x: narrow ? 0 : across[0], y: narrow ? down[1] : 1, xanchor: "left", yanchor: "bottom", showarrow: false, text: panel.title === "speedup" ? "speedup" : `${panel.title}, ${panel.name}`, font: { size: 12, color: colour("text") } });
      if (panel.title === "speedup") for (const [value, dash] of [[1, "dot"], ...(limit ? [[limit.value, "dash"]] : [])]) layout.shapes.push({ type: "line", xref: `x${suffix} domain`, x0: 0, x1: 1, yref: `y${suffix}`, y0: value, y1: value, line: { color: colour(dash === "dash" ? "text" : "faint"), width: 1.2, dash } });
    });
    if (layout.showlegend) { layout.margin.t = 56; layout.legend = { orientation: "h", x: 0, y: 1.02, yref: "container", xanchor: "left", yanchor: "top", font: { size: 12 } }; layout.legend.y = 1; }
    return { data, layout, panels: panels.length };
  }
  const overHeight = (rates, series) => (innerWidth < 700 ? 210 * rates + 60 : 330) + (series > 4 ? 20 : 0);
  const panelCount = (items) => 1 + (rateOf(items) ? 1 : 0) + (items.some((item) => item.speedup) ? 1 : 0);

  function examplesFigure(test, item) {
    const mine = test.items.filter((each) => each.example && known(each.median) && each.label === item.label && each.role === item.role);
    const options = [...new Set(mine.flatMap((each) => Object.keys(each.sizes || {})))].filter((name) => new Set(mine.map((each) => each.sizes && each.sizes[name])).size > 1);
    if (mine.length < 2 || !options.length) return null;
    const chosen = options.includes(test.size) ? test.size : options[0];
    return figureCard(`Examples of @given (${mine.length})`, overHeight(panelCount(mine), 2), (size) => {
      const points = (list) => list.filter((each) => known(each.sizes[size])).map((each) => ({ x: each.sizes[size], item: each, about: each.example, here: each.example === item.example }));
      const with_sizes = mine.filter((each) => each.sizes);
      const references = with_sizes.filter((each) => known(each.ref) && known(test.items[each.ref].median)).map((each) => ({ ...test.items[each.ref], sizes: each.sizes, example: each.example, speedup: null }));
      const series = [{ name: item.label, points: points(with_sizes), tone: colour("candidate") }];
      if (references.length) series.unshift({ name: references[0].label, points: points(references), tone: colour("reference") });
      const made = overFigure(series, size, series.flatMap((one) => one.points.map(({ x }) => x)), limitOf(item, "min_speedup"), "markers");
      return { ...made, note: "The large marker is the example shown above. Dotted: as fast as the reference; dashed: the limit." };
    }, { wide: true, choices: { options, chosen }, name: "examples" });
  }

  const functionOf = (test) => test.id.split("[", 1)[0];
  const numeric = (text) => (/^-?\d+(\.\d+)?(e[-+]?\d+)?$/i.test(String(text).trim()) ? Number(text) : null);

  function sweepFigure(row, item) {
    if (item.example) return null;
    const siblings = rows.filter((each) => each.item && known(each.item.median) && !each.item.example && functionOf(each.test) === functionOf(row.test) && each.test.device === row.test.device);
    const options = Object.keys(row.test.params).filter((name) => siblings.every((each) => numeric(each.test.params[name]) !== null) && new Set(siblings.map((each) => each.test.params[name])).size > 1);
    if (siblings.length < 2 || !options.length) return null;
    const chosen = [...options].sort((a, b) => new Set(siblings.map((s) => s.test.params[b])).size - new Set(siblings.map((s) => s.test.params[a])).size)[0];
    return figureCard("Sweep", overHeight(panelCount(siblings.map((each) => each.item)), 4), (name) => {
      const groups = new Map(), references = new Map();
      const add = (map, key, point) => map.set(key, [...(map.get(key) || []), point]);
      for (const each of siblings) {
        const others = Object.entries(each.test.params).filter(([other]) => other !== name).map(([other, value]) => `${other}=${value}`).join(", ");
        const point = { x: numeric(each.test.params[name]), here: each.test === row.test && each.label === item.label, about: each.test.name };
        add(groups, [each.label, others].filter(Boolean).join(", "), { ...point, item: each.item });
        if (each.reference && known(each.reference.median)) add(references, [each.reference.label, others].filter(Boolean).join(", "), { ...point, here: false, item: { ...each.reference, speedup: null } });
      }
      const paints = [colour("candidate"), ...PALETTE().slice(2), colour("none")];
      const most = 8, all = [...groups].sort(([, a], [, b]) => b.some((p) => p.here) - a.some((p) => p.here)).slice(0, most);
      const series = all.map(([key, points], nth) => ({ name: key, points: points.sort((a, b) => a.x - b.x), tone: paints[nth % paints.length] }));
      if (groups.size === 1) for (const [key, points] of references) series.push({ name: key, points: points.sort((a, b) => a.x - b.x), tone: colour("reference") });
      const made = overFigure(series, name, series.flatMap((one) => one.points.map(({ x }) => x)), limitOf(item, "min_speedup"), "lines");
      return { ...made, note: `The same test with other parameters.${groups.size > most ? ` ${most} of ${groups.size} series are drawn.` : ""}` };
    }, { wide: true, choices: { options, chosen }, name: "sweep" });
  }

  const hasRoof = (item) => item && item.flops && item.bytes && known(item.tflops) && known(item.gbps);

  function rooflineFigure(row, test, item, reference) {
    const mine = [[item, "candidate"], [reference, "reference"]].filter(([arm]) => hasRoof(arm));
    if (!mine.length) return null;
    return figureCard("Roofline", 340, () => {
      const everybody = content.tests.filter((each) => each.device === test.device).flatMap((each) => each.items.filter(hasRoof).map((arm) => [arm, each]));
      const bandwidth = Math.max(...everybody.map(([arm]) => arm.gbps)), peak = Math.max(...everybody.map(([arm]) => arm.tflops));
      const place = (arm) => arm.flops / arm.bytes;
      const xs = everybody.map(([arm]) => place(arm)), ridge = 1e3 * peak / bandwidth;
      const low = Math.min(...xs, ridge) / 2, high = Math.max(...xs, ridge) * 2;
      const others = everybody.filter(([arm]) => !mine.some(([own]) => own === arm)).slice(0, 3000);
      const data = [
        { type: "scatter", mode: "lines", x: [low, ridge, high], y: [low * bandwidth / 1e3, peak, peak], line: { color: colour("soft"), width: 1.4, dash: "dash" }, hoverinfo: "skip" },
        { type: "scatter", mode: "markers", x: others.map(([arm]) => place(arm)), y: others.map(([arm]) => arm.tflops), marker: { color: faded(colour("none"), 0.35), size: 5 }, text: others.map(([arm, each]) => `${short(each.name, 60)}<br>${short(arm.label)}: ${digits(arm.tflops)} TFLOP/s, ${digits(arm.gbps)} GB/s`), hovertemplate: "%{text}<extra></extra>" },
        ...mine.map(([arm, tone]) => ({ type: "scatter", mode: "markers+text", x: [place(arm)], y: [arm.tflops], marker: { color: colour(tone), size: 11, line: { color: colour("card"), width: 1.5 } }, text: [short(arm.label, 24)], textposition: `${tone === "candidate" ? "top" : "bottom"} ${Math.log(place(arm) / low) > 0.6 * Math.log(high / low) ? "left" : "right"}`, textfont: { color: colour(tone) }, hovertext: [`${short(arm.label)}<br>${digits(arm.tflops)} TFLOP/s, ${digits(arm.gbps)} GB/s<br>${digits(place(arm))} FLOP/B`], hovertemplate: "%{hovertext}<extra></extra>" })),
      ];
      return {
        data, layout: { xaxis: titled("arithmetic intensity, FLOP/B", { ...logScale(low, high), zeroline: false }), yaxis: titled("TFLOP/s", { ...logScale(Math.min(...everybody.map(([arm]) => arm.tflops)) / 3, 2 * peak), zeroline: false }) },
        note: `Dashed: the most that any call of this run reached on this device, ${digits(bandwidth)} GB/s and ${digits(peak)} TFLOP/s; it is no datasheet. Grey: the other tests.`,
      };
    }, { name: "roofline" });
  }

  function clocksFigure(item, reference) {
    const arms = [[item, "candidate"], [reference, "reference"]].filter(([arm]) => arm && arm.clocks && arm.clocks.length);
    const reasons = [...new Set([item, reference].filter(Boolean).flatMap((arm) => arm.throttled || []))];
    if (!arms.length) return null;
    return figureCard("SM clock", 260, () => ({
      data: arms.map(([arm, tone]) => ({ type: "scatter", mode: "lines+markers", name: short(arm.label, 30), x: steps(arm.clocks, arm.clock_step), y: arm.clocks, line: { color: colour(tone), width: 1, shape: "hv" }, marker: { color: colour(tone), size: 3.5 }, hovertemplate: "rep %{x}: %{y} MHz<extra></extra>" })),
      layout: { xaxis: titled("rep", { zeroline: false, range: [0, Math.max(...arms.map(([arm]) => arm.reps)) + 1] }), yaxis: titled("MHz", { zeroline: false, exponentformat: "none", tickformat: "d", range: clockRange(arms.flatMap(([arm]) => arm.clocks)) }), showlegend: arms.length > 1, margin: { l: 56, r: 12, t: 30, b: 40 } },
      note: reasons.length ? `Throttled: ${reasons.join(", ")}.` : "No throttling was seen.",
    }), { name: "clocks" });
  }
  function clockRange(values) {
    const all = sorted(values), low = all[0], high = all[all.length - 1], least = 60;
    const room = Math.max(0.08 * (high - low), (least - (high - low)) / 2);
    return [low - room, high + room];
  }

  function historyFigure(item) {
    const past = item.past || [];
    if (!past.length || !known(item.median)) return null;
    const own = content.runs.length - 1;
    const points = [...past, [own, item.median, ...(item.interval || [null, null]), ...(item.speedup ? [item.speedup.ratio, ...(item.speedup.interval || [null, null])] : [])]];
    const withSpeed = points.some((point) => known(point[4]));
    return figureCard("History", withSpeed ? 400 : 290, () => {
      const unit = unitOf(item.median);
      const runOf = (number) => content.runs[number];
      const labels = points.map(([number]) => `${runOf(number).commit.slice(0, 7) || runOf(number).name || runOf(number).when.slice(0, 10)}${runOf(number).dirty ? "*" : ""}`);
      const panel = (at, scale, tone, axisName, text) => ({
        type: "scatter", mode: "lines+markers", x: points.map((_, nth) => nth), y: points.map((point) => (known(point[at]) ? point[at] / scale : null)), yaxis: axisName,
        line: { color: colour(tone), width: 1.5 }, marker: { size: points.map(([number]) => (number === own ? 10 : 6)), color: colour(tone) },
        error_y: { type: "data", symmetric: false, array: points.map((p) => (known(p[at + 2]) ? (p[at + 2] - p[at]) / scale : 0)), arrayminus: points.map((p) => (known(p[at + 1]) ? (p[at] - p[at + 1]) / scale : 0)), color: colour(tone), thickness: 1, width: 2 },
        text: points.map((point) => `${short([runOf(point[0]).name, runOf(point[0]).commit + (runOf(point[0]).dirty ? " (dirty)" : ""), runOf(point[0]).branch].filter(Boolean).join(", "))}<br>${short(when(runOf(point[0]).when))}<br>${text(point)}${runOf(point[0]).drivers.length ? `<br>driver ${short(runOf(point[0]).drivers.join(", "))}` : ""}`), hovertemplate: "%{text}<extra></extra>",
      });
      const every = Math.max(1, Math.ceil(points.length / (innerWidth < 700 ? 6 : 16)));
      const ticks = points.map((_, nth) => nth).filter((nth) => (points.length - 1 - nth) % every === 0);
      const data = [panel(1, unit[1], "candidate", "y", (p) => time(p[1]))];
      if (withSpeed) data.push(panel(4, 1, "older", "y2", (p) => `${times(p[4])} ${known(p[5]) ? between([p[5], p[6]]) : ""}`));
      const layout = {
        xaxis: axis({ tickvals: ticks, ticktext: ticks.map((nth) => short(labels[nth], 14)), tickangle: -40, zeroline: false, anchor: withSpeed ? "y2" : "y", range: [-0.5, points.length - 0.5] }),
        yaxis: titled(`median, ${unit[0]}`, { zeroline: false, domain: withSpeed ? [0.54, 1] : [0, 1] }), margin: { l: 58, r: 12, t: 10, b: 40 }, shapes: [],
      };
      if (withSpeed) {
        layout.yaxis2 = titled("speedup", { zeroline: false, domain: [0, 0.46], ticksuffix: "×" });
        const limit = limitOf(item, "min_speedup");
        if (limit) layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y2", y0: limit.value, y1: limit.value, line: { color: colour("text"), width: 1.2, dash: "dash" } });
      }
      return { data, layout, note: `${plural(points.length, "run")}, oldest first, by commit; the last is this one.${points.some(([number]) => runOf(number).dirty) ? " * files differed from the commit." : ""}${withSpeed && limitOf(item, "min_speedup") ? " Dashed: the limit." : ""}` };
    }, { wide: points.length > 8, name: "history" });
  }

  // ---- where we are, keys, print

  let frontScroll = 0;
  let lastOpened = null;

  function route() {
    const match = /^#t\/(\d+)(?:\/(\d+))?$/.exec(location.hash);
    if (match && rows[Number(match[1])]) {
      if (opened.classList.contains("hidden")) frontScroll = scrollY;
      lastOpened = Number(match[1]);
      openTest(lastOpened, match[2] === undefined ? null : Number(match[2]));
    } else showFront();
  }
  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => {
    const typing = event.target.closest && event.target.closest("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (typing && typing.value && typing === search) { search.value = ""; search.dispatchEvent(new Event("input")); } else if (!opened.classList.contains("hidden")) location.hash = "#";
      return;
    }
    if (typing) return;
    if (event.key === "/" && opened.classList.contains("hidden")) { event.preventDefault(); search.focus(); }
    if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && !opened.classList.contains("hidden")) {
      const button = stepper.children[event.key === "ArrowLeft" ? 0 : 1];
      if (button) button.click();
    }
  });
  let beforePrint = null;
  addEventListener("beforeprint", () => { beforePrint = root.dataset.theme; root.dataset.theme = "light"; for (const figure of figures) draw(figure); });
  addEventListener("afterprint", () => { if (beforePrint) { root.dataset.theme = beforePrint; beforePrint = null; redraw(); } });
  let lastWidth = innerWidth;
  addEventListener("resize", () => { if ((lastWidth < 700) !== (innerWidth < 700)) redraw(); lastWidth = innerWidth; });

  applyTheme();
  buildFront();
  route();
  root.dataset.ready = "yes";
})();
