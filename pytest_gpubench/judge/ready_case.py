"""A case of a spec with its reference, made ready before any candidate is loaded."""

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.layout import describe, span_of
from pytest_gpubench.judge.reference import Reference, copied
from pytest_gpubench.judge.replayed import NO_GPU, saved_call
from pytest_gpubench.judge.spec import Case, Spec

if TYPE_CHECKING:
    import torch


@dataclass
class ReadyCase:
    """A case whose reference is warm."""

    spec: Spec
    case: Case
    device: Device
    reference: Reference
    example: tuple[Any, ...]
    outputs: "list[torch.Tensor]"
    """The tensors that the reference returns."""
    saved: bytes = b""
    """The reference's call as data; empty where it cannot be replayed, or was replayed wrongly."""

    @classmethod
    def of(cls, spec: Spec, case: Case, device: Device) -> "ReadyCase":
        """Make a case ready; raise UnfairComparison where no computing is needed to be right."""
        import torch

        ready = cls.untimed(spec, case, device)
        ready.reference.begin_case(ready.example, 1)
        before, (other,) = copied(ready.example), ready.draw(1)
        spans = [map(span_of, describe(each, "the inputs")[1]) for each in (before, ready.example)]
        if not all(torch.equal(one.view(torch.uint8), now.view(torch.uint8)) for one, now in zip(*spans, strict=True)):
            raise BadRequest("inputs of the spec overwrite earlier ones: return new tensors for each seed")
        ready.reference.check_fair(ready.example, other)
        ready.reference.runner.warm()
        saved = NO_GPU if device.type == "cpu" else saved_call(ready.reference.runner, device)
        return replace(ready, saved=saved if isinstance(saved, bytes) else b"")

    @classmethod
    def untimed(cls, spec: Spec, case: Case, device: Device) -> "ReadyCase":
        """Make a case ready of which only the outputs are compared."""
        ready = cls(spec, case, device, Reference(spec, device), (), [])
        (example,) = ready.draw(1)
        return replace(ready, example=example, outputs=ready.reference.outputs(example))

    @property
    def name(self) -> str:
        """The parameters of the case in words."""
        return ", ".join(f"{name}={value!r}" for name, value in self.case.items())

    def draw(self, number: int) -> list[tuple[Any, ...]]:
        """Return inputs of so many calls, from new seeds."""
        seeds = [secrets.randbelow(2**31) for _ in range(number)]
        return [self.spec.inputs(self.case, seed, self.device.torch_device) for seed in seeds]
