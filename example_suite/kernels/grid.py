"""The number of programs that a kernel starts that goes through the rows in strides and keeps a sum of its own."""

import torch

PROGRAMS_PER_SM = 2
PROGRAMS_ON_CPU = 2


def count_programs(rows: int, device: torch.device) -> int:
    """Return enough programs to fill the GPU, and few enough for their partial sums to be small beside the rows."""
    if device.type != "cuda":
        return min(rows, PROGRAMS_ON_CPU)
    return min(rows, PROGRAMS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count)
