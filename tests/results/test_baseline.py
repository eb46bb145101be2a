"""A measurement meets its own past and no other's; what cannot be compared says why, and what to do."""

import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.baseline import (
    PROFILER_TICK_US,
    Baseline,
    Key,
    Missing,
    PastTest,
    change_between,
    function_of,
    keys_of,
    outcome_of,
    regression_sentence,
    slimmed,
    stale_note,
    tick_between,
)
from pytest_gpubench.results.comparing import Finding, compare_runs
from pytest_gpubench.results.model import (
    DeviceFacts,
    Kernel,
    Measurement,
    Outcome,
    SavedRun,
    Speedup,
    TestRecord,
    Timing,
    Verdict,
)
from pytest_gpubench.stats.regression import Change
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import METRICS, Tolerance, parse_tolerance
from tests.results.saved import make_run

GPU = DeviceFacts(type="cuda", name="NVIDIA H200", host="here", uuid="GPU-1", driver="570.1", multiprocessors=132)
TEST = "tests/test_a.py::test_it"
ALPHA = 0.001


def on(**facts: Any) -> DeviceFacts:
    return msgspec.structs.replace(GPU, **facts)


def timing(label: str, us: float, reps: int = 30, **others: Any) -> Timing:
    samples = tuple(us * (1 + (step - reps / 2) / 1e4) for step in range(reps))
    known = {"timer": "profiler", "cache": "cold", "device": GPU.name, "samples_us": samples}
    return Timing(label=label, **{**known, **others})


def alone(label: str = "softmax", us: float = 289, **others: Any) -> Measurement:
    return Measurement(timing=timing(label, us, **others))


def pair(candidate: str, us: float, reference_us: float = 400, example: str = "") -> tuple[Measurement, Measurement]:
    ratio = reference_us / us
    logs = tuple(math.log(ratio) + step / 1e4 for step in range(-15, 15))
    speedup = Speedup(
        ratio=ratio, interval=None, quads=30, alpha=ALPHA, reference="torch", reference_us=1, seed=1, log_ratios=logs
    )
    return (
        Measurement(timing=timing("torch", reference_us), role="reference", example=example),
        Measurement(timing=timing(candidate, us), speedup=speedup, role="candidate", example=example),
    )


def record(*measurements: Measurement, nodeid: str = TEST, **others: Any) -> TestRecord:
    known: dict[str, Any] = {"device": GPU, "source": "abc"}
    return TestRecord(nodeid=nodeid, measurements=measurements, **{**known, **others})


def run(*records: TestRecord, **others: Any) -> SavedRun:
    known: dict[str, Any] = {"datetime": "2026-01-01T00:00:00+00:00", "name": "main", "machine_info": {"torch": "2.11"}}
    return SavedRun(records=records, **{**known, **others})


def baseline(*records: TestRecord, **others: Any) -> Baseline:
    return Baseline([("main", run(*records, **others))])


def find(where: Baseline, nodeid: str = TEST, source: str = "abc", device: DeviceFacts = GPU, **others: Any) -> Any:
    return where.find(nodeid, source, device, others.pop("params", {}), **others)


def missing(found: PastTest | Missing | Measurement) -> Missing:
    assert isinstance(found, Missing)
    assert not found.sentence.endswith(".")
    return found


# tolerances


