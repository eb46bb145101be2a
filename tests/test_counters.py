"""The names of counters: what each is made of, and which are taken together."""

import pytest

from pytest_gpubench.counted import groups_of
from pytest_gpubench.counters import COUNTERS, counter_named


def test_each_counter_is_in_one_group_and_has_names_of_its_own() -> None:
    raw = [name for each in COUNTERS for known in each.raw for name in known]
    assert len(set(raw)) == len(raw)
    assert sorted(name for group in groups_of(each.name for each in COUNTERS) for name in group) == sorted(
        each.name for each in COUNTERS
    )


def test_what_is_taken_does_not_depend_on_what_else_is_asked() -> None:
    """Two counters of a group are the same group, and a metric of ncu's is one by itself."""
    assert groups_of(["instructions"]) == groups_of(["dram_read_bytes", "instructions"])
    assert groups_of(["sm__b.sum", "atomics", "instructions", "sm__a.sum"]) == [
        *groups_of(["instructions"]),
        *groups_of(["atomics"]),
        ("sm__a.sum",),
        ("sm__b.sum",),
    ]
    assert groups_of([]) == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("flops", "use one of instructions, dram_read_bytes, "),
        ("sm__cycles_active.avg", "is no sum over a call's kernels"),
        ("sm__cycles_active", "is no sum over a call's kernels"),
        ("", "is no counter"),
    ],
)
def test_what_is_no_counter_is_told(name: str, told: str) -> None:
    with pytest.raises(ValueError, match="is no") as raised:
        counter_named(name)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("name", "changes", "in_bytes"),
    [
        ("instructions", False, False),
        ("load_sectors", False, False),
        ("local_loads", False, False),
        ("dram_read_bytes", True, True),
        ("l2_bytes", True, True),
        ("smsp__inst_executed_pipe_tensor.sum", False, False),
        ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", False, False),
        ("sm__inst_executed.sum", False, False),
        ("sm__sass_inst_executed_op_ld.sum", False, False),
        ("smsp__thread_inst_executed.sum", False, False),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum", True, False),
        ("sm__cycles_active.sum", True, False),
        ("dram__bytes_write.sum", True, True),
    ],
)
def test_only_what_a_call_executes_is_the_same_beside_other_processes(name: str, changes: bool, in_bytes: bool) -> None:
    """Metrics of ncu's are counters, too."""
    found = counter_named(name)
    assert (found.changed_by_others, found.in_bytes) == (changes, in_bytes)
