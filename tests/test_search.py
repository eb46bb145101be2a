"""Examples by name and text, and which of them are judged: the worst, those near the limit, and none twice."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench.contest import Contest
from pytest_gpubench.errors import WrongResult
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Speedup, Timing
from pytest_gpubench.search import (
    NEAR,
    QUICK_QUADS,
    Example,
    Search,
    example_of,
    following_examples,
    sizes_in,
    text_of,
)
from pytest_gpubench.settings import Settings
from pytest_gpubench.strategies import tensor


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
    assert example_of({"x": made, "n": 3}) == Example(f"x={text}, n=3", {"x.shape[0]": 2, "x.shape[1]": 3, "n": 3})
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

    @property
    def calls(self) -> dict[str, None]:
        return dict.fromkeys(["ref", *self.ratios])

    @property
    def agreement(self) -> Any:
        return SimpleNamespace(arguments=SimpleNamespace(args=self.args, kwargs={}))

    def checked(self, reason: str = "") -> Comparison:
        self.log.append(("checked", reason))
        return self._found({})

    def run(self, say: object) -> Comparison:
        self.log.append(("run", self.settings.reps, self.settings.alpha))
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
    assert harness.log == [("run", 40, 0.01)] * 2


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
