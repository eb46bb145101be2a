"""What is refused says what would be legal."""

from pathlib import Path

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.settings import (
    ROWS,
    environment_name,
    environment_settings,
    parse_given,
    parse_value,
    refuse_misspelled,
)
from pytest_gpubench.settings.parsers import NUMBERS, fraction


@pytest.mark.parametrize(("name", "least"), [("reps", 1), ("warmup", 0), ("seed", 0)])
def test_a_count_that_is_too_small_is_told_the_least_that_is_legal(name: str, least: int) -> None:
    assert parse_given(name, least, "it") == least
    with pytest.raises(BadRequest) as caught:
        parse_given(name, least - 1, "it")
    assert str(caught.value) == f"it: {least - 1} is not valid, it must be at least {least}"


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("reps", 10**6),
        ("warmup", 10**6),
        ("sessions", 10**6),
        ("require", 10**6),
        ("seed", 2**63),
        ("budget_s", 1e6),
        ("given_budget_s", 1e6),
        ("lock_timeout", 1e6),
    ],
)
def test_no_number_is_without_a_bound(name: str, most: float) -> None:
    """A run that was asked for 10**400 reps would never end."""
    assert parse_value(name, str(most), "it") == most
    for beyond in (str(most + 1), "1" + 400 * "0"):
        with pytest.raises(BadRequest, match="it must be "):
            parse_value(name, beyond, "it")


def test_every_number_is_tested_above() -> None:
    """Fractions are below 1, and the clock is at most nine digits."""
    bounded = {name for name, row in ROWS.items() if row.parse in NUMBERS and row.parse is not fraction} | {"require"}
    assert bounded == {"reps", "warmup", "sessions", "require", "seed", "budget_s", "given_budget_s", "lock_timeout"}


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("REP", "REPS"),
        ("CASHE", "CACHE"),
        ("STRICKT", "STRICT"),
        ("REQUIRE_GPUS", "REQUIRE_GPU"),
        ("COMPARE_FAILS", "COMPARE_FAIL"),
    ],
)
def test_a_misspelled_variable_is_refused(variable: str, meant: str) -> None:
    with pytest.raises(BadRequest) as caught:
        refuse_misspelled(["PATH", f"GPU_BENCH_{variable}"])
    assert str(caught.value) == (
        f"GPU_BENCH_{variable} is no setting: did you mean GPU_BENCH_{meant}? Correct it, or leave it out"
    )


def test_settings_and_variables_of_others_are_not_misspelled() -> None:
    """RUNNER is like no setting, GROUP not enough like GROUP_BY."""
    others = ["GPU_BENCH_RUNNER", "GPU_BENCH_GROUP", "GPU_BENCH_", "MY_GPU_BENCH_REP", "REP"]
    refuse_misspelled([*others, *map(environment_name, ROWS)])


def test_a_misspelled_variable_is_refused_in_scripts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_BENCH_REP", "3")
    with pytest.raises(BadRequest, match="did you mean GPU_BENCH_REPS"):
        environment_settings()


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
    assert parse_given(name, f"{tmp_path}/{good}", "it") == f"{tmp_path}/{good}"
    with pytest.raises(BadRequest, match=why):
        parse_given(name, f"{tmp_path}/{bad}", "it")
