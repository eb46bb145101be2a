"""A judgement inside a test: `gpu_bench.judge`, by the limits of the test's `perf` mark."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpubench.bench.request import CallResult, Request, Say
from pytest_gpubench.errors import BadRequest, InvalidResult, MeasurementError, WrongResult, annotate
from pytest_gpubench.judge.conclusion import measured
from pytest_gpubench.judge.judgement import TIMED, Judgement
from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.spec import Spec
from pytest_gpubench.judge.spec.model import draw_inputs, entry_named
from pytest_gpubench.judge.spec.own_files import digest_of
from pytest_gpubench.judge.spec.python_file import TOLERANCES, check_keys
from pytest_gpubench.judge.trial import Rules
from pytest_gpubench.results.model import Measurement
from pytest_gpubench.units import name_of

if TYPE_CHECKING:
    import torch

ERRORS: Mapping[str, type[Exception]] = {"wrong": WrongResult, "invalid": InvalidResult}
"""Errors that a test raises, by status; MeasurementError for all others without a verdict."""


@dataclass(frozen=True)
class JudgeRequest(Request[Judgement]):
    """A request of `judge`: a candidate's file, its spec, and the limits on its process."""

    path: Path
    spec: Spec
    timeout_s: float
    memory_bytes: int
    role = "candidate"
    has_baseline = False

    def __post_init__(self) -> None:
        Rules(self.limits)

    def measure(self, say: Say) -> CallResult[Judgement]:
        """Judge the candidate; raise an error where it is wrong or was not timed."""
        say(f"judging {self.path.name}")
        alpha, precision = self.settings.alpha, self.settings.precision
        with Judge(
            self.spec,
            self.device,
            timeout_s=self.timeout_s,
            memory_bytes=self.memory_bytes,
            budget_s=self.settings.budget_s or Rules.budget_s,
            lock_folder=self.settings.lock_folder,
        ) as judge:
            judge.rules = replace(judge.rules, limits=self.limits, alpha=alpha, precision=precision)
            judgement = judge(self.path)
        if judgement.status not in TIMED:
            raise error_of(judgement)
        names, facts = (self.spec.name, *self.calls), self.device.facts
        items: list[Measurement] = []
        for case in judgement.cases:
            items += self.without_time(case.reason) if case.ratio is None else measured(case, facts, alpha, names)
        return CallResult(judgement, items)

    def call_only(self, reason: str) -> CallResult[Judgement]:
        """Judge nothing: the candidate is not called."""
        judgement = Judgement(
            status="inconclusive", reason=reason, candidate=str(self.path), spec=self.spec.name, spec_digest=""
        )
        return CallResult(judgement, self.without_time(reason))


def error_of(judgement: Judgement) -> Exception:
    """Return the error that a candidate without a verdict raises in a test."""
    kind = ERRORS.get(judgement.status, MeasurementError)
    error = kind(f"{Path(judgement.candidate).name} ({judgement.status}): {judgement.reason}")
    if judgement.detail:
        annotate(error, judgement.detail)
    return error


def spec_of(
    reference: Callable[..., object],
    inputs: Callable[[int], Any],
    tolerance: Mapping[str, Any] | None,
    trust_claims: bool = False,
) -> Spec:
    """Return a spec made of functions; raise BadRequest for anything else."""
    for name, given in (("reference", reference), ("inputs", inputs)):
        if not callable(given):
            raise BadRequest(f"judge({name}=...) must be a function, found {type(given).__name__}")
    check_keys("tolerance", {} if tolerance is None else tolerance, TOLERANCES, "judge()")

    def made(case: object, seed: int, device: "torch.device | str") -> tuple[Any, ...]:
        return draw_inputs(lambda: inputs(seed), seed, device)

    source = repr(reference)
    with suppress(OSError, TypeError):
        source = inspect.getsource(reference)
    name, digest = name_of(reference), digest_of(source.encode())
    return Spec(name, ({},), reference, made, entry_named(name), digest, tolerance, trust_claims=trust_claims)
