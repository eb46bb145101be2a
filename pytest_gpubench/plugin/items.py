"""What pytest knows of a test: whether it measures, its parameters, and a hash of its source."""

import ast
import hashlib
import inspect
import textwrap

import pytest

from pytest_gpubench.plugin import markers
from pytest_gpubench.units import printable

FIXTURE = "gpu_bench"


def takes_turns(item: pytest.Item) -> bool:
    """Tell whether a test has the GPU for itself: a perf test, or one that asks for it."""
    return any(item.get_closest_marker(name) is not None for name in (markers.NAME, markers.TURN_NAME))


def uses_fixture(item: pytest.Item) -> bool:
    """Tell whether a test uses gpu_bench, itself or through another fixture."""
    return FIXTURE in getattr(item, "fixturenames", ())


def parameters(item: pytest.Item) -> dict[str, object]:
    """Return the parameters of a parametrised test."""
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}


def source_hash(function: object) -> str:
    """Return a hash of a test function's syntax tree, without its docstring; empty where its source is not found."""
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(inner))))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return ""
    definition = tree.body[0]
    if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        definition.name = "_"  # names, limits and parameters are told apart by themselves
        definition.decorator_list = []
        if ast.get_docstring(definition) is not None:
            del definition.body[0]
    return hashlib.sha256(syntax(definition).encode()).hexdigest()[:16]


def syntax(node: object) -> str:
    """Return a syntax tree as text that every version of Python agrees on, unlike that of `ast.dump` and `ast.unparse`.

    What is empty is left out: newer versions know fields that older ones lack, and Python 3.12.1 ends format
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


def parameter_text(value: object) -> str:
    """Return a parameter's value as text."""
    if isinstance(value, (str, int, float, bool, type(None), tuple, list)):
        return printable(str(value))
    return printable(getattr(value, "__name__", None) or str(value))
