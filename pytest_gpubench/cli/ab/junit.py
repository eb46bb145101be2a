"""What pytest says of its tests in JUnit's file."""

import re
from pathlib import Path
from xml.etree import ElementTree

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.verdict.rounds import Ended


def read_ended(junit: Path, run: SavedRun) -> dict[str, Ended]:
    """Return how each test ended, by node id where it measured something and by JUnit's two names elsewhere."""
    nodeids = {junit_names(record.nodeid): record.nodeid for record in run.records}
    ended: dict[str, Ended] = {}
    try:
        cases = list(ElementTree.parse(junit).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        raise BadFile(f"pytest's own report {junit.name} cannot be read ({error})") from None
    for case in cases:
        names = case.get("classname", ""), case.get("name", "")
        nodeid = nodeids.get(names, "::".join(name for name in names if name))
        if ended.get(nodeid) != "failed":  # a test may be there twice: its call, and its teardown
            ended[nodeid] = _how_it_ended(case)
    return ended


def _how_it_ended(case: ElementTree.Element) -> Ended:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


def junit_names(nodeid: str) -> tuple[str, str]:
    """Return the class name and the name by which JUnit's file knows a test."""
    address, bracket, parameters = nodeid.partition("[")
    path, *names = address.split("::")
    parts = [re.sub(r"\.py$", "", path.replace("/", ".")), *names]
    parts[-1] += bracket + parameters
    return ".".join(parts[:-1]), parts[-1]
