"""Runs of `ab` that load code of another tree, and are refused."""

import json
from pathlib import Path

import pytest

from pytest_gpubench import BadRequest
from tests.cli.ab.faked import FakePytest, Git, call, commit, left

MINE, COPIED = "src/mine/__init__.py", "python/copied/part.py"


@pytest.mark.parametrize(
    ("module", "file", "replaced"),
    [
        ("mine", "{base}/" + MINE, ""),
        ("mine", "{tree}/" + MINE, MINE),
        ("mine", "{link}/" + MINE, MINE),
        ("mine", "{site}/mine/__init__.py", MINE),
        ("test_a", "{tree}/tests/test_a.py", "tests/test_a.py"),
        ("added", "{tree}/added.py", "added.py"),
        ("untracked", "{tree}/untracked.py", ""),
        ("installed", "{tree}/.venv/lib/site-packages/installed.py", ""),
        ("kernel", "{site}/kernel.py", "kernel.py"),
        ("generated", "{site}/kernel.py", ""),
        ("copied.part", "{site}/of_head/copied/part.py", COPIED),
        ("copied.part", "{site}/of_base/copied/part.py", ""),
        ("copied.part", "{site}/of_others/copied/part.py", ""),
        ("json", json.__file__, ""),
    ],
)
def test_a_run_that_loads_code_of_another_tree_is_refused(
    module: str,
    file: str,
    replaced: str,
    git: Git,
    fake: FakePytest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever led it there: an option, a link, a finder that is asked before the path, or a copy in site-packages.

    A copy of a file that may be imported by nobody is warned of, once for each version.
    """
    commit(git, {"us": "10", MINE: "", COPIED: "1", "json/__init__.py": "", "kernel.py": "", "tests/test_a.py": ""})
    commit(git, {"added.py": "", COPIED: "2"})
    site, link = tmp_path / "site-packages", tmp_path / "link"
    link.symlink_to(Path.cwd())
    for folder, text in (("head", "2"), ("base", "1"), ("others", "3")):
        place = site / f"of_{folder}" / "copied" / "part.py"
        place.parent.mkdir(parents=True)
        place.write_text(text)
    write = fake.write

    def write_modules_too(folder: Path, notes: Path, results: Path) -> None:
        write(folder, notes, results)
        if folder.name == "base":
            found = file.format(base=folder, tree=Path.cwd(), link=link, site=site)
            with notes.open("a") as lines:
                lines.write(json.dumps({"ended": {}, "modules": {module: found}}) + "\n")

    monkeypatch.setattr(fake, "write", write_modules_too)
    words = "HEAD~1", "HEAD", "--rounds", "1"
    if replaced in ("", COPIED):
        assert call(*words) == 0
        told = capsys.readouterr().err
        assert told.count("warning: ") == told.count(f"in place of its own {COPIED}, so what") == bool(replaced)
    else:
        with pytest.raises(BadRequest, match=f"BASE loaded {module} from .* in place of its own {replaced}, so what"):
            call(*words)
        assert fake.arms == "B"
    assert left(tmp_path) == []
