"""Examples by name and text, and which of them are judged: the worst, those near the limit, and none twice."""

import datetime
import gc
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import hypothesis
import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck, Flaky, Unsatisfiable, UnsatisfiedAssumption

from pytest_gpubench.contest import Contest
from pytest_gpubench.errors import DeviceUnavailable, LimitBroken, MeasurementError, WrongResult
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Outcome, Speedup, Timing, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.search import (
    NEAR,
    QUICK_QUADS,
    Example,
    Examples,
    Search,
    example_of,
    following_examples,
    is_out_of_memory,
    sizes_in,
    text_of,
)
from pytest_gpubench.settings import Settings
from pytest_gpubench.strategies import lazy_tensor, tensor, tensors
from pytest_gpubench.timing.compilations import Compilations, Graphs


class Matmul(NamedTuple):
    m: int
    k: int


class Opaque:
    pass


class Shaped:
    shape = (4, 5)

    def __repr__(self) -> str:
        return "Shaped()"


# arguments


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, {"x": 7}),
        (-1, {"x": -1}),
        (True, {}),
        (2.0, {}),
        ("8", {}),
        (None, {}),
        ((), {}),
        ((1, 100), {"x[0]": 1, "x[1]": 100}),
        ([3, "a", 4], {"x[0]": 3, "x[2]": 4}),
        ((1, (2, [3])), {"x[0]": 1, "x[1][0]": 2, "x[1][1][0]": 3}),
        (Matmul(2, 3), {"x.m": 2, "x.k": 3}),
        ((Matmul(2, 3), False), {"x[0].m": 2, "x[0].k": 3}),
        (torch.zeros(2, 0), {"x.shape[0]": 2, "x.shape[1]": 0}),
        (torch.tensor(3.0), {}),
        ([torch.zeros(6)], {"x[0].shape[0]": 6}),
        (Shaped(), {"x.shape[0]": 4, "x.shape[1]": 5}),
        ({"a": 1}, {}),
        (Opaque(), {}),
    ],
)
def test_sizes_by_name(value: object, expected: dict[str, int]) -> None:
    assert sizes_in("x", value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, "7"),
        ("a", "'a'"),
        (torch.float16, "torch.float16"),
        ((1, 2), "(1, 2)"),
        (Matmul(2, 3), "Matmul(m=2, k=3)"),
        (torch.zeros(3, 2).t(), "Tensor((2, 3), torch.float32, strides=(1, 2))"),
        (torch.tensor(1), "Tensor((), torch.int64, strides=())"),
        (Opaque(), "<Opaque>"),
        (Shaped(), "Shaped()"),
        (lambda: 0, "<function>"),
        ([Opaque()], "[<Opaque>]"),
    ],
)
def test_texts(value: object, expected: str) -> None:
    assert text_of(value) == expected


def test_a_tensor_of_ours_is_its_call() -> None:
    made = tensor((2, 3), layout="transposed", seed=5)
    text = "tensor(shape=(2, 3), dtype=torch.float32, layout='transposed', values='normal', seed=5)"
    assert text_of(made) == text
    again = eval(text, {"tensor": tensor, "torch": torch})
    assert torch.equal(made, again)
    assert made.stride() == again.stride()
    sizes = {"x.shape[0]": 2, "x.shape[1]": 3, "n": 3}
    assert example_of({"x": made, "n": 3}) == Example(f"x={text}, n=3", sizes, pasted=f"x=lazy_{text}, n=3")
    again = eval(f"lazy_{text}", {"lazy_tensor": lazy_tensor, "torch": torch})
    assert text_of(again) == f"lazy_{text}"
    assert example_of({"x": again, "n": 3}) == Example(f"x=lazy_{text}, n=3", sizes)
    assert text_of([made, (made,)], pasted=True) == f"[lazy_{text}, (lazy_{text},)]"
    assert text_of(again.make()) == text
    assert example_of({}) == Example("", {})


# what hypothesis calls


