"""Verdicts on what was measured: judging happens here and nowhere else.

Slower than its reference: `speedup`. Slower than in a saved run or another commit: `regression`. Slower than a limit in
microseconds, or unsteady: `time`. Too few bytes or operations a second: `rates`. A count of kernels, bytes or copies:
`exact`. How an interval decides each of them: `decision`.
"""
