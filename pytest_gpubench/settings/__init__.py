"""The settings: one row each, from which flag, ini key, environment name, help and the table of the page are derived.

A setting is looked up as: built-in default < ini < environment < `perf` marker < keyword of the call < explicit option.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from pytest_gpubench import metrics
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import parsers
from pytest_gpubench.settings.cache import Cache, CacheName, Producer
from pytest_gpubench.settings.parsers import row_of, setting
from pytest_gpubench.units import repr_of

TABLE_COLUMNS = (*metrics.COLUMNS, "reference", "limit", "flags")
SORT_KEYS = ("none", "name", *metrics.COLUMNS)
ALMOST = 0.8
"""The likeness of two names, by difflib, from which on one counts as a misspelling of the other."""
LIMIT_TIME_S = 1.0
"""The longest time for the reps of a measurement with an undecided limit, by default."""
PRECISION_TIME_S = 0.1
"""The longest time for reps that precision alone asks for: about what Triton's do_bench takes for a number."""
HELD_UP_TIME_S = 5.0
"""The longest time for reps that are held up by others, as on a busy host, by default."""
SAVED_SESSIONS = 5
"""The sessions that a FAIL at alpha 0.001 needs of both runs: two modes part five from five once in 1,024 times."""
LOCK_FOLDER_NAME = "pytest-gpubench-locks"
TERMINAL = "-"
"""The value of `plot` that draws in the terminal."""
TimerName = Literal["profiler", "events", "graph", "wall", "scripted"]


