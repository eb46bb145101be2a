"""Specs of candidates: reference, inputs, tolerance and limits, read from three formats."""

from dataclasses import replace
from pathlib import Path

from pytest_gpubench.errors import BadFile, GpuBenchError
from pytest_gpubench.judge.spec.flashinfer_trace import spec_of_definition
from pytest_gpubench.judge.spec.kernelbench import spec_of_problem
from pytest_gpubench.judge.spec.model import Case, Entry, Spec, load_source
from pytest_gpubench.judge.spec.own_files import OwnFiles
from pytest_gpubench.judge.spec.python_file import spec_of_module

__all__ = ["Case", "Entry", "Spec", "read_spec"]


def read_spec(path: "Path | str") -> Spec:
    """Read a spec of our own, a KernelBench problem or a flashinfer-trace definition.

    Raises BadFile where the file cannot be read, and BadRequest where something in it is missing or not valid.
    """
    path = Path(path)
    try:
        files = OwnFiles(path.parent)
        with files.in_use():
            if path.suffix == ".json":
                spec = spec_of_definition(path, files)
            else:
                module = load_source(path, files.read)
                is_kernelbench = hasattr(module, "Model") and hasattr(module, "get_inputs")
                spec = (spec_of_problem if is_kernelbench else spec_of_module)(module, path)
        return replace(spec, digest=files.digest, files=files)
    except GpuBenchError:
        raise
    except (Exception, SystemExit) as error:
        raise BadFile(f"{path} cannot be used as a spec, it raises {type(error).__name__}: {error}") from error
