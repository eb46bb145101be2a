"""The timing functions of other tools, redirected: what they are given to time is handed to a function of ours.

A redirected function keeps its identity and has other code, so `from triton.testing import do_bench` that ran before
is redirected too.
"""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial, reduce, wraps
from inspect import CO_VARARGS
from traceback import walk_stack
from types import FrameType, FunctionType
from typing import Any

from torch import is_tensor

from pytest_gpubench.engine import drop_gradients, statistic
from pytest_gpubench.units import name_of, shortened

AnyFunction = Callable[..., Any]
TUNERS = ("triton", "torch", "pytest_gpubench")
"""Packages whose own calls of a timer are an autotuner's."""
OUTER_TUNERS = ("triton.runtime.autotuner", "torch._inductor")
"""Modules beneath whose functions any call of a timer is an autotuner's: it may be given one of another package."""
MOST_LETTERS = 120
TIMER_ARGUMENTS = ("warmup", "rep", "quantiles", "return_mode", "grad_to_none")
"""Arguments that say how to time, and not what."""


@dataclass(frozen=True)
class Timed:
    """A call that a timer was given to time."""

    function: AnyFunction
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    setup: Callable[[], object] | None = None
    label: str = ""


TimedHandler = Callable[[Timed], Sequence[float]]
"""Takes what was given to a timer; returns samples in microseconds, at least one."""
_handlers: list[TimedHandler] = []
"""The handlers of the open contexts; empty while a handler runs, so that autotuners time by themselves."""


@contextmanager
def adopting(handler: TimedHandler) -> Iterator[None]:
    """Hand what is timed by a known timer to the handler, unless an autotuner or the handler times it."""
    with ExitStack() as redirections:
        for path, adapter in ADAPTERS.items():
            if (function := imported(path)) is not None:
                redirections.enter_context(redirecting(function, partial(_adopt, adapter)))
        _handlers.append(handler)
        redirections.callback(_handlers.pop)
        yield


@contextmanager
def redirecting(function: FunctionType, replacement: Callable[..., Any]) -> Iterator[None]:
    """Call `replacement(original, frame of the caller, *args, **kwargs)` where the function is called."""
    code = function.__code__
    original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    key = f"{function.__module__}.{function.__qualname__}"
    outer = _replacements.get(key)
    _replacements[key] = partial(replacement, original if outer is None else outer.args[-1])
    function.__code__ = _forward.__code__.replace(
        co_name=code.co_name,
        co_consts=tuple(key if each == _KEY else each for each in _forward.__code__.co_consts),
    )
    try:
        yield
    finally:
        function.__code__ = code
        if outer is None:
            del _replacements[key]
        else:
            _replacements[key] = outer


_replacements: dict[str, "partial[Any]"] = {}
_KEY = "the name of the redirected function"


def _forward(*args, **kwargs):  # type: ignore[no-untyped-def] # its code runs with the globals of another module
    __tracebackhide__ = True
    from sys import _getframe

    from pytest_gpubench.adopt.timers import _replacements

    return _replacements["the name of the redirected function"](_getframe(1), *args, **kwargs)


def _adopt(adapter: Callable[..., Any], original: AnyFunction, caller: FrameType, *args: Any, **kwargs: Any) -> Any:
    """Call a timer's adapter with the open handler; the timer itself where an autotuner calls it."""
    first, *outer = (str(frame.f_globals.get("__name__", "")) for frame, _ in walk_stack(caller))
    is_of_a_tuner = first.partition(".")[0] in TUNERS or any(name.startswith(OUTER_TUNERS) for name in outer)
    if not _handlers or is_of_a_tuner:
        return original(*args, **kwargs)

    def handle(timed: Timed) -> Sequence[float]:
        handlers = _handlers[:]
        _handlers.clear()
        try:
            return handlers[-1](timed)
        finally:
            _handlers[:] = handlers

    return adapter(partial(original, *args, **kwargs), handle, caller, *args, **kwargs)


def _do_bench(
    original: AnyFunction,
    handle: TimedHandler,
    caller: FrameType,
    fn: AnyFunction,
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **others: Any,
) -> Any:
    function, setup = fn, None
    if grad_to_none is not None:

        @wraps(fn)
        def function() -> object:  # it returns what can be compared where `fn` returns nothing
            result = fn()
            return [each.grad for each in grad_to_none] if result is None else result

        setup = partial(drop_gradients, grad_to_none)
    samples_us = handle(Timed(function, setup=setup, label=_name_at_call(fn, caller)))
    return statistic(samples_us, quantiles, return_mode)


def _do_bench_graph(
    original: AnyFunction, handle: TimedHandler, caller: FrameType, fn: AnyFunction, *args: Any, **kwargs: Any
) -> Any:
    return _do_bench(original, handle, caller, fn, 0, *args, **kwargs)  # which has no warm-up


