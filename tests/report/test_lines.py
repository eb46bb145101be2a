"""The lines below the tables, a failed test's section, and JUnit's properties."""

import re
from typing import Any

import msgspec
import pytest

from pytest_gpubench import DeviceFacts, Measurement, PastChange, Timing
from pytest_gpubench.report.properties import median_properties
from pytest_gpubench.report.section import report_section
from pytest_gpubench.report.terminal import summary_lines
from pytest_gpubench.results.model import Outcome, TestRecord
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.summary import Interval
from tests.results.measured import arms, clocked, record, speedup_over, timing, unmeasured, verdict

DEFAULTS = Settings()


def judged(*outcomes: Outcome, enforced: bool = True) -> TestRecord:
    found = tuple(
        verdict(f"max_time_us={1 + index}", outcome, enforced=enforced) for index, outcome in enumerate(outcomes)
    )
    return record(Measurement(timing=clocked("a", 10.0), verdicts=found))


def warnings_of(records: list[TestRecord], settings: Settings = DEFAULTS) -> list[str]:
    start = "gpu_bench: warning: "
    return [line.removeprefix(start) for line in summary_lines(records, settings) if line.startswith(start)]


OPEN = judged(Outcome.INCONCLUSIVE)
FULL, AGAINST_PAST, COUNTED = (
    record(
        Measurement(
            timing=timing("a", 10.0, samples_us=(10.0,) * 10**4), verdicts=(verdict(limit, Outcome.INCONCLUSIVE),)
        )
    )
    for limit in ("max_time_us=10", "max_regression=0.05", "max_instructions=9")
)
BESIDE_BROKEN = record(*judged(Outcome.FAIL).measurements, *OPEN.measurements)
LOOK = "look for what disturbs the GPU"


@pytest.mark.parametrize(
    ("found", "settings", "words"),
    [
        (judged(Outcome.PASS, Outcome.PASS), Settings(), "2 pass"),
        (judged(Outcome.FAIL, Outcome.PASS), Settings(), "1 pass, 1 fail"),
        (
            judged(*Outcome),
            Settings(),
            "1 pass, 1 fail, 1 inconclusive, 1 invalid (no number that can be trusted), 1 not judged",
        ),
        (OPEN, Settings(), f"1 inconclusive (raise --gpu-bench-budget-s, reps= where a test gives it, or {LOOK})"),
        (
            FULL,
            Settings(),
            f"1 inconclusive (give --gpu-bench-reps more than 10,000 reps, 1,280 to compare, or {LOOK})",
        ),
        (FULL, Settings(reps=10**4), f"1 inconclusive (raise --gpu-bench-reps, or {LOOK})"),
        (AGAINST_PAST, Settings(), "1 inconclusive"),
        (COUNTED, Settings(), "1 inconclusive"),
        (BESIDE_BROKEN, Settings(), "1 fail, 1 inconclusive"),
        (OPEN, Settings(reps=10), "1 inconclusive (raise --gpu-bench-reps, or look for what disturbs the GPU)"),
        (judged(Outcome.FAIL, enforced=False), Settings(), "1 fail (not enforced: expected to fail)"),
    ],
)
def test_the_last_line_counts_the_verdicts(found: TestRecord, settings: Settings, words: str) -> None:
    warned = record(Measurement(timing=clocked("b", 1.0)), warnings=("something to mind",))
    lines = summary_lines([found, warned], settings)
    assert lines[-1] == f"gpu_bench: limits: {words}"
    assert "gpu_bench: warning: tests/test_a.py::test_it: something to mind" in lines


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ((Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE), "3 would be judged *, 1 of them would fail"),
        ((Outcome.PASS,), "1 would be judged *, none of them would fail"),
        ((Outcome.FAIL, Outcome.INVALID), "2 would be judged *, 2 of them would fail"),
        ((Outcome.PASS, Outcome.NOT_JUDGED), "1 would be judged *, none of them would fail; 1 not judged on a CPU"),
    ],
)
def test_without_a_gpu_one_line_counts_what_would_fail(outcomes: tuple[Outcome, ...], words: str) -> None:
    cpu = DeviceFacts(type="cpu", name="AMD EPYC", host="here")
    found = msgspec.structs.replace(judged(*outcomes, enforced=False), device=cpu)
    words = words.replace("*", "with --gpu-bench-device=cpu")
    assert summary_lines([found], Settings())[-1] == f"gpu_bench: limits: no GPU was found: {words}"
    raised = msgspec.structs.replace(judged(Outcome.INCONCLUSIVE), device=cpu)
    assert summary_lines([raised], Settings())[-1].endswith("or look for what disturbs the CPU)")


