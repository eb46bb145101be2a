"""Facts about a pytest item: whether it measures, its parameters, and a hash of its source."""

import ast
import hashlib
import inspect
import textwrap
from typing import Any

import pytest

from pytest_gpubench.plugin import markers
from pytest_gpubench.units import printable

FIXTURE = "gpu_bench"
UNMARKED = (
    f"{FIXTURE} was asked for while a test ran, so it is not known as a perf test and takes no turn at the GPU: "
    f"name {FIXTURE} among the test's arguments, or mark the test with @pytest.mark.perf"
)
LONGEST_PARAMETER = 500
"""Letters of a parameter that are kept; those of a longer one stand for it with a hash."""


def is_perf(item: pytest.Item) -> bool:
    """Tell whether a test has a `perf` mark, as every test has that uses the fixture."""
    return item.get_closest_marker(markers.NAME) is not None


def takes_turns(item: pytest.Item) -> bool:
    """Tell whether a test has the GPU to itself: a perf test, or one marked `gpu_turn`."""
    return is_perf(item) or item.get_closest_marker(markers.TURN_NAME) is not None


def uses_fixture(item: pytest.Item) -> bool:
    """Tell whether a test uses gpu_bench, directly or through another fixture."""
    return FIXTURE in (getattr(item, "fixturenames", None) or ())


def parameters(item: pytest.Item) -> dict[str, str]:
    """Return the parameters of a parametrised test as texts."""
    given = getattr(getattr(item, "callspec", item), "params", {})
    return {name: _parameter_text(value) for name, value in given.items()}


def source_hash(function: object) -> str:
    """Return a hash of a test function's syntax tree, without its docstring; empty where its source is not found."""
    try:
        inner: Any = getattr(getattr(function, "hypothesis", None), "inner_test", function)
        definition = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(inner)))).body[0]
        if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
            definition.name = "_"  # names, limits and parameters are compared separately
            definition.decorator_list = []
            if ast.get_docstring(definition) is not None:
                del definition.body[0]
        return _digest(syntax(definition))
    except Exception:  # no source, one that is too deep, or a function that is a foreign object
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
    return f"{text[:LONGEST_PARAMETER]}… ({len(text)} letters, {_digest(text)})"
