"""The page in a real browser: it filters, sorts, draws, tells and zooms, and no name in it runs.

Needs chromium and playwright (`pip install playwright`, without its own browsers); skipped without.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpubench.report.html import asset
from pytest_gpubench.report.html.page import html_page
from pytest_gpubench.results.model import MemoryPeak, Peaks, SavedRun
from tests.report.showcase import NASTY, SWEEP, history, showcase

CHROMIUM = shutil.which("chromium")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SOFTMAX_ROW, SWEEP_ROW, GIVEN_ROW, HOSTILE_ROW = 0, 5, 11, 15
"""Where they are in the run."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(html_page(with_peaks(showcase()), showcase(2, slower=1.1), history(16)), encoding="utf-8")
    return path.as_uri()


def with_peaks(run: SavedRun) -> SavedRun:
    """Return a run in which the peaks of the GPU were measured."""
    memory = (MemoryPeak(read_share=0.5, moved_bytes=2**20, gbps=5000.0),)
    peaks = Peaks(matmul_tflops={"bfloat16": 790.0, "float16": 781.0, "float32": 52.0}, memory=memory)
    records = (msgspec.structs.replace(record, peaks=peaks) for record in run.records)
    return msgspec.structs.replace(run, records=tuple(records))


class Shown:
    """The page, open at the width of a desktop or of a phone."""

    def __init__(self, browser: Any, address: str, width: int = 1400, scheme: str = "light") -> None:
        self.said: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")

    def names(self) -> list[str]:
        return [str(name) for name in self.page.locator(".results td.test a").all_inner_texts()]

    def open(self, row: int) -> list[str]:
        """Open a test, and return the names of its figures once all are drawn."""
        self.page.evaluate(f"location.hash = '#t/{row}'")
        self.page.wait_for_selector("#opened:not(.hidden)")
        for chart in self.page.locator("#opened .chart").all():
            chart.locator("svg").wait_for()
        return [str(each.get_attribute("data-figure")) for each in self.page.locator("#opened [data-figure]").all()]

    def close(self) -> None:
        """Close the page; nothing may have been said, asked for, or run by a name in it."""
        assert self.said == []
        assert all(url.startswith(("file:", "data:")) for url in self.requests)
        assert self.page.evaluate("window.hacked") is None
        self.context.close()


@pytest.fixture
def shown(browser: Any, address: str) -> Iterator[Shown]:
    opened = Shown(browser, address)
    yield opened
    opened.close()


def test_the_front_page_counts_filters_and_searches(shown: Shown) -> None:
    tiles = {one.get_attribute("data-filter"): one.inner_text().split()[0] for one in shown.page.locator(".tile").all()}
    assert tiles == {
        "fail": "3", "invalid": "1", "inconclusive": "1", "pass": "7", "slower": "0", "faster": "0", "changed": "2",
        "soft": "1", "none": "1", "unmeasured": "2", "all": "16",
    }  # fmt: skip
    assert shown.names()[:2] == ["test_hot", "test_layer_norm"]
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("ROWS 20")
    assert shown.names() == ["test_rows[2048]"]
    assert shown.page.locator("#shown").inner_text() == "1 of 16 rows"
    shown.page.keyboard.press("Escape")
    shown.page.locator(".tile[data-filter=inconclusive]").click()
    assert shown.names() == ["test_gelu"]
    shown.page.get_by_role("button", name="Show all").click()
    assert len(shown.names()) == 16


def test_the_trend_leads_to_the_tests_that_changed(shown: Shown) -> None:
    trend = shown.page.locator(".trend")
    assert trend.locator("h2").first.inner_text().endswith("17 runs, 00ab34c..fedcba9*")
    assert "04ab34c..05ab34c" in trend.inner_text()
    trend.locator("button", has_text="2 faster").click()
    assert sorted(shown.names()) == ["test_gather", "test_softmax[4096-float16]"]


def test_columns_sort_up_and_down_and_keep_what_has_no_number_last(shown: Shown) -> None:
    shown.page.locator("[data-sort=time]").click()
    first, *_, last = shown.names()
    assert (first, last) == ("test_every_shape", "test_empty")
    shown.page.locator("[data-sort=time]").click()
    assert shown.page.locator("th[aria-sort=descending]").inner_text().startswith("Time")
    first, *_, last = shown.names()
    assert (first, last) == ("test_rows[8192]", "test_empty")
    shown.page.locator("[data-sort=test]").click()
    assert [name for name in shown.names() if "rows" in name] == [f"test_rows[{rows}]" for rows in SWEEP]


