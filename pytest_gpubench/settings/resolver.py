"""Settings of the run, of a mark and of a call, each overruled by explicit options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import ROWS, Settings, parse_value
from pytest_gpubench.settings.parsers import NUMBERS


@dataclass(frozen=True)
class Resolver:
    """Resolve settings for the run, for a marker and for a call, each overruled by explicit options."""

    run: Settings
    explicit: frozenset[str]

    def override(self, settings: Settings, values: Mapping[str, object], spelling: str) -> Settings:
        """Return settings with a marker's or call's values in place, except where an option was given explicitly."""
        parsed = {}
        for name, value in values.items():
            if isinstance(value, str) and ROWS[name].parse in NUMBERS:  # which only options give as text
                raise BadRequest(f"{spelling.format(name)}: {value!r} is not valid, it must be a number, not a text")
            parsed[name] = parse_value(name, value, spelling.format(name))
        return replace(settings, **{name: value for name, value in parsed.items() if name not in self.explicit})
