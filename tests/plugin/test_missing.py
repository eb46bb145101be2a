"""A saved run is the list of the tests that have to be there: which are missing in a run, and which were left out."""

import json
from pathlib import Path

import pytest

from tests.plugin.conftest import HEAD

COMPARED = (
    "--gpu-bench-compare=main",
    "--gpu-bench-timer=scripted",
    "--gpu-bench-device=cpu",
    "-p",
    "no:cacheprovider",
    "--gpu-bench-reps=2",
)
FAILS = "--gpu-bench-missing=fail"
ONE = f"{HEAD}\ndef test_one(gpu_bench): gpu_bench(fast)\n"
TWO = f"{ONE}\ndef test_two(gpu_bench): gpu_bench(fast)\n"
MANY = f"{HEAD}\n@pytest.mark.parametrize('n', [1, 2])\ndef test_many(gpu_bench, n): gpu_bench(fast)\n"
HELPED = f"""{HEAD}
from helper import measure
def test_helped(gpu_bench): measure(gpu_bench, fast, slow)
"""
HELPER = "def measure(gpu_bench, fast, slow):\n    gpu_bench(fast)\n    gpu_bench(slow)\n"

SAVED: dict[str, str] = {}
"""The run of a project as it was saved, by its path; it is the same for every test."""


