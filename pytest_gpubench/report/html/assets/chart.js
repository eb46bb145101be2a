// Charts: SVG at the width of their place, drawn again when that or the zoom changes; colours are the style sheet's.

const LEFT = 56, RIGHT = 24, TOP = 10, NEAR = 30, BINS = 36;

function scaleOf([low, high], [from, to], log) {
  const of = log ? Math.log10 : Number, a = of(low), b = of(high);
  const place = (value) => from + ((of(value) - a) / (b - a || 1)) * (to - from);
  place.back = (at) => {
    const value = a + ((at - from) / (to - from)) * (b - a);
    return log ? 10 ** value : value;
  };
  return place;
}

function ticksOf([low, high], most, log) {
  const found = [];
  if (log && high / low > 8) {
    const decades = Math.log10(high / low), marks = decades > most / 3 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 5];
    const every = Math.max(1, Math.ceil(decades / most));
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every) found.push(...marks.map((mark) => mark * 10 ** power));
    return found.filter((tick) => tick >= low && tick <= high);
  }
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((mark) => mark * power >= rough) || 10);
  for (let nth = Math.ceil(low / step); nth * step <= high; nth += 1) found.push(nth * step);
  return found;
}

function inThousands(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value); // a size, perhaps
  const [scale, letter] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([each]) => Math.abs(value) >= Math.max(each, 1e4)) || [1, ""];
  return `${Number((value / scale).toPrecision(5))}${letter}`;
}

const isWide = (values) => values.every((value) => value > 0) && Math.max(...values) / Math.min(...values) > 20;

function padded(values, log, share = 0.07) {
  const low = Math.min(...values), high = Math.max(...values);
  const times = Math.max((high / low) ** share, 1.05), room = share * (high - low) || 0.02 * Math.abs(high) || 1;
  return log ? [low / times, high * times] : [low - room, high + room];
}

// The range in which most values are: those beyond are drawn at the edge, as triangles.
function usualRange(values) {
  const all = sorted(values), first = quantile(all, 0.25), third = quantile(all, 0.75);
  const reach = Math.max(5 * (third - first), 0.01 * Math.abs(third));
  return [Math.max(all[0], first - reach), Math.min(all.at(-1), third + reach)];
}

// The marks of a chart by their kind. Each has a tone; frame: scales and edges of what is shown.
const path = (kind, tone, parts, more) => svg("path", { class: `${kind} tone-${tone}`, d: parts.join(""), ...more });
const fixed = (...numbers) => numbers.map((number) => number.toFixed(1)).join(" ");

// The points of a line between two edges, and those where it crosses one.
function clipped(points, low, high, steps) {
  return points.flatMap(([x, y], index) => {
    const edge = Math.max(low, Math.min(high, x)), beyond = [points[index - 1], points[index + 1]].filter((other) => other && (other[0] - edge) * (x - edge) < 0);
    return x === edge ? [[x, y]] : beyond.map(([nextX, nextY]) => [edge, steps ? y : y + ((nextY - y) * (edge - x)) / (nextX - x)]);
  });
}

function textOfLine({ text, tone }, points) {
  const [[x, y], [endX, endY]] = [points[0], points.at(-1)], beside = Math.max((x + endX) / 2, LEFT + 8 * text.length + 8); // a letter is about 8 wide
  const at = y === endY ? { x: endX - 4, y: y - 3 } : { x: beside - 8, y: Math.max(y + ((endY - y) * (beside - x)) / (endX - x) - 5, TOP + 11) };
  return svg("text", { class: `mark-text tone-${tone}`, ...at, "text-anchor": "end" }, text);
}