def test_the_first_line_says_how_a_device_was_measured() -> None:
    items = [Measurement(timing=clocked("a", 1.0, timer=timer)) for timer in ("profiler", "profiler", "graph")]
    alike, several = (summary_lines([record(*found)], Settings()) for found in (items[:2], items))
    where = "in 1 test on NVIDIA H200 (GPU): "
    assert alike == [f"gpu_bench: 2 measurements {where}profiler timer, cold cache; 0.0 s"]
    ways = "2 with profiler timer, cold cache; 1 with graph timer, cold cache"
    assert several == [f"gpu_bench: 3 measurements {where}{ways}; 0.0 s"]


def test_examples_of_a_search_count_as_one() -> None:
    examples = [
        Measurement(timing=clocked("a", 10.0), verdicts=(verdict("min_speedup=2", outcome),), example=f"n={number}")
        for number, outcome in enumerate([Outcome.PASS, Outcome.FAIL, Outcome.FAIL])
    ]
    assert summary_lines([record(*examples)], Settings())[-1] == "gpu_bench: limits: 1 fail"
    repeated = [msgspec.structs.replace(each, example="") for each in examples]
    assert summary_lines([record(*repeated)], Settings())[-1] == "gpu_bench: limits: 1 pass, 2 fail"


def test_what_is_invalid_is_not_said_to_be_unmeasured() -> None:
    broken = Measurement(timing=unmeasured("a", "too fast"), verdicts=(verdict("min_speedup=2", Outcome.INVALID),))
    skipped = Measurement(timing=unmeasured("b", "switched off"))
    lines = summary_lines([record(broken, skipped)], Settings())
    assert lines[0] == "gpu_bench: not measured: 1 call, switched off"
    assert not any("too fast" in line for line in lines)


@pytest.mark.parametrize(("number", "shown"), [(3, 3), (4, 4), (100, 4)])
def test_a_test_warns_a_few_times(number: int, shown: int) -> None:
    warned = record(Measurement(timing=clocked("b", 1.0)), warnings=tuple("w" * (1 + index) for index in range(number)))
    lines = warnings_of([warned, warned])
    assert len(lines) == shown
    assert ("more like this" in lines[-1]) == (number > 3)


def test_warnings_alike_of_several_functions_and_tests_are_one() -> None:
    tests = [
        record(
            *(Measurement(timing=clocked(f"f{nth}_{place}", 1.0)) for place in range(3)),
            nodeid=f"test_a.py::test_{nth}",
            warnings=(*(f"f{nth}_{place}: {nth}.5x as fast" for place in range(3)), f"f{nth}_0: no limit for H200"),
        )
        for nth in range(1, 13)
    ]
    lines = warnings_of(tests)
    where = "12 tests (test_a.py::test_1, test_a.py::test_2, test_a.py::test_3 and 9 more)"
    assert lines == [
        f"{number} times in {where}, first: f1_0: {text} (--gpu-bench-verbose shows all)"
        for number, text in ((36, "1.5x as fast"), (12, "no limit for H200"))
    ]
    assert len(warnings_of(tests, Settings(verbose=True))) == 48


@pytest.mark.parametrize(
    ("candidate_mhz", "reference_mhz", "where"),
    [
        ((1980,), (1921,), None),
        ((1980,), (1920,), "a at 1980 MHz, eager at 1920 MHz"),  # more than 3 % apart
        ((1920,), (1980,), "a at 1920 MHz, eager at 1980 MHz"),
        ((), (1980,), None),
        ((1000, 1095) * 5, (1050,), None),
        ((1000, 1115) * 5, (1060,), "a: relative std 5.7 %"),  # 1.054 times half of the distance
    ],
)
def test_unsteady_clocks(candidate_mhz: tuple[float, ...], reference_mhz: tuple[float, ...], where: str | None) -> None:
    pair = arms(clocked("a", 10.0, sm_clock_mhz=candidate_mhz), clocked("eager", 20.0, sm_clock_mhz=reference_mhz))
    lines = warnings_of([record(*pair)])
    assert len(lines) == bool(where)
    for line in lines:
        assert line.startswith(f"unsteady SM clocks in tests/test_a.py::test_it ({where}): lock the clocks")
        assert "nvidia-smi -lgc" in line


