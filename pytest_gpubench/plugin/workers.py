"""xdist's side: how many workers there are, and which GPU each of them takes for its own."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.plugin.options import resolve
from pytest_gpubench.settings import Settings

if TYPE_CHECKING:
    from pytest_gpubench.gpu.claim import Claim
    from pytest_gpubench.gpu.visible import VisibleGpu

CONTROLLER = "gpu_bench_controller"
"""The key under which a worker is told the process id and the process-id namespace of its controller."""
COUNT_WITHOUT_CUDA = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""torch's variable: `torch.cuda.is_available()`, as in many a skipif, then asks NVML, and leaves CUDA alone."""


def auto_workers(config: pytest.Config) -> int | None:
    """Return one worker for each visible GPU; None leaves it to xdist: for want of GPUs, or of perf tests."""
    try:
        settings = resolve(config).run
    except BadRequest as error:
        raise pytest.UsageError(str(error)) from None
    asked_for_cpus = config.option.numprocesses == "logical" or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    without_perf = settings.skip or re.search(r"\bnot\s+perf\b", config.option.markexpr or "")
    if asked_for_cpus or without_perf or settings.device == "cpu":
        return None
    from pytest_gpubench.gpu import visible

    return len(visible.find_visible()) or None


def is_distributing(config: pytest.Config) -> bool:
    """Tell whether this process hands the tests to xdist workers."""
    return bool(config.getoption("tx", None)) and not is_worker(config)


def worker_name() -> str:
    """Return what xdist calls this process; `master` for one that it did not start."""
    return os.environ.get("PYTEST_XDIST_WORKER", "master")


def is_dry(config: pytest.Config) -> bool:
    """Tell whether no test is run: they are only collected, or only set up."""
    return bool(config.option.collectonly or config.getoption("setuponly", False))


def is_worker(config: pytest.Config) -> bool:
    """Tell whether this process gets its tests from xdist."""
    return hasattr(config, "workerinput")


def is_becoming_worker() -> bool:
    """Tell whether this process is a worker, before xdist has told pytest so; a pytest that a test started is not."""
    return "PYTEST_XDIST_WORKER" in os.environ and sys.argv[:1] == ["-c"]


def introduce(node: Any) -> None:
    """Tell a worker who its controller is."""
    from pytest_gpubench.gpu.processes import pid_namespace

    node.workerinput[CONTROLLER] = [os.getpid(), pid_namespace()]


def controller_pid(config: pytest.Config) -> int | None:
    """Return the process id of a worker's controller; None where it is on another host, or there is none."""
    from pytest_gpubench.gpu.processes import pid_namespace

    pid, namespace = getattr(config, "workerinput", {}).get(CONTROLLER, (None, None))
    return pid if namespace == pid_namespace() and pid in (os.getppid(), None) else None


def each_caveat(config: pytest.Config) -> str | None:
    """Return what to know of `--dist=each`; None without it."""
    if not is_distributing(config) or config.getoption("dist", "no") != "each":
        return None
    return "gpu_bench: --dist=each runs every test in every worker: each is measured, and shown, once for each worker"