const MARKS = {
  // xs, ys, and what hovering tells of each as text(index)
  dots(mark, { toX, toY, shownX, edgeY, placed }) {
    const inside = [], far = [];
    mark.xs.forEach((value, index) => {
      if (!known(value) || !known(mark.ys[index]) || value < shownX[0] || value > shownX[1]) return;
      const x = toX(value), y = toY(mark.ys[index]), bounded = edgeY(y);
      placed.push([x, bounded, mark, index]);
      if (Math.abs(bounded - y) < 1) inside.push(`M${fixed(x, y)}h0`);
      else far.push(`M${fixed(x, bounded)}l4 ${y < TOP ? "7h-8" : "-7h-8"}z`);
    });
    return [path("dots", mark.tone, inside, { "stroke-width": mark.size || 5 }), path("far", mark.tone, far)];
  },
  // xs, ys; dash, steps; text: above its end, or above its middle where it rises
  line(mark, { toX, toY, main }) {
    const all = mark.xs.map((x, index) => [x, mark.ys[index]]).filter((point) => point.every(known)).map(([x, y]) => [toX(x), toY(y)]);
    const points = clipped(all, LEFT, main, mark.steps);
    const parts = points.map(([x, y], index) => (index && mark.steps ? `H${fixed(x)}V${fixed(y)}` : `${index ? "L" : "M"}${fixed(x, y)}`));
    const text = mark.text && points.length > 1 && textOfLine(mark, points);
    return [path("line", mark.tone, parts, { "stroke-dasharray": mark.dash }), text];
  },
  // xs, lows, highs: an interval each
  ends(mark, { toX, toY, shownX, edgeY }) {
    const isShown = (index) => known(mark.lows[index]) && mark.xs[index] >= shownX[0] && mark.xs[index] <= shownX[1];
    return path("ends", mark.tone, mark.xs.map((x, index) => (isShown(index) ? `M${fixed(toX(x), edgeY(toY(mark.lows[index])))}V${fixed(edgeY(toY(mark.highs[index])))}` : "")));
  },
  // xs, lows, highs: one shape
  area(mark, { toX, toY, edgeX }) {
    const edge = (ys) => mark.xs.map((x, index) => fixed(edgeX(toX(x)), toY(ys[index])));
    return path("area", mark.tone, ["M", [...edge(mark.highs), ...edge(mark.lows).reverse()].join("L"), "Z"]);
  },
  // low, high: a stripe across
  band(mark, { toY, edgeY, main }) {
    const top = edgeY(toY(mark.high)), bottom = edgeY(toY(mark.low));
    return path("area", mark.tone, [`M${LEFT} ${fixed(top)}H${main}V${fixed(Math.max(bottom, top + 1))}H${LEFT}Z`]);
  },
  // y, dash, text: a line across, or an arrow to where it would be
  rule(mark, { toY, shownY, edgeY, main }) {
    const y = edgeY(toY(mark.y)), beyond = mark.y > shownY[1] ? " ↑" : mark.y < shownY[0] ? " ↓" : "";
    const text = mark.text && svg("text", { class: `mark-text tone-${mark.tone}`, x: main - 4, y: y < TOP + 18 ? y + 14 : y - 5, "text-anchor": "end" }, mark.text + beyond);
    return [!beyond && path("rule", mark.tone, [`M${LEFT} ${fixed(y)}H${main}`], { "stroke-dasharray": mark.dash }), text];
  },
  // x, text: a line down
  flag(mark, { toX, shownX, floor }) {
    if (mark.x < shownX[0] || mark.x > shownX[1]) return null;
    return [path("flag", mark.tone, [`M${fixed(toX(mark.x))} ${TOP}V${floor}`]),
      mark.text && svg("text", { class: `mark-text tone-${mark.tone}`, x: toX(mark.x) + 4, y: TOP + 11 }, mark.text)];
  },
  // values: their distribution at the right edge
  side(mark, { toY, shownY, main, right }) {
    const counts = new Array(BINS).fill(0), size = (shownY[1] - shownY[0]) / BINS;
    for (const value of mark.values) { const bin = Math.floor((value - shownY[0]) / size); if (bin in counts) counts[bin] += 1; }
    const long = (many) => ((right - main) * many) / Math.max(...counts), thick = toY(0) - toY(size) - 1;
    return path("far", mark.tone, counts.map((many, bin) => (many ? `M${main} ${fixed(toY(shownY[0] + bin * size))}h${fixed(long(many))}v${fixed(-thick)}H${main}z` : "")));
  },
};

function axes(x, y, { toX, toY, shownX, shownY, main, floor, height }) {
  const plain = (value) => [value, inThousands(value)], middleY = (TOP + floor) / 2;
  const ticksX = x.ticks ? x.ticks(shownX, main - LEFT) : ticksOf(shownX, Math.max(2, (main - LEFT) / 70), x.log).map(plain);
  const ticksY = ticksOf(shownY, (floor - TOP) / 38, y.log).map(plain);
  return svg("g", { class: "axes" },
    ticksY.map(([value, text]) => [svg("path", { d: `M${LEFT} ${fixed(toY(value))}H${main}` }), svg("text", { x: LEFT - 8, y: toY(value) + 4, "text-anchor": "end" }, text)]),
    ticksX.map(([value, text]) => svg("text", { x: toX(value), y: floor + 17, "text-anchor": "middle" }, text)),
    x.title && svg("text", { class: "title", x: (LEFT + main) / 2, y: height - 5, "text-anchor": "middle" }, x.title),
    y.title && svg("text", { class: "title", "text-anchor": "middle", transform: `translate(13 ${middleY}) rotate(-90)` }, y.title));
}

const newZoom = () => ({ range: null, charts: [] });

