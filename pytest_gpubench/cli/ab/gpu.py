"""The one GPU that both versions are measured on."""

from pytest_gpubench.cli.ab.printed import say
from pytest_gpubench.errors import BadRequest, DeviceUnavailable

HELD: list[object] = []
"""Claims last as long as they are referred to."""


def one_gpu() -> dict[str, str]:
    """Return the variables that pin all runs to one GPU, taken for them; nothing where NVML sees none to choose from.

    Its place is held until this process ends, so that the workers of other runs take another GPU.
    """
    from pytest_gpubench.gpu.claim import claim_gpu
    from pytest_gpubench.gpu.lock_file import default_folder
    from pytest_gpubench.gpu.visible import find_visible

    visible = find_visible()
    if len(visible) < 2:
        return {}
    try:
        claim = claim_gpu(visible, default_folder())
    except (BadRequest, DeviceUnavailable) as error:
        say(f"warning: no GPU is held for these runs, the first one is used: {error}")
        return {"CUDA_VISIBLE_DEVICES": visible[0].uuid}
    say(f"both are measured on {claim.gpu.name} {claim.gpu.uuid}, one of {len(visible)} GPUs")
    HELD.append(claim)
    return {"CUDA_VISIBLE_DEVICES": claim.gpu.uuid}
