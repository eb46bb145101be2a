"""The lines around the table: the header, the measurements, the warnings, the verdicts."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pytest_gpubench import __version__
from pytest_gpubench.report.crossover import compared_steps, where_faster
from pytest_gpubench.report.remedies import MOST_TESTS_NAMED, remedy_lines
from pytest_gpubench.report.rows import change_word, past_verdict, verdicts_of
from pytest_gpubench.report.sweeps import sweeps_of
from pytest_gpubench.results.model import DeviceFacts, Outcome, TestRecord, Timing, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import cache_words
from pytest_gpubench.stats.speedup import LOOKS
from pytest_gpubench.stats.stopping import MAX_REPS
from pytest_gpubench.units import count, first_few, printable, safe_line
from pytest_gpubench.verdict.limits import BY_NAME as LIMIT_BY_NAME

DIGITS = re.compile(r"(?<!\w)\d[\d.,]*")
MOST_WARNINGS = 3
"""Warnings of one test that are shown: under @given there can be one for each example."""
MOST_LINES = 20
"""Warnings of a run's tests that are shown without --gpu-bench-verbose."""


def header_line(facts: DeviceFacts | None, settings: Settings, gpus: int = 1) -> str:
    """Return the line of pytest's header: version, device, driver, cache state, timer."""
    parts = [__version__]
    if facts is not None:
        parts.append(facts.name if gpus == 1 else f"{gpus} x {facts.name}")
        if facts.type == "cpu":
            parts.append("no GPU used: " + ("the CPU was asked for" if settings.device == "cpu" else "none found"))
        if facts.driver:
            parts.append(f"driver {facts.driver}")
        if facts.nvml_error:
            parts.append(f"clocks and throttling not watched: {facts.nvml_error}")
    timer = "wall" if facts is not None and facts.type == "cpu" and settings.timer != "scripted" else settings.timer
    cache = f"{settings.cache} {'L2' if facts is None or facts.type == 'cuda' else 'cache'}"
    if settings.disable:
        return safe_line(f"gpu_bench: {', '.join(parts)}, switched off")
    return safe_line(f"gpu_bench: {', '.join([*parts, cache, timer])}")


def summary_lines(records: Sequence[TestRecord], settings: Settings) -> list[str]:
    """Return the lines on devices, unmeasured calls, warnings, comparisons and, last, verdicts."""
    lines = list(_measured_lines(records))
    items = (item for record in records for item in record.measurements)
    reasons = Counter(item.timing.unmeasured for item in items if item.timing.unmeasured and not item.why_invalid)
    lines += [f"gpu_bench: not measured: {count(number, 'call')}, {reason}" for reason, number in reasons.items()]
    warnings = _warning_lines(records, settings.verbose)
    lines += [f"gpu_bench: warning: {text}" for text in dict.fromkeys([*warnings, *remedy_lines(records)])]
    lines += compared_lines(records)
    lines += [f"gpu_bench: {line}" for line in _crossover_lines(records, settings.verbose, settings.group_by)]
    outcomes = Counter((verdict.outcome, verdict.enforced) for verdict in verdicts_of(records))
    if outcomes:
        on_cpu = all(record.device.type == "cpu" for record in records)
        remedy = _what_decides(records, settings, on_cpu)
        lines.append(f"gpu_bench: limits: {_outcome_words(outcomes, remedy, settings, on_cpu)}")
    return lines