@dataclass(frozen=True, eq=False)
class Settings:
    """Every setting of a run, resolved; durations are seconds."""

    device: Literal["auto", "cuda", "cpu"] = setting("auto", "the device to measure; auto is the GPU if there is one")
    require_gpu: bool = setting(False, "fail every perf test if there is no GPU")
    require: int | Literal["all"] | None = setting(
        None,
        "fail the run unless N tests, or all perf tests, measured on a GPU (or on a CPU that was asked for)",
        parsers.word_or(parsers.positive_count, "all"),
        "N|all",
    )
    lock_timeout: float = setting(
        3600.0,
        "fail a perf test that waits longer than this for another one to leave the GPU or CPU",
        parsers.seconds,
        "SECONDS",
    )
    lock_folder: str | None = setting(
        None, f"the folder of the devices' locks; unset, {LOCK_FOLDER_NAME} in the temp folder", metavar="FOLDER"
    )
    busy: Literal["warn", "accept", "wait", "fail"] = setting(
        "warn",
        "if somebody else computes on the GPU: warn, and call what that may have caused INVALID, accept all verdicts, "
        "wait up to lock-timeout, or fail the test",
    )
    lock_clocks: int | Literal["base", "max"] | None = setting(
        None,
        "hold the GPU's clocks at this during each perf test, for everybody who uses the GPU (needs administrator's "
        "rights)",
        parsers.word_or(parsers.megahertz, "base", "max"),
        "base|max|MHZ",
    )
    timer: str = setting(
        "profiler",
        "profiler: the sum of the GPU's own records; events: from the first kernel to the last, gaps included; graph: "
        "the same of a replayed CUDA graph; wall: the host's clock; scripted: given samples",
        parsers.choice(*get_args(TimerName)),
        "|".join(get_args(TimerName)),
        in_marker=True,
    )
    cache: Cache = setting(  # noqa: RUF009 # it returns a field
        "cold",
        "the caches before each rep: cold flushes the L2 cache by reading, dirty by writing (as other tools do), both "
        "fill a GPU's caches of instructions with other code, hot leaves them; "
        "tests may give a function that leaves data in the L2 cache",
        parsers.word_or(Producer, *get_args(CacheName)),
        "|".join(get_args(CacheName)),
        in_marker=True,
    )
    reps: int | None = setting(
        None, "take exactly N timed calls of each function", parsers.positive_count, "N", in_marker=True
    )
    warmup: int | None = setting(
        None,
        "make exactly N calls first; unset, as many as it takes until kernels and time are steady",
        parsers.whole_number_or_zero,
        "N",
        in_marker=True,
    )
    precision: float = setting(
        0.005,
        "stop when the median's 95 %% interval is no wider than this part of it",
        parsers.fraction,
        "FRACTION",
        in_marker=True,
    )
    budget_s: float | None = setting(
        None,
        f"stop taking reps after so many seconds (12 are taken anyhow); unset, {LIMIT_TIME_S:g} where a limit is "
        f"undecided, up to {HELD_UP_TIME_S:g} where busy processes hold up the calls, else {PRECISION_TIME_S:g}",
        parsers.seconds,
        "SECONDS",
        in_marker=True,
    )
    seed: int | None = setting(
        None,
        "draw the order in which functions are timed in turn from this seed; unset, from another one in each call, "
        "which a failure shows",
        parsers.seed_number,
        "N",
        in_marker=True,
    )
    startup: Literal["background", "lazy"] = setting(
        "background", "start the profiler in the background after collection, or when it is first needed"
    )
    alpha: float = setting(
        0.001,
        "the chance, at most, that a limit fails a test that keeps it",
        parsers.fraction,
        "FRACTION",
        in_marker=True,
    )
    strict: bool = setting(
        False,
        "let no limit pass without a verdict: fail what is INCONCLUSIVE or NOT JUDGED, missing in the saved run, or "
        "throttled, and a run that lacks a test of the saved one, or in which a perf test measured nothing; a setting "
        "given beside it still counts",
    )
    inconclusive: Literal["fail", "warn", "pass"] = setting(
        "warn", "if a limit could not be decided within the time budget", in_marker=True
    )
    throttled: Literal["fail", "warn"] = setting(
        "fail",
        "if the GPU was throttled and no clean reps could be had: call the verdict INVALID, or only warn",
        in_marker=True,
    )
    given_budget_s: float = setting(
        30.0,
        "time the examples of a test under @given for so many seconds in all, and as long again to shrink a failure; "
        "further examples are only checked",
        parsers.seconds,
        "SECONDS",
        in_marker=True,
    )
    given_oom: Literal["reject", "fail"] = setting(
        "reject",
        "if an example of @given does not fit into the GPU's memory: leave it out and say so, or let it fail",
        in_marker=True,
    )
    save: str | None = setting(
        None, "save the run's results under this name in the storage", parsers.saved_name, "NAME"
    )
    sessions: int | None = setting(
        None,
        "measure a run that is saved or compared so many times, each in a fresh process: how much processes differ "
        "decides how small a change can be told; unset, five times where it is saved under a name, else once",
        parsers.positive_count,
        "N",
    )
    autosave: bool = setting(False, "save the run's results under its commit and time")
    storage: str = setting(
        ".gpu_benchmarks", "the folder that runs are saved in, one for each GPU model", parsers.folder_path, "FOLDER"
    )
    save_calls: Literal["no", "triton", "all"] = setting(
        "triton",
        "keep the calls of a saved run beside its numbers, as data that later runs replay: triton keeps those whose "
        "kernels Triton compiled; all keeps those with kernels of libraries too",
        in_marker=True,
    )
    compare: str | None = setting(
        None,
        "compare with a saved run: its name, its number, the path of a file, or latest, which the option alone means",
        metavar="RUN",
        optional="latest",
    )
    compare_fail: str | None = setting(
        None,
        "fail a test that is slower than in the run compared with by more: median:5%%, speedup:3%%, mean:2us; "
        "of speedup, median, mean, q1, q3, or a counter: instructions:0.1%%",
        parsers.tolerance,
        "METRIC:AMOUNT",
    )
    trust_calls: bool = setting(False, "replay calls that another user or machine has saved too: they are code")
    missing_baseline: Literal["fail", "warn", "ignore"] = setting(
        "warn",
        "if the run compared with lacks a test, or the test itself has changed since; if there is no such run, what is "
        "limited by it fails unless this is ignore",
    )
    host_mismatch: Literal["error", "warn", "ignore"] = setting(
        "error",
        "if the run compared with is of another GPU model, timer or cache state; its times are never compared, error "
        "fails the test",
    )
    missing: Literal["fail", "warn", "ignore"] = setting(
        "warn",
        "if a test of the run compared with is not in this run, and no option or path of the command line leaves it "
        "out: fail the run, or name it at the end",
    )
    resources: Literal["auto", "limits"] = setting(
        "auto",
        "capture calls as CUDA graphs for the registers, memory and blocks of their kernels: auto in runs that are "
        "saved, compared or written, and of calls that fail; limits only where a limit needs them",
        in_marker=True,
    )
    counters: str = setting(
        "limits",
        "take counters, such as instructions, by ncu in a further process: of tests with a limit on one, on-fail of "
        "those that fail too, all of all tests, and a list of names these of all; no leaves such limits unjudged",
        parsers.word_or(parsers.counter_names, *parsers.COUNTER_WISHES),
        "no|limits|on-fail|all|LIST",
        in_marker=True,
    )
    json: str | None = setting(None, "write the run's results to this file", parsers.file_path, "PATH")
    markdown: str | None = setting(
        None,
        "write a summary in Markdown to this file; unset, to $GITHUB_STEP_SUMMARY if that is set",
        parsers.file_path,
        "PATH",
    )
    html: str | None = setting(None, "write a page with all results to this file", parsers.file_path, "PATH")
    plot: str | None = setting(
        None,
        "draw each sweep, a test that is parametrised over a number or a shape: the option alone in the terminal, with "
        "a folder as SVG files in it",
        parsers.output_folder,
        "FOLDER",
        optional=TERMINAL,
    )
    trace: str | None = setting(
        None,
        "write a Perfetto trace of a few more calls of every measured function, and summary.md, to this folder",
        parsers.output_folder,
        "FOLDER",
    )
    scripts: tuple[str, ...] | None = setting(
        None,
        "collect these benchmark scripts too, or alone where no path is given: a case of triton.testing.perf_report is "
        "a test, and any other script is one that measures what its timers time",
        parsers.several("patterns of files"),
        "PATTERNS",
    )
    adopt: bool = setting(
        False,
        "measure what the run's tests time by triton.testing, torch.utils.benchmark and pytest-benchmark; every test "
        "is a perf test then",
    )
    limits: str | None = setting(
        None,
        "mark tests that use gpu_bench by lines such as `bench_softmax.py: min_speedup=1.2`: a pattern of node ids, "
        "and keywords of the perf mark",
        metavar="LINES",
    )
    only: bool = setting(False, "run only the tests that use gpu_bench")
    skip: bool = setting(False, "run only the tests that do not use gpu_bench")
    disable: bool = setting(False, "call each function once and measure nothing")
    columns: tuple[str, ...] | None = setting(
        None,
        f"the columns after verdict, test and function, of {', '.join(TABLE_COLUMNS)}; unset, as many as the terminal "
        "has room for",
        parsers.several(", ".join(TABLE_COLUMNS), TABLE_COLUMNS),
        "LIST",
    )
    sort: str = setting("none", f"sort by one of {', '.join(SORT_KEYS)}", parsers.choice(*SORT_KEYS), "KEY")
    group_by: str = setting(
        "none", f"make a table for each {', '.join(parsers.GROUP_KEYS[1:])} or param:NAME", parsers.group_key, "KEY"
    )
    time_unit: Literal["auto", "ns", "us", "ms", "s"] = setting("auto", "the unit of time")
    verbose: bool = setting(False, "show every measurement, with its kernels")
    quiet: bool = setting(False, "show no table, only the line of what was measured on what")
    started_in: Path = field(default_factory=Path.cwd)
    """The folder that relative paths begin at, and no setting: a test may change the working directory."""

    def __post_init__(self) -> None:
        exclusive = "only skip", "only disable", "verbose quiet"
        ignored = "strict skip", "strict disable", "require skip", "require disable"
        for first, second in map(str.split, (*exclusive, *ignored)):
            if getattr(self, first) and getattr(self, second):
                raise BadRequest(f"{flag_name(first)} and {flag_name(second)} contradict each other: give one of them")

    @property
    def takes_times(self) -> bool:
        """True if anything is timed: nothing else needs a turn at the device."""
        return not self.disable and self.timer != "scripted"


