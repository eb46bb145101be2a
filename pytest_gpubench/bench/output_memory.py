"""The memory of what each arm returns: no candidate may return another arm's, with a right result in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.leaves import flatten, inputs_of
from pytest_gpubench.correctness.memory import MemoryRange, living, lying_in, memory_of, overlaps
from pytest_gpubench.errors import UnfairComparison

REFERENCE = ""
"""The arm that is the reference."""


@dataclass(frozen=True)
class OutputMemory:
    """The memory of what each arm returned so far, as long as it lives; it is not kept alive."""

    inputs: InputMemory | None
    arms: dict[str, list[tuple[str, MemoryRange]]] = field(default_factory=dict)

    def in_given(self, outputs: object, args: Sequence[object], kwargs: Mapping[str, object]) -> list[tuple[str, str]]:
        """Return the outputs in memory of arguments, each with that, or in other memory that is put back, with ""."""
        changing = [("", region.bytes) for region in self.inputs.changing] if self.inputs is not None else []
        return overlaps(flatten(outputs), [*inputs_of(args, kwargs), *changing])

    def add(self, arm: str, outputs: object, in_given: Sequence[tuple[str, str]]) -> None:
        """Note where outputs lie, but for those in memory that every call is given, as `in_given` returns them."""
        given = {name for name, _ in in_given}
        own = [each for each in memory_of(flatten(outputs), owned=True) if each[0] not in given]
        before = [each for each in living(self.arms.get(arm, ())) if each not in own]
        self.arms[arm] = [*before, *own]

    def refuse_shared(self, arm: str, outputs: object) -> None:
        """Raise UnfairComparison for an output of a candidate that is memory of another arm's."""
        leaves = flatten(outputs)
        for other in [each for each in self.arms if each != arm]:
            for output, name in lying_in(leaves, self.arms[other])[:1]:
                whose = "the reference's" if other == REFERENCE else f"{other!r}, its"
                raise UnfairComparison(
                    f"{output} of {arm!r} is memory of {whose} {name}: what is in it says nothing about the candidate; "
                    "give each its own"
                )
