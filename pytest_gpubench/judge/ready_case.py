"""A case of a spec, ready before any candidate is: its reference has been timed."""

import secrets
from dataclasses import dataclass, replace
from typing import Any

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.reference import Reference
from pytest_gpubench.judge.spec import Case, Spec

__tracebackhide__ = True


@dataclass(frozen=True)
class ReadyCase:
    """A case whose reference was made ready and timed before anything of a candidate's was loaded."""

    spec: Spec
    case: Case
    device: Device
    reference: Reference
    example: tuple[Any, ...]
    before_us: float

    @classmethod
    def of(cls, spec: Spec, case: Case, device: Device) -> "ReadyCase":
        """Make a case ready; raise UnfairComparison where a candidate need not compute to be right."""
        ready = cls.untimed(spec, case, device)
        (other,) = new_inputs(spec, case, device, 1)
        ready.reference.check_fair(ready.example, other)
        return replace(ready, before_us=ready.reference.runner.warm().call_us)

    @classmethod
    def untimed(cls, spec: Spec, case: Case, device: Device) -> "ReadyCase":
        """Make a case ready whose outputs alone are to be compared."""
        reference = Reference(spec, case, device)
        (example,) = new_inputs(spec, case, device, 1)
        reference.begin_case(example, 1)
        return cls(spec, case, device, reference, example, 0.0)

    @property
    def name(self) -> str:
        """The parameters of the case in words."""
        return ", ".join(f"{name}={value!r}" for name, value in self.case.items())


def new_inputs(spec: Spec, case: Case, device: Device, number: int) -> list[tuple[Any, ...]]:
    """Return new inputs from seeds that nobody can know."""
    return [spec.inputs(case, secrets.randbelow(2**31), device.torch_device) for _ in range(number)]
