"""The content of a page, as its script reads it."""

import json
import re
from typing import Any

from pytest_gpubench.report.html.page import html_page
from pytest_gpubench.results.model import SavedRun, TestRecord
from tests.results.measured import run


def content_in(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def page_content(saved: SavedRun, baseline: SavedRun | None = None, older: tuple[SavedRun, ...] = ()) -> Any:
    return content_in(html_page(saved, baseline, older))


def content_of(*records: TestRecord) -> Any:
    return page_content(run(*records))