class CallSettings(TypedDict, total=False):
    """The settings that a call of `gpu_bench` may choose; None leaves the test's."""

    reps: int | None
    warmup: int | None
    cache: CacheName | Callable[[], object] | None
    timer: TimerName | None
    precision: float | None
    budget_s: float | None


ROWS = {declared.name: row_of(declared) for declared in fields(Settings) if declared.metadata}
GROUPS = {
    "device": "where to measure",
    "timer": "how to measure",
    "alpha": "limits",
    "save": "saved runs",
    "json": "files",
    "scripts": "which tests to run",
    "columns": "the table",
}
"""The groups of settings, by their first."""
MARKER_SETTINGS = tuple(name for name, row in ROWS.items() if row.in_marker)
STRICT = {
    "inconclusive": "fail",
    "missing_baseline": "fail",
    "host_mismatch": "error",
    "missing": "fail",
    "throttled": "fail",
    "require": "all",
}
"""The values that `strict` chooses for other settings."""


def flag_name(name: str) -> str:
    """Return the command-line spelling of a setting."""
    return f"--gpu-bench-{name.replace('_', '-')}"


def ini_name(name: str) -> str:
    """Return the ini spelling of a setting."""
    return f"gpu_bench_{name}"


def environment_name(name: str) -> str:
    """Return the environment spelling of a setting."""
    return f"GPU_BENCH_{name.upper()}"


