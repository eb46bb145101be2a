"""A run's results, as typed records that outlive it: no torch, no pytest."""