def _warning_lines(records: Sequence[TestRecord], everything: bool) -> list[str]:
    """Return the tests' own warnings: of those alike, for other tests, functions and numbers, one, and their number.

    everything: each of them, by its test.
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        own: dict[str, list[str]] = {}
        named = {printable(record.nodeid), *(item.timing.label for item in record.measurements)} - {""}
        names = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(named, key=len, reverse=True))
        for text in dict.fromkeys(record.warnings):
            key = f"{record.nodeid}: {text}" if everything else DIGITS.sub("", re.sub(names, "", text))
            own.setdefault(key, []).append(text)
        most = len(own) if everything else MOST_WARNINGS
        for key, texts in list(own.items())[:most]:
            alike.setdefault(key, []).extend((record.nodeid, text) for text in texts)
        if (more := len(own) - most) > 0:
            alike.setdefault("more", []).append((record.nodeid, f"{more} more like this"))
    lines = list(map(_line_of, alike.values()))
    if everything or len(lines) <= MOST_LINES:
        return lines
    return [*lines[:MOST_LINES], f"{count(len(lines) - MOST_LINES, 'more warning')} (--gpu-bench-verbose shows all)"]


def _line_of(found: Sequence[tuple[str, str]]) -> str:
    """Return one line for warnings that are alike, each with its test."""
    (nodeid, text), *others = dict.fromkeys(found)
    name = printable(nodeid)
    if not others:
        return text if text.startswith((f"{name} ", f"{name}: ")) else f"{name}: {text}"
    tests = list(dict.fromkeys(printable(nodeid) for nodeid, _ in found))
    named = f"{count(len(tests), 'test')} ({first_few(tests, MOST_TESTS_NAMED)})"
    if all(other == text for _, other in others):
        return f"in {named}: {text}"
    return f"{len(found)} times in {named}, first: {text} (--gpu-bench-verbose shows all)"


def compared_lines(records: Sequence[TestRecord]) -> list[str]:
    """Return a line on the tests that were compared with saved runs: how many, and how many changed."""
    measured = {record.nodeid for record in records if any(item.timing.measured for item in record.measurements)}
    changed = [(record.nodeid, item) for record in records for item in record.measurements if item.change is not None]
    if not changed:
        return []
    names = ", ".join(dict.fromkeys(printable(item.change.baseline) for _, item in changed if item.change is not None))
    tests: dict[str, set[str]] = {"slower": set(), "faster": set(), "": set(), "too slow": set()}
    for nodeid, item in changed:
        if item.role != "reference":
            tests[change_word(item)].add(nodeid)
            verdict = past_verdict(item)
            tests["too slow"] |= {nodeid} if verdict is not None and verdict.outcome is Outcome.FAIL else set()
    told = [f"{len(tests[word])} {word}" for word in ("slower", "faster") if tests[word]]
    if tests["too slow"]:
        told[0] += f" ({len(tests['too slow'])} by more than is tolerated)"
    whole = f"{len({nodeid for nodeid, _ in changed})} of {count(len(measured), 'test')}"
    return [f"gpu_bench: compared with {names}: {', '.join([whole, *(told or ['none slower or faster'])])}"]


def _measured_lines(records: Sequence[TestRecord]) -> Iterator[str]:
    """Yield a line on the measurements of each device, in the order of the run."""
    devices: dict[str, list[tuple[str, Timing]]] = {}
    for record in records:
        where = f"{record.device.name} (GPU)" if record.device.type == "cuda" else f"the CPU, {record.device.name}"
        timed = [(record.nodeid, item.timing) for item in record.measurements if item.timing.measured]
        devices.setdefault(where, []).extend(timed)
    for where, timings in devices.items():
        ways = Counter(f"{timing.timer} timer, {cache_words(timing.cache)}" for _, timing in timings)
        how = "; ".join(f"{number} with {way}" if len(ways) > 1 else way for way, number in ways.items())
        tests = count(len({nodeid for nodeid, _ in timings}), "test")
        if timings:
            seconds = sum(timing.elapsed_s for _, timing in timings)
            yield f"gpu_bench: {count(len(timings), 'measurement')} in {tests} on {where}: {how}; {seconds:.1f} s"


def _what_decides(records: Iterable[TestRecord], settings: Settings, on_cpu: bool) -> str:
    """Return what decides limits that are INCONCLUSIVE by the number of reps; empty where there are none.

    A broken limit ends its test before others are decided; counters and changes say themselves what they lack.
    """
    has_room = [
        settings.reps is not None or item.timing.reps < (2 * LOOKS[-1] if item.speedup else MAX_REPS)
        for record in records
        if not any(each.fails_test for item in record.measurements for each in item.verdicts)
        for item in record.measurements
        if any(map(_is_for_reps, item.verdicts))
    ]
    more = "--gpu-bench-budget-s, reps= where a test gives it" if settings.reps is None else "--gpu-bench-reps"
    most = f"give --gpu-bench-reps more than {MAX_REPS:,} reps, {2 * LOOKS[-1]:,} to compare"
    ways = f"raise {more}" if any(has_room) else most
    return f" ({ways}, or look for what disturbs the {'CPU' if on_cpu else 'GPU'})" if has_room else ""


def _is_for_reps(verdict: Verdict) -> bool:
    """Tell whether a verdict is INCONCLUSIVE and on a limit that reps decide."""
    is_noisy = verdict.kind in LIMIT_BY_NAME and LIMIT_BY_NAME[verdict.kind].is_noisy
    return verdict.enforced and verdict.outcome is Outcome.INCONCLUSIVE and is_noisy


def _outcome_words(outcomes: Counter[tuple[Outcome, bool]], remedy: str, settings: Settings, on_cpu: bool) -> str:
    remedies = {Outcome.INCONCLUSIVE: remedy, Outcome.INVALID: " (no number that can be trusted)"}
    enforced, unenforced = ({each: outcomes[each, flag] for each in Outcome} for flag in (True, False))
    words = [f"{number} {each.value}{remedies.get(each, '')}" for each, number in enforced.items() if number]
    groups = [", ".join(words)] if words else []
    fell_back = on_cpu and settings.device != "cpu" and settings.timer != "scripted"
    if fell_back and any(unenforced.values()):
        fails = unenforced[Outcome.FAIL] + unenforced[Outcome.INVALID]
        judged = unenforced[Outcome.PASS] + unenforced[Outcome.INCONCLUSIVE] + fails
        would = f"{judged} would be judged with --gpu-bench-device=cpu, {fails or 'none'} of them would fail"
        unjudged = f"; {unenforced[Outcome.NOT_JUDGED]} not judged on a CPU" if unenforced[Outcome.NOT_JUDGED] else ""
        groups.append(f"no GPU was found: {would}{unjudged}")
    elif any(unenforced.values()):
        words = [f"{number} {each.value}" for each, number in unenforced.items() if number]
        groups.append(f"{', '.join(words)} (not enforced: expected to fail)")
    return "; ".join(groups)


def _crossover_lines(records: Iterable[TestRecord], everything: bool, group_by: str) -> list[str]:
    """Return a line for each candidate whose speedup crosses 1 along a parameter of its test.

    `softmax over torch by n, faster from n=2048 on: 512 0.81x, 1024 0.97x?, 2048 1.21x`. The intervals decide; where
    one holds 1, the ratio has a question mark, and the size is neither faster nor slower.

    everything: what crosses nothing too. group_by: as --gpu-bench-group-by; "param:n" leaves out the other parameters.
    """
    wanted = group_by.removeprefix("param:") if group_by.startswith("param:") else None
    shown = [
        (sweep, series, steps)
        for sweep in sweeps_of(records)
        for series, steps in compared_steps(sweep).items()
        if wanted in (None, sweep.param) and (everything or {True, False} <= {step.is_faster for step in steps})
    ]
    titles = [
        f"{each.label} over {each.reference} by {sweep.param}{f' at {each.fixed}' if each.fixed else ''}"
        for sweep, each, _ in shown
    ]
    lines = []
    for title, (sweep, _, steps) in zip(titles, shown, strict=True):
        where = f"{sweep.test} ({sweep.device}, {sweep.timer}, {sweep.cache}): " if titles.count(title) > 1 else ""
        lines.append(f"{where}{title}, {where_faster(steps, sweep.param)}: {', '.join(map(str, steps))}")
    return lines
