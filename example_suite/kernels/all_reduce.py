"""The sum over all ranks of a process group, in place, by NCCL."""

import torch
import torch.distributed as dist


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x
