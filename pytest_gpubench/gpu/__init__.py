"""The device: what it is, and what state it is in while something is measured."""
