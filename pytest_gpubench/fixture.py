"""The object that a test gets: `gpu_bench`."""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Literal, cast

from pytest_gpubench.bench.agreement import Agreement, Golden
from pytest_gpubench.bench.arguments import Overwrites, VariedArguments, kept_arguments
from pytest_gpubench.bench.batch_invariance import Batched
from pytest_gpubench.bench.candidates import name_functions
from pytest_gpubench.bench.comparison import CompareRequest, judging_timer
from pytest_gpubench.bench.phases import PhasesRequest, phase_calls
from pytest_gpubench.bench.plan import call_settings, plan_of
from pytest_gpubench.bench.ranks import RanksRequest
from pytest_gpubench.bench.request import MeasureRequest, Request, T
from pytest_gpubench.bounds import argument, checked_count, duration_s, optional_count, true_or_false
from pytest_gpubench.correctness import Tolerance
from pytest_gpubench.errors import BadRequest, is_ours
from pytest_gpubench.gpu.device import Device, required_device
from pytest_gpubench.limits import memory_size
from pytest_gpubench.public_call import answer
from pytest_gpubench.results.model import Comparison, Timing
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.settings import MARKER_SETTINGS, ROWS, CallSettings, Resolver, Settings, flag_name
from pytest_gpubench.spelling import Spelled, hint
from pytest_gpubench.timing.calls import Backward, make_arguments, make_call
from pytest_gpubench.timing.ranks import PROGRESS_TIMEOUT_S, Collective, Job, Rank, Ranks
from pytest_gpubench.timing.regions import region
from pytest_gpubench.verdict.limits import NAMES, Limits

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from pytest_gpubench.bench.recorded import RecordedComparison
    from pytest_gpubench.judge.judgement import Judgement
    from pytest_gpubench.record import RecordedCall