def test_what_kernels_take_is_told_once_unless_it_differs(shown: Shown) -> None:
    shown.open(SOFTMAX_ROW)
    told = shown.page.locator(".kernel-list td .soft", has_text="registers").all_inner_texts()
    few, more = (f"{number} registers, 1 block per SM, 2.00 waves" for number in (64, 72))
    changed = [f"triton: {few}", f"triton, baseline: {more}"]
    assert told == [more, *changed, *changed, f"torch_eager: {more}"]


def labels(chart: Any) -> list[str]:
    return [str(text) for text in chart.locator(".axes text").all_text_contents()]


def test_hovering_tells_of_a_point_and_dragging_zooms_all_panels(shown: Shown) -> None:
    shown.page.locator(".results td.test a", has_text="test_softmax").click()
    assert shown.open(SOFTMAX_ROW) == ["history", "samples", "speedup", "kernels", "roofline", "clocks"]
    figure = shown.page.locator("[data-figure=history]")
    figure.scroll_into_view_if_needed()
    panels = figure.locator(".chart")
    box = panels.first.bounding_box()
    ticks = labels(panels.nth(1))

    def at(share: float) -> tuple[float, float]:
        return box["x"] + share * box["width"], box["y"] + box["height"] / 2

    dot = panels.first.locator("path.dots").get_attribute("d").split("M")[-1].removesuffix("h0").split()
    shown.page.mouse.move(box["x"] + float(dot[0]) + 3, box["y"] + float(dot[1]))
    told = panels.first.locator(".tip").inner_text()
    assert told.startswith("nightly, fedcba98*, main, 2026-03-08 12:30 UTC\n84.48 us")
    shown.page.mouse.move(*at(0.5))
    shown.page.mouse.down()
    shown.page.mouse.move(*at(0.7))
    shown.page.mouse.up()
    assert labels(panels.nth(1)) != ticks
    panels.first.locator(".reset").click()
    assert labels(panels.nth(1)) == ticks
    shown.page.keyboard.press("Escape")
    shown.page.wait_for_selector("#front:not(.hidden)")
    assert "softmax" in shown.page.evaluate("document.activeElement.innerText"), "the keyboard is back where it was"


def test_the_front_page_draws_sweeps(shown: Shown) -> None:
    figure = shown.page.locator("#front [data-figure=front-sweep]")
    assert figure.count() == 1
    assert figure.locator(".chart").count() == 3
    for chart in figure.locator(".chart").all():
        chart.locator("svg").wait_for()
        assert [str(rows) for rows in SWEEP if str(rows) not in labels(chart)] == []
        assert chart.locator("path.area").count() > 0
    assert "triton against torch_eager: faster everywhere" in figure.inner_text()


def test_the_front_page_draws_a_roofline_of_all_tests(shown: Shown) -> None:
    figure = shown.page.locator("#front [data-figure=front-roofline]")
    chart = figure.locator(".chart")
    chart.scroll_into_view_if_needed()
    assert {"FLOP/B", "TFLOP/s"} <= set(labels(chart))
    roofs = ["memory 5000 GB/s", "bfloat16, float16 790", "float32 52.0"]
    assert chart.locator(".mark-text").all_text_contents() == roofs
    assert "of what memory moves" not in chart.inner_text()
    box, dot = chart.bounding_box(), chart.locator("path.dots").last.get_attribute("d").split("M")[1].split("h")[0]
    x, y = map(float, dot.split())
    shown.page.mouse.move(box["x"] + x + 2, box["y"] + y)
    told = chart.locator(".tip").inner_text()
    number = r"[\d.]+"
    assert re.match(rf"{number} TFLOP/s, {number} GB/s\n.+\ntest_", told)
    assert re.search(rf"\n{number} FLOP/B, {number} us\n{number} % of what memory moves$", told)


