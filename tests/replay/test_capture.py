"""A call captured as data on the CPU, or the reason why it cannot be."""

from typing import Any

import pytest
import torch

from pytest_gpubench.bench.arguments import kept_arguments
from pytest_gpubench.correctness.leaves import Leaves
from pytest_gpubench.replay.addresses import inputs_elsewhere
from pytest_gpubench.replay.call_data import Region, TensorData
from pytest_gpubench.replay.capture import capture_call, refuse_written
from pytest_gpubench.replay.images import sha256_of
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.timing.base import Call, call_of
from pytest_gpubench.timing.calls import make_arguments, make_call
from tests.replay.image_files import image_of, image_with
from tests.replay.on_cpu import IMAGE, N, OnCpu

X = torch.arange(N, dtype=torch.float32)


def reason_of(on_cpu: OnCpu, call: Call) -> str:
    with pytest.raises(NotReplayable) as caught:
        capture_call(call, on_cpu.device, on_cpu.builder)
    return str(caught.value)


def test_a_call_is_its_graph_its_memory_and_its_images(on_cpu: OnCpu) -> None:
    found = capture_call(on_cpu.call(X, on_cpu.y, 5), on_cpu.device, on_cpu.builder)
    assert on_cpu.calls == 3  # on the other stream, captured, and as ever
    assert found.images == {sha256_of(IMAGE): IMAGE}
    assert (found.data.label, found.data.capability, found.data.kernels) == ("scale", (9, 0), ("scale",))
    assert [(each.kind, each.bytes, each.names) for each in found.data.regions] == [
        ("input", 4 * N, ("args[0]",)),
        ("input", 4 * N, ("args[1]",)),
        ("own", 8 * N, ()),
    ]
    (node,) = found.data.graph.nodes
    assert [(each.value, each.region, each.distance) for each in node.pointers] == [(0, 0, 0), (1, 1, 0), (2, 2, 4 * N)]
    assert node.values == (bytes(8), bytes(8), bytes(8), b"\5\0\0\0")
    assert [each.name for each in found.data.inputs] == ["args[0]", "args[1]"]
    out = {"dtype": "float32", "shape": (N,), "strides": (1,)}
    assert found.data.outputs == (TensorData(name="out", region=2, distance=4 * N, **out),)  # type: ignore[arg-type]
    assert found.data.numbers == ("args[2]=5",)


def test_an_input_that_no_kernel_is_given_is_left_out(on_cpu: OnCpu) -> None:
    call = on_cpu.call(X, on_cpu.y, torch.ones(3), function=lambda x, y, z: on_cpu.function(x, y))
    found = capture_call(call, on_cpu.device, on_cpu.builder)
    assert [each.name for each in found.data.inputs] == ["args[0]", "args[1]"]
    assert len(found.data.regions) == 3


def test_memory_of_torch_that_is_neither_given_nor_allocated_is_told(on_cpu: OnCpu) -> None:
    """That of others, a library keeps tables in, and addresses: a replay would follow them."""
    on_cpu.cuda.memory = [(on_cpu.y.data_ptr(), on_cpu.y.nbytes, 2)]
    call = on_cpu.call(X, function=lambda x: on_cpu.function(x, on_cpu.y))
    assert reason_of(on_cpu, call) == "it uses memory that torch has not allocated, as tables of a library"
    on_cpu.others = [on_cpu.y]
    found = capture_call(call, on_cpu.device, on_cpu.builder)
    other = Region(kind="other", bytes=4 * N, misalignment=on_cpu.y.data_ptr() % 512)
    assert found.data.regions[1] == other


