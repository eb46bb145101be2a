"""Verdicts on what was measured: judging happens here and nowhere else.

Each limit of the mark has a class in `limits`; `time` and `speedup` judge again and again while reps are added. Slower
than in a saved run or another commit: `regression`. How an interval decides each of them: `decision`.
"""
