"""Checks on a producer: it runs before each rep, and has to leave what calls are given as it is."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pytest_gpubench.bench.arguments import input_memory
from pytest_gpubench.bench.switches import readings, refuse_switching
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.timing.calls import refuse_untimeable

if TYPE_CHECKING:
    from pytest_gpubench.bench.request import Request

FIRST_CALLS = 3
"""torch.compile with CUDA graphs compiles in the first, warms up in the second and captures in the third."""


def check_producer(request: "Request[Any]") -> None:
    """Run the producer of a request, if it has one, before anything is timed.

    Raises BadRequest where it changes an input, which is put back, or runs no code; UnfairComparison where it changes
    a switch of torch.
    """
    producer = request.settings.cache
    if not isinstance(producer, Producer):
        return
    args, kwargs = cast("tuple[Sequence[object], Mapping[str, object] | None]", request.given)
    memory = input_memory([call.function for call in request.calls.values()], tuple(args), dict(kwargs or {}))
    memory.restore()
    switches = readings()
    try:
        for _ in range(FIRST_CALLS):
            refuse_untimeable(producer.run(request.device.synchronize), str(producer))
        refuse_switching(str(producer), switches)
    finally:
        names = memory.look()
        memory.put_back()
    if names:
        raise BadRequest(
            f"{producer} changes {', '.join(names)}, so no call would be given what the test gives it: let it write "
            "what they hold already, as after one call of it, or write elsewhere"
        )
