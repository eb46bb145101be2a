"""Agreements, and calls of two arms, for tests of a comparison."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from pytest_gpubench import DeviceFacts
from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.arguments import VariedArguments, kept_arguments
from pytest_gpubench.bench.checked_rounds import CheckedRounds
from pytest_gpubench.bench.other_values import OtherValues
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness import Tolerance
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import call_of
from pytest_gpubench.timing.calls import Backward, make_call
from pytest_gpubench.timing.comparison import Match
from pytest_gpubench.timing.rounds import Interleaved, Sample
from tests.timing.fakes import ArmsTimer, Clock, rep

MIB = 2**20
CACHE_BYTES = 50 * MIB
GPU = Device(torch.device("cpu"), DeviceFacts(type="cuda", name="NVIDIA H200", host="here", cache_bytes=CACHE_BYTES))
CPU = Device(torch.device("cpu"), DeviceFacts(type="cpu", name="CPU", host="here", cache_bytes=CACHE_BYTES))
COLD = Settings()


def agreement_of(
    reference: Callable[..., object],
    *args: object,
    setup: Callable[[], object] | None = None,
    backward: Backward = "forward",
    overwrites: bool | tuple[str, ...] = False,
) -> Agreement:
    arguments = VariedArguments.of(kept_arguments([reference], args, None, setup, overwrites))
    return Agreement(
        reference, arguments, Tolerance(), None, None, False, backward, torch.device("cpu"), overwrites=overwrites
    )


class Lazy(torch.Tensor):
    """A tensor of a class of its own."""


def recorded(candidate: Callable[..., object], agreement: Agreement, calls: int = 2) -> OutputRecorder:
    """Return what is known after calls of both arms in turn."""
    recorder = OutputRecorder(agreement, reference="reference")
    arms = {"reference": agreement.reference, "mine": candidate}
    watched = [recorder.watch(name, make_call(function, agreement.arguments)) for name, function in arms.items()]
    for _ in range(calls):
        for call in (*watched, *watched[::-1]):
            call.prepare()()
    return recorder


def check(recorder: OutputRecorder, names: Sequence[str]) -> None:
    """Check the last calls of candidates against the reference's last one."""
    ours = recorder.last_of(recorder.reference, Ran(recorder.last[recorder.reference], {}))
    recorder.check_as_given(names, ours.copied())


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def match_of(seed: int = 0) -> Match:
    calls = {name: call_of(name, lambda: None) for name in "rc"}
    return Match(calls, "r", seed)


def taken_before() -> Interleaved:
    return Interleaved({name: Sample([rep(100, "ab")] * 40) for name in "rc"})


def checked_rounds(
    candidate: Callable[..., object],
    timer: ArmsTimer | None = None,
    reference: Callable[..., object] = double,
    setup: Callable[[], object] | None = None,
    another: Callable[..., object] | None = None,
    vary: bool = True,
    backward: Backward = "forward",
) -> CheckedRounds:
    """Return the checks of a candidate that was right when it was checked, and timed since.

    timer: None is one for which all calls take as long. The inputs were looked at in the first calls alone.
    """
    x = () if setup is not None else (torch.arange(4.0, requires_grad=backward != "forward"),)
    arguments = VariedArguments.of(kept_arguments([reference, candidate], x, None, setup))
    agreement = replace(agreement_of(reference, *x, setup=setup, backward=backward), arguments=arguments)
    expected = agreement.run_reference()
    functions = {"r": reference, "c": candidate} | ({} if another is None else {"d": another})
    recorder = OutputRecorder(agreement, arms=len(functions), reference="r")
    calls = {name: recorder.watch(name, make_call(each, arguments, backward, name)) for name, each in functions.items()}
    match = Match(calls, "r")
    way = OtherValues(agreement, expected).find() if vary else None
    recorder.begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.randbelow", lambda below: 1)
        for name in itertools.chain(*match.orders(5)):
            calls[name].prepare()()
    timer = timer or ArmsTimer(Clock(), lambda *at: rep(100, "ab"))
    taken = Interleaved({name: Sample([rep(100, "ab")] * 40) for name in functions})
    return CheckedRounds(recorder, match, timer, taken, expected, way)