def throttled(label: str = "a", reasons: tuple[str, ...] = ("SwPowerCap",)) -> Timing:
    return clocked(label, 10.0, flags=("throttled",), throttle_reasons=reasons)


@pytest.mark.parametrize(("number", "more"), [(3, ""), (4, " and 1 more")])
def test_a_warning_names_three_tests(number: int, more: str) -> None:
    records = [record(Measurement(timing=throttled()), nodeid=f"t.py::{index}") for index in range(number)]
    where = f"t.py::0 (SwPowerCap), t.py::1 (SwPowerCap), t.py::2 (SwPowerCap){more}"
    [line] = warnings_of(records)
    assert line.startswith(f"the GPU was throttled in {where}: give the GPU time to cool")


@pytest.mark.parametrize(("quads", "interval", "said"), [(3, False, True), (20, True, False)])
def test_too_few_reps_say_how_many_it_takes(quads: int, interval: bool, said: bool) -> None:
    lines = warnings_of([record(*arms(clocked("a", 10.0), clocked("eager", 20.0), quads=quads, interval=interval))])
    assert len(lines) == said
    remedy = "take 10 (--gpu-bench-reps=10), or give them time (--gpu-bench-budget-s)"
    assert all(line.endswith(remedy) for line in lines)


def test_what_the_test_itself_warns_of_is_not_said_twice() -> None:
    unclear = verdict("min_speedup=2", Outcome.INCONCLUSIVE)
    pair = arms(clocked("a", 10.0), clocked("eager", 20.0), unclear, interval=False)
    said = record(*pair, warnings=(unclear.sentence,))
    assert warnings_of([said]) == [f"tests/test_a.py::test_it: {unclear.sentence}"]
    assert len(warnings_of([record(*pair)])) == 1


def test_the_section_shows_both_arms_side_by_side() -> None:
    candidate = clocked("fused", 10.0, 1950, flags=("throttled",))
    pair = arms(candidate, clocked("eager", 20.0), verdict("min_speedup=3", Outcome.FAIL))
    alone = Measurement(timing=clocked("alone", 5.0))
    lines = report_section(record(alone, *pair)).splitlines()
    assert lines[0] == "alone: 5.000 us (median of 9 reps, cold, profiler)"
    assert lines[1].endswith("max 5.020 us; SM clock 1980 MHz; nothing unusual")
    start = lines.index("fused against eager: 2.000x [1.980, 2.020] (20 quads, 99.9 % interval, seed 7)")
    columns = [re.split(r"\s{2,}", line.strip()) for line in lines[start + 1 : start + 11]]
    assert columns == [
        ["fused", "eager"],
        ["median", "10.00 us", "20.00 us"],
        ["95 %", "[9.970, 10.03] us", "[19.94, 20.06] us"],
        ["quartiles", "[9.980, 10.02] us", "[19.96, 20.04] us"],
        ["min, max", "[9.960, 10.04] us", "[19.92, 20.08] us"],
        ["reps", "9", "9"],
        ["SM clock", "1950 MHz", "1980 MHz"],
        ["cycles", "19,500", "39,600"],
        ["timed", "cold, profiler", "cold, profiler"],
        ["notes", "throttled", "nothing unusual"],
    ]
    assert max(map(len, lines[start : start + 11])) <= 80
    assert lines[start + 11 :] == [
        "  kernels of fused:",
        "      10.00 us 100.0 % 2 x fused_kernel",
        "  kernels of eager:",
        "      20.00 us 100.0 % 2 x eager_kernel",
        "  out PASS max_diff=0",
        "  FAIL: a sentence about min_speedup=3",
    ]


def test_the_section_of_what_has_no_number_says_why() -> None:
    pair = arms(unmeasured("b", "too fast"), clocked("eager", 20.0, None), verdict("min_speedup=2", Outcome.INVALID))
    lines = report_section(record(*pair)).splitlines()
    assert lines[0] == "b against eager: too fast"
    assert [re.split(r"\s{2,}", line.strip()) for line in lines[1:3]] == [["b", "eager"], ["median", "-", "20.00 us"]]
    assert not any("SM clock" in line for line in lines)
    assert lines[-1] == "  INVALID: a sentence about min_speedup=2"
    off = arms(unmeasured("b", "switched off"), unmeasured("eager", "switched off"))
    assert report_section(record(*off)).startswith("b against eager: switched off\n")


