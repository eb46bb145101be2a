"""Put the page together: one file that loads nothing from anywhere."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.report.html.content import page_content
from pytest_gpubench.results.model import SavedRun

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
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
<script type="text/plain" id="plotly">{plotly}</script>
<script>{script}</script>
</body>
</html>
"""


def html_page(run: SavedRun, baseline: SavedRun | None = None, history: Sequence[SavedRun] = ()) -> str:
    """Return one self-contained page that shows a run, to be written as UTF-8.

    baseline: what its measurements are compared with; None for nothing.
    history: older runs, in any order; this one may be among them.
    Raises BadRequest where plotly is not installed.
    """
    content = page_content(run, baseline, history)
    plotly, script = as_script(plotly_source()), as_script(asset("page.js"))
    return PAGE.format(
        policy=policy(plotly, script),
        title=html.escape(encodable(content["title"])),
        style=asset("style.css"),
        content=as_json(content),
        plotly=plotly,
        script=script,
    )


def plotly_source() -> str:
    """Return plotly.js; raise BadRequest where the package is not installed."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped] # it ships no types
    except ImportError:
        raise BadRequest(
            "the page draws its figures with plotly, which is not installed: pip install 'pytest-gpubench[html]'"
        ) from None
    return str(get_plotlyjs())


def asset(name: str) -> str:
    """Return a file that the page is made of."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def as_json(content: dict[str, Any]) -> str:
    """Return content as JSON that no browser can take for markup, wherever in a page it stands."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def as_script(source: str) -> str:
    """Return JavaScript that does not end the script element it stands in, with the line ends a browser makes of it."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def policy(*scripts: str) -> str:
    """Return a content security policy: these scripts run and no others, and nothing is loaded."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    rest = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"


def encodable(text: str) -> str:
    """Return a text with what UTF-8 has no form for written as escapes."""
    return text.encode("utf-8", errors="backslashreplace").decode()
