"""Checks on what timed calls must leave alone: torch's switches, the inputs, the outputs of other arms."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.switches import Readings, readings, refuse_switching
from pytest_gpubench.correctness.snapshot import Snapshot

__tracebackhide__ = True

REPS_PER_LOOK = 30
"""The inputs are read before one rep in so many, drawn at random: no call can tell which."""


@dataclass
class Conduct:
    """Look, between timed calls, for what a call changed; made before the first of them."""

    agreement: Agreement
    arms: Sequence[str]
    """The reference and the candidates."""
    check_cache: Callable[[], None] = lambda: None
    """Raises InvalidResult where cache is set aside for persisting data."""
    switches: Readings = field(default_factory=readings)
    inputs: Snapshot | None = None
    """The inputs as they were; None where `setup` makes them for each call."""
    counting: bool = False
    """True while the reps count."""
    looked: bool = False

    def __post_init__(self) -> None:
        self.inputs = self.agreement.inputs_as_given()

    def before_call(self) -> None:
        """Note the switches where `setup` may have set them."""
        if self.agreement.arguments.setup is not None:
            self.switches = readings()

    def after_call(self, name: str) -> None:
        """Raise UnfairComparison if the call of an arm changed a switch, InvalidResult if cache is set aside.

        The driver takes 50 us to tell of the cache: it is asked after the calls of the candidates alone.
        """
        refuse_switching(f"{name!r}", self.switches)
        if name != self.arms[0]:
            self.check_cache()

    def looks_now(self) -> bool:
        """Read the inputs at a random rep, raise UnfairComparison if they changed; tell whether they were read."""
        if not self.counting or self.looked or self.inputs is None or secrets.randbelow(REPS_PER_LOOK):
            return False
        self.looked = True
        self.look_at_inputs()
        return True

    def look_at_inputs(self) -> None:
        """Raise UnfairComparison if the inputs are not what they were."""
        self.agreement.refuse_overwriting(f"a timed call of {' or '.join(map(repr, self.arms))}", self.inputs)