def test_the_inner_test_is_put_back() -> None:
    seen: list[Example] = []

    @settings(max_examples=3, database=None, derandomize=True)
    @given(n=st.just(4))
    def body(fixture: str, n: int) -> None:
        called.append((fixture, n))

    called: list[tuple[str, int]] = []
    inner = cast(Any, body).hypothesis.inner_test
    with following_examples(body, seen.append, {"fixture": "f"}):
        assert cast(Any, body).hypothesis.inner_test is not inner
        cast(Any, body)(fixture="f")
    assert cast(Any, body).hypothesis.inner_test is inner
    assert seen == [Example("n=4", {"n": 4})] * len(called)
    cast(Any, body)(fixture="f")
    assert len(called) == 2 * len(seen)


@pytest.mark.parametrize("function", [None, len, lambda: 0, SimpleNamespace(hypothesis=SimpleNamespace())])
def test_other_tests_are_left_alone(function: object) -> None:
    with following_examples(function, lambda example: pytest.fail("there is none"), {}):
        pass


# which are judged


@dataclass(frozen=True)
class FakeContest:
    """A contest whose ratios are given, and that notes what is asked of it."""

    ratios: dict[str, float]
    log: list[Any]
    settings: Settings
    speedups: dict[str, float]
    limits: Limits = field(default_factory=Limits)
    reference: str = "ref"
    vary: bool = True
    bytes: int | None = None
    args: tuple[object, ...] = ()
    error: Exception | None = None
    wrong: list[Exception | None] = field(default_factory=list)
    """What each check raises in turn, none after the last."""
    during: Callable[[], object] = lambda: None
    """What happens while it is timed."""

    @property
    def calls(self) -> dict[str, None]:
        return dict.fromkeys(["ref", *self.ratios])

    @property
    def agreement(self) -> Any:
        return SimpleNamespace(arguments=SimpleNamespace(args=self.args, kwargs={}))

    def checked(self, reason: str = "") -> Comparison:
        self.log.append(("checked", reason))
        if self.wrong and (error := self.wrong.pop(0)) is not None:
            raise error
        return self._found({})

    def run(self, say: object) -> Comparison:
        self.log.append(("run", self.settings.reps, self.settings.alpha))
        self.during()
        if self.error is not None:
            raise self.error
        return self._found(self.ratios)

    def _found(self, ratios: dict[str, float]) -> Comparison:
        def timing(name: str) -> Timing:
            return Timing(label=name, timer="scripted", cache="hot", device="CPU", samples_us=(1.0,))

        def speedup(name: str) -> Speedup | None:
            found = {"interval": None, "quads": 6, "alpha": 0.1, "reference": "ref", "reference_us": 1.0, "seed": 0}
            return Speedup(ratio=ratios[name], **cast(Any, found)) if name in ratios else None

        arms = {name: Measurement(timing=timing(name), speedup=speedup(name)) for name in self.ratios}
        return Comparison(reference=timing("ref"), candidates=arms)


class Harness:
    """A search, and what its contests were asked."""

    def __init__(self, budget_s: float = 30.0, **limits: float) -> None:
        self.search = Search(budget_s, Example("", {}))
        self.limits = limits
        self.log: list[Any] = []

    def compare(self, n: int, args: tuple[object, ...] = (), reps: int | None = None, **ratios: float) -> Comparison:
        """Begin an example and compare once in it."""
        self.search.begin(Example(f"n={n}", {"n": n}))
        return self.further(args, reps, **ratios)

    def further(self, args: tuple[object, ...] = (), reps: int | None = None, **ratios: float) -> Comparison:
        """Compare once more in the same example."""
        settings = replace(Settings(), alpha=0.01, reps=reps)
        contest = FakeContest(ratios, self.log, settings, self.limits, args=args)
        return self.search.compare(cast(Contest, contest), lambda text: None)

    def took(self) -> list[str]:
        """Return what was done since it was last asked."""
        kinds = [
            "checked" if each[0] == "checked" else "quick" if each[1] == 2 * QUICK_QUADS else "full"
            for each in self.log
        ]
        self.log.clear()
        return kinds


def test_only_the_worst_so_far_is_judged() -> None:
    harness = Harness()
    found = []
    for n, ratio in enumerate([2.0, 2.0, 3.0, 1.999, 2.0, 0.5]):
        harness.compare(n, fast=ratio)
        found.append(harness.took())
    assert found == [["quick", "full"], ["quick"], ["quick"], ["quick", "full"], ["quick"], ["quick", "full"]]


