"""`pytest-gpubench ab`: two commits measured by alternating runs of the same tests on one GPU."""

from pytest_gpubench.cli.ab.command import add

__all__ = ["add"]
