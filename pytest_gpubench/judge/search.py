"""Drawn cases: is a candidate right for others than those that the spec lists? Hypothesis draws, and shrinks."""

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.judgement import CaseJudgement
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.ready_case import ReadyCase
from pytest_gpubench.judge.spec import Case, Spec
from pytest_gpubench.judge.trial import Rules, Trial

__tracebackhide__ = True


def search(candidate: Candidate, spec: Spec, device: Device, rules: Rules) -> CaseJudgement | None:
    """Return the judgement of the simplest drawn case that the candidate gets wrong; None where none was found."""
    from hypothesis import HealthCheck, Phase, Verbosity, given, settings

    found: dict[str, CaseJudgement] = {}

    @settings(
        max_examples=rules.drawn,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(case=spec.search)
    def check(case: Case) -> None:
        name = str(case)
        if not found or next(iter(found.values())).status == "wrong":
            judgement = _judged(candidate, spec, case, device, rules)
            if judgement.status != "pass":
                found.clear()
                found[name] = judgement
        if name in found:  # a process that has ended is not asked again
            raise Ended(found[name].status, found[name].reason)

    try:
        check()
    except Ended:
        return next(iter(found.values()))
    return None


def _judged(candidate: Candidate, spec: Spec, case: Case, device: Device, rules: Rules) -> CaseJudgement:
    """Return the judgement of a case by its outputs alone."""
    return Trial(candidate, ReadyCase.untimed(spec, case, device), rules).check()
