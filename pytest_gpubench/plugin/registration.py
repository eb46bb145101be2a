"""The registration of the hooks of each subject."""

import pytest

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.plugin import containment
from pytest_gpubench.plugin.baseline import ComparedRun
from pytest_gpubench.plugin.collection import Collection
from pytest_gpubench.plugin.containment import ExitStatus
from pytest_gpubench.plugin.end_signals import EndSignals
from pytest_gpubench.plugin.failures import Failures
from pytest_gpubench.plugin.fresh_process import as_fresh_process
from pytest_gpubench.plugin.gpu_turn import GpuTurns
from pytest_gpubench.plugin.lifecycle import Lifecycle
from pytest_gpubench.plugin.missing import LeftOut, MissingTests
from pytest_gpubench.plugin.options import resolve, usage_error
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.save import OutputFiles
from pytest_gpubench.plugin.sessions import EarlierSessions
from pytest_gpubench.plugin.started_ahead import StartedAhead
from pytest_gpubench.plugin.sticky_error import StickyErrors
from pytest_gpubench.plugin.unfinished import UnfinishedRuns
from pytest_gpubench.plugin.workers import Workers

RUN = pytest.StashKey[Lifecycle]()


def register_hooks(config: pytest.Config) -> None:
    """Read the settings and register the hooks, once in a run."""
    if RUN in config.stash:
        return
    try:
        resolver = as_fresh_process(config) or resolve(config)
        settings, status = resolver.run, ExitStatus()
        results = Results(config, settings, status)
        earlier = EarlierSessions(config, resolver, status)
        compared = ComparedRun(config, settings, results, earlier)
        workers = Workers(config, settings)
        turns = GpuTurns(config, settings, workers.pin)
        failures = Failures(config, results)
        left_out = LeftOut(config)
        missing = MissingTests(config, settings, compared, results, left_out, status)
        files = OutputFiles(config, settings, results, compared, failures, earlier, missing, status)
        lifecycle = config.stash[RUN] = Lifecycle(config, resolver, turns, compared, results)
        plugins: dict[str, object] = {  # the hooks of the later are called first, and wrap those of the earlier
            "workers": workers,
            "turns": turns,
            "collection": Collection(config, settings, turns),
            "lifecycle": lifecycle,
            "counting": lifecycle.counting,
            "failures": failures,
            "files": files,
            "sessions": earlier,
            "baseline": compared,
            "missing": missing,
            "left_out": left_out,
            "results": results,
            "sticky_errors": StickyErrors(config),
            "unfinished": UnfinishedRuns(config, settings),
            "started_ahead": StartedAhead(config, turns, results),
            "end_signals": EndSignals(config, results, files),
        }
        if settings.scripts or settings.limits or settings.adopt:
            from pytest_gpubench.plugin.adopted import AdoptedScripts, AdoptedTests, LimitLines

            plugins |= {"scripts": AdoptedScripts(config, lifecycle)} if settings.scripts else {}
            plugins |= {"limits": LimitLines(config, settings.limits)} if settings.limits else {}
            plugins |= {"adopted": AdoptedTests()} if settings.adopt else {}
    except BadRequest as error:
        raise usage_error(error) from None
    containment.register(config, status, plugins)
