"""Compile CUDA code, whose kernels may launch kernels."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch


def compiled(source: str, folder: Path) -> Path:
    """Return a library of some CUDA code; skip the test where nvcc, or its library for that, is missing."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc")
    major, minor = torch.cuda.get_device_capability()
    code, library = folder / "code.cu", folder / "code.so"
    code.write_text(source)
    options = ["-O3", f"-arch=sm_{major}{minor}", "-rdc=true", "-Xcompiler", "-fPIC", "-shared", "-lcudadevrt"]
    command = [nvcc, *options, "-o", str(library), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs an nvcc that links cudadevrt: {done.stderr[:200]}")
    return library
