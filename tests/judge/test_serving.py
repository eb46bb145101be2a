"""Referees, and judging by request: ids, mistakes, backpressure and draining; the referees are a script."""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import BadRequest, MeasurementError
from pytest_gpubench.judge import serving
from pytest_gpubench.judge.serving import Referees, Server, listening
from tests.docs.pages import blocks

REFEREE = """
import json, os, sys, time
PRINTED = {"text": b"loading\\n", "nothing": b"\\n", "bytes": b"\\xff\\n", "number": b"1\\n", "dict": b"{}\\n"}
for line in sys.stdin:
    asked = json.loads(line)
    open("began", "w").close()
    while os.path.exists("wait"): time.sleep(0.01)
    with open("judged", "a") as file: file.write(asked["spec"] + " " + asked["candidate"] + "\\n")
    if asked["candidate"] == "ends.py": sys.exit(3)
    os.write(1, PRINTED.get(asked["candidate"].removeprefix("print ")[:-3], b""))
    found = {"status": asked["candidate"][:-3], "score": 0.0}
    print(json.dumps({"error": "the spec is bad"} if asked["spec"] == "bad.py" else found), flush=True)
"""
"""Gives each candidate the status that its name says; waits while a file is there."""
COMMAND = (sys.executable, "-S", "-c", REFEREE)
WAIT = Path("wait")
PASSES = '{"candidate": "pass.py", "spec": "own.py"}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let referees look for files in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def until(is_so: Callable[[], object]) -> None:
    """Wait until something is so, but no longer than ten seconds."""
    deadline_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture
def ended() -> list[str]:
    """Return the errors with which the server ended."""
    return []


@pytest.fixture
def server(tmp_path: Path, ended: list[str]) -> Iterator[Server]:
    """Return a server that answers in a thread."""

    def serve() -> None:
        try:
            found.serve()
        except MeasurementError as error:
            ended.append(str(error))

    with Referees(COMMAND, [None]) as one:
        found = Server(one, Path("own.py"), tmp_path / "socket")
        thread = threading.Thread(target=serve)
        thread.start()
        until(lambda: serving.is_answered(found.path))
        yield found
        WAIT.unlink(missing_ok=True)
        found.stop()
        thread.join(10)
        assert not thread.is_alive()
        assert not found.path.exists()


def connected(server: Server) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(10)
    try:
        end.connect(str(server.path))
    except OSError:
        end.close()
        raise
    return end


def ask(end: socket.socket, *lines: Any) -> list[Any]:
    """Send requests, and return as many answers."""
    end.sendall(
        "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines).encode(
            errors="surrogateescape"
        )
    )
    with end.makefile() as answers:
        return [json.loads(answers.readline()) for _ in lines]


def test_requests_are_answered(server: Server) -> None:
    """Each with its id, by its spec or the server's; a mistake costs one answer."""
    with connected(server) as one, connected(server) as other:
        found = ask(
            one,
            {"candidate": "pass.py", "id": 7},
            {"candidate": "fail.py", "spec": "other.py", "id": "x"},
            {"candidate": "pass.py", "spec": "bad.py", "id": [8]},
            "{nothing",
            '{"candidate": "\udcff"}',
            {"candidate": 3, "id": 9},
            {"candidates": "pass.py"},
            f'{{"candidate": "{"x" * 3 * serving.LONGEST_LINE}"}}',
            {"candidate": "wrong.py"},
        )
        texts = sorted((str(each["id"]), str(each.get("judgement", each.get("error")))[:20]) for each in found)
        mistakes = [(number, 'a request is {"candi') for number in ("None", "None", "None", "None", "9")]
        judged = [("7", "{'status': 'pass', 's"), ("None", "{'status': 'wrong', '"), ("x", "{'status': 'fail', 's")]
        assert texts == sorted(
            [*((number, text[:20]) for number, text in judged), ("[8]", "the spec is bad"), *mistakes]
        )
        assert ask(other, {"candidate": "pass.py"})[0]["judgement"]["score"] == 0
    judged_files = Path("judged").read_text().splitlines()
    assert judged_files == ["own.py pass.py", "other.py fail.py", "bad.py pass.py", "own.py wrong.py", "own.py pass.py"]


def test_the_client_of_the_page(server: Server) -> None:
    """Its twenty lines are all that it takes."""
    (text,) = (each.text for each in blocks("python") if each.file == "test_client.py")
    module: dict[str, Any] = {"__name__": "client"}
    exec(text, module)
    client = module["Client"](str(server.path))
    with closing(client.socket), closing(client.answers):
        assert client.judge("fail.py", spec="other.py")["status"] == "fail"
        with pytest.raises(ValueError, match="the spec is bad"):
            client.judge("pass.py", spec="bad.py")


def test_no_more_is_read_than_can_be_queued(server: Server) -> None:
    """Who sends more waits: one is judged, 16 wait, one is in the hand of the connection's thread."""
    WAIT.touch()
    with connected(server) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        end.settimeout(0.2)
        line = b'{"candidate": "pass.py", "id": "' + b"x" * 2**19 + b'"}\n'
        sent = 0
        with suppress(TimeoutError):
            while sent < 100:
                end.sendall(line)
                sent += 1
        assert serving.QUEUED <= sent < serving.QUEUED + 4


