"""`prune` removes what killed runs left, too, and says so."""

from pathlib import Path

import pytest

from tests.cli.stored import Command, fill
from tests.results.test_files import OURS, age

ROOT = Path(".gpu_benchmarks")


@pytest.fixture
def left() -> Path:
    folder = fill(ROOT, days=2, tests=1)[0].parent
    (folder / OURS).touch()
    return age(folder / OURS, 7200)


def test_what_a_killed_run_left_is_removed(command: Command, left: Path) -> None:
    status, out, err = command("prune", "--keep=1", "--dry-run")
    assert (status, err) == (0, "")
    assert left.exists()
    assert out.splitlines()[1:] == [
        f"would remove {left}, of a run that was killed",
        "would remove 1 run and 1 temporary file",
    ]
    assert command("prune", "--keep=1") == (0, out.replace("would remove", "removed"), "")
    assert not left.exists()
    assert command("prune", "--keep=1") == (0, "nothing to remove\n", "")


def test_a_temporary_file_alone(command: Command, left: Path) -> None:
    assert command("prune", "--keep=9")[1].splitlines()[-1] == "removed 1 temporary file"


def test_what_may_be_being_written_stays(command: Command, left: Path) -> None:
    age(left, 60)
    assert command("prune", "--keep=9") == (0, "nothing to remove\n", "")
    assert left.exists()


def test_only_the_device_asked_for(command: Command, left: Path) -> None:
    other = ROOT / "NVIDIA-A100"
    other.mkdir()
    (other / OURS).touch()
    age(other / OURS, 7200)
    assert command("prune", "--keep=9", "--device=h200")[1].splitlines()[-1] == "removed 1 temporary file"
    assert (other / OURS).exists()


def test_what_cannot_be_removed_is_told(command: Command, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    status, out, err = command("prune", "--keep=9")
    assert (status, out) == (2, "nothing to remove\n")
    assert f"{left} cannot be removed: Permission denied" in err
