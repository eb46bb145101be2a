"""A file that lists the tests to run, as `ab` and fresh processes give it."""

import json
from pathlib import Path

import pytest

from tests.plugin.conftest import BenchRun

SOURCE = """
@pytest.mark.parametrize("case", ["a", "a::b", "[c]", "é", "d/e.py"])
def test_it(case):
    import os
    assert "PYTEST_GPUBENCH_TESTS" not in os.environ
"""


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("arguments", [(), ("there/test_other.py", "."), ("-n1",)], ids=["", "paths", "xdist"])
def test_only_listed_tests_are_run(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """A file with none of them is not even imported."""
    Path("there").mkdir()
    Path("there/test_other.py").write_text("raise ValueError")
    own = "test_only_listed_tests_are_run.py::test_it"
    ids = [f"{own}[a::b]", f"{own}[[c]]", f"{own}[\\xe9]", f"{own}[d/e.py]", f"{own}[gone]"]
    Path("listed.json").write_text(json.dumps(ids))
    monkeypatch.setenv("PYTEST_GPUBENCH_TESTS", "listed.json")
    outcomes = {"passed": 4} if "-n1" in arguments else {"passed": 4, "deselected": 1}
    bench_run(SOURCE, *arguments).assert_outcomes(**outcomes)


def test_a_listed_file_that_is_gone_leaves_the_others(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "test_a_listed_file_that_is_gone_leaves_the_others.py::test_it"
    Path("listed.json").write_text(json.dumps(["gone.py::test_it", f"{own}[a]"]))
    monkeypatch.setenv("PYTEST_GPUBENCH_TESTS", "listed.json")
    bench_run(SOURCE).assert_outcomes(passed=1, deselected=4)
