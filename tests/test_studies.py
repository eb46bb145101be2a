"""The studies need a GPU; that they can be started needs none."""

import importlib
import statistics

import pytest

from tests.on_gpu.study.__main__ import NAMES
from tests.on_gpu.study.harness import in_fresh_process
from tests.on_gpu.study.margins import outcome_of
from tests.on_gpu.study.margins_honest import HONEST
from tests.on_gpu.study.margins_planted import HARMLESS, PLANTED


@pytest.mark.parametrize("name", NAMES)
def test_a_study_says_what_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"tests.on_gpu.study.{name}").main(["--help"])
    assert end.value.code == 0
    assert name in capsys.readouterr().out


def test_a_function_in_a_fresh_process() -> None:
    assert in_fresh_process(statistics.median, [1.0, 2.0, 4.0]) == 2.0


@pytest.mark.parametrize(
    ("sentence", "outcome"),
    [
        (None, "passed"),
        ("it is wrong: out differs", "not named"),
        ("it overwrote args[0]: the next call would get other inputs", "not named"),
        ("it reads past args[0]", "named"),
        ("it reads past args[01]", "not named"),
        ("it reads before the start of args[0]", "named"),
        ("it writes past args[0]", "other verb"),
        ("it reads past args[1]", "not named"),
    ],
)
def test_a_planted_read_has_to_be_named(sentence: str | None, outcome: str) -> None:
    assert outcome_of(PLANTED[0], sentence) == outcome


def test_the_study_of_margins_has_what_its_page_says() -> None:
    """A harmless read has to pass."""
    assert [outcome_of(HARMLESS[0], sentence) for sentence in (None, "it reads past args[0]")] == ["passed", "flagged"]
    names = [each.name for each in (*PLANTED, *HARMLESS)] + [*HONEST]
    assert len(PLANTED) == 40
    assert len(HONEST) >= 100
    assert len(names) == len(set(names))
