"""pytest's hooks: each takes what pytest gives, calls one thing of ours, and puts the answer back."""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_gpubench.errors import BadRequest, DeviceUnavailable, NotMeasured
from pytest_gpubench.limits import Limits
from pytest_gpubench.plugin import markers
from pytest_gpubench.plugin.collect import Gathering
from pytest_gpubench.plugin.gpu_turn import Reach, Turns
from pytest_gpubench.plugin.items import FIXTURE, parameter_text, parameters, source_hash, takes_turns, uses_fixture
from pytest_gpubench.plugin.options import add_options, resolve, resolve_early
from pytest_gpubench.plugin.save import Memory
from pytest_gpubench.plugin.sticky_error import Containment, JUnitFile
from pytest_gpubench.plugin.workers import Workers, auto_workers, is_becoming_worker, is_worker, pin_worker, worker_name
from pytest_gpubench.settings import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import TextIO

    from pytest_gpubench.fixture import GpuBench
    from pytest_gpubench.gpu.device import Device
    from pytest_gpubench.results.model import Measurement, TestRecord
    from pytest_gpubench.running_test import CurrentTest

WIDER_SCOPES = ("class", "module", "package", "session")
INTERPRETER_VARIABLE = "TRITON_INTERPRET"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every setting."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Do what must precede a conftest's imports: pin a worker to its GPU, or have Triton run without one."""
    from pytest_gpubench.gpu.visible import has_gpu_driver

    settings = resolve_early(early_config)
    if is_becoming_worker() and has_gpu_driver():
        with suppress(BadRequest, DeviceUnavailable):  # said when pytest is configured
            pin_worker(settings)
    on_cpu = settings.device == "cpu" or (settings.device == "auto" and not has_gpu_driver())
    if on_cpu and INTERPRETER_VARIABLE not in os.environ:
        os.environ[INTERPRETER_VARIABLE] = "1"
        early_config.add_cleanup(leave_interpreter)