@pytest.mark.parametrize(
    ("text", "tolerance"),
    [
        ("median:5%", Tolerance("median", margin=0.05)),
        ("speedup:3%", Tolerance("speedup", margin=0.03)),
        (" median : 0.5 % ", Tolerance("median", margin=0.005)),
        ("q1:.5%", Tolerance("q1", margin=0.005)),
        ("q3:150%", Tolerance("q3", margin=1.5)),
        ("mean:5us", Tolerance("mean", absolute_us=5)),
        ("mean:250 ns", Tolerance("mean", absolute_us=0.25)),
        ("mean:2ms", Tolerance("mean", absolute_us=2000)),
        ("mean:5s", Tolerance("mean", absolute_us=5e6)),
        ("median:0.000005", Tolerance("median", absolute_us=5)),
        ("median:5e-6", Tolerance("median", absolute_us=5)),
    ],
)
def test_tolerances_are_read(text: str, tolerance: Tolerance) -> None:
    found = parse_tolerance(text)
    assert found.metric == tolerance.metric
    assert found.margin == pytest.approx(tolerance.margin)
    assert found.absolute_us == pytest.approx(tolerance.absolute_us)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("min:5%", "use q1 or median"),
        ("max:5%", "use q3 or median"),
        ("stddev:5%", "'stddev:5%' is no tolerance"),
        ("median", "is no tolerance"),
        ("median 5%", "is no tolerance"),
        ("median:", "is no tolerance"),
        ("median:-5%", "is no tolerance"),
        ("median:nan%", "is no tolerance"),
        ("median:5 percent", "is no tolerance"),
        ("median:5%%", "is no tolerance"),
        ("", "is no tolerance"),
        ("median:0%", "more than 0"),
        ("median:0us", "more than 0"),
        ("median:1e999%", "tolerance of inf"),
        ("median:5", "would be 5 seconds: write median:5% or median:5s"),
        ("speedup:5us", "no unit of time"),
    ],
)
def test_what_is_no_tolerance_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        parse_tolerance(text)


def test_a_tolerance_is_a_share_or_a_time() -> None:
    for kwargs in ({}, {"margin": 0.1, "absolute_us": 1.0}):
        with pytest.raises(BadRequest, match="either a share or a time"):
            Tolerance("median", **kwargs)
    with pytest.raises(BadRequest, match="'p99' cannot be compared"):
        Tolerance("p99", margin=0.1)


@given(st.sampled_from(METRICS), st.integers(1, 10**4).map(lambda n: n / 10**4), st.booleans())
def test_a_tolerance_is_written_as_it_is_read(metric: str, allowed: float, share: bool) -> None:
    relative = share or metric == "speedup"
    tolerance = Tolerance(metric, margin=allowed) if relative else Tolerance(metric, absolute_us=allowed)
    again = parse_tolerance(str(tolerance))
    assert (again.margin, again.absolute_us) == pytest.approx((tolerance.margin, tolerance.absolute_us))


# which measurement is whose


def test_measurements_are_known_by_label_role_reference_example_and_occurrence() -> None:
    unjudged = Measurement(
        timing=Timing(label="x", timer="t", cache="c", device="d", unmeasured="no"), role="candidate"
    )
    items = (alone(), alone(), *pair("mine", 200), *pair("mine", 200, example="n=3"), unjudged)
    assert keys_of(items) == [
        Key("softmax", "", "", "", 0),
        Key("softmax", "", "", "", 1),
        Key("torch", "reference", "", "", 0),
        Key("mine", "candidate", "torch", "", 0),
        Key("torch", "reference", "", "n=3", 0),
        Key("mine", "candidate", "torch", "n=3", 0),
        Key("x", "candidate", "torch", "", 0),
    ]


def test_a_measurement_meets_its_own_past_and_no_other() -> None:
    items = (alone(us=1), alone(us=2), *pair("mine", 3), *pair("mine", 4, example="n=3"))
    past = find(baseline(record(*items), record(alone(us=9), nodeid="tests/test_b.py::test_it")))
    for key, item in zip(keys_of(items), items, strict=True):
        assert past.measurement(*key).timing.samples_us == item.timing.samples_us
        for field, other in (
            ("label", "else"),
            ("role", "else"),
            ("reference", "else"),
            ("example", "else"),
            ("occurrence", 7),
        ):
            asked: dict[str, Any] = {**key._asdict(), field: other}
            told = missing(past.measurement(**asked))
            assert told.kind == "no test"
            assert "is not in the baseline 'main' of tests/test_a.py::test_it, only softmax" in told.sentence


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_was_invalid_then_is_no_baseline(outcome: Outcome) -> None:
    item = msgspec.structs.replace(alone(), verdicts=(Verdict(limit="", outcome=outcome, sentence="it was throttled"),))
    found = find(baseline(record(item))).measurement("softmax")
    if outcome is not Outcome.INVALID:
        assert isinstance(found, Measurement)
        return
    assert missing(found).sentence == (
        "softmax was INVALID in the baseline 'main' (it was throttled): there is no number to compare with; "
        "save a new one"
    )


