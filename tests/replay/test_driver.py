"""The driver's answers, from a library that answers from tables, and from walks that were recorded on an H100."""

import ctypes
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.replay import driver
from pytest_gpubench.replay.driver import Driver, DriverError, find_driver
from tests.replay.fake_graphs import NUMBERS, SMS, FakeGraphs, FakeNode
from tests.results.measured import resources

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
"""The kernels of calls (torch 2.11, Triton 3.6, driver 580), each with what ncu said of it."""


def launched(function: int, cluster: tuple[int, ...] = (), **others: Any) -> FakeNode:
    """Return a node that launches a function."""
    return FakeNode(0, (), function, attributes={4: struct.pack(f"<{len(cluster)}I", *cluster)}, **others)


def played(*kernels: dict[str, Any]) -> Driver:
    """Return a driver that captures a graph of launches that were recorded."""
    cuda, nodes = FakeGraphs(), []
    for each in kernels:
        cluster = tuple(each.get("cluster", (1, 1, 1)))
        in_cluster = math.prod(cluster)
        function = cuda.function(
            each["symbol"],
            attributes={4: each["registers"], 3: each.get("local_bytes", 0), 1: each.get("static_shared_bytes", 0)},
            blocks_per_sm=each["blocks_per_sm"],
            clusters=each["resident_blocks"] // in_cluster,
        )
        size = {"grid": each["grid"], "block": each["block"], "shared_bytes": each.get("dynamic_shared_bytes", 0)}
        nodes.append(launched(function, cluster if in_cluster > 1 else (), **size))
    cuda.captured = cuda.graph(*nodes)
    return Driver(cuda)


def launches_of(cuda: Driver) -> list[driver.Launch]:
    return list(cuda.launches(cuda.graph_captured_on(77)))


def test_kernels_are_found_in_graphs_within_graphs() -> None:
    library = FakeGraphs()
    one, two = map(library.function, ("one", "two"))
    inner = library.graph(launched(two, grid=(7, 1, 1)), FakeNode(NUMBERS["memcpy"]))
    child = FakeNode(NUMBERS["child"], child=inner)
    third = launched(one, block=(8, 8, 2), by_kernel=True)  # it holds a kernel in place of a function
    library.captured = library.graph(launched(one, grid=(5, 2, 1)), FakeNode(NUMBERS["memset"]), child, third)
    cuda = Driver(library)
    found = launches_of(cuda)
    assert library.asked == [77]
    assert [each.function for each in found] == [one, two, one]
    assert [cuda.symbol(each.function) for each in found] == ["one", "two", "one"]
    assert [each.grid for each in found] == [(5, 2, 1), (7, 1, 1), (1, 1, 1)]
    assert found[2].block == (8, 8, 2)


def test_what_a_launch_takes() -> None:
    library = FakeGraphs()
    function = library.function("mine", attributes={1: 16, 3: 600, 4: 255}, blocks_per_sm=2)
    library.captured = library.graph(launched(function, grid=(300, 2, 1), block=(128, 2, 1), shared_bytes=4096))
    cuda = Driver(library)
    [launch] = launches_of(cuda)
    found = cuda.resources(launch, 3)
    assert library.asked[1:] == [(256, 4096)]
    assert (found.launches, found.grid, found.block, found.cluster) == (3, (300, 2, 1), (128, 2, 1), (1, 1, 1))
    assert (found.registers, found.local_bytes) == (255, 600)
    assert (found.static_shared_bytes, found.dynamic_shared_bytes, found.shared_bytes) == (16, 4096, 4112)
    assert (found.blocks_per_sm, found.resident_blocks) == (2, 2 * SMS)
    assert found.waves == pytest.approx(600 / 264)
    assert found.tail == pytest.approx(1 - 72 / 264)