def test_of_very_many_the_section_shows_the_last() -> None:
    alone = [Measurement(timing=clocked("alone", 1.0 + index)) for index in range(9)]
    pairs = [item for index in range(9) for item in arms(clocked("b", 10.0 + index), clocked("eager", 20.0))]
    text = report_section(record(*alone, *pairs))
    assert text.count("median of") == 1
    assert "alone: 9.000 us (median of 9 reps, cold, profiler) (the last of 9)" in text
    assert "b against eager (the last of 9): 1.111x" in text
    assert report_section(record(*alone[:8])).count("median of") == 8
    for failing in (3, 5):
        alone[failing] = msgspec.structs.replace(alone[failing], verdicts=(verdict("max_time_us=1", Outcome.FAIL),))
    assert "alone: 6.000 us (median of 9 reps, cold, profiler) (the last to fail" in report_section(record(*alone))


class OddFloat(float):
    """A kind of float, as numpy's is."""

    def __round__(self, digits: object = None) -> "OddFloat":  # type: ignore[override]
        return self


def test_properties_are_plain_and_their_names_are_used_once() -> None:
    odd = clocked("fused", 10.0, samples_us=(OddFloat(10.0),) * 9)
    outcomes = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.PASS)
    pair = arms(odd, clocked("eager", 20.0), *(verdict(f"limit={at}", each) for at, each in enumerate(outcomes)))
    ratio = speedup_over(20.0, OddFloat(2.0000004), (OddFloat(1.5), OddFloat(2.5)))
    ends = Interval(OddFloat(1.2), OddFloat(1.3))
    change = PastChange(baseline="main", metric="median", ratio=OddFloat(1.25), interval=ends, old_us=8.0)
    again = Measurement(timing=odd, speedup=ratio, change=change)
    clash = Measurement(timing=clocked("fused#2", 1.0))
    found = median_properties(record(*pair, again, clash))
    assert all(type(name) is str and type(value) in (float, str) for name, value in found)
    assert len({name for name, _ in found}) == len(found)
    assert dict(found) == {
        "gpu_bench.eager.median_us": 20.0,
        "gpu_bench.fused.median_us": 10.0,
        "gpu_bench.fused.speedup": 2.0,
        "gpu_bench.fused.speedup_low": 1.98,
        "gpu_bench.fused.speedup_high": 2.02,
        "gpu_bench.fused.verdict": "inconclusive",
        "gpu_bench.fused#2.median_us": 10.0,
        "gpu_bench.fused#2.speedup": 2.0,
        "gpu_bench.fused#2.speedup_low": 1.5,
        "gpu_bench.fused#2.speedup_high": 2.5,
        "gpu_bench.fused#2.baseline": "main",
        "gpu_bench.fused#2.change_of": "median",
        "gpu_bench.fused#2.change": 1.25,
        "gpu_bench.fused#2.change_low": 1.2,
        "gpu_bench.fused#2.change_high": 1.3,
        "gpu_bench.fused#2#2.median_us": 1.0,
    }


def test_the_worst_example_of_a_function_stands_for_all() -> None:
    items = [Measurement(timing=clocked("a", 10.0 * n), example=f"n={n}") for n in (1, 3, 2)]
    assert median_properties(record(*items)) == [("gpu_bench.a.median_us", 30.0)]


def test_all_reasons_are_a_property_each_once() -> None:
    """Also where the worst verdict has none."""
    steady, slow, late = (verdict(name, Outcome.FAIL) for name in ("max_rel_std=1", "max_time_us=1", "min_gbps=1"))
    told = [msgspec.structs.replace(slow, reasons=("one", "two")), msgspec.structs.replace(late, reasons=("two",))]
    found = median_properties(record(Measurement(timing=clocked("a", 10.0), verdicts=(steady, *told))))
    assert ("gpu_bench.a.reasons", "one; two") in found


def test_properties_of_what_has_no_number() -> None:
    broken = Measurement(timing=unmeasured("a\x00", "too fast"), verdicts=(verdict("b", Outcome.INVALID),))
    skipped = Measurement(timing=unmeasured("a", "switched off"))
    few = arms(clocked("c", 10.0), clocked("eager", 20.0), interval=False)[1]
    assert median_properties(record(broken, skipped, few)) == [
        ("gpu_bench.a\\x00.verdict", "invalid"),
        ("gpu_bench.c.median_us", 10.0),
        ("gpu_bench.c.speedup", 2.0),
    ]


ONE_OF_TWELVE = "12 tests (t.py::a, t.py::b, t.py::c and 9 more)"
SHOWS_ALL = "(--gpu-bench-verbose shows all)"


