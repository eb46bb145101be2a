"""Saved runs: one JSON file each, which tools that know pytest-benchmark's can read, in one folder per GPU model."""

from pytest_gpubench.results.store.content import encode_run
from pytest_gpubench.results.store.reading import read_run, write_run
from pytest_gpubench.results.store.storage import Storage, Stored

__all__ = ["Storage", "Stored", "encode_run", "read_run", "write_run"]