def pytest_configure(config: pytest.Config) -> None:
    """Read the settings and register the marks and the hooks of each subject."""
    config.addinivalue_line("markers", markers.describe())
    config.addinivalue_line("markers", markers.describe_turn())
    try:
        resolver = resolve(config)
    except BadRequest as error:
        raise pytest.UsageError(str(error)) from None
    workers = Workers(config, resolver.run)
    run = Run(config, resolver)
    run.turns = Turns(config, resolver.run, workers.pin, Reach(takes_turns, run.device_of))
    run.gathering = Gathering(config, resolver.run)
    try:
        run.memory = Memory(config, resolver.run, run.gathering)
    except BadRequest as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[RUN] = run
    containment = Containment(run.is_worker, takes_turns)
    plugins = {"workers": workers, "turns": run.turns, "run": run, "memory": run.memory, "gathering": run.gathering}
    plugins |= {"containment": containment, "junit": JUnitFile(config)}
    for name, plugin in plugins.items():  # the later are outside of the earlier
        config.pluginmanager.register(plugin, f"gpu_bench_{name}")


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Let `-n auto` start one worker for each visible GPU."""
    return auto_workers(config)


def leave_interpreter() -> None:
    """Leave the environment as it was found."""
    os.environ.pop(INTERPRETER_VARIABLE, None)


@pytest.fixture(scope="session")
def gpu_bench(pytestconfig: pytest.Config) -> "GpuBench":
    """Measure GPU kernel time: ``gpu_bench(fn, *args, **kwargs)`` returns a ``Timing``.

    ``gpu_bench.measure(fn, args=, setup=, backward=, ...)`` takes everything else, ``gpu_bench.device`` is where to
    make the tensors. ``gpu_bench.compare(candidate, reference, args=)`` checks outputs and returns a ``Comparison``.
    Limits of the ``perf`` marker are held against every measurement of the test.
    """
    return pytestconfig.stash[RUN].bench()


class Run:
    """One pytest process: the test that is running in it, and the results that reached it."""

    def __init__(self, config: pytest.Config, resolver: Resolver) -> None:
        self.config = config
        self.resolver = resolver
        self.settings = resolver.run
        self.is_worker = is_worker(config)
        self.turns: Turns
        self.gathering: Gathering
        self.memory: Memory
        self._item: pytest.Item | None = None
        self._test: CurrentTest | None = None
        self._phase: Literal["setup", "call", "teardown"] = "setup"
        self._is_running = False
        """Whether the test's own function runs: what is reported then is a part of it, as a subtest."""
        self._wider_fixtures: list[str] = []
        self._bench: GpuBench | None = None
        self._terminal = open_terminal(config)
        self._device: Device | None = None
        self._device_error: str | None = None

    def bench(self) -> "GpuBench":
        """Return the fixture's object, one for the run: it finds the running test by itself, as @given needs it to."""
        if self._bench is None:
            from pytest_gpubench.fixture import GpuBench

            self._bench = GpuBench(self.current_test, self.resolver, self._progress())
        return self._bench

    def current_test(self) -> "CurrentTest | None":
        """Return what the fixture needs to know of the running test; None outside of tests."""
        if self._item is None:
            return None
        if self._test is None:
            self._test = self._new_test(self._item)
        elif self._test.demands != (demands := markers.merge_marks(self._item)):
            self._heed(demands, self._test)
        self._test.phase = self._phase
        self._test.wider_scopes = self._wider_fixtures
        return self._test

    # collection

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Mark the tests that use the fixture, so that `-m perf` and `-m "not perf"` are exact."""
        if uses_fixture(item) and item.get_closest_marker(markers.NAME) is None:
            item.add_marker(markers.NAME)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect what --gpu-bench-only and --gpu-bench-skip leave out."""
        if not (self.settings.only or self.settings.skip):
            return
        kept = [item for item in items if uses_fixture(item) == self.settings.only]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin to start the profiler while the first tests set themselves up."""
        has_perf_tests = any(uses_fixture(item) for item in session.items)
        if session.config.option.collectonly:
            return
        self.turns.prepare(session.items)
        if not has_perf_tests:
            return
        from pytest_gpubench.gpu.device import find_device

        try:
            self._device = find_device(self.settings.device)
        except Exception as error:  # a broken torch, say: every perf test says so at its setup, here nothing is lost
            self._device_error = str(error)
            return
        self._refuse_clocks(self._device)
        self.turns.sign_in(self._device)
        settings = self.settings
        in_background = settings.startup == "background" and settings.timer == "profiler" and not settings.disable
        if self._device.type == "cuda" and in_background:
            from pytest_gpubench.timing.profiler import start_in_background

            start_in_background(self._device)

    def pytest_report_collectionfinish(self) -> str | None:
        """Say what is measured with."""
        if self._device_error is not None:
            return f"gpu_bench: {self._device_error}"
        if self._device is None:
            return None
        from pytest_gpubench.report.terminal import header_line

        return header_line(self._device.facts, self.settings)

    # one test

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Know which test is running; keep what an interrupted one had measured."""
        self._item, self._test, self._phase = item, None, "setup"
        try:
            return (yield)
        except (KeyboardInterrupt, pytest.exit.Exception):
            self._keep_measured()
            raise
        finally:
            self._leave()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Refuse a test whose marks cannot be meant, or whose device is missing."""
        if self._phase == "teardown":
            self._test = None
        self._phase = "setup"
        item.user_properties = [each for each in item.user_properties if not each[0].startswith(f"{FIXTURE}.")]
        if item.get_closest_marker(markers.NAME) is None:
            return
        if refusal := self._refusal(item):
            pytest.fail(refusal, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test that has a limit and measured nothing, or was disturbed."""
        self._phase, self._is_running = "call", True
        try:
            with self._intercepting_examples(item):
                result = yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception):
            self._note_newcomers()
            raise
        finally:
            self._is_running = False
        if self._test is not None and self._test.lost:
            pytest.fail(
                f"the test passed, but in another thread a limit was broken: {self._test.lost[0]}", pytrace=False
            )
        if sentence := self._note_newcomers():
            pytest.fail(sentence, pytrace=False)
        if item.get_closest_marker(markers.NAME) is not None and not self.settings.disable:
            try:
                self._require_measurement()
            except BadRequest as error:
                pytest.fail(str(error), pytrace=False)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Note that the test has been judged."""
        self._phase = "teardown"

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """Note which fixture is being set up for more than one test."""
        if fixturedef.scope not in WIDER_SCOPES:
            return (yield)
        self._wider_fixtures.append(f"{fixturedef.argname!r} ({fixturedef.scope} scope)")
        try:
            return (yield)
        finally:
            self._wider_fixtures.pop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let the results travel in the report, which xdist carries from worker to controller."""
        report = yield
        if call.excinfo is not None and call.excinfo.errisinstance(NotMeasured):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {call.excinfo.value}")
        if report.when == "setup" and uses_fixture(item):
            report.gpu_bench_selected = True  # type: ignore[attr-defined] # pytest carries attributes it does not know
        ends_test = report.when == "call" or (report.when == "setup" and not report.passed)
        if ends_test and self._test is not None and self._test.measurements:
            self._attach(item, report, self._test)
        return report

    # what the hooks are made of

    def _refuse_clocks(self, device: "Device") -> None:
        """End the run before its first test where the clocks of no GPU are to be locked; a worker fails its tests."""
        if self.is_worker:
            return
        try:
            self.turns.refuse_clocks(device)
        except DeviceUnavailable as error:
            raise pytest.UsageError(str(error)) from None

    def _new_test(self, item: pytest.Item) -> "CurrentTest":
        from pytest_gpubench.running_test import CurrentTest

        demands = markers.merge_marks(item)
        test = CurrentTest(
            nodeid=item.nodeid,
            settings=markers.apply_settings(demands, self.resolver),
            limits=limits_of(demands),
            demands=demands,
            params={name: parameter_text(value) for name, value in parameters(item).items()},
            gpus=demands.gpus,
            source=source_hash(getattr(item, "obj", None)),
        )
        test.past = self.memory.past_of(test)
        return test

    def _heed(self, demands: markers.Demands, test: "CurrentTest") -> None:
        """Take what a fixture or the test itself marks it with; raise BadRequest where that comes too late."""
        if test.measurements:
            raise BadRequest(f"perf({limits_of(demands)}) was put on the test after it had measured: put it on before")
        if demands.gpus != test.gpus:
            raise BadRequest(
                f"perf({markers.GPUS}={demands.gpus}) was put on the running test, which holds its GPUs from its start "
                "on: decorate it"
            )
        test.settings, test.limits = markers.apply_settings(demands, self.resolver), limits_of(demands)
        test.demands = demands

    def _intercepting_examples(self, item: pytest.Item) -> "AbstractContextManager[None]":
        """Note what hypothesis calls a test with, if it does."""
        function = getattr(item, "obj", None)
        test = self.current_test() if uses_fixture(item) and hasattr(function, "hypothesis") else None
        if test is None:
            return nullcontext()
        from pytest_gpubench.search import intercepting_examples

        settings, fixtures = test.settings, getattr(item, "funcargs", {})
        return intercepting_examples(function, test.begin_example, fixtures, settings.given_oom, test.warnings.append)

    def _refusal(self, item: pytest.Item) -> str | None:
        """Return why a test cannot be run; None where it can."""
        try:
            test = self.current_test()
            if test is not None and uses_fixture(item) and not self.settings.disable:
                self._require_device(test)
        except (BadRequest, DeviceUnavailable) as error:
            return str(error)
        return None

    def _require_device(self, test: "CurrentTest") -> None:
        from pytest_gpubench.gpu.device import required_device

        test.device = required_device(test.settings.device, test.settings.require_gpu)

    def _note_newcomers(self) -> str | None:
        """Call INVALID what was measured while somebody else began to use the GPU, and return that; else None."""
        measured = self._test is not None and any(each.timing.measured for each in self._test.measurements)
        sentence = self.turns.newcomers() if measured else None
        if sentence is not None and self._test is not None:
            self._test.measurements[:] = [distrusted(each, sentence) for each in self._test.measurements]
            self.turns.warnings.append(sentence)
        return sentence

    def device_of(self, item: pytest.Item) -> "Device | None":
        """Return the device of the running test; None where it needs none, or there is none."""
        from pytest_gpubench.gpu.device import find_device

        test = self.current_test()
        if test is not None and uses_fixture(item):
            self._require_device(test)
            return test.device
        with suppress(DeviceUnavailable):
            return find_device(self.settings.device)
        return None

    def _require_measurement(self) -> None:
        test = self.current_test()
        if test is None or not test.limits:
            return
        compared = any(item.speedup is not None for item in test.measurements)
        measured = any(item.timing.measured for item in test.measurements)
        if compared or (measured and test.limits.min_speedup is None):
            return
        from pytest_gpubench.bench.plan import is_enforced

        reasons = [item.timing.unmeasured for item in test.measurements if not item.timing.measured]
        if not reasons:
            pytest.fail(f"perf({test.limits}) was never judged: {missing_call(test.limits)}", pytrace=False)
        reason = reasons[-1]
        if test.device is not None and is_enforced(test.settings, test.device):
            pytest.fail(f"perf({test.limits}) was never judged: {reason}", pytrace=False)
        test.warnings.append(f"perf({test.limits}) was not judged: {reason}")

    def _record(self, test: "CurrentTest") -> "TestRecord":
        from pytest_gpubench.bench.work import peaks_for
        from pytest_gpubench.gpu.device import find_device
        from pytest_gpubench.results.model import TestRecord

        device = test.device or find_device(test.settings.device)
        peaks = None
        if any(item.timing.measured for item in test.measurements):
            with suppress(Exception):  # what is only shown is never worth the record
                peaks = peaks_for(test.settings, device, test.limits)
        if peaks is not None and not peaks.memory and test.limits.min_peak_fraction is None:
            test.warn(f"not held against what the GPU can do at most: {'; '.join(peaks.remarks)}")
        return TestRecord(
            nodeid=test.nodeid,
            device=device.facts,
            worker=worker_name(),
            params=test.params,
            measurements=tuple(test.measurements),
            phases=tuple(test.phases),
            extra_info=test.extra_info,
            warnings=(*self.turns.warnings, *test.warnings),
            turn=self.turns.record(),
            source=test.source,
            search=str(test.search),
            peaks=peaks,
        )

    def _leave(self) -> None:
        """Let go of the test."""
        if self._test is not None:
            self._test.forget()
        self._item = self._test = None

    def _keep_measured(self) -> None:
        """Keep what a test that gets no report has measured."""
        if self._test is not None and self._test.measurements and self._phase != "teardown":
            self.gathering.keep(self._record(self._test))

    def _attach(self, item: pytest.Item, report: pytest.TestReport, test: "CurrentTest") -> None:
        from pytest_gpubench.report.properties import median_properties
        from pytest_gpubench.results.model import encode

        if self._is_running:
            test.has_failed_part = test.has_failed_part or report.failed
            self._explain(report)
            return
        if not report.failed and not test.has_failed_part:
            test.excuse(expected=hasattr(report, "wasxfail"))
        record = self._record(test)
        report.gpu_bench = encode(record)  # type: ignore[attr-defined] # pytest carries attributes it does not know
        properties = median_properties(record)
        report.user_properties += properties
        item.user_properties += properties  # JUnit takes them from the teardown's report, made from these
        self._explain(report)

    def _explain(self, report: pytest.TestReport) -> None:
        """Show what a failed test, or a failed part of it, measured."""
        from pytest_gpubench.report.terminal import report_section

        if report.failed and self._test is not None:
            report.sections.append(("gpu_bench", report_section(self._record(self._test))))

    def _progress(self) -> "Callable[[str], None]":
        from pytest_gpubench.report.progress import Progress

        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if self._terminal is None or reporter is None:
            return lambda text: None
        terminal, writer = self._terminal, self.config.get_terminal_writer()

        def write(text: str) -> None:
            terminal.write(text)
            terminal.flush()

        return Progress(write, lambda: writer.fullwidth - writer.width_of_current_line).say


