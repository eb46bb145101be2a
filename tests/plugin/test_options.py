import ast
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.plugin.hooks import pytest_addoption
from pytest_gpubench.plugin.options import resolve
from pytest_gpubench.settings import GROUPS, ROWS, Resolver, Settings
from tests.plugin.conftest import BenchRun

MARKED = [name for name, row in ROWS.items() if row.in_marker]
TEXTS = """
    device=cpu require=all lock_folder=/tmp/locks busy=fail timer=wall cache=hot inconclusive=fail throttled=warn
    given_oom=fail startup=lazy resources=limits json=run.json storage=kept save_calls=no compare=main sort=median
    compare_fail=median:5% missing_baseline=ignore host_mismatch=warn missing=fail markdown=run.md html=run.html
    trace=traces plot=charts group_by=param:size time_unit=ms
"""
SWITCHES = "require_gpu strict autosave trust_calls disable adopt only skip verbose quiet"
OTHER_VALUES: dict[str, tuple[str, object]] = {
    "lock_timeout": ("2.5", 2.5),
    "lock_clocks": ("1410", 1410),
    "reps": ("7", 7),
    "warmup": ("0", 0),
    "precision": ("2%", 0.02),
    "budget_s": ("2.5", 2.5),
    "alpha": ("0.01", 0.01),
    "given_budget_s": ("2.5", 2.5),
    "seed": ("7", 7),
    "save": (" main ", "main"),
    "sessions": ("5", 5),
    "counters": ("instructions, atomics", "instructions, atomics"),
    "scripts": ("test_*.py", ("test_*.py",)),
    "limits": ("*: max_time_us=40", "*: max_time_us=40"),
    "columns": ("median, reps", ("median", "reps")),
    **dict.fromkeys(SWITCHES.split(), ("true", True)),
    **{name: (text, text) for name, text in (each.split("=") for each in TEXTS.split())},
}

SHOW_ALL = """
def pytest_collection_finish(session):
    from pytest_gpubench.plugin.registration import RUN
    from pytest_gpubench.settings import ROWS
    settings = session.config.stash[RUN].settings
    print("\\nVALUES", {name: getattr(settings, name) for name in ROWS})
"""


def shown(pytester: pytest.Pytester, *arguments: str) -> dict[str, object]:
    pytester.makeconftest(SHOW_ALL)
    pytester.makepyfile("def test_nothing(): pass")
    lines = pytester.runpytest("--collect-only", "-q", "-s", *arguments).stdout.lines
    values: dict[str, object] = ast.literal_eval(
        next(line for line in lines if line.startswith("VALUES ")).partition(" ")[2]
    )
    return values


def resolved(
    arguments: Sequence[str] = (), ini: Mapping[str, str] = MappingProxyType({}), **others: object
) -> Resolver:
    """Return what a run with these flags and this ini file is set to."""
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    config = SimpleNamespace(option=parser.parse_known_args(arguments), getini=ini.get, inicfg=ini, **others)
    return resolve(cast(Any, config))


def flag_name(name: str) -> str:
    return f"--gpu-bench-{name.replace('_', '-')}"


def flag(name: str, text: str) -> str:
    return flag_name(name) if OTHER_VALUES[name][1] is True else f"{flag_name(name)}={text}"


def test_the_table_of_other_values_is_complete() -> None:
    assert set(OTHER_VALUES) == set(ROWS)
    assert all(value != getattr(Settings(), name) for name, (_, value) in OTHER_VALUES.items())