class GpuBench(Spelled):
    """Measure the GPU time of functions, and judge it by the limits of the test's `perf` marker.

    `gpu_bench(fn, *args, **kwargs)` measures a call; `measure` takes everything else. Each result is a `Timing`.
    """

    __slots__ = ("__weakref__", "_current", "_progress", "_resolver")

    def __init__(
        self,
        current: Callable[[], CurrentTest | None],
        resolver: Resolver,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._current = current
        self._resolver = resolver
        self._progress = progress

    def __call__(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Timing:
        """Measure `function(*args, **kwargs)` as the settings say; see `measure`."""
        try:
            return self.measure(function, args, kwargs)
        except TypeError as error:
            ours = [f"{name}=..." for name in kwargs if name in keywords_of("measure") and name in str(error)]
            if not ours:
                raise
            theirs = any(not is_ours(frame) for frame, _ in walk_tb(error.__traceback__))
            raise BadRequest(
                f"{error}: gpu_bench(f, ...) gives all its keywords to f; write gpu_bench.measure(f, args, "
                f"{', '.join(ours)})"
            ) from (error if theirs else None)

    if not TYPE_CHECKING:  # which would let every name be set

        def __setattr__(self, name: str, value: object) -> None:
            if name not in GpuBench.__slots__:
                raise AttributeError(f"gpu_bench.{name} cannot be set{hint('gpu_bench', name, ())}")
            super().__setattr__(name, value)

    @property
    def device(self) -> "torch.device":
        """The device that is measured; tensors belong there."""
        return self._device(self._test()).torch_device

    @property
    def extra_info(self) -> dict[str, Any]:
        """A dict for the test's own numbers and texts, saved with its results."""
        return self._test().extra_info

    def measure(
        self,
        function: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        setup: Callable[[], object] | None = None,
        backward: Backward = "forward",
        label: str | None = None,
        overwrites: Overwrites = False,
        bytes: int | None = None,
        flops: int | None = None,
        **chosen: "Unpack[CallSettings]",
    ) -> Timing:
        """Measure `function(*args, **kwargs)` and judge it by the limits of the test's `perf` marker.

        Every rep is given the same: what a call writes into its arguments is put back, untimed, before the next.
        setup: called untimed before each rep; returns the rep's arguments (a tuple, a dict, a tuple of both) or None.
        backward: "forward" times the call, "backward" its gradient (forward run untimed before each rep), "both" the
        two together; all tensors that require a gradient take part.
        label: the name in the table; None is the function's own.
        overwrites: True, or the names of arguments, if it is meant that calls change them: then no flag says so.
        bytes: the least that the call moves; a time too short for this GPU's memory raises InvalidResult. None takes
        the size of inputs and outputs, where a limit needs it; 0 switches the check off.
        flops: the operations of the call, two for a multiply-add; None takes torch's count, where a limit needs it.
        Untimed calls before the warm-up find what a limit needs and the test does not give.
        chosen: reps, warmup, cache, timer, precision, budget_s (seconds): settings of this call. Options on the command
        line overrule them; None leaves the test's setting.

        Raises LimitBroken where a limit is broken, BadRequest for invalid arguments, MeasurementError where there is no
        valid number; the function's own errors pass through.
        """
        rules, work = self._rules("measure", chosen, backward), _checked_work(bytes, flops)

        def request(args: Sequence[object], kwargs: Mapping[str, object] | None) -> MeasureRequest:
            call = make_call(function, kept_arguments([function], args, kwargs, setup, overwrites), backward, label)
            return MeasureRequest(*rules, (args, kwargs), {call.label: call}, *work)

        return self._answer(replace(request(args, kwargs), remake=None if setup else request))

    def compare(
        self,
        candidate: Callable[..., object] | Mapping[str, Callable[..., object]],
        reference: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        setup: Callable[[], object] | None = None,
        backward: Backward = "forward",
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        golden: Golden = None,
        golden_factor: float | None = None,
        grads: bool = False,
        interleave: bool = True,
        names: Sequence[str] | None = None,
        overwrites: Overwrites = False,
        margins: bool = True,
        vary: bool = True,
        batch_invariant: Batched = False,
        bytes: int | None = None,
        flops: int | None = None,
        timers: Sequence[Literal["profiler", "events", "graph"]] | None = None,
        **chosen: "Unpack[CallSettings]",
    ) -> Comparison:
        """Check a candidate against a reference, time both in turn, and judge the candidate by the test's limits.

        candidate: a function, or several by name; each is checked and judged against the reference.
        setup, backward, chosen: as in `measure`; reps counts the calls of each function, and setup draws the same
        random numbers for each call.
        rtol, atol, equal_nan: as in torch.testing.assert_close; None are its tolerances for the dtype.
        golden: more precise outputs: "float64" runs the reference in float64, a function computes them. Both arms are
        judged by their errors against golden; the candidate may have golden_factor times the reference's (None: 2).
        grads: True compares the gradients of the inputs too, under the same upstream gradient; with a backward they
        always are, for the inputs that require one.
        interleave: False times one arm after the other, for collectives.
        names: of candidate and reference, for the table and for limits; of the reference alone where a mapping names
        the candidates. None takes the functions' own.
        overwrites: True, or names of arguments (`args[0]`), if candidates may change them. Without it, calls have to
        leave in their arguments what the reference does.
        margins: False leaves out the check for reads and writes beyond the arguments.
        vary: False leaves out the check that changes the values of the inputs in the same memory.
        batch_invariant: True if each row of the outputs must be, bit by bit, what a batch of that row alone gives: rows
        along the first axis of the first tensor, or of the arguments that are named (`args[0]`).
        bytes: as in `measure`; None takes the size of inputs and outputs less the L2 cache, unless the reference is
        faster than memory can move that.
        flops: as in `measure`, the same for every arm; None counts those of the reference.
        timers: the first one judges. A second one adds the `overhead` of each arm: the host's time to launch it, the
        gaps between its kernels, and the time of a replayed CUDA graph of it.

        Raises WrongResult where an output differs, UnfairComparison where arms were not given the same, InvalidResult
        for a time that cannot be true, and what `measure` raises.
        """
        flags = {"equal_nan": equal_nan, "grads": grads, "interleave": interleave, "margins": margins, "vary": vary}
        for name, value in flags.items():
            argument(f"compare({name}={{}})", value, true_or_false)
        chosen["timer"] = judging_timer(chosen.get("timer"), timers)
        rules, work = self._rules("compare", chosen, backward), _checked_work(bytes, flops)
        tolerance, device = Tolerance(rtol, atol, equal_nan), rules[1].torch_device
        overheads = len(timers or ()) > 1

        def request(args: Sequence[object], kwargs: Mapping[str, object] | None, vary: bool = False) -> CompareRequest:
            functions = name_functions(candidate, reference, names)
            arguments = VariedArguments.of(kept_arguments([*functions.values()], args, kwargs, setup, overwrites))
            calls = {name: make_call(each, arguments, backward, label=name) for name, each in functions.items()}
            rule = tolerance, golden, golden_factor, grads, backward, device
            agreement = Agreement(reference, arguments, *rule, overwrites=overwrites, margins=margins)
            given = args, kwargs
            return CompareRequest(*rules, given, calls, agreement, interleave, vary, *work, overheads, batch_invariant)

        return self._answer(replace(request(args, kwargs, vary), remake=None if setup else request))

    def compare_recorded(
        self,
        candidate: Callable[..., object],
        reference: Callable[..., object],
        calls: "Sequence[RecordedCall]",
        make: "Callable[[RecordedCall], Sequence[object]]",
        **options: Any,
    ) -> "RecordedComparison":
        """Compare for each of the calls that a program made, and judge the total time of all of them.

        calls: as `pytest_gpubench.record.read` returns them; each counts as often as it was made.
        make: called with one, returns the arguments of candidate and reference.
        options: as in `compare`, without args, kwargs and setup. Limits hold for each shape, `min_weighted_speedup` for
        the total. All shapes share the test's alpha.

        Raises what `compare` raises.
        """
        from pytest_gpubench.bench.recorded import request_of

        compare = Requests(self._current, self._resolver).compare
        return self._answer(request_of(cast(Any, compare), candidate, reference, calls, make, options))

    def judge(
        self,
        candidate: "Path | str",
        reference: Callable[..., object],
        inputs: Callable[[int], Any],
        *,
        tolerance: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
        memory: int | str = "16GiB",
        trust_claims: bool = False,
        **chosen: "Unpack[CallSettings]",
    ) -> "Judgement":
        """Judge a candidate's file, in a process of its own, by the limits of the test's `perf` marker.

        candidate: a Python file that defines a function of the reference's name, or `candidate`.
        inputs: called with a new seed each time; returns a tuple of inputs on the device, always of the same sizes.
        tolerance: keywords of `compare`: rtol, atol, equal_nan, golden, golden_factor.
        timeout_s: the longest time to load, and to judge, in each process.
        memory: the most that it may take, on host and GPU each.
        trust_claims: whether the candidate's own process times a call that cannot be replayed; else nobody does.
        chosen: as in `measure`; only budget_s counts, for the reps.

        Raises LimitBroken where a limit is broken, WrongResult for wrong outputs, InvalidResult for times that cannot
        be true, MeasurementError for a candidate that crashes, hangs or cannot be loaded.
        """
        from pytest_gpubench.judge.judging import candidate_path
        from pytest_gpubench.judge.request import JudgeRequest, spec_of

        path, rules = candidate_path(candidate), self._rules("judge", chosen)
        longest_s = argument("judge(timeout_s={})", timeout_s, duration_s)
        memory_bytes = argument("judge(memory={})", memory, memory_size)
        trusts = argument("judge(trust_claims={})", trust_claims, true_or_false)
        spec = spec_of(reference, inputs, tolerance, trusts)
        calls = {path.stem: make_call(reference, label=path.stem)}
        return self._answer(JudgeRequest(*rules, (path,), calls, path, spec, longest_s, memory_bytes))

    def region(self, name: str) -> region:
        """Name a part of the measured call: `with gpu_bench.region("forward"):`; see `pytest_gpubench.region`."""
        return region(name)

    def phases(
        self,
        phases: Mapping[str, Callable[..., object]],
        whole: Callable[..., object] | None = None,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        setup: Callable[[], object] | None = None,
        elements: int | None = None,
        **chosen: "Unpack[CallSettings]",
    ) -> Phases:
        """Measure each phase by itself, in turn with the whole; the test's limits hold for each of them.

        phases: functions by name, all called with the same arguments.
        whole: does all phases in one call; None leaves their sum uncompared.
        elements: the elements that a call processes, for elements per second.
        setup, chosen: as in `measure`.

        Raises what `measure` raises.
        """
        rules = self._rules("phases", chosen)
        calls, label = phase_calls(phases, whole, make_arguments(args, kwargs, setup))
        number = optional_count("phases(elements={})", elements)
        return self._answer(PhasesRequest(*rules, (args, kwargs), calls, label, number))

    def ranks(
        self,
        function: Callable[..., object],
        world_size: int = 2,
        *,
        setup: Callable[[Rank], object] | None = None,
        check: Callable[[Rank, Any], object] | None = None,
        label: str | None = None,
        collective: Collective | None = None,
        message_bytes: int | None = None,
        timeout_s: float = PROGRESS_TIMEOUT_S,
        **chosen: "Unpack[CallSettings]",
    ) -> Ranks:
        """Measure a function on several GPUs at once, a process each; the slowest rank is a rep's time.

        The test has to hold as many GPUs: `perf(gpus=2)`. Each process imports function, setup and check.
        setup: called with the rank before each call, untimed; returns its arguments. check: called with the rank and
        what the first call returned; raises where that is wrong.
        collective, message_bytes: for the bus bandwidth, as nccl-tests define it: "all_reduce", and so on.
        timeout_s: all ranks are ended when one of them makes no progress for so long.
        chosen: as in `measure`.

        Raises what `measure` raises, and MeasurementError for a rank that died or hangs.
        """
        rules, gpus = self._rules("ranks", chosen), self._test().gpus
        plan, size = plan_of(rules[0]), checked_count("ranks(world_size={})", world_size, least=2)
        sent = optional_count("ranks(message_bytes={})", message_bytes)
        longest_s = argument("ranks(timeout_s={})", timeout_s, duration_s)
        job = Job(function, plan, setup, check, label, collective, sent, timeout_s=longest_s)
        calls = {job.name: make_call(function, label=job.name)}
        return self._answer(RanksRequest(*rules, (size, sent), calls, job, size, gpus))

    def _rules(
        self, method: str, chosen: CallSettings, backward: Backward = "forward"
    ) -> tuple[Settings, Device, Limits]:
        """Return the settings, device and limits of a call; raise BadRequest for invalid settings."""
        test = self._test()
        if unknown := chosen.keys() - CallSettings.__optional_keys__:
            name = min(unknown)
            if name in NAMES or name in MARKER_SETTINGS:
                meant = f": put it into the test's mark, @pytest.mark.perf({name}=...)"
            elif name in ROWS:
                meant = f": it is for the whole run, {flag_name(name)}"
            else:
                meant = hint("keyword", name, keywords_of(method), "=")
            raise TypeError(f"gpu_bench.{method}() takes no {name}={meant}")
        given = {name: value for name, value in chosen.items() if value is not None}
        settings = self._resolver.override(test.settings, given, f"{method}({{}}=...)")
        device = self._device(test)
        settings, warnings = call_settings(settings, device, backward)
        test.warn(*warnings)
        return settings, device, test.limits

    def _answer(self, request: Request[T]) -> T:
        return answer(self._test(), request, self._progress)

    def _test(self) -> CurrentTest:
        """Return the running test; raise BadRequest where a measurement would belong to none."""
        test = self._current()
        if test is None:
            raise BadRequest("gpu_bench was used outside of a test: a measurement belongs to the test that makes it")
        if test.phase == "teardown":
            raise BadRequest("gpu_bench was used in a teardown, after its test was judged: measure in the test itself")
        if threading.current_thread() in test.earlier_threads:
            raise BadRequest(
                "gpu_bench was used in a thread that ran before this test began, as one that an earlier test left: "
                "start threads in the test that measures, and join them"
            )
        if test.wider_scopes:
            raise BadRequest(
                f"gpu_bench was used by the fixture {test.wider_scopes[0]}, which is set up for more than one test: "
                "measure in the test, or in a function-scoped fixture; make shared inputs on the device that the "
                "fixture gpu_bench_device returns"
            )
        return test

    def _device(self, test: CurrentTest) -> Device:
        if test.device is None:
            test.device = required_device(test.settings.device, test.settings.require_gpu)
        return test.device


class Requests(GpuBench):
    """Return the request of each call instead of its result."""

    __slots__ = ()

    def _answer(self, request: Request[T]) -> T:
        return cast(T, request)


def keywords_of(method: str) -> list[str]:
    """Return the keywords that only a call of `gpu_bench` itself takes."""
    parameters = inspect.signature(getattr(GpuBench, method)).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY] + sorted(CallSettings.__optional_keys__)


def _checked_work(moved: object, flops: object) -> tuple[int | None, int | None]:
    """Return the bytes and operations that are given for a call; raise BadRequest for invalid ones."""
    return optional_count("bytes={}", moved, least=0), optional_count("flops={}", flops)
