"""Benchmarks that people already have as tests: scripts, and tests that call other timers."""

import ast
import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.adopt.perf_report import PERF_REPORT, ReportCase, cases_of
from pytest_gpubench.adopt.timers import imported
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.items import FIXTURE, NAME, uses_fixture
from pytest_gpubench.plugin.lifecycle import Lifecycle
from pytest_gpubench.plugin.workers import is_worker, without_group, worker_name
from pytest_gpubench.results.files import shown
from pytest_gpubench.settings import ini_name
from pytest_gpubench.units import numbered, repr_of, safe_line

ArgsSource = pytest.Config.ArgsSource
COMPARE_KEYWORDS = ("reference", "rtol", "atol", "equal_nan")
"""Keywords of a line of limits that are for the comparison of a script's providers, not for the mark."""


class AdoptedScripts:
    """The hooks that collect the scripts of --gpu-bench-scripts; raises BadRequest for a pattern of no file."""

    def __init__(self, config: pytest.Config, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle
        self.files: dict[Path, bool] = {}
        """The scripts, each with True once it is collected."""
        for pattern in lifecycle.settings.scripts or ():
            bases = dict.fromkeys((config.invocation_params.dir, config.rootpath))
            files = [each for base in bases for each in sorted(glob.glob(str(base / pattern), recursive=True))]
            if not files:
                places = " or ".join(map(str, bases))
                raise BadRequest(f"--gpu-bench-scripts={pattern} matches no file in {places}: it is relative to these")
            self.files |= dict.fromkeys((Path(each).resolve() for each in files), False)
        is_given = config.args_source is ArgsSource.ARGS  # else only the scripts are collected
        named = list(config.args) if is_given else []
        there = {(config.invocation_params.dir / each.partition("::")[0]).resolve() for each in named}
        if pytest.version_tuple < (9,):  # where a folder and a file in it are named, it collects that file only
            there |= {each for each in self.files if not there.isdisjoint(each.parents)}
        config.args = [*named, *(str(each) for each in self.files if each not in there)]

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> "ScriptFile | None":
        """Collect a script in a folder that the command line names; pytest asks below for one that it names itself."""
        patterns = parent.config.getini("python_files")
        asked = parent.session.isinitpath(file_path) or any(map(file_path.match, patterns))
        return None if asked else self.pytest_pycollect_makemodule(file_path, parent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> "ScriptFile | None":
        """Collect a script as one, and not as a file of tests."""
        if module_path.resolve() not in self.files:
            return None
        nodeid = Path(os.path.relpath(module_path, parent.config.rootpath)).as_posix()
        script: ScriptFile = ScriptFile.from_parent(parent, path=module_path, nodeid=nodeid)
        script.lifecycle = self.lifecycle
        self.files[module_path.resolve()] = True
        return script

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Name the scripts that were not collected; of all workers the first does."""
        if is_worker(session.config) and worker_name() != "gw0":
            return
        for path in (path for path, is_collected in self.files.items() if not is_collected):
            words = f"warning: --gpu-bench-scripts: {shown(path)} is not run, as pytest does not enter its folder or"
            terminal.announce(session.config, f"{words} ignores it (norecursedirs, --ignore): name no folder above it")


class AdoptedTests:
    """The fixture that adopts timers in every test."""

    @pytest.fixture(autouse=True)
    def _gpu_bench_adopted(self, gpu_bench: Any) -> Iterator[None]:
        from pytest_gpubench.adopt.perf_report import measuring
        from pytest_gpubench.adopt.timers import adopting

        with adopting(measuring(gpu_bench)):
            yield


class LimitLines:
    """The hooks that mark tests by the lines of --gpu-bench-limits, and name lines that are those of no test.

    Raises BadRequest for a line that is not of their form.
    """

    def __init__(self, config: pytest.Config, text: str) -> None:
        is_typed = config.getoption(ini_name("limits"), None) is not None
        self.whole = is_typed or config.args_source is not ArgsSource.ARGS
        """False if the command line names the tests to run, so that lines for others are none's."""
        self.written = [line.strip() for line in text.splitlines() if line.strip()]
        self.lines = list(map(_parse_line, self.written))
        self.used: set[int] = set()
        """The places of lines whose pattern is that of a test."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Mark a test that uses gpu_bench by each line whose pattern is its node id's."""
        if not uses_fixture(item):
            return
        for place, (pattern, keywords) in enumerate(self.lines):
            if pattern.fullmatch(item.nodeid):
                self.used.add(place)
                if isinstance(item, ScriptItem) and item.asked is not None:
                    item.asked |= {name: value for name, value in keywords.items() if name in COMPARE_KEYWORDS}
                    keywords = {name: value for name, value in keywords.items() if name not in COMPARE_KEYWORDS}
                item.add_marker(getattr(pytest.mark, NAME)(**keywords))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note which lines are used in a worker."""
        tests = list(map(without_group, ids))
        self.used |= {place for place, (pattern, _) in enumerate(self.lines) if any(map(pattern.fullmatch, tests))}

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Name the lines that are those of no test."""
        for place, line in enumerate(self.written):
            if self.whole and place not in self.used:
                words = f"gpu_bench: --gpu-bench-limits: no perf test of this run is meant by {repr_of(line)}"
                terminal.write_sentence(terminalreporter, words, yellow=True)


class ScriptFile(pytest.File):
    """A benchmark script."""

    lifecycle: Lifecycle

    def collect(self) -> Iterator["ScriptItem"]:
        """Load the script, alone on the GPU; yield an item for each case, or one for a script that has none."""
        from pytest_gpubench.adopt.script import load, run_whole
        from pytest_gpubench.gpu.turn import turn_at

        settings = self.lifecycle.settings
        title, waits = f"loading {self.path.name}", settings.takes_times
        with turn_at(find_device(settings.device), settings, title, claims=False) if waits else nullcontext():
            namespace, error, times_by_itself = load(self.path)
        cases: list[ReportCase] = []
        kind = imported(PERF_REPORT)
        if kind is not None and not times_by_itself:  # each object is known by the last of its names
            marks = {id(each): name for name, each in namespace.items() if isinstance(each, kind)}
            cases = [case for name in marks.values() for case in cases_of(name, namespace[name])]
        names = numbered((case.name.removesuffix("]") for case in cases), "-")
        for name, case in zip(names, cases, strict=True):
            item = self._item(
                f"{name}]", partial(self._measure, replace(case, name=f"{name}]"), asked := dict[str, Any]())
            )
            item.asked, item.obj, item.params = asked, case.function, case.params
            yield item
        if error is not None:
            reason = safe_line(f"{type(error).__name__}: {error}")
            why = f"{self.path.name} could not be taken over as a whole: {reason}"
            yield self._item("load", lambda: pytest.fail(why, pytrace=False))
        elif not cases:
            yield self._item("__main__", lambda: run_whole(self.path, self.lifecycle.bench()))

    def _item(self, name: str, run: Callable[[], None]) -> "ScriptItem":
        item: ScriptItem = ScriptItem.from_parent(self, name=name)
        item.run = run
        return item

    def _measure(self, case: ReportCase, asked: Mapping[str, Any]) -> None:
        test = self.lifecycle.current_test()
        assert test is not None
        case.measure(self.lifecycle.bench(), test.limits, asked, test.warn)


class ScriptItem(pytest.Item):
    """A test of a script: one x value of a `perf_report` object, the whole script, or why it could not be loaded."""

    fixturenames = (FIXTURE,)
    run: Callable[[], None]
    asked: dict[str, Any] | None = None
    """Keywords of the comparison that a line of limits gives; None where nothing is compared."""
    obj: Callable[..., object]
    """The function whose source is the test's; only of an x value: pytest looks for it with `hasattr`."""
    params: Mapping[str, object] = {}

    def runtest(self) -> None:
        """Run the test."""
        self.run()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the script's own frames; only the message where there are none."""
        if all(entry.path != self.path for entry in excinfo.traceback):
            return excinfo.getrepr(style="value")
        return super().repr_failure(excinfo, style)

    def _traceback_filter(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        return excinfo.traceback.cut(path=self.path).filter(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the test is."""
        return self.path, 0, self.name


def _parse_line(line: str) -> tuple[re.Pattern[str], dict[str, Any]]:
    """Return the pattern of node ids, and the keywords, of a line such as `bench_*.py: min_speedup=1.2`.

    Raises BadRequest for a line that is not of this form.
    """
    pattern, _, keywords = line.partition(": ")
    try:
        call = ast.parse(f"perf({keywords})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not all(each.arg for each in call.keywords):
            raise ValueError("other than keywords")
        given = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        if not given:
            raise ValueError("no keywords")
    except (SyntaxError, ValueError):
        raise BadRequest(
            f"--gpu-bench-limits: {repr_of(line)} is not valid: it must be a pattern of node ids, a colon, a space and "
            "keywords of the perf mark, as in bench_softmax.py: min_speedup={'triton': 1.2}"
        ) from None
    wild = ".*".join(map(re.escape, pattern.strip().split("*")))
    return re.compile(rf"(.*/)?{wild}(::.*|\[.*)?", re.DOTALL), given
