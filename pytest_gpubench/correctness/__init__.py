"""Check outputs before they are timed: compare them, and watch what a call does to its inputs and to free memory."""

from pytest_gpubench.correctness.compare import compare_outputs
from pytest_gpubench.correctness.difference import Difference
from pytest_gpubench.correctness.golden import check_golden, float64_by_default, widened
from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import moved_bytes
from pytest_gpubench.correctness.poison import poison_free_memory
from pytest_gpubench.correctness.tolerance import Tolerance
from pytest_gpubench.correctness.variation import Variation

__all__ = [
    "Difference",
    "Tolerance",
    "Variation",
    "check_golden",
    "compare_outputs",
    "flatten",
    "float64_by_default",
    "moved_bytes",
    "poison_free_memory",
    "widened",
]
