"""Specs of our own: a Python file that defines `reference(*inputs)`, `inputs(seed)` and perhaps `cases` and more."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.spec.model import Case, Spec, draw_inputs, entry_named, required
from pytest_gpubench.spelling import hint
from pytest_gpubench.units import repr_of
from pytest_gpubench.verdict.limits import Limits

if TYPE_CHECKING:
    import torch

TOLERANCES = ("rtol", "atol", "equal_nan", "golden", "golden_factor")
LIMITS = ("min_speedup", "max_time_us")


def spec_of_module(module: ModuleType, path: Path) -> Spec:
    """Return the spec in a module; raise BadRequest where something is missing or not valid."""
    reference, inputs = required(module, path, "reference"), required(module, path, "inputs")
    name = str(getattr(reference, "__name__", "reference"))
    name = "candidate" if name in ("reference", "<lambda>") else name
    rules = rules_of(module, path)
    parameters = _parameters(inputs, path)

    def make(case: Case, seed: int, device: "torch.device | str") -> tuple[Any, ...]:
        given = {"case": case, "seed": seed, "device": device}
        return draw_inputs(lambda: inputs(**{name: given[name] for name in parameters}), seed, device)

    return Spec(
        name=name,
        cases=_cases(module, parameters, path),
        reference=reference,
        inputs=make,
        entry=entry_named(name),
        **rules,
        search=_search(module, parameters, path),
    )


def _search(module: ModuleType, parameters: Sequence[str], path: Path) -> Any:
    """Return the strategy that draws cases, None without one; raise BadRequest for an invalid one."""
    search = getattr(module, "search", None)
    if search is None:
        return None
    from hypothesis.strategies import SearchStrategy

    if not isinstance(search, SearchStrategy) or "case" not in parameters:
        raise BadRequest(
            f"{path.name}: search = {repr_of(search)} is not valid: give a strategy that draws cases, as in "
            "st.fixed_dictionaries({'rows': st.integers(1, 4096)}), and inputs(case, seed)"
        )
    return search


def rules_of(module: ModuleType, path: Path) -> dict[str, Any]:
    """Return the tolerance, limits and trust_claims of a module; raise BadRequest where they are not valid."""
    tolerance, limits = getattr(module, "tolerance", None), getattr(module, "limits", {})
    check_keys("tolerance", {} if tolerance is None else tolerance, TOLERANCES, path.name)
    check_keys("limits", limits, LIMITS, path.name)
    if not isinstance(trusts := getattr(module, "trust_claims", False), bool):
        raise BadRequest(f"{path.name}: trust_claims = {repr_of(trusts)} is not valid: give True or False")
    return {"tolerance": tolerance, "limits": Limits(**limits), "trust_claims": trusts}


def _parameters(inputs: Callable[..., object], path: Path) -> list[str]:
    """Return the names of the parameters of `inputs`; raise BadRequest for unknown ones, or without `seed`."""
    names = list(inspect.signature(inputs).parameters)
    if "seed" not in names or not set(names) <= {"case", "seed", "device"}:
        raise BadRequest(
            f"{path.name}: inputs({', '.join(names)}) is not valid: write inputs(seed), or inputs(case, seed) with "
            "cases = [...]; a parameter device is given the device"
        )
    return names


def _cases(module: ModuleType, parameters: Sequence[str], path: Path) -> tuple[Case, ...]:
    cases = getattr(module, "cases", None)
    if cases is None and "case" not in parameters:
        return ({},)
    if cases is None or "case" not in parameters:
        there, missing = ("inputs(case, seed)", "cases") if cases is None else ("cases", "the parameter case of inputs")
        raise BadRequest(f"{path.name} has {there} and not {missing}: give both, or neither for a single case")
    if not (isinstance(cases, Sequence) and cases and all(isinstance(each, Mapping) for each in cases)):
        raise BadRequest(f"{path.name}: cases = {repr_of(cases)} is not valid: give a list of dicts, one for each case")
    return tuple(dict(each) for each in cases)


def check_keys(what: str, given: object, legal: Sequence[str], where: str) -> None:
    """Raise BadRequest unless this is a mapping with legal keys only."""
    if not isinstance(given, Mapping):
        raise BadRequest(f"{where}: {what} = {repr_of(given)} is not valid: give a dict, of {', '.join(legal)}")
    for key in given:
        if key not in legal:
            instead = hint(what, str(key), legal) or f": legal are {', '.join(legal)}"
            raise BadRequest(f"{where}: {what} has no {key!r}{instead}")
