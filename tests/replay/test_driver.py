"""The driver's answers, from a library that answers from tables, and from walks that were recorded on an H100."""

import ctypes
import json
import math
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.replay import driver
from pytest_gpubench.replay.driver import Driver, DriverError, KernelParams, LaunchAttribute, LaunchConfig, find_driver
from tests.replay.fake_cuda import MEMCPY_NODE, MEMSET_NODE, SMS, FakeCuda, Function, Node, played

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
"""The kernels of calls (torch 2.11, Triton 3.6, driver 580), each with what ncu said of it."""
CHILD = 4


def test_structures_are_as_large_as_in_c() -> None:
    assert [ctypes.sizeof(each) for each in (KernelParams, LaunchAttribute, LaunchConfig)] == [72, 72, 56]


def test_kernels_are_found_in_graphs_within_graphs() -> None:
    inner = [Node(2, grid=(7, 1, 1)), Node(kind=MEMCPY_NODE)]
    outer = [Node(1, grid=(5, 2, 1)), Node(kind=MEMSET_NODE), Node(kind=CHILD, child=2), Node(1, block=(8, 8, 2))]
    library = FakeCuda({1: outer, 2: inner}, {1: Function("one"), 2: Function("two")})
    cuda = Driver(library)
    found = list(cuda.launches(cuda.graph_captured_on(77)))
    assert library.asked == [77]
    assert [cuda.symbol(each.function) for each in found] == ["one", "two", "one"]
    assert [each.grid for each in found] == [(5, 2, 1), (7, 1, 1), (1, 1, 1)]
    assert found[2].block == (8, 8, 2)


def test_an_empty_graph_has_no_kernels() -> None:
    assert list(Driver(FakeCuda({1: []}, {})).launches(1)) == []


def test_a_node_holds_a_function_or_a_kernel() -> None:
    cuda = Driver(FakeCuda({1: [Node(5), Node(5, by_kernel=True)]}, {5: Function("five")}))
    by_function, by_kernel = cuda.launches(1)
    assert by_function == by_kernel
    assert by_function.function == 5


def test_what_a_launch_takes() -> None:
    function = Function("mine", {1: 16, 3: 600, 4: 255}, blocks_per_sm=2)
    library = FakeCuda({1: [Node(1, (300, 2, 1), (128, 2, 1), 4096)]}, {1: function})
    cuda = Driver(library)
    [launch] = cuda.launches(1)
    found = cuda.resources(launch, 3)
    assert library.asked == [(256, 4096)]
    assert (found.launches, found.grid, found.block, found.cluster) == (3, (300, 2, 1), (128, 2, 1), (1, 1, 1))
    assert (found.registers, found.local_bytes) == (255, 600)
    assert (found.static_shared_bytes, found.dynamic_shared_bytes, found.shared_bytes) == (16, 4096, 4112)
    assert (found.blocks_per_sm, found.resident_blocks) == (2, 2 * SMS)
    assert found.waves == pytest.approx(600 / 264)
    assert found.tail == pytest.approx(1 - 72 / 264)


@pytest.mark.parametrize(
    ("node", "attributes"),
    [(Node(1, (8, 1, 1), cluster=(4, 1, 1)), {}), (Node(1, (8, 1, 1)), {11: 4, 12: 1, 13: 1})],
    ids=["launched", "compiled"],
)
def test_clusters_are_held_as_a_whole(node: Node, attributes: dict[int, int]) -> None:
    """The driver says how many fit into the GPU: fewer than its multiprocessors have room for."""
    library = FakeCuda({1: [node]}, {1: Function("mine", attributes, blocks_per_sm=2, clusters=30)})
    cuda = Driver(library)
    [launch] = cuda.launches(1)
    found = cuda.resources(launch)
    assert found.cluster == (4, 1, 1)
    assert library.asked[-1] == ((8, 1, 1), (32, 1, 1), (4, 1, 1))
    assert (found.blocks_per_sm, found.resident_blocks) == (2, 120)


