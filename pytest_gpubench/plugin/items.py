"""Facts about a pytest item: its marks, whether it measures, its parameters, and a hash of its source.

The legal keywords of the `perf` mark are the limits, the settings a test may choose, and `gpus`.
"""

import ast
import hashlib
import inspect
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpubench.bounds import checked_count
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import MARKER_SETTINGS, ROWS
from pytest_gpubench.spelling import hint
from pytest_gpubench.units import count, printable, repr_of

if TYPE_CHECKING:
    from pytest_gpubench.verdict.limits import Limits

NAME = "perf"
TURN_NAME = "gpu_turn"
GPUS = "gpus"
MOST_GPUS = 1024
SUMMARY = f"{NAME}(limits and settings): a performance test, as every test is that uses gpu_bench"
ON_TURN = f"{TURN_NAME}({GPUS}=1): hold the GPU, or several, alone while the test runs, as a perf test does"
FIXTURE = "gpu_bench"
UNMARKED = (
    f"{FIXTURE} was asked for while a test ran, so it is not known as a perf test and takes no turn at the GPU: "
    f"name {FIXTURE} among the test's arguments, or mark the test with @pytest.mark.perf"
)
LONGEST_PARAMETER = 500
"""Letters of a parameter that are kept; those of a longer one stand for it with a hash."""


@dataclass(frozen=True)
class MergedMarks:
    """The keywords of all `perf` marks of one test."""

    limits: "Limits"
    settings: dict[str, object]
    gpus: int
    """The number of GPUs that the test needs for itself at once."""
    keywords: dict[str, object] = field(compare=False)
    """All of them as they were given."""
    inherited: dict[str, str] = field(compare=False)
    """The class or file whose mark gives a keyword, by keyword; without those of the test's own marks."""


def gpus_needed(item: pytest.Item) -> int:
    """Return how many GPUs a test holds while it runs; raise BadRequest for illegal marks."""
    mark = item.get_closest_marker(TURN_NAME)
    if mark is None:
        return merge_marks(item).gpus
    unknown = [*map(repr_of, mark.args), *(name for name in mark.kwargs if name != GPUS)]
    if unknown:
        raise BadRequest(f"{TURN_NAME}() takes {GPUS}= only, found {unknown[0]}")
    asked = mark.kwargs.get(GPUS)
    return 1 if asked is None else checked_count(f"{TURN_NAME}({GPUS}={{}})", asked, most=MOST_GPUS)


def merge_marks(item: pytest.Item) -> MergedMarks:
    """Merge a test's `perf` marks, the nearest winning per keyword; raise BadRequest for what is not legal."""
    from pytest_gpubench.verdict.limits import NAMES, Limits

    merged: dict[str, object] = {}
    owners: dict[str, object] = {}
    for node, mark in reversed(list(item.iter_markers_with_node(NAME))):
        if mark.args:
            found = f"{count(len(mark.args), 'positional argument')}: {repr_of(mark.args[0])}"
            raise BadRequest(f"perf() takes keywords only, found {found}: name the limit, as in perf(min_speedup=1.5)")
        merged.update(mark.kwargs)
        owners.update(dict.fromkeys(mark.kwargs, node))
    for name in merged:
        if name not in ROWS and name not in NAMES and name != GPUS:
            legal = f"; legal are the limits {', '.join(NAMES)} and the settings {', '.join([*MARKER_SETTINGS, GPUS])}"
            close = hint("mark", name, [*NAMES, *MARKER_SETTINGS, GPUS], "=")
            raise BadRequest(f"perf({name}=...) is not known{close or legal}")
        if name in ROWS and name not in MARKER_SETTINGS:
            raise BadRequest(f"perf({name}=...) can only be set for the whole run, as an option or in the ini file")
    chosen = {name: value for name, value in merged.items() if value is not None}
    gpus = checked_count(f"{NAME}({GPUS}={{}})", chosen.pop(GPUS, 1), most=MOST_GPUS)
    limits = {name: chosen.pop(name) for name in NAMES if name in chosen}
    inherited = {
        name: f"{'class' if isinstance(node, pytest.Class) else 'file'} {getattr(node, 'name', '')}".rstrip()
        for name, node in owners.items()
        if node is not item
    }
    return MergedMarks(Limits(**limits), chosen, gpus, merged, inherited)


def is_perf(item: pytest.Item) -> bool:
    """Tell whether a test has a `perf` mark, as every test has that uses the fixture."""
    return item.get_closest_marker(NAME) is not None


def takes_turns(item: pytest.Item) -> bool:
    """Tell whether a test has the GPU to itself: a perf test, or one marked `gpu_turn`."""
    return is_perf(item) or item.get_closest_marker(TURN_NAME) is not None


def uses_fixture(item: pytest.Item) -> bool:
    """Tell whether a test uses gpu_bench, directly or through another fixture."""
    return FIXTURE in (getattr(item, "fixturenames", None) or ())


def parameters(item: pytest.Item) -> dict[str, str]:
    """Return the parameters of a parametrised test as texts."""
    given = getattr(getattr(item, "callspec", item), "params", {})
    return {name: _parameter_text(value) for name, value in given.items()}


def source_hash(item: pytest.Item) -> str:
    """Return a hash of a test function's syntax tree, without its docstring; empty where its source is not found."""
    try:
        function: object = getattr(item, "obj", None)
        inner: Any = getattr(getattr(function, "hypothesis", None), "inner_test", function)
        definition = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(inner)))).body[0]
        if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
            definition.name = "_"  # names, limits and parameters are compared separately
            definition.decorator_list = []
            if ast.get_docstring(definition) is not None:
                del definition.body[0]
        return _digest(syntax(definition))
    except Exception:  # no source, one that is too deep, or an item or a function that is a foreign object
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def syntax(node: object) -> str:
    """Return a syntax tree as text that is the same in every version of Python, unlike `ast.dump` and `ast.unparse`.

    Empty fields are left out: newer versions have fields that older ones lack, and Python 3.12.1 ends format
    specifications with an empty string.
    """
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.JoinedStr):
        return f"JoinedStr([{', '.join(text for text in map(syntax, node.values) if text != repr(''))}])"
    if isinstance(node, ast.AST):
        fields = [f"{name}={syntax(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])]
        return f"{type(node).__name__}({', '.join(fields)})"
    return f"[{', '.join(map(syntax, node))}]" if isinstance(node, list) else repr(node)


def _parameter_text(value: object) -> str:
    try:
        plain = isinstance(value, (str, int, float, bool, type(None), tuple, list))
        text = printable(str(value if plain else getattr(value, "__name__", None) or value))
    except Exception as error:  # of foreign code
        return f"<{type(value).__name__}, whose text raises {type(error).__name__}>"
    if len(text) <= LONGEST_PARAMETER:
        return text
    from pytest_gpubench.results.baseline import without_addresses

    return f"{text[:LONGEST_PARAMETER]}… ({len(text)} letters, {_digest(without_addresses(text))})"
