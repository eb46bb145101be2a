// The figures of one test. Each is a card with charts, or nothing where there is nothing to draw.

const figure = (name, title, inside, { note = "", full = false, top = null } = {}) =>
  el("figure", { class: `card figure${full ? " full" : ""}`, "data-figure": name },
    el("div", { class: "top" }, el("h2", {}, title), top), inside, note && el("p", { class: "note" }, note));

// A figure over one of several sizes, drawn anew when another is chosen.
function figureOver(name, title, sizes, chosen, draw, note) {
  const place = el("div"), redraw = (size) => place.replaceChildren(draw(size));
  const select = sizes.length > 1 && el("select", { "aria-label": `${title}: over`, onchange: (event) => redraw(event.target.value) },
    sizes.map((size) => el("option", { value: size, selected: size === chosen }, `over ${size}`)));
  redraw(chosen);
  return figure(name, title, place, { note, full: true, top: select });
}

const legend = (series) => el("p", { class: "legend" }, series.filter(Boolean).map(([tone, name]) => el("span", { class: `tone-${tone}` }, el("i", { class: "key" }), name)));
const limitRule = (limit, scale = 1) => limit && { kind: "rule", y: limit.value / scale, tone: "limit", dash: "5 4", text: "limit" };
const stripe = (ends, tone, scale = 1) => ends && { kind: "band", low: ends[0] / scale, high: ends[1] / scale, tone };
const stepsOf = (values, step = 1) => values.map((_, index) => index * step + 1);
const armsOf = (item, reference) => [[item, "candidate"], [reference, "reference"]].filter(([arm]) => arm);

function figuresOf(row, test, item, reference) {
  return [
    historyFigure(item), samplesFigure(item, reference), quadsFigure(item), kernelsFigure(item, reference),
    examplesFigure(test, item), sweepFigure(item), rooflineFigure(test, item, reference), clocksFigure(item, reference),
  ];
}

function historyFigure(item) {
  const points = pointsOf(item);
  if (points.length < 2) return null;
  const { runs } = content, xs = points.map(([run]) => run), unit = unitOf(item.median), zoom = newZoom(), changes = item.changes || [];
  const flags = changes.map(([, first, ratio]) => ({ kind: "flag", x: first, tone: ratio > 1 ? "slower" : "faster", text: signed(ratio) }));
  const told = (run, text) => [fullName(run), text, run.drivers.length && `driver ${run.drivers.join(", ")}`].filter(Boolean).join("\n");
  const panel = (place, scale, tone, y, limit, said) => {
    const at = (offset) => points.map((point) => (known(point[place + offset]) ? point[place + offset] / scale : null));
    return chart({
      height: 220, zoom, label: y.title, y, x: { range: [xs[0] - 0.4, own + 0.4], ticks: runTicks },
      marks: [
        flags, { kind: "line", xs, ys: at(0), tone }, { kind: "ends", xs, lows: at(1), highs: at(2), tone },
        { kind: "dots", xs, ys: at(0), tone, size: 6, text: (index) => told(runs[xs[index]], said(points[index])) },
        limitRule(limit, scale),
      ],
    });
  };
  const ends = (low, high, scale) => (known(low) ? between([low, high], scale) : "");
  const panels = [panel(1, unit[1], "candidate", { title: `median, ${unit[0]}` }, limitOf(item, "max_time_us"),
    ([, us, low, high]) => `${time(us, unit)} ${ends(low, high, unit[1])}`)];
  if (points.some((point) => known(point[4]))) {
    panels.push(panel(4, 1, "older", { title: "speedup" }, limitOf(item, "min_speedup"), ([, , , , ratio, low, high]) => `${times(ratio)} ${ends(low, high)}`));
  }
  const found = changes.map(([before, first, ratio]) => `${signed(ratio)} in ${range(runs[before], runs[first])}`).join("; ");
  const nothing = points.length < content.least_runs ? `A change can be found from ${content.least_runs} runs on.` : "No change found.";
  return figure("history", `History, ${range(runs[xs[0]], runs[own])}`, el("div", { class: panels.length > 1 ? "two" : "" }, panels), {
    full: true, note: `${plural(points.length, "run")}, the last is this one. ${found ? `Changes of the time${item.by ? " against its reference" : ""}: ${found}.` : nothing}`,
  });
}

