"""What pytest says of its tests in JUnit's file."""

import re
from pathlib import Path

import pytest

from pytest_gpubench.cli.ab.junit import junit_names, read_ended
from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.model import SavedRun, TestRecord
from tests.cli.ab.faked import CPU


@pytest.mark.parametrize(
    ("nodeid", "names"),
    [
        ("test_a.py::test_it", ("test_a", "test_it")),
        ("tests/deep/test_a.py::TestIt::test_it", ("tests.deep.test_a.TestIt", "test_it")),
        ("tests/test_a.py::test_it[a/b.py::c[0]]", ("tests.test_a", "test_it[a/b.py::c[0]]")),
    ],
)
def test_names_in_junit(nodeid: str, names: tuple[str, str]) -> None:
    assert junit_names(nodeid) == names


def test_names_are_those_of_pytest_itself(pytester: pytest.Pytester) -> None:
    from xml.etree import ElementTree

    pytester.mkdir("deep")
    Path("deep/test_a.py").write_text("""
import pytest
class TestIt:
    @pytest.mark.parametrize("x", ["a/b.py", "c::d", "[e]", "é"])
    def test_it(self, x): pass
""")
    result = pytester.runpytest("--junitxml=junit.xml", "-p", "no:gpu_bench", "-v")
    nodeids = re.findall(r"^(\S+::\S+) PASSED", result.stdout.str(), re.MULTILINE)
    cases = ElementTree.parse("junit.xml").iter("testcase")
    assert [junit_names(nodeid) for nodeid in nodeids] == [(c.get("classname"), c.get("name")) for c in cases]
    assert len(nodeids) == 4


def test_how_tests_ended(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text("""<testsuites><testsuite>
<testcase classname="test_a" name="test_it"/>
<testcase classname="test_a" name="test_failing"><failure/></testcase>
<testcase classname="test_a" name="test_failing"/>
<testcase classname="test_a" name="test_ending"/>
<testcase classname="test_a" name="test_ending"><error/></testcase>
<testcase classname="test_a" name="test_skipped"><skipped/></testcase>
<testcase classname="" name="test_b"><error message="collection failure"/></testcase>
</testsuite></testsuites>""")
    record = TestRecord(nodeid="test_a.py::test_it", device=CPU)
    assert read_ended(junit, SavedRun(records=(record,), datetime="")) == {
        "test_a.py::test_it": "passed",
        "test_a::test_failing": "failed",
        "test_a::test_ending": "failed",
        "test_a::test_skipped": "skipped",
        "test_b": "failed",
    }


@pytest.mark.parametrize("text", [None, "", "<testsuites>", "no XML"])
def test_a_report_that_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    junit = tmp_path / "01-BASE.xml"
    if text is not None:
        junit.write_text(text)
    with pytest.raises(BadFile, match=r"pytest's own report 01-BASE\.xml cannot be read \("):
        read_ended(junit, SavedRun(records=(), datetime=""))