def test_a_slim_run_compares_the_same() -> None:
    old, new = make_run(20), make_run(20, seed=1, slower=1.1)
    tolerance = parse_tolerance("median:5%")
    told = [(each.nodeid, each.label, each.outcome, each.sentence) for each in compare_runs(old, new, tolerance, 0.01)]
    slim = compare_runs(slimmed(old), slimmed(new), tolerance, 0.01)
    assert told == [(each.nodeid, each.label, each.outcome, each.sentence) for each in slim]


def test_what_was_not_measured_then_says_why() -> None:
    item = Measurement(timing=timing("softmax", 1, samples_us=(), unmeasured="no GPU"))
    told = missing(find(baseline(record(item))).measurement("softmax"))
    assert told.sentence == "softmax was not measured in the baseline 'main': no GPU; save a new one"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ({"timer": "wall"}, "timer profiler in the baseline 'main' and is wall now"),
        ({"cache": "warm"}, "cache cold in the baseline 'main' and is warm now"),
    ],
)
def test_numbers_of_two_kinds_are_never_compared(what: dict[str, Any], told: str) -> None:
    past = find(baseline(record(alone())))
    key = Key("softmax", "", "", "", 0)
    assert past.counterpart(alone(), key) == past.measurement("softmax")
    found = missing(past.counterpart(Measurement(timing=timing("softmax", 289, **what)), key))
    assert found.kind == "host"
    assert told in found.sentence


def test_a_test_that_moved_is_told_as_renamed() -> None:
    old = record(alone(), nodeid="tests/old.py::test_it[a]", params={"n": "1"})
    where = baseline(old, record(alone(), nodeid="tests/old.py::test_it[b]", params={"n": "2"}))
    found = missing(find(where, "tests/new.py::test_it[a]", params={"n": "1"}))
    assert (found.kind, found.nodeids) == ("renamed", ("tests/old.py::test_it[a]",))
    assert "the same test is, as tests/old.py::test_it[a]: if it was renamed, save a new one" in found.sentence
    kept = find(where, "tests/new.py::test_it[a]", params={"n": "1"}, others={"tests/old.py::test_it[a]"})
    assert missing(kept).kind == "no test"  # a copy
    assert missing(find(where, "tests/new.py::test_it[a]", "other", params={"n": "1"})).kind == "no test"
    assert missing(find(where, "tests/new.py::test_it[a]", params={"n": "3"})).kind == "no test"


def test_a_source_that_is_not_known_is_nobodys() -> None:
    where = baseline(record(alone(), source=""))
    assert missing(find(where, "tests/new.py::test_it", "")).kind == "no test"
    assert isinstance(find(where), PastTest)
    assert isinstance(find(baseline(record(alone())), source=""), PastTest)


def test_other_parameters_are_named_up_to_three() -> None:
    where = baseline(*(record(alone(), nodeid=f"{TEST}[{n}::x]", params={"n": str(n)}) for n in range(5)))
    found = missing(find(where, f"{TEST}[7]", params={"n": "7"}))
    assert found.kind == "parameters"
    assert "only " + ", ".join(f"{TEST}[{n}::x]" for n in range(3)) + " and 2 more; save a new one" in found.sentence
    assert function_of(f"{TEST}[7::x[1]]") == TEST
    assert function_of("tests/[odd].py::TestIt::test_it[1]") == "tests/[odd].py::TestIt::test_it"


def test_what_another_gpu_measured_is_not_offered() -> None:
    a100 = on(name="NVIDIA A100")
    elsewhere = [record(alone(), nodeid=f"{name}[1]", source="p", device=a100) for name in (TEST, "tests/b.py::test_b")]
    where = baseline(record(alone(), nodeid="tests/c.py::test_c", source="c"), *elsewhere)
    for nodeid in (f"{TEST}[1]", f"{TEST}[2]", "tests/d.py::test_d"):
        assert missing(find(where, nodeid, "p")).kind == "no test"


