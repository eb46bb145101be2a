"""Judgements on a GPU: honest candidates pass, what was seen in the wild does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.judge.judging import Judge
from tests.on_gpu.judged import CHEATS, HONEST, KEEPS_ITS_OUTPUT, KERNEL, SPEC, told

AHEAD = 3


def judges(folder: Path, limit: float) -> Iterator[Judge]:
    spec = folder / "spec.py"
    spec.write_text(SPEC.replace("LIMIT", str(limit)))
    with Judge(spec, "cuda", timeout_s=15, ahead=AHEAD) as judge:
        yield judge


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge whose limit an honest candidate keeps."""
    yield from judges(tmp_path_factory.mktemp("lenient"), 0.8)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge whose limit no honest candidate keeps."""
    yield from judges(tmp_path_factory.mktemp("strict"), 1.2)


def written(folder: Path, body: str) -> Path:
    path = folder / "candidate.py"
    path.write_text(f"{KERNEL}\n\n{body}\n")
    return path


@pytest.mark.parametrize("name", HONEST)
def test_honest_candidates_pass(lenient: Judge, tmp_path: Path, name: str) -> None:
    """Its time is attested: the claim is not much below what the referee's clock saw."""
    found = lenient(written(tmp_path, HONEST[name]))
    assert found.status == "pass", told(found)


def test_an_output_that_is_kept_is_copied(lenient: Judge, tmp_path: Path) -> None:
    """It is not wrong; the copies may cost it the attested time."""
    found = lenient(written(tmp_path, KEEPS_ITS_OUTPUT))
    assert found.status in ("pass", "inconclusive"), told(found)


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_do_not_pass(strict: Judge, tmp_path: Path, name: str) -> None:
    """Each costs only itself."""
    found = strict(written(tmp_path, CHEATS[name]))
    assert found.status != "pass", told(found)
    assert found.reason