@pytest.mark.parametrize(
    ("cluster", "attributes"), [((4, 1, 1), {}), ((), {11: 4, 12: 1, 13: 1})], ids=["launched", "compiled"]
)
def test_clusters_are_held_as_a_whole(cluster: tuple[int, ...], attributes: dict[int, int]) -> None:
    """The driver says how many fit into the GPU: fewer than its multiprocessors have room for."""
    library = FakeGraphs()
    function = library.function("mine", attributes=attributes, blocks_per_sm=2, clusters=30)
    library.captured = library.graph(launched(function, cluster, grid=(8, 1, 1)))
    cuda = Driver(library)
    [launch] = launches_of(cuda)
    found = cuda.resources(launch)
    assert found.cluster == (4, 1, 1)
    assert library.asked[-1] == ((8, 1, 1), (32, 1, 1), (4, 1, 1))
    assert (found.blocks_per_sm, found.resident_blocks) == (2, 120)


@pytest.mark.parametrize(
    ("blocks", "waves", "tail"),
    [(132, 1.0, 0.0), (264, 2.0, 0.0), (133, 133 / 132, 131 / 132), (1, 1 / 132, 131 / 132)],
)
def test_the_last_wave(blocks: int, waves: float, tail: float) -> None:
    found = resources(grid=(blocks, 1, 1), resident_blocks=132)
    assert (found.waves, found.tail) == pytest.approx((waves, tail))


@pytest.mark.parametrize("call", RECORDED)
def test_a_recorded_walk_agrees_with_ncu(call: str) -> None:
    """Registers, blocks per multiprocessor, clusters that fit in, and waves, which ncu rounds to two places."""
    cuda = played(*RECORDED[call])
    found = launches_of(cuda)
    assert len(found) == len(RECORDED[call])
    for launch, recorded in zip(found, RECORDED[call], strict=True):
        assert cuda.symbol(launch.function) == recorded["symbol"]
        taken, ncu = cuda.resources(launch), recorded["ncu"]
        assert taken.resident_blocks == recorded["resident_blocks"]
        assert (taken.registers, taken.blocks_per_sm) == (ncu["registers"], ncu["blocks_per_sm"])
        assert taken.waves == pytest.approx(ncu["waves"], abs=0.0051)
        if ncu["clusters"]:
            assert taken.resident_blocks == ncu["clusters"] * math.prod(taken.cluster)


@pytest.mark.parametrize("name", Driver.needed)
def test_an_error_of_the_driver_names_its_function(name: str) -> None:
    library = FakeGraphs(fails=name)
    mine, child = library.function("mine"), FakeNode(NUMBERS["child"], child=library.graph())
    library.captured = library.graph(launched(mine, by_kernel=True), launched(mine, (2, 1, 1)), child)
    cuda = Driver(library)
    with pytest.raises(DriverError, match=f"^{name} of the CUDA driver fails with error 1$"):
        _ = [(cuda.symbol(each.function), cuda.resources(each)) for each in launches_of(cuda)]


@pytest.mark.parametrize("cluster", [(), (2, 1, 1)])
def test_a_kernel_that_was_launched_and_does_not_fit_has_no_resources(cluster: tuple[int, ...]) -> None:
    """As where the shared memory that it may have was set anew since; nor has a stream that is not captured a graph."""
    library = FakeGraphs()
    library.captured = library.graph(launched(library.function("mine", blocks_per_sm=0), cluster))
    (launch,) = launches_of(Driver(library))
    with pytest.raises(DriverError, match="does not fit"):
        Driver(library).resources(launch)
    library.capturing = 0
    with pytest.raises(DriverError, match="the stream is not captured"):
        launches_of(Driver(library))


@pytest.mark.parametrize("missing", [None, "the library", *Driver.needed[-1:]])
def test_a_driver_is_loaded_once_and_an_old_one_is_none(monkeypatch: pytest.MonkeyPatch, missing: str | None) -> None:
    loaded: list[str] = []

    class Library:
        def __init__(self, name: str) -> None:
            loaded.append(name)
            if missing == "the library":
                raise OSError(f"{name}: cannot open shared object file")

        def __getattr__(self, name: str) -> None:
            if name == missing:
                raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", Library)
    find_driver.cache_clear()
    assert find_driver() is find_driver()
    assert (find_driver() is None) == (missing is not None)
    assert loaded == ["libcuda.so.1"]
    find_driver.cache_clear()
