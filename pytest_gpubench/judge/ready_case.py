"""A case of a spec with its reference, timed before any candidate is loaded."""

import secrets
from dataclasses import dataclass, replace
from typing import Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.layout import describe, same_bytes
from pytest_gpubench.judge.reference import Reference, copied
from pytest_gpubench.judge.spec import Case, Spec

__tracebackhide__ = True


@dataclass(frozen=True)
class ReadyCase:
    """A case whose reference was timed before a candidate was loaded."""

    spec: Spec
    case: Case
    device: Device
    reference: Reference
    example: tuple[Any, ...]
    before_us: float

    @classmethod
    def of(cls, spec: Spec, case: Case, device: Device) -> "ReadyCase":
        """Make a case ready; raise UnfairComparison where no computing is needed to be right."""
        ready = cls.untimed(spec, case, device)
        ready.reference.begin_case(ready.example, 1)
        before, (other,) = copied(ready.example), ready.draw(1)
        if not all(map(same_bytes, *(describe(each, "the inputs")[1] for each in (before, ready.example)))):
            raise BadRequest("inputs of the spec overwrite earlier ones: return new tensors for each seed")
        ready.reference.check_fair(ready.example, other)
        return replace(ready, before_us=ready.reference.runner.warm().call_us)

    @classmethod
    def untimed(cls, spec: Spec, case: Case, device: Device) -> "ReadyCase":
        """Make a case ready of which only the outputs are compared."""
        ready = cls(spec, case, device, Reference(spec, device), (), 0.0)
        return replace(ready, example=ready.draw(1)[0])

    @property
    def name(self) -> str:
        """The parameters of the case in words."""
        return ", ".join(f"{name}={value!r}" for name, value in self.case.items())

    def draw(self, number: int) -> list[tuple[Any, ...]]:
        """Return inputs of so many calls, from new seeds."""
        seeds = [secrets.randbelow(2**31) for _ in range(number)]
        return [self.spec.inputs(self.case, seed, self.device.torch_device) for seed in seeds]
