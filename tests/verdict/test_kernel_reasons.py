"""Reasons in kernels: of one that takes longer what changed of it, and nothing else."""

from typing import Any

import msgspec
import pytest

from pytest_gpubench import Kernel
from pytest_gpubench.results.model import Code
from pytest_gpubench.verdict.reasons import reasons
from tests.results.measured import kernel, resources
from tests.verdict.planted import COPY, NORM, code, measured, one, small


@pytest.mark.parametrize(
    ("norm_us", "bias_us", "said"),
    [(100.5, 900.49, True), (100.5, 900.51, False), (111.3, 1000.0, True), (111.0, 1000.0, False)],
)
def test_a_cause_has_half_of_the_loss_or_a_hundredth_of_the_time(norm_us: float, bias_us: float, said: bool) -> None:
    old, new = (
        (small(us=us, registers=number), one("bias", more))
        for us, number, more in ((100.0, 64, 900.0), (norm_us, 72, bias_us))
    )
    assert bool(reasons(measured(*old), measured(*new))) == said


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"grid": (64, 33, 1)}, {"grid": (33, 64, 1)}, "grid 64x33x1 -> 33x64x1"),
        ({"grid": (64, 33, 1)}, {"grid": (32, 33, 1)}, "blocks 2112 -> 1056"),
        ({"block": (128, 1, 1)}, {"block": (4, 32, 1)}, "block 128x1x1 -> 4x32x1"),
        ({"block": (128, 1, 1)}, {"block": (64, 1, 1)}, "threads per block 128 -> 64"),
        ({"cluster": (2, 1, 1)}, {"cluster": (1, 2, 1)}, "cluster 2x1x1 -> 1x2x1"),
        ({"cluster": (2, 1, 1)}, {"cluster": (2, 2, 1)}, "blocks per cluster 2 -> 4"),
    ],
)
def test_another_launch_is_told_by_number_or_layout(before: dict[str, Any], after: dict[str, Any], words: str) -> None:
    assert reasons(measured(small(**before)), measured(small(us=90, **after))) == (f"{NORM}: {words}",)


@pytest.mark.parametrize("turned", [False, True])
def test_of_launches_of_several_kinds_each_that_changed_is_told(turned: bool) -> None:
    """By the sizes of their grids; what changed alike is told once."""
    before = resources(grid=(10000, 1, 1), registers=64), resources(grid=(10, 1, 1), registers=64, block=(64, 1, 1))
    after = tuple(msgspec.structs.replace(each, registers=72) for each in before)
    after = (after[0], msgspec.structs.replace(after[1], local_bytes=64))
    old = kernel(NORM, 2, 57.0, resources=before)
    new = kernel(NORM, 2, 80.0, resources=after[::-1] if turned else after)
    assert reasons(measured(old), measured(new)) == (
        "layer_norm_kernel: registers 64 -> 72, local memory of a thread 0 B -> 64 B",
    )


def test_a_launch_that_was_added_stands_for_no_other() -> None:
    large, little = resources(grid=(10000, 1, 1)), resources(grid=(10, 1, 1), registers=255)
    old, new = kernel(NORM, 1, 57.0, resources=(large,)), kernel(NORM, 2, 80.0, resources=(large, little))
    assert reasons(measured(old), measured(new)) == ("layer_norm_kernel: launches 1 -> 2",)


@pytest.mark.parametrize("length", [0, 60])
def test_launches_are_alike_where_an_older_run_did_not_count_the_length_of_code(length: int) -> None:
    before, after = ({"code": Code(constants={"BLOCK": "1"}, instructions=each)} for each in (length, 60))
    old = kernel(NORM, 2, 57.0, resources=tuple(resources(grid=(each, 1, 1), **before) for each in (1000, 700)))
    new = kernel(NORM, 3, 80.0, resources=tuple(resources(grid=(each, 1, 1), **after) for each in (1000, 900, 700)))
    assert reasons(measured(old), measured(new)) == (f"{NORM}: launches 2 -> 3",)


def test_five_changes_of_a_kernel_are_named_what_it_was_compiled_for_first() -> None:
    old, new = code(BLOCK="1", num_warps="8"), code(BLOCK="2", num_warps="1")
    changed = small(us=90, code=new, local_bytes=64, registers=255, dynamic_shared_bytes=1024, grid=(7, 1, 1))
    (found,) = reasons(measured(small(code=old)), measured(changed))
    assert found == (
        f"{NORM}: BLOCK 1 -> 2, num_warps 8 -> 1, local memory of a thread 0 B -> 64 B, registers 64 -> 255, "
        "shared memory 0 B -> 1 KiB"
    )


