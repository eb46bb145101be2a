"""The device: its facts, its state while something is measured, and who may use it."""
