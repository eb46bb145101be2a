"""The page: what it holds, that nothing in it becomes markup, that it stays small and loads nothing."""

import builtins
import json
import math
import random
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.report.html import html_page
from pytest_gpubench.report.html.content import change_content, page_content
from pytest_gpubench.report.html.numbers import five_digits, longest_series, quantiles, thin
from pytest_gpubench.report.html.page import as_json, as_script, asset
from pytest_gpubench.report.html.sizes import sizes_in
from pytest_gpubench.report.limits import shown_limit
from pytest_gpubench.results.model import (
    CommitInfo,
    Kernel,
    Measurement,
    Outcome,
    SavedRun,
    Speedup,
    TestRecord,
    Timing,
)
from pytest_gpubench.stats.summary import Interval
from tests.results.measured import verdict as verdict_on
from tests.results.saved import device_facts, make_run

GPU = device_facts("NVIDIA H200")
NASTY = '</script><img src=x onerror="window.hacked=1"><!--<script>window.hacked=1</script>&lt;b&gt;\u2028\'`${1}'
LIMIT = 1.2


# a run with one of everything


def showcase(seed: int = 1, slower: float = 1.0) -> SavedRun:
    """Return a run with every outcome, a sweep, examples of hypothesis, and hostile names."""
    chance = random.Random(seed)
    sweep = [compared(chance, f"test_rows[{rows}]", rows / 40, 1.7, {"rows": str(rows)}) for rows in SWEEP]
    return SavedRun(
        records=(
            compared(
                chance, "test_softmax[4096-float16]", 84 * slower, 1.62 / slower, {"size": "4096", "dtype": "float16"}
            ),
            compared(chance, "test_layer_norm", 40, 1.1, outcome=Outcome.FAIL),
            compared(chance, "test_gelu", 12, 1.2, outcome=Outcome.INCONCLUSIVE),
            compared(chance, "test_hot", 30, 1.5, outcome=Outcome.INVALID, throttle_reasons=("SW power cap",)),
            compared(chance, "test_unforced", 55, 1.05, outcome=Outcome.FAIL, enforced=False),
            *sweep,
            given_record(chance),
            timed(chance, 84 * slower),
            TestRecord(nodeid="tests/perf/test_a.py::test_off", device=GPU, measurements=(unmeasured(),)),
            TestRecord(nodeid="tests/perf/test_a.py::test_empty", device=GPU),
            hostile(chance),
        ),
        datetime="2026-03-08T12:30:45.123456+00:00",
        name="nightly",
        version="0.1.0",
        commit_info=CommitInfo(id="fedcba9876543210fedcba9876543210fedcba98", branch="main", dirty=True),
        machine_info={"node": "gpu-host-3", "torch": "2.9.0", "cpu": {"count": 16}},
        settings={"reps": "80"},
    )


SWEEP = (256, 512, 1024, 2048, 4096, 8192)


