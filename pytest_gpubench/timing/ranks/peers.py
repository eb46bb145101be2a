"""The ranks of a call as each other's peers: their hosts and GPUs wait for each other, and their hosts talk."""

import os
import sys
from datetime import timedelta
from typing import Any

import torch

from pytest_gpubench.timing.ranks.job import LOOPBACK, START_TIMEOUT_S, Rank


class Peers:
    """The other ranks, over a process group for the GPUs and one for the hosts."""

    def __init__(self, rank: Rank, port: int, timeout_s: float) -> None:
        import torch.distributed as dist

        os.environ.update(
            RANK=str(rank.index),
            LOCAL_RANK=str(rank.index),
            WORLD_SIZE=str(rank.world_size),
            LOCAL_WORLD_SIZE=str(rank.world_size),
            NCCL_NVLS_ENABLE="0",
        )
        if sys.platform == "linux":
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, "lo")
        if rank.device.type == "cuda":
            torch.cuda.set_device(rank.device)
        # the test's process gives up before this: it can say more
        patience = timedelta(seconds=START_TIMEOUT_S + 2 * timeout_s)
        store = dist.TCPStore(  # type: ignore[attr-defined] # public, though its home is C++
            LOOPBACK, port, is_master=False, timeout=patience
        )
        backend = "nccl" if rank.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank.index, world_size=rank.world_size, timeout=patience)
        self._world_size = rank.world_size
        self._hosts = dist.new_group(backend="gloo", timeout=patience)
        self._on_host = torch.zeros(1)
        self._on_device = torch.zeros(1, device=rank.device)
        self.meet_on_device()

    def meet(self) -> None:
        """Wait, on the host, until all are here."""
        import torch.distributed as dist

        dist.all_reduce(self._on_host, group=self._hosts)

    def meet_on_device(self) -> None:
        """Have the devices wait for each other in their queues."""
        import torch.distributed as dist

        dist.all_reduce(self._on_device)

    def tell(self, mine: object) -> list[Any]:
        """Return each rank's message, in their order."""
        import torch.distributed as dist

        told: list[Any] = [None] * self._world_size
        dist.all_gather_object(told, mine, group=self._hosts)
        return told