class Project:
    """A folder of tests whose run was saved as main."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        for name, text in {"a/test_a.py": TWO, "b/test_b.py": ONE, "b/test_m.py": MANY}.items():
            self.write(name, text)
        self.write("c/helper.py", HELPER)
        self.write("c/test_c.py", HELPED)
        if not SAVED:
            self.run("--gpu-bench-save=main", plain=True).assert_outcomes(passed=6)
            (path,) = self.path.glob(".gpu_benchmarks/*/*.json")
            SAVED[str(path.relative_to(self.path))] = path.read_text()
        for saved, text in SAVED.items():
            (self.path / saved).parent.mkdir(parents=True, exist_ok=True)
            (self.path / saved).write_text(text)

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(text)

    def run(self, *arguments: str, plain: bool = False) -> pytest.RunResult:
        options = COMPARED[1:] if plain else COMPARED
        return self.pytester.runpytest_inprocess(*options, *arguments)

    def missing(self, *arguments: str) -> list[str]:
        """Return what the end of a run names, after checking that it decides the exit status."""
        result = self.run(FAILS, *arguments)
        lines = [line for line in result.stdout.lines if "not in this run: " in line]
        assert len(lines) <= 1
        if result.ret in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not result.parseoutcomes().get(
            "failed"
        ):
            assert result.ret == bool(lines)
        return lines[0].partition("not in this run: ")[2].partition("; if")[0].split(", ") if lines else []


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.syspath_prepend(pytester.path / "c")
    return Project(pytester)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


VERSIONS = {
    "same": (ONE, ONE, []),
    "deleted": (TWO, ONE, ["test_two"]),
    "renamed": (TWO, TWO.replace("test_two", "test_new"), ["test_two"]),
    "no_name": (TWO, TWO.replace("test_two", "two"), ["test_two"]),
    "shadowed": (TWO, TWO.replace("test_two", "test_one"), ["test_two"]),
    "parameter": (MANY, MANY.replace("[1, 2]", "[1, 3]"), ["test_many[2]"]),
    "parameters": (MANY, MANY.replace("[1, 2]", "[]"), ["test_many[1]", "test_many[2]"]),
    "not_perf": (ONE, ONE.replace("(gpu_bench): gpu_bench(fast)", "(): pass"), ["test_one"]),
    "unmeasured": (ONE, ONE.replace("gpu_bench(fast)", "pass"), ["test_one"]),
    "left_out": (ONE, f"import pytest; pytest.skip('', allow_module_level=True)\n{ONE}", ["test_one"]),
    "needs": (ONE, f"import pytest; pytest.importorskip('no_such')\n{ONE}", ["test_one"]),
    "less": (HELPED, HELPED.replace("helper", "helped"), ["test_helped: slow"]),
    "changed": (ONE.replace("gpu_bench(fast)", "gpu_bench(fast); gpu_bench(slow)"), ONE, []),
    "skipped": (ONE, ONE.replace("gpu_bench(fast)", "pytest.skip('no')"), []),
    "fails": (ONE, ONE.replace("gpu_bench(fast)", "assert 0"), []),
    "uncollected": (ONE, f"assert 0\n{ONE}", []),
}
"""A test file as it was saved and as it is now, and what is missing of it."""


@pytest.mark.parametrize("options", [(), ("-m", "perf")])
def test_tests_that_were_changed(project: Project, options: tuple[str, ...]) -> None:
    project.write("c/helped.py", HELPER.replace("    gpu_bench(slow)\n", ""))
    for name, (before, _, _) in VERSIONS.items():
        project.write(f"d/test_{name}.py", before)
    project.run("--gpu-bench-save=main", plain=True)
    for name, (_, now, _) in VERSIONS.items():
        project.write(f"d/test_{name}.py", now)
    expected = [f"d/test_{name}.py::{test}" for name, (_, _, missing) in VERSIONS.items() for test in missing]
    assert sorted(project.missing("--continue-on-collection-errors", *options)) == sorted(expected)


LOSES = {
    "moved": "",
    "a/conftest.py": "collect_ignore = ['test_a.py']",
    "a/../conftest.py": "def pytest_ignore_collect(collection_path): return collection_path.name == 'test_a.py'",
    "b/conftest.py": "def pytest_collection_modifyitems(items): del items[:2]",
    "c/conftest.py": "def pytest_runtest_protocol(item): return True if 'test_a' in item.nodeid else None",
    "pytest.ini": "[pytest]\ntestpaths = b c\n",
}


@pytest.mark.parametrize("name", LOSES)
def test_what_loses_the_tests_of_a_folder(project: Project, name: str) -> None:
    """It is moved, ignored by a conftest or a hook, dropped from the list, never run, or left out by the ini file."""
    if name == "moved":
        (project.path / "a").rename(project.path / "moved")
    else:
        project.write(name, LOSES[name])
    assert project.missing() == ["a/test_a.py::test_one", "a/test_a.py::test_two"]


def test_a_run_that_ends_with_status_0_in_its_midst(project: Project) -> None:
    project.write("b/conftest.py", "import pytest\ndef pytest_runtest_setup(item): pytest.exit('enough', 0)")
    assert project.missing("--ignore=c") == [
        "b/test_b.py::test_one",
        "b/test_m.py::test_many[1]",
        "b/test_m.py::test_many[2]",
    ]


LEFT_OUT = {
    "a folder": ["b"],
    "a file": ["b/test_m.py"],
    "an absolute path": ["{path}/b"],
    "a node id": ["a/test_a.py::test_one", "b"],
    "a test with parameters": ["b/test_m.py::test_many"],
    "one of its parameters": ["b/test_m.py::test_many[1]"],
    "a module": ["--pyargs", "helped.test_in_package"],
    "-k": ["-k", "many"],
    "-m": ["-m", "not perf"],
    "--deselect": ["--deselect=a", "--deselect=c/test_c.py::test_helped"],
    "--ignore": ["--ignore=a"],
    "--ignore-glob": ["--ignore-glob=*_a.py"],
    "--gpu-bench-skip": ["--gpu-bench-skip"],
    "-x": ["-x"],
    "--maxfail": ["--maxfail=1"],
    "--collect-only": ["--collect-only"],
}


@pytest.mark.parametrize("way", LEFT_OUT)
def test_what_the_command_line_leaves_out(project: Project, way: str) -> None:
    """A file of c is gone, too, where the command line leaves it out."""
    if way in ("-x", "--maxfail"):
        edit(project.path / "a/test_a.py", "gpu_bench(fast)", "assert 0")
    project.write("helped/test_in_package.py", ONE)
    project.write("helped/__init__.py", "")
    assert project.missing(*(each.format(path=project.path) for each in LEFT_OUT[way])) == []


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["b"], ["b/test_b.py::test_one"]),
        (["b/test_b.py"], ["b/test_b.py::test_one"]),
        (["b/../b", "a"], ["b/test_b.py::test_one"]),
        (["."], ["b/test_b.py::test_one"]),
        (["b/test_m.py"], []),
        (["a", "c"], []),
        (["-k", "not many"], ["b/test_b.py::test_one"]),
    ],
)
def test_a_path_that_was_asked_for(project: Project, arguments: list[str], missing: list[str]) -> None:
    edit(project.path / "b/test_b.py", "test_one", "test_new")
    assert project.missing(*arguments) == missing


@pytest.mark.parametrize("module", ["pack", "pack.test_p"])
def test_a_module_that_was_asked_for(project: Project, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.syspath_prepend(project.path)
    project.write("pack/__init__.py", "")
    project.write("pack/test_p.py", TWO)
    project.run("--gpu-bench-save=main", plain=True)
    edit(project.path / "pack/test_p.py", "test_two", "test_new")
    assert project.missing("--pyargs", module) == ["pack/test_p.py::test_two"]


def test_from_another_folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.pytester.makeini(f"[pytest]\ngpu_bench_storage = {project.path}/.gpu_benchmarks\n")
    edit(project.path / "b/test_b.py", "test_one", "test_new")
    monkeypatch.chdir(project.path / "a")
    assert project.missing() == []
    assert project.missing("../b") == ["b/test_b.py::test_one"]


def test_last_failed_leaves_files_out(project: Project) -> None:
    edit(project.path / "a/test_a.py", "gpu_bench(fast)", "assert 0")
    options = ("--gpu-bench-compare=main", "--gpu-bench-timer=scripted")
    project.pytester.runpytest_inprocess(*options)
    result = project.pytester.runpytest_inprocess(*options, "--lf")
    result.stdout.fnmatch_lines(["run-last-failure:*"])
    assert "not in this run" not in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "named", "status"),
    [
        ([], True, 0),
        (["--gpu-bench-missing=ignore"], False, 0),
        (["--gpu-bench-missing=fail"], True, 1),
        (["--gpu-bench-strict"], True, 1),
        (["--gpu-bench-strict", "--gpu-bench-missing=warn"], True, 0),
    ],
)
def test_what_a_missing_test_does(project: Project, options: list[str], named: bool, status: int) -> None:
    edit(project.path / "b/test_b.py", "def test_one(gpu_bench): gpu_bench(fast)", "")
    result = project.run(*options, "--gpu-bench-markdown=summary.md")
    assert (result.ret, "not in this run" in result.stdout.str()) == (status, named)
    row = "NOT JUDGED | <code>b/test_b.py::test_one</code> |  | in the baseline, but not in this run"
    assert (row in (project.path / "summary.md").read_text()) is named


def test_nothing_is_left_of_the_perf_tests(project: Project) -> None:
    for name in ("a/test_a.py", "b/test_b.py", "b/test_m.py", "c/test_c.py"):
        (project.path / name).unlink()
    result = project.run()
    assert (result.ret, "6 tests of the baseline 'main' not in this run" in result.stdout.str()) == (5, True)
    assert project.run(FAILS).ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.usefixtures("stubbed_torch")
@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(["-k", "many"], ["b/test_b.py::test_one"]), (["a"], [])],
)
def test_with_workers(project: Project, arguments: list[str], missing: list[str]) -> None:
    """The groups that xdist adds to names, before pytest 9.2, make no other tests of them."""
    for name in ("a/test_a.py", "b/test_m.py"):
        project.write(name, f"{(project.path / name).read_text()}\npytestmark = pytest.mark.xdist_group('gpu')\n")
    edit(project.path / "b/test_b.py", "test_one", "test_new")
    assert project.missing("-p", "xdist", "-n2", "--dist=loadgroup", *arguments) == missing


def test_another_gpu_model_has_a_list_of_its_own(project: Project) -> None:
    (folder,) = (project.path / ".gpu_benchmarks").glob("[!.]*")
    other = project.path / ".gpu_benchmarks" / "Other"
    other.mkdir()
    (path,) = folder.glob("*.json")
    name = json.loads(path.read_text())["gpu_bench"]["records"][0]["device"]["name"]
    (other / path.name).write_text(path.read_text().replace(f'"{name}"', '"Other"').replace("test_two", "test_old"))
    assert project.missing() == []
