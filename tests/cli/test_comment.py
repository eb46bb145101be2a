"""The comment of a pull request, against a server that answers as GitHub and GitLab do."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.cli import main

MARK = "<!-- pytest-gpubench perf-ab -->"


class Forge:
    """Keep comments by their id, as both forges return them, and what was asked for."""

    def __init__(self) -> None:
        self.comments: dict[int, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.refused = 0

    def add(self, body: str, is_own: bool = True) -> int:
        number = len(self.comments) + 1
        user = {"id": 7 if is_own else 8, "type": "Bot" if is_own else "User"}
        self.comments[number] = {"id": number, "body": body, "user": user, "author": user}
        return number

    def answer(self, method: str, path: str, body: dict[str, str]) -> Any:
        self.asked.append(f"{method} {path}")
        place, _, query = path.partition("?")
        if place == "/user":
            return {"id": 7}
        if method == "GET":
            page = int(query.rpartition("=")[2])
            return list(self.comments.values())[100 * (page - 1) : 100 * page]
        number = self.add("") if method == "POST" else int(place.rpartition("/")[2])
        self.comments[number]["body"] = body["body"]
        return self.comments[number]


@pytest.fixture
def forge() -> Iterator[tuple[Forge, str]]:
    forge = Forge()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            given = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN")
            refused = forge.refused or (0 if given in ("Bearer secret", "secret") else 401)
            self.send_response(refused or 200)
            self.end_headers()
            if not refused:
                found = forge.answer(self.command, self.path, json.loads(content or b"{}"))
                self.wfile.write(json.dumps(found).encode())

        do_GET = do_POST = do_PATCH = do_PUT = handle_any

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield forge, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["github", "gitlab"])
def job(request: pytest.FixtureRequest, forge: tuple[Forge, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Be a job of pull request 12."""
    variables = {"GITHUB_REF": "refs/pull/12/merge", "GITHUB_API_URL": forge[1], "GITHUB_REPOSITORY": "o/r"}
    variables["GITHUB_TOKEN"] = "secret"
    if request.param == "gitlab":
        variables = {"CI_MERGE_REQUEST_IID": "12", "CI_API_V4_URL": forge[1], "CI_MERGE_REQUEST_PROJECT_ID": "5"}
        variables["GITLAB_TOKEN"] = "secret"
        monkeypatch.delenv("GITHUB_REF", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return str(request.param)


def comment(tmp_path: Path, text: str, *words: str) -> int:
    (tmp_path / "ab.md").write_text(text)
    return main(["comment", str(tmp_path / "ab.md"), *words])


def test_a_comment_is_written_once_and_then_updated(forge: tuple[Forge, str], job: str, tmp_path: Path) -> None:
    forge[0].add("another comment")
    assert comment(tmp_path, "one\n") == 0
    assert comment(tmp_path, "two ⚠️\n") == 0
    assert [each["body"] for each in forge[0].comments.values()] == ["another comment", f"{MARK}\ntwo ⚠️\n"]
    place = {
        "github": ("POST /repos/o/r/issues/12/comments", "PATCH /repos/o/r/issues/comments/2"),
        "gitlab": ("POST /projects/5/merge_requests/12/notes", "PUT /projects/5/merge_requests/12/notes/2"),
    }[job]
    assert tuple(each for each in forge[0].asked if "GET" not in each) == place


def test_the_comments_of_others_stay(forge: tuple[Forge, str], job: str, tmp_path: Path) -> None:
    """Whoever copies the marker could later change what the comment says."""
    forge[0].add(f"{MARK}\ntheirs", is_own=False)
    forge[0].add(f"I quote {MARK}")
    assert comment(tmp_path, "ours") == 0
    assert [each["body"].splitlines()[-1] for each in forge[0].comments.values()] == [
        "theirs",
        f"I quote {MARK}",
        "ours",
    ]


def test_each_marker_has_a_comment_and_old_ones_are_found(forge: tuple[Forge, str], job: str, tmp_path: Path) -> None:
    assert comment(tmp_path, "an A100", "--marker", "a100") == 0
    for _ in range(230):
        forge[0].add("talk")
    assert comment(tmp_path, "an H200", "--marker", "h200") == 0
    assert comment(tmp_path, "an A100 again", "--marker", "a100") == 0
    bodies = [each["body"] for each in forge[0].comments.values() if each["body"] != "talk"]
    assert bodies == ["<!-- pytest-gpubench a100 -->\nan A100 again", "<!-- pytest-gpubench h200 -->\nan H200"]


@pytest.mark.parametrize(("status", "why"), [(403, "may not write comments, as that of a pull"), (500, "by 500")])
def test_an_answer_that_refuses(
    forge: tuple[Forge, str], job: str, tmp_path: Path, status: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forge[0].refused = status
    assert comment(tmp_path, "text") == 2
    said = capsys.readouterr().err
    assert "pytest-gpubench comment: no comment: GET http" in said
    assert why in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("variables", "words", "sentence"),
    [
        ({}, (), "this is no job of a pull request: GITHUB_REF (refs/pull/N/merge) or CI_MERGE_REQUEST_IID"),
        ({"GITHUB_REF": "refs/heads/main"}, (), "this is no job of a pull request"),
        (
            {"CI_MERGE_REQUEST_IID": "1", "CI_API_V4_URL": "x", "CI_MERGE_REQUEST_PROJECT_ID": "1"},
            (),
            "GITLAB_TOKEN is",
        ),
        ({}, ("--marker", "a-->b"), "--marker=a-->b: use letters"),
    ],
)
def test_bad_input_gets_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    words: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("GITHUB_REF", "CI_MERGE_REQUEST_IID", "GITLAB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert comment(tmp_path, "text", *words) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comment", "/nowhere.md"]) == 2
    assert "/nowhere.md cannot be read: No such file" in capsys.readouterr().err