@pytest.mark.parametrize("name", ROWS)
def test_every_setting_works_in_every_spelling(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text, value = OTHER_VALUES[name]
    assert getattr(resolved([flag(name, text)]).run, name) == value
    assert getattr(resolved(ini={f"gpu_bench_{name}": text}).run, name) == value
    monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", text)
    assert getattr(resolved().run, name) == value


def test_a_worker_on_another_host_has_other_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the controller that is absent there is no error, as a worker writes no files."""
    monkeypatch.setenv("GPU_BENCH_HTML", "absent/page.html")
    assert resolved(workerinput={}).run.html == "absent/page.html"
    with pytest.raises(BadRequest, match=r"^GPU_BENCH_HTML: 'absent/page.html' is not valid, there is no folder "):
        resolved()


def test_pytest_reads_every_setting(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third by flags, a third from the environment, and a third from the ini file."""
    changes_others = {"skip", "disable", "quiet", "strict"}
    names = [name for name in ROWS if name not in changes_others]
    pytester.makeini("\n".join(["[pytest]", *(f"gpu_bench_{each} = {OTHER_VALUES[each][0]}" for each in names[::3])]))
    for name in names[1::3]:
        monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", OTHER_VALUES[name][0])
    flags = [flag(name, OTHER_VALUES[name][0]) for name in names[2::3]]
    values = shown(pytester, *flags)
    assert {name: values[name] for name in names} == {name: OTHER_VALUES[name][1] for name in names}


NATIVE = {
    "reps": ("7", 7),
    "budget_s": ("2.5", 2.5),
    "alpha": ("0.01", 0.01),
    "cache": ('"hot"', "hot"),
    "autosave": ("true", True),
    "verbose": ("false", False),
    "columns": ('["median", "reps"]', ("median", "reps")),
}


@pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="older versions of pytest have no native TOML")
def test_native_toml_has_values_of_its_own_types(pytester: pytest.Pytester) -> None:
    """One of a wrong type names its key."""
    lines = [f"gpu_bench_{name} = {text}" for name, (text, _) in NATIVE.items()]
    pytester.makepyprojecttoml("\n".join(["[tool.pytest]", *lines]))
    values = shown(pytester)
    assert {name: values[name] for name in NATIVE} == {name: value for name, (_, value) in NATIVE.items()}
    pytester.makepyprojecttoml("[tool.pytest]\ngpu_bench_reps = true")
    pytester.runpytest().stderr.fnmatch_lines(["ERROR: ini key gpu_bench_reps: 'true' is not valid, it must be a*"])


def test_flag_beats_environment_beats_ini(monkeypatch: pytest.MonkeyPatch) -> None:
    ini, flags = {"gpu_bench_reps": "3"}, ["--gpu-bench-reps=5"]
    assert resolved(ini=ini).run.reps == 3
    monkeypatch.setenv("GPU_BENCH_REPS", "4")
    assert [resolved(ini=ini).run.reps, resolved(flags, ini).run.reps, resolved(flags).run.reps] == [4, 5, 5]
    monkeypatch.setenv("GPU_BENCH_REPS", "")
    assert resolved().run.reps is None


STRICT, PASSES = {"gpu_bench_strict": "true"}, {"gpu_bench_inconclusive": "pass"}
FLAG = "--gpu-bench-strict"


@pytest.mark.parametrize(
    ("ini", "environment", "flags", "mark", "value"),
    [
        (STRICT, "", [], {}, "fail"),
        ({}, "STRICT=1", [], {}, "fail"),
        ({}, "", [FLAG], {}, "fail"),
        (STRICT, "STRICT=0", [], {}, "warn"),
        (STRICT | PASSES, "", [], {}, "pass"),
        (STRICT, "INCONCLUSIVE=pass", [], {}, "pass"),
        (PASSES, "", [FLAG], {}, "fail"),
        ({}, "", [FLAG, "--gpu-bench-inconclusive=pass"], {}, "pass"),
        (STRICT, "", [], {"inconclusive": "pass"}, "pass"),
        ({}, "", [FLAG], {"inconclusive": "pass"}, "fail"),
    ],
)
def test_strict_counts_as_much_as_where_it_is_given(
    monkeypatch: pytest.MonkeyPatch, ini: Any, environment: str, flags: list[str], mark: Any, value: str
) -> None:
    """And less than a finer setting beside it."""
    name, _, text = environment.partition("=")
    monkeypatch.setenv(f"GPU_BENCH_{name}", text)
    resolver = resolved(flags, ini)
    assert resolver.override(resolver.run, mark, "perf({}=...)").inconclusive == value


