"""A run's results as text: no torch, no pytest."""
