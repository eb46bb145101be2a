"""The settings as options, environment variables and ini keys, all derived from the rows of `settings`."""

import argparse
import os
from collections.abc import Mapping
from typing import Any, cast

import pytest

from pytest_gpubench.settings import (
    ROWS,
    Resolver,
    Settings,
    environment_name,
    flag_name,
    ini_name,
    parse_value,
    refuse_misspelled,
    with_strict,
)
from pytest_gpubench.settings.parsers import OUTPUTS
from pytest_gpubench.units import safe_lines


def resolve(config: pytest.Config, flags: argparse.Namespace | None = None) -> Resolver:
    """Read flags, environment and ini; raise BadRequest naming the spelling that is wrong."""
    refuse_misspelled(os.environ)
    refuse_misspelled(keys_of_file(config), ini_name)
    options = flags or config.option
    places = (
        (flag_name, {name: getattr(options, ini_name(name), None) for name in ROWS}),
        (environment_name, {name: os.environ.get(environment_name(name)) for name in ROWS}),
        (lambda name: f"ini key {ini_name(name)}", {name: _in_file(config, ini_name(name)) for name in ROWS}),
    )
    chosen: dict[str, Any] = {}
    explicit: frozenset[str] = frozenset()
    for spelling, values in places:
        given = {name: value for name, value in values.items() if value not in (None, "")}
        for name, value in (given if "strict" in chosen else with_strict(given)).items():
            if name not in chosen:
                # an xdist worker may be on another host, whose folders are others
                is_elsewhere = hasattr(config, "workerinput") and ROWS[name].parse in OUTPUTS
                chosen[name] = value if is_elsewhere else parse_value(name, value, spelling(name))
        if spelling is flag_name:
            explicit = frozenset(chosen)
    return Resolver(Settings(**chosen), explicit)


def _in_file(config: pytest.Config, name: str) -> str | None:
    """Return a key of the ini file as text; None where it is not there.

    From pytest 9 on, `[tool.pytest]` has values of any type of TOML, of which pytest takes strings for a string only.
    """
    try:
        return cast("str | None", config.getini(name))
    except (TypeError, pytest.UsageError):
        value = getattr(keys_of_file(config)[name], "value", None)
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def keys_of_file(config: pytest.Config) -> Mapping[str, Any]:
    """Return the ini file's keys, of all plugins."""
    return config._inicfg if hasattr(config, "_inicfg") else config.inicfg  # which pytest 9.1 deprecates


def usage_error(error: Exception) -> pytest.UsageError:
    """Return the error that ends the run before its first test."""
    return pytest.UsageError(safe_lines(str(error)))
