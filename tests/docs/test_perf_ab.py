"""The action that compares both commits, and the job for GitLab: their shell, with commands that stand for ours."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # it ships no types

from pytest_gpubench.cli import parse
from tests.docs.pages import README, TEXTS, blocks

ACTION_FILE = README.parent / ".github/actions/perf-ab/action.yml"
ACTION = yaml.safe_load(ACTION_FILE.read_text(encoding="utf-8"))
FAKE = """#!/bin/bash
printf '%s\\n' "$@" >> "$LOG-$CALL"
previous=
for word in "$@"; do
  if [ "$previous" = --markdown ]; then echo "the table" > "$word"; fi
  previous=$word
done
exit "$STATUS"
"""
FAKE_GH = """#!/bin/bash
printf '%s\\n' "$@" >> "$LOG-$CALL"
if [ "$2" = --paginate ]; then printf '%s' "$COMMENTS"; fi
exit "$STATUS"
"""
MARK = "<!-- pytest-gpubench perf-ab -->"


def resolved(text: str, inputs: Mapping[str, str], folder: Path) -> str:
    """Return a value of the action with its expressions resolved, as GitHub does for a pull request to main."""
    values = {f"inputs.{name}": value for name, value in inputs.items()} | {"runner.temp": str(folder)}
    values |= {"github.repository": "owner/name", "github.event.pull_request.number": "7"}
    values["inputs.base || format('origin/{0}...', github.base_ref)"] = inputs["base"] or "origin/main..."
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], text)


def run_action(folder: Path, status: int = 0, comments: str = "", **given: str) -> list[tuple[int, str, list[str]]]:
    """Run the action's own steps; return of each its status, what it printed, and the words of what it called."""
    fake = folder / "python"
    for file, text in ((fake, FAKE), (folder / "gh", FAKE_GH)):
        file.write_text(text)
        file.chmod(0o755)
    inputs = {name: str(value["default"]) for name, value in ACTION["inputs"].items()}
    inputs |= {"python": str(fake), "token": "secret"} | given
    found = []
    for number, step in enumerate(ACTION["runs"]["steps"]):
        if "run" not in step:
            continue
        log = folder / "log"
        environment = {name: resolved(value, inputs, folder) for name, value in step["env"].items()}
        environment |= {"LOG": str(log), "CALL": str(number), "STATUS": str(status)}
        environment |= {"PATH": f"{folder}:{os.environ['PATH']}", "COMMENTS": comments}
        environment |= {"GITHUB_STEP_SUMMARY": str(folder / "summary"), "GITHUB_SERVER_URL": "https://github.com"}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
        words = folder / f"log-{number}"
        found.append((done.returncode, done.stdout, words.read_text().splitlines() if words.exists() else []))
    return found


def parsed(words: list[str]) -> Any:
    assert words[:2] == ["-m", "pytest_gpubench"]
    return parse(words[2:])


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_action_compares_tells_and_fails_as_ab_does(tmp_path: Path, status: int) -> None:
    compared, summarised, commented = run_action(
        tmp_path, status, **{"options": "--fail-slower 5% --tests 'my tests'", "pytest-args": "-m 'perf and not slow'"}
    )
    assert compared[0] == status
    arguments = parsed(compared[2])
    assert (arguments.base, arguments.head, arguments.fail_slower) == ("origin/main...", "HEAD", 0.05)
    assert (arguments.tests, arguments.pytest_arguments) == (["my tests"], ["-m", "perf and not slow"])
    assert (arguments.json, arguments.html) == (f"{tmp_path}/perf-ab.json", f"{tmp_path}/perf-ab.html")
    assert summarised[0] == 0
    assert (tmp_path / "summary").read_text() == "the table\n"
    assert commented[0] == 0, "a comment that cannot be written is a warning"
    assert ("::warning::there is no comment" in commented[1]) == (status != 0)
    assert commented[2][:3] == ["api", "--paginate", "repos/{owner}/{repo}/issues/7/comments"]
    assert commented[2][5:] == ([] if status else ["pr", "comment", "7", "--body-file", f"{tmp_path}/perf-ab-comment"])
    assert status or (tmp_path / "perf-ab-comment").read_text() == f"{MARK}\nthe table\n"


@pytest.mark.parametrize("given", ["$(touch ran)", "`touch ran`", "'a;b' $HOME *", r"a\ b \"c", "-m\n'perf and x'"])
def test_nothing_that_is_given_is_expanded_or_run(tmp_path: Path, given: str) -> None:
    compared, *_ = run_action(tmp_path, 0, "", **{"pytest-args": given, "options": "--tests '$(touch ran)'"})
    arguments = parsed(compared[2])
    assert (arguments.tests, arguments.pytest_arguments) == (["$(touch ran)"], shlex.split(given))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("given", "fails"), [("", False), ("-m 'perf", True)])
