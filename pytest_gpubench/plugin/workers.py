"""xdist: what each process is, what workers and controller tell each other, and the GPU that a worker claims.

It is made the only one that CUDA shows the worker.
"""

import os
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.gpu import context, visible
from pytest_gpubench.gpu.lock import Claim, claim_gpu
from pytest_gpubench.gpu.lock_file import lock_folder_of
from pytest_gpubench.gpu.processes import pid_namespace
from pytest_gpubench.gpu.visible import VisibleGpu, parse_list, same_gpu
from pytest_gpubench.plugin.items import takes_turns
from pytest_gpubench.settings import Settings

CONTROLLER = "gpu_bench_controller"
"""The key under which a worker is told the process id and the process-id namespace of its controller."""
HANDED_ON = pytest.StashKey[dict[str, Any]]()


def hand_on(config: pytest.Config, key: str, value: object) -> None:
    """Give later workers a value of JSON's types; they read it by `handed_on`."""
    config.stash.setdefault(HANDED_ON, {})[key] = value


def handed_on(config: pytest.Config, key: str) -> Any:
    """Return a value that the controller gave this worker; None without one, and outside of workers."""
    return getattr(config, "workerinput", {}).get(key)


def is_distributing(config: pytest.Config) -> bool:
    """Tell whether this process hands the tests to xdist workers."""
    return bool(config.getoption("tx", None)) and not is_worker(config)


def worker_name() -> str:
    """Return xdist's name of this process; `master` if xdist did not start it."""
    return os.environ.get("PYTEST_XDIST_WORKER", "master")


def is_dry(config: pytest.Config) -> bool:
    """Tell whether no test is run: tests are only collected or set up, or fixtures or the cache are shown."""
    names = ("collectonly", "setuponly", "setupplan", "showfixtures", "show_fixtures_per_test", "cacheshow")
    return any(config.getoption(name, None) for name in names)


def is_worker(config: pytest.Config) -> bool:
    """Tell whether this process gets its tests from xdist."""
    return hasattr(config, "workerinput")


def without_group(nodeid: str) -> str:
    """Return a node id without what xdist adds to it under --dist=loadgroup: the group, as in `a.py::test_it@gpu`."""
    test, _, group = nodeid.rpartition("@")
    return test if "::" in test and "]" not in group else nodeid


def run_arguments(config: pytest.Config) -> list[str]:
    """Return the command line that the user typed, in a worker too."""
    arguments: list[str] = getattr(config, "workerinput", {}).get("mainargv", sys.argv)
    return arguments


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
        claim = claim_gpu(gpus, lock_folder_of(settings))
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


class Workers:
    """The hooks of a worker that pins itself to a GPU, and of the controller that starts workers."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        try:  # most workers have pinned themselves before the first conftest was imported
            self.pin = pin_worker(settings) if is_worker(config) else None
        except DeviceUnavailable as error:
            raise BadRequest(str(error)) from None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker its controller's process id, and the values for workers."""
        node.workerinput[CONTROLLER] = [os.getpid(), pid_namespace()]
        node.workerinput.update(self.config.stash.get(HANDED_ON, {}))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take the groups off a worker's tests, once xdist knows them: a test has one name in all runs."""
        for item in filter(takes_turns, session.items if is_worker(self.config) else ()):
            item._nodeid = without_group(item.nodeid)  # type: ignore[attr-defined] # gone since pytest 9.2

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """Take the group off a test that a worker died in."""
        report.nodeid = without_group(report.nodeid)

    def pytest_report_header(self) -> list[str]:
        """Warn of --dist=each, and of GPUs that may be mistaken for each other."""
        if not is_distributing(self.config):
            return []
        caveats = []
        if self.config.getoption("dist", "no") == "each":
            caveats.append("gpu_bench: --dist=each runs every test in every worker: each measures and shows it")
        listed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        are_numbers = self.settings.device != "cpu" and parse_list(listed) and not listed.startswith(("GPU-", "MIG-"))
        in_pci_order = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        if are_numbers and not in_pci_order and len({each.gpu.name for each in visible.read_host()}) > 1:
            caveats.append(
                f"gpu_bench: CUDA_VISIBLE_DEVICES={listed} is read in the order of the PCI bus, but these GPUs are not "
                "alike and CUDA numbers the fastest first: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list UUIDs "
                "(nvidia-smi -L)"
            )
        return caveats
