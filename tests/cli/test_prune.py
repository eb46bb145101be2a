from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.results.store import Storage
from tests.cli.stored import Command
from tests.results.saved import make_run

ROOT = Path(".gpu_benchmarks")


def fill(*runs: tuple[float, str], device: str = "NVIDIA H200") -> list[Path]:
    """Save runs of so many days ago, each with its name."""
    now = datetime.now(timezone.utc)
    dates = [(now - timedelta(days=days)).isoformat() for days, _ in runs]
    one = make_run(tests=1, device=device)
    return [
        Storage(ROOT).save_each(msgspec.structs.replace(one, datetime=date), name).popitem()[0]
        for date, (_, name) in zip(dates, runs, strict=True)
    ]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("--keep=2",), [1, 3, 4]),
        (("--keep=3",), [1, 2, 3, 4]),
        (("--keep=2", "--named"), [3, 4]),
        (("--older-than=15d",), [1, 3, 4]),
        (("--older-than=1h",), [1]),
        (("--older-than=1h", "--named"), []),
        (("--older-than=4w", "--keep=1"), [1, 2, 3, 4]),
        (("--older-than=1h", "--keep=1"), [1, 4]),
    ],
)
def test_what_is_kept(words: tuple[str, ...], kept: list[int], command: Command) -> None:
    paths = fill((40, ""), (30, "main"), (20, ""), (10, ""), (1, ""))
    status, out, err = command("list", "--prune", *words, "--dry-run")
    assert (status, err) == (0, "")
    assert all(path.exists() for path in paths)
    told = [str(path) in out for path in paths]
    status, out, err = command("list", "--prune", *words)
    assert (status, err) == (0, "")
    assert [at for at, path in enumerate(paths) if path.exists()] == kept
    assert [str(path) in out for path in paths] == told == [not path.exists() for path in paths]
    assert ("; 1 run with a name not looked at, which --named removes too\n" in out) is ("--named" not in words)


def test_each_device_keeps_its_own_and_only_the_one_asked_for_is_pruned(command: Command) -> None:
    paths = [*fill((2, ""), (1, "")), *fill((9, ""), device="NVIDIA A100")]
    assert command("list", "--prune", "--keep=1")[0] == 0
    assert [path.exists() for path in paths] == [False, True, True]
    assert command("list", "--prune", "--older-than=1h", "--device", "a100")[0] == 0
    assert [path.exists() for path in paths] == [False, True, False]


def test_what_cannot_be_read_is_kept_and_told(command: Command) -> None:
    damaged, old = fill((9, ""), (9, ""))
    damaged.write_text("{")
    status, out, err = command("list", "--prune", "--older-than=1d")
    assert status == 2
    assert damaged.exists()
    assert not old.exists()
    assert str(damaged) in err
    assert "(kept)" in err
    assert "removed 1 run" in out


@pytest.mark.parametrize("words", ["--keep=1", "--older-than=1d", "--named", "--dry-run", "--prune", "--prune --named"])
def test_what_to_remove_and_prune_belong_together(words: str, command: Command) -> None:
    (path,) = fill((9, ""))
    status, out, err = command("list", *words.split())
    assert (status, out) == (2, "")
    assert ("say what to remove" if "--prune" in words else "give it too") in err
    assert path.exists()


AGE = "it must be a number of hours, days or weeks: 36h, 90d, 12w"
AGES = ("90", "-1d", "1.5d", "1y", "", "d", "1 day", "999999999999d")


@pytest.mark.parametrize(
    ("word", "said"),
    [("--keep=0", "at least 1"), ("--keep=x", "a whole"), *((f"--older-than={age}", AGE) for age in AGES)],
)
def test_what_cannot_be_meant(word: str, said: str, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = fill((9, ""))
    with pytest.raises(SystemExit) as ended:
        command("list", "--prune", word)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert path.exists()


def test_what_cannot_be_removed_is_told(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (old,) = fill((9, ""))
    monkeypatch.setattr(Path, "unlink", refuse)
    status, out, err = command("list", "--prune", "--older-than=1d")
    assert (status, out) == (2, "nothing to remove\n")
    assert f"{old} cannot be removed: Permission denied" in err
