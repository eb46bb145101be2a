"""What NVML is asked to change of the clocks of a GPU, and what its refusals mean."""

from typing import Any

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.nvml import Nvml


def open_gpu(uuid: str) -> Nvml:
    """Open a GPU by its UUID; raise DeviceUnavailable where NVML cannot."""
    try:
        return Nvml.open(uuid)
    except RuntimeError as error:
        raise DeviceUnavailable(f"asked to lock the clocks of {uuid}, but {error}") from None


def refuse_mig(nvml: Nvml, uuid: str) -> None:
    """Raise DeviceUnavailable for a GPU split into instances: its clocks are those of all of them."""
    if uuid.startswith("MIG-") or nvml.mig():
        raise DeviceUnavailable(
            f"asked to lock the clocks of {uuid}, but the GPU is split into MIG instances, which share its clocks: "
            "measure without --gpu-bench-lock-clocks, or on a whole GPU"
        )


def change(nvml: Nvml, what: str, *arguments: Any) -> None:
    """Call one of the functions of NVML that change something; raise its NVMLError."""
    getattr(nvml.library, f"nvmlDevice{what}")(nvml.handle, *arguments)


def reset_clocks(nvml: Nvml, uuid: str) -> str | None:
    """Leave the clocks to the GPU again; return what was in the way, None where nothing was."""
    problem = None
    for domain in ("Gpu", "Memory"):
        try:
            change(nvml, f"Reset{domain}LockedClocks")
        except nvml.library.NVMLError as error:
            if not is_unsupported(error, nvml.library):
                problem = (
                    f"they could not be given back ({error}): as root, run `nvidia-smi -i {uuid} -rgc` and the same "
                    "with -rmc, or `pytest-gpubench doctor --restore-clocks`"
                )
    return problem


def is_unsupported(error: Exception, library: Any) -> bool:
    """Tell whether the GPU, or its driver, cannot do what was asked."""
    kinds = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLError_Deprecated")
    return isinstance(error, tuple(getattr(library, kind) for kind in kinds if hasattr(library, kind)))


def is_refusal(error: Exception, library: Any) -> bool:
    """Tell whether NVML has changed nothing, by its error."""
    return is_unsupported(error, library) or isinstance(error, library.NVMLError_NoPermission)


def explain(error: Exception, library: Any) -> str:
    """Return in one clause why clocks cannot be locked, and what to do."""
    if isinstance(error, library.NVMLError_NoPermission):
        return "this user has not the rights: run as root, or measure without --gpu-bench-lock-clocks"
    if is_unsupported(error, library):
        return f"the GPU or its driver cannot do that ({error}): measure without --gpu-bench-lock-clocks"
    return f"NVML failed ({error}): see nvidia-smi"
