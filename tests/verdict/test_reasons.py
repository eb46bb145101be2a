"""Reasons: the first names what was planted, and nothing is said where nothing differs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Measurement, PastChange, Timing, Verdict
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.verdict.reasons import explained, explained_by_neighbours, explained_by_references, reasons
from tests.results.measured import kernel, timing_of
from tests.verdict.planted import COPY, NORM, PLANTED, against, at_memory_clock, launched, measured, one, small, took


@pytest.mark.parametrize("planted", PLANTED)
def test_the_first_reason_names_the_cause(planted: str) -> None:
    old, new, sentence = PLANTED[planted]
    found = reasons(old, new)
    assert [each[: len(sentence)] for each in found] == [sentence]


VERSIONS = [("triton", "3.6.0", "3.7.1"), ("ptxas", "12.8.93", "12.9.86")]


def test_changed_versions_are_a_reason_after_those_that_have_a_share() -> None:
    told = "triton 3.6.0 -> 3.7.1, ptxas 12.8.93 -> 12.9.86"
    assert reasons(measured(small()), measured(small(us=90)), VERSIONS) == (told,)
    old, new, sentence = PLANTED["registers that halve the blocks"]
    assert reasons(old, new, VERSIONS) == (sentence, told)


def test_the_largest_share_comes_first_and_three_are_told() -> None:
    old = measured(*(small(name=name, us=20.0) for name in "abcd"), sm_clock_mhz=(1980.0,))
    slower = dict(zip("abcd", (25.0, 60.0, 40.0, 21.0), strict=True))
    kernels = [small(name=name, us=us, registers=65) for name, us in slower.items()]
    found = reasons(old, measured(*kernels, sm_clock_mhz=(1900.0,) * 20))
    assert [each[:1] for each in found] == ["b", "c", "S"]
    assert found[0] == "b: registers 64 -> 65 (20.00 us -> 60.00 us)"
    assert [each[:1] for each in reasons(old, measured(*kernels), VERSIONS)] == ["b", "c", "t"]
    assert len(found) == 3


@pytest.mark.parametrize(
    ("us", "said"), [(135.0, False), (136.0, True), (144.0, True), (145.0, False), (100.0, False), (80.0, False)]
)
def test_a_clock_clears_the_code_only_where_the_call_is_slower_by_as_much(us: float, said: bool) -> None:
    old, new = (measured(small(us=each), sm_clock_mhz=(mhz,) * 20) for each, mhz in [(100.0, 1400.0), (us, 1000.0)])
    assert reasons(old, new) == (f"SM clock 1400 -> 1000 MHz{': not the code' * said}",)
    assert reasons(old, new, VERSIONS)[0] == "SM clock 1400 -> 1000 MHz"


def test_both_clocks_are_told_and_one_of_them_clears_the_code() -> None:
    old = measured(small(us=100.0), sm_clock_mhz=(1980.0,) * 20, stretches=at_memory_clock(3200))
    new = measured(small(us=125.0), sm_clock_mhz=(1400.0,) * 20, stretches=at_memory_clock(2560))
    assert reasons(old, new) == ("SM clock 1980 -> 1400 MHz, memory clock 3200 -> 2560 MHz: not the code",)


@pytest.mark.parametrize("has_kernels", [False, True])
def test_a_clock_does_not_clear_code_of_which_nothing_is_known(has_kernels: bool) -> None:
    """Without kernels, as of timer='events', and without what they take, as in an older run."""
    old, new = (
        measured(kernel(NORM, 1, us), sm_clock_mhz=(mhz,) * 20)
        if has_kernels
        else measured(us=us, sm_clock_mhz=(mhz,) * 20)
        for us, mhz in [(100.0, 1400.0), (140.0, 1000.0)]
    )
    assert reasons(old, new) == ("SM clock 1400 -> 1000 MHz",)


WAITING = Observed(runtime_waits={"cudaStreamSynchronize": 1})
IDLE = measured(observed=Observed(), timer="wall")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (measured(sm_clock_mhz=(1980.0,)), measured(us=110, sm_clock_mhz=(1921.0,) * 20), False),
        (measured(sm_clock_mhz=(1980.0,)), measured(us=110, sm_clock_mhz=(1920.0,) * 20), True),
        (measured(stretches=at_memory_clock(3201)), measured(us=110, stretches=at_memory_clock(3105)), False),
        (measured(stretches=at_memory_clock(3201)), measured(us=110, stretches=at_memory_clock(3104)), True),
        (measured(stretches=at_memory_clock(0)), measured(us=110, stretches=at_memory_clock(0)), False),  # no reading
        (measured(overhead=launched(12.0)), measured(overhead=launched(17.9)), False),
        (measured(overhead=launched(12.0)), measured(overhead=launched(18.0)), True),
        (measured(small(), observed=took(8)), measured(small(), observed=took(8)), False),
        (measured(small(), observed=took(8)), measured(small(), observed=took(9)), True),
        (IDLE, measured(us=100.0, observed=WAITING, timer="wall"), False),  # these times are no sum of kernels
        (IDLE, measured(us=100.1, observed=WAITING, timer="wall"), True),
    ],
)
def test_what_differs_by_little_is_no_cause(old: Measurement, new: Measurement, said: bool) -> None:
    assert bool(reasons(old, new)) == said


def test_what_a_call_does_beside_its_kernels_is_told_after_them() -> None:
    more = Observed(runtime_waits={"cudaStreamSynchronize": 1}, kernels={NORM: 2})  # of launches the kernels tell
    old, new = measured(small(), observed=Observed()), measured(small(us=60, registers=72), observed=more)
    assert [each.split()[0] for each in reasons(old, new)] == [f"{NORM}:", "the"]


@pytest.mark.parametrize(("reference_us", "said"), [(95.1, False), (95.0, True)])
def test_a_speedup_that_fell_as_the_reference_is_faster(reference_us: float, said: bool) -> None:
    old, new = measured(speedup=against(100.0)), measured(speedup=against(reference_us))
    assert reasons(old, new) == ()
    told = ("its reference torch is faster: 100.0 us -> 95.00 us",) if said else ()
    assert reasons(old, new, metric="speedup") == told


def test_a_clock_that_both_arms_had_is_told_last_of_a_speedup() -> None:
    old, new = measured(small(), sm_clock_mhz=(1980.0,)), measured(small(us=60, registers=72), sm_clock_mhz=(990.0,))
    assert [each.split()[0] for each in reasons(old, new)] == ["SM", f"{NORM}:"]
    assert [each.split()[0] for each in reasons(old, new, metric="speedup")] == [f"{NORM}:", "SM"]


def noisy(item: Measurement, times: float, clocks: float, host: float) -> Measurement:
    """Return a measurement with all its times, clocks and host times changed."""
    timing = msgspec.structs.replace(
        item.timing,
        samples_us=tuple(us * times for us in item.timing.samples_us),
        sm_clock_mhz=tuple(mhz * clocks for mhz in item.timing.sm_clock_mhz),
        kernels=tuple(msgspec.structs.replace(each, median_us=each.median_us * times) for each in item.timing.kernels),
    )
    overhead = item.overhead
    if overhead is not None and overhead.host_us is not None:
        overhead = msgspec.structs.replace(overhead, host_us=overhead.host_us * host)
    return msgspec.structs.replace(item, timing=timing, overhead=overhead)


@given(
    item=st.sampled_from([each for old, new, _ in PLANTED.values() for each in (old, new)]),
    times=st.floats(0.1, 10),
    clocks=st.floats(0.971, 1.02),
    host=st.floats(0.7, 1.4),
    role=st.sampled_from(["", "candidate"]),
)
def test_noise_has_no_reason(item: Measurement, times: float, clocks: float, host: float, role: Any) -> None:
    other = msgspec.structs.replace(noisy(item, times, clocks, host), role=role)
    assert reasons(msgspec.structs.replace(item, role="reference" if role else ""), other) == ()


@given(*[st.sampled_from([each for old, new, _ in PLANTED.values() for each in (old, new)])] * 2)
def test_reasons_are_few_single_lines(old: Measurement, new: Measurement) -> None:
    found = reasons(old, new, VERSIONS)
    assert 1 <= len(found) <= 3
    assert all(len(each.splitlines()) == 1 for each in found)


def test_each_candidate_is_explained_by_the_reference_before_it() -> None:
    """As in the comparisons of a model's recorded calls."""
    failed = judged("min_speedup")
    items = [
        measured(small(), role="reference"),
        measured(small(), one(COPY, 35.0), role="candidate", verdicts=failed),
        measured(one(COPY, 35.0), role="reference"),
        measured(one(COPY, 70.0, 2), role="candidate", verdicts=failed),
    ]
    copy = "elementwise_kernel<direct_copy_kernel_cuda>"
    found = explained_by_references(items)
    assert [explained(item) for item in found] == found, "reasons stay"
    assert [[each.reasons for each in item.verdicts] for item in found] == [
        [],
        [(f"one more kernel: {copy} (38 % of the time)",)],
        [],
        [(f"{copy}: launches 1 -> 2",)],
    ]


