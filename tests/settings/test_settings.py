"""What is refused says what would be legal."""

import contextlib
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.settings import ROWS, Resolver, Settings, environment_settings


def marked(**values: object) -> Settings:
    return Resolver(Settings(), frozenset()).override(Settings(), values, "it({})")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("reps", 1, 10**6),
        ("warmup", 0, 10**6),
        ("sessions", 1, 10**6),
        ("require", 1, 10**6),
        ("seed", 0, 2**63),
        ("budget_s", 1e-9, 1e6),
        ("given_budget_s", 1e-9, 1e6),
        ("lock_timeout", 1e-9, 1e6),
    ],
)
def test_a_number_has_bounds(monkeypatch: pytest.MonkeyPatch, name: str, least: float, most: float) -> None:
    def given(number: float) -> object:
        monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", str(number))
        return getattr(environment_settings(), name)

    assert [given(least), given(most)] == [least, most]
    for number in (least - 1, most + 1):
        with pytest.raises(BadRequest, match="it must be "):
            given(number)


@pytest.mark.parametrize(("given", "key"), [("func", "function"), ("fullfunc", "function"), ("param:n", "param:n")])
def test_keys_of_pytest_benchmark_group_as_there(monkeypatch: pytest.MonkeyPatch, given: str, key: str) -> None:
    monkeypatch.setenv("GPU_BENCH_GROUP_BY", given)
    assert environment_settings().group_by == key


@pytest.mark.parametrize("name", ROWS)
def test_no_number_is_without_a_bound(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A run that was asked for 10**400 reps would never end. What is no number is a text: a name, or a path."""
    text = "1" + 400 * "0"
    monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", text)
    with contextlib.suppress(BadRequest):
        assert getattr(environment_settings(), name) in (text, (text,))


MISSPELLED = {
    "REP": "REPS",
    "CASHE": "CACHE",
    "STRICKT": "STRICT",
    "REQUIRE_GPUS": "REQUIRE_GPU",
    "COMPARE_FAILS": "COMPARE_FAIL",
}


@pytest.mark.parametrize("variable", MISSPELLED)
def test_a_misspelled_variable_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(f"GPU_BENCH_{variable}", "3")
    told = f"GPU_BENCH_{variable} is no setting: did you mean GPU_BENCH_{MISSPELLED[variable]}? Correct it, or leave it"
    with pytest.raises(BadRequest, match=re.escape(told)):
        environment_settings()


def test_settings_and_variables_of_others_are_not_misspelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """RUNNER is like no setting, GROUP not enough like GROUP_BY; an empty variable sets nothing."""
    for name in ["GPU_BENCH_RUNNER", "GPU_BENCH_GROUP", "GPU_BENCH_", "MY_GPU_BENCH_REP", "REP"]:
        monkeypatch.setenv(name, "3")
    for name in ROWS:
        monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", "")
    assert asdict(environment_settings()) == asdict(Settings())


@pytest.mark.parametrize(
    ("name", "bad", "good", "why"),
    [
        ("html", "folder", "file", "it must be the path of a file, and is a folder"),
        ("json", "folder", "new", "it must be the path of a file, and is a folder"),
        ("storage", "file", "folder", "it must be a folder, and is a file"),
        ("trace", "file", "new", "it must be a folder, and is a file"),
        ("json", "absent/file", "folder/file", "there is no folder .*/absent: make it first, or correct the path$"),
        ("markdown", "absent/deeper/file", "file", "there is no folder .*/absent/deeper: make it first"),
        ("html", "file/page", "folder/page", "there is no folder .*/file: make it first"),
        ("plot", "absent/plots/", "plots/", "there is no folder .*/absent: make it first"),
        ("trace", "absent/traces", "traces", "there is no folder .*/absent: make it first"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_first_test(
    tmp_path: Path, name: str, bad: str, good: str, why: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert getattr(marked(**{name: f"{tmp_path}/{good}"}), name) == f"{tmp_path}/{good}"
    with pytest.raises(BadRequest, match=why):
        marked(**{name: f"{tmp_path}/{bad}"})