def test_requests_that_were_sent_are_answered_before_it_ends(server: Server) -> None:
    """A client that connects later finds nobody."""
    WAIT.touch()
    with connected(server) as end, end.makefile() as answers:
        end.sendall(b'{"candidate": "pass.py"}\n' * 3)
        until(lambda: server.referees._threads._work_queue.qsize() == 2)
        server.stop()
        WAIT.unlink()
        assert len(answers.readlines()) == 3
    with pytest.raises(OSError, match=r"refused|No such file"):
        connected(server)


def test_a_client_that_goes_or_never_reads_costs_only_itself(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SEND_S", 1)
    with connected(server) as gone:
        gone.sendall(b'{"candidate": "pass.py"}\n')
    with connected(server) as deaf, connected(server) as end:
        deaf.sendall((b'{"candidate": "pass.py", "id": "' + b"x" * 2**19 + b'"}\n') * 2)
        assert ask(end, {"candidate": "pass.py", "id": 1})[0]["id"] == 1


def test_a_request_for_which_no_referee_is_left_is_answered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(line: str, reply: object) -> None:
        raise MeasurementError("all have ended")

    monkeypatch.setattr(server.referees, "judge", judge)
    asked = {"candidate": "a.py", "spec": "own.py"}
    error = f"no referee is left, and {json.dumps(asked, separators=(',', ':'))} is not judged"
    with connected(server) as end:
        assert ask(end, {"candidate": "a.py", "id": 5}) == [{"id": 5, "error": error}]


def test_a_server_that_may_open_no_more_files_serves_those_that_it_has(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[object] = []

    def refuse(end: socket.socket, server: Server) -> None:
        refused.append(end)
        end.close()
        raise OSError(24, "Too many open files")

    def connect() -> object:
        connected(server).close()
        return refused

    with connected(server) as one:
        ask(one, {"candidate": "pass.py"})
        with monkeypatch.context() as patch:
            patch.setattr(serving, "Connection", refuse)
            until(connect)
            assert ask(one, {"candidate": "pass.py", "id": 1})[0]["id"] == 1
        with connected(server) as other:
            assert ask(other, {"candidate": "pass.py", "id": 2})[0]["id"] == 2


PRINTS = [f"print {each}" for each in ("text", "nothing", "bytes", "number", "dict")]


@pytest.mark.parametrize(
    ("name", "end"), [("ends", "exit status 3"), *((each, "SIGKILL after it wrote") for each in PRINTS)]
)
def test_a_server_ends_with_its_referee(server: Server, ended: list[str], name: str, end: str) -> None:
    """One that writes no judgement ends, as the next would be taken for it. What waits has an error, in any order."""
    with connected(server) as one, one.makefile() as answers:
        one.sendall(b'{"candidate": "%s.py", "id": 1}\n' % name.encode() + b'{"candidate": "pass.py"}\n' * 3)
        first, *others = sorted(map(json.loads, answers), key=lambda each: each["id"] is None)
    assert first["id"] == 1
    assert f"the referee on the only device ended with {end}" in first["error"]
    assert len(others) == 3
    assert {each["error"].partition(",")[0] for each in others} == {"no referee is left"}
    until(lambda: ended)
    assert f"ended with {end}" in ended[0]


def test_a_server_ends_with_a_referee_that_was_given_nothing(server: Server, ended: list[str]) -> None:
    """No candidate has to come for that."""
    server.referees._all[0].process.kill()
    until(lambda: ended)
    assert ended == ["the referee on the only device ended with SIGKILL"]


def test_connections_that_ended_are_forgotten(server: Server) -> None:
    """A server lives long."""
    for _ in range(20):
        with connected(server) as end:
            ask(end, {"candidate": "pass.py"})
    until(lambda: not server.connections)


def test_a_socket_is_the_users_own_and_only_one_server_has_it(tmp_path: Path) -> None:
    """That of a server which was killed is taken over; another file is left alone."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with (
            pytest.raises(BadRequest, match=r"--serve .*socket cannot be used \(Address already in use\)"),
            listening(path),
        ):
            pass
    path.write_text("precious")
    with pytest.raises(BadRequest, match="give another path"), listening(path):
        pass
    assert path.read_text() == "precious"


# referees without a server


def test_a_signal_to_the_servers_group_is_the_servers_to_handle() -> None:
    """Each referee leads a session of its own, which Ctrl-C in a terminal does not reach."""
    with Referees(COMMAND, [None, None]) as found:
        pids = [each.process.pid for each in found._all]
        assert [os.getsid(pid) for pid in pids] == pids


def test_what_is_judged_when_the_server_ends_is_not_answered() -> None:
    answers: list[str] = []
    WAIT.touch()
    with Referees(COMMAND, [None]) as found:
        found.judge(PASSES, answers.append)
        until(Path("began").exists)
    assert answers == []


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
        found.judge(PASSES, reply)
        until(lambda: found._failed)
        with pytest.raises(BrokenPipeError):
            found.judge(PASSES, reply)
        with pytest.raises(BrokenPipeError):
            found.finish()
