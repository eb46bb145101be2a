"""The HTML page: its numbers, escaped text, small size, and no requests."""

import math
import random
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from pytest_gpubench import Measurement, PastChange
from pytest_gpubench.report.html.numbers import five_digits
from pytest_gpubench.report.html.page import html_page
from pytest_gpubench.results.model import CommitInfo, Outcome, SavedRun, TestRecord
from pytest_gpubench.stats.summary import Interval
from tests.report.page import content_in, content_of, page_content
from tests.report.showcase import GPU, NASTY, given_record, history, pair, showcase
from tests.results.measured import BARE_GPU, alone, present, record, run
from tests.results.measured import verdict as verdict_on
from tests.results.saved import make_run


class Tags(HTMLParser):
    """Collects the elements of a page, as a parser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page() -> str:
    return html_page(showcase(), showcase(2), history(3))


def test_every_number_of_a_row_is_the_stored_one_to_five_digits() -> None:
    saved = make_run(tests=1)
    [row], [test] = (page_content(saved)[name] for name in ("rows", "tests"))
    item, stored = test["items"][row["item"]], saved.records[0].measurements[1]
    speedup = present(stored.speedup)
    assert item["median"] == pytest.approx(stored.timing.median_us, rel=1e-4)
    assert item["interval"] == pytest.approx(list(present(stored.timing.median_interval_us)), rel=1e-4)
    assert item["samples"] == pytest.approx(list(stored.timing.samples_us), rel=1e-4)
    assert item["clocks"] == list(stored.timing.sm_clock_mhz)
    assert item["speedup"]["ratio"] == pytest.approx(speedup.ratio, rel=1e-4)
    assert item["speedup"]["interval"] == pytest.approx(list(present(speedup.interval)), rel=1e-4)
    assert item["speedup"]["ratios"] == pytest.approx([math.exp(each) for each in speedup.log_ratios], rel=1e-4)
    assert test["items"][item["ref"]]["label"] == speedup.reference
    assert item["verdicts"][0]["sentence"] == stored.verdicts[0].sentence
    assert {name for name, value in item.items() if value in (None, "", [], {}, 0)} <= {"ref"}
    taken = "64 registers, 2 KiB shared, 1 block per SM, 2.00 waves"
    assert [each[4] for each in test["items"][0]["launched"]] == [taken, ""]
    assert (row["status"], item["differences"]) == ("pass", list(stored.differences))


@pytest.mark.parametrize("value", [158.6496, 2.01499, 0.00122496, 1e9])
def test_a_number_is_rounded_once(value: float) -> None:
    """To the four, three or two digits that the page shows, as it is elsewhere."""
    for digits in (4, 3, 2):
        assert f"{five_digits(value):.{digits}g}" == f"{value:.{digits}g}"


def test_the_front_page_says_where_and_when(page: str) -> None:
    assert dict(content_in(page)["facts"]) == {
        "Device": "NVIDIA H200", "Host": "gpu-host-3", "Driver": "570.86.15", "CUDA": "12.8",
        "Timer": "profiler", "Cache": "cold", "Commit": "fedcba98 on main, dirty",
    }  # fmt: skip


def test_a_commit_that_is_not_known_says_why() -> None:
    saved = msgspec.structs.replace(make_run(1), commit_info=CommitInfo(error="git is not installed"))
    assert dict(page_content(saved)["facts"])["Commit"] == "not known: git is not installed"


def test_a_test_has_the_facts_that_are_known() -> None:
    facts = dict(content_of(record(alone(), device=BARE_GPU))["tests"][0]["facts"])
    assert {name: value for name, value in facts.items() if value == "None"} == {}
    assert (facts["device"], facts["host"], facts["NVML"]) == ("NVIDIA H200", "here", "usable")


def test_each_outcome_has_its_row(page: str) -> None:
    content = content_in(page)
    found = {content["tests"][row["test"]]["name"]: (row["status"], row["soft"]) for row in content["rows"]}
    assert found.pop(f"test_{NASTY}") == ("fail", False)
    assert {name: each for name, each in found.items() if "rows" not in name} == {
        "test_softmax[4096-float16]": ("pass", False),
        "test_layer_norm": ("fail", False),
        "test_gelu": ("inconclusive", False),
        "test_hot": ("invalid", False),
        "test_unforced": ("fail", True),
        "test_every_shape": ("fail", False),
        "test_gather": ("not judged", False),
        "test_off": ("unmeasured", False),
        "test_empty": ("unmeasured", False),
    }


def test_the_worst_of_many_examples_stands_for_all() -> None:
    content = content_of(given_record(random.Random(1)))
    [row], [test] = content["rows"], content["tests"]
    ratios = [item["speedup"]["ratio"] for item in test["items"] if item["role"] == "candidate"]
    assert row["more"] == 29
    assert test["items"][row["item"]]["speedup"]["ratio"] == min(ratios)
    assert test["size"] == "shape"


def test_a_reference_that_was_judged_counts_for_its_candidate_and_has_a_row_without_one() -> None:
    verdict = verdict_on("min_speedup=1", Outcome.INVALID, "too fast to be true")
    reference, candidate = pair(random.Random(1), 20, 1.5)
    broken = msgspec.structs.replace(reference, verdicts=(verdict,))
    for measurements, place in (((broken, candidate), 1), ((broken,), 0)):
        [row] = content_of(TestRecord(nodeid="a.py::test_a", device=GPU, measurements=measurements))["rows"]
        assert (row["status"], row["item"]) == ("invalid", place)


@pytest.mark.parametrize("records", [(), (TestRecord(nodeid="a", device=GPU),)])
def test_a_run_without_numbers_has_a_page(records: tuple[TestRecord, ...]) -> None:
    saved = SavedRun(records=records, datetime="2026-03-01T00:00:00+00:00")
    assert len(content_in(html_page(saved, saved, [saved]))["rows"]) == len(records)


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0, -1.0])
def test_numbers_that_cannot_be_true_do_not_cost_the_page(broken: float) -> None:
    saved = make_run(1)
    item = saved.records[0].measurements[1]
    timing = msgspec.structs.replace(item.timing, samples_us=(broken,) * 20, sm_clock_mhz=(broken,) * 20)
    speedup = msgspec.structs.replace(present(item.speedup), ratio=broken, log_ratios=(broken, 800.0))
    arms = (saved.records[0].measurements[0], msgspec.structs.replace(item, timing=timing, speedup=speedup))
    broken_record = msgspec.structs.replace(saved.records[0], measurements=arms, extra_info={"value": broken})
    bad = msgspec.structs.replace(saved, records=(broken_record,), datetime="2026-02-01T00:00:00+00:00")
    assert content_in(html_page(bad, saved, [saved]))["tests"][0]["items"][1]["reps"] == 20
    content = content_in(html_page(saved, bad, [bad]))
    assert content["rows"][0]["status"] == "pass"
    assert "past" not in content["tests"][0]["items"][1]


def test_what_a_page_keeps_of_very_many_samples_is_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.report.html.measured.MOST_NUMBERS", 600)
    saved = make_run(3, reps=500)
    item = page_content(saved)["tests"][0]["items"][1]
    stored = saved.records[0].measurements[1].timing.samples_us
    assert item["samples"] == pytest.approx(list(stored[:: item["step"]]), rel=1e-4)
    assert (item["reps"], item["step"]) == (500, 13)  # of 15 series, 40 numbers each


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("f is too slow: median 9 us [8 us, 9 us], wanted at most 8 us (54 reps)", "median 9 us [8 us, 9 us]"),
        ("f is faster than g: h: 5.2x [5.1, 5.3], wanted at least 4x (20 quads)", "5.2x [5.1, 5.3]"),
        ("f launches 3 kernels, wanted at most 1: 3 x a", "launches 3 kernels"),
        ("f takes 12 MiB of GPU memory, wanted at most 8 MiB", "takes 12 MiB of GPU memory"),
        ("f: a takes 72 registers a thread, wanted at most 64; b takes", "a takes 72 registers a thread"),
        ("f copies no memory, as wanted", "copies no memory, as wanted"),
        ("f: no max_time_us for NVIDIA A100, only for H200", "no max_time_us for NVIDIA A100, only for H200"),
    ],
)  # fmt: skip
def test_what_was_measured_stands_beside_each_limit(sentence: str, text: str) -> None:
    judged = msgspec.structs.replace(alone("f"), verdicts=(verdict_on("min_speedup=1", Outcome.PASS, sentence),))
    assert content_of(record(judged))["tests"][0]["items"][0]["verdicts"][0]["measured"] == text


@pytest.mark.parametrize(
    ("ratio", "interval", "word"),
    [
        (1.1, Interval(1.05, 1.15), "slower"),
        (1.1, Interval(0.99, 1.2), ""),
        (1.1, None, ""),
        (0.9, Interval(0.85, 0.95), "faster"),
        (1.005, Interval(1.004, 1.006), ""),
    ],
)
def test_what_changed_against_the_baseline_is_told(ratio: float, interval: Interval | None, word: str) -> None:
    change = PastChange(baseline="main", metric="speedup", ratio=ratio, interval=interval, old_us=10)
    [item] = content_of(record(msgspec.structs.replace(alone(), change=change)))["tests"][0]["items"]
    ends = interval and list(interval)
    told = {"ratio": ratio, "interval": ends, "of": "speedup", "word": word, "baseline": "main", "old": 10}
    assert item["change"] == told


def test_new_and_gone_tests_and_other_devices_are_told() -> None:
    old, new = make_run(3), make_run(5)
    content = page_content(new, old)
    assert [bool(test["items"][-1]["base"].get("new")) for test in content["tests"]] == [False] * 3 + [True] * 2
    assert page_content(old, new)["gone"] == [each.nodeid for each in new.records[3:]]
    other = page_content(new, make_run(5, device="NVIDIA A100"))
    assert other["foreign"] == ["NVIDIA H200"]
    assert all(test["items"][-1]["base"] == {"new": True} for test in other["tests"])


def test_examples_that_the_baseline_lacks_are_not_called_new() -> None:
    older, newer = (SavedRun(records=(given_record(random.Random(seed)),), datetime="") for seed in (2, 3))
    assert not any("base" in item for item in page_content(newer, older)["tests"][0]["items"])


def test_history_is_in_order_and_knows_its_commits() -> None:
    saved, older = showcase(), history(5)
    content = page_content(saved, None, (*older, saved))
    assert [each["commit"] for each in content["runs"]] == [f"{day:02x}ab34cd" for day in range(5)] + ["fedcba98"]
    assert [each["dirty"] for each in content["runs"]] == [False, False, False, True, False, True]
    past = content["tests"][0]["items"][1]["past"]
    stored = older[-1].records[0].measurements[1]
    assert [point[0] for point in past] == [0, 1, 2, 3, 4]
    assert past[0][1] == pytest.approx(stored.timing.median_us, rel=1e-4)
    assert past[0][4] == pytest.approx(present(stored.speedup).ratio, rel=1e-4)


def series(times_us: list[float], **old: Any) -> dict[str, Any]:
    """Return the history of a measurement that has taken these times, the last of them now."""

    def item(us: float, **others: Any) -> Measurement:
        return alone("f", us * (1 + 0.0001 * (us % 3)), **others)

    *before, now = times_us
    older = [run(record(item(us, **old)), datetime=f"2026-03-01T00:00:{place:02}") for place, us in enumerate(before)]
    found: dict[str, Any] = page_content(run(record(item(now))), None, tuple(older))["tests"][0]["items"][0]
    return found


@pytest.mark.parametrize(
    ("times_us", "changes"),
    [
        ([100] * 8 + [110] * 8, [(7, 8, 1.1)]),
        ([110] * 8 + [100] * 8, [(7, 8, 1 / 1.1)]),
        ([100] * 8 + [100.5] * 8, []),  # less than is worth telling
        ([100] * 5 + [110] * 5, [(4, 5, 1.1)]),
        ([100] * 2 + [110] * 3, []),  # too few runs
        ([100] * 16, []),
    ],
)
def test_changes_name_the_runs_they_lie_between(times_us: list[float], changes: list[tuple[int, int, float]]) -> None:
    found = series(times_us).get("changes", [])
    assert [tuple(each[:2]) for each in found] == [each[:2] for each in changes]
    assert [each[2] for each in found] == pytest.approx([each[2] for each in changes], rel=0.01)


@pytest.mark.parametrize("other", [{"timer": "events"}, {"cache": "hot"}, {"samples_us": (0.0,) * 30}])
def test_times_of_another_kind_are_not_in_the_history(other: dict[str, Any]) -> None:
    assert not {"past", "by", "changes"} & series([100, 100], **other).keys()


def test_the_trend_is_the_mean_of_all_ratios_to_this_run() -> None:
    now, first, second = (
        run(record(*(alone(label, us) for label, us in times_us.items())), datetime=f"2026-03-0{day}")
        for times_us, day in (({"f": 10, "g": 10, "h": 10}, 3), ({"f": 20, "g": 5}, 1), ({"f": 10}, 2))
    )
    [first, second, own] = page_content(now, None, (first, second))["trend"]
    assert first[:3] == [0, 2, 1]
    assert first[3] < 1 < first[4]
    assert second == [1, 1, 1, 1, 1]
    assert own == [2, 2, 1, 1, 1]
    assert content_of(record(alone()))["trend"] == []


def test_a_page_without_tests_is_below_100_kb_and_a_test_adds_few() -> None:
    empty, one = (len(html_page(run(*make_run(tests, reps=160).records)).encode()) for tests in (0, 1))
    assert empty < 100_000
    assert one - empty < 10_000


def test_a_page_has_the_elements_it_needs_and_none_that_a_name_made(page: str) -> None:
    tags = [tag for tag, _ in Tags(page).found]
    assert tags == [tag for tag, _ in Tags(html_page(run())).found]
    assert tags.count("script") == 2
    assert "img" not in tags


def test_nothing_is_loaded_from_anywhere() -> None:
    text = html_page(run()).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"https?:|//[a-z]+\.|@import|url\(|\bfetch\(|XMLHttpRequest|import\(|sendBeacon|WebSocket", text
    )
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert text.count("</script") == 2
    assert "<!--" not in text  # which would change how a script is read


def test_the_policy_allows_the_pages_own_script_alone(page: str) -> None:
    [policy] = [str(attributes["content"]) for _, attributes in Tags(page).found if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert len(re.findall("'sha256-", policy)) == 1
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "unsafe-eval" not in policy
    assert not any({"src", "href"} & set(found) for tag, found in Tags(page).found if tag in ("script", "img"))


@pytest.mark.parametrize("name", [NASTY, "</script>", "<!--", "]]>", "\ud800<b>&", "\u2028\u2029", "\x00"])
def test_json_has_nothing_that_a_browser_takes_for_markup(name: str) -> None:
    page = html_page(run(name=name))
    assert content_in(page)["name"] == name
    assert page.encode()  # whatever UTF-8 cannot write
    assert "\ud800" not in name or "<title>GPU benchmarks · \\ud800&lt;b&gt;&amp;</title>" in page
    written = page.partition('id="content">')[2].partition("</script>")[0]
    assert written.isascii()
    assert not set("<>&") & set(written)


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        ("", {}),
        ("rows=3, scale=-1.5e-3", {"rows": 3, "scale": -0.0015}),
        ("shape=(3, 4), dtype=torch.float16", {"shape": 12, "shape[0]": 3, "shape[1]": 4}),
        ("x=Tensor((2, 8), strides=(8,)), n=7", {"x": 16, "x[0]": 2, "x[1]": 8, "strides[0]": 8, "n": 7}),
        ("flag=True, name='n=3'", {}),
        ("no keywords at all", {}),
        ("rows=1e999", {}),
        ("=, ==((, x=[", {}),
    ],
)
def test_the_sizes_of_an_example(example: str, sizes: dict[str, float]) -> None:
    [item] = content_of(record(msgspec.structs.replace(alone(), example=example)))["tests"][0]["items"]
    assert item.get("sizes", {}) == sizes
