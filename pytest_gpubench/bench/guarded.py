"""A checked call in memory of ours: margins around its arguments, a pattern in all that it allocates."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness import Difference, compare_outputs, poison_free_memory
from pytest_gpubench.correctness.inputs import copies_of, with_gradients, with_values
from pytest_gpubench.correctness.leaves import inputs_of, tensors_of
from pytest_gpubench.correctness.margins import Moved, moved
from pytest_gpubench.correctness.pool import PoisonedPool, with_enough
from pytest_gpubench.errors import GpuBenchError, WrongResult
from pytest_gpubench.gpu.context import context_error
from pytest_gpubench.units import repr_of

HINT = "(margins=False leaves margins out)"


@dataclass(frozen=True)
class GuardedCall:
    """A candidate's second checked call: its arguments are copies with margins, what it allocates is filled before."""

    agreement: Agreement
    name: str
    candidate: Callable[..., object]
    expected: Ran
    pool: PoisonedPool | None
    """The memory that the call allocates from; None lets it have any."""

    @property
    def is_possible(self) -> bool:
        """True if there may be memory of ours to make it in."""
        given = self.agreement.arguments
        has_tensors = given.setup is not None or bool(tensors_of(inputs_of(given.args, given.kwargs)))
        return self.pool is not None or (self.agreement.margins and has_tensors)

    def check(self) -> Sequence[Difference] | None:
        """Return how its outputs differ; None, and a remark, where there is no room.

        Raises WrongResult for a wrong call, and where one reads or writes beyond a tensor, or leaves outputs unwritten.
        Another remark says so where its arguments cannot be moved.
        """
        try:
            found, guarded = self._found(None)
        except torch.OutOfMemoryError:
            self._remark("there is no room for copies of its arguments and outputs")
            return None
        except GpuBenchError:
            raise
        except Exception as error:
            if not self.agreement.margins:
                raise
            self._remark(f"at other addresses it raised {repr_of(error)}")
            found, guarded = self._found_in_place(), None
        differences: Sequence[Difference] = self._differences(found)
        if guarded is not None and (names := guarded.overwritten()):  # outputs in memory of arguments are gone now
            raise WrongResult(f"{self.name} writes past {', '.join(names)} {HINT}")
        if self.pool is not None and (names := self.pool.overwritten(found.outputs)):
            raise WrongResult(f"{self.name} writes past {', '.join(names)}")
        if guarded is not None and guarded.buffers and not _all_pass(differences):
            self._refuse_reading_past(guarded)
            differences = self._differences(self._found_in_place())
            if _all_pass(differences):
                self._remark("it is right only where its arguments lie")
        self.agreement.require(self.name, differences, "", self.expected)
        return differences

    def name_what_breaks(self, note: Callable[[str], object]) -> None:
        """Make calls that may break the GPU; note, before each, what it means if that does: empty for nothing.

        They are for a process of their own. Raises WrongResult where one shows what it does without breaking anything.
        """
        if self.is_possible:
            self.check()
        for name in [each.name for each in self._moved().buffers if _may_be_indices(each.leaves[0][1].dtype)]:
            beyond = f"{self.name} reads past {name}"
            note(f"{beyond}: as indices, what lies there breaks the GPU {HINT}")
            try:
                found = self._found((name,), at_random=True)[0]
                if not _all_pass(self._differences(found)):
                    raise WrongResult(f"{beyond}: its outputs depend on what lies there {HINT}")
            finally:
                if context_error() is None:
                    note("")

    def _refuse_reading_past(self, guarded: Moved) -> None:
        """Raise WrongResult naming the arguments whose margins decide what the call returns."""
        names = [buffer.name for buffer in guarded.buffers]
        around = self._found(())[0].results
        if not names or not self._is_found_again(around, ()):
            return
        past = [name for name in names if not self._is_found_again(around, (name,))]
        if past:
            raise WrongResult(f"{self.name} reads past {', '.join(past)}: its outputs depend on what lies there {HINT}")

    def _is_found_again(self, results: object, showing: Sequence[str]) -> bool:
        """Tell whether the call computes the same with such margins."""
        found = self._found(showing)[0].results
        return _all_pass(compare_outputs(found, results, self.agreement.tolerance, briefly=True))

    def _moved(self) -> Moved:
        args, kwargs = self.agreement.fresh()
        return moved(args, kwargs, self.agreement.device)

    def _found_in_place(self) -> Ran:
        return self._found_with(self.agreement.fresh)

    def _found(self, showing: Sequence[str] | None, at_random: bool = False) -> tuple[Ran, Moved | None]:
        """Return what the call computes in filled memory, and its arguments with margins; None where it has none.

        showing, at_random: as in `Moved.prepare`.
        """
        if not self.agreement.margins:
            return self._found_in_place(), None
        latest: list[Moved] = []

        def arguments() -> tuple[tuple[object, ...], dict[str, object]]:
            latest[:] = [self._moved()]
            latest[0].prepare(showing, at_random)
            return latest[0].args, latest[0].kwargs

        return self._found_with(arguments), latest[0]

    def _found_with(self, arguments: Callable[[], tuple[tuple[object, ...], dict[str, object]]]) -> Ran:
        """Return what the call computes with such arguments, in memory that was all filled before."""

        def run() -> Ran:
            args, kwargs = arguments()
            if self.pool is None:
                poison_free_memory(self.expected.outputs, self.agreement.device)
            else:
                self.pool.fill()
            with self.pool.use() if self.pool is not None else nullcontext():
                found = self.agreement.run_with(self.candidate, f"{self.name!r}", args, kwargs)
            left = with_gradients(with_values(inputs_of(args, kwargs)))
            return replace(found, inputs=copies_of(left, self.expected.changed))

        return replace(with_enough(self.pool, run), changed=self.expected.changed)

    def _differences(self, found: Ran) -> tuple[Difference, ...]:
        return self.agreement.compare(found, self.expected, poisoned=True)

    def _remark(self, why: str) -> None:
        self.agreement.remarks.append(f"{self.name} was not tried with margins around its arguments: {why}")


def _may_be_indices(dtype: torch.dtype) -> bool:
    return not (dtype.is_complex or dtype.is_floating_point or dtype is torch.bool)


def _all_pass(differences: Sequence[Difference]) -> bool:
    return all(each.passed for each in differences)