@pytest.mark.parametrize(("ratio", "judged"), [(NEAR * 2 - 1e-6, True), (NEAR * 2, False), (NEAR * 2 + 1e-6, False)])
def test_what_is_near_its_limit_is_judged(ratio: float, judged: bool) -> None:
    harness = Harness(fast=2.0)
    harness.compare(0, fast=1.0)
    harness.took()
    harness.compare(1, fast=ratio)
    assert harness.took() == (["quick", "full"] if judged else ["quick"])


def test_each_candidate_and_comparison_has_its_worst() -> None:
    harness = Harness(second=2.0)
    harness.compare(0, first=1.0, second=5.0)
    harness.further(first=3.0, second=6.0)
    assert harness.took() == ["quick", "full"] * 2
    harness.compare(1, first=2.0, second=4.9)
    harness.further(first=3.1, second=5.5)
    assert harness.took() == ["quick", "full"] * 2
    harness.compare(2, first=2.0, second=4.9)
    harness.further(first=3.1, second=5.5)
    assert harness.took() == ["quick"] * 2


def test_a_comparison_is_remembered_by_its_arguments() -> None:
    harness = Harness()
    first = harness.compare(1, args=(torch.zeros(3),), fast=2.0)
    second = harness.further(args=(torch.zeros(3),), fast=2.0)
    assert harness.took() == ["quick", "full", "quick", "full"]
    assert first is not second
    assert harness.compare(1, args=(torch.zeros(3),), fast=9.0) is first
    assert harness.further(args=(torch.zeros(3),), fast=0.1) is second
    assert harness.took() == ["checked", "checked"]
    assert harness.compare(1, args=(torch.zeros(4),), fast=9.0) is not first
    assert harness.compare(2, args=(torch.zeros(3),), fast=9.0) is not first
    assert harness.took() == ["quick", "quick"]


def test_what_is_remembered_is_measured_once() -> None:
    harness = Harness()
    found = harness.compare(1, fast=2.0)
    told = harness.search.told_apart(found, list(found.candidates.values()))
    assert [item.example for item in told] == ["n=1"]
    assert harness.search.told_apart(found, []) is told


def test_a_budget_that_is_spent_leaves_the_check() -> None:
    harness = Harness(budget_s=5.0)
    known = harness.compare(0, fast=2.0)
    harness.took()
    harness.search.spent_s = 5.0
    harness.compare(1, fast=1.0)
    assert harness.log == [("checked", "--gpu-bench-given-budget of 5 s is spent")]
    assert harness.compare(0, fast=1.0) is known
    harness.took()
    harness.search.spent_s = 4.99
    harness.compare(1, fast=1.0)
    assert harness.took() == ["checked"]  # as it was before
    harness.compare(2, fast=1.0)
    assert harness.took() == ["quick", "full"]


def test_a_failure_has_as_much_again_to_shrink() -> None:
    harness = Harness(budget_s=5.0)
    harness.search.spent_s = 5.0
    harness.search.explain("fast", "ref")
    harness.compare(1, fast=1.0)
    assert harness.took() == ["quick", "full"]
    harness.search.spent_s = 10.0
    harness.compare(2, fast=0.5)
    assert harness.took() == ["checked"]


