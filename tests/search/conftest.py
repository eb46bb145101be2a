"""Collections of garbage that look only at what the tests make."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """Leave what is there by now out of garbage collection, of which there is one for each example without room."""
    gc.freeze()
    yield
    gc.unfreeze()