def judged(kind: str, outcome: Outcome = Outcome.FAIL) -> tuple[Verdict, ...]:
    return (Verdict(kind=kind, asked="1", outcome=outcome, sentence="so"),)


OLD, NEW, WORDS = PLANTED["spilled registers"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        *[(kind, True) for kind in ("max_regression", "compare_fail", "max_time_us", "min_gbps", "min_tflops")],
        *[(kind, False) for kind in ("min_speedup", "min_weighted_speedup", "max_rel_std", "max_kernels", "validity")],
    ],
)
def test_what_is_slower_than_in_a_saved_run_has_reasons(kind: str, said: bool) -> None:
    new = msgspec.structs.replace(NEW, verdicts=judged(kind))
    (found,) = explained(new, OLD).verdicts
    assert found.reasons == ((WORDS,) if said else ())
    assert found.lines == ["so", *[f"with it: {WORDS}"] * said]


@pytest.mark.parametrize(
    ("outcome", "said"), [(each, each in (Outcome.FAIL, Outcome.INVALID)) for each in Outcome], ids=str
)
def test_only_what_fails_and_what_is_invalid_has_reasons(outcome: Outcome, said: bool) -> None:
    for kind in ("min_speedup", "min_weighted_speedup"):
        new = msgspec.structs.replace(NEW, verdicts=judged(kind, outcome), role="candidate")
        (found,) = explained(new, reference=msgspec.structs.replace(OLD, role="reference")).verdicts
        assert bool(found.reasons) == said


