"""Two arms in quads, as a comparison of one candidate takes and judges them."""

import math
from collections.abc import Sequence

from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.speedup import Quad, round_orders, speedup_of
from pytest_gpubench.verdict.decision import at_least, at_most


def orders(quads: int, seed: int) -> tuple[str, ...]:
    """Return the order of each quad: "ABBA", "AABB" and so on."""
    return tuple("".join(order) for order in round_orders("AB", quads, seed))


def steady(log_ratios: Sequence[float]) -> list[Quad]:
    """Return quads without noise of these log-ratios, so all five votes of each are the same."""
    return [Quad((100 * math.exp(ratio),) * 2, (100.0, 100.0)) for ratio in log_ratios]


def decide(quads: Sequence[Quad], limit_ratio: float, alpha: float, looks: tuple[int, ...] | None = None) -> str:
    """Return what the interval at this look says of a limit."""
    return at_least(speedup_of(quads, alpha, looks).interval, limit_ratio).value


def decide_change(change: ChangeEstimate, margin: float) -> str:
    """Return what the interval of a change says of a margin."""
    return at_most(change.interval, 1 + margin).value