def test_a_name_that_stands_for_other_parameters_is_told() -> None:
    where = baseline(record(alone(), nodeid=f"{TEST}[small]", params={"n": "128", "f": "<f at 0x7f00>"}))
    assert isinstance(find(where, f"{TEST}[small]", params={"n": "128", "f": "<f at 0x7fff>"}), PastTest)
    found = missing(find(where, f"{TEST}[small]", params={"n": "256", "f": "<f at 0x7fff>"}))
    assert found.kind == "parameters"
    assert "stood for other parameters in the baseline 'main': n=128" in found.sentence


def test_a_test_that_has_changed_itself_is_told() -> None:
    found = missing(find(baseline(record(alone())), source="other"))
    assert found.kind == "source"
    assert found.sentence == f"{TEST}: the test itself has changed since the baseline 'main'; save a new one"


def test_a_new_test_is_told() -> None:
    found = missing(find(baseline(record(alone())), "tests/test_a.py::test_new", "new"))
    assert (found.kind, found.nodeids) == ("no test", ())


@pytest.mark.parametrize(
    "other",
    [
        on(name="NVIDIA A100"),
        on(type="cpu"),
        on(multiprocessors=66),
        on(mig=True),
    ],
)
def test_another_gpu_is_never_compared(other: DeviceFacts) -> None:
    where = baseline(record(alone(), device=on(mig=False)))
    found = missing(find(where, device=other))
    assert found.kind == "host"
    assert "only on NVIDIA H200 with 132 multiprocessors ('main'); save one on this" in found.sentence


@pytest.mark.parametrize(
    "same", [on(host="there", uuid="GPU-2"), on(multiprocessors=None), on(mig=False), on(driver="580.1")]
)
def test_the_same_model_elsewhere_is_compared(same: DeviceFacts) -> None:
    assert isinstance(find(baseline(record(alone())), device=same), PastTest)


def test_of_several_models_the_own_is_found() -> None:
    a100 = on(name="NVIDIA A100", multiprocessors=108)
    where = Baseline([("h", run(record(alone(us=1)))), ("a", run(record(alone(us=2), device=a100)))])
    assert find(where).baseline == "h"
    assert find(where, device=a100).baseline == "a"
    assert find(where, device=a100).measurement("softmax").timing.median_us == pytest.approx(2, rel=0.01)
    assert "'h'" in missing(find(where, "tests/x.py::test_x", "x")).sentence
    assert "'a'" not in missing(find(where, "tests/x.py::test_x", "x")).sentence
    both = Baseline([("old", run(record(alone(us=1)))), ("new", run(record(alone(us=2))))])
    assert find(both).baseline == "new"


def test_nothing_in_a_baseline_is_told() -> None:
    found = missing(find(baseline()))
    assert (found.kind, found.sentence) == ("no test", "nothing was measured in the baseline 'main'; save a new one")


def test_what_may_explain_a_change_is_told_with_it() -> None:
    now = on(driver="580.2", max_sm_clock_mhz=1980, max_memory_clock_mhz=3201, power_limit_w=700.0, cuda="13.0")
    then = on(max_sm_clock_mhz=1830, max_memory_clock_mhz=2619, power_limit_w=600.0, cuda="12.8")
    where = baseline(record(alone(), device=then))
    assert find(where, device=now, torch="2.12").caveats == (
        "driver was 570.1 in the baseline 'main' and is 580.2 now",
        "torch was 2.11 in the baseline 'main' and is 2.12 now",
        "CUDA was 12.8 in the baseline 'main' and is 13.0 now",
        "maximum SM clock was 1830 MHz in the baseline 'main' and is 1980 MHz now",
        "maximum memory clock was 2619 MHz in the baseline 'main' and is 3201 MHz now",
        "power limit was 600 W in the baseline 'main' and is 700 W now",
    )
    assert find(where, device=then, torch="2.11").caveats == ()
    assert find(where, device=GPU).caveats == ()  # what is not known does not differ


# to hand to workers