@pytest.mark.parametrize(("given", "whose"), [(True, "args[1]"), (False, "memory that is no argument of it")])
@pytest.mark.parametrize("leads_to_memory", [True, False])
def test_memory_that_holds_addresses_is_refused(on_cpu: OnCpu, given: bool, whose: str, leads_to_memory: bool) -> None:
    on_cpu.cuda.memory = [(on_cpu.y.data_ptr(), on_cpu.y.nbytes, 2), *([(X.data_ptr(), 4 * N, 2)] * leads_to_memory)]
    on_cpu.others = [on_cpu.y]
    on_cpu.y.view(torch.int64)[1] = X.data_ptr()
    call = on_cpu.call(X, *[on_cpu.y] * given, function=lambda x, y=on_cpu.y: on_cpu.function(x, y))
    if leads_to_memory:
        assert reason_of(on_cpu, call) == f"{whose} holds addresses of memory, which cannot be moved"
    else:  # the driver knows no memory there
        assert capture_call(call, on_cpu.device, on_cpu.builder).data.regions


def test_memory_of_the_host_is_refused(on_cpu: OnCpu) -> None:
    on_cpu.cuda.memory = [(on_cpu.y.data_ptr(), on_cpu.y.nbytes, 1)]
    call = on_cpu.call(X, function=lambda x: on_cpu.function(x, on_cpu.y))
    assert reason_of(on_cpu, call) == "it reads or writes memory of the host"


WRITTEN = "lut, a variable of a kernel's module, was written, or holds an address"
NAMELESS = "a kernel's module has variables that the driver does not know by their names"


@pytest.mark.parametrize(
    ("image", "lut", "reason"),
    [
        (image_with({b"table": 1, b"lut": 0x11}), b"23", ""),
        *((image_with({b"table": 1, b"lut": 0x11}), value, WRITTEN) for value in (b"24", b"230", b"2")),
        (image_with({b"table": 1, b"other": 1}), b"23", NAMELESS),
        (image_with({b"table": 1}, unnamed=1), b"23", NAMELESS),
    ],
)
def test_variables_are_those_of_an_image_loaded_anew(on_cpu: OnCpu, image: bytes, lut: bytes, reason: str) -> None:
    on_cpu.by_image, on_cpu.cuda.images[image.split(b"\0")[0]] = image, []
    on_cpu.cuda.variables, on_cpu.cuda.written = {b"table": b"01", b"lut": b"23"}, {b"table": b"01", b"lut": lut}
    call = on_cpu.call(X, on_cpu.y)
    if reason:
        assert reason_of(on_cpu, call) == reason
    else:
        assert capture_call(call, on_cpu.device, on_cpu.builder).data.regions
    assert (len(on_cpu.cuda.loaded), on_cpu.cuda.modules) == (1, {})


@pytest.mark.parametrize(
    ("image", "loaded"),
    [
        (image_of({".text.k": b"code"}), 0),
        (image_with({b"kernel": 2}, memory=".text.k"), 0),
        (image_with({b"x": 1}, section=0, memory=".text.k"), 0),
        (image_with({b"x": 1}), 2),
    ],
)
def test_an_image_with_variables_is_loaded_for_each_module_of_it(on_cpu: OnCpu, image: bytes, loaded: int) -> None:
    """Two may be loaded of one, and the variables of either be written."""
    on_cpu.cuda.images[image.split(b"\0")[0]] = []
    on_cpu.cuda.variables = on_cpu.cuda.written = {b"x": b"01"}
    refuse_written([("name", 5), ("name", 6)], {"name": image}, on_cpu.builder)
    assert len(on_cpu.cuda.loaded) == loaded


def test_setup_makes_other_arguments_and_a_forward_run_other_memory(on_cpu: OnCpu) -> None:
    call = make_call(on_cpu.function, make_arguments(setup=lambda: (X, on_cpu.y)))
    assert reason_of(on_cpu, call) == "setup= gives each call other arguments"
    call = make_call(on_cpu.function, kept_arguments([], (X,), None, None), "backward")
    assert reason_of(on_cpu, call) == "a backward run reads what its forward run made anew: give backward='both'"
    assert on_cpu.calls == 0


