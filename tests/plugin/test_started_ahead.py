"""A run that is started ahead: it waits for its turn before its first test."""

import json
import os
import socket
from collections.abc import Iterator
from importlib import import_module

import pytest

from pytest_gpubench.plugin.started_ahead import IMPORTED_LATER
from tests.plugin.conftest import BenchRun

TURN_SOCKET = "PYTEST_GPUBENCH_TURN_SOCKET"


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> Iterator[socket.socket]:
    own, other = socket.socketpair()
    monkeypatch.setenv(TURN_SOCKET, str(other.detach()))  # the run closes it
    pytester.makepyfile(
        test_a="""
import os, pytest, sys, types
sys.modules["made_up"] = types.SimpleNamespace(__file__="test_a.py")  # as torch.ops
def test_it(): assert not {'PYTEST_GPUBENCH_TURN_SOCKET', 'PYTEST_GPUBENCH_NOTES'} & {*os.environ}
@pytest.mark.skip
def test_perf(gpu_bench): pass
"""
    )
    with own:
        yield own


@pytest.mark.parametrize("options", [[], pytest.param(["-p", "xdist", "-n1"], marks=pytest.mark.slow)])
def test_it_tells_the_sources_of_its_perf_tests_and_begins_when_told(
    pytester: pytest.Pytester, connection: socket.socket, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs that its tests start, and fresh processes, get neither its turn nor its notes."""
    connection.sendall(b"!")
    notes = pytester.path / "notes"
    monkeypatch.setenv("PYTEST_GPUBENCH_NOTES", str(notes))
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=1, skipped=1)
    found = json.loads(connection.recv(999))
    known = {} if options else {"test_a.py::test_it": False, "test_a.py::test_perf": True}
    assert {name: bool(source) for name, source in found.items()} == known
    told = [json.loads(line) for line in notes.read_text().splitlines()]
    assert "made_up" not in {name for each in told for name in each["modules"]}
    assert str(pytester.path / "test_a.py") in [each["modules"].get("test_a") for each in told]
    assert [each["ended"] for each in told] == [{"test_a.py::test_it": "passed", "test_a.py::test_perf": "skipped"}] * (
        1 + bool(options)
    )


ENDINGS = """
import pytest
from pytest_gpubench import scripted
@pytest.fixture
def broken():
    yield
    assert 0
@pytest.mark.xdist_group("gpu")
def test_passing(gpu_bench): pass
def test_failing(): assert 0
def test_ending(broken): pass
@pytest.mark.xfail
def test_xfailing(): assert 0
class TestIt:
    @pytest.mark.parametrize("x", ["a/b.py", "c::d", "é"])
    def test_it(self, x): pytest.skip()
"""


@pytest.mark.parametrize(
    "options", [[], pytest.param(["-p", "xdist", "-n1", "--dist=loadgroup"], marks=pytest.mark.slow)]
)
def test_it_tells_how_its_tests_ended_by_their_node_ids(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("PYTEST_GPUBENCH_NOTES", str(pytester.path / "notes"))
    pytester.makepyfile(test_a=ENDINGS, test_b="import nothing")
    pytester.runpytest_inprocess("--continue-on-collection-errors", *options)
    for line in (pytester.path / "notes").read_text().splitlines():
        failed = dict.fromkeys(("test_b.py", "test_a.py::test_failing", "test_a.py::test_ending"), "failed")
        names = ("test_xfailing", *(f"TestIt::test_it[{x}]" for x in ("a/b.py", "c::d", "\\xe9")))
        skipped = {f"test_a.py::{name}": "skipped" for name in names}
        assert json.loads(line)["ended"] == {**failed, **skipped, "test_a.py::test_passing": "passed"}


FILES = "save=main", "autosave", "sessions=2", "html=html", "markdown=markdown", "plot=plot", "trace=trace"
IN_A_TEST = """
def test_fast(gpu_bench, monkeypatch):
    asked = []
    monkeypatch.setattr("pytest_gpubench.public_call.trace", lambda test, request: asked.append(request.settings))
    gpu_bench(fast)
    names = "save", "autosave", "sessions", "html", "markdown", "plot", "trace"
    assert [getattr(asked[0], name) for name in names] == [None, False, 1, None, None, None, None]
"""


@pytest.mark.usefixtures("stubbed_torch")
@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_it_becomes_no_baseline(bench_run: BenchRun, connection: socket.socket, workers: list[str]) -> None:
    """It may be of a commit that nobody has merged."""
    connection.sendall(b"!")
    before = {*os.listdir()}
    options = [f"--gpu-bench-{each}" for each in (*FILES, "json=json")]
    result = bench_run(IN_A_TEST, *options, *workers, "-p", "no:cacheprovider", "--junitxml=junit.xml")
    result.assert_outcomes(passed=2, skipped=1)
    assert {*os.listdir()} - before == {"json", "test_it_becomes_no_baseline.py"}


ODD = """
import pytest

class Odd(pytest.Item):
    obj = property(lambda self: 1 / 0)
    def runtest(self): pass

def pytest_collection_modifyitems(session, items):
    items.append(Odd.from_parent(session, name="odd"))
    items[-1].add_marker("perf")
"""


def test_an_item_that_is_odd_loses_no_turn(pytester: pytest.Pytester, connection: socket.socket) -> None:
    """One whose `obj` raises has no source."""
    pytester.makeconftest(ODD)
    connection.sendall(b"!")
    result = pytester.runpytest_inprocess()
    assert "an error of its own in pytest_runtestloop" not in result.stdout.str()
    found = json.loads(connection.recv(999))
    assert {name for name, source in found.items() if source} == {"test_a.py::test_perf"}
    assert "::odd" in found


@pytest.mark.parametrize("name", IMPORTED_LATER)
def test_what_is_imported_before_the_wait_is_there(name: str) -> None:
    """No name of a module is out of date: importing it raises nothing."""
    import_module(name)


def test_it_ends_with_the_process_that_waits_for_it(pytester: pytest.Pytester, connection: socket.socket) -> None:
    connection.close()
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines("*the comparison that started this run has ended*")
    result.assert_outcomes()
