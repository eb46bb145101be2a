"""The tracing tax: what an open profiler adds to a call's time, and is taken off its reps.

CUPTI instruments kernels while it traces, which lengthens those of many short blocks. Medians on an H200 with torch
2.11, between two events, in a session and outside: a broadcast multiply 201.7 and 193.5 us, a chain of six kernels with
two such multiplies 617.7 and 598.5 us, one of nine elementwise kernels 710.1 and 709.8 us.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.timing.base import Call, Rep, collection_off
from pytest_gpubench.timing.events import Lap, key_of
from pytest_gpubench.timing.windows import kernel_list

LEAST_TAX = 0.005
"""A smaller share of the time is not taken off."""
MOST_TAX = 0.1
"""A larger one is not believed: tracing has not been seen to cost more than 5 %."""
GAP_US = 0.2
"""Time that tracing adds between two kernels, in no record: 0.16 to 0.25 us on an H200."""
LEAST_CALL_US = 20.0
"""The tax of a shorter call is less than the noise, and is not looked for."""
MOST_REP_S = 0.05
"""Nor is that of a call whose reps take longer, with all that is prepared for them: it would cost seconds."""
LAP_S = 0.02
LEAST_REPS, MOST_REPS = 2, 4
"""The reps of the first laps, as many as fit into their time: they show whether twice as many more are worth it."""
ATTEMPTS = 3
"""So often is a tax measured that the host or noise hid."""
ALIKE = 0.03
"""Calls of the same kernels whose times differ by no more pay the same tax: it leaves their ratio alone."""

Known = list[tuple[Counter[str], float, float]]
"""The kernels, the traced time and the tax of each call that a process has looked at."""


def untaxed(rep: Rep, tax: float) -> Rep:
    """Return a traced rep less its tax, a share of the time without; its records stay as traced."""
    if not tax:
        return rep
    return replace(rep, elapsed_us=rep.elapsed_us / (1 + tax), flags=(*rep.flags, f"traced +{100 * tax:.1f} %"))


@dataclass
class Taxes:
    """The taxes of a timer's calls, each learnt before its first timed rep."""

    lap: Callable[[Call, float], Lap]
    """Times a call between two events, after so many seconds of idle time."""
    tracing: Callable[[], AbstractContextManager[object]]
    """Opens a profiler, whose records are thrown away."""
    known: Known
    """Those of calls before, of other timers too."""
    shares: dict[tuple[str, int], float] = field(default_factory=dict)
    outside_us: dict[tuple[str, int], Sequence[float]] = field(default_factory=dict)
    """The last laps of a call outside of sessions, where its tax was measured."""

    def of(self, call: Call) -> float:
        """Return the share of its own time that tracing adds to a call."""
        return self.shares.get(key_of(call), 0.0)

    def learn(self, call: Call, reps: Sequence[Rep], idle_s: float, rep_s: float) -> float:
        """Return a call's tax from now on; its traced reps, at rest, tell its length and its kernels.

        rep_s: what a rep takes on the host.
        """
        traced_us = statistics.median(rep.elapsed_us for rep in reps)
        kernels = kernel_list(reps[0].records)
        alike = (each for each in self.known if each[0] == kernels and abs(each[1] - traced_us) <= ALIKE * traced_us)
        _, _, tax = next(alike, (kernels, traced_us, None))
        if tax is None:
            is_measurable = traced_us >= LEAST_CALL_US and rep_s <= MOST_REP_S
            lap_reps = min(max(LEAST_REPS, int(LAP_S / rep_s)), MOST_REPS)
            tax = self._measured_tax(call, traced_us, kernels.total(), idle_s, lap_reps) if is_measurable else 0.0
            self.known.append((kernels, traced_us, tax))
        self.shares[key_of(call)] = tax
        return tax

    def _measured_tax(self, call: Call, traced_us: float, kernels: int, idle_s: float, reps: int) -> float:
        """Return the tax that laps in a session of the profiler and outside show; 0 where it cannot be known."""
        gaps_us = kernels * GAP_US
        for _ in range(ATTEMPTS):
            with suppress(MeasurementError):
                inside_us, outside_us = list[float](), list[float]()
                for wanted in (reps, 2 * reps):
                    # as many outside before those inside as after: a drift neither makes a tax nor hides one
                    outside_us += self._times_us(call, wanted // 2, idle_s)
                    with self.tracing():
                        inside_us += self._times_us(call, wanted, idle_s)
                    outside_us += self._times_us(call, wanted - wanted // 2, idle_s)
                    # by the shortest: some may be slow, as the first ten replays of a graph (5 % on an H200)
                    is_taxed = min(inside_us) - min(outside_us) - gaps_us >= LEAST_TAX / 2 * traced_us
                    if not is_taxed:
                        break
                self.outside_us[key_of(call)] = outside_us
                tax_us = statistics.median(inside_us) - statistics.median(outside_us) - gaps_us
                tax = tax_us / (traced_us - tax_us)
                if tax < LEAST_TAX or not is_taxed:
                    return 0.0
                apart_us = statistics.quantiles(inside_us, n=4)[0] - statistics.quantiles(outside_us, n=4)[-1]
                if tax <= MOST_TAX and apart_us > gaps_us:
                    return tax
        return 0.0

    def _times_us(self, call: Call, reps: int, idle_s: float) -> list[float]:
        """Return the times of laps; raise MeasurementError where events cannot time the call."""
        with collection_off():
            taken = [self.lap(call, idle_s) for _ in range(reps)]
        if any(lap.is_late or not lap.ahead for lap in taken):
            raise MeasurementError(f"two events do not see all of {call.label!r}, and nothing else")
        return [lap.elapsed_us for lap in taken]
