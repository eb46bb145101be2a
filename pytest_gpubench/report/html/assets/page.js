// Where we are: the front page, or the test in the address; and the keys.

const stepper = el("span", { class: "hidden", id: "stepper" });
const front = frontPage();
const opened = el("main", { class: "frame hidden", id: "opened", tabindex: "-1" });
let frontScroll = 0, lastOpened = null;

document.getElementById("page").append(
  el("header", { class: "bar" }, el("div", { class: "bar-inner" },
    el("a", { class: "brand", href: "#" }, "GPU benchmarks", el("small", {}, [content.name, when(content.datetime)].filter(Boolean).join(" · "))), stepper)),
  front, opened);

function stepButton(mark, title, row) {
  const go = () => { location.hash = `#t/${row.index}`; };
  return el("button", { class: "plain-button", type: "button", title, "aria-label": title, disabled: !row, onclick: go }, mark);
}

function route() {
  const match = /^#t\/(\d+)(?:\/(\d+))?$/.exec(location.hash), row = match && rows[Number(match[1])];
  const wasFront = opened.classList.contains("hidden");
  if (row && wasFront) frontScroll = scrollY;
  for (const [node, shown] of [[front, !row], [opened, row], [stepper, row]]) node.classList.toggle("hidden", !shown);
  document.title = row ? `${row.test.name} · ${content.title}` : content.title;
  opened.replaceChildren();
  if (!row) {
    scrollTo(0, frontScroll);
    const link = lastOpened && body.querySelector(`[data-row="${lastOpened.index}"] a`);
    if (link) link.focus({ preventScroll: true });
    return;
  }
  lastOpened = row;
  const at = listed.indexOf(row);
  stepper.replaceChildren(stepButton("‹", "Previous", listed[at - 1]), " ", stepButton("›", "Next", at >= 0 && listed[at + 1]));
  filled(opened, {}, testPage(row, match[2] && Number(match[2])));
  scrollTo(0, 0);
  opened.focus({ preventScroll: true });
}

addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest && event.target.closest("input, select, textarea"), isOpen = !opened.classList.contains("hidden");
  if (event.key === "Escape" && typing === search) { search.value = ""; show({ words: [] }); } else if (event.key === "Escape" && isOpen) location.hash = "#";
  if (typing) return;
  if (event.key === "/" && !isOpen) { event.preventDefault(); search.focus(); }
  if (isOpen && event.key === "ArrowLeft") stepper.firstElementChild.click();
  if (isOpen && event.key === "ArrowRight") stepper.lastElementChild.click();
});

show({});
route();
document.documentElement.dataset.ready = "yes";