def test_a_failed_comparison_is_paid_for() -> None:
    harness = Harness()
    contest = FakeContest({"fast": 1.0}, harness.log, Settings(), {}, error=ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        harness.search.compare(cast(Contest, contest), lambda text: None)
    assert harness.search.spent_s > 0
    assert not harness.search.known


def test_an_error_is_remembered() -> None:
    harness = Harness()
    contest = FakeContest({"fast": 1.0}, harness.log, Settings(), {}, error=WrongResult("no"))
    for spent_s in (0.0, 30.0):
        harness.search.begin(Example("n=1", {}))
        harness.search.spent_s = spent_s
        with pytest.raises(WrongResult, match="no"):
            harness.search.compare(cast(Contest, contest), lambda text: None)


def test_what_cannot_be_told_apart_is_not_remembered() -> None:
    harness = Harness()
    found = []
    for ratio in (2.0, 0.5):
        harness.search.begin(example_of({"case": Opaque()}))
        found.append(harness.further(fast=ratio)["fast"].speedup)
    assert found[0] != found[1]


def test_all_judgements_together_spend_alpha() -> None:
    harness = Harness()
    for n in range(200):
        harness.compare(n, fast=1 / (n + 1))
    alphas = [each[2] for each in harness.log if each[1] is None]
    assert alphas == pytest.approx([0.01 / (n * (n + 1)) for n in range(1, 201)])
    assert sum(alphas) < 0.01


def test_a_number_of_reps_leaves_out_the_cheap_look() -> None:
    harness = Harness()
    harness.compare(0, reps=40, fast=2.0)
    harness.compare(1, reps=40, fast=3.0)
    assert harness.log == [("run", 40, 0.01 / 2), ("run", 40, 0.01 / 6)]


def test_an_example_to_paste_and_the_trend() -> None:
    harness = Harness()
    for n in range(4):
        harness.compare(n, fast=4.0 - n)
    line = "gpu_bench: to keep this example, paste above the test: @example(n=3)"
    assert harness.search.explain("fast", "ref") == line
    harness.compare(4, fast=0.12345)
    expected = (
        "fast by n, over 5 examples: up to 0: 4.00x, up to 1: 3.00x, up to 2: 2.00x, up to 3: 1.00x, up to 4: 0.123x"
    )
    assert harness.search.explain("fast", "ref") == f"{line.replace('3', '4')}\ngpu_bench: {expected}"
    assert harness.search.explain("other", "ref").count("\n") == 0


# what is wrong stays wrong


def contest_of(harness: Harness, **others: Any) -> Contest:
    return cast(Contest, FakeContest({"fast": 1.0}, harness.log, Settings(), {}, **others))


def compared(harness: Harness, n: int, **others: Any) -> str:
    """Return what comes of a comparison in an example: the text of its error, or why it was not timed, or timed."""
    harness.search.begin(Example(f"n={n}", {"n": n}))
    try:
        harness.search.compare(contest_of(harness, **others), lambda text: None)
    except (WrongResult, MeasurementError) as error:
        return str(error)
    return "timed" if any(each[0] == "run" for each in harness.log) else harness.log[-1][1]


WRONG = WrongResult("wrong")
WHEN_TIMED = WrongResult("wrong when timed")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"error": WHEN_TIMED}, {}),
        ({"error": WHEN_TIMED, "wrong": [WRONG]}, {}),
        ({"error": MeasurementError("no")}, {}),
        ({"error": MeasurementError("no"), "wrong": [WRONG]}, {"error": MeasurementError("other")}),
        ({}, {"error": WHEN_TIMED}),
    ],
)
@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("spent_s", [0.0, 100.0])
def test_an_example_stays_what_it_was(
    first: dict[str, Any], second: dict[str, Any], is_wrong: bool, spent_s: float
) -> None:
    """Whatever happens between: another example is wrong, or time is up, or there is more of it."""
    harness = Harness()
    before = compared(harness, 1, **{**first, "wrong": list(first.get("wrong", []))})
    harness.search.is_wrong, harness.search.spent_s = is_wrong, spent_s
    assert compared(harness, 1, **second) == before


@pytest.mark.parametrize(("is_wrong", "spent_s"), [(True, 0.0), (False, 30.0)])
def test_what_was_only_checked_is_never_timed(is_wrong: bool, spent_s: float) -> None:
    harness = Harness()
    harness.search.is_wrong, harness.search.spent_s = is_wrong, spent_s
    assert "wrong result" in (reason := compared(harness, 1)) or "budget" in reason
    harness.search.is_wrong, harness.search.spent_s = False, 0.0
    harness.log.clear()
    compared(harness, 1)
    assert harness.took() == ["checked"]


@pytest.mark.parametrize(("is_wrong", "spent_s"), [(True, 0.0), (False, 30.0)])
def test_what_is_wrong_by_chance_where_nothing_is_timed_stays_wrong(is_wrong: bool, spent_s: float) -> None:
    harness = Harness()
    harness.search.is_wrong, harness.search.spent_s = is_wrong, spent_s
    assert [compared(harness, 1, wrong=[WRONG]), compared(harness, 1)] == ["wrong", "wrong"]
    assert harness.search.is_wrong


def test_only_what_is_wrong_in_any_call_ends_the_timing() -> None:
    harness = Harness()
    assert compared(harness, 1, error=WHEN_TIMED) == "wrong when timed"
    harness.log.clear()
    assert compared(harness, 2) == "timed"
    assert compared(harness, 3, error=WHEN_TIMED, wrong=[WRONG]) == "wrong"
    harness.log.clear()
    assert "right before fast" in compared(harness, 4)


