"""A checked call in memory of ours: margins around its arguments, a pattern in all that it allocates."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from pytest_gpubench.bench.agreement import Agreement, Ran
from pytest_gpubench.correctness import Difference, poison_free_memory
from pytest_gpubench.correctness.leaves import inputs_of, tensors_of
from pytest_gpubench.correctness.margins import Buffer, Moved, moved
from pytest_gpubench.correctness.pool import PoisonedPool
from pytest_gpubench.errors import GpuBenchError, WrongResult
from pytest_gpubench.units import repr_of

__tracebackhide__ = True

ATTEMPTS = 4
"""The most calls until one does not ask the GPU for more memory."""


@dataclass(frozen=True)
class GuardedCall:
    """The call of a candidate that was right with its arguments where they are."""

    agreement: Agreement
    name: str
    candidate: Callable[..., object]
    expected: Ran
    pool: PoisonedPool | None
    """The memory that the call allocates from; None lets it have any."""

    def explained(self, differences: Sequence[Difference]) -> Sequence[Difference]:
        """Return the differences of the call; where it is wrong, those that tell what it never wrote."""
        if _all_pass(differences) or self.pool is None:
            return differences
        filled = self._differences(self._found(None))
        return differences if _all_pass(filled) else filled

    def check(self) -> None:
        """Raise WrongResult where it reads or writes beyond a tensor, or leaves a part of its outputs unwritten.

        A remark says so where its arguments cannot be moved, or there is no room.
        """
        guarded = None
        try:
            guarded = self._moved() if self.agreement.margins else None
            if self.pool is None and (guarded is None or not guarded.buffers):
                return
            found = self._found(guarded)
        except torch.OutOfMemoryError:
            self._remark("there is no room for copies of its arguments and outputs")
            return
        except GpuBenchError:
            raise
        except Exception as error:
            if guarded is None:
                raise
            self._remark(f"at other addresses it raised {repr_of(error)}")
            guarded, found = None, self._found(None)
        differences: Sequence[Difference] = self._differences(found)
        self._refuse_writing_past(guarded, found)  # after that outputs in memory of arguments are gone
        if guarded is not None and not _all_pass(differences):
            differences = self._without_margins(guarded)
        self.agreement.require(self.name, differences, "")

    def _refuse_writing_past(self, guarded: Moved | None, found: Ran) -> None:
        names = guarded.overwritten() if guarded is not None else []
        hint = " (margins=False leaves margins out)" if names else ""
        names = names or (self.pool.overwritten(found.outputs) if self.pool is not None else [])
        if names:
            raise WrongResult(f"{self.name} writes past {', '.join(names)}{hint}")

    def _moved(self) -> Moved:
        args, kwargs = self.agreement.fresh()
        return moved(args, kwargs, self.agreement.device)

    def _found(self, guarded: Moved | None, showing: Sequence[Buffer] | None = None) -> Ran:
        """Return what the call computes in filled memory, with its arguments in place or with margins."""
        for _ in range(ATTEMPTS):
            found: Ran | None = None  # its memory is filled too
            args, kwargs = self.agreement.fresh()
            if guarded is not None:
                guarded.prepare(showing)
                args, kwargs = guarded.args, guarded.kwargs
            grown = self._fill()
            with self.pool.use() if self.pool is not None else nullcontext():
                found = self.agreement.run_with(self.candidate, f"{self.name!r}", args, kwargs)
            if self.pool is None or self.pool.growths == grown:
                break
        assert found is not None, "there is an attempt"
        return replace(found, inputs=self._changed_inputs(args, kwargs), changed=self.expected.changed)

    def _changed_inputs(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, torch.Tensor]:
        names = self.expected.changed
        return {name: each.clone() for name, each in tensors_of(inputs_of(args, kwargs)) if name in names}

    def _fill(self) -> int:
        """Fill the memory that the call allocates from; return how often it has grown."""
        if self.pool is None:
            poison_free_memory(self.expected.outputs, self.agreement.device)
            return 0
        self.pool.fill()
        return self.pool.growths

    def _differences(self, found: Ran) -> tuple[Difference, ...]:
        return self.agreement.compare(found, self.expected, poisoned=True)

    def _without_margins(self, guarded: Moved) -> Sequence[Difference]:
        """Return the differences with the arguments in place; raise WrongResult naming those it reads past."""
        in_place = self._differences(self._found(None))
        if not _all_pass(in_place):
            return in_place
        if not _all_pass(self._differences(self._found(guarded, showing=()))):
            self._remark("it is right only where its arguments lie")
            return in_place
        past = [
            each.leaves[0][0]
            for each in guarded.buffers
            if not _all_pass(self._differences(self._found(guarded, showing=(each,))))
        ]
        if past:
            raise WrongResult(
                f"{self.name} reads past {', '.join(past)}: its outputs depend on what lies around (margins=False "
                "leaves this out)"
            )
        return in_place

    def _remark(self, why: str) -> None:
        self.agreement.remarks.append(f"{self.name} was not tried with margins around its arguments: {why}")


def _all_pass(differences: Sequence[Difference]) -> bool:
    return all(each.passed for each in differences)
