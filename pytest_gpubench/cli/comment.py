"""`pytest-gpubench comment`: a Markdown file as the comment of a pull request, which later runs update in place."""

import argparse
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pytest_gpubench.cli.output import say
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.files import explaining_os_errors

ABOUT = "write a Markdown file as the comment of this CI job's pull request, in place of its last one"
EXAMPLES = """comment perf-ab.md
comment perf-ab.md --marker perf-ab-h200"""
PER_PAGE = 100
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Thread:
    """The comments of a pull request on GitHub, or of a merge request on GitLab."""

    comments: str
    """The address that lists them and takes a new one."""
    comment: str
    """The address that a comment's id follows."""
    update: str
    """The method that changes one."""
    headers: Mapping[str, str]
    user: str = ""
    """The address of the token's user; empty for the token of a workflow, whose comments are a bot's."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="what `ab --markdown FILE` wrote")
    parser.add_argument(
        "--marker",
        default="perf-ab",
        metavar="NAME",
        help="whose last comment is replaced: give each job of a matrix its own (default: perf-ab)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the comment; 0. Raises BadRequest where there is no pull request, or it takes no comment."""
    if not re.fullmatch(r"[\w.-]+", arguments.marker) or "--" in arguments.marker:
        raise BadRequest(f"--marker={arguments.marker}: use letters, digits, underscores, dots and single hyphens")
    path = Path(arguments.file)
    with explaining_os_errors(path, "read"):
        text = path.read_text(encoding="utf-8")
    say(f"comment {_publish(_find_thread(os.environ), text, arguments.marker)}")
    return 0


def _find_thread(environ: Mapping[str, str]) -> Thread:
    """Return the comments of the pull request that this job runs for; raise BadRequest where there is none."""
    if number := re.fullmatch(r"refs/pull/(\d+)/\w+", environ.get("GITHUB_REF", "")):
        issues = f"{environ['GITHUB_API_URL']}/repos/{environ['GITHUB_REPOSITORY']}/issues"
        headers = {
            "Authorization": f"Bearer {_token(environ, 'GITHUB_TOKEN')}",
            "Accept": "application/vnd.github+json",
        }
        return Thread(f"{issues}/{number[1]}/comments", f"{issues}/comments", "PATCH", headers)
    if request := environ.get("CI_MERGE_REQUEST_IID"):
        api = environ["CI_API_V4_URL"]
        notes = f"{api}/projects/{environ['CI_MERGE_REQUEST_PROJECT_ID']}/merge_requests/{request}/notes"
        return Thread(notes, notes, "PUT", {"PRIVATE-TOKEN": _token(environ, "GITLAB_TOKEN")}, f"{api}/user")
    raise BadRequest(
        "this is no job of a pull request: GITHUB_REF (refs/pull/N/merge) or CI_MERGE_REQUEST_IID says which"
    )


def _token(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise BadRequest(f"{name} is not set: it has to be a token that may write comments")
    return environ[name]


def _publish(thread: Thread, text: str, marker: str) -> str:
    """Update the comment with this marker, or write a first one; return which it was."""
    mark = f"<!-- pytest-gpubench {marker} -->\n"
    own = _find_own(thread, mark)
    body = {"body": mark + text}
    if own is None:
        _call(thread, "POST", thread.comments, body)
        return "written"
    _call(thread, thread.update, f"{thread.comment}/{own}", body)
    return "updated"


def _find_own(thread: Thread, mark: str) -> int | None:
    """Return our comment with this marker: the author of a copied one could change its text later."""
    user = _call(thread, "GET", thread.user)["id"] if thread.user else None
    for page in count(1):
        comments = _call(thread, "GET", f"{thread.comments}?per_page={PER_PAGE}&page={page}")
        for each in comments:
            is_own = (each["user"] or {}).get("type") == "Bot" if user is None else each["author"]["id"] == user
            if is_own and each["body"].startswith(mark.strip()):
                return int(each["id"])
        if len(comments) < PER_PAGE:
            return None
    raise AssertionError("the last page is shorter")


def _call(thread: Thread, method: str, address: str, body: Mapping[str, str] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {**thread.headers, "Content-Type": "application/json"}
    request = urllib.request.Request(address, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        may = ": the token may not write comments, as that of a pull request from a fork" if error.code == 403 else ""
        raise BadRequest(f"no comment: {method} {address} was answered by {error.code} {error.reason}{may}") from None
    except (OSError, ValueError) as error:
        raise BadRequest(f"no comment: {method} {address} failed: {error}") from None
