"""Tests whose speed an environment variable changes, to be saved and compared."""

SPEEDS = """
import os
FACTOR = float(os.environ.get("FACTOR", "1"))
DRIFT = float(os.environ.get("DRIFT", "1"))
STEPS = [1 + n / 1000 for n in range(-4, 5)]

@scripted([10.0 * FACTOR * DRIFT * step for step in 100 * STEPS])
def candidate(*args): return 0

@scripted([20.0 * DRIFT * step for step in STEPS])
def reference(*args): return 0
"""
COMPARES = f"{SPEEDS}\ndef test_it(gpu_bench): gpu_bench.compare(candidate, reference)\n"
MEASURES = f"{SPEEDS}\ndef test_it(gpu_bench): gpu_bench(candidate)\n"
