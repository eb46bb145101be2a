"""The running test, from pytest's setup to its report."""

import functools
import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal
from unittest import SkipTest

import pytest
from msgspec.structs import replace

from pytest_gpubench.counters import COUNTER_BY_NAME
from pytest_gpubench.errors import BadRequest, DeviceUnavailable, NotMeasured, ProfilerBusy
from pytest_gpubench.gpu.device import required_device
from pytest_gpubench.plugin import items, terminal
from pytest_gpubench.plugin.baseline import ComparedRun
from pytest_gpubench.plugin.containment import failing
from pytest_gpubench.plugin.counting import Counting
from pytest_gpubench.plugin.failures import fail, raise_at
from pytest_gpubench.plugin.fresh_process import MOST_NAMING_S, NAMING, FurtherProcesses, write_note
from pytest_gpubench.plugin.gpu_turn import GpuTurns
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.sessions import SAME_IN_EVERY_PROCESS
from pytest_gpubench.plugin.workers import worker_name
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.results.model import TestRecord, encode
from pytest_gpubench.settings import Resolver, Settings
from pytest_gpubench.settings.parsers import COUNTER_WISHES
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.units import repr_of

if TYPE_CHECKING:
    from pytest_gpubench.fixture import GpuBench
    from pytest_gpubench.running_test import CurrentTest
    from pytest_gpubench.verdict.limits import Limits

MOST_LEFT_S = 60.0
"""The longest wait for a measurement that a test has left to a thread: later tests would be refused meanwhile."""
LEAVING = (pytest.skip.Exception, pytest.xfail.Exception, pytest.exit.Exception, SkipTest)
"""Exceptions that end a test without failing it."""


