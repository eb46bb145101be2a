"""Two arms in quads, as a comparison of one candidate takes and judges them."""

from collections.abc import Sequence

from pytest_gpubench.stats.speedup import Decision, compare, round_orders, speedup_of


def orders(quads: int, seed: int) -> tuple[str, ...]:
    """Return the order of each quad, "ABBA" or "BAAB"."""
    return tuple("".join(order) for order in round_orders("AB", quads, seed))


def decide(
    log_ratios: Sequence[float], limit_ratio: float, alpha: float, looks: tuple[int, ...] | None = None
) -> Decision:
    """Return what the interval at this look says of a limit."""
    return compare(speedup_of(log_ratios, alpha, looks).interval, limit_ratio)
