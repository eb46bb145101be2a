"""`python -m pytest_gpubench` is the command `pytest-gpubench`."""

from pytest_gpubench.cli import main

raise SystemExit(main())
