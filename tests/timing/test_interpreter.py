"""The notice of Triton's interpreter."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from pytest_gpubench import WrongResult
from pytest_gpubench.timing.interpreter import counting_launches, noting_bfloat16


class GridExecutor:
    """Stands for Triton's, which launches interpreted kernels."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(("dtype", "is_told"), [(torch.bfloat16, True), (torch.float16, False)])
def test_a_wrong_output_in_bfloat16_is_told_to_be_the_interpreters(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, is_told: bool
) -> None:
    module: Any = ModuleType("interpreter")
    module.GridExecutor = GridExecutor
    monkeypatch.setitem(sys.modules, "triton.runtime.interpreter", module)

    @noting_bfloat16()
    def compare() -> None:
        with counting_launches() as launches:
            GridExecutor()(torch.ones(3), 3, out=torch.ones(3, dtype=dtype))
        raise WrongResult(f"wrong after {launches.number} launch")

    with pytest.raises(WrongResult, match="wrong after 1 launch") as wrong:
        compare()
    assert any("bfloat16" in each for each in getattr(wrong.value, "__notes__", ())) is is_told