@pytest.mark.parametrize(("constants", "said"), [({}, True), ({"BLOCK": "2"}, False)])
def test_more_accesses_are_told_unless_the_tile_is_another(constants: dict[str, str], said: bool) -> None:
    old = Code(constants={"BLOCK": "1"}, loads=1, load_bytes=16, stores=1, store_bytes=16)
    new = msgspec.structs.replace(old, loads=2, stores=2, constants=old.constants | constants)
    (found,) = reasons(measured(small(code=old)), measured(small(us=90, code=new)))
    assert ("loads in its code 1 of 16 B -> 2 of 16 B, stores 1 of 16 B -> 2 of 16 B" in found) == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"instructions": 60}, {"instructions": 60}, False),
        ({"instructions": 60}, {"instructions": 59}, True),
        ({"instructions": 0}, {"instructions": 60}, False),  # an older run did not count them
        ({"instructions": 60}, {"instructions": 0}, False),
        ({"instructions": 60}, {"instructions": 70, "loads": 2}, False),  # these say more
        ({"instructions": 60}, {"instructions": 70, "constants": {"BLOCK": "2"}}, False),
    ],
)
def test_the_length_of_code_is_told_where_nothing_is_more(old: dict[str, Any], new: dict[str, Any], said: bool) -> None:
    known = {"constants": {"BLOCK": "1"}, "loads": 1, "load_bytes": 16}
    before, after = (small(us=us, code=Code(**{**known, **each})) for us, each in ((57, old), (90, new)))
    found = reasons(measured(before), measured(after))
    assert any("instructions in its code" in each for each in found) == said


def beside(reference: Kernel, candidate: Kernel) -> tuple[str, ...]:
    return reasons(measured(reference, role="reference"), measured(candidate, role="candidate"))


FIVE = {value: code(a=value, b=value, c=value, d=value, e=value) for value in "12"}
COPIES = "elementwise_kernel<direct_copy_kernel_cuda>"
FORWARD, LOADS = small(name="softmax_warp_forward"), Code(constants={"B": "1"}, loads=2, load_bytes=16)
NARROW = Code(constants={"B": "2"}, loads=4, load_bytes=4, atomics=2)


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        (FORWARD, small(name="_softmax", us=90, registers=40), None),  # of which one is slower
        (FORWARD, small(name="_softmax", us=90, local_bytes=64), "local memory of a thread 0 B -> 64 B"),
        (FORWARD, small(name="_softmax", us=90, blocks_per_sm=1), "threads per SM 256 -> 128"),
        (
            small(name="add", code=LOADS),
            small(name="_add", us=90, code=NARROW),
            "loads in its code 2 of 16 B -> 4 of 4 B, atomics in its code 0 -> 2",
        ),
    ],
)
def test_of_two_kernels_what_makes_one_slower_is_told(reference: Kernel, candidate: Kernel, words: str | None) -> None:
    told = f"{candidate.name} in place of {reference.name}: {words}"
    assert beside(reference, candidate) == ((told,) if words else ())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ([small(name="one")], [small(name="other", us=90)], "other in place of one"),
        ([small(), one("bias", 5.0)], [small(), one(COPY, 35.0)], f"one more kernel: {COPIES} (38 % of the time)"),
        ([small(code=FIVE["1"])], [small(us=90, code=FIVE["2"])], f"{NORM}: a 1 -> 2, b 1 -> 2, c 1 -> 2, d 1 -> 2"),
        ([small()], [small(us=90, code=code(BLOCK="1"))], None),  # code of which one is not known
        ([small()], [small(us=57.0, registers=72)], None),  # it takes no longer
        ([small()], [small(us=57.1, registers=72)], f"{NORM}: registers 64 -> 72"),
    ],
)
def test_what_else_is_told_of_kernels(old: list[Kernel], new: list[Kernel], words: str | None) -> None:
    assert reasons(measured(*old), measured(*new)) == ((words,) if words else ())


@pytest.mark.parametrize(("us", "said"), [(0.9, False), (1.1, True)])
def test_an_added_kernel_has_a_hundredth_of_the_time(us: float, said: bool) -> None:
    found = reasons(measured(small()), measured(small(us=100), one("bias", us)))
    assert any("one more kernel: bias" in each for each in found) == said
