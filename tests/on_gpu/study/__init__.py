"""Studies that measure the measuring; the README beside this folder has their tables."""