class Lifecycle:
    """The hooks around a test: they give the fixture its `CurrentTest`, and the test's report what was measured."""

    def __init__(
        self, config: pytest.Config, resolver: Resolver, turns: GpuTurns, compared: ComparedRun, results: Results
    ) -> None:
        self.config = config
        self.resolver = resolver
        self.settings = resolver.run
        self.turns = turns
        self.compared = compared
        self.results = results
        self.confirming = FurtherProcesses(config)
        self.counting = Counting(config, self.counters_of)
        self.naming = FurtherProcesses(config, MOST_NAMING_S)
        self.naming_notes = os.environ.pop(NAMING, None)
        """The file in which this process notes what its calls mean if they break the GPU; None in others."""
        self._item: pytest.Item | None = None
        self._test: CurrentTest | None = None
        self._marks: items.MergedMarks | None = None
        """The test's marks when they were last read: fixtures and the test itself may add some."""
        self._phase: Literal["setup", "call", "teardown"] = "setup"
        self._in_call = False
        """True while the test's own function runs: a report then is of a part of it, such as a subtest."""
        self._is_reported = False
        """True once pytest has a report of how the test ended."""
        self._runs: Counter[str] = Counter()
        """The number of runs of each perf test, whoever has it run again."""
        self._wider_fixtures: list[str] = []
        self._bench: GpuBench | None = None
        self._say = terminal.progress(config)

    def bench(self) -> "GpuBench":
        """Return the fixture's value, one for the run: it finds the running test by itself, as @given needs it to."""
        from pytest_gpubench.fixture import GpuBench

        self._bench = self._bench or GpuBench(self.current_test, self.resolver, self._say)
        return self._bench

    def current_test(self) -> "CurrentTest | None":
        """Return the running test; None outside of tests. Raises BadRequest for illegal marks, and for one without."""
        if self._item is None:
            return None
        if not items.is_perf(self._item):
            raise BadRequest(items.UNMARKED)
        marks = items.merge_marks(self._item)
        if self._test is None or self._marks is None:
            self._test = self._new_test(self._item, marks)
        elif marks != self._marks:
            self._change_marks(self._test, marks, self._marks)
        self._marks = marks
        if not self._test.measurements:
            self._test.expects_failure = self._item.get_closest_marker("xfail") is not None
        self._test.phase = self._phase
        self._test.wider_scopes = self._wider_fixtures
        return self._test

    # hooks

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the running test; keep the results of an interrupted one."""
        self._item, self._phase, self._is_reported = item, "setup", False
        try:
            return (yield)
        except (KeyboardInterrupt, pytest.exit.Exception):
            with suppress(Exception):  # the interrupt must not be replaced
                self._report_interrupted(item)
            raise
        finally:
            if self._test is not None:
                self._test.forget()
            self._item = self._test = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test whose marks are illegal, or whose device is missing."""
        if self._phase == "teardown":  # the test runs again, as with --reruns
            self._test = None
        self._phase, self._is_reported = "setup", False
        item.user_properties = [each for each in item.user_properties if not str(each[0]).startswith("gpu_bench.")]
        if not items.is_perf(item):
            return
        self._runs[item.nodeid] += 1
        device = None
        try:
            if items.uses_fixture(item) and not self.settings.disable:  # first, as it says what is wrong with torch
                device = required_device(self.settings.device, self.settings.require_gpu)
            if (test := self.current_test()) is not None:
                test.device = device
        except (BadRequest, DeviceUnavailable) as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note that the test's own function runs, and the examples that hypothesis calls it with.

        Raise an error of ours that the test has swallowed: pytest then tells whether an xfail mark expects it.
        """
        self._phase, self._in_call = "call", True
        function = getattr(item, "obj", None)
        try:
            examples: AbstractContextManager[None] = nullcontext()
            is_given = items.uses_fixture(item) and hasattr(getattr(function, "hypothesis", None), "inner_test")
            if is_given and (test := self.current_test()) is not None:
                from pytest_gpubench.search import intercepting_examples

                fixtures, oom = getattr(item, "funcargs", {}), test.settings.given_oom
                examples = intercepting_examples(function, test.begin_example, fixtures, oom, test.warnings.append)
            with examples:
                result = yield
        finally:
            self._in_call = False
        ended = self._test
        if ended is not None and ended.failures and not ended.has_failed_part:
            raise_at(item, type(ended.failures[0])(ended.why_failed()))
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Note that the test is over; a measurement in a thread that it did not join may go on for some time."""
        self._phase = "teardown"
        if self._test is not None and self._test.open_calls:
            from pytest_gpubench.bench.plan import one_at_a_time

            self._say(f"waiting for {self._test.open_calls[0]}, which is still being measured")
            with suppress(ProfilerBusy), one_at_a_time("nothing", wait_s=MOST_LEFT_S):
                self._say("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """Note which fixture is being set up for more than one test."""
        if fixturedef.scope == "function":
            return (yield)
        self._wider_fixtures.append(f"{fixturedef.argname!r} ({fixturedef.scope} scope)")
        try:
            return (yield)
        finally:
            self._wider_fixtures.pop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Decide how the test ended by what it measured, and put the results into the report, which xdist carries."""
        report = yield
        with failing(report):
            if call.excinfo is not None and call.excinfo.errisinstance(NotMeasured):
                report.outcome = "skipped"
                report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {call.excinfo.value}")
            if report.when == "setup" and items.uses_fixture(item):
                report.gpu_bench_selected = True  # type: ignore[attr-defined] # pytest carries what it does not know
            if report.when == "call" or (report.when == "setup" and not report.passed):
                self._complete(item, report)
        return report

    # one test

    def _complete(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Complete the report of a test, or of a part of it; note why one whose limits judged nothing was skipped."""
        if not self._in_call:
            self._decide(item, report)
        if self._test is not None and self._test.measurements:
            if self._in_call:
                self._test.has_failed_part |= report.failed
                if report.failed and self._test.failures:
                    report.gpu_bench_broken = str(self._test.failures[-1])  # type: ignore[attr-defined]
            else:
                self._attach(item, report, self._test)
            if report.failed:
                from pytest_gpubench.report.section import report_section

                text = report_section(self._record(self._test), report.longreprtext, Screen.current(color=False))
                report.sections.append(("gpu_bench", text))
        if report.skipped and not self._in_call:
            is_judged = self._test is not None and any(each.verdicts for each in self._test.measurements)
            with suppress(BadRequest):
                if not is_judged and items.merge_marks(item).limits:
                    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
                    reason = getattr(report, "wasxfail", "") or reason.removeprefix("Skipped: ")
                    report.gpu_bench_silent = reason  # type: ignore[attr-defined]

    def _new_test(self, item: pytest.Item, marks: items.MergedMarks) -> "CurrentTest":
        from pytest_gpubench.running_test import CurrentTest

        test = CurrentTest(
            nodeid=item.nodeid,
            settings=self._settings(marks),
            limits=marks.limits,
            inherited=marks.inherited,
            params=items.parameters(item),
            gpus=marks.gpus,
            source=items.source_hash(item),
        )
        test.leaving = LEAVING
        if (times := self._runs[item.nodeid]) > 1:
            test.warn(f"it was run {times} times: what is shown and kept is of the last")
        if (held := self.turns.held) is not None:
            test.neighbours, test.computing = held.neighbours, held.computing
        test.counters = self._counters(test.settings, test.limits)
        test.captures = functools.partial(self.counting.captures, item.nodeid)
        if (notes := self.counting.notes) is not None:
            test.note_capture = lambda place: write_note(notes, [item.nodeid, *place])
        if self.naming_notes is not None:
            test.note_what_breaks = functools.partial(write_note, self.naming_notes)
        else:
            test.find_what_broke = functools.partial(self.naming.what_broke, item.nodeid)
        test.past = functools.cache(functools.partial(self.compared.past_of, test))
        if test.settings.timer not in SAME_IN_EVERY_PROCESS:
            test.fresh = functools.cache(lambda number: self.confirming.record(item.nodeid))
        return test

    def counters_of(self, item: pytest.Item) -> frozenset[str]:
        """Return the counters that a test asks for; none where its marks are illegal."""
        if items.uses_fixture(item):
            with suppress(BadRequest):  # reported when the test is set up
                marks = items.merge_marks(item)
                return self._counters(self._settings(marks), marks.limits)
        return frozenset()

    def _counters(self, settings: Settings, limits: "Limits") -> frozenset[str]:
        """Return the counters that are taken of a test, whatever it measures."""
        wish = settings.counters
        if wish == "no" or settings.disable:
            return frozenset()
        named = wish.split(",") if wish not in COUNTER_WISHES else COUNTER_BY_NAME if wish == "all" else ()
        option = settings.compare and settings.compare_fail
        tolerance = parse_tolerance(option) if option is not None and limits.max_regression is None else None
        of_option = {tolerance.metric} if tolerance is not None and tolerance.is_on_counter else set()
        of_limits = frozenset(name for limit in limits for name in limit.counters)
        return of_limits | of_option | frozenset(map(str.strip, named))

    def _settings(self, marks: items.MergedMarks) -> Settings:
        return self.resolver.override(self.settings, marks.settings, "perf({}=...)")

    def _change_marks(self, test: "CurrentTest", marks: items.MergedMarks, old: items.MergedMarks) -> None:
        """Apply marks that were put on the running test; raise BadRequest if it is too late."""
        added = (
            f"{name}={repr_of(value)}" for name, value in marks.keywords.items() if old.keywords.get(name) != value
        )
        new = f"perf({', '.join(added)})"
        if test.measurements:
            raise BadRequest(f"{new} was put on the test after it had measured: put it on before")
        if marks.gpus != test.gpus:
            raise BadRequest(f"{new} was put on the running test, which holds its GPUs from its start on: decorate it")
        test.settings, test.limits = self._settings(marks), marks.limits
        test.counters = self._counters(test.settings, test.limits)

    def _decide(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Fail the test whose limits were not kept, however it ended; its own xfail mark may expect that."""
        self._is_reported = True
        test = self._test
        if test is not None and test.has_failed_part:
            return
        if not (test is not None and test.has_begun) and not (report.passed and items.is_perf(item)):
            return
        try:
            current = self.current_test()
            sentence = None if current is None else current.why_failed(report.failed)
        except BadRequest as error:
            sentence = str(error)
        if sentence is None:
            return
        if test is not None and test.expects_failure and hasattr(report, "wasxfail"):
            report.outcome = "skipped"  # which is how pytest says xfailed
            return
        report.gpu_bench_broken = sentence  # type: ignore[attr-defined]
        if not report.failed:
            fail(item, report, sentence)

    # its report

    def _report_interrupted(self, item: pytest.Item) -> None:
        """Report a test that broke a limit and ended the run, which pytest would not; keep the results of any other."""
        test = self._test
        if test is None or self._is_reported or not test.has_begun:
            return
        if not test.failures:
            self.results.keep(self._record(test))
            return
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", test.why_failed(), "call")
        report.gpu_bench_broken = str(test.failures[0])  # type: ignore[attr-defined]
        self._attach(item, report, test)
        item.ihook.pytest_runtest_logreport(report=report)

    def _record(self, test: "CurrentTest") -> TestRecord:
        return test.record(worker_name(), self.turns.record(), self.turns.warnings)

    def _attach(self, item: pytest.Item, report: pytest.TestReport, test: "CurrentTest") -> None:
        from pytest_gpubench.report.properties import median_properties

        if not report.failed and not test.has_failed_part:
            ending = None if hasattr(report, "wasxfail") else test.ending()
            report.gpu_bench_ending = "" if ending is None else ending.value  # type: ignore[attr-defined]
            if report.skipped:  # by xfail, as any other test with a broken limit fails
                for at, old in enumerate(test.measurements):
                    verdicts = [replace(each, enforced=False) if each.fails_test else each for each in old.verdicts]
                    test.measurements[at] = replace(old, verdicts=tuple(verdicts))
        record = self._record(test)
        report.gpu_bench = encode(record)  # type: ignore[attr-defined]
        properties = median_properties(record)
        report.user_properties += properties
        item.user_properties += properties  # JUnit takes them from the teardown's report, made from these