BAD = {
    "reps=many": "'many' is not valid, it must be a whole number",
    "budget-s=-1": "'-1' is not valid, it must be above 0 and finite",
    "budget-s=inf": "'inf' is not valid, it must be above 0 and finite",
    "precision=150%": "'150%' is not valid, it must be below 1 (or 100%)",
    "timer=stopwatch": "'stopwatch' is not valid, it must be one of profiler*",
    "columns=median,mode": "'median,mode' is not valid, it must be a comma*",
    "columns=,": "',' is not valid, it must be a comma-separated list of*",
    "group-by=param:n,func": "'param:n,func' is not valid*",
    "compare-fail=5%": "'5%' is no tolerance: write speedup|*",
    "counters=some": "'some' is no counter: use one of instructions, *",
    "require=0": "'0' is not valid, it must be at least 1, or all",
    "require=some": "'some' is not valid, it must be a whole number, or all",
    "lock-clocks=fast": "'fast' is not valid, it must be a whole number of MHz above 0, or one*",
}
CONTRADICT = ["require=3 skip", "require=3 disable", "only skip", "verbose quiet", "only disable", "strict skip"]


def test_a_bad_option_gets_a_sentence() -> None:
    told = {
        f"--gpu-bench-{text}": f"--gpu-bench-{text.partition('=')[0]}: {sentence}" for text, sentence in BAD.items()
    }
    for first, second in (each.split() for each in CONTRADICT):
        sentence = f"--gpu-bench-{first.removesuffix('=3')} and --gpu-bench-{second} contradict each other*"
        told[f"--gpu-bench-{first} --gpu-bench-{second}"] = sentence
    for arguments, sentence in told.items():
        with pytest.raises(BadRequest) as error:
            resolved(arguments.split())
        assert fnmatchcase(str(error.value), sentence)


def test_a_bad_environment_or_ini_names_its_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match=r"^ini key gpu_bench_cache: 'lukewarm' is not valid, .*one of cold"):
        resolved(ini={"gpu_bench_cache": "lukewarm"})
    monkeypatch.setenv("GPU_BENCH_CACHE", "tepid")
    with pytest.raises(BadRequest, match=r"^GPU_BENCH_CACHE: 'tepid' is not valid"):
        resolved()


@pytest.mark.parametrize("name", MARKED)
def test_an_explicit_option_overrules_a_marker(name: str) -> None:
    """On a command line all is text; a marker or a call that gives a number as one means something else."""
    text, value = OTHER_VALUES[name]
    found = Resolver(Settings(), frozenset())
    assert getattr(found.override(found.run, {name: value}, "perf({}=...)"), name) == value
    given = Resolver(Settings(), frozenset({name}))
    assert getattr(given.override(given.run, {name: value}, "perf({}=...)"), name) == getattr(Settings(), name)
    if not isinstance(value, str):
        sentence = rf"^perf\({name}=...\): '{text}' is not valid, it must be a number, not a text$"
        with pytest.raises(BadRequest, match=sentence):
            found.override(found.run, {name: text}, "perf({}=...)")


def test_help_names_every_flag_and_default(pytester: pytest.Pytester) -> None:
    text = re.sub(r"\s+", " ", pytester.runpytest("--help").stdout.str())
    assert [title for title in GROUPS.values() if f"gpu_bench, {title}:" not in text] == []
    for name, row in ROWS.items():
        assert flag_name(name) in text
        assert f"as {flag_name(name)}" in text.split(f"gpu_bench_{name} (")[1]
        assert re.sub(r"\s+", " ", row.help.replace("%%", "%")) in text
    assert "another one to leave the GPU or CPU [3600]" in text
    assert all(odd not in text for odd in ("gpu_bench [False]", "[None]", "--gpu-bench-max-time"))


def test_a_misspelled_ini_key_is_refused() -> None:
    assert resolved(ini={"gpu_bench_reps": "3", "gpu_bench_runner": "a", "reps": "b"}).run.reps == 3
    with pytest.raises(BadRequest, match=r"^gpu_bench_strickt is no setting: did you mean gpu_bench_strict\?"):
        resolved(ini={"gpu_bench_strickt": "true"})


def test_a_misspelled_option_is_refused_with_the_right_one(bench_run: BenchRun) -> None:
    result = bench_run("", "--gpu-bench-runner", "--rep=3")
    result.stderr.fnmatch_lines(["*: error: unrecognized arguments: --gpu-bench-runner --rep=3"])
    result = bench_run("", "--gpu-bench-rep=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gpu-bench-rep is no setting: did you mean --gpu-bench-reps[?] *"])