def parse_value(name: str, value: object, spelling: str) -> Any:
    """Parse the value of a setting, or raise BadRequest naming the spelling that gave it."""
    parse = ROWS[name].parse
    try:
        return parse(value if parse in parsers.NUMBERS or callable(value) else str(value))
    except ValueError as error:
        named = repr_of(value)
        said = str(error) if str(error).startswith(named) else f"{named} is not valid, {error}"
        raise BadRequest(f"{spelling}: {said}") from None


def with_strict(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values given at one place, as on the command line, with what `strict` chooses if it is on there."""
    is_strict = values.get("strict", "").lower() in parsers.ON
    return {**(STRICT if is_strict else {}), **values}


def refuse_misspelled(given: Iterable[str], spelling: Callable[[str], str] = environment_name) -> None:
    """Raise BadRequest for a name, of a variable say, that is almost a setting's: it would have no effect."""
    prefix = spelling("")
    names = {spelling(name).removeprefix(prefix) for name in ROWS}
    for each in given:
        name = each.removeprefix(prefix)
        if name != each and name not in names and (close := get_close_matches(name, names, 1, ALMOST)):
            raise BadRequest(f"{each} is no setting: did you mean {prefix}{close[0]}? Correct it, or leave it out")


def environment_settings() -> Settings:
    """Return the settings of the environment, for code outside of pytest; raise BadRequest for one that is wrong."""
    refuse_misspelled(os.environ)
    given = {name: text for name in ROWS if (text := os.environ.get(environment_name(name)))}
    return Settings(
        **{name: parse_value(name, text, environment_name(name)) for name, text in with_strict(given).items()}
    )


@dataclass(frozen=True)
class Resolver:
    """Resolve settings for the run, for a marker and for a call, each overruled by explicit options."""

    run: Settings
    explicit: frozenset[str]

    def override(self, settings: Settings, values: Mapping[str, object], spelling: str) -> Settings:
        """Return settings with a marker's or call's values in place, except where an option was given explicitly."""
        parsed = {}
        for name, value in values.items():
            if isinstance(value, str) and ROWS[name].parse in parsers.NUMBERS:  # which only options give as text
                raise BadRequest(f"{spelling.format(name)}: {value!r} is not valid, it must be a number, not a text")
            parsed[name] = parse_value(name, value, spelling.format(name))
        return replace(settings, **{name: value for name, value in parsed.items() if name not in self.explicit})