def test_no_words_and_a_quote_that_is_left_open(tmp_path: Path, given: str, fails: bool) -> None:
    """To go on with other words than were meant would be green for no reason."""
    compared, *_ = run_action(tmp_path, 0, "", **{"pytest-args": given})
    assert (compared[0] != 0) == fails
    assert fails or parsed(compared[2]).pytest_arguments == []


def test_a_matrix_names_its_jobs_and_updates_its_own_comments(tmp_path: Path) -> None:
    own = f"5 {MARK}\n6 {MARK.replace('perf-ab', 'perf-h200')}\n7 another\n"
    compared, _, commented = run_action(tmp_path, comments=own, name="perf-h200", base="v1.2")
    assert parsed(compared[2]).base == "v1.2"
    updated = f"--method PATCH repos/{{owner}}/{{repo}}/issues/comments/6 -F body=@{tmp_path}/perf-h200-comment"
    assert commented[2][5:] == ["api", "--silent", *updated.split(" ")]


def test_actions_of_others_are_pinned_by_hash() -> None:
    used = re.findall(r"uses: (?!OWNER)(\S+)", TEXTS["ci"] + ACTION_FILE.read_text(encoding="utf-8"))
    assert len(used) >= 4
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each)] == []


def test_expressions_stay_out_of_the_shell_and_every_step_names_it() -> None:
    """An expression in a script would be run as shell, whatever a branch is called."""
    steps = ACTION["runs"]["steps"]
    assert ACTION["runs"]["using"] == "composite"
    assert all("${{" not in step.get("run", "") for step in steps)
    assert all(step["shell"] == "bash" for step in steps if "run" in step)
    assert [step["if"] for step in steps[1:]] == [
        "${{ !cancelled() }}",
        "${{ !cancelled() && github.event_name == 'pull_request' }}",
        "${{ !cancelled() }}",
    ], "what is told is told of a regression too"
    assert all("token" not in str(step.get("env", {})) for step in steps[:2]), "tests do not see the token"


def test_the_page_uses_inputs_that_the_action_has() -> None:
    (job,) = [
        job for job in jobs().values() if "steps" in job and any("perf-ab@" in str(step) for step in job["steps"])
    ]
    (step,) = [step for step in job["steps"] if "perf-ab@" in step.get("uses", "")]
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert any(step.get("with") == {"fetch-depth": 0} for step in job["steps"])


def test_the_job_of_gitlab_compares_and_comments(tmp_path: Path) -> None:
    job = jobs()["perf-ab gitlab"]
    for name in ("pytest-gpubench", "curl"):
        (tmp_path / name).write_text(FAKE)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(tmp_path / "log"), "STATUS": "1"}
    environment |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "0123abc", "GITLAB_TOKEN": "secret", "CI_API_V4_URL": "https://x"}
    environment |= {"CI_MERGE_REQUEST_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7"}
    called = {}
    for name, line in (("ab", job["script"][-1]), ("curl", job["after_script"][0])):
        done = subprocess.run(["bash", "-c", line], env=environment | {"CALL": name}, cwd=tmp_path)
        assert done.returncode == 1
        called[name] = (tmp_path / f"log-{name}").read_text().splitlines()
    arguments = parsed(["-m", "pytest_gpubench", *called["ab"]])
    assert (arguments.base, arguments.head, arguments.pytest_arguments) == ("0123abc", "HEAD", ["-m", "perf"])
    assert {arguments.markdown, arguments.json, arguments.html} == {f"perf-ab.{end}" for end in ("md", "json", "html")}
    assert called["curl"][1:5] == ["--header", "PRIVATE-TOKEN: secret", "--data-urlencode", "body@perf-ab.md"]
    assert called["curl"][5:] == ["https://x/projects/3/merge_requests/7/notes"]
    assert job["artifacts"] == {"when": "always", "paths": ["perf-ab.*"]}


def jobs() -> dict[str, Any]:
    """Return the jobs of the page, those of GitLab with the word behind their name."""
    found: dict[str, Any] = {}
    for block in blocks("yaml"):
        if block.page == "ci":
            content = yaml.safe_load(block.text)
            found |= content.get("jobs") or {f"{name} gitlab": job for name, job in content.items()}
    return found