# an error that is raised again


def depth(error: BaseException) -> int:
    """Return how long an error's traceback is."""
    found, trace = 0, error.__traceback__
    while trace is not None:
        found, trace = found + 1, trace.tb_next
    return found


@pytest.mark.parametrize("error", [WrongResult("no"), MeasurementError("no")])
def test_a_traceback_does_not_grow_when_it_is_raised_again(error: Exception) -> None:
    harness = Harness()
    contest = FakeContest({"fast": 1.0}, harness.log, Settings(), {}, error=error)
    depths = []
    for _ in range(4):
        harness.search.begin(Example("n=1", {}))
        with pytest.raises(type(error)) as caught:
            harness.search.compare(cast(Contest, contest), lambda text: None)
        depths.append(depth(caught.value))
    assert len(set(depths)) == 1


def test_what_was_wrong_is_checked_again_for_hypothesis_to_follow() -> None:
    """Whatever comes of that: an example stays what it was."""
    harness = Harness()
    found = [compared(harness, 1, wrong=[WRONG], error=WHEN_TIMED)]
    harness.log.clear()
    found += [compared(harness, 1, wrong=[WrongResult("otherwise")]), compared(harness, 1)]
    assert found == ["wrong"] * 3
    assert harness.took() == ["checked", "checked"]


def test_an_example_that_failed_is_raised_as_the_first_time() -> None:
    examples, depths = Examples("reject"), []
    for attempt in range(4):
        with pytest.raises(LimitBroken) as caught:
            examples.run(Example("n=1", {}), lambda: break_limit(first=attempt == 0))  # noqa: B023 # called at once
        depths.append(depth(caught.value))
    assert len(set(depths)) == 1


def break_limit(first: bool) -> None:
    if first:
        raise LimitBroken("slow")


# phases


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_phases_shown_are_those_that_broke_a_limit_and_then_the_slowest(order: tuple[int, ...]) -> None:
    found = [phases_of("b", 5.0, "pass"), phases_of("b", 9.0, "pass"), phases_of("b", 7.0, "fail")]
    search = Search(30.0, Example("", {}))
    for place in order:
        search.phased[f"n={place}", 1, "b"] = found[place]
        search.phased[f"n={place}", 2, "b"] = phases_of("b", 1.0 + place, "pass")
    assert [(each.title, each.sum_us) for each in search.worst_phases()] == [("b at n=2", 7.0), ("b at n=2", 3.0)]


def phases_of(title: str, sum_us: float, outcome: str) -> tuple[Phases, list[Measurement]]:
    timing = Timing(label=title, timer="scripted", cache="hot", device="CPU", samples_us=(sum_us,))
    verdict = Verdict(limit="max_time_us=6", outcome=Outcome(outcome), sentence="")
    phases = Phases(title=title, timer="scripted", cache="hot", device="CPU", sum_us=sum_us)
    return phases, [Measurement(timing=timing, verdicts=(verdict,))]


# what was compiled


def compiled(number: int, elapsed_s: float = 31.0) -> Compilations:
    return Compilations(number, elapsed_s, began=Graphs(0, 0.0), ended=Graphs(0, 0.0))


@pytest.mark.parametrize(
    ("examples", "number", "line"),
    [
        (42, 0, None),
        (42, 1, "42 examples, 1 compilation (31 s)"),
        (42, 10, "42 examples, 10 compilations (31 s)"),
        (40, 9, "40 examples, 9 compilations (31 s)"),
        (41, 10, "41 examples, 10 compilations (31 s)"),
        (40, 10, "40 examples, 10 compilations (31 s); for fewer, bucket the shapes: multiple_of=64, say, in their "),
        (9, 9, "9 examples, 9 compilations (31 s)"),
    ],
)
def test_compilations_are_told(examples: int, number: int, line: str | None) -> None:
    search = Search(30.0, Example("", {}))
    for n in [*range(examples), 0]:
        search.begin(Example(f"n={n}", {"n": n}, compilations=compiled(number)))
    _, *lines = search.explain("fast", "ref").splitlines()
    assert [each.removesuffix("strategy") for each in lines] == ([] if line is None else [f"gpu_bench: {line}"])
    assert str(search) == (f"{examples} examples" if line is None else line.partition(";")[0])


