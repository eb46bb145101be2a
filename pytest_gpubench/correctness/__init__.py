"""Candidate against reference: differences and their text; what a call did to its inputs."""

from pytest_gpubench.correctness.compare import compare_outputs
from pytest_gpubench.correctness.difference import Difference
from pytest_gpubench.correctness.golden import in_float64
from pytest_gpubench.correctness.inputs import changed, snapshot
from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import aliases
from pytest_gpubench.correctness.poison import poison_free_memory
from pytest_gpubench.correctness.tolerance import Tolerance

__all__ = [
    "Difference",
    "Tolerance",
    "aliases",
    "changed",
    "compare_outputs",
    "flatten",
    "in_float64",
    "poison_free_memory",
    "snapshot",
]