def test_a_baseline_survives_its_text() -> None:
    rng = random.Random(1)
    samples = tuple(rng.lognormvariate(5, 2) for _ in range(50))
    kernels = (Kernel(name="a kernel", kind="kernel", launches=1, median_us=1),)
    rich = alone(samples_us=samples, busy_us=samples, span_us=samples, sm_clock_mhz=samples, kernels=kernels)
    judged = msgspec.structs.replace(rich, verdicts=(Verdict(limit="l", outcome=Outcome.PASS, sentence="said"),))
    where = baseline(record(judged, *pair("mine", 3), params={"n": "1"}), record(alone(), nodeid="tests/b.py::test_b"))
    text = where.encode()
    again = Baseline.decode(text)
    assert Baseline.decode(again.encode()).encode() == again.encode()
    assert list(again.tests()) == list(where.tests())
    assert again.names == ("main",)
    found = find(again, params={"n": "1"}).measurement("softmax")
    assert found.timing.samples_us == samples
    assert find(again).by_key[Key("mine", "candidate", "torch", "", 0)].speedup == pair("mine", 3)[1].speedup
    for left_out in ("a kernel", "said", "busy", "span", "clock_mhz"):
        assert left_out not in text
    assert text.count(GPU.name) == 1 + 4  # once for the run, once in each timing


# what two measurements say together


def measured(ratio: float, low: float, high: float, metric: str = "median") -> Change:
    interval = Interval(low, high)
    difference = None if metric == "speedup" else Interval(289 * low - 289, 289 * high - 289)
    values = (1.95, 1.95 / ratio) if metric == "speedup" else (289.0, 289 * ratio)
    return Change(ratio, interval, metric, ALPHA, *values, difference, (60, 60))


@pytest.mark.parametrize(
    ("change", "tolerance", "sentence"),
    [
        (
            measured(1.081, 1.078, 1.084),
            "median:5%",
            "softmax is slower than in the baseline 'main': 1.081x [1.078, 1.084] of its median, wanted at most 1.05x "
            "(312.4 us against 289.0 us, 60 and 60 reps, alpha 0.001)",
        ),
        (
            measured(1.05, 1.04, 1.06),
            "q1:5%",
            "softmax is too close to tell from what it was in the baseline 'main': 1.050x [1.040, 1.060] of its median",
        ),
        (measured(1.0, 0.99, 1.01), "median:5%", "softmax is as fast as in the baseline 'main': 1.000x"),
        (
            measured(1.02, 1.01, 1.03),
            "median:5%",
            "softmax is slower than in the baseline 'main', within what is tolerated: 1.020x",
        ),
        (measured(0.9, 0.89, 0.91), "median:5%", "softmax is faster than in the baseline 'main': 0.9000x"),
        (
            Change(1.5, None, "median", ALPHA, 289, 433.5, None, (5, 1)),
            "median:5%",
            "softmax cannot be judged from what it was in the baseline 'main': 1.500x of its median, wanted at most "
            "1.05x (433.5 us against 289.0 us, 1 and 5 reps, too few to decide: take at least 11 reps in both, ",
        ),
        (
            measured(1.081, 1.078, 1.084, "speedup"),
            "speedup:3%",
            "softmax is slower against its reference than in the baseline 'main': 1.081x [1.078, 1.084] of its "
            "relative time, wanted at most 1.03x (speedup 1.804x against 1.950x, 312.0 us against 289.0 us, "
            "60 and 60 quads, alpha 0.001)",
        ),
        (
            measured(1.081, 1.078, 1.084),
            "median:5us",
            "1.081x [1.078, 1.084] of its median, by 23.41 us [22.54 us, 24.28 us], wanted at most 5.000 us more (",
        ),
    ],
)
def test_sentences_say_what_was_found_and_wanted(change: Change, tolerance: str, sentence: str) -> None:
    assert sentence in regression_sentence("softmax", change, parse_tolerance(tolerance), 289, 312, "main")


@pytest.mark.parametrize(
    ("low", "high", "tolerance", "outcome"),
    [
        (1.0501, 1.06, "median:5%", Outcome.FAIL),
        (1.0499, 1.06, "median:5%", Outcome.INCONCLUSIVE),
        (0.9, 1.0499, "median:5%", Outcome.PASS),
        (1 + 5.01 / 289, 1.1, "median:5us", Outcome.FAIL),
        (1 + 4.99 / 289, 1.1, "median:5us", Outcome.INCONCLUSIVE),
        (1.0, 1 + 4.99 / 289, "median:5us", Outcome.PASS),
    ],
)
def test_outcomes_change_at_the_tolerance(low: float, high: float, tolerance: str, outcome: Outcome) -> None:
    assert outcome_of(measured((low + high) / 2, low, high), parse_tolerance(tolerance)) is outcome