def test_compiling_is_not_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a hundred seconds by the clock, of which ninety are compiling."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    runtime = SimpleNamespace(jit_cache_hook=None, jit_post_compile_hook=None)
    monkeypatch.setitem(sys.modules, "triton.knobs", cast(Any, SimpleNamespace(runtime=runtime)))

    def compiling() -> None:
        clock[0] += 5
        runtime.jit_cache_hook(key="k")
        clock[0] += 45
        runtime.jit_post_compile_hook(key="k")

    harness = Harness()
    compared(harness, 1, during=compiling)
    assert harness.search.spent_s == 10  # a cheap look, and the full protocol
    with pytest.raises(ValueError, match="no"):
        compared(harness, 2, during=compiling, error=ValueError("no"))
    assert harness.search.spent_s == 15


# out of memory


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """Leave what is there by now out of garbage collection, of which there is one for each example without room."""
    gc.freeze()
    yield
    gc.unfreeze()


def full() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def caused_by(error: Exception, outer: Exception) -> Exception:
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (full(), True),
        (caused_by(full(), DeviceUnavailable("no room for the buffer")), True),
        (RuntimeError("CUDA error: out of memory\nCompile with ..."), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUDA error: out of memory"), False),
        (MemoryError(), False),
        (DeviceUnavailable("no room"), False),
        (None, False),
    ],
)
def test_what_is_out_of_memory(error: Exception | None, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_what_was_raised_while_handling_it_is_something_else() -> None:
    error = AssertionError("the fallback is wrong")
    error.__context__ = full()
    assert not is_out_of_memory(error)


class Followed(NamedTuple):
    """What came of a test whose examples were followed."""

    error: BaseException | None
    warnings: list[str]
    calls: list[int]


def follow(body: Callable[[int], object], on_out_of_memory: Any = "reject", sizes: Any = None) -> Followed:
    """Run a test under @given of a size; every call of its body is noted."""
    calls: list[int] = []
    warnings: list[str] = []

    phases = [Phase.generate, Phase.shrink]

    @settings(max_examples=40, database=None, derandomize=True, deadline=None, phases=phases)
    @given(n=st.integers(1, 99) if sizes is None else sizes)
    def test(n: int) -> None:
        calls.append(n)
        body(n)

    try:
        with following_examples(test, lambda example: None, {}, on_out_of_memory, warnings.append):
            cast(Any, test)()
    except BaseException as error:
        return Followed(error, warnings, calls)
    return Followed(None, warnings, calls)


def raise_full(n: int) -> None:
    raise full()


def notes(error: BaseException | None) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def test_what_does_not_fit_is_rejected_once_and_for_all() -> None:
    error, warnings, calls = follow(lambda n: raise_full(n) if n > 50 else None)
    assert error is None
    large = {n for n in calls if n > 50}
    assert len(large) > 1
    assert warnings == [f"{len(large)} examples did not fit into GPU memory (the smallest n={min(large)})"]
    assert all(calls.count(n) == 1 for n in large)


def test_one_that_does_not_fit() -> None:
    found = follow(lambda n: raise_full(n) if n == 7 else None, sizes=st.integers(1, 9))
    assert found.warnings == ["1 example did not fit into GPU memory (n=7)"]
    assert found.error is None


def test_what_fits_is_not_told() -> None:
    assert follow(lambda n: None)[:2] == (None, [])


def test_a_failure_beside_what_does_not_fit_is_shrunk() -> None:
    def body(n: int) -> None:
        if n > 50:
            raise full()
        if n > 20:
            raise LimitBroken("slow")

    found = follow(body)
    assert type(found.error) is LimitBroken
    assert found.calls[-1] == 21
    assert "did not fit into GPU memory" in notes(found.error)


def test_fail_lets_it_fail_and_shrink() -> None:
    found = follow(lambda n: raise_full(n) if n > 50 else None, on_out_of_memory="fail")
    assert type(found.error) is torch.OutOfMemoryError
    assert found.calls[-1] == 51
    assert found.warnings == []


@pytest.mark.parametrize("which", ["reject", "fail"])
@pytest.mark.parametrize("error", [full(), LimitBroken("slow"), WrongResult("wrong"), MeasurementError("no")])
@pytest.mark.parametrize("then", ["fits", "full", "other"])
def test_an_example_that_failed_fails_again(which: str, error: Exception, then: str) -> None:
    """Memory comes and goes, and what is measured once more may come out otherwise: never flaky."""
    seen: set[int] = set()

    def body(n: int) -> None:
        if n > 20 and n not in seen:
            seen.add(n)
            raise type(error)(str(error))
        if n > 20 and then == "full":
            raise full()
        if n > 20 and then == "other":
            raise MeasurementError("other")

    found = follow(body, which)
    assert not isinstance(found.error, (Flaky, FailedHealthCheck))
    if isinstance(error, torch.OutOfMemoryError) and which == "reject":
        assert found.error is None
    else:
        assert type(found.error) is type(error)
        assert str(found.error) == str(error)
        assert found.calls[-1] == 21


def test_a_test_of_its_own_that_is_flaky_is_called_so() -> None:
    seen: set[int] = set()

    def body(n: int) -> None:
        if n > 20 and n not in seen:
            seen.add(n)
            raise AssertionError("of the user")

    assert isinstance(follow(body).error, Flaky)


def test_what_passed_is_not_rejected_later() -> None:
    examples = Examples("reject")
    assert examples.run(Example("n=1", {}), lambda: 5) == 5
    assert examples.run(Example("n=1", {}), lambda: raise_full(1)) is None
    assert not examples.rejected
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: examples.run(Example("n=2", {}), lambda: raise_full(2)))
    with pytest.raises(UnsatisfiedAssumption):
        inside(lambda: examples.run(Example("n=2", {}), lambda: 5))


