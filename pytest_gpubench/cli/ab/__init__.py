"""Compare commits by alternating runs of the same tests on one GPU: `pytest-gpubench ab` and `bisect`."""