function samplesFigure(item, reference) {
  const arms = armsOf(item, reference).filter(([arm]) => arm.samples);
  if (!arms.length) return null;
  const most = Math.max(...arms.map(([arm]) => arm.reps)), zoom = newZoom();
  const thinned = Math.max(...arms.map(([arm]) => arm.step || 1));
  return figure("samples", "Samples", el("div", { class: arms.length > 1 ? "two" : "" }, arms.map(([arm, tone]) => {
    const unit = unitOf(arm.median), ys = arm.samples.map((us) => (known(us) ? us / unit[1] : null)), xs = stepsOf(ys, arm.step);
    const old = arm === item && item.base && item.base.interval, near = old && Math.abs(Math.log(old[0] / arm.median)) < 0.3;
    return el("div", {}, legend([[tone, arm.label], old && ["older", "the baseline's interval"]]), chart({
      height: 230, zoom, label: `Samples of ${arm.label}`, x: { range: [0, most + 1], title: "rep" },
      y: { title: unit[0], usual: true, include: near ? old.map((us) => us / unit[1]) : [] },
      marks: [
        stripe(old, "older", unit[1]), stripe(arm.interval, tone, unit[1]),
        { kind: "rule", y: arm.median / unit[1], tone }, limitRule(limitOf(arm, "max_time_us"), unit[1]),
        { kind: "side", values: ys, tone },
        { kind: "dots", xs, ys, tone, size: ys.length > 400 ? 3 : 4.5, text: (index) => `${digits(ys[index], 5)} ${unit[0]}\nrep ${xs[index]}` },
      ],
    }));
  })), {
    full: true, note: "In the order they were taken, and as a distribution. Line and band: the median and its 95 % interval. "
      + `Triangles lie beyond the edge.${thinned > 1 ? ` One sample in ${thinned} is drawn.` : ""}`,
  });
}

function quadsFigure(item) {
  const speed = item.speedup;
  if (!speed || !speed.ratios || !speed.ratios.length) return null;
  const xs = stepsOf(speed.ratios, speed.step);
  return figure("speedup", "Speedup, quad by quad", chart({
    label: "Speedup of each quad", x: { range: [0, speed.quads + 1], title: "quad" },
    y: { title: "speedup", usual: true, include: speed.interval || [] },
    marks: [
      stripe(speed.interval, "candidate"), { kind: "rule", y: speed.ratio, tone: "candidate" }, limitRule(limitOf(item, "min_speedup")),
      { kind: "dots", xs, ys: speed.ratios, tone: "candidate", text: (index) => `${times(speed.ratios[index])}\nquad ${xs[index]}` },
    ],
  }), { note: "A quad is two calls of each function, one after the other. Line and band: the speedup and its interval." });
}

const KERNEL_TONES = 8, MOST_KERNELS = 20;

function kernelsFigure(item, reference) {
  const old = item.base && item.base.launched ? [[item.base, `${item.label}, baseline`]] : [];
  const arms = [[item, item.label], ...old, ...(reference ? [[reference, reference.label]] : [])].filter(([arm]) => arm.launched && arm.launched.length);
  if (!arms.length) return null;
  const sums = arms.map(([arm]) => {
    const found = new Map();
    for (const [name, kind, launches, us, resources] of arm.launched) {
      const [, many = 0, sum = 0] = found.get(name) || [];
      found.set(name, [kind, many + launches, sum + (us || 0), resources]);
    }
    return found;
  });
  const longest = (name) => Math.max(...sums.map((sum) => (sum.get(name) || [0, 0, 0])[2]));
  const names = [...new Set(sums.flatMap((sum) => [...sum.keys()]))].sort((a, b) => longest(b) - longest(a));
  const totals = sums.map((sum) => [...sum.values()].reduce((all, [, , us]) => all + us, 0)), most = Math.max(...totals), unit = unitOf(most);
  const toneOf = (nth) => `series-${Math.min(nth, KERNEL_TONES)}`;
  const bars = arms.map(([, label], nth) => [el("span", {}, label), el("div", { class: "stack" }, names.map((name, place) => {
    const [, , us] = sums[nth].get(name) || [];
    return us && el("span", { class: `tone-${toneOf(place)}`, title: `${content.kernels[name][0]}: ${time(us, unit)}`, style: { width: `${(100 * us) / most}%` } });
  })), el("span", { class: "number" }, time(totals[nth], unit))]);
  const cell = ([, launches, us] = []) => el("td", {}, launches ? time(us, unit) : "–", launches > 1 && el("span", { class: "soft" }, ` (${launches}×)`));
  const takenBy = (name) => {
    const found = sums.map((sum) => (sum.get(name) || [])[3]), all = new Set(found.filter(Boolean));
    return all.size < 2 ? [...all] : found.flatMap((taken, nth) => (taken ? [`${arms[nth][1]}: ${taken}`] : []));
  };
  const table = el("table", { class: "kernel-list" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "kernel"), arms.map(([, label]) => el("th", { scope: "col" }, label)))),
    el("tbody", {}, names.slice(0, MOST_KERNELS).map((name, place) => {
      const kind = sums.map((sum) => sum.get(name)).find(Boolean)[0];
      return el("tr", {},
        el("td", { title: content.kernels[name].at(-1) }, el("i", { class: `key tone-${toneOf(place)}` }), content.kernels[name][0], kind !== "kernel" && ` (${kind})`,
          takenBy(name).map((taken) => el("div", { class: "soft" }, taken))),
        sums.map((sum) => cell(sum.get(name))));
    }), names.length > MOST_KERNELS && el("tr", {}, el("td", {}, `and ${names.length - MOST_KERNELS} more`))));
  return figure("kernels", "Kernels of one call", [el("div", { class: "bars" }, bars), table]);
}