@pytest.mark.parametrize(
    ("blocks", "resident", "waves", "tail"),
    [(132, 132, 1.0, 0.0), (264, 132, 2.0, 0.0), (133, 132, 133 / 132, 131 / 132), (1, 132, 1 / 132, 131 / 132)],
)
def test_the_last_wave(blocks: int, resident: int, waves: float, tail: float) -> None:
    [found] = [Driver(played([row(blocks, resident)])).resources(each) for each in launches(row(blocks, resident))]
    assert found.waves == pytest.approx(waves)
    assert found.tail == pytest.approx(tail)


def row(blocks: int, resident: int) -> dict[str, Any]:
    per_sm = resident // SMS
    return {
        "symbol": "mine",
        "grid": [blocks, 1, 1],
        "block": [32, 1, 1],
        "registers": 9,
        "blocks_per_sm": per_sm,
        "resident_blocks": resident,
    }


def launches(*rows: dict[str, Any]) -> list[driver.Launch]:
    return list(Driver(played(list(rows))).launches(1))


@pytest.mark.parametrize("call", RECORDED)
def test_a_recorded_walk_agrees_with_ncu(call: str) -> None:
    """Registers, blocks per multiprocessor, clusters that fit in, and waves, which ncu rounds to two places."""
    cuda = Driver(played(RECORDED[call]))
    found = list(cuda.launches(1))
    assert len(found) == len(RECORDED[call])
    for launch, recorded in zip(found, RECORDED[call], strict=True):
        assert cuda.symbol(launch.function) == recorded["symbol"]
        resources, ncu = cuda.resources(launch), recorded["ncu"]
        assert resources.resident_blocks == recorded["resident_blocks"]
        assert (resources.registers, resources.blocks_per_sm) == (ncu["registers"], ncu["blocks_per_sm"])
        assert resources.waves == pytest.approx(ncu["waves"], abs=0.0051)
        if ncu["clusters"]:
            assert resources.resident_blocks == ncu["clusters"] * math.prod(resources.cluster)


@pytest.mark.parametrize("name", Driver.needed)
def test_an_error_of_the_driver_names_its_function(name: str) -> None:
    library = FakeCuda(
        {1: [Node(1, by_kernel=True), Node(1, cluster=(2, 1, 1)), Node(kind=CHILD, child=2)], 2: []},
        {1: Function("mine")},
        fails=name,
    )
    cuda = Driver(library)
    with pytest.raises(DriverError, match=f"^{name} of the CUDA driver fails with error 1$"):
        _ = [
            (cuda.symbol(each.function), cuda.resources(each))
            for each in list(cuda.launches(cuda.graph_captured_on(7)))
        ]


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1)])
def test_a_kernel_that_was_launched_and_does_not_fit_has_no_resources(cluster: tuple[int, int, int]) -> None:
    """As where the shared memory that it may have was set anew since."""
    launched = {"grid": (8, 1, 1), "block": (32, 1, 1), "cluster": cluster, "registers": 8, "symbol": "f"}
    driver = Driver(played([launched | {"blocks_per_sm": 0, "resident_blocks": 0}]))
    (launch,) = driver.launches(1)
    with pytest.raises(DriverError, match="does not fit"):
        driver.resources(launch)


def test_a_stream_that_is_not_captured_has_no_graph() -> None:
    with pytest.raises(DriverError, match="the stream is not captured"):
        Driver(FakeCuda({1: []}, {}, capturing=0)).graph_captured_on(7)


def no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.mark.parametrize("missing", ["", *Driver.needed[-1:]])
def test_no_driver_or_an_old_one_is_none(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    class Old:
        def __getattr__(self, name: str) -> None:
            if name == missing:
                raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", (lambda name: Old()) if missing else no_library)
    find_driver.cache_clear()
    assert find_driver() is None
    find_driver.cache_clear()


def test_the_driver_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str) -> FakeCuda:
        loaded.append(name)
        return FakeCuda({1: []}, {})

    monkeypatch.setattr(ctypes, "CDLL", load)
    find_driver.cache_clear()
    assert find_driver() is find_driver() is not None
    assert loaded == ["libcuda.so.1"]
    find_driver.cache_clear()
