from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs a GPU: nothing here is proved by this run"))


@pytest.fixture
def side_stream() -> Iterator[torch.cuda.Stream]:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    yield stream
    stream.synchronize()