def open_terminal(config: pytest.Config) -> "TextIO | None":
    """Return the terminal behind stdout, past pytest's capturing; None where there is none to show progress on."""
    if hasattr(config, "workerinput") or config.getoption("capture", "no") == "no" or not sys.stdout.isatty():
        return None
    terminal = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    config.add_cleanup(terminal.close)
    return terminal


RUN = pytest.StashKey[Run]()


def distrusted(measurement: "Measurement", sentence: str) -> "Measurement":
    """Return a measurement that is called INVALID."""
    import msgspec

    from pytest_gpubench.results.model import VALIDITY, Outcome, Verdict

    verdict = Verdict(kind=VALIDITY, asked="nobody else on the GPU", outcome=Outcome.INVALID, sentence=sentence)
    return msgspec.structs.replace(measurement, verdicts=(*measurement.verdicts, verdict))


def limits_of(demands: markers.Demands) -> Limits:
    """Return the limits that the marks of a test set."""
    return Limits(**demands.limits)  # type: ignore[arg-type] # it checks its arguments itself


def missing_call(limits: Limits) -> str:
    """Return what a test with these limits did not do, and how to."""
    if limits.min_speedup is None:
        return "the test measured nothing; call gpu_bench(...) in it"
    return "the test compared nothing; call gpu_bench.compare(candidate, reference, ...) in it"
