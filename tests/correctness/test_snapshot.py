"""What a call did to its inputs."""

import itertools
import math

import pytest
import torch

from pytest_gpubench.correctness import changed, chunks, flatten, snapshot
from pytest_gpubench.correctness.memory import overlaps
from pytest_gpubench.correctness.snapshot import checksum
from tests.correctness.samples import COMPLEX, FLOAT8, FLOATS, INTEGERS, State


class TestChanged:
    @pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *COMPLEX, *INTEGERS, torch.bool], ids=str)
    @pytest.mark.parametrize("elements", [1, 7, 16, 1000])
    def test_one_element(self, dtype: torch.dtype, elements: int) -> None:
        x, y = torch.zeros(elements).to(dtype), torch.zeros(elements).to(dtype)
        before = snapshot((x,), {"out": y})
        assert changed(before) == []
        y.numpy() if dtype in (torch.float32,) else None
        y[elements // 2] = 1
        assert changed(before) == ["kwargs['out']"]
        y[elements // 2] = 0
        assert changed(before) == []

    def test_a_write_that_torch_does_not_see(self) -> None:
        """As Triton kernels write."""
        numpy = pytest.importorskip("numpy")
        array = numpy.zeros(10, dtype="float32")
        x = torch.from_numpy(array)
        before = snapshot((x,))
        array[3] = 1
        assert x._version == 0
        assert changed(before) == ["args[0]"]

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bfloat16])
    @pytest.mark.parametrize("distance", [1, 8, 2**11, 2**15])
    @pytest.mark.parametrize("chunk", [2**9, 2**22])
    def test_two_elements_change_places(
        self, dtype: torch.dtype, distance: int, chunk: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Numbers whose low bits are 0, in one chunk or in two, at a distance that is a power of two."""
        monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", chunk)
        x = torch.zeros(2**16, dtype=dtype)
        x[0], x[distance] = 1, 2
        before = snapshot([x])
        x[0], x[distance] = 2, 1
        assert changed(before) == ["args[0]"]

    def test_sums_of_changes_that_cancel(self) -> None:
        seen = set()
        for where in itertools.product(range(4), repeat=2):
            x = torch.zeros(4, dtype=torch.int64)
            x[where[0]] += 1
            x[where[1]] -= 1
            seen.add(checksum(x))
        assert len(seen) == 1 + 12

    def test_minus_zero_and_nan_are_bits(self) -> None:
        x = torch.tensor([0.0, math.nan])
        before = snapshot([x])
        assert changed(before) == []
        x[0] = -0.0
        assert changed(before) == ["args[0]"]

    def test_views_that_do_not_cover_their_storage(self) -> None:
        base = torch.zeros(10, 10)
        before = snapshot([base[2:8, 3:7]])
        base[0, 0] = base[3, 2] = 1
        assert changed(before) == []
        base[3, 3] = 1
        assert changed(before) == ["args[0]"]

    def test_another_place_shape_or_container(self) -> None:
        x, cache = torch.zeros(4), [torch.zeros(2)]
        before = snapshot((x, cache), {"state": State(torch.zeros(3))})
        x.resize_(2)
        cache.append(torch.zeros(1))
        assert changed(before) == ["args[0]", "args[1][1]"]
        cache.clear()
        assert changed(before) == ["args[0]", "args[1][0]"]
        y = torch.zeros(4)
        before = snapshot((y,))
        y.set_(torch.zeros(4))  # type: ignore[call-overload]
        assert changed(before) == ["args[0]"]

    def test_conjugates_gradients_sparse_and_inference_tensors(self) -> None:
        x = torch.ones(4, dtype=torch.complex64)
        leaf, sparse = torch.ones(3, requires_grad=True), torch.eye(3).to_sparse()
        with torch.inference_mode():
            frozen = torch.ones(3)
        args = (x.conj(), x.conj().imag, leaf, sparse, frozen, torch.zeros(2, device="meta"), "text", None)
        before = snapshot(args)
        assert changed(before) == []
        x.add_(1j)
        assert changed(before) == ["args[0]", "args[1]"]
        sparse.values().mul_(2) if sparse.is_coalesced() else sparse._values().mul_(2)
        assert "args[3].values()" in changed(before)

    @pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions.*deprecated:UserWarning")
    def test_tensors_whose_values_torch_copies(self) -> None:
        """Their copies lie elsewhere each time; copies that are freed must not look like one memory either."""
        x, where = torch.ones(64), torch.tensor([[0, 0, 1]])
        twice = torch.sparse_coo_tensor(where, torch.ones(3), (2,), check_invariants=True)
        args = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), twice
        before = snapshot(args)
        kept = torch.ones(64), torch.ones(3)  # where copies lay before
        assert changed(before) == []
        copies = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), twice.clone()
        assert overlaps(flatten(args), flatten(copies)) == []
        assert overlaps(flatten(args[:1]), flatten(args[:1], "args")) == [("out[0]", "args[0]")]
        args[0].copy_(2 * kept[0])
        twice._values().mul_(2)
        assert changed(before) == ["args[0]", "args[1].values()"]

    @pytest.mark.parametrize("dtype", COMPLEX)
    @pytest.mark.parametrize("elements", [3, 4])
    def test_conjugates_have_the_checksum_of_their_elements(self, dtype: torch.dtype, elements: int) -> None:
        x = torch.full((elements,), 1 + 2j, dtype=dtype)
        assert x.conj().is_conj()
        assert checksum(x.conj()) == checksum(x.conj().resolve_conj()) != checksum(x)
        assert checksum(x.conj().imag) == checksum(torch.view_as_real(x.conj().resolve_conj())[:, 1])
        assert None not in {state.checksum for state in snapshot((x.conj(), x.conj().imag, x)).states.values()}

    def test_a_write_that_leaves_everything_is_none(self) -> None:
        x = torch.ones(4)
        before = snapshot([x])
        x.mul_(1)
        assert x._version == 1
        assert changed(before) == []
