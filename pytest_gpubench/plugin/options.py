"""Where the settings come from: flags, environment and ini keys, all derived from the rows of `settings`."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import Field
from typing import Any

import pytest

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import (
    ROWS,
    Resolver,
    Settings,
    environment_name,
    flag_name,
    ini_name,
    parse_value,
    switch,
)


def add_options(parser: pytest.Parser) -> None:
    """Declare the flag and the ini key of every setting."""
    group = parser.getgroup("gpu_bench", "GPU kernel benchmarks (pytest-gpubench)")
    for name, row in ROWS.items():
        spellings = {"dest": ini_name(name), "default": None, "help": f"{row.metadata['help']} ({_default_text(row)})"}
        if row.metadata["parse"] is switch:
            group.addoption(flag_name(name), action="store_const", const="true", **spellings)
        elif row.metadata["optional"] is not None:
            more = {"nargs": "?", "const": row.metadata["optional"]}
            group.addoption(flag_name(name), metavar=row.metadata["metavar"], **more, **spellings)
        else:
            group.addoption(flag_name(name), metavar=row.metadata["metavar"], **spellings)
        parser.addini(ini_name(name), row.metadata["help"].replace("%%", "%"), default=None)


def resolve(config: pytest.Config, environ: Mapping[str, str] = os.environ) -> Resolver:
    """Read flags, environment and ini; raise BadRequest naming the spelling that is wrong."""
    chosen, explicit = {}, set()
    for name in ROWS:
        spelling, value = look_up(name, config.option, config, environ)
        if value is not None:
            chosen[name] = parse_value(name, value, spelling)
        if spelling == flag_name(name):
            explicit.add(name)
    return Resolver(Settings(**chosen), frozenset(explicit))


def look_up(
    name: str, flags: argparse.Namespace, config: pytest.Config, environ: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return the spelling that gives a setting, and its text; None where nothing does."""
    given = [
        (flag_name(name), getattr(flags, ini_name(name), None)),
        (environment_name(name), environ.get(environment_name(name))),
        (f"ini key {ini_name(name)}", config.getini(ini_name(name))),
    ]
    return next(((spelling, value) for spelling, value in given if value not in (None, "")), ("", None))


def resolve_early(early_config: pytest.Config) -> Settings:
    """Read the settings before pytest is configured; what is wrong with them is said later, here they are defaults."""
    found = {name: look_up(name, early_config.known_args_namespace, early_config, os.environ)[1] for name in ROWS}
    try:
        return Settings(**{name: parse_value(name, text, "") for name, text in found.items() if text is not None})
    except BadRequest:
        return Settings()


def markdown_table() -> str:
    """Return the table of all settings, as Markdown."""
    lines = ["| option | default | what it does |", "| --- | --- | --- |"]
    for name, row in ROWS.items():
        value = f"={row.metadata['metavar']}" if row.metadata["metavar"] else ""
        marker = " Also in the marker and the call." if row.metadata["in_marker"] else ""
        text = row.metadata["help"].replace("%%", "%").replace("|", "\\|")
        spelling = f"{flag_name(name)}{value}".replace("|", "\\|")
        lines.append(f"| `{spelling}` | {_default_value(row)} | {text[0].upper()}{text[1:]}.{marker} |")
    return "\n".join(lines)


def _default_value(row: Field[Any]) -> str:
    if row.default is None:
        return "unset"
    if row.metadata["parse"] is switch:
        return "on" if row.default else "off"
    return ",".join(row.default) if isinstance(row.default, tuple) else str(row.default)


def _default_text(row: Field[Any]) -> str:
    return f"default: {_default_value(row)}"
