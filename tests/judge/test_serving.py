"""Judging by request: order, ids, mistakes, backpressure and draining; judging itself is faked."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import BadRequest, Judgement
from pytest_gpubench.judge import serving
from pytest_gpubench.judge.serving import Server, listening
from tests.docs.pages import blocks


class FakeJudge:
    """Gives each candidate the status that its name says; waits for a permission if it is to."""

    def __init__(self) -> None:
        self.may_judge = threading.Event()
        self.may_judge.set()
        self.judged: list[tuple[str | None, str]] = []
        self.spec: str | None = None

    def use_spec(self, path: str | None) -> None:
        if path == "bad.py":
            raise BadRequest("the spec is bad")
        self.spec = path

    def __call__(self, path: Path) -> Judgement:
        assert self.may_judge.wait(10)
        self.judged.append((self.spec, path.name))
        status: Any = path.stem
        return Judgement(status=status, reason="", candidate=str(path), spec="", spec_digest="")


@pytest.fixture
def judge() -> FakeJudge:
    return FakeJudge()


@pytest.fixture
def server(judge: FakeJudge, tmp_path: Path) -> Iterator[Server]:
    """Return a server that answers in a thread."""
    server = Server(judge, tmp_path / "socket")  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve)
    thread.start()
    while not serving.is_answered(server.path):
        time.sleep(0.01)
    yield server
    judge.may_judge.set()
    server.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert not server.path.exists()


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
    end.sendall("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines).encode())
    with end.makefile() as answers:
        return [json.loads(answers.readline()) for _ in lines]


def test_requests_are_answered_in_order(server: Server, judge: FakeJudge) -> None:
    """Each with its id, by its spec or the server's; a mistake costs one answer."""
    with connected(server) as one, connected(server) as other:
        found = ask(
            one,
            {"candidate": "pass.py", "id": 7},
            {"candidate": "fail.py", "spec": "other.py", "id": "x"},
            {"candidate": "pass.py", "spec": "bad.py", "id": 8},
            "{nothing",
            {"candidate": 3},
            {"candidates": "pass.py"},
            {"candidate": "wrong.py"},
        )
        assert [each["id"] for each in found] == [7, "x", 8, None, None, None, None]
        statuses = [each["judgement"]["status"] if "judgement" in each else each["error"][:20] for each in found]
        assert statuses == ["pass", "fail", "the spec is bad", *3 * ['a request is {"candi'], "wrong"]
        assert ask(other, {"candidate": "pass.py"})[0]["judgement"]["score"] == 0
    assert judge.judged == [(None, "pass.py"), ("other.py", "fail.py"), (None, "wrong.py"), (None, "pass.py")]


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


def test_no_more_is_read_than_can_be_queued(server: Server, judge: FakeJudge) -> None:
    """Who sends more waits: one is judged, 16 wait, one is in the hand of the connection's thread."""
    judge.may_judge.clear()
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


def test_requests_that_were_sent_are_answered_before_it_ends(server: Server, judge: FakeJudge) -> None:
    """A client that connects later finds nobody."""
    judge.may_judge.clear()
    with connected(server) as end, end.makefile() as answers:
        end.sendall(b'{"candidate": "pass.py"}\n' * 3)
        while server.queue.qsize() < 2:
            pass
        server.stop()
        judge.may_judge.set()
        assert len(answers.readlines()) == 3
    with pytest.raises(OSError, match=r"refused|No such file"):
        connected(server)


def test_a_client_that_goes_or_never_reads_costs_only_itself(
    server: Server, judge: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SEND_S", 1)
    with connected(server) as gone:
        gone.sendall(b'{"candidate": "pass.py"}\n')
    with connected(server) as deaf, connected(server) as end:
        deaf.sendall((b'{"candidate": "pass.py", "id": "' + b"x" * 2**19 + b'"}\n') * 2)
        assert ask(end, {"candidate": "pass.py", "id": 1})[0]["id"] == 1


def test_connections_that_ended_are_forgotten(server: Server) -> None:
    """A server lives long."""
    for _ in range(20):
        with connected(server) as end:
            ask(end, {"candidate": "pass.py"})
    deadline_s = time.monotonic() + 30
    while server.connections and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not server.connections


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