@dataclass
class Pin:
    """The GPU of a worker and the others that the run may use, in the order in which CUDA is to number them."""

    claim: "Claim"
    order: "tuple[VisibleGpu, ...]"
    problem: str | None = None
    """Why CUDA does not keep to the variables; None where it does."""
    wide: bool = False
    """Whether the others can be used, too."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """The UUIDs of what CUDA shows this process, cuda:0 first."""
        return tuple(gpu.uuid for gpu in self.order) if self.wide else (self.claim.gpu.uuid,)

    def widen(self) -> None:
        """Let CUDA show the other GPUs after the own one, if it is not too late for that."""
        from pytest_gpubench.gpu.context import cuda_was_started

        if self.problem is not None or cuda_was_started():
            return
        self.wide = True
        show(self.uuids)

    def sign(self, arguments: Sequence[str]) -> None:
        """Write into the locks by which command this worker was started, once that is known."""
        from pytest_gpubench.gpu.holder import Holder, command_line

        self.claim.file.write(Holder.of_this_process(command=command_line(arguments)))


_pin: Pin | None = None


def pin_worker(settings: Settings) -> Pin | None:
    """Take a GPU of this host and make it the only one that CUDA shows this process; None where none is visible.

    A process does so once, whatever pytest runs in it.
    """
    global _pin
    if _pin is None and settings.device != "cpu":
        from pytest_gpubench.gpu import visible

        _pin = pin_to(visible.find_visible(), settings)
    return _pin


def pin_to(gpus: "Sequence[VisibleGpu]", settings: Settings) -> Pin | None:
    """Take one of these GPUs and make it the only one that CUDA shows this process; None where there are none."""
    from pytest_gpubench.gpu.claim import claim_gpu
    from pytest_gpubench.gpu.context import cuda_was_started

    if not gpus:
        return None
    early = cuda_was_started()
    claim = claim_gpu(gpus, lock_folder(settings))
    place = list(gpus).index(claim.gpu)
    pin = Pin(claim, (*gpus[place:], *gpus[:place]))
    if early:
        pin.problem = set_current(claim.gpu.uuid)
        return pin
    show(pin.uuids)
    os.environ.setdefault(COUNT_WITHOUT_CUDA, "1")
    return pin


def show(uuids: Sequence[str]) -> None:
    """Have CUDA show this process these GPUs only."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)


def set_current(uuid: str) -> str:
    """Make a GPU the current one of a process in which CUDA has been started; return what to say about it."""
    sentence = (
        f"CUDA was started {who_started_cuda()}, before this worker could be pinned to {uuid}: it sees every GPU, and "
        "uses what is cuda:0 to others unless it is told otherwise; start CUDA in tests or fixtures only"
    )
    import torch

    for index in range(torch.cuda.device_count()):
        properties: Any = torch.cuda.get_device_properties(index)
        if same_gpu(str(getattr(properties, "uuid", "")), uuid):
            torch.cuda.set_device(index)
            return f"{sentence} (the current device was set to cuda:{index})"
    return sentence


def who_started_cuda() -> str:
    """Return by whom CUDA was started, as far as it can be told: torch keeps the stack of no one."""
    conftests = [name for name in sys.modules if name == "conftest" or name.endswith(".conftest")]
    files = [str(getattr(sys.modules[name], "__file__", name)) for name in conftests]
    return f"while {' or '.join(files)} was imported" if files else "by a plugin (-p, or an installed one)"


def same_gpu(uuid: str, other: str) -> bool:
    """Tell whether two UUIDs are the same but for the kind that they begin with, which torch leaves out."""
    bare = [each.removeprefix("GPU-").removeprefix("MIG-") for each in (uuid, other)]
    return bool(bare[0]) and bare[0] == bare[1]


def lock_folder(settings: Settings) -> Path:
    """Return where the locks are."""
    from pytest_gpubench.gpu.lock_file import default_folder

    return default_folder() if settings.lock_folder is None else Path(settings.lock_folder).expanduser()


class Workers:
    """The hooks of a worker, and of the controller that starts workers."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.pin: Pin | None = None
        if is_worker(config):
            self._claim()

    def _claim(self) -> None:
        try:
            self.pin = pin_worker(self.settings)  # most have done so before the first conftest was imported
        except (BadRequest, DeviceUnavailable) as error:
            raise pytest.UsageError(str(error)) from None
        if self.pin is not None:
            self.pin.sign(getattr(self.config, "workerinput", {}).get("mainargv", sys.argv))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker who its controller is."""
        introduce(node)

    def pytest_report_header(self) -> list[str]:
        """Say what makes little sense, and what GPUs may be taken for each other."""
        caveats = [each_caveat(self.config)]
        if is_distributing(self.config) and self.settings.device != "cpu" and "CUDA_VISIBLE_DEVICES" in os.environ:
            from pytest_gpubench.gpu import visible

            caveats.append(visible.index_caveat(os.environ, visible.read_host()))
        return [caveat for caveat in caveats if caveat is not None]