def _torch_timer(
    original: AnyFunction, handle: TimedHandler, caller: FrameType, timer: Any, *args: Any, **kwargs: Any
) -> Any:
    from torch.utils.benchmark import Language, Measurement

    if timer._language is not Language.PYTHON:
        return _not_taken_over("a torch.utils.benchmark.Timer of C++ code runs no function of Python's", original)
    spec, namespace = timer._task_spec, dict(timer._globals)
    exec(compile(spec.setup, "<setup of a Timer>", "exec"), namespace)
    code = compile(spec.stmt, "<stmt of a Timer>", "exec")
    label = " ".join(filter(None, (spec.label, spec.sub_label, spec.description))) or spec.stmt
    called = namespace.get(spec.stmt.removesuffix("()")) if spec.stmt.endswith("()") else None  # `name()`
    function = called if callable(called) else lambda: exec(code, namespace)
    samples_us = handle(Timed(function, label=shortened(" ".join(label.split()), MOST_LETTERS)))
    return Measurement(1, [us / 1e6 for us in samples_us], spec)


def _benchmark(
    original: AnyFunction,
    handle: TimedHandler,
    caller: FrameType,
    fixture: Any,
    function: AnyFunction,
    *args: Any,
    **kwargs: Any,
) -> Any:
    handle(Timed(function, args, kwargs, label=name_of(function)))
    return function(*args, **kwargs)


def _benchmark_pedantic(
    original: AnyFunction,
    handle: TimedHandler,
    caller: FrameType,
    fixture: Any,
    target: AnyFunction,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    setup: Callable[[], Any] | None = None,
    teardown: AnyFunction | None = None,
    **others: Any,
) -> Any:
    if teardown is not None:
        return _not_taken_over("benchmark.pedantic(teardown=...) has to run after each call", original)
    handle(Timed(target, args, kwargs or {}, setup, name_of(target)))
    args, kwargs = (setup and setup()) or (args, kwargs or {})
    return target(*args, **kwargs)


def _not_taken_over(reason: str, original: AnyFunction) -> Any:
    warnings.warn(f"gpu_bench measures nothing here: {reason}", stacklevel=6)
    return original()


ADAPTERS: Mapping[str, Callable[..., Any]] = {
    "triton.testing:do_bench": _do_bench,
    "triton.testing:do_bench_proton": _do_bench,
    "triton.testing:do_bench_cudagraph": _do_bench_graph,
    "triton.testing:do_bench_cudagraph_proton": _do_bench_graph,
    "torch.utils.benchmark:Timer.timeit": _torch_timer,
    "torch.utils.benchmark:Timer.blocked_autorange": _torch_timer,
    "torch.utils.benchmark:Timer.adaptive_autorange": _torch_timer,
    "pytest_benchmark.fixture:BenchmarkFixture._raw": _benchmark,
    "pytest_benchmark.fixture:BenchmarkFixture._raw_pedantic": _benchmark_pedantic,
}
"""The known timers, and the function that says what each was given."""


def imported(path: str) -> Any:
    """Return what `module:name.name` stands for; None where it is missing."""
    module, _, names = path.partition(":")
    package = module.partition(".")[0]
    if package not in sys.modules and (package == "pytest_benchmark" or importlib.util.find_spec(package) is None):
        return None
    try:
        return reduce(getattr, names.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):  # of another version
        return None


# what a timed call is known by


def _name_at_call(function: AnyFunction, caller: FrameType) -> str:
    """Return a name with the plain arguments of the function that calls a timer, and of its own caller.

    `run_speed_benchmark(x=1024, provider=liger, mode=forward)`: a timed function is mostly a lambda, and then the
    name is that of the function which calls the timer. A text that both functions are given is there once, and False
    nowhere.
    """
    own, where = name_of(function), caller.f_code.co_name
    name = where if "<" in own and "<" not in where else own
    frames = [frame for frame in (caller.f_back, caller) if frame is not None]
    found: dict[str, object] = {}
    for frame in frames:
        texts = [value for value in found.values() if isinstance(value, str)]
        found |= {key: value for key, value in _plain_arguments(frame).items() if value not in texts}
    told = {key: value for key, value in found.items() if key not in TIMER_ARGUMENTS and value is not False}
    arguments = ", ".join(f"{key}={value}" for key, value in told.items())
    return shortened(" ".join((f"{name}({arguments})" if arguments else name).split()), MOST_LETTERS)


def _plain_arguments(frame: FrameType) -> dict[str, object]:
    """Return the arguments of a frame that are numbers, texts, functions or tensors; those in a dataclass too.

    Frames of pytest and of this package have none.
    """
    if str(frame.f_globals.get("__name__", "")).startswith(("_pytest", "pytest", "pluggy")):
        return {}
    plain: dict[str, object] = {}
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)]:
        value = frame.f_locals.get(name)
        if is_dataclass(value) and not isinstance(value, type):
            parts = {each.name: getattr(value, each.name, None) for each in fields(value)}
            plain |= {part: each for part, each in parts.items() if isinstance(each, (str, int, float))}
        elif isinstance(value, (str, int, float)):
            plain[name] = value
        elif tensors := [each for each in (value if isinstance(value, (list, tuple)) else (value,)) if is_tensor(each)]:
            kinds = [str(each.dtype).removeprefix("torch.") for each in tensors]  # float16[64x64]
            plain[name] = " ".join(
                f"{kind}[{'x'.join(map(str, each.shape))}]" for kind, each in zip(kinds, tensors, strict=True)
            )
        elif callable(value) and "<" not in name_of(value):
            plain[name] = name_of(value)
    return plain
