"""The settings as options, environment variables and ini keys, all derived from the rows of `settings`."""

import argparse
import os

import pytest

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import (
    RENAMED,
    ROWS,
    Resolver,
    SettingRow,
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
        spelling: dict[str, object] = {"metavar": row.metavar}
        if row.parse is switch:
            spelling = {"action": "store_const", "const": "true"}
        elif row.optional is not None:
            spelling |= {"nargs": "?", "const": row.optional}
        help = f"{row.help} (default: {_default_text(row)})"
        group.addoption(flag_name(name), dest=ini_name(name), default=None, help=help, **spelling)
        parser.addini(ini_name(name), row.help.replace("%%", "%"), default=None)
    for name in RENAMED:
        group.addoption(flag_name(name), dest=ini_name(name), default=None, help=argparse.SUPPRESS)


def resolve(config: pytest.Config, flags: argparse.Namespace | None = None) -> Resolver:
    """Read flags, environment and ini; raise BadRequest naming the spelling that is wrong."""
    chosen, explicit = {}, set()
    _refuse_renamed(config)
    for name in ROWS:
        given = [
            (flag_name(name), getattr(flags or config.option, ini_name(name), None)),
            (environment_name(name), os.environ.get(environment_name(name))),
            (f"ini key {ini_name(name)}", config.getini(ini_name(name))),
        ]
        spelling, value = next(((spelling, value) for spelling, value in given if value not in (None, "")), ("", None))
        if value is not None:
            chosen[name] = parse_value(name, value, spelling)
        if spelling == flag_name(name):
            explicit.add(name)
    return Resolver(Settings(**chosen), frozenset(explicit))


def _refuse_renamed(config: pytest.Config) -> None:
    """Raise BadRequest for the old name of a setting, with the new one."""
    in_file = config._inicfg if hasattr(config, "_inicfg") else config.inicfg  # the latter before pytest 9
    for old, new in RENAMED.items():
        if getattr(config.option, ini_name(old), None) is not None:
            raise BadRequest(f"{flag_name(old)} is now {flag_name(new)}")
        if environment_name(old) in os.environ:
            raise BadRequest(f"{environment_name(old)} is now {environment_name(new)}")
        if ini_name(old) in in_file:
            raise BadRequest(f"ini key {ini_name(old)} is now {ini_name(new)}")


def resolve_early(early_config: pytest.Config) -> Settings:
    """Read the settings before pytest is configured; wrong ones are reported later, here they are defaults."""
    try:
        return resolve(early_config, early_config.known_args_namespace).run
    except BadRequest:
        return Settings()


def markdown_table() -> str:
    """Return the table of all settings for the page about options."""
    lines = ["| option | default | what it does |", "| --- | --- | --- |"]
    for name, row in ROWS.items():
        spelling = flag_name(name) + (f"={row.metavar}" if row.metavar else "")
        marker = " Also in the marker and the call." if row.in_marker else ""
        text = row.help.replace("%%", "%")
        cells = [f"`{spelling}`", _default_text(row), f"{text[0].upper()}{text[1:]}.{marker}"]
        escaped = [cell.replace("|", "\\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def _default_text(row: SettingRow) -> str:
    if row.default is None:
        return "unset"
    if row.parse is switch:
        return "on" if row.default else "off"
    return ",".join(row.default) if isinstance(row.default, tuple) else str(row.default)
