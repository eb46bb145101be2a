"""Benchmarks that people already have: what their timers time is measured by the engine."""
