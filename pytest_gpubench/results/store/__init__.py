"""Saved runs: one JSON file each, which tools that know pytest-benchmark's can read, in one folder per GPU model."""

from pytest_gpubench.results.store.left_out import read_by_test
from pytest_gpubench.results.store.names import FAILED
from pytest_gpubench.results.store.run_file import read_run, write_run
from pytest_gpubench.results.store.schema import encode_run
from pytest_gpubench.results.store.storage import Storage, Stored

__all__ = ["FAILED", "Storage", "Stored", "encode_run", "read_by_test", "read_run", "write_run"]
