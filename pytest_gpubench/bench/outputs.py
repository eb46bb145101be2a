"""Keep what the last timed call of each function returned, to check it too."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.output_memory import REFERENCE
from pytest_gpubench.bench.output_rules import differentiable, refuse_strange_tensors
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.bench.switches import readings, refuse_switching
from pytest_gpubench.correctness import Difference
from pytest_gpubench.correctness.leaves import inputs_of, map_leaves
from pytest_gpubench.correctness.memory import copied
from pytest_gpubench.correctness.pool import PoisonedPool
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.errors import InvalidResult, UnfairComparison
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.calls import BackwardPass, backward_of


@dataclass
class OutputRecorder:
    """Keep what the last timed call of each arm returned, to check it too.

    arms: the number of functions that share the memory of their outputs within a round, and get another in the next;
    0 leaves every function its own. With memory of its own a kernel was told apart from itself in 40 of 40 comparisons
    of 1024 x 1024 fp32 on an H200, and by 6 % at 1 us. Shared memory may hold the right output of another function:
    outputs are checked in a round of their own.
    """

    agreement: Agreement
    arms: int = 0
    names: list[str] = field(default_factory=list)
    """The arms."""
    last: dict[str, object] = field(default_factory=dict)
    given: dict[str, tuple[tuple[object, ...], dict[str, object]]] = field(default_factory=dict)
    """The arguments of those of the last calls that were not saved yet."""
    copying: bool = False
    """True to copy every output before the next call: torch.compile's CUDA graphs overwrite theirs."""
    calls: int = 0
    """Calls in the rounds so far."""
    latest: str = ""
    spare: object = None
    """The last output of the round before: it is kept, so that this round gets other memory."""
    passes: dict[str, BackwardPass] = field(default_factory=dict)
    """The backward passes by arm: what counts as their output is the gradient of each input."""
    pool: PoisonedPool | None = None
    """The memory that calls allocate from whose outputs are checked; None lets them have any."""
    reference: str = ""
    """The arm whose outputs are believed, and may lie anywhere."""
    checking: bool = False
    """True while the calls are made whose outputs are checked."""
    inputs: dict[str, Ran] = field(default_factory=dict)
    """The arguments that calls change, as the last call of each arm left them."""

    def watch(self, name: str, call: Call) -> Call:
        """Return the call, which keeps what it returns; all arms are given the same where `setup` is random."""
        self.names.append(name)
        if (backward := backward_of(call)) is not None:
            self.passes[name] = backward

        def prepare() -> Prepared:
            self._look_back()
            self._make_room(name)
            self._save()
            self.agreement.seed()
            prepared = call.prepare()
            if self.agreement.arguments.setup is not None:  # which may have set them
                self.agreement.switches = readings()
            self._refuse_late(self.agreement.memory.late if self.agreement.memory is not None else ())
            inputs = self._inputs_of_gradients(name)
            pool = self.pool if self.checking and name != self.reference else None
            if pool is not None:  # gradients of the last call are gone now
                pool.fill(in_use=any(other != self.reference for other in self.last))

            def keep(output: object) -> object:
                output = {each: leaf.grad for each, leaf in inputs.items()} if output is None and inputs else output
                backward = self.passes.get(name)  # a gradient may lie in what the forward run was given
                self.given[name] = (prepared.args, prepared.kwargs) if backward is None else backward.given
                self.last[name] = output
                return output

            def run() -> object:
                with pool.use() if pool is not None else nullcontext():
                    return keep(prepared.run())

            return replace(prepared, run=run, keep=keep)

        return replace(call, prepare=prepare)

    def _inputs_of_gradients(self, name: str) -> dict[str, torch.Tensor]:
        """Return the inputs that a backward pass gives a gradient, which they have not yet."""
        if name not in self.passes:
            return {}
        leaves = differentiable(inputs_of(*self.passes[name].given))
        found = {each: leaf for each, leaf in leaves if leaf.is_leaf}
        for leaf in found.values():
            leaf.grad = None
        return found

    def begin(self) -> None:
        """Note that the rounds begin, in which each arm is called twice."""
        self.calls = 0

    def _look_back(self) -> None:
        """Raise where the last call changed what it must not."""
        if self.checking and self.latest in self.last:
            self._refuse_shared(self.latest)
        if self.latest:
            refuse_switching(f"{self.latest!r}", self.agreement.switches)
        self.latest = ""

    def _refuse_late(self, names: Sequence[str]) -> None:
        """Raise UnfairComparison for arguments that a timed call was the first to change, unless it may."""
        if refused := [name for name in names if not self.agreement.may_overwrite(name)]:
            raise UnfairComparison(
                f"a timed call of {' or '.join(map(repr, self.names))} changed {', '.join(refused)}, which no call did "
                "when it was checked: let it do the same in every call, or give overwrites=True"
            )

    def _make_room(self, name: str) -> None:
        """Free the memory that the next output is to have: that of the call before it, or its own last one's."""
        self.latest = name
        if self.arms:
            if self.calls % (2 * self.arms) == 0:
                self.spare = next(iter(self.last.values()), None)
            self.calls += 1
            self._forget(*self.last)
        else:
            self._forget(name)

    def _forget(self, *names: str) -> None:
        for name in names:
            self.last.pop(name, None)
            self.given.pop(name, None)
            self.inputs.pop(name, None)

    def end(self) -> bool:
        """Note that the rounds are over: each arm gets memory of its own, and inputs may hold other values.

        Return whether calls have to be made again, as those of the rounds have not left all outputs in such memory.
        """
        self.copying = self.agreement.uses_cuda_graphs
        memory = self.agreement.memory
        changing = memory is not None and bool(memory.names or memory.changes_gradients)
        anew = bool(self.arms or self.pool or changing or self.copying)
        self.arms, self.spare, self.checking = 0, None, True
        for name in self.last:
            self._refuse_shared(name)
        if anew:
            self.forget_all()
        if memory is not None:
            memory.looks_at_random = False
        return anew

    def forget_all(self) -> None:
        """Drop the outputs of the last round, so that none lies in the pool when it is filled."""
        self._look_back()
        self._forget(*self.last)

    def _save(self) -> None:
        """Copy outputs whose memory is written to next: by CUDA graphs, by `setup`, by the putting back of inputs."""
        agreement, memory = self.agreement, self.agreement.memory
        upstream = agreement.arguments.upstream.given
        is_put_back = upstream or agreement.arguments.setup is not None or (memory is not None and memory.changing)
        for name in list(self.given):
            if self.copying or (is_put_back and self._in_given(name)):
                self.last[name] = map_leaves(copied, self.last[name])
            elif memory is not None and memory.changing_contents:
                self.last[name] = map_leaves(lambda leaf: leaf, self.last[name])  # in containers of its own
            if self.checking and memory is not None:
                changed = [each for each in memory.changed_arguments() if not agreement.may_overwrite(each)]
                self.inputs[name] = Ran(None, {}, memory.contents(changed), tuple(changed))
            del self.given[name]

    def _in_given(self, name: str) -> list[tuple[str, str]]:
        """Return the last outputs of an arm that lie in memory that all arms are given, as `in_given` does.

        A gradient may lie in that of an upstream gradient.
        """
        arguments = self.agreement.arguments
        args, kwargs = self.given.get(name, (arguments.args, arguments.kwargs))
        return self.agreement.returned.in_given(self.last[name], [*args, *arguments.upstream.given.values()], kwargs)

    def last_of(self, name: str, expected: Ran) -> Ran:
        """Return what is known of the last call of an arm; raise where a candidate's output cannot be compared.

        expected: the reference's results.
        """
        self._look_back()
        self._save()
        output, left = self.last[name], expected.left
        if name != self.reference:
            like = expected.gradients if name in self.passes else expected.outputs
            left = refuse_strange_tensors(name, output, like, left)
        found = replace(self.inputs.get(name, Ran(None, {})), left=left)
        if name in self.passes:  # no input may require a gradient
            return replace(found, gradients=output if isinstance(output, dict) else {})
        return replace(found, outputs=output)

    def check_as_given(self, names: Sequence[str], expected: Ran) -> None:
        """Raise WrongResult for a last call that is wrong, though the arm was right when it was checked."""
        found = {name: self.last_of(name, expected) for name in names}
        if (memory := self.agreement.memory) is not None:
            self._refuse_late([*memory.late, *memory.look()])
        for name in names:
            differences = self._differences(name, found[name], expected)
            first = None if name in self.passes else expected
            self.agreement.require(name, differences, " in a timed call, though right when checked", first)

    def _differences(self, name: str, found: Ran, expected: Ran) -> tuple[Difference, ...]:
        """Return how two calls differ: in gradients where those were timed, which golden has not."""
        if name not in self.passes:
            expected = replace(expected, gradients={})
        elif self.agreement.golden is not None:
            return ()
        else:
            expected = replace(expected, outputs=None)
        return self.agreement.compare(found, expected, poisoned=self.pool is not None)

    def _refuse_shared(self, name: str) -> None:
        """Raise UnfairComparison for an output that is memory of another arm's; note where it lies."""
        if name != self.reference:
            self.agreement.refuse_shared(name, self.last[name])
        if name == self.reference or len(self.names) > 2:  # else there is nobody whom that could help
            arm = REFERENCE if name == self.reference else name
            self.agreement.returned.add(arm, self.last[name], self._in_given(name))

    def check_other_values(self, found: Mapping[str, Ran], others: Ran, expected: Ran, way: Way) -> None:
        """Raise WrongResult for results that are wrong, InvalidResult for those of the values as given.

        found: the candidates' results for other values, varied in this way; others: the reference's; expected: those
        for the values as given.
        """
        for name, ran in found.items():
            differences = self._differences(name, ran, others)
            if not all(each.passed for each in differences):
                self.agreement.end_variation()  # golden computes from the inputs
                if all(each.passed for each in self._differences(name, ran, expected)):
                    raise InvalidResult(
                        f"{name} returns what it had computed before: when the values of its inputs changed, in the "
                        "same memory, its outputs did not; let it compute in every call"
                    )
            when = f" for other values ({way} inputs; vary=False leaves them out)"
            self.agreement.require(name, differences, when, None)
