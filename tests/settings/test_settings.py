"""What is refused says what would be legal."""

import contextlib
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.settings import ROWS, Resolver, Settings, environment_settings


def marked(**values: object) -> Settings:
    return Resolver(Settings(), frozenset()).override(Settings(), values, "it({})")


@pytest.mark.parametrize(("name", "least"), [("reps", 1), ("warmup", 0), ("seed", 0)])
def test_a_count_that_is_too_small_is_told_the_least_that_is_legal(name: str, least: int) -> None:
    assert getattr(marked(**{name: least}), name) == least
    with pytest.raises(BadRequest) as caught:
        marked(**{name: least - 1})
    assert str(caught.value) == f"it({name}): {least - 1} is not valid, it must be at least {least}"


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
def test_the_largest_number_is_legal_and_the_next_is_not(
    monkeypatch: pytest.MonkeyPatch, name: str, most: float
) -> None:
    monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", str(most))
    assert getattr(environment_settings(), name) == most
    monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", str(most + 1))
    with pytest.raises(BadRequest, match="it must be "):
        environment_settings()


@pytest.mark.parametrize("name", ROWS)
def test_no_number_is_without_a_bound(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A run that was asked for 10**400 reps would never end. What is no number is a text: a name, or a path."""
    text = "1" + 400 * "0"
    monkeypatch.setenv(f"GPU_BENCH_{name.upper()}", text)
    with contextlib.suppress(BadRequest):
        assert getattr(environment_settings(), name) in (text, (text,))


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
def test_a_misspelled_variable_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, meant: str) -> None:
    monkeypatch.setenv(f"GPU_BENCH_{variable}", "3")
    with pytest.raises(BadRequest) as caught:
        environment_settings()
    assert str(caught.value) == (
        f"GPU_BENCH_{variable} is no setting: did you mean GPU_BENCH_{meant}? Correct it, or leave it out"
    )


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
