"""Settings of the run, of a mark and of a call, each overruled by explicit options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import ROWS, Settings, parse_value
from pytest_gpubench.settings.parsers import NUMBERS


def parse_given(name: str, value: object, spelling: str) -> Any:
    """Parse the value of a setting that code gives: as `parse_value`, but no text for a number."""
    if isinstance(value, str) and ROWS[name].parse in NUMBERS:
        raise BadRequest(f"{spelling}: {value!r} is not valid, it must be a number, not a text")
    return parse_value(name, value, spelling)


@dataclass(frozen=True)
class Resolver:
    """Resolve settings for the run, for a marker and for a call, each overruled by explicit options."""

    run: Settings
    explicit: frozenset[str]

    def override(self, settings: Settings, values: Mapping[str, object], spelling: str) -> Settings:
        """Return settings with a marker's or call's values in place, except where an option was given explicitly."""
        parsed = {name: parse_given(name, value, spelling.format(name)) for name, value in values.items()}
        return replace(settings, **{name: value for name, value in parsed.items() if name not in self.explicit})