def test_other_processes_are_told_after_what_differs_and_of_what_is_too_slow_alone() -> None:
    verdicts = (*judged("max_time_us"), *judged("max_kernels"), *judged("max_regression", Outcome.PASS))
    new = explained(msgspec.structs.replace(NEW, verdicts=verdicts), OLD)
    assert explained_by_neighbours(new, ()) is new
    beside = msgspec.structs.replace(new, timing=msgspec.structs.replace(new.timing, neighbours="pid 7 computed"))
    assert explained_by_neighbours(beside, ["pid 7 computes on the GPU"]) is beside
    found = explained_by_neighbours(new, ["pid 7 computes on the GPU"]).verdicts
    assert [each.reasons for each in found] == [(WORDS, "pid 7 computes on the GPU"), (), ()]


def test_a_regression_of_a_speedup_may_be_the_references() -> None:
    change = PastChange(baseline="main", metric="speedup", ratio=1.1, interval=None, old_us=100)
    old, new = measured(speedup=against(100.0)), measured(speedup=against(80.0), change=change)
    (found,) = explained(msgspec.structs.replace(new, verdicts=judged("max_regression")), old).verdicts
    assert found.reasons == ("its reference torch is faster: 100.0 us -> 80.00 us",)


def test_a_counter_has_reasons_in_kernels_and_work_whatever_the_time() -> None:
    """Of a time that is no slower nothing is told, and neither clocks nor other processes change a count."""
    old = measured(small(), sm_clock_mhz=(1980.0,), moved_bytes=1000, flops=7, observed=Observed())
    now = measured(small(grid=(2376, 1, 1)), sm_clock_mhz=(1000.0,), moved_bytes=1010, flops=7, observed=WAITING)
    assert not any("blocks" in each or "moves" in each for each in reasons(old, now))
    limits = {
        "max_regression": "'instructions:0.1%'",
        "max_instructions": "1",
        "max_dram_bytes": "1",
        "max_counters": "{'atomics': 0}",
    }
    for kind, asked in limits.items():
        (verdict,) = (msgspec.structs.replace(each, asked=asked) for each in judged(kind))
        item = msgspec.structs.replace(now, verdicts=(verdict,))
        (found,) = explained(item, old).verdicts
        assert found.reasons == ("moves at least 1000 B -> 1010 B", f"{NORM}: blocks 2112 -> 2376")
        assert explained_by_neighbours(item, ["pid 7 computes on the GPU"]).verdicts == (verdict,)


@pytest.mark.parametrize(("in_cycles", "said"), [(0.49, True), (0.51, False)])
def test_reps_that_differ_by_their_clock_have_it_as_the_reason(in_cycles: float, said: bool) -> None:
    """The time of every other rep is 10 % longer, and so many tenths of that are not its clock."""
    slower = 1.1 ** (1 - in_cycles)
    clocks = (1980.0, 1980.0 / slower) * 10
    timing = timing_of((100.0, 110.0) * 10, "norm", sm_clock_mhz=clocks, throttle_reasons=("power cap",))
    (found,) = explained(Measurement(timing=timing, verdicts=judged("max_rel_std"))).verdicts
    words = f"SM clock {clocks[1]:.0f} to 1980 MHz between reps, throttled (power cap), whose cycles differ by 2.4 %"
    assert found.reasons == ((words,) if said else ())
    for known in ((), (1980.0,)):  # not of each rep
        bare = msgspec.structs.replace(timing, sm_clock_mhz=known)
        assert explained(Measurement(timing=bare, verdicts=judged("max_rel_std"))).verdicts[0].reasons == ()


def test_without_numbers_or_anything_to_compare_with_there_is_no_reason() -> None:
    nothing = Measurement(timing=Timing(label="a", timer="wall", cache="cold", device="GPU", unmeasured="why"))
    assert reasons(nothing, NEW, VERSIONS) == reasons(OLD, nothing, VERSIONS) == ()
    failed = msgspec.structs.replace(NEW, verdicts=judged("max_time_us"))
    assert explained(failed) is failed