@pytest.mark.parametrize(
    ("high", "tolerance", "stale"),
    [
        (0.9499, "median:5%", True),
        (0.9501, "median:5%", False),
        (1 - 5.01 / 289, "median:5us", True),
        (1 - 4.99 / 289, "median:5us", False),
    ],
)
def test_a_baseline_is_stale_where_all_is_faster_by_more_than_is_tolerated(
    high: float, tolerance: str, stale: bool
) -> None:
    note = stale_note("softmax", measured(0.8, 0.7, high), parse_tolerance(tolerance), "main")
    told = (
        "baseline stale: softmax is faster than the baseline, 1.250x as fast as in the baseline 'main'; save a new one"
    )
    assert note == (told if stale else "")
    for text in ("median:5%", "median:5us"):
        assert not stale_note("softmax", Change(0.5, None, "median", ALPHA), parse_tolerance(text), "main")


def test_a_speedup_falls_back_on_the_median_where_there_is_none() -> None:
    tolerance = parse_tolerance("speedup:3%")
    candidate = pair("mine", 200)[1]
    assert candidate.speedup is not None
    assert change_between(candidate, candidate, tolerance, ALPHA).metric == "speedup"
    assert change_between(alone(), alone(), tolerance, ALPHA).metric == "median"
    bare = msgspec.structs.replace(candidate, speedup=msgspec.structs.replace(candidate.speedup, log_ratios=()))
    assert change_between(bare, candidate, tolerance, ALPHA).metric == "median"
    assert change_between(candidate, candidate, parse_tolerance("q1:3%"), 0.01).metric == "q1"


def test_a_tick_is_seen_where_the_profiler_shows_it() -> None:
    from pytest_gpubench.timing.profiler import ProfilerTimer

    assert ProfilerTimer.tick_us == PROFILER_TICK_US
    ticks = timing("x", 3, samples_us=tuple(0.032 * (90 + step % 3) for step in range(30)))
    rounded = timing("x", 3, samples_us=tuple(round(sample, 3) for sample in ticks.samples_us))
    smooth, wall = timing("x", 3), msgspec.structs.replace(ticks, timer="wall")
    assert tick_between(ticks, rounded) == PROFILER_TICK_US
    assert tick_between(ticks, smooth) == tick_between(smooth, ticks) == tick_between(wall, wall) == 0
    item = Measurement(timing=ticks)
    change = change_between(item, item, parse_tolerance("median:5%"), ALPHA)
    assert change.difference is not None
    assert change.difference.width >= 2 * PROFILER_TICK_US


# two whole runs


def compared(old: Sequence[TestRecord], new: Sequence[TestRecord], tolerance: str = "median:5%") -> list[Finding]:
    return compare_runs(run(*old), run(*new, name="feature"), parse_tolerance(tolerance), ALPHA)


def test_every_measurement_of_both_runs_has_its_finding() -> None:
    old = [
        record(alone(), alone("gone label", 5)),
        record(alone(), nodeid="tests/a.py::test_moved", source="m"),
        record(alone(), nodeid="tests/a.py::test_gone", source="g"),
        record(alone(), nodeid="tests/a.py::test_changed", source="c1"),
        record(alone(), nodeid="tests/a.py::test_p[1]", source="p", params={"n": "1"}),
    ]
    new = [
        record(alone(us=320), alone("new label", 6)),
        record(alone(), nodeid="tests/b.py::test_moved", source="m"),
        record(alone(), nodeid="tests/a.py::test_changed", source="c2"),
        record(alone(), nodeid="tests/a.py::test_p[2]", source="p", params={"n": "2"}),
        record(alone(), nodeid="tests/a.py::test_new", source="n"),
    ]
    findings = compared(old, new)
    told = [(each.nodeid.partition("::")[2], each.label, each.missing and each.missing.kind) for each in findings]
    assert told == [
        ("test_it", "softmax", None),
        ("test_it", "new label", "no test"),
        ("test_it", "gone label", None),
        ("test_moved", "softmax", "renamed"),
        ("test_changed", "softmax", "source"),
        ("test_p[2]", "softmax", "parameters"),
        ("test_new", "softmax", "no test"),
        ("test_gone", "softmax", None),
        ("test_p[1]", "softmax", None),
    ]
    assert [each.outcome for each in findings] == [Outcome.FAIL] + [Outcome.NOT_JUDGED] * 8
    assert (findings[2].new, findings[7].new) == (None, None)
    assert "'main' but not in feature: it was removed, renamed or not run" in findings[7].sentence
    assert findings[0].old is not None
    assert findings[0].change is not None


