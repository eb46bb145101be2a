"""Images of kernels, found by the driver's function."""

import gc
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.replay import images
from pytest_gpubench.replay.images import Images, image_of, note_launched, sha256_of


class CompiledKernel:
    """As Triton keeps one."""

    def __init__(self, function: int | None, image: bytes | None = b"cubin") -> None:
        self.function = function
        self.asm = {} if image is None else {"ptx": "text", "cubin": image}


class StaticallyLaunchedTritonKernel:
    """As torch.compile keeps one."""

    def __init__(self, function: int, hash: str = "abc", raw: bytes | None = None) -> None:
        self.function, self.hash, self.name, self.cubin_raw = function, hash, "triton_poi", raw


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_launched", {})
    monkeypatch.setattr(images, "COMPILED", {__name__: ("CompiledKernel", "StaticallyLaunchedTritonKernel", "Absent")})


def test_kernels_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look takes 50 ms: once for a call, however many kernels of libraries it has, and not for kernels known."""
    kernels = [CompiledKernel(1234567), CompiledKernel(1234568, b"other"), CompiledKernel(1234569, b"noted")]
    note_launched(kernels[2:])
    looks: list[int] = []
    get_objects = gc.get_objects

    def noting() -> list[object]:
        looks.append(1)
        return get_objects()

    monkeypatch.setattr(gc, "get_objects", noting)
    first, second = Images(), Images()
    assert (first.of(1234569, "k"), looks) == (sha256_of(b"noted"), [])
    assert [first.of(number, "k") for number in (1234567, 7654321, 7654322)] == [sha256_of(b"cubin"), "", ""]
    assert second.of(1234568, "k") == sha256_of(b"other")
    assert len(looks) == 1
    assert second.of(7654321, "k") == ""
    assert (len(looks), len(kernels)) == (2, 3)


def test_a_kernel_that_is_gone_is_not_taken_for_another_of_its_number() -> None:
    old = CompiledKernel(1234567, b"old")
    assert Images().of(1234567, "k") == sha256_of(b"old")
    old.function = None
    new = CompiledKernel(1234567, b"new")
    assert Images().of(1234567, "k") == sha256_of(b"new")
    assert new.function


@pytest.mark.parametrize(
    ("function", "image"),
    [(1234567, b"cubin"), (None, b"cubin"), (1234567, None)],
    ids=["found", "not launched", "no image"],
)
def test_an_image_is_found_by_its_function_or_missing(function: int | None, image: bytes | None) -> None:
    kernel, found, name = CompiledKernel(function, image), Images(), sha256_of(b"cubin")
    is_found = kernel.function is not None and image is not None
    assert found.of(1234567, "mine") == (name if is_found else "")
    assert (found.missing, found.found) == (([], {name: b"cubin"}) if is_found else (["mine"], {}))


@pytest.mark.parametrize("kept", ["in itself", "in the cache"])
def test_an_image_of_torch_compile(kept: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its launcher lets go of the image: Triton's cache has it."""
    (tmp_path / "triton_poi.cubin").write_bytes(b"cached")

    class Manager:
        def __init__(self, hash: str) -> None:
            assert hash == "abc"

        def get_file(self, name: str) -> str | None:
            path = tmp_path / name
            return str(path) if path.exists() else None

    cache: Any = pytest.importorskip("triton.runtime.cache")
    monkeypatch.setattr(cache, "get_cache_manager", Manager)
    kernel = StaticallyLaunchedTritonKernel(1234567, raw=b"raw" if kept == "in itself" else None)
    assert image_of(kernel) == (b"raw" if kept == "in itself" else b"cached")
    (tmp_path / "triton_poi.cubin").unlink()
    assert (image_of(kernel) is None) == (kept == "in the cache")
