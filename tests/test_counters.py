"""The names of counters: what each is made of, and which are taken together."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from pytest_gpubench import Measurement, counted
from pytest_gpubench.bench.request import CallResult
from pytest_gpubench.counted import groups_of, judged_by_counters
from pytest_gpubench.counters import COUNTERS, counter_named
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.verdict.limits import Limits
from tests.bench.calls import COLD, CPU
from tests.results.measured import timing, verdict


def test_reasons_are_found_anew_where_there_are_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were found before know none."""
    monkeypatch.setattr(counted, "why_uncounted", lambda test, request: "")
    test = CurrentTest("here", COLD, Limits(), counters=frozenset({"instructions"}), captures=lambda *asked: {})
    slow = msgspec.structs.replace(verdict("max_time_us=1", Outcome.FAIL, "slow"), reasons=("an old one",))
    given = {"settings": COLD, "device": CPU, "limits": Limits(), "title": "f"}
    request: Any = SimpleNamespace(**given, with_measurements=lambda result, measured: result)
    item = Measurement(timing=timing("f", 1.0), verdicts=(slow,))
    found = judged_by_counters(test, request, CallResult(None, (item,)), lambda text: None)
    (judged,) = found.measurements
    assert cast(Any, judged.timing.counts).untaken
    assert [each.reasons for each in judged.verdicts] == [()]


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
