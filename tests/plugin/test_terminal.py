"""The progress line: shown late, erased, and never wider than the terminal."""

import threading

import pytest

from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.terminal import Progress


class Screen:
    def __init__(self, columns: int) -> None:
        self.text = ""
        self.cursor = 0
        self.columns = columns
        self.shown = threading.Event()
        self.widest = 0

    def write(self, text: str) -> None:
        for character in text:
            if character == "\b":
                self.cursor -= 1
            else:
                self.text = self.text[: self.cursor] + character + self.text[self.cursor + 1 :]
                self.cursor += 1
        self.widest = max(self.widest, len(self.text.rstrip()))
        if self.text.strip():
            self.shown.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "INTERVAL_S", 0.005)
    monkeypatch.setattr(terminal, "PATIENCE_S", 0.02)


@pytest.mark.parametrize("columns", [80, 20, 1, 0])
def test_it_shows_what_goes_on_and_takes_it_back(columns: int) -> None:
    screen = Screen(columns)
    line = Progress(screen.write, lambda: screen.columns)
    line.say("softmax: compiling and warming up")
    assert columns <= 2 or screen.shown.wait(60)
    line.say("softmax: measuring")
    line.say("")
    assert screen.text.strip() == ""
    assert screen.cursor == 0
    assert screen.widest <= max(0, columns - 1)
    if columns == 80:
        assert screen.widest > 30


def test_what_is_over_soon_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE_S", 60)
    screen = Screen(80)
    line = Progress(screen.write, lambda: 80)
    for _ in range(3):
        line.say("quick")
        line.say("")
    assert screen.text == ""