def inside(call: Callable[[], object]) -> None:
    """Call in a test of hypothesis, and let through what it makes of a rejected example."""
    raised: list[BaseException] = []

    @settings(max_examples=1, database=None, phases=[Phase.generate])
    @given(st.none())
    def test(nothing: None) -> None:
        try:
            call()
        except UnsatisfiedAssumption as error:
            raised.append(error)

    test()
    if raised:
        raise raised[0]


@pytest.mark.parametrize("sizes", [st.integers(1, 9), st.integers(1, 10**6)])
def test_where_nothing_fits_the_error_says_so(sizes: Any) -> None:
    found = follow(raise_full, sizes=sizes)
    assert isinstance(found.error, (Unsatisfiable, FailedHealthCheck))
    assert "did not fit into GPU memory (the smallest n=1), and no other was tried; lower max_bytes" in notes(
        found.error
    )


@pytest.mark.parametrize(("fitting", "said"), [(2, True), (3, False)])
def test_nearly_nothing_fits(fitting: int, said: bool) -> None:
    examples = Examples("reject")
    examples.rejected = {(n,): Example(f"n={n}", {"n": n}) for n in range(18, 0, -1)}
    examples.passed = {(f"fits {n}",) for n in range(fitting)}
    text = "18 examples did not fit into GPU memory (the smallest n=1)"
    more = ", of 20 in all: nearly nothing was searched; lower max_bytes or max_side, or free memory"
    assert examples.sentence == text + (more if said else "")


