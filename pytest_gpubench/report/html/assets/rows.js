// Rows: what the table, the tiles and the front page are made of.

const rows = content.rows.map((row, index) => {
  const test = content.tests[row.test];
  const item = row.item === null ? null : test.items[row.item];
  const made = {
    ...row, index, test, item,
    reference: item && known(item.ref) ? test.items[item.ref] : null,
    limits: verdictsOf(item),
    change: (item && item.change) || null,
    changes: (item && item.changes) || [],
    isNew: Boolean(item && item.base && item.base.new),
    label: item ? item.label : "",
  };
  made.against = item && item.speedup ? item.speedup.reference : made.reference ? made.reference.label : "";
  made.margin = marginOf(made);
  made.rank = rankOf(made);
  made.text = searched(made).join(" ").toLowerCase();
  return made;
});

function rankOf({ status, soft, change }) {
  const { rank } = statusOf(status);
  return rank + (soft ? 3.5 : 0) - (rank > 2 && change && change.word === "slower" ? 2.5 : 0);
}

function searched(row) {
  return [
    row.test.id, row.label, row.against, row.item ? row.item.example || "" : "", statusOf(row.status).text,
    ...row.limits.map((verdict) => verdict.limit), ...Object.entries(row.test.params).map((pair) => pair.join("=")),
    content.devices.length > 1 ? row.test.device : "", row.change ? row.change.word : "",
  ];
}

function limitOf(item, kind) {
  return (item.verdicts || []).find((verdict) => verdict.kind === kind && known(verdict.value) && verdict.value > 0) || null;
}

function verdictsOf(item, reference) {
  return [item, reference].flatMap((arm) => (arm && arm.verdicts) || []);
}

// How far on the good side of its limit a row is, as a ratio: above 1 is good; of two limits the one that it is nearer to.
function marginOf({ item }) {
  if (!item || !known(item.median)) return null;
  const least = limitOf(item, "min_speedup"), most = limitOf(item, "max_time_us");
  const margins = [];
  if (item.speedup && known(item.speedup.ratio) && (least || !most)) {
    const { ratio, interval } = item.speedup, limit = least ? least.value : 1;
    const [low, high] = interval || [ratio, ratio];
    margins.push({ low: low / limit, high: high / limit, middle: ratio / limit, judged: Boolean(least), of: least ? least.limit : "1x" });
  }
  if (most && item.median > 0) {
    const [low, high] = item.interval || [item.median, item.median];
    margins.push({ low: most.value / high, high: most.value / low, middle: most.value / item.median, judged: true, of: most.limit });
  }
  return margins.sort((a, b) => a.middle - b.middle)[0] || null;
}

const FARTHEST = Math.log(1.6);

function marginBar(row) {
  const { margin } = row;
  if (!margin || !known(margin.low) || !known(margin.high)) return null;
  const place = (ratio) => 50 + 46 * Math.max(-1, Math.min(1, Math.log(ratio) / FARTHEST));
  const low = place(margin.low), high = place(margin.high);
  const text = `${times(margin.middle)} [${digits(margin.low)}, ${digits(margin.high)}] of ${margin.of}; above 1 is good`;
  const beyond = (side, arrow) => el("span", { class: "off", style: { [side]: "0" } }, arrow);
  return el("div", { class: `margin tone-${margin.judged ? statusOf(row.status).tone : "none"}`, role: "img", "aria-label": text, title: text },
    el("span", { class: "good" }), el("span", { class: "axis" }), el("span", { class: "limit-line" }),
    low >= 96 ? beyond("right", "▶") : high <= 4 ? beyond("left", "◀")
      : el("span", { class: "span", style: { left: `${low}%`, width: `max(4px, ${high - low}%)` } }));
}

// A measurement's times, against its reference where it has one, in the saved runs and in this one; a dot is a change.
function sparkline(item) {
  const points = pointsOf(item).map(([run, us, , , ratio]) => [run, item.by ? 1 / ratio : us]), width = 110, height = 26;
  if (points.length < 2) return null;
  const x = scaleOf([0, own], [3, width - 4]);
  const last = points.at(-1)[1], y = scaleOf(padded([...points.map((point) => point[1]), last * 0.97, last * 1.03], false, 0.02), [height - 3, 3]);
  const at = ([run, us]) => `${x(run).toFixed(1)} ${y(us).toFixed(1)}`;
  const changes = (item.changes || []).map(([, first, ratio]) => [points.find(([run]) => run === first), ratio]);
  const words = changes.map(([point, ratio]) => `${signed(ratio)} from ${shortName(content.runs[point[0]])} on`);
  const text = `${plural(points.length, "run")}: ${words.join(", ") || "no change found"}`;
  return el("div", { class: "spark", title: text, role: "img", "aria-label": text },
    svg("svg", { viewBox: `0 0 ${width} ${height}` },
      svg("path", { class: "line tone-candidate", d: `M${points.map(at).join("L")}` }),
      svg("circle", { class: "dot tone-candidate", cx: x(points.at(-1)[0]), cy: y(points.at(-1)[1]), r: 2 }),
      changes.map(([point, ratio]) => svg("circle", { class: `dot tone-${ratio > 1 ? "slower" : "faster"}`, cx: x(point[0]), cy: y(point[1]), r: 3.5 }))));
}

// Runs with median and interval, speedup and interval; the last is this one.
function pointsOf(item) {
  if (!item || !item.past || !known(item.median)) return [];
  const missing = [null, null];
  const speedup = item.speedup ? [item.speedup.ratio, ...(item.speedup.interval || missing)] : [];
  return [...item.past, [own, item.median, ...(item.interval || missing), ...speedup]];
}

function changeText({ change, isNew }) {
  if (isNew) return el("span", { class: "delta tone-new" }, "new");
  if (!change || !known(change.ratio)) return null;
  if (change.of === "same code") return el("span", { class: "delta", title: `the same code as in ${change.baseline}: nothing was timed` }, change.of);
  const ends = change.interval ? `, [${change.interval.map(signed).join(", ")}]` : ", too few samples for an interval";
  const title = `time${change.of === "speedup" ? " against the reference" : ""}, since ${change.baseline}: ${signed(change.ratio)}${ends}`;
  return el("span", { class: `delta ${change.word ? `sure tone-${change.word}` : ""}`, title }, `${signed(change.ratio)} ${change.word}`);
}

function changeSentence({ item, change }) {
  const ends = change.interval ? ` [${change.interval.map(signed).join(", ")}]` : "";
  const old = item.base && item.base.ratio;
  const values = change.of === "speedup" && item.speedup && known(old)
    ? `speedup: ${times(old)} → ${times(item.speedup.ratio)}` : `median: ${time(change.old)} → ${time(item.median)}`;
  return `time ${signed(change.ratio)}${ends}, by its ${values}`;
}
