"""Compare two stored calls in a process of its own: what one of them breaks there, a run does not lose."""

import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from pytest_gpubench.child_process import how_ended, inner_environment, run_logged
from pytest_gpubench.errors import GpuBenchError, first_line
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.replay.comparison import is_same
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.replayed import Values
from pytest_gpubench.replay.stored import NO_ROOM, StoredPair
from pytest_gpubench.results.files import UNREADABLE
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.replays import Replay

PAIR, ANSWER, LOG = "pair", "answer", "log.txt"
"""Files in the folder of one comparison."""
Answer = Replay | str
"""The comparison of the calls, or the reason why there is none."""
START_S = 60.0
"""The longest time to import torch, to start CUDA and its profiler, and to compile what flushes the cache."""
COMPARISONS = 2
"""So often is what is slower timed, at most."""


def compare_isolated(
    pair: StoredPair, say: Callable[[str], None], inputs: Callable[[], Values | None] = lambda: None
) -> Replay:
    """Return how a stored call compares with an older one.

    inputs: returns the values of the inputs, where the calls have to be launched. Raises NotReplayable with the reason
    why they cannot be compared, or how the process ended without an answer.
    """
    if is_same(pair.old, pair.new):
        return Replay(None)
    if isinstance(pair.settings.cache, Producer):
        raise NotReplayable(f"it is replayed in a process of its own, which cannot call {pair.settings.cache}")
    pair = replace(pair, inputs=inputs())
    say(f"replaying {pair.new.data.label} in a process of its own")
    with tempfile.TemporaryDirectory(prefix="gpubench-replay-") as name:
        folder, timeout_s = Path(name), START_S + COMPARISONS * max(pair.plan.max_time_s, pair.plan.held_up_time_s)
        (folder / PAIR).write_bytes(pickle.dumps(pair))
        command = [sys.executable, "-m", __name__, name]
        start = pair.settings.started_in
        status = run_logged(command, start, inner_environment(), folder / LOG, timeout_s=timeout_s)
        try:
            answer: Answer = msgspec.msgpack.decode((folder / ANSWER).read_bytes(), type=Answer)
        except (OSError, *UNREADABLE):
            ended = how_ended(status, timeout_s)
            raise NotReplayable(f"the process that replayed it gave no answer ({ended})") from None
    if isinstance(answer, str):
        raise NotReplayable(printable(answer))
    return replace(answer, notes=tuple(map(printable, answer.notes)))


def answer_in(folder: Path) -> None:
    """Compare the calls of a folder, and write the answer there."""
    pair: StoredPair = pickle.loads((folder / PAIR).read_bytes())
    answer: Answer
    try:
        answer = pair.compare(find_device("cuda"), lambda text: None)
    except GpuBenchError as error:
        answer = first_line(error)
    except torch.OutOfMemoryError:
        answer = NO_ROOM
    (folder / ANSWER).write_bytes(msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    answer_in(Path(sys.argv[1]))
