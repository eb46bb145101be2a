"""The effect on a test of a limit that ended without PASS, FAIL or INVALID: decided here and nowhere else.

The table of `docs/ci.md` shows the same to users, and its test reads that table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from pytest_gpubench.limits import as_written
from pytest_gpubench.results.model import VALIDITY, Outcome, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.verdict.limits import BY_NAME, Limits

Action = Literal["fail", "warn", "ignore"]


class Ending(str, Enum):
    """The ways in which a limit can end without PASS, FAIL or INVALID."""

    INCONCLUSIVE = "inconclusive"
    NOT_JUDGED = "not judged"
    """The limit says nothing about this GPU or candidate, needs a GPU, or needs --gpu-bench-compare."""
    NO_RUN = "no run"
    """The run to compare with does not exist."""
    NO_TEST = "no test"
    """The run to compare with lacks the test, or the test has changed since."""
    OTHER_HOST = "host"
    """The run to compare with is of another GPU model, timer or cache state."""


@dataclass(frozen=True)
class Rule:
    """The effect of an ending on its test, and the setting that changes it."""

    action: Action
    remedy: str


ACTIONS: Mapping[str, Action] = {"fail": "fail", "error": "fail", "warn": "warn", "pass": "ignore", "ignore": "ignore"}
"""By the values of the settings."""


MISSING = {"host": Ending.OTHER_HOST, "no run": Ending.NO_RUN, "not asked": Ending.NOT_JUDGED}
"""By the kind of what a baseline lacks; NO_TEST for every other kind."""


def rule_for(ending: Ending, settings: Settings) -> Rule:
    """Return the effect of an ending on its test."""
    missing = settings.missing_baseline
    no_run = "ignore" if missing == "ignore" else "fail"
    value, remedy = {
        Ending.INCONCLUSIVE: (settings.inconclusive, "--gpu-bench-inconclusive=warn passes it with a warning"),
        Ending.NOT_JUDGED: ("fail" if settings.strict else "warn", "without --gpu-bench-strict it is a warning"),
        Ending.NO_RUN: (no_run, "for a first run, --gpu-bench-missing-baseline=ignore goes on without"),
        Ending.NO_TEST: (missing, "--gpu-bench-missing-baseline=warn goes on without"),
        Ending.OTHER_HOST: (settings.host_mismatch, "--gpu-bench-host-mismatch=warn goes on without"),
    }[ending]
    return Rule(ACTIONS[value], remedy)


def judged_limits(verdicts: Iterable[Verdict]) -> set[str]:
    """Return the limits that at least one measurement of a test was judged by, as `limit_judged` names them."""
    return {limit_judged(verdict) for verdict in verdicts if verdict.outcome is not Outcome.NOT_JUDGED}


def limit_judged(verdict: Verdict) -> str:
    """Return the name of a verdict's limit, which measurements may have in other forms; of a part the part."""
    limit = BY_NAME.get(verdict.kind)
    return verdict.limit if limit is not None and limit.has_parts else verdict.kind


def unjudged(limits: Limits, verdicts: Sequence[Verdict]) -> list[str]:
    """Return a sentence for each limit that no measurement of the test came to a verdict on."""
    judged, known = judged_limits(verdicts), {each.kind for each in verdicts}
    if VALIDITY in judged:
        return []
    sentences = {limit_judged(each): each.sentence for each in verdicts if limit_judged(each) not in judged}
    for limit in limits:
        if limit.parts() and limit.name not in known:
            sentences[limit.name] = f"perf({limit.name}={as_written(limit.asked)}) was not judged by any measurement"
    return list(sentences.values())