@pytest.mark.parametrize("which", ["reject", "fail"])
def test_what_an_example_held_is_given_back(which: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next example nothing of one that did not fit, or failed, is alive, though hypothesis keeps its error."""
    held: list[weakref.ref[torch.Tensor]] = []
    emptied: list[int] = []
    monkeypatch.setattr("pytest_gpubench.search.context_error", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))

    def body(n: int) -> None:
        gc.collect()
        assert [each() for each in held] == [None] * len(held)
        x = torch.ones(n)
        held.append(weakref.ref(x))
        if n > 50:
            raise caused_by(full(), DeviceUnavailable("no room"))

    found = follow(body, which)
    assert len(emptied) == (len({n for n in found.calls if n > 50}) if which == "reject" else 0)
    assert type(found.error) is (DeviceUnavailable if which == "fail" else type(None))
    assert len(held) > 10


def test_a_tensor_that_is_drawn_and_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_gpubench.strategies import tensors as module

    original = module.__globals__["tensor"]

    def tight(**options: Any) -> torch.Tensor:
        if options["shape"] > 50:
            raise full()
        return cast(torch.Tensor, original(**options))

    monkeypatch.setitem(module.__globals__, "tensor", tight)
    found = follow(lambda x: None, sizes=tensors(st.integers(1, 99), device="cpu"))
    assert found.error is None
    assert "did not fit into GPU memory (the smallest tensor(shape=(" in found.warnings[0]
    failed = follow(lambda x: None, "fail", sizes=tensors(st.integers(1, 99), device="cpu"))
    assert type(failed.error) is torch.OutOfMemoryError

    @settings(max_examples=40, database=None, derandomize=True)
    @given(x=tensors(st.integers(1, 99), device="cpu"))
    def outside(x: torch.Tensor) -> None:
        pass

    with pytest.raises(torch.OutOfMemoryError):
        outside()


# a broken context


def test_the_shape_that_breaks_cuda_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on every example fails, small ones too: none is tried."""
    broken: list[int] = []
    monkeypatch.setattr("pytest_gpubench.search.context_error", lambda: "an illegal access" if broken else None)

    def body(n: int) -> None:
        if n > 50:
            broken.append(n)
        if broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    found = follow(body)
    assert type(found.error) is RuntimeError
    assert found.calls[-1] == broken[0] > 50
    assert notes(found.error).endswith(
        f"gpu_bench: the CUDA context broke in this example, not shrunk: @example(n={broken[0]})"
    )


def test_an_error_that_only_speaks_of_cuda_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.search.context_error", lambda: None)

    def body(n: int) -> None:
        if n > 50:
            raise RuntimeError("CUDA error: invalid argument")

    assert follow(body).calls[-1] == 51


# lazy tensors, deadlines


class Pair(NamedTuple):
    x: Any
    n: int


LAZY = lazy_tensor((2, 3), seed=4, device="cpu")


def test_lazy_tensors_are_made_for_each_call() -> None:
    seen: list[Any] = []

    @settings(phases=[Phase.explicit], database=None)
    @example(x=LAZY)
    @example(x=Pair(LAZY, 3))
    @example(x=[{"a": (LAZY, 1)}, "b"])
    @given(x=st.none())
    def test(x: Any) -> None:
        seen.append(x)

    examples: list[Example] = []
    with following_examples(test, examples.append, {}):
        test()
    plain, pair, nested = sorted(seen, key=lambda x: ("Tensor", "Pair", "list").index(type(x).__name__))
    expected = tensor((2, 3), seed=4, device="cpu")
    found = [plain, pair.x, nested[0]["a"][0]]
    assert all(torch.equal(each, expected) for each in found)
    assert len({id(each) for each in found}) == 3
    assert (pair.n, nested[0]["a"][1], nested[1]) == (3, 1, "b")
    assert f"x={LAZY!r}" in [each.text for each in examples]
    assert {"x.shape[0]": 2, "x.shape[1]": 3} in [each.sizes for each in examples]


def test_a_failing_example_is_printed_lazily() -> None:
    @settings(phases=[Phase.explicit], database=None)
    @example(x=LAZY)
    @given(x=st.none())
    def test(x: Any) -> None:
        raise LimitBroken("slow")

    with pytest.raises(LimitBroken) as caught, following_examples(test, lambda example: None, {}):
        test()
    assert f"x={LAZY!r}" in notes(caught.value)


@pytest.mark.parametrize(("own_ms", "expected_ms"), [(None, None), (200, None), (5000, 5000)])
def test_the_usual_deadline_is_off(own_ms: int | None, expected_ms: int | None) -> None:
    """The profile's is; one that a test asks for is the test's."""
    seen: list[Any] = []
    before = hypothesis.settings.get_current_profile_name()
    settings.register_profile("usual deadline", deadline=200, database=None, max_examples=1)
    settings.load_profile("usual deadline")
    try:

        @given(st.none())
        def test(nothing: None) -> None:
            seen.append(settings().deadline)

        function = cast(Any, test if own_ms is None else settings(deadline=own_ms)(test))
        asked = function._hypothesis_internal_use_settings
        with following_examples(function, lambda example: None, {}):
            function()
        assert function._hypothesis_internal_use_settings is asked
    finally:
        settings.load_profile(before)
    assert {each and each / datetime.timedelta(milliseconds=1) for each in seen} == {expected_ms}
