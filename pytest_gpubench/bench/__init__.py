"""Measurements and comparisons: a module for each public call, and what they share."""
