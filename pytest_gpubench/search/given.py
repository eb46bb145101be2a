"""Intercept the examples of a test under @given, while hypothesis's deadline is off and full memory is handled."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from pytest_gpubench.errors import annotate
from pytest_gpubench.search.example import Example, example_of
from pytest_gpubench.search.out_of_memory import ContextLost, Examples, OnOutOfMemory
from pytest_gpubench.timing.compilations import counting_compilations


@contextmanager
def intercepting_examples(
    function: Any,
    begin: Callable[[Example], None],
    fixtures: Mapping[str, object],
    on_out_of_memory: OnOutOfMemory = "reject",
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Call `begin` with each example of a test under @given; do nothing for any other test.

    Lazy tensors in its arguments are made, hypothesis's usual deadline is off, and compilations are counted.

    fixtures: the test's arguments that hypothesis does not draw. on_out_of_memory: what to do with an example that does
    not fit into the GPU's memory; `warn` is called once, with a sentence about all that were rejected.
    """
    handle = getattr(function, "hypothesis", None)
    inner = getattr(handle, "inner_test", None)
    if handle is None or inner is None:
        yield
        return

    from pytest_gpubench.strategies.tensors import made_of, out_of_memory_policies  # imports hypothesis

    owner = getattr(function, "__self__", None)
    examples = Examples(on_out_of_memory)
    lost: ContextLost | None = None

    def is_drawn(name: str, value: object) -> bool:
        return name not in fixtures and (owner is None or value is not owner)

    @functools.wraps(inner)
    def intercepted(*args: Any, **kwargs: Any) -> object:
        __tracebackhide__ = True
        drawn = {name: value for name, value in kwargs.items() if is_drawn(name, value)}
        example = replace(example_of(drawn), compilations=compilations)
        compilations.watch()

        def call() -> object:
            __tracebackhide__ = True
            begin(example)
            return inner(*args, **{name: made_of(value) if name in drawn else value for name, value in kwargs.items()})

        return examples.run(example, call)

    with ExitStack() as stack:
        compilations = stack.enter_context(counting_compilations())
        stack.enter_context(_without_usual_deadline(function))
        handle.inner_test = intercepted
        out_of_memory_policies.append(examples.draw)
        try:
            yield
        except ContextLost as error:
            lost = error
        except Exception as error:
            if examples.rejected:
                annotate(error, f"gpu_bench: {examples.sentence}")
            raise
        finally:
            out_of_memory_policies.remove(examples.draw)
            handle.inner_test = inner
            if examples.rejected:
                warn(examples.sentence)
    if lost is not None:
        pasted = lost.example.pasted or lost.example.text
        annotate(lost.error, f"gpu_bench: the CUDA context broke in this example, not shrunk: @example({pasted})")
        lost.error.__suppress_context__ = True
        raise lost.error


@contextmanager
def _without_usual_deadline(function: Any) -> Iterator[None]:
    """Switch hypothesis's deadline off where it is the profile's: measuring takes longer, and compiling far longer."""
    import hypothesis

    name = "_hypothesis_internal_use_settings"
    holder = getattr(function, "__func__", function)
    asked = getattr(holder, name, None)
    if not isinstance(asked, hypothesis.settings) or asked.deadline != hypothesis.settings().deadline:
        yield
        return
    setattr(holder, name, hypothesis.settings(asked, deadline=None))
    try:
        yield
    finally:
        setattr(holder, name, asked)