def arm(chance: random.Random, label: str, median_us: float, reps: int = 80, **others: Any) -> Timing:
    """Return a timing with a tail of slow samples and two kernels."""
    samples = [median_us * math.exp(abs(chance.gauss(0, 0.008)) + chance.gauss(0, 0.003)) for _ in range(reps)]
    samples[reps // 2] *= 2.5
    clock = 1980.0
    clocks = [clock := max(1500.0, min(1980.0, clock + chance.choice([-15, 0, 0, 15]))) for _ in range(reps)]
    names = {f"void {label}_kernel<c10::Half, 4>(float const*, int)": 0.8, "reduce_kernel<512, 1>(float)": 0.15}
    kernels = (
        *(Kernel(name=name, kind="kernel", launches=2, median_us=share * median_us) for name, share in names.items()),
        Kernel(name="Memset (Device)", kind="memset", launches=1, median_us=0.05 * median_us),
    )
    known: dict[str, Any] = {
        "moved_bytes": int(median_us * 3e6),
        "flops": int(median_us * 3e6 * chance.choice([0.5, 2, 30])),
    }
    known |= {"busy_us": tuple(samples), "span_us": tuple(sample + 0.5 for sample in samples)}
    known |= {"sm_clock_mhz": tuple(clocks), "kernels": kernels, "warmup_calls": 12, "elapsed_s": 0.8}
    return Timing(
        label=label, timer="profiler", cache="cold", device=GPU.name, samples_us=tuple(samples), **(known | others)
    )


def unmeasured() -> Measurement:
    """Return a measurement without numbers."""
    nothing = Timing(label="relu", timer="profiler", cache="cold", device=GPU.name, unmeasured="switched off")
    return Measurement(timing=nothing)


def pair(
    chance: random.Random,
    candidate_us: float,
    ratio: float,
    outcome: Outcome = Outcome.PASS,
    enforced: bool = True,
    example: str = "",
    name: str = "triton",
    **others: Any,
) -> tuple[Measurement, Measurement]:
    """Return the two arms of a comparison."""
    reference, candidate = arm(chance, "torch_eager", candidate_us * ratio), arm(chance, name, candidate_us, **others)
    logs = tuple(math.log(ratio) + chance.gauss(0, 0.01) for _ in range(40))
    low, high = sorted(logs)[10], sorted(logs)[29]
    found = Speedup(
        ratio=ratio, interval=Interval(math.exp(low), math.exp(high)), quads=40, alpha=0.001,
        reference="torch_eager", reference_us=reference.median_us, seed=7, log_ratios=logs,
    )  # fmt: skip
    sentence = (
        f"{name} is compared with torch_eager: {ratio:.3f}x, wanted at least {LIMIT:g}x (40 quads, 99.9 % interval)"
    )
    verdict = verdict_on(f"min_speedup={LIMIT}", outcome, sentence, enforced)
    return (
        Measurement(timing=reference, role="reference", example=example),
        Measurement(
            timing=candidate, role="candidate", example=example, speedup=found, verdicts=(verdict,),
            differences=("out PASS max_diff=1.2e-07 at (3, 17)",),
        ),
    )  # fmt: skip


def compared(
    chance: random.Random,
    name: str,
    candidate_us: float,
    ratio: float,
    params: dict[str, str] | None = None,
    **others: Any,
) -> TestRecord:
    """Return the record of a test that compares two arms."""
    return TestRecord(
        nodeid=f"tests/perf/test_a.py::{name}", device=GPU, params=params or {},
        measurements=pair(chance, candidate_us, ratio, **others), source="0123456789abcdef",
    )  # fmt: skip


def given_record(chance: random.Random) -> TestRecord:
    """Return the record of a test that hypothesis called with thirty shapes."""
    measurements: list[Measurement] = []
    for _ in range(30):
        rows, columns = chance.randint(1, 4096), chance.randint(1, 1024)
        ratio = 1.8 - 0.7 * math.exp(-rows * columns / 3e5)
        outcome = Outcome.PASS if ratio > LIMIT else Outcome.FAIL
        example = f"shape=({rows}, {columns}), dtype=torch.float16"
        measurements += pair(
            chance,
            3 + rows * columns / 2e4,
            ratio,
            outcome,
            example=example,
            moved_bytes=4 * rows * columns,
            flops=10 * rows * columns,
        )
    return TestRecord(nodeid="tests/perf/test_b.py::test_every_shape", device=GPU, measurements=tuple(measurements))


def timed(chance: random.Random, median_us: float) -> TestRecord:
    """Return the record of a test that times one function on its own."""
    verdict = verdict_on("max_time_us={'H200': 90, 'H100': 120}", Outcome.PASS, "fast enough")
    std = verdict_on("max_rel_std=0.02", Outcome.NOT_JUDGED, "not judged here")
    item = Measurement(
        timing=arm(chance, "gather", median_us, flags=("one flag",), discarded=2), verdicts=(verdict, std)
    )
    return TestRecord(nodeid="tests/perf/test_b.py::test_gather", device=GPU, measurements=(item,))


def hostile(chance: random.Random) -> TestRecord:
    """Return a record in which every text is an attempt at injection."""
    arms = pair(chance, 20, 1.4, name=NASTY, example=f"text={NASTY!r}", flags=(NASTY,), throttle_reasons=(NASTY,))
    kernel = Kernel(name=NASTY, kind="kernel", launches=1, median_us=20)
    timing = msgspec.structs.replace(arms[1].timing, kernels=(kernel,))
    verdict = verdict_on(f"min_speedup={NASTY}", Outcome.FAIL, NASTY)
    candidate = msgspec.structs.replace(arms[1], timing=timing, verdicts=(verdict,), differences=(NASTY,))
    return TestRecord(
        nodeid=f"tests/{NASTY}.py::test_{NASTY}", device=GPU, params={NASTY: NASTY}, warnings=(NASTY,),
        measurements=(arms[0], candidate), extra_info={NASTY: [NASTY, {"deep": NASTY}]},
    )  # fmt: skip


def history(count: int = 12) -> list[SavedRun]:
    """Return older runs, the newest first."""
    runs = [showcase(seed=10 + day, slower=1.06 if day < 5 else 1.0) for day in range(count)]
    return [
        msgspec.structs.replace(
            run, datetime=f"2026-02-{day + 1:02}T03:00:00+00:00", name="",
            commit_info=CommitInfo(id=f"{day:02x}ab34cd12" + "0" * 30, branch="main", dirty=day == 3),
        )
        for day, run in reversed(list(enumerate(runs)))
    ]  # fmt: skip


def content_in(page: str) -> Any:
    """Return what a page's script reads."""
    found = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


class Tags(HTMLParser):
    """Collects the elements of a page, as a parser sees them, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and data.strip():
            self.scripts.append(data)


# the page as a whole


def test_a_page_has_the_elements_it_needs_and_none_that_a_name_made() -> None:
    plain, hostile_page = html_page(make_run()), html_page(showcase(), showcase(2), history(3))
    tags = [tag for tag, _ in Tags(hostile_page).found]
    assert tags == [tag for tag, _ in Tags(plain).found]
    assert tags.count("script") == 3
    assert "img" not in tags


def test_every_number_of_a_row_is_the_stored_one_to_five_digits() -> None:
    run = make_run(tests=1)
    [row], [test] = (content_in(html_page(run))[name] for name in ("rows", "tests"))
    item, stored = test["items"][row["item"]], run.records[0].measurements[1]
    assert stored.speedup is not None
    assert stored.speedup.interval is not None
    assert stored.timing.median_interval_us is not None
    assert item["median"] == pytest.approx(stored.timing.median_us, rel=1e-4)
    assert item["interval"] == pytest.approx(list(stored.timing.median_interval_us), rel=1e-4)
    assert item["samples"] == pytest.approx(list(stored.timing.samples_us), rel=1e-4)
    assert item["clocks"] == list(stored.timing.sm_clock_mhz)
    assert item["speedup"]["ratio"] == pytest.approx(stored.speedup.ratio, rel=1e-4)
    assert item["speedup"]["interval"] == pytest.approx(list(stored.speedup.interval), rel=1e-4)
    assert item["speedup"]["ratios"] == pytest.approx([math.exp(each) for each in stored.speedup.log_ratios], rel=1e-4)
    assert test["items"][item["ref"]]["label"] == stored.speedup.reference
    assert item["verdicts"][0]["sentence"] == stored.verdicts[0].sentence
    assert (row["status"], item["differences"]) == ("pass", list(stored.differences))


def test_the_front_page_says_where_and_when() -> None:
    facts = dict(content_in(html_page(showcase()))["facts"])
    assert facts == {
        "Device": "NVIDIA H200", "Host": "gpu-host-3", "Driver": "570.86.15", "CUDA": "12.8",
        "Commit": "fedcba987 on main, dirty", "Timer": "profiler", "Cache": "cold",
    }  # fmt: skip


def test_a_commit_that_is_not_known_says_why() -> None:
    run = msgspec.structs.replace(make_run(1), commit_info=CommitInfo(error="git is not installed"))
    assert dict(page_content(run, None, ())["facts"])["Commit"] == "git is not installed"


def test_each_outcome_has_its_row() -> None:
    content = page_content(showcase(), None, ())
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
    content = page_content(SavedRun(records=(given_record(random.Random(1)),), datetime=""), None, ())
    [row], [test] = content["rows"], content["tests"]
    ratios = [item["speedup"]["ratio"] for item in test["items"] if item["role"] == "candidate"]
    assert row["more"] == 29
    assert test["items"][row["item"]]["speedup"]["ratio"] == min(ratios)
    assert test["size"] == "shape"


def test_a_reference_that_was_judged_but_has_no_candidate_has_a_row() -> None:
    verdict = verdict_on("min_speedup=1", Outcome.INVALID, "too fast to be true")
    broken = Measurement(timing=unmeasured().timing, verdicts=(verdict,), role="reference")
    record = TestRecord(nodeid="a.py::test_a", device=GPU, measurements=(broken,))
    assert page_content(SavedRun(records=(record,), datetime=""), None, ())["rows"][0]["status"] == "invalid"


def test_a_reference_that_is_invalid_makes_its_candidates_row_invalid() -> None:
    verdict = verdict_on("min_speedup=1", Outcome.INVALID, "too fast to be true")
    reference, candidate = pair(random.Random(1), 20, 1.5)
    arms = (msgspec.structs.replace(reference, verdicts=(verdict,)), candidate)
    record = TestRecord(nodeid="a.py::test_a", device=GPU, measurements=arms)
    [row] = page_content(SavedRun(records=(record,), datetime=""), None, ())["rows"]
    assert (row["status"], row["item"]) == ("invalid", 1)


@pytest.mark.parametrize("records", [(), (TestRecord(nodeid="a", device=GPU),)])
def test_a_run_without_numbers_has_a_page(records: tuple[TestRecord, ...]) -> None:
    run = SavedRun(records=records, datetime="2026-03-01T00:00:00+00:00")
    assert len(content_in(html_page(run, run, [run]))["rows"]) == len(records)


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0, -1.0])
def test_numbers_that_cannot_be_true_do_not_cost_the_page(broken: float) -> None:
    run = make_run(1)
    item = run.records[0].measurements[1]
    assert item.speedup is not None
    timing = msgspec.structs.replace(item.timing, samples_us=(broken,) * 20, sm_clock_mhz=(broken,) * 20)
    speedup = msgspec.structs.replace(item.speedup, ratio=broken, log_ratios=(broken, 800.0))
    arms = (run.records[0].measurements[0], msgspec.structs.replace(item, timing=timing, speedup=speedup))
    record = msgspec.structs.replace(run.records[0], measurements=arms, extra_info={"value": broken})
    bad = msgspec.structs.replace(run, records=(record,))
    assert content_in(html_page(bad, run, [run]))["tests"][0]["items"][1]["reps"] == 20
    assert content_in(html_page(run, bad, [bad]))["rows"][0]["status"] == "pass"


# against the baseline, and over time


def test_what_changed_against_the_baseline_is_told() -> None:
    old, new = make_run(5, reps=200), make_run(5, reps=200, seed=1, slower=1.1)
    content = page_content(new, old, ())
    changes = [
        item["base"]["change"] for test in content["tests"] for item in test["items"] if item.get("role") != "reference"
    ]
    assert [change["word"] for change in changes] == ["slower"] * 5
    assert [change["ratio"] for change in changes] == pytest.approx([1.1] * 5, abs=0.01)
    assert [change["of"] for change in changes] == ["speedup"] * 4 + ["median"]
    assert page_content(old, new, ())["tests"][0]["items"][1]["base"]["change"]["word"] == "faster"
    assert page_content(old, old, ())["tests"][0]["items"][1]["base"]["change"]["word"] == ""


@pytest.mark.parametrize(
    ("ratio", "word"), [(1.0, ""), (1.005, ""), (1.03, "slower"), (1 / 1.03, "faster"), (1 / 1.005, "")]
)
def test_small_changes_are_none(ratio: float, word: str) -> None:
    def of(factor: float) -> Measurement:
        samples = tuple(factor * (100 + step / 1000) for step in range(60))
        return Measurement(timing=Timing(label="f", timer="wall", cache="cold", device="d", samples_us=samples))

    change = change_content(of(1.0), of(ratio))
    assert change is not None
    assert change["word"] == word


def test_new_and_gone_tests_and_other_devices_are_told() -> None:
    old, new = make_run(3), make_run(5)
    content = page_content(new, old, ())
    assert [bool(test["items"][-1]["base"].get("new")) for test in content["tests"]] == [False] * 3 + [True] * 2
    assert page_content(old, new, ())["gone"] == [record.nodeid for record in new.records[3:]]
    other = page_content(new, make_run(5, device="NVIDIA A100"), ())
    assert other["foreign"] == ["NVIDIA H200"]
    assert all(item["base"] == {"new": True} for test in other["tests"] for item in test["items"])


def test_examples_that_the_baseline_lacks_are_not_called_new() -> None:
    older = SavedRun(records=(given_record(random.Random(2)),), datetime="")
    newer = SavedRun(records=(given_record(random.Random(3)),), datetime="")
    assert not any("base" in item for item in page_content(newer, older, ())["tests"][0]["items"])


def test_history_is_in_order_and_knows_its_commits() -> None:
    run, older = showcase(), history(5)
    content = page_content(run, None, [*older, run])
    assert [each["commit"] for each in content["runs"]] == [f"{day:02x}ab34cd1" for day in range(5)] + ["fedcba987"]
    assert [each["dirty"] for each in content["runs"]] == [False, False, False, True, False, True]
    past = content["tests"][0]["items"][1]["past"]
    stored = older[-1].records[0].measurements[1]
    assert [point[0] for point in past] == [0, 1, 2, 3, 4]
    assert past[0][1] == pytest.approx(stored.timing.median_us, rel=1e-4)
    assert stored.speedup is not None
    assert past[0][4] == pytest.approx(stored.speedup.ratio, rel=1e-4)


# size, network, injection


def test_a_page_of_300_tests_is_under_15_mb() -> None:
    assert len(html_page(make_run(300, reps=1280), make_run(300, seed=1), [make_run(300, seed=2)]).encode()) < 15e6


def test_of_more_samples_than_fit_every_so_many_are_kept() -> None:
    run = make_run(300, reps=2000)
    item = page_content(run, None, ())["tests"][0]["items"][1]
    every = item["step"]
    assert every > 1
    assert item["samples"] == pytest.approx(list(run.records[0].measurements[1].timing.samples_us[::every]), rel=1e-4)
    assert item["reps"] == 2000


@pytest.mark.parametrize("text", [asset("page.js"), asset("style.css"), html_page(showcase(), None, ())])
def test_nothing_is_loaded_from_anywhere(text: str) -> None:
    own = re.sub(r'<script type="text/plain" id="plotly">.*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(
        r"https?:|//[a-z]+\.|@import|url\(|\bfetch\(|XMLHttpRequest|import\(|sendBeacon|WebSocket", own
    )
    assert [attributes.get("src") for tag, attributes in Tags(own).found if tag == "script"] == [None] * own.count(
        "<script"
    )
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", own)


def test_the_policy_forbids_everything_but_the_pages_own_scripts() -> None:
    [policy] = [
        str(attributes["content"])
        for tag, attributes in Tags(html_page(make_run(1))).found
        if "http-equiv" in attributes
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert len(re.findall("'sha256-", policy)) == 2
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "unsafe-eval" not in policy


@given(st.text() | st.sampled_from([NASTY, "</script>", "<!--", "]]>", "\ud800", "\u2028\u2029", "\x00"]))
def test_json_has_nothing_that_a_browser_takes_for_markup(text: str) -> None:
    written = as_json({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert written.isascii()
    assert not set("<>&") & set(written)


def test_a_script_cannot_end_its_element() -> None:
    assert as_script("a = '</script>'; b = '<!--';\r\nc\rd") == "a = '<\\/script>'; b = '<\\!--';\nc\nd"


def test_names_that_utf8_cannot_write_do_not_cost_the_page() -> None:
    run = msgspec.structs.replace(make_run(1), name="\ud800<b>&")
    page = html_page(run)
    assert page.encode()
    assert "<title>GPU benchmarks · \\ud800&lt;b&gt;&amp;</title>" in page


def test_without_plotly_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *others: Any) -> Any:
        if name.startswith("plotly"):
            raise ImportError(name)
        return imported(name, *others)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BadRequest, match=r"not installed: pip install 'pytest-gpubench\[html\]'$"):
        html_page(make_run(1))


# limits, sizes, numbers


@pytest.mark.parametrize(
    ("limit", "value", "text"),
    [
        ("min_speedup=1.5", 1.5, "≥ 1.5×"),
        ("min_speedup={'triton': 2, 'other': 3}", 2.0, "≥ 2×"),
        ("min_speedup={'other': 3}", None, "min_speedup={'other': 3}"),
        ("max_time_us=12", 12.0, "≤ 12.00 us"),
        ("max_time_us={'H100': 12, 'H200': 0.5}", 0.5, "≤ 500.0 ns"),
        ("max_time_us={'H20': 12}", None, "max_time_us={'H20': 12}"),
        ("max_time_us={'NVIDIA': 12, 'nvidia h200': 5}", 5.0, "≤ 5.000 us"),
        ("max_rel_std=0.02", 0.02, "std ≤ 2.0 %"),
        ("max_regression=median:3%", None, "max_regression=median:3%"),
        ("nothing", None, "nothing"),
        ("min_speedup=" + "(" * 5000, None, "min_speedup=" + "(" * 5000),
        ("min_speedup=True", None, "min_speedup=True"),
    ],
)
def test_a_limit_is_shown_with_its_number(limit: str, value: float | None, text: str) -> None:
    timing = arm(random.Random(1), "triton", 20)
    found = shown_limit(verdict_on(limit, Outcome.PASS), timing)
    assert (found.value, found.text) == (value, text)


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        ("", {}),
        ("rows=3", {"rows": 3}),
        ("rows=3, scale=-1.5e-3", {"rows": 3, "scale": -0.0015}),
        ("shape=(3, 4), dtype=torch.float16", {"shape": 12, "shape[0]": 3, "shape[1]": 4}),
        ("shape=(5,)", {"shape[0]": 5}),
        (
            "x=Tensor((2, 8), strides=(8,)), n=7",
            {"x": 16, "x[0]": 2, "x[1]": 8, "strides[0]": 8, "n": 7},
        ),
        ("flag=True, name='n=3'", {}),
        ("no keywords at all", {}),
        ("rows=1e999", {}),
    ],
)  # fmt: skip
def test_the_sizes_of_an_example(example: str, sizes: dict[str, float]) -> None:
    assert sizes_in(example) == sizes


@given(st.text())
def test_no_example_is_too_strange_for_its_sizes(text: str) -> None:
    assert all(math.isfinite(size) for size in sizes_in(text).values())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (math.nan, None),
        (math.inf, None),
        (0.0, 0),
        (1980.0, 1980),
        (123456.0, 123460),
        (0.000123456, 0.00012346),
    ],
)
def test_five_digits_are_kept(value: float | None, shown: float | None) -> None:
    assert five_digits(value) == shown


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 300))
def test_series_are_cut_only_as_far_as_they_must(lengths: list[int], most: int) -> None:
    longest = longest_series(lengths, most)
    assert sum(min(length, longest) for length in lengths) <= most
    if any(length > longest for length in lengths):
        assert sum(min(length, longest + 1) for length in lengths) > most


@given(st.lists(st.floats(1, 2), max_size=50), st.integers(0, 60))
def test_a_thinned_series_is_evenly_spaced(values: Sequence[float], longest: int) -> None:
    kept, step = thin(values, longest)
    assert len(kept) <= longest
    assert kept == ([five_digits(value) for value in values[::step]] if longest else [])
    if len(values) <= longest:
        assert len(kept) == len(values)


def test_quantiles_keep_both_ends() -> None:
    values = [float(value) for value in range(1000, 0, -1)]
    found = quantiles(values, 101)
    assert (len(found), found[0], found[-1]) == (101, 1, 1000)
    assert quantiles([3.0, 1.0], 101) == [1, 3]
