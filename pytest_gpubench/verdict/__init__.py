"""Verdicts on what was measured: judging happens here and nowhere else."""