def test_a_call_that_cannot_be_captured_says_why(on_cpu: OnCpu) -> None:
    def fail(x: torch.Tensor, y: torch.Tensor) -> None:
        if on_cpu.calls == 2:
            raise KeyError("mine")

    on_cpu.changes = fail
    assert reason_of(on_cpu, on_cpu.call(X, on_cpu.y)) == "captured as a CUDA graph, it raises KeyError: 'mine'"
    assert on_cpu.calls == 3


@pytest.mark.parametrize("stays", [True, False])
def test_a_call_with_structures_is_captured_again_with_its_inputs_elsewhere(on_cpu: OnCpu, stays: bool) -> None:
    """A number that lies beside the half of an address may look like one of an input."""
    at, seen, kept = X.data_ptr(), list[int](), list[Any]()

    def structured(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = on_cpu.function(x, y)
        (number,) = on_cpu.cuda.graphs[on_cpu.cuda.captured].nodes
        node = on_cpu.cuda.nodes[number]
        node.values = (*node.values[:3], node.values[0] + ((at + 4).to_bytes(8, "little") if stays else bytes(8)))
        kept.append((node.function, on_cpu.kept))
        node.function = kept[0][0]  # each capture launches the same one
        on_cpu.cuda.functions[node.function].sizes = (8, 8, 8, 16)
        seen.append(x.data_ptr())
        return out

    call = on_cpu.call(X, on_cpu.y, function=structured)
    (node,) = capture_call(call, on_cpu.device, on_cpu.builder).data.graph.nodes
    assert [(each.value, each.offset) for each in node.pointers] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert node.values[3][8:] == ((at + 4).to_bytes(8, "little") if stays else bytes(8))
    assert [each == at for each in seen] == [True, True, False, False, True]
    assert X.data_ptr() == at


def test_inputs_are_elsewhere_while_a_call_runs() -> None:
    """With their values, their overlap and their alignment; tensors that are more than memory stay."""
    whole = torch.arange(12.0).view(3, 4)
    row, complex_ = whole[1], torch.ones(2, dtype=torch.complex64).conj()
    seen: list[torch.Tensor] = []

    def function() -> None:
        row.add_(1)
        seen.extend(each.clone() for each in (whole, row, complex_))
        addresses.append([each.data_ptr() for each in (whole, row, complex_)])
        raise KeyError("mine")

    addresses = [[each.data_ptr() for each in (whole, row, complex_)]]
    leaves: Leaves = [("whole", whole), ("row", row), ("complex", complex_), ("n", 3)]
    moved = inputs_elsewhere(call_of("f", function), leaves, torch.device("cpu")).prepare()
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            moved()
        assert [each.data_ptr() for each in (whole, row, complex_)] == addresses[0]
    assert torch.equal(whole, torch.arange(12.0).view(3, 4))
    assert seen[3][1].tolist() == seen[4].tolist() == [6.0, 7.0, 8.0, 9.0]
    (was_whole, _, was_complex), (now_whole, now_row, now_complex), _ = addresses
    assert (now_row - now_whole, now_complex) == (16, was_complex)
    assert now_whole != was_whole
    assert (now_whole - was_whole) % 512 == 0


def test_memory_that_no_tensor_lies_in_is_no_memory_of_a_call(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu.cuda.memory, on_cpu.others = [(on_cpu.y.data_ptr(), on_cpu.y.nbytes, 2)], [on_cpu.y]
    segments = on_cpu.snapshot()
    monkeypatch.setattr("torch.cuda.memory_snapshot", lambda: segments)
    call = on_cpu.call(X, function=lambda x: on_cpu.function(x, on_cpu.y))
    for state, regions in (("active_pending_free", 3), ("inactive", 2)):
        segments[1]["blocks"][0]["state"] = state
        assert len(capture_call(call, on_cpu.device, on_cpu.builder).data.regions) == regions