def test_lines_are_cut_where_they_leave_what_is_zoomed_to(shown: Shown) -> None:
    """A roof keeps its slope: it goes on to the edge as it was."""
    chart = shown.page.locator("#front [data-figure=front-roofline] .chart")
    chart.scroll_into_view_if_needed()
    box, line = chart.bounding_box(), chart.locator("path.line").first
    shown.page.mouse.move(box["x"] + 100, box["y"] + 60)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 500, box["y"] + 60)
    shown.page.mouse.up()
    (left, high), (right, low) = (map(float, point.split()) for point in line.get_attribute("d")[1:].split("L"))
    assert (left, right) == (56, box["width"] - 24)
    assert low < high
    chart.locator(".reset").click()


def test_sweeps_and_examples_have_their_figures(shown: Shown) -> None:
    assert "sweep" in shown.open(SWEEP_ROW)
    drawn = labels(shown.page.locator("[data-figure=sweep] .chart").first)
    assert {"256", "512", "1024", "rows", "time, us"} <= set(drawn)
    assert "examples" in shown.open(GIVEN_ROW)
    figure = shown.page.locator("[data-figure=examples]")
    assert "shape" in labels(figure.locator(".chart").first)
    figure.locator("select").select_option("shape[0]")
    figure.locator(".title", has_text="shape[0]").first.wait_for()
    shown.page.locator(".choice").select_option(index=3)
    shown.page.wait_for_url(re.compile(rf"#t/{GIVEN_ROW}/\d+$"))


def test_a_change_may_be_a_factor_and_the_margin_is_that_of_the_nearest_limit(shown: Shown) -> None:
    texts = {1.0: "±0.0 %", 1.25: "+25 %", 0.11: "−89 %", 0.1: "÷10.0", 1 / 475: "÷475", 12: "×12.0"}
    inside = f"(ratio) => {{ {asset('elements.js')}; return signed(ratio); }}"
    assert {ratio: shown.page.evaluate(inside, ratio) for ratio in texts} == texts
    elements, rows = (asset(name) for name in ("elements.js", "rows.js"))
    functions = rows[rows.index("function limitOf") : rows.index("const FARTHEST")]
    inside = f"(item) => {{ {elements}; {functions}; return marginOf({{ item }}).middle; }}"
    cases = ((40, None, 0.4), (400, None, 4), (40, 1.5, 0.4), (400, 1.6, 1.25), (None, 1.6, 1.25), (None, None, 2))
    for most_us, least, middle in cases:
        limits = {"max_time_us": most_us, "min_speedup": least}
        verdicts = [{"kind": kind, "value": value, "limit": kind} for kind, value in limits.items() if value]
        speedup = {"ratio": 2, "interval": [1.9, 2.1]}
        item = {"median": 100, "interval": [99, 101], "speedup": speedup, "verdicts": verdicts}
        assert shown.page.evaluate(inside, item) == pytest.approx(middle)


def test_every_name_is_shown_as_it_is(shown: Shown) -> None:
    assert shown.open(HOSTILE_ROW)
    assert f"with it: one more kernel: {NASTY}" in shown.page.locator("#opened").inner_text()
    assert shown.page.evaluate("document.getElementById('opened').textContent").count(NASTY) >= 8
    shown.page.locator("[data-figure=samples] .chart").first.hover()
    assert shown.page.locator("img").count() == 0
    assert shown.page.evaluate("document.querySelectorAll('body script').length") == 2


def test_every_test_opens_by_the_keyboard_alone(shown: Shown) -> None:
    shown.page.locator(".results td.test a").first.focus()
    shown.page.keyboard.press("Enter")
    seen = set()
    for _ in range(16):
        shown.page.wait_for_selector("#opened:not(.hidden)")
        seen.add(shown.page.locator("#opened h1").inner_text())
        shown.page.keyboard.press("ArrowRight")
        shown.page.wait_for_timeout(30)
    assert len(seen) == 16


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(browser: Any, address: str, scheme: str) -> None:
    opened = Shown(browser, address, width=390, scheme=scheme)
    back = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(15, 19, 24)") is (scheme == "dark")
    for row in (None, SOFTMAX_ROW, SWEEP_ROW, GIVEN_ROW, HOSTILE_ROW):
        if row is not None:
            opened.open(row)
        assert opened.page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    opened.close()
