"""What is said meanwhile, and what is printed of all of it in the end."""

import sys
from collections.abc import Sequence

from pytest_gpubench.results.model import Outcome
from pytest_gpubench.units import count, printable
from pytest_gpubench.verdict.saved_runs import Finding

ORDER = (Outcome.FAIL, Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED, Outcome.PASS)


def say(sentence: str) -> None:
    """Say what goes on, on stderr: stdout is for the verdicts."""
    print(f"gpu_bench: {sentence}", file=sys.stderr, flush=True)


def report_lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, the worst first, and a line of how many there are of each."""
    ordered = sorted(findings, key=lambda each: ORDER.index(each.outcome))
    width = max(len(outcome.value) for outcome in ORDER)
    lines = [f"{each.outcome.value.upper():{width}}  {_name(each)}: {printable(each.sentence)}" for each in ordered]
    compared = sum(each.change is not None for each in findings)
    numbers = [(sum(each.outcome is outcome for each in findings), outcome.value) for outcome in ORDER]
    words = ", ".join(f"{number} {value}" for number, value in numbers if number)
    if not compared:
        return [*lines, "gpu_bench: nothing was compared: no measurement is in both versions"]
    return [*lines, f"gpu_bench: {count(compared, 'measurement')} compared: {words}"]


def exit_status(findings: Sequence[Finding]) -> int:
    """Return 1 where something failed, 2 where nothing was compared, 1 where something is INVALID, else 0."""
    outcomes = {each.outcome for each in findings}
    if Outcome.FAIL in outcomes:
        return 1
    return int(Outcome.INVALID in outcomes) if any(each.change is not None for each in findings) else 2


def _name(finding: Finding) -> str:
    label = f" [{finding.label}]" if finding.label else ""
    return printable(f"{finding.nodeid}{label}")
