"""The page in a real browser: it opens, filters, sorts and draws, and no name in it runs."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.report.html import html_page
from pytest_gpubench.results.model import SavedRun, TestRecord
from tests.report.test_html import GPU, NASTY, SWEEP, history, pair, showcase
from tests.results.saved import make_run

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
SWEEP_ROW, GIVEN_ROW, HOSTILE_ROW = 5, 11, 15
"""Where they are in the run."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; skips where it, or playwright, is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


class Shown:
    """A page that is open, and what the browser said of it."""

    def __init__(self, browser: Any, path: Path, **view: Any) -> None:
        self.said: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**view)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def names(self) -> list[str]:
        """Return the tests of the table, in order."""
        return [str(name) for name in self.page.locator(".results td.test a").all_inner_texts()]

    def open(self, row: int) -> list[str]:
        """Open a test, draw all its figures, and return their names."""
        self.page.evaluate(f"location.hash = '#t/{row}'")
        self.page.wait_for_selector("#opened:not(.hidden)")
        figures = self.page.locator("[data-figure]")
        for index in range(figures.count()):
            figures.nth(index).scroll_into_view_if_needed()
            figures.nth(index).locator(".main-svg").first.wait_for()
        return [str(figures.nth(index).get_attribute("data-figure")) for index in range(figures.count())]

    def width_beyond(self) -> int:
        """Return by how many pixels the page, or its table, is wider than the window has room for."""
        page = "document.documentElement.scrollWidth - innerWidth"
        table = "(box => box.scrollWidth - box.clientWidth)(document.querySelector('.table-box'))"
        return int(self.page.evaluate(f"Math.max({page}, {table})"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with one of everything."""
    return written(tmp_path_factory.mktemp("page") / "page.html", showcase(), showcase(2, slower=1.1), history())


def written(path: Path, run: SavedRun, baseline: SavedRun | None = None, older: list[SavedRun] | None = None) -> Path:
    """Write a page."""
    path.write_text(html_page(run, baseline, older or []), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser: Any, path: Path) -> Iterator[Shown]:
    """That page, open on a desktop; nothing may have been said or asked for by the end of the test."""
    opened = Shown(browser, path, viewport={"width": 1440, "height": 900})
    yield opened
    assert opened.said == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in opened.requests)
    assert opened.page.evaluate("window.hacked") is None
    opened.context.close()


def test_the_front_page_counts_and_lists(shown: Shown) -> None:
    tiles = {
        tile.get_attribute("data-filter"): tile.inner_text().split()[0] for tile in shown.page.locator(".tile").all()
    }
    assert tiles == {
        "fail": "3", "invalid": "1", "inconclusive": "1", "slower": "0", "faster": "2", "pass": "7", "soft": "1",
        "none": "1", "unmeasured": "2", "all": "16",
    }  # fmt: skip
    assert shown.names()[:2] == ["test_hot", "test_layer_norm"]
    assert "test_gelu" in shown.page.locator(".panels .tone-inconclusive").inner_text()
    assert "1.100x, wanted at least 1.2x" in shown.page.locator(".panels .tone-fail").first.inner_text()
    assert "test_softmax" in shown.page.locator(".panels .tone-faster").inner_text()
    assert shown.page.evaluate("typeof Plotly") == "undefined", "plotly is read when the first figure is drawn"


def test_search_and_tiles_filter(shown: Shown) -> None:
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("ROWS 20")
    assert shown.names() == ["test_rows[2048]"]
    assert shown.page.locator("#shown").inner_text() == "1 of 16 rows"
    shown.page.keyboard.press("Escape")
    assert len(shown.names()) == 16
    shown.page.locator(".tile[data-filter=inconclusive]").click()
    assert shown.names() == ["test_gelu"]
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("no such test")
    assert shown.names() == []
    assert "Nothing fits." in shown.page.locator(".table-box").inner_text()


def test_columns_sort_up_and_down_and_keep_what_has_no_number_last(shown: Shown) -> None:
    shown.page.locator("[data-sort=time]").click()
    assert shown.page.locator("th[aria-sort=ascending]").inner_text().startswith("Time")
    first, *_, last = shown.names()
    assert (first, last) == ("test_every_shape", "test_empty")
    shown.page.locator("[data-sort=time]").click()
    first, *_, last = shown.names()
    assert (first, last) == ("test_rows[8192]", "test_empty")
    shown.page.locator("[data-sort=test]").click()
    assert [name for name in shown.names() if "rows" in name] == [f"test_rows[{rows}]" for rows in SWEEP]


def test_opening_a_test_draws_its_figures(shown: Shown) -> None:
    shown.page.locator(".results td.test a", has_text="test_softmax").click()
    assert shown.open(0) == ["samples", "speedup", "kernels", "roofline", "clocks", "history"]
    assert shown.page.locator("#opened h1").inner_text() == "test_softmax[4096-float16]"
    samples = "document.querySelector('[data-figure=samples] .plot')"
    assert shown.page.evaluate(f"{samples}.data.filter(one => one.type === 'scatter').map(one => one.x.length)") == [
        80,
        80,
    ]
    assert shown.page.evaluate("document.querySelector('[data-figure=kernels] .plot').data.length") == 4
    assert shown.page.evaluate("document.querySelector('[data-figure=history] .plot').data[0].y.length") == 13
    shown.page.keyboard.press("Escape")
    shown.page.wait_for_selector("#front:not(.hidden)")
    assert "softmax" in shown.page.evaluate("document.activeElement.innerText"), "the keyboard is back where it was"


def test_sweeps_and_examples_have_their_figures(shown: Shown) -> None:
    assert "sweep" in shown.open(SWEEP_ROW)
    sweep = shown.page.evaluate("document.querySelector('[data-figure=sweep] .plot').data[0].x")
    assert sweep == list(SWEEP)
    assert "examples" in shown.open(GIVEN_ROW)
    figure = shown.page.locator("[data-figure=examples]")
    drawn = "document.querySelector('[data-figure=examples] .plot').data[1].x"
    products = shown.page.evaluate(drawn)
    assert len(products) == 30
    figure.locator("select").select_option("shape[0]")
    assert all(rows <= product for rows, product in zip(shown.page.evaluate(drawn), products, strict=True))
    shown.page.locator(".switch select").select_option(index=3)
    shown.page.wait_for_function("location.hash.split('/').length === 3")
    assert shown.said == []


def test_the_theme_follows_the_system_and_the_button(browser: Any, path: Path) -> None:
    for scheme, other in (("dark", "light"), ("light", "dark")):
        shown = Shown(browser, path, color_scheme=scheme)
        shown.open(0)
        assert shown.page.evaluate("document.documentElement.dataset.theme") == scheme
        shown.page.locator("#theme").click()
        assert shown.page.evaluate("document.documentElement.dataset.theme") == other
        assert shown.said == []
        shown.context.close()


@pytest.mark.parametrize("row", [None, 0, SWEEP_ROW, GIVEN_ROW, HOSTILE_ROW])
def test_a_phone_shows_it_without_scrolling_sideways(browser: Any, path: Path, row: int | None) -> None:
    shown = Shown(browser, path, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    if row is not None:
        shown.open(row)
    assert shown.width_beyond() == 0
    assert shown.said == []
    shown.context.close()


def test_every_test_opens_by_the_keyboard_alone(shown: Shown) -> None:
    shown.page.locator(".results td.test a").first.focus()
    shown.page.keyboard.press("Enter")
    seen = []
    for _ in range(16):
        shown.page.wait_for_selector("#opened:not(.hidden)")
        seen.append(shown.page.locator("#opened h1").inner_text())
        address = shown.page.evaluate("location.hash")
        shown.page.keyboard.press("ArrowRight")
        if len(seen) < 16:
            shown.page.wait_for_function(f"location.hash !== '{address}' && document.title.length")
            shown.page.wait_for_timeout(30)
    assert len(set(seen)) == 16


def test_no_name_runs_and_every_name_is_shown_as_it_is(shown: Shown) -> None:
    assert shown.open(HOSTILE_ROW)
    shown.page.locator("details summary").last.click()
    text = shown.page.evaluate("document.getElementById('opened').textContent")
    assert text.count(NASTY) >= 8
    hover = shown.page.locator("[data-figure=kernels] .plot")
    hover.hover()
    assert shown.page.locator("img").count() == 0
    assert shown.page.evaluate("document.querySelectorAll('body script').length") == 3


def test_plotly_shows_names_as_they_are(browser: Any, tmp_path: Path) -> None:
    label = '<b>bold</b> &lt;<a href="x">a</a>'
    record = TestRecord(nodeid="a.py::test_a", device=GPU, measurements=pair(random.Random(1), 20, 1.4, name=label))
    shown = Shown(browser, written(tmp_path / "page.html", SavedRun(records=(record,), datetime="")))
    shown.open(0)
    drawn = "document.querySelector('[data-figure=samples] .annotation-text')"
    assert shown.page.evaluate(f"{drawn}.textContent") == label
    assert shown.page.evaluate(f"{drawn}.querySelectorAll('a, tspan').length") == 0
    assert shown.said == []
    shown.context.close()


def test_print_draws_everything_in_light(shown: Shown) -> None:
    shown.page.evaluate("document.documentElement.dataset.theme = 'dark'; location.hash = '#t/0'")
    shown.page.wait_for_selector("#opened:not(.hidden)")
    shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shown.page.evaluate("document.documentElement.dataset.theme") == "light"
    assert shown.page.evaluate("[...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.main-svg'))")
    shown.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown.page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("tests", [0, 1, 300])
def test_runs_of_any_length_open(browser: Any, tmp_path: Path, tests: int) -> None:
    shown = Shown(browser, written(tmp_path / "page.html", make_run(tests), make_run(tests, seed=1)))
    assert len(shown.names()) == tests
    if tests:
        assert shown.open(0)
    assert shown.said == []
    shown.context.close()
