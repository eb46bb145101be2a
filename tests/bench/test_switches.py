"""A call that leaves a switch of torch other than it found it is named, and the switch is put back."""

import functools
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_gpubench import UnfairComparison
from pytest_gpubench.bench import switches as module
from pytest_gpubench.bench.switches import PRECISIONS, readings, refuse_switching, switches


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = readings()
    yield
    assert readings() == before


matmul, cuda = torch.backends.cuda.matmul, torch.backends.cuda
CHANGES: dict[str, Callable[[], Any]] = {
    "torch.backends.cuda.matmul.allow_tf32": lambda: setattr(matmul, "allow_tf32", True),
    "torch.set_float32_matmul_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "torch.backends.cudnn.allow_tf32": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "torch.backends.cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    **{
        f"torch.backends.cuda.matmul.{name}": functools.partial(setattr, matmul, name, False)
        for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    },
    "torch.backends.cuda.enable_flash_sdp": lambda: cuda.enable_flash_sdp(False),
    "torch.backends.cuda.enable_mem_efficient_sdp": lambda: cuda.enable_mem_efficient_sdp(False),
    "torch.backends.cuda.enable_math_sdp": lambda: cuda.enable_math_sdp(False),
    "torch.backends.cuda.enable_cudnn_sdp": lambda: cuda.enable_cudnn_sdp(False),
    "torch.use_deterministic_algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "torch.set_default_dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch.set_default_device": lambda: torch.set_default_device("meta"),
    "torch.set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "torch.set_num_threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "torch.backends.mkldnn.enabled": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "torch.autograd.set_detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "torch.set_autocast_cache_enabled": lambda: torch.set_autocast_cache_enabled(False),
    "torch.autocast('cpu')": lambda: torch.set_autocast_enabled("cpu", True),
    "torch.autocast('cuda')": lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
}
if hasattr(torch._C, "_set_sdp_priority_order"):  # of torch 2.7 and later
    CHANGES["torch.nn.attention.sdpa_kernel"] = lambda: torch._C._set_sdp_priority_order([0, 1, 2, 3, 4])
ALONE = [name for name in CHANGES if "tf32" not in name and "float32" not in name]
"""The switches whose change changes no other."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_switch_is_named_and_put_back(name: str) -> None:
    before = readings()
    CHANGES[name]()
    with pytest.raises(UnfairComparison, match=r"^mine changed .*, and left it so") as raised:
        refuse_switching("mine", before)
    assert f"{name} from " in str(raised.value)
    if name in ALONE:
        assert str(raised.value).count(" from ") == 1


@pytest.mark.parametrize("enabled", [False, True])
def test_the_dtype_of_autocast_is_put_back_too(enabled: bool) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    before = readings()
    torch.set_autocast_dtype("cpu", torch.float16)
    sentence = rf"torch\.autocast\('cpu'\) from \({enabled}, torch.bfloat16\) to \({enabled}, torch.float16\), and left"
    with pytest.raises(UnfairComparison, match=sentence):
        refuse_switching("mine", before)
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    torch.set_autocast_enabled("cpu", False)


@pytest.mark.skipif(not hasattr(matmul, "fp32_precision"), reason="needs torch 2.9")
@pytest.mark.parametrize(
    ("name", "precision"),
    # cuDNN's are tf32, and where the others are none that computes as ieee does
    [(name, "ieee" if name in ("cudnn.conv.", "cudnn.rnn.") else "tf32") for name in PRECISIONS],
)
def test_a_precision_by_its_new_name(name: str, precision: str) -> None:
    """Told once, not for each that follows it; the old names, which cannot be read after that, are put back too."""
    before = readings()
    old = {each.name: each.read for each in switches()}[f"torch.backends.{name}fp32_precision"]()
    torch._C._set_fp32_precision_setter(*PRECISIONS[name], precision)
    told = rf"^mine changed torch\.backends\.{re.escape(name)}fp32_precision from {old} to {precision}, and left it so"
    with pytest.raises(UnfairComparison, match=told):
        refuse_switching("mine", before)
    assert readings() == before


def test_an_old_name_that_is_put_back_is_no_change() -> None:
    """Its new name is ieee after that, and was none."""
    before, old = readings(), matmul.allow_tf32
    matmul.allow_tf32 = not old
    matmul.allow_tf32 = old
    torch.set_float32_matmul_precision("highest")
    refuse_switching("mine", before)
    assert readings() == before


@pytest.mark.skipif(not hasattr(matmul, "fp32_precision"), reason="needs torch 2.9")
def test_switches_are_the_same_where_some_cannot_be_read() -> None:
    before = readings()
    torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]
    switches.cache_clear()
    assert len(switches()) == len(before)
    with pytest.raises(UnfairComparison):
        refuse_switching("mine", before)


def test_a_limit_that_only_builds_for_cuda_have(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [10]
    monkeypatch.setattr("torch._C._cuda_get_cudnn_benchmark_limit", lambda: limits[-1], raising=False)
    monkeypatch.setattr("torch._C._cuda_set_cudnn_benchmark_limit", limits.append, raising=False)
    (limit,) = [each for each in module._pairs() if each.name == "torch.backends.cudnn.benchmark_limit"]
    limit.write(5)
    assert limit.read() == 5


def test_a_warning_is_no_switch() -> None:
    before = readings()
    torch.set_warn_always(True)
    assert readings() == before
    torch.set_warn_always(False)


def test_public_names_are_there() -> None:
    for switch in switches():
        if "autocast(" not in switch.name:
            pkgutil.resolve_name(switch.name)


def test_a_warning_that_is_an_error_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some torch versions warn once, where TF32 is on, that its switch has a new name."""
    before, place = readings(), [switch.name for switch in switches()].index("torch.backends.cuda.matmul.allow_tf32")

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
