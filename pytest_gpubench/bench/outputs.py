"""Keep what the last timed call of each function returned, to check it too."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.output_rules import differentiable, lent_memory, refuse_strange_tensors
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.bench.side_effects import Conduct
from pytest_gpubench.correctness import Difference, aliases, compare_outputs
from pytest_gpubench.correctness.leaves import flatten, inputs_of, map_leaves
from pytest_gpubench.correctness.memory import overlaps
from pytest_gpubench.correctness.pool import PoisonedPool
from pytest_gpubench.errors import InvalidResult, UnfairComparison
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.calls import BackwardPass, backward_of

T = TypeVar("T")
POOL_ATTEMPTS = 4
"""The most rounds of calls until none has to ask the GPU for more memory."""


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
    conduct: Conduct | None = None
    """The checks between calls; None for calls that are not timed."""
    refuses_sharing: bool = False
    """True to refuse, after each call, an output that is memory of another arm's."""
    last: dict[str, object] = field(default_factory=dict)
    saved: set[str] = field(default_factory=set)
    anew: bool = False
    """True if the outputs that are checked are not those of the rounds."""
    given: dict[str, tuple[tuple[object, ...], dict[str, object]]] = field(default_factory=dict)
    """The arguments of the last timed call, if they are known."""
    copying: bool = False
    """True to copy every output before the next call: torch.compile's CUDA graphs overwrite theirs."""
    calls: int = 0
    """Calls in the rounds so far."""
    latest: str = ""
    spare: object = None
    """The last output of the round before: it is kept, so that this round gets other memory."""
    passes: dict[str, BackwardPass] = field(default_factory=dict)
    """The backward passes by arm: what counts as their output is the gradient of each input."""
    earlier: dict[str, object] = field(default_factory=dict)
    """Their outputs before the upstream gradients changed."""
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
        if (backward := backward_of(call)) is not None:
            self.passes[name] = backward

        def prepare() -> Prepared:
            self._look_back()
            self._make_room(name)
            self._save()
            self.agreement.seed()
            prepared = call.prepare()
            if self.conduct is not None:
                self.conduct.before_call()
            inputs = self._inputs_of_gradients(name)
            pool = self.pool if self.checking and name != self.reference else None
            if pool is not None:  # gradients of the last call are gone now
                pool.fill(in_use=any(other != self.reference for other in self.last))

            def keep(output: object) -> object:
                output = {each: leaf.grad for each, leaf in inputs.items()} if output is None and inputs else output
                self.last[name], self.given[name] = output, (prepared.args, prepared.kwargs)
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
        if self.refuses_sharing and self.latest:
            self._refuse_shared(self.latest, [name for name in self.last if name != self.latest])
        if self.conduct is not None and self.latest:
            self.conduct.after_call(self.latest)

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
            self.saved.discard(name)
            self.inputs.pop(name, None)

    def end(self) -> None:
        """Note that the rounds are over: each arm gets memory of its own, and inputs may hold other values."""
        self.copying = self.agreement.uses_cuda_graphs
        changing = self.agreement.memory is not None and bool(self.agreement.memory.changing)
        self.anew = bool(self.arms or self.pool or changing or self.copying)
        self.arms, self.spare, self.checking = 0, None, True
        if self.agreement.memory is not None:
            self.agreement.memory.looks_at_random = False

    def keep_all(self, take_again: Callable[[], object]) -> None:
        """Have calls made again where those of the rounds have not left all outputs in memory of their own."""
        if self.anew:
            self.forget_all()
            self.take(take_again)

    def forget_all(self) -> None:
        """Drop the outputs of the last round, so that none lies in the pool when it is filled."""
        self._look_back()
        self._forget(*self.last)
        self.latest = ""

    def take(self, take_again: Callable[[], T]) -> T:
        """Have every call made, until all of them have found enough memory in the pool."""
        for _ in range(POOL_ATTEMPTS):
            grown = self.pool.growths if self.pool is not None else 0
            taken = take_again()
            if self.pool is None or self.pool.growths == grown:
                break
        return taken

    def _save(self) -> None:
        """Copy outputs whose memory is written to next: by CUDA graphs, by `setup`, by the putting back of inputs."""
        memory = self.agreement.memory
        for name in self.last.keys() - self.saved:
            if self.copying or self._is_written_to_next(name):
                self.last[name] = map_leaves(_copied, self.last[name])
            if self.checking and memory is not None and memory.changing:
                self.last[name] = self.agreement.lasting(self.last[name])
                self.inputs[name] = Ran(None, {}, memory.contents(), memory.changed_arguments())
            self.saved.add(name)
            self.given.pop(name, None)

    def _is_written_to_next(self, name: str) -> bool:
        arguments = self.agreement.arguments
        upstream = list(arguments.upstream.given.values())  # a gradient may lie in it, and all arms share it
        args, kwargs = self.given[name] if arguments.setup is not None else ((), {})
        return bool((upstream or arguments.setup) and aliases(self.last[name], [*args, *upstream], kwargs))

    def check(self, reference: str, names: Sequence[str]) -> None:
        """Raise WrongResult if a candidate was right when it was checked, and wrong when it was timed."""
        self._look_back()
        self._save()
        if self.conduct is not None:
            self.conduct.look_at_inputs()
        if not self.has_results(reference):
            return
        for name in names:
            self._refuse_shared(name, [reference, *(other for other in names if other != name)], reference)
            differences = self._differences(name, reference)
            self.agreement.require(name, differences, " in a timed call, though right when checked")

    def has_results(self, name: str) -> bool:
        """Tell whether an arm's last call left anything: a backward run may have no input that requires a gradient."""
        return self.last[name] is not None or (name in self.inputs and bool(self.inputs[name].changed))

    def _ran(self, name: str) -> Ran:
        """Return what is known of the last call of an arm."""
        inputs = self.inputs.get(name, Ran(None, {}))
        if name in self.passes:
            return replace(inputs, gradients=_as_gradients(self.last[name]))
        return replace(inputs, outputs=self.last[name])

    def _differences(self, name: str, reference: str) -> tuple[Difference, ...]:
        """Return how the last outputs of two arms differ; gradients where those were timed, which golden has not."""
        refuse_strange_tensors(name, self.last[name], self.last[reference])
        if name in self.passes and self.agreement.golden is not None:
            return ()
        return self.agreement.compare(self._ran(name), self._ran(reference), poisoned=self.pool is not None)

    def _refuse_shared(self, name: str, others: Sequence[str], reference: str = "") -> None:
        """Raise UnfairComparison for an output that is memory of another arm's, though not of the inputs."""
        if self.agreement.uses_cuda_graphs:  # their outputs share a pool, and may lie where those of another lay
            return
        arguments = self.agreement.arguments
        for other in others:
            if shared := overlaps(flatten(self.last[name]), flatten(self.last[other])):
                args, kwargs = self.given.get(other, (arguments.args, arguments.kwargs))
                if not aliases(self.last[other], args, kwargs):
                    whose = "the reference's" if other == reference else f"{other!r}, its"
                    raise UnfairComparison(lent_memory(f"{name!r}", *shared[0], whose))

    def change_upstream(self) -> None:
        """Give every backward pass other upstream gradients, the same for all arms."""
        self.earlier = {name: map_leaves(_copied, self.last[name]) for name in self.passes}
        self.agreement.arguments.upstream.redraw(self.agreement.other_seed)

    def check_other_values(self, reference: str, names: Sequence[str], before: Ran) -> None:
        """Raise InvalidResult for a candidate that returns what it did before its inputs' values changed."""
        self._look_back()
        self._save()
        for name in names:
            differences = self._differences(name, reference)
            if all(each.passed for each in differences):
                continue
            found, earlier = self._ran(name).results, self.earlier.get(name, before.results)
            stays = compare_outputs(
                self.last[name] if name in self.passes else found, earlier, self.agreement.tolerance
            )
            if all(each.passed for each in stays):
                raise InvalidResult(
                    f"{name} returns what it had computed before: when the values of its inputs changed, in the same "
                    "memory, its outputs did not; let it compute in every call"
                )
            way = self.agreement.variation.way
            self.agreement.require(name, differences, f" for other values ({way} inputs; vary=False leaves them out)")


def _as_gradients(output: object) -> dict[str, torch.Tensor | None]:
    """Return the gradients that were kept as the output of a backward run."""
    assert isinstance(output, dict), "a backward run keeps gradients"
    return output


def _copied(leaf: object) -> object:
    """Return a copy of a tensor; anything else as it is."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
