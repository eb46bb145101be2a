"""The check that a candidate's outputs agree with its reference's, before and after it is timed."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

import torch

from pytest_gpubench.bench.arguments import Overwrites, VariedArguments, covers
from pytest_gpubench.bench.candidates import Function
from pytest_gpubench.bench.output_memory import REFERENCE, OutputMemory
from pytest_gpubench.bench.output_rules import refuse_opaque, refuse_strange_tensors, unrepeatable, work_left
from pytest_gpubench.bench.ran import Ran, difference_of_changed, input_gradients
from pytest_gpubench.bench.switches import Readings, readings, refuse_switching
from pytest_gpubench.bench.unread import rerun_where_results_were_there
from pytest_gpubench.correctness import (
    Difference,
    Tolerance,
    Variation,
    check_golden,
    compare_outputs,
    flatten,
    float64_by_default,
    poison_free_memory,
    widened,
)
from pytest_gpubench.correctness.constant_outputs import extents_of
from pytest_gpubench.correctness.inputs import InputMemory, by_name, with_gradients
from pytest_gpubench.correctness.leaves import Leaves, inputs_of, map_leaves, tensors_of
from pytest_gpubench.correctness.memory import overlaps
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.errors import BadRequest, GpuBenchError, UnfairComparison, WrongResult, annotate, annotating
from pytest_gpubench.replay.cuda_graphs import used_cuda_graphs
from pytest_gpubench.timing.calls import GRADIENT_SEED, Backward, mark_step, refuse_untimeable
from pytest_gpubench.units import name_of

T = TypeVar("T")
Golden = Literal["float64"] | Function | None
ROUNDING_HINT = 'if only rounding differs, compare with golden="float64", or give rtol= and atol='

GOLDEN_NOTE = (
    'gpu_bench: raised by the reference in the run of golden="float64": its arguments are float64 there, and the '
    "weights that it holds stay as they are; give these in args= too, or a function as golden="
)


@dataclass
class Agreement:
    """The rules by which outputs are compared."""

    reference: Function
    arguments: VariedArguments
    tolerance: Tolerance
    golden: Golden
    golden_factor: float | None
    grads: bool
    """True if gradients have to be compared; where `backward` is timed they are, if any input requires one."""
    backward: Backward
    device: torch.device
    remarks: list[str] = field(default_factory=list)
    """Remarks on the functions."""
    disproved: set[str] = field(default_factory=set)
    """Remarks that do not hold, which another example of a search may have led to."""
    other_seed: int = field(default_factory=lambda: secrets.randbits(31))
    """The seed of the random numbers that calls draw while values are varied; it cannot be known beforehand."""
    overwrites: Overwrites = False
    """The arguments that a candidate may change, whatever the reference does to them."""
    uses_cuda_graphs: bool = False
    """True if the call of an arm was seen to use a CUDA graph of torch.compile."""
    margins: bool = True
    """True to look for reads and writes beyond the arguments."""

    returned: OutputMemory = field(init=False)
    """The memory of what each arm returned in calls that are checked."""
    returned_gradients: set[str] = field(default_factory=set, init=False)
    """The names of the gradients that the reference returns."""
    switches: Readings = field(default_factory=readings, init=False)
    """The switches of torch, as each call has to leave them."""

    def __post_init__(self) -> None:
        self.returned = OutputMemory(self.memory)
        check_golden(self.golden, self.golden_factor)

    @property
    def variation(self) -> Variation:
        """The variation of the arguments' values."""
        return self.arguments.variation

    @property
    def memory(self) -> InputMemory | None:
        """The memory of the arguments, if each call is given the same."""
        return self.arguments.memory

    def run_reference(self) -> Ran:
        """Return copies of the reference's results: later calls of it may write over them.

        Raises BadRequest if it neither returns anything nor changes an argument.
        """
        memory, run = self.memory or self.arguments.setup, partial(self._run, self.reference)
        assert memory is not None, "arguments are kept, or made"
        expected = rerun_where_results_were_there(run, run(), memory, self.tolerance)
        if not expected.changed and all(leaf is None for _, leaf in flatten(expected.outputs)):
            why = "" if self.memory is not None else ", as with setup= changed arguments are not compared"
            raise BadRequest(
                "there is nothing to compare: the reference returns no output and changes no argument; let it return "
                f"its results{why}"
            )
        if self.grads and not expected.gradients:
            raise BadRequest(
                "grads=True compares gradients of the inputs, but none requires one, or the reference's outputs have "
                "none: set requires_grad on an input, and detach no output"
            )
        return expected

    def refuse_flat(self, expected: Ran) -> None:
        """Raise UnfairComparison if one number would pass for every output; add a remark if it would for some."""
        if self.golden is not None:
            return
        results = {"out": expected.outputs, **{name: expected.inputs[name] for name in expected.changed}}
        extents = [each for name, leaf in results.items() for each in extents_of(leaf, self.tolerance, name)]
        flat = [each.sentence for each in extents if each.is_flat]
        if flat and all(each.is_flat or (each.is_constant and each.allows_zeros) for each in extents):
            raise UnfairComparison(
                f'a candidate that computes nothing would pass: {"; ".join(flat)} (or golden="float64")'
            )
        self.remarks.extend(f"a candidate that computes nothing would pass there: {sentence}" for sentence in flat)

    def check(self, name: str, candidate: Function, expected: Ran, when: str = "") -> tuple[Difference, ...]:
        """Run a candidate; return how each of its outputs differs, or raise WrongResult."""
        differences = self.compare(self.found(name, candidate, expected), expected, poisoned=True)
        self.require(name, differences, when, expected)
        return differences

    def found(self, name: str, candidate: Function, expected: Ran) -> Ran:
        """Run a candidate; return what it computed, or raise for outputs that are no plain tensors of their own."""
        found = self._run(candidate, name, expected)
        refuse_strange_tensors(name, found.outputs, expected.outputs, expected.left)
        return found

    def require(self, name: str, differences: Sequence[Difference], when: str, expected: Ran | None) -> None:
        """Raise WrongResult naming every output that differs by more than is allowed.

        expected: what the reference computed; None where only a timed call computes such. It has to compute that again.
        """
        failed = [difference for difference in differences if not difference.passed]
        if not failed:
            return
        with suppress(torch.OutOfMemoryError):  # where there is no room for the results of one more call
            self._refuse_unrepeatable_reference(expected, f"{name} changed what it uses ({failed[0].line})")
        hint = [ROUNDING_HINT] if all(difference.may_be_rounding for difference in failed) else []
        raise WrongResult(f"{name} is wrong{when}: " + "; ".join([*(each.sentence for each in failed), *hint]))

    def _refuse_unrepeatable_reference(self, expected: Ran | None, otherwise: str) -> None:
        """Raise UnfairComparison for a reference that computes something else when it is called again.

        otherwise: another possible cause.
        """
        first = expected or self._run(self.reference).copied()
        differences = [each for each in self.compare(self._run(self.reference), first) if not each.passed]
        if not differences:
            return
        raise unrepeatable(f"the reference {name_of(self.reference)!r}", differences[0], first.outputs, otherwise)

    def compare(self, found: Ran, expected: Ran, poisoned: bool = False) -> tuple[Difference, ...]:
        """Return the differences of outputs and gradients."""
        if self.golden is not None:  # its call may be given the memory that the outputs lie in
            found = found.copied()
        golden = self._run_golden(expected)
        differences = self._differences(found.outputs, expected.outputs, golden and golden.outputs, poisoned)
        self.remarks[:] = dict.fromkeys([*self.remarks, *filter(None, (each.doubt for each in differences))])
        differences += self._compare_changed(found, expected, golden)
        return differences + tuple(
            replace(difference, name=f"grad {name}")
            for name, other in expected.gradients.items()
            for difference in self._differences(found.gradients.get(name), other, golden and golden.gradients.get(name))
        )

    def _differences(
        self, found: object, expected: object, golden: object, poisoned: bool = False
    ) -> tuple[Difference, ...]:
        factor = None if golden is None else self.golden_factor
        return compare_outputs(found, expected, self.tolerance, golden=golden, golden_factor=factor, poisoned=poisoned)

    def _compare_changed(self, found: Ran, expected: Ran, golden: Ran | None) -> tuple[Difference, ...]:
        """Return the differences of the arguments that either call changed, but for those that may be changed."""
        names = [name for name in dict.fromkeys([*expected.changed, *found.changed]) if not self.may_overwrite(name)]
        if not names or self.memory is None:
            return ()
        self.memory.put_back()
        given = by_name(self.memory.given_leaves())
        mine, theirs = {**given, **found.inputs}, {**given, **expected.inputs}
        return tuple(
            difference_of_changed(difference, name, found, expected)
            for name in names
            if not expected.lets_add(name, given)
            for difference in self._differences(mine.get(name), theirs.get(name), golden and golden.inputs.get(name))
        )

    def may_overwrite(self, name: str) -> bool:
        """Tell whether a candidate may change an argument.

        What functions hold is their own. A gradient that a backward run leaves, or the reference returns, is compared
        as such.
        """
        if not name.startswith(("args[", "kwargs[")) or self.overwrites is True:
            return True
        of_backward = dict(self._gradients_left()) if self.backward != "forward" else ()
        allowed = [*(self.overwrites or ()), *self.returned_gradients, *of_backward]
        return name in allowed or any(covers(each, name) for each in allowed)  # there may be thousands

    def _gradients_left(self) -> Leaves:
        """Return the gradients that the last call left, by name."""
        return [] if self.memory is None else [(name, leaf.grad) for name, leaf, *_ in self.memory.gradients]

    def _run_golden(self, expected: Ran) -> Ran | None:
        """Run golden; it has gradients, and leaves changed arguments, where it is "float64", as its inputs are too."""
        if self.golden is None:
            return None
        args, kwargs = self.fresh()
        if self.golden != "float64":
            outputs = self.golden(*args, **kwargs)
            refuse_switching("golden=", self.switches)
            self.look("golden=")
            if all(leaf is None for _, leaf in flatten(outputs)):
                raise BadRequest("golden= returns no output: let it return what the reference does, more precisely")
            return Ran(outputs, {})
        args, kwargs = widened(args, kwargs)
        with float64_by_default(), annotating(lambda: GOLDEN_NOTE):
            outputs = self.reference(*args, **kwargs)
            # an output of a timed call may be a copy, which has no gradient
            gradients = self._gradients(outputs, args, kwargs, expected.outputs) if expected.gradients else {}
        changed = by_name(with_gradients(inputs_of(args, kwargs))) if expected.changed else {}
        return Ran(outputs, gradients, {name: changed[name] for name in expected.changed if name in changed})

    def look(self, who: str) -> tuple[str, ...]:
        """Return the names of the arguments that the last call changed; raise UnfairComparison for one it moved."""
        if self.memory is None or self.variation.way != "as given":
            return ()
        self.memory.look()
        if moved := self.memory.displaced():
            raise UnfairComparison(
                f"{who} changed where {', '.join(moved)} lies, its shape, strides or requires_grad: the next would "
                "get others; give setup=, which makes new arguments for each call"
            )
        return self.memory.changed_arguments()

    def _run(self, function: Function, name: str = "", expected: Ran | None = None) -> Ran:
        """Run a function with the arguments as given; a candidate, which has a name, on a CPU in poisoned memory."""
        who = f"{name!r}" if name else f"the reference {name_of(function)!r}"
        args, kwargs = self.fresh()
        if expected is not None:
            poison_free_memory(expected.outputs, self.device)
        ran = self.run_with(function, who, args, kwargs)
        changed = self.look(who)
        in_given = self.returned.in_given(ran.outputs, args, kwargs)
        shared = [each for each in in_given if each[1]]
        if expected is None:
            self.returned.add(REFERENCE, ran.outputs, in_given)
            left = self._gradients_left()
            parts = {name for _, name in overlaps(flatten(ran.outputs), left)}
            self.returned_gradients = {each[0] for each in left if parts & {name for name, _ in tensors_of([each])}}
            ran = replace(ran, left=frozenset([*work_left(ran.outputs), *work_left(ran.gradients)]))
        else:
            self._refuse_shared_memory(name, ran.outputs, expected, shared, changed)
        ran = replace(ran, in_given=frozenset(dict(in_given)), in_arguments=frozenset(dict(shared)))
        if self.memory is None:
            return ran
        return replace(ran, inputs=self.memory.contents({*self.memory.names, *changed}), changed=changed)

    def run_with(self, function: Function, who: str, args: tuple[object, ...], kwargs: dict[str, object]) -> Ran:
        """Return what a function does with arguments."""
        mark_step()
        try:
            outputs = function(*args, **kwargs)
        except GpuBenchError:
            raise
        except Exception as error:
            annotate(error, f"gpu_bench: raised by {who}, whose outputs were to be compared")
            raise
        refuse_untimeable(outputs, name_of(function))
        refuse_opaque(who, outputs, [] if self.memory is None else inputs_of(args, kwargs))
        refuse_switching(who, self.switches)
        outputs = map_leaves(lambda leaf: leaf, outputs)  # a container that is an argument is put back
        ran = Ran(outputs, self._gradients(outputs, args, kwargs, outputs))
        self.uses_cuda_graphs |= used_cuda_graphs()
        return ran

    def _refuse_shared_memory(
        self, name: str, outputs: object, expected: Ran, shared: Sequence[tuple[str, str]], changed: Sequence[str]
    ) -> None:
        """Raise UnfairComparison for an output that is memory of an input, unlike the reference's, or of the latter.

        shared: each output that is memory of an input, and that; changed: the inputs that the call overwrites, whose
        memory it may return: whether it may do that is another question.
        """
        read = [each for each in shared if each[1] not in changed and each[0] not in expected.in_arguments]
        if self.arguments.setup is None and read:
            output, argument = read[0]
            raise UnfairComparison(
                f"{output} of {name!r} is memory of {argument}, the reference's is its own: return a copy"
            )
        self.refuse_shared(name, outputs)

    def refuse_shared(self, name: str, outputs: object) -> None:
        """Raise UnfairComparison for an output of a candidate that is memory of another arm's."""
        if not self.uses_cuda_graphs:  # their outputs share a pool, and may lie where those of another lay
            self.returned.refuse_shared(name, outputs)

    def _gradients(
        self, outputs: object, args: Sequence[object], kwargs: Mapping[str, object], like: object
    ) -> dict[str, torch.Tensor | None]:
        """Return the gradients of the inputs, where they are to be compared; like: as in `input_gradients`."""
        if not self.grads and self.backward == "forward":
            return {}
        return input_gradients(outputs, args, kwargs, like)

    def vary(self, way: Way) -> None:
        """Give every call other values in the same memory, and backward runs other upstream gradients.

        Until `end_variation`.
        """
        self.end_variation()
        if self.backward != "forward":
            self.arguments.upstream.put_back(self.other_seed)
        if way == "as given":
            return
        if self.arguments.setup is not None:
            self.variation.way = way
            return
        self.variation.begin(way, self.fresh())
        if self.memory is not None:
            self.memory.begin_varied()

    def end_variation(self) -> None:
        """Give every call the values as given again."""
        if self.backward != "forward":
            self.arguments.upstream.put_back(GRADIENT_SEED)
        if self.variation.way == "as given":
            return
        if self.memory is not None:
            self.memory.put_back()
        self.variation.end()
        if self.memory is not None:
            self.memory.end_varied()

    def seed(self) -> None:
        """Let the next call and its `setup` draw the same random numbers as the last, as for dropout."""
        number = GRADIENT_SEED if self.variation.way == "as given" else self.other_seed
        torch.default_generator.manual_seed(number)
        if self.device.type == "cuda":
            generator = torch.cuda.default_generators[self.device.index or 0]
            if generator.initial_seed() != number or generator.get_offset():  # else it would take 45 us for nothing
                generator.manual_seed(number)

    @contextmanager
    def leaving_state(self) -> Iterator[None]:
        """Leave torch's generators, and arguments that are given once, as they were."""
        self.switches = readings()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            try:
                yield
            except BaseException:
                with suppress(RuntimeError):  # of a broken GPU
                    self._leave_arguments()
                raise
            self._leave_arguments()

    def fresh(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return arguments, the same each time where `setup` draws them at random."""
        self.seed()
        made = self.arguments.fresh()
        if self.arguments.setup is not None:  # which may have set them
            self.switches = readings()
        return made

    def _leave_arguments(self) -> None:
        if self.memory is not None:
            self.memory.end_replacing()
        if self.arguments.setup is not None:
            self.arguments.setup.put_back()
