"""Judge a candidate that runs in a process of its own."""
