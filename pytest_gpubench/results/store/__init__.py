"""Saved runs: one JSON file each, which tools that know pytest-benchmark's can read, in one folder per GPU model."""

from pytest_gpubench.results.store.run_file import encode_run, read_run, write_run
from pytest_gpubench.results.store.storage import FAILED, NoSuchRun, Storage, Stored

__all__ = ["FAILED", "NoSuchRun", "Storage", "Stored", "encode_run", "read_run", "write_run"]
