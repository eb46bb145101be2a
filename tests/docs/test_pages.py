"""The README and the pages are complete, and nothing in them leads nowhere."""

import inspect
import re
from pathlib import Path

import pytest

from pytest_gpubench import GpuBench, errors
from pytest_gpubench import __all__ as public_names
from pytest_gpubench.counters import COUNTERS
from pytest_gpubench.plugin.hooks import default_text
from pytest_gpubench.settings import GROUPS, ROWS, CallSettings
from pytest_gpubench.verdict.limits import NAMES
from tests.cli.stored import COMMANDS
from tests.docs.pages import PACKAGE, PAGES, README, TEXTS

WIDTH = 120
MOST_LINES = 249
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
EVERYTHING = "\n".join(TEXTS.values())
EVERY_PAGE = [README, *PAGES, *(README.parent / each / "README.md" for each in ("example_suite", "tests/on_gpu"))]
FLAGS = {name: f"--gpu-bench-{name.replace('_', '-')}" for name in ROWS}


def anchors(text: str) -> set[str]:
    """Return what links may lead to: a name for each heading."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert TEXTS["README"].count("\n") <= MOST_LINES


def test_the_readme_has_every_limit() -> None:
    table = TEXTS["README"].split("\n## Limits\n")[1].split("\n## ")[0]
    assert [name for name in NAMES if f"`{name}=" not in table] == []


def test_every_option_and_public_name_is_somewhere() -> None:
    assert [name for name in [*FLAGS.values(), *public_names] if name not in EVERYTHING] == []


def test_every_counter_is_explained_in_its_own_words() -> None:
    rows = [f"| `{each.name}` | {each.help[0].upper()}{each.help[1:]}. |" for each in COUNTERS]
    assert [row for row in rows if row not in TEXTS["limits"]] == []


@pytest.mark.parametrize(("call", "page"), [("measure", "measuring"), ("compare", "comparing"), ("ranks", "measuring")])
def test_every_keyword_of_a_call_is_explained(call: str, page: str) -> None:
    keywords = keywords_of(call) - (set() if call == "measure" else keywords_of("measure"))
    assert [name for name in sorted(keywords) if not re.search(rf"`.*\b{name}\b", TEXTS[page])] == []


def keywords_of(call: str) -> set[str]:
    parameters = inspect.signature(getattr(GpuBench, call)).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} | set(CallSettings.__annotations__)


def test_every_warning_explained_exists() -> None:
    table = TEXTS["troubleshooting"].split("## Warnings")[1].split("\n## ")[0]
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert [words for words in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE) if words not in sources] == []


def test_every_error_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)`", TEXTS["troubleshooting"].split("## Errors")[1].split("\n## ")[0], re.MULTILINE)
    names = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]
    assert sorted([*rows, "GpuBenchError"]) == sorted(names)


def test_every_option_shown_exists() -> None:
    shown = set(re.findall(r"--gpu-bench-[a-z-]*[a-z]", EVERYTHING))
    assert shown - set(FLAGS.values()) == set()


def markdown_table() -> str:
    """Return the tables of all settings, for the page about options."""
    lines = []
    for name, row in ROWS.items():
        if name in GROUPS:
            title = GROUPS[name]
            head = "| option | default | what it does |", "| --- | --- | --- |"
            lines += ["", f"## {title[0].upper()}{title[1:]}", "", *head]
        spelling = FLAGS[name] + (f"={row.metavar}" if row.metavar else "")
        in_call = " and the call" if name in CallSettings.__optional_keys__ else ""
        also = f" Also in the mark{in_call}." if row.in_marker else ""
        text = row.help.replace("%%", "%")
        cells = [f"`{spelling}`", default_text(row), f"{text[0].upper()}{text[1:]}.{also}"]
        escaped = [cell.replace("|", "\\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines).strip()


def test_the_table_of_options_is_theirs() -> None:
    assert markdown_table() in TEXTS["options"]


def test_every_command_is_in_the_table() -> None:
    table = TEXTS["baselines"].split("| command | what it does |\n")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == sorted(COMMANDS)


def test_the_readme_links_every_page() -> None:
    assert [path.name for path in PAGES if f"](pytest_gpubench/docs/{path.name})" not in TEXTS["README"]] == []


@pytest.mark.parametrize("path", EVERY_PAGE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", path.read_text(encoding="utf-8"))):
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), target


def test_what_was_tried_is_in_files_that_exist() -> None:
    named = re.findall(r"`(?:tests/\w+/)?(\w+\.py)`", TEXTS["judging"].split("## What was tried")[1])
    there = {path.name for path in README.with_name("tests").rglob("*.py")}
    assert named
    assert set(named) <= there


@pytest.mark.parametrize("path", EVERY_PAGE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_prose_is_wrapped(path: Path) -> None:
    prose = FENCED.sub("", path.read_text(encoding="utf-8"))
    assert [line for line in prose.splitlines() if len(line) > WIDTH and not line.startswith("|")] == []
