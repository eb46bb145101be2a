"""Referees that end, by themselves or with the server: what they were given and what waits; they are a script."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpubench import MeasurementError
from pytest_gpubench.judge.referees import Referees

REFEREE = """
import os, sys, time
for line in sys.stdin:
    open("began", "w").close()
    while os.path.exists("wait"): time.sleep(0.01)
    if line == "ends.py\\n": sys.exit(3)
    print(line.strip(), "is right", flush=True)
"""
"""Waits while a file is there."""
COMMAND = (sys.executable, "-S", "-c", REFEREE)
BEGAN, WAIT = Path("began"), Path("wait")
ENDED = "the referee on the only device ended with exit status 3"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let referees look for the file in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def until(is_so: Callable[[], object]) -> None:
    """Wait until something is so, but no longer than ten seconds."""
    deadline_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_signal_to_the_servers_group_is_the_servers_to_handle() -> None:
    """Each referee leads a session of its own, which Ctrl-C in a terminal does not reach."""
    with Referees(COMMAND, [None, None]) as found:
        pids = [each.process.pid for each in found._all]
        assert [os.getsid(pid) for pid in pids] == pids


def test_what_is_judged_when_the_server_ends_is_not_answered() -> None:
    answers: list[str] = []
    WAIT.touch()
    with Referees(COMMAND, [None]) as found:
        found.judge("a.py", answers.append)
        until(BEGAN.exists)
    assert answers == []


def test_what_waits_when_the_last_referee_ends_is_answered_with_an_error() -> None:
    """Also where they were the last candidates; a server's are in `test_serving`."""
    answers: list[str] = []
    WAIT.touch()
    with Referees(COMMAND, [None]) as found:
        for name in ("ends.py", "a.py", "b.py"):
            found.judge(name, answers.append)
        WAIT.unlink()
        with pytest.raises(MeasurementError, match=f"^{ENDED}"):
            found.finish()
    assert [json.loads(each)["error"] for each in answers] == [
        f"{ENDED}, and ends.py is not judged",
        "no referee is left, and a.py is not judged",
        "no referee is left, and b.py is not judged",
    ]


@pytest.mark.parametrize("gpus", [["0"], ["0", "1"]])
def test_referees_that_end_before_they_have_a_candidate_judge_none(gpus: list[str]) -> None:
    """As where CUDA is missing: the sentence of each is the error."""
    with Referees([sys.executable, "-S", "-c", "raise SystemExit(3)"], gpus) as found:
        until(lambda: not found.are_alive)
        with pytest.raises(MeasurementError) as caught:
            found.judge("a.py", print)
    assert str(caught.value) == "; ".join(f"the referee on {gpu} ended with exit status 3" for gpu in gpus)


def test_an_error_of_a_reply_is_raised() -> None:
    """As where standard output is closed: the next candidates would be judged for nobody."""

    def reply(line: str) -> None:
        raise BrokenPipeError

    with Referees(COMMAND, [None]) as found:
        found.judge("a.py", reply)
        until(lambda: found._failed)
        with pytest.raises(BrokenPipeError):
            found.judge("b.py", reply)
        with pytest.raises(BrokenPipeError):
            found.finish()
