"""Sweeps as charts: for the terminal, and as SVG files."""
