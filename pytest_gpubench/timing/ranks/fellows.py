"""What the ranks of a call say to each other, from host to host and from GPU to GPU."""

import os
import sys
from datetime import timedelta
from typing import Any

from pytest_gpubench.timing.ranks.job import START_TIMEOUT_S, Rank

__tracebackhide__ = True


class Fellows:
    """What ranks say to each other, from host to host and from GPU to GPU."""

    def __init__(self, rank: Rank, port: int, timeout_s: float) -> None:
        import torch
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
        patience = timedelta(seconds=START_TIMEOUT_S + 2 * timeout_s)  # the test's process is first: it can say more
        store = dist.TCPStore(  # type: ignore[attr-defined] # public, though its home is C++
            "127.0.0.1", port, is_master=False, timeout=patience
        )
        backend = "nccl" if rank.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank.index, world_size=rank.world_size, timeout=patience)
        self.rank = rank
        self.hosts = dist.new_group(backend="gloo", timeout=patience)
        self.on_host = torch.zeros(1)
        self.on_device = torch.zeros(1, device=rank.device)
        self.meet_on_device()

    def meet(self) -> None:
        """Wait, on the host, until all are here."""
        import torch.distributed as dist

        dist.all_reduce(self.on_host, group=self.hosts)

    def meet_on_device(self) -> None:
        """Have the devices wait for each other in their queues."""
        import torch.distributed as dist

        dist.all_reduce(self.on_device)

    def tell(self, mine: object) -> list[Any]:
        """Return what each rank says, in their order."""
        import torch.distributed as dist

        said: list[Any] = [None] * self.rank.world_size
        dist.all_gather_object(said, mine, group=self.hosts)
        return said
