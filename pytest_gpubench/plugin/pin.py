"""The GPU of an xdist worker: claimed, and made the only one that CUDA shows it."""

import os
from dataclasses import dataclass
from typing import Any

from pytest_gpubench.gpu import context, visible
from pytest_gpubench.gpu.lock import Claim, claim_gpu
from pytest_gpubench.gpu.lock_file import lock_folder
from pytest_gpubench.gpu.visible import VisibleGpu, same_gpu
from pytest_gpubench.settings import Settings

COUNT_WITHOUT_CUDA = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""torch's variable: `torch.cuda.is_available()`, as in many a skipif, then asks NVML and does not start CUDA."""


@dataclass
class Pin:
    """The GPU of a worker and the others that the run may use, in the order in which CUDA is to number them."""

    claim: Claim
    order: tuple[VisibleGpu, ...]
    problem: str | None = None
    """The reason why CUDA shows other GPUs than these; None where it does not."""
    wide: bool = False
    """True if CUDA shows the other GPUs too."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs that CUDA shows this process, cuda:0 first."""
        return tuple(gpu.uuid for gpu in self.order) if self.wide else (self.claim.gpu.uuid,)

    def show(self) -> None:
        """Set the variables that CUDA reads when it starts."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.uuids)
        os.environ.setdefault(COUNT_WITHOUT_CUDA, "1")


_pin: Pin | None = None


def pin_worker(settings: Settings) -> Pin | None:
    """Claim a GPU of this host and show CUDA only that one; None where none is visible.

    A process does so once, whichever pytest runs in it.
    """
    global _pin
    gpus = visible.find_visible() if _pin is None and settings.device != "cpu" else []
    if gpus:
        too_late = context.cuda_was_started()
        claim = claim_gpu(gpus, lock_folder(settings.lock_folder))
        place = gpus.index(claim.gpu)
        _pin = Pin(claim, (*gpus[place:], *gpus[:place]))
        if too_late:
            _pin.problem = _set_current(claim.gpu.uuid)
        else:
            _pin.show()
    return _pin


def _set_current(uuid: str) -> str:
    """Make a GPU the current one of a process in which CUDA was started; return a warning."""
    import torch

    sentence = (
        f"CUDA was started by a conftest or a plugin, before this worker could be pinned to {uuid}: it sees every GPU, "
        "and uses what is cuda:0 to others unless it is told otherwise; start CUDA in tests or fixtures only"
    )
    for index in range(torch.cuda.device_count()):
        properties: Any = torch.cuda.get_device_properties(index)
        if same_gpu(str(getattr(properties, "uuid", "")), uuid):
            torch.cuda.set_device(index)
            return f"{sentence} (the current device was set to cuda:{index})"
    return sentence
