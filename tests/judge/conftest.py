from collections.abc import Iterator

import pytest

from tests import fork_server


@pytest.fixture(scope="module", autouse=True)
def forked_candidates() -> Iterator[None]:
    """Fork the template, too, from a process in which torch is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subprocess.Popen", fork_server.PopenWithTorch)
        yield
