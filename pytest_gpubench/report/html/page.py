"""Put the page together: one file that loads nothing from anywhere."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from pytest_gpubench.report.html.content import page_content
from pytest_gpubench.results.model import SavedRun, text_of

SCRIPTS = ("elements", "chart", "rows", "front", "figures", "opened", "page")
"""In the order in which they need each other."""
PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="pytest-gpubench">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}
</style>
</head>
<body>
<noscript>This page shows its numbers with JavaScript, which is turned off.</noscript>
<div id="page"></div>
<script type="application/json" id="content">{content}</script>
<script>{script}</script>
</body>
</html>
"""


def html_page(run: SavedRun, baseline: SavedRun | None = None, history: Sequence[SavedRun] = ()) -> str:
    """Return one self-contained page that shows a run, to be written as UTF-8.

    baseline: the run that its measurements were compared with; None for none.
    history: older runs, in any order; this one may be among them.
    """
    content = page_content(run, baseline, history)
    script = '"use strict";\n(() => {\n' + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "})();\n"
    return PAGE_TEMPLATE.format(
        policy=_policy(script),
        title=html.escape(text_of(content["title"])),
        style=asset("style.css"),
        content=as_json(content),
        script=script,
    )


def asset(name: str) -> str:
    """Return a file that the page is made of."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def as_json(content: dict[str, Any]) -> str:
    """Return content as JSON that no browser can take for markup, wherever in a page it stands."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(script: str) -> str:
    """Return a content security policy: this script runs and no other, and nothing is loaded."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src 'sha256-{digest}'; {rest}"
