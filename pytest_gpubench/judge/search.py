"""Cases beside those that the spec lists, drawn by hypothesis, and shrunk where a candidate gets one wrong."""

from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.judgement import CaseJudgement
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.ready_case import ReadyCase
from pytest_gpubench.judge.spec import Case, Spec
from pytest_gpubench.judge.trial import Rules, Trial


def search(candidate: Candidate, spec: Spec, rules: Rules) -> CaseJudgement | None:
    """Return the judgement of the simplest drawn case that the candidate gets wrong; None where none was found."""
    from hypothesis import HealthCheck, Phase, Verbosity, given, settings

    found: list[tuple[Case, CaseJudgement]] = []

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
        if not found or found[0][1].status == "wrong":  # a process that has ended is not asked again
            judgement = Trial(candidate, ReadyCase.untimed(spec, case, candidate.device), rules).check()
            if judgement.status != "pass":
                found[:] = [(case, judgement)]
        if found and found[0][0] == case:
            raise Ended(found[0][1].status, found[0][1].reason)

    try:
        check()
    except Ended:
        return found[0][1]
    return None