@pytest.mark.parametrize(
    ("tests", "texts", "lines"),
    [
        ("a", ["the driver is new"], ["t.py::a: the driver is new"]),
        ("aa", ["the driver is new"] * 2, ["t.py::a: the driver is new"]),  # as where it was run again
        ("ab", ["the driver is new"] * 2, ["in 2 tests (t.py::a, t.py::b): the driver is new"]),
        ("abcdefghijkl", ["the driver is new"] * 12, [f"in {ONE_OF_TWELVE}: the driver is new"]),
        ("a", ["t.py::a is not there"], ["t.py::a is not there"]),
        (
            "abcdefghijkl",
            [f"t.py::{name}: it has changed" for name in "abcdefghijkl"],
            [f"12 times in {ONE_OF_TWELVE}, first: t.py::a: it has changed {SHOWS_ALL}"],
        ),
        ("a", ["t.py::a[1] is new"], ["t.py::a: t.py::a[1] is new"]),
        ("abc", ["n is 5", "n is 5", "n is 5"], ["in 3 tests (t.py::a, t.py::b, t.py::c): n is 5"]),
        ("ab", ["n is 5", "n is 6"], [f"2 times in 2 tests (t.py::a, t.py::b), first: n is 5 {SHOWS_ALL}"]),
        # a digit within a word is no number
        ("aa", ["no float16", "no float32"], ["t.py::a: no float16", "t.py::a: no float32"]),
        ("ab", ["no float16", "no float32"], ["t.py::a: no float16", "t.py::b: no float32"]),
    ],
)
def test_what_several_tests_warn_of_is_said_once(tests: str, texts: list[str], lines: list[str]) -> None:
    item = Measurement(timing=clocked("a", 1.0))
    records = [record(item, nodeid=f"t.py::{name}", warnings=(text,)) for name, text in zip(tests, texts, strict=True)]
    assert warnings_of(records) == lines


@pytest.mark.parametrize(
    ("number", "verbose", "shown"), [(20, False, 20), (21, False, 21), (90, False, 21), (90, True, 90)]
)
def test_a_run_warns_so_many_times(number: int, verbose: bool, shown: int) -> None:
    item = Measurement(timing=clocked("a", 1.0))
    records = [record(item, nodeid=f"t.py::test_{n}", warnings=("w" * (1 + n),)) for n in range(number)]
    lines = warnings_of(records, Settings(verbose=verbose))
    assert len(lines) == shown
    more = "1 more warning" if number == 21 else "70 more warnings"
    assert (lines[-1] == f"{more} (--gpu-bench-verbose shows all)") == (number > 20 and not verbose)


FAIL = Outcome.FAIL


def past(
    nodeid: str, low: float, high: float, outcome: Outcome | None = None, baseline: str = "main", role: Any = ""
) -> TestRecord:
    """Return a test that was compared, with the ends of its interval, and judged where an outcome is given."""
    change = PastChange(baseline=baseline, metric="median", ratio=low, interval=Interval(low, high), old_us=10.0)
    verdicts = () if outcome is None else (verdict("max_regression=0.05", outcome),)
    return record(Measurement(timing=clocked("a", 10.0), change=change, verdicts=verdicts, role=role), nodeid=nodeid)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([past("a", 1.0, 1.0)], "main: 1 of 1 test, none slower or faster"),
        ([past("a", 1.011, 1.02), past("b", 1.0, 1.02), past("c", 1.009, 1.02)], "main: 3 of 3 tests, 1 slower"),
        ([past("a", 0.97, 0.98), past("b", 0.97, 0.991), past("c", 2, 3)], "main: 3 of 3 tests, 1 slower, 1 faster"),
        ([past("a", 2, 3, FAIL), past("b", 2, 3)], "main: 2 of 2 tests, 2 slower (1 by more than is tolerated)"),
        ([past("a", 2, 3, Outcome.PASS)], "main: 1 of 1 test, 1 slower"),
        ([past("a", 1, 1), past("b", 1, 1, baseline="old")], "main, old: 2 of 2 tests, none slower or faster"),
        ([past("a", 1, 1), judged(Outcome.PASS)], "main: 1 of 2 tests, none slower or faster"),
        ([past("a", 2, 3, role="reference")], "main: 1 of 1 test, none slower or faster"),
        ([judged(FAIL)], None),
    ],
)
def test_what_was_compared_is_counted(records: list[TestRecord], words: str | None) -> None:
    lines = [line for line in summary_lines(records, Settings()) if "compared with" in line]
    assert lines == ([] if words is None else [f"gpu_bench: compared with {words}"])
