"""A saved run in which every text is an attack on the terminal and the CI log that show it."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from pytest_gpubench.results.model import Outcome, SavedRun

ATTACK = "::error::\x1b[31m\x1b]0;title\x07\n::error::##[error]##vso[x]\r\x9b8m\u202e"
KINDS = ("max_time_us", "min_speedup", "validity", "compare_fail", "forbid", "kernels", "no limit")


def hostile_run(attack: str = ATTACK, **fixed: Any) -> SavedRun:
    """Return a run with every field filled and every text an attack; fixed: values of fields by name, kept as given."""
    return msgspec.convert(_filled(msgspec.inspect.type_info(SavedRun), "run", attack, fixed), SavedRun)


def _filled(kind: Any, name: str, attack: str, fixed: dict[str, Any]) -> Any:
    """Return a value of a type as JSON has it; records and measurements in every variety."""
    inspect = msgspec.inspect
    if name in fixed:
        return fixed[name]
    if isinstance(kind, inspect.UnionType):
        return _filled(next(each for each in kind.types if not isinstance(each, inspect.NoneType)), name, attack, fixed)
    if isinstance(kind, (inspect.StructType, inspect.DataclassType)):
        return {each.encode_name: _filled(each.type, each.name, attack, fixed) for each in kind.fields}
    if isinstance(kind, inspect.NamedTupleType):
        return [_filled(each.type, each.name, attack, fixed) for each in kind.fields]
    if isinstance(kind, inspect.DictType):
        return {f"{name}{attack}": _filled(kind.value_type, name, attack, fixed)}
    if isinstance(kind, inspect.VarTupleType):
        one = _filled(kind.item_type, name, attack, fixed)
        return list(_varied(one)) if name == "measurements" else [one]
    if isinstance(kind, inspect.TupleType):
        return [_filled(each, name, attack, fixed) for each in kind.item_types]
    if isinstance(kind, inspect.LiteralType):
        return kind.values[-1]
    if isinstance(kind, inspect.EnumType):
        return next(iter(kind.cls)).value
    plain = {inspect.FloatType: 1.5, inspect.IntType: 3, inspect.BoolType: True}
    return plain.get(type(kind), f"{attack}{name}{attack}")


def _varied(one: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give a measurement with every role, outcome and kind of limit, measured or not."""
    samples = {"samples_us": [1.5] * 12}
    for role in ("", "reference", "candidate"):
        yield {**one, "role": role, "timing": {**one["timing"], **samples}}
        yield {**one, "role": role, "timing": {**one["timing"], "samples_us": []}, "speedup": None}
    for outcome in Outcome:
        verdicts = [{**one["verdicts"][0], "outcome": outcome.value, "kind": kind} for kind in KINDS]
        yield {**one, "role": "", "speedup": None, "timing": {**one["timing"], **samples}, "verdicts": verdicts}


def attacks_in(text: str) -> list[str]:
    """Return the lines that are more than text to a terminal or to CI."""
    return [
        line
        for line in text.split("\n")
        if not re.sub(r"\x1b\[[0-9;]*m", "", line).isprintable()
        or line.lstrip().startswith("::")
        or re.search(r"##(vso)?\[", line)
    ]
