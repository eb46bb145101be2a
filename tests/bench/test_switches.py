"""A call that leaves a switch of torch other than it found it is named, and the switch is put back."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_gpubench import UnfairComparison
from pytest_gpubench.bench import switches as module
from pytest_gpubench.bench.switches import readings, refuse_switching, switches


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = readings()
    yield
    assert readings() == before


matmul, cuda = torch.backends.cuda.matmul, torch.backends.cuda
CHANGES: dict[str, Callable[[], Any]] = {
    "cublas_allow_tf32": lambda: setattr(matmul, "allow_tf32", True),
    "float32_matmul_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "cudnn_allow_tf32": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "cudnn_benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cublas_allow_fp16_reduced": lambda: setattr(matmul, "allow_fp16_reduced_precision_reduction", False),
    "cublas_allow_bf16_reduced": lambda: setattr(matmul, "allow_bf16_reduced_precision_reduction", False),
    "backends.cuda.enable_flash_sdp": lambda: cuda.enable_flash_sdp(False),
    "backends.cuda.enable_mem_efficient_sdp": lambda: cuda.enable_mem_efficient_sdp(False),
    "backends.cuda.enable_math_sdp": lambda: cuda.enable_math_sdp(False),
    "backends.cuda.enable_cudnn_sdp": lambda: cuda.enable_cudnn_sdp(False),
    "use_deterministic_algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "set_default_dtype": lambda: torch.set_default_dtype(torch.float64),
    "set_default_device": lambda: torch.set_default_device("meta"),
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "set_num_threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "mkldnn_enabled": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "autograd.set_detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "set_autocast_cache_enabled": lambda: torch.set_autocast_cache_enabled(False),
    "autocast of cpu": lambda: torch.set_autocast_enabled("cpu", True),
    "autocast of cuda": lambda: torch.set_autocast_enabled("cuda", True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_switch_is_named_and_put_back(name: str) -> None:
    before = readings()
    CHANGES[name]()
    with pytest.raises(UnfairComparison, match=rf"^mine changed .*torch's {name}.* from .* to .*, and left it so"):
        refuse_switching("mine", before)


def test_the_new_names_of_precision_are_noticed_too() -> None:
    """Torch refuses to tell the old name's value after that: it cannot be read, and is put back all the same."""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("needs torch 2.9")
    before = readings()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    switches.cache_clear()
    assert len(switches()) == len(before)
    with pytest.raises(UnfairComparison, match="allow_tf32 from False to unreadable"):
        refuse_switching("mine", before)


def test_a_warning_that_is_an_error_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some torch versions warn once, where TF32 is on, that its switch has a new name."""
    before, place = readings(), [switch.name for switch in switches()].index("cublas_allow_tf32")

    def warns() -> bool:
        warnings.warn("Please use the new API settings", UserWarning, stacklevel=1)
        return True

    changed = list(switches())
    changed[place] = replace(changed[place], read=warns)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_readers", lambda: tuple(switch.read for switch in changed))
        assert readings() == (*before[:place], True, *before[place + 1 :])


def test_nothing_is_said_of_a_switch_that_was_put_back() -> None:
    before = readings()
    with torch.no_grad(), torch.autocast("cpu"), torch.device("meta"):
        assert readings() != before
    refuse_switching("mine", before)


def test_each_switch_is_there_once() -> None:
    names = [switch.name for switch in switches()]
    assert len(names) == len(set(names)) >= 18