def test_a_reference_is_compared_but_not_judged() -> None:
    findings = compared([record(*pair("mine", 200))], [record(*pair("mine", 220, 440))])
    assert [each.outcome for each in findings] == [Outcome.NOT_JUDGED, Outcome.FAIL]
    assert findings[0].sentence.startswith("the reference is not judged: torch is slower")
    assert "its reference torch is slower too, 1.100x of its median" in findings[1].note
    findings = compared([record(*pair("mine", 200))], [record(*pair("mine", 220, 440))], "speedup:3%")
    assert [each.outcome for each in findings] == [Outcome.NOT_JUDGED, Outcome.PASS]
    assert findings[1].note == ""
    findings = compared([record(*pair("mine", 200))], [record(*pair("mine", 220))])
    assert (findings[1].outcome, findings[1].note) == (Outcome.FAIL, "")
    findings = compared([record(*pair("mine", 200))], [record(*pair("mine", 200, 440))])
    assert (findings[1].outcome, findings[1].note) == (Outcome.PASS, "")


def test_notes_name_what_else_is_to_know() -> None:
    old = record(alone())
    new = record(alone(us=200, throttle_reasons=("power cap",)), device=on(driver="580"))
    (found,) = compared([old], [new])
    assert found.outcome is Outcome.PASS
    for part in ("baseline stale: softmax", "throttled now (power cap)", "driver was 570.1"):
        assert part in found.note


def test_runs_of_two_gpus_are_not_compared() -> None:
    (found,) = compared([record(alone())], [record(alone(us=900), device=on(name="NVIDIA A100"))])
    assert (found.outcome, found.change) == (Outcome.NOT_JUDGED, None)
    assert missing(found.missing).kind == "host"  # type: ignore[arg-type]


@pytest.mark.parametrize(("outcome", "expected"), [("invalid", Outcome.INVALID), ("fail", Outcome.NOT_JUDGED)])
def test_what_has_no_number_now_says_why(outcome: str, expected: Outcome) -> None:
    verdict = Verdict(limit="", outcome=Outcome(outcome), sentence="s")
    new = Measurement(timing=timing("softmax", 1, samples_us=(), unmeasured="too fast"), verdicts=(verdict,))
    (found,) = compared([record(alone())], [record(new)])
    assert (found.outcome, found.sentence) == (expected, "softmax was not measured: too fast")
    assert found.old is not None


def test_a_sample_that_is_no_time_loses_only_its_own_finding() -> None:
    new = (alone(samples_us=(1.0, 0.0, 1.0)), alone("other"))
    findings = compared([record(alone(), alone("other"))], [record(*new)])
    assert [each.outcome for each in findings] == [Outcome.INVALID, Outcome.PASS]
    assert "softmax cannot be compared: a time of the new run must be above 0 us" in findings[0].sentence


def test_unchanged_code_is_told_from_slower_code_in_five_thousand_tests() -> None:
    """Numbers in, numbers out, of a run as large as any: every seventh test is 10 % slower."""

    def many(slower: float) -> list[TestRecord]:
        shared = {factor: (alone("first"), alone("second", 200 * factor)) for factor in (1, slower)}
        return [
            record(*shared[slower if index % 7 == 0 else 1], nodeid=f"tests/a.py::test_{index % 50}[{index}]")
            for index in range(5000)
        ]

    findings = compared(many(1), many(1.1))
    assert len(findings) == 10_000
    failed = {each.nodeid for each in findings if each.outcome is Outcome.FAIL}
    assert failed == {f"tests/a.py::test_{index % 50}[{index}]" for index in range(0, 5000, 7)}
    assert {each.outcome for each in findings} == {Outcome.FAIL, Outcome.PASS}