// x: range, title, log, ticks(shown, room); y: title, log, usual: far values at the edge, include: what is shown in any case
// marks: also lists of them, and nothing; zoom: what charts with the same x share
function chart({ height = 250, x, y, marks: given, zoom = newZoom(), label }) {
  const marks = given.flat(Infinity).filter(Boolean), box = el("div", { class: "chart" }), tip = el("div", { class: "tip hidden", role: "status" });
  const reset = el("button", { class: "reset hidden", type: "button", onclick: () => setZoom(null) }, "reset zoom");
  const allX = marks.filter((mark) => mark.kind === "dots").flatMap((mark) => mark.xs);
  const side = marks.some((mark) => mark.kind === "side") ? 0.2 : 0;
  let frame = null, began = null, drawn = null;

  function setZoom(range) {
    zoom.range = range;
    for (const draw of zoom.charts) draw();
  }

  function valuesIn([low, high]) {
    return marks.filter((mark) => mark.xs).flatMap((mark) => {
      const inside = (_, index) => mark.xs[index] >= low && mark.xs[index] <= high;
      return [mark.ys, mark.lows, mark.highs].filter(Boolean).flatMap((each) => each.filter(inside));
    }).filter(known);
  }

  function frameFor(width) {
    const shownX = zoom.range || x.range || padded(allX, x.log, 0.03), values = valuesIn(shownX), right = width - RIGHT;
    const inside = values.length ? (y.usual ? usualRange(values) : values) : [0, 1];
    const shownY = padded([...inside, ...(y.include || [])], y.log), main = right - side * (right - LEFT);
    const floor = height - (x.title ? 40 : 24);
    return {
      shownX, shownY, main, right, floor, height, placed: [],
      toX: scaleOf(shownX, [LEFT, main - (side && 10)], x.log), toY: scaleOf(shownY, [floor, TOP], y.log),
      edgeX: (at) => Math.max(LEFT - 20, Math.min(main + 20, at)), edgeY: (at) => Math.max(TOP, Math.min(floor, at)),
    };
  }

  function draw() {
    if (!box.clientWidth) return;
    frame = frameFor(box.clientWidth);
    const last = ({ kind }) => kind === "rule" || kind === "flag";
    const ordered = [...marks.filter((mark) => !last(mark)), ...marks.filter(last)];
    drawn = svg("svg", { viewBox: `0 0 ${box.clientWidth} ${height}`, role: "img", "aria-label": label },
      axes(x, y, frame), ordered.map((mark) => MARKS[mark.kind](mark, frame)),
      svg("circle", { class: "hovered hidden", r: 6 }), svg("rect", { class: "brush hidden", y: TOP, height: frame.floor - TOP }));
    box.replaceChildren(drawn, reset, tip);
    reset.classList.toggle("hidden", !zoom.range);
    tip.classList.add("hidden");
  }

  // hovering tells of the nearest dot; dragging chooses what part of x is shown

  const placeOf = (event) => { const at = box.getBoundingClientRect(); return [event.clientX - at.left, event.clientY - at.top]; };

  function hover(x, y) {
    const near = frame.placed.map((point) => [Math.hypot(point[0] - x, point[1] - y), point]).reduce((a, b) => (b[0] < a[0] ? b : a), [NEAR]);
    const circle = drawn.querySelector(".hovered");
    for (const node of [circle, tip]) node.classList.toggle("hidden", near.length === 1);
    if (near.length === 1) return;
    const [left, top, mark, index] = near[1];
    filled(circle, { cx: left, cy: top, class: `hovered tone-${mark.tone}` }, []);
    tip.replaceChildren(...mark.text(index).split("\n").filter(Boolean).map((text, nth) => el(nth ? "div" : "b", {}, text)));
    const beside = left + 14 + tip.offsetWidth > box.clientWidth ? left - tip.offsetWidth - 14 : left + 14;
    tip.style.left = `${Math.max(0, beside)}px`;
    tip.style.top = `${Math.max(0, top - tip.offsetHeight - 10)}px`;
  }

  function brush(x) {
    const rect = filled(drawn.querySelector(".brush"), { x: Math.min(began, x), width: Math.abs(x - began) }, []);
    rect.classList.toggle("hidden", Math.abs(x - began) < 5);
  }

  function choose(x) {
    const [low, high] = [began, x].sort((a, b) => a - b), shown = [low, high].map(frame.toX.back);
    began = null;
    drawn.querySelector(".brush").classList.add("hidden");
    if (high - low >= 5 && allX.some((value) => value >= shown[0] && value <= shown[1])) setZoom(shown);
  }

  zoom.charts.push(draw);
  new ResizeObserver(draw).observe(box);
  return filled(box, {
    onpointerdown: (event) => {
      if (event.pointerType === "touch" || event.button || event.target === reset) return;
      [began] = placeOf(event);
      box.setPointerCapture(event.pointerId);
    },
    onpointermove: (event) => (began === null ? hover(...placeOf(event)) : brush(placeOf(event)[0])),
    onpointerup: (event) => { if (began !== null) choose(placeOf(event)[0]); },
    onpointerleave: () => { for (const node of [tip, drawn.querySelector(".hovered")]) node.classList.add("hidden"); },
    ondblclick: () => setZoom(null),
  }, []);
}
