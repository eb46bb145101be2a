"""Whether CUDA can still be used in this process."""

import re
import sys

from pytest_gpubench.units import printable

SUSPICIOUS = re.compile(r"cuda|cublas|cudnn|nccl|accelerator", re.IGNORECASE)


def context_error() -> str | None:
    """Return the error that every call of CUDA in this process now ends with; None where it is usable, or not used."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        torch.cuda.synchronize()
    except RuntimeError as error:
        return printable((str(error).splitlines() or [type(error).__name__])[0])
    except AttributeError:  # a torch that is being imported
        pass
    return None


def speaks_of_cuda(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it came from, may be CUDA's; only then is CUDA asked, since asking waits."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if SUSPICIOUS.search(f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False
