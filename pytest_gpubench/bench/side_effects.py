"""Checks on what timed calls must leave alone: torch's switches, and the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.switches import Readings, readings, refuse_switching
from pytest_gpubench.errors import UnfairComparison


@dataclass
class Conduct:
    """Look, between timed calls, for what a call changed; made before the first of them."""

    agreement: Agreement
    arms: Sequence[str]
    """The reference and the candidates."""
    switches: Readings = field(default_factory=readings)

    def before_call(self) -> None:
        """Raise UnfairComparison if earlier calls changed inputs; note the switches where `setup` may have set them."""
        if self.agreement.memory is not None:
            self.refuse_late(self.agreement.memory.late)
        if self.agreement.arguments.setup is not None:
            self.switches = readings()

    def after_call(self, name: str) -> None:
        """Raise UnfairComparison if the call of an arm changed a switch."""
        refuse_switching(f"{name!r}", self.switches)

    def look_at_inputs(self) -> None:
        """Raise UnfairComparison if inputs are changed that no call had changed when it was checked."""
        memory = self.agreement.memory
        if memory is not None and self.agreement.variation.way == "as given":
            self.refuse_late([*memory.late, *memory.look()])

    def refuse_late(self, names: Sequence[str]) -> None:
        """Raise UnfairComparison for arguments that a timed call was the first to change, unless it may."""
        if refused := [name for name in names if not self.agreement.may_overwrite(name)]:
            raise UnfairComparison(
                f"a timed call of {' or '.join(map(repr, self.arms))} changed {', '.join(refused)}, which no call did "
                "when it was checked: let it do the same in every call, or give overwrites=True"
            )