// The ticks that have room beside the one before; a letter is about 7 wide.
function withRoom(ticks, placeOf) {
  let end = -Infinity;
  return ticks.filter(([value, text]) => {
    const half = 3.5 * String(text).length, from = placeOf(value) - half;
    if (from < end + 8) return false;
    end = from + 2 * half;
    return true;
  });
}

// Numbers over a size: time, rate and speedup, as far as there are any, side by side.
// series: name, tone, and points with x, item, and what hovering tells of them; `here` is the one that is open
// sweep: its points are joined, with bands for their intervals, and limits and peak are drawn; none for examples
function overSize(size, series, rate, limits, sweep) {
  const items = series.flatMap(({ points }) => points.map(({ item }) => item));
  const unit = unitOf(quantile(sorted(items.map((item) => item.median)), 0.5)), zoom = newZoom();
  const marks = [...new Set(series.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b), log = sweep ? sweep.log : isWide(marks);
  const panels = [{
    title: `time, ${unit[0]}`, limit: limits.median && limits.median / unit[1], of: (item) => item.median / unit[1], text: (item) => `${time(item.median)} ${between(item.interval, unitOf(item.median)[1])}`,
    ends: (item) => item.interval && item.interval.map((us) => us / unit[1]),
  }];
  if (rate) {
    const name = rate === "gbps" ? "GB/s" : "TFLOP/s";
    panels.push({
      title: name, limit: limits[rate], peaks: sweep ? sweep.peaks : [], of: (item) => item[rate], text: (item) => `${digits(item[rate])} ${name}`,
      ends: (item) => known(item[rate]) && item.interval && [...item.interval].reverse().map((us) => (item[rate] * item.median) / us),
    });
  }
  if (items.some((item) => item.speedup)) {
    panels.push({
      title: "speedup", limit: limits.speedup, of: (item) => item.speedup && item.speedup.ratio, ends: (item) => item.speedup && item.speedup.interval,
      text: (item) => `${times(item.speedup.ratio)} ${between(item.speedup.interval)}`,
    });
  }
  const own = sweep && (sweep.ticks.length ? sweep.ticks : marks.length <= 8 && marks.map((mark) => [mark, inThousands(mark)]));
  const ticks = own && ((shown, room) => withRoom(own, scaleOf(shown, [0, room], log)));
  const panel = ({ title, limit, peaks = [], of, ends, text }) => {
    const values = items.map(of).filter(known), least = Math.min(...values), most = Math.max(...values);
    const near = [limit, ...peaks.map(([, peak]) => peak)].filter((each) => known(each) && each >= least / 2 && each <= 2 * most);
    return chart({
      height: 270, zoom, label: `${title} over ${size}`, x: { title: size, log, ticks },
      y: { title, log: isWide(values), include: sweep ? [...near, 0.95 * least, 1.05 * most] : near },
      marks: [
        title === "speedup" && [{ kind: "rule", y: 1, tone: "none", dash: "2 3" }], limitRule(known(limit) && { value: limit }),
        peaks.map(([name, peak]) => ({ kind: "rule", y: peak, tone: "none", dash: "5 4", text: ["peak", name, digits(peak)].filter(Boolean).join(" ") })),
        series.flatMap(({ name, tone, points }) => {
          const drawn = points.filter(({ item }) => known(of(item))), xs = drawn.map(({ x }) => x), ys = drawn.map(({ item }) => of(item));
          if (!drawn.length) return [];
          const both = drawn.map(({ item }) => (ends && ends(item)) || [null, null]), here = drawn.filter((point) => point.here);
          const interval = { xs, lows: both.map(([low]) => low), highs: both.map(([, high]) => high), tone };
          const said = (all) => (index) => `${text(all[index].item)}\n${name}\n${all[index].about || ""}`;
          return [
            sweep && both.every(([low]) => known(low)) && { kind: "area", ...interval }, sweep && { kind: "line", xs, ys, tone }, { kind: "ends", ...interval },
            { kind: "dots", xs, ys, tone, size: 6, text: said(drawn) },
            { kind: "dots", xs: here.map(({ x }) => x), ys: here.map(({ item }) => of(item)), tone: "limit", size: 11, text: said(here) },
          ];
        }),
      ],
    });
  };
  return el("div", {}, series.length > 1 && legend(series.map(({ tone, name }) => [tone, name])), el("div", { class: panels.length > 1 ? "two" : "" }, panels.map(panel)));
}

function examplesFigure(test, item) {
  const mine = test.items.filter((each) => each.example && each.sizes && known(each.median) && each.label === item.label && each.role === item.role);
  const sizes = [...new Set(mine.flatMap((each) => Object.keys(each.sizes)))].filter((name) => new Set(mine.map((each) => each.sizes[name])).size > 1);
  if (mine.length < 2 || !sizes.length) return null;
  return figureOver("examples", `Examples of @given (${mine.length})`, sizes, sizes.includes(test.size) ? test.size : sizes[0], (size) => {
    const having = mine.filter((each) => known(each.sizes[size]));
    const points = having.map((each) => ({ x: each.sizes[size], item: each, about: each.example, here: each.example === item.example }));
    const references = having.filter((each) => known(each.ref) && known(test.items[each.ref].median)).map((each) => ({ x: each.sizes[size], item: test.items[each.ref], about: each.example }));
    const series = [...(references.length ? [{ name: references[0].item.label, tone: "reference", points: references }] : []), { name: item.label, tone: "candidate", points }];
    const limit = limitOf(item, "min_speedup");
    return overSize(size, series, test.rate, { speedup: limit && limit.value });
  }, "The large dot is the example shown above.");
}

// The sweeps of a test over each of its parameters; shown: the measurement that is open.
function sweepFigureOf(title, sweeps, shown, note) {
  const axes = sweeps.map(({ axis, way }) => (new Set(sweeps.map((each) => each.way)).size > 1 ? `${axis} (${way})` : axis));
  return figureOver(shown ? "sweep" : "front-sweep", title, axes, axes[0], (axis) => {
    const sweep = sweeps[axes.indexOf(axis)];
    const series = sweep.series.map(({ name, tone, points }) => ({
      name, tone, points: points.map(([x, test, place]) => {
        const item = content.tests[test].items[place];
        return { x, item, about: content.tests[test].name, here: item === shown };
      }),
    }));
    return el("div", {}, overSize(sweep.axis, series, sweep.rate, sweep.limits, sweep),
      [...sweep.faster, sweep.more > 0 && `${sweep.more} more are not drawn.`].filter(Boolean).map((line) => el("p", { class: "note" }, line)));
  }, note);
}

const isIn = (sweep, shown) => sweep.series.some(({ points }) => points.some(([, test, place]) => content.tests[test].items[place] === shown));

function sweepFigure(item) {
  const found = content.sweeps.filter((sweep) => isIn(sweep, item));
  return found.length ? sweepFigureOf("Sweep", found, item, "The same test with other parameters. The large dot is this test.") : null;
}

// Dots of calls under the roofs of their device. groups: calls with their tests, tone, size of their dots
function roofChart(roof, groups, height) {
  const { gbps, tflops } = roof, intensity = (arm) => arm.flops / arm.bytes, ridgeOf = (most) => (1e3 * most) / gbps;
  const xs = [...groups.flatMap(([arms]) => arms.map(([arm]) => intensity(arm))), ...tflops.map(([, most]) => ridgeOf(most))];
  const [low, high] = [Math.min(...xs) / 2, Math.max(...xs) * 4], end = tflops.length ? ridgeOf(tflops[0][1]) : high;
  const underMemory = (arm) => roof.measured && tflops.every(([, most]) => intensity(arm) < ridgeOf(most));
  const said = (arm, each) => [
    `${digits(arm.tflops)} TFLOP/s, ${digits(arm.gbps)} GB/s`, arm.label, each.name, arm.example, `${digits(intensity(arm))} FLOP/B, ${time(arm.median)}`,
    underMemory(arm) && `${percent(arm.gbps / gbps)} of what memory moves`,
  ].filter(Boolean).join("\n");
  return chart({
    height, label: "Roofline", x: { range: [low, high], log: true, title: "FLOP/B" }, y: { log: true, title: "TFLOP/s" },
    marks: [
      { kind: "line", xs: [low, end], ys: [(low * gbps) / 1e3, (end * gbps) / 1e3], tone: "none", dash: "5 4", text: roof.measured && `memory ${digits(gbps, 3)} GB/s` },
      tflops.map(([name, most]) => ({ kind: "line", xs: [ridgeOf(most), high], ys: [most, most], tone: "none", dash: "5 4", text: name && `${name} ${digits(most, 3)}` })),
      groups.map(([arms, tone, size]) => ({
        kind: "dots", tone, size, xs: arms.map(([arm]) => intensity(arm)), ys: arms.map(([arm]) => arm.tflops), text: (index) => said(...arms[index]),
      })),
    ],
  });
}

const roofNote = ({ measured, gbps, tflops, more }) => (measured
  ? `Dashed: what memory and matmuls of this device were measured to reach${tflops.length ? ", in TFLOP/s by dtype" : ""}.`
  : `Dashed: the most that any of these calls reached, ${digits(gbps)} GB/s and ${digits(tflops[0][1])} TFLOP/s; a limit on a rate has the device's own peaks measured.`)
  + (more ? ` ${more.toLocaleString("en")} more are not drawn.` : "");
const callsOf = (roof) => roof.points.map(([test, place]) => [content.tests[test].items[place], content.tests[test]]);

// All tests of a device.
function frontRoofline(roof) {
  const all = callsOf(roof), isReference = ([arm]) => arm.role === "reference";
  const groups = [[all.filter(isReference), "reference", 6], [all.filter((each) => !isReference(each)), "candidate", 6]].filter(([arms]) => arms.length);
  const names = groups.length > 1 && legend([["candidate", "measured functions"], ["reference", "references"]]);
  return figure("front-roofline", `Roofline of all tests${severalDevices ? ` · ${roof.device}` : ""}`, [names, roofChart(roof, groups, 350)], {
    note: `${plural(all.length, "call")} from a cold cache whose bytes and operations are known. ${roofNote(roof)}`,
  });
}

function rooflineFigure(test, item, reference) {
  const roof = content.rooflines.find(({ device }) => device === test.device), all = roof ? callsOf(roof) : [];
  const mine = armsOf(item, reference).filter(([arm]) => all.some(([each]) => each === arm));
  if (!mine.length) return null;
  const others = all.filter(([arm]) => !mine.some(([each]) => each === arm));
  const groups = [[others, "none", 4], ...mine.map(([arm, tone]) => [[[arm, test]], tone, 10])];
  return figure("roofline", "Roofline", [legend(mine.map(([arm, tone]) => [tone, arm.label])), roofChart(roof, groups, 320)], {
    note: `Grey: the other tests. ${roofNote(roof)}`,
  });
}

function clocksFigure(item, reference) {
  const arms = armsOf(item, reference).filter(([arm]) => arm.clocks);
  const reasons = [...new Set(armsOf(item, reference).flatMap(([arm]) => arm.throttled || []))];
  const clocks = sorted(arms.flatMap(([arm]) => arm.clocks));
  if (!clocks.length || (!reasons.length && clocks.at(-1) - clocks[0] < 0.01 * clocks[0])) return null;
  return figure("clocks", "SM clock", [legend(arms.map(([arm, tone]) => [tone, arm.label])), chart({
    label: "SM clock of each rep", x: { range: [0, Math.max(...arms.map(([arm]) => arm.reps)) + 1], title: "rep" },
    y: { title: "MHz", include: [clocks[0] - 30, clocks.at(-1) + 30] },
    marks: arms.map(([arm, tone]) => {
      const xs = stepsOf(arm.clocks, arm.clock_step), text = (index) => `${arm.clocks[index]} MHz\nrep ${xs[index]}`;
      return [{ kind: "line", steps: true, xs, ys: arm.clocks, tone }, { kind: "dots", xs, ys: arm.clocks, tone, size: 3, text }];
    }),
  })], { note: reasons.length ? `Throttled: ${reasons.join(", ")}.` : "No throttling was seen." });
}
