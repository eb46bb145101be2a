"""Statistics of samples: pure Python, no torch, no pytest."""
