"""Records of a session: split into reps, or refused where they do not add up."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import IncompleteRecords, KernelsDiffer, MeasurementError, NothingRecorded
from pytest_gpubench.timing.base import Call, Record, call_of
from pytest_gpubench.timing.profiler import split_reps

FLUSHES = [("gpu_bench_read_flush", "gpu_bench_demote"), ("gpu_bench_write_flush",)]
END = "gpu_bench_end"
BEGIN = "gpu_bench_begin"
FLUSH = FLUSHES[0]


def kernel(start_ns: int, end_ns: int, name: str = "add") -> Record:
    return Record(name, "kernel", start_ns, end_ns)


def call(label: str = "fn", prepares_on_device: bool = False) -> Call:
    return replace(call_of(label, lambda: None), prepares_on_device=prepares_on_device)


def rep(begin_ns: int, end_ns: int, *inner: Record) -> list[Record]:
    """Return a rep whose sentinels take 2 ns each: one begins at the one time, the other at the other."""
    return [kernel(begin_ns, begin_ns + 2, BEGIN), *inner, kernel(end_ns, end_ns + 2, END)]


# splitting


def flushed(start_ns: int, flush: Sequence[str] = FLUSH) -> list[Record]:
    return [kernel(start_ns + 10 * place, start_ns + 10 * place + 5, name) for place, name in enumerate(flush)]


@pytest.mark.parametrize("prepares", [True, False])
@pytest.mark.parametrize("flush", FLUSHES)
def test_every_rep_needs_a_flush_of_its_own(prepares: bool, flush: Sequence[str]) -> None:
    """One that the profiler lost, or that was never launched, or half of one."""
    calls, second = [call(), call(prepares_on_device=prepares)], rep(200, 220, kernel(205, 210))
    records = [*flushed(0, flush), *rep(110, 160, kernel(112, 120)), *flushed(170, flush), *second]
    assert len(split_reps(records, calls, flush)) == 2
    for missing in range(len(records)):
        if records[missing].name in flush:
            with pytest.raises(IncompleteRecords, match=r"^the cache was not flushed before a rep, or the profiler lo"):
                split_reps(records[:missing] + records[missing + 1 :], calls, flush)


@pytest.mark.parametrize("asked", [FLUSH, ()], ids=["cold", "hot"])
@pytest.mark.parametrize("flush", FLUSHES)
def test_no_work_is_believed_to_be_a_flush_for_its_name(flush: Sequence[str], asked: Sequence[str]) -> None:
    """Kernels of a call's, which goes on after it or was launched while the next was prepared."""
    records = [*flushed(20, flush), *flushed(50, asked), *rep(110, 160, kernel(112, 120))]
    with pytest.raises(IncompleteRecords, match=rf"outside of every rep \(({flush[0]}|{FLUSH[0]})\)"):
        split_reps(records, [call()], asked)
    assert split_reps(records, [call(prepares_on_device=True)], asked) == [[kernel(112, 120)]]


def produced(*before: str, start_ns: int = 0) -> list[Record]:
    """Return a rep of `add`, before it a flush and then these kernels."""
    names = [*FLUSH, *before]
    kernels = [kernel(start_ns + 10 * place, start_ns + 10 * place + 5, name) for place, name in enumerate(names)]
    return [*kernels, *rep(start_ns + 110, start_ns + 160, kernel(start_ns + 112, start_ns + 120))]


def test_what_a_producer_launches_is_not_the_calls() -> None:
    """Though it be a kernel of the call's name, or another flush; work before the flush is not its own."""
    records = [*produced("add", *FLUSH, *FLUSHES[1]), *produced("add", *FLUSH, *FLUSHES[1], start_ns=200)]
    calls = [call("one"), call("two")]
    assert split_reps(records, calls, FLUSH, "producer fill") == [[kernel(112, 120)], [kernel(312, 320)]]
    for others, producer, stray in ((records, "", "add"), ([kernel(-9, -4, "stray"), *records], "producer p", "stray")):
        with pytest.raises(IncompleteRecords, match=rf"outside of every rep \({stray}\)"):
            split_reps(others, calls, FLUSH, producer)


OTHERS = "^producer p does not launch the same kernels before every rep: 1 x fill only in"


@pytest.mark.parametrize(
    ("launched", "left_out", "error", "sentence"),
    [
        ([["fill"], ["fill", "fill"]], [], KernelsDiffer, OTHERS),
        ([["fill"], []], [], KernelsDiffer, OTHERS),
        ([["fill"], []], [1], None, ""),
        ([[], ["fill"]], [0], None, ""),
        ([[], ["fill"], []], [0], KernelsDiffer, OTHERS),
        ([[], []], [1], NothingRecorded, "^producer p launched nothing on the GPU"),
        ([[], []], [0, 1], None, ""),
        ([[], []], [], NothingRecorded, r"^producer p launched nothing on the GPU: are its tensors on the GPU\?"),
        ([["fill"], ["fill"]], [], None, ""),
        ([], [], None, ""),
    ],
)
def test_a_producer_does_the_same_before_every_rep_that_it_is_not_left_out_of(
    launched: list[list[str]], left_out: list[int], error: type[MeasurementError] | None, sentence: str
) -> None:
    records = [each for number, names in enumerate(launched) for each in produced(*names, start_ns=200 * number)]
    with nullcontext() if error is None else pytest.raises(error, match=sentence):
        split_reps(records, [call()] * len(launched), FLUSH, "producer p", left_out)


GOOD = [*rep(110, 160, kernel(112, 150)), *rep(210, 260, kernel(212, 250))]


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([kernel(112, 150), kernel(160, 162, END)], "a sentinel is missing"),
        ([kernel(110, 112, BEGIN), kernel(112, 150)], "but 0 came back"),
        (GOOD, "but 2 came back"),
        (rep(110, 160, kernel(112, 112)), "the profiler gave add no length"),
        ([kernel(0, 0, FLUSH[0]), *rep(110, 160, kernel(112, 150))], f"gave {FLUSH[0]} no length"),
        ([kernel(110, 110, BEGIN), kernel(112, 150), kernel(160, 162, END)], f"gave {BEGIN} no length"),
        (rep(110, 160, kernel(111, 150)), "reaches back before the beginning"),
        (rep(110, 160, kernel(112, 161)), "reaches beyond the end"),
        ([*rep(110, 160, kernel(112, 150)), kernel(161, 170, "late")], r"outside of every rep \(late\)"),
    ],
)
def test_records_that_do_not_add_up_are_refused(records: list[Record], sentence: str) -> None:
    with pytest.raises(IncompleteRecords, match=sentence):
        split_reps(records, [call()])


@pytest.mark.parametrize("place", [0, 1, 2], ids=["before", "between", "after"])
@pytest.mark.parametrize("prepares", [(False, False), (True, False), (False, True), (True, True)])
def test_work_outside_of_the_reps_is_refused_unless_it_was_prepared_there(
    place: int, prepares: tuple[bool, bool]
) -> None:
    """What runs before a rep may be the preparation of that rep's call; what runs after the last is nobody's."""
    parts = [rep(20, 40, kernel(22, 30)), rep(60, 80, kernel(62, 70))]
    parts.insert(place, [kernel(40 * place + 10, 40 * place + 12, "stray")])
    may = pytest.raises(IncompleteRecords, match=r"outside of every rep \(stray\)")
    with nullcontext() if (*prepares, False)[place] else may:
        windows = split_reps(list(chain(*parts)), [call(prepares_on_device=does) for does in prepares])
        assert windows == [[kernel(22, 30)], [kernel(62, 70)]]


@pytest.mark.parametrize(
    ("name", "prepares", "producer"), [(FLUSH[0], False, ""), ("prepared", True, ""), ("fill", False, "producer fill")]
)
@pytest.mark.parametrize("end_ns", [111, 150, 9_999])
@pytest.mark.parametrize("before", [[], [*flushed(0), *rep(20, 40, kernel(22, 30))]], ids=["first", "later"])
def test_what_runs_into_a_rep_is_refused(
    name: str, prepares: bool, producer: str, end_ns: int, before: list[Record]
) -> None:
    """It would share the GPU with the call, and be in nobody's sum."""
    records = [*before, kernel(90, end_ns, name), *flushed(91), *rep(110, 160, kernel(112, 150))]
    with pytest.raises(IncompleteRecords, match=r"^a record from before a rep reaches into it$"):
        split_reps(records, [call(prepares_on_device=prepares)] * (2 if before else 1), FLUSH, producer)


@pytest.mark.parametrize(("filled", "labels"), [([0], "a"), ([0, 1, 0, 1], "abab"), ([1, 1, 0, 1], "abab")])
def test_a_call_whose_reps_are_all_empty_is_refused(filled: Sequence[int], labels: str) -> None:
    """One that sometimes launches nothing is another mistake: its kernels differ."""
    reps = [
        rep(100 * at, 100 * at + 50, *[kernel(100 * at + 2, 100 * at + 9)] * full) for at, full in enumerate(filled)
    ]
    refused = pytest.raises(NothingRecorded, match=r"^'a' launched nothing on the GPU: are its tensors on the GPU, and")
    with nullcontext() if filled[0] else refused:
        split_reps(list(chain(*reps)), [call(label) for label in labels])


@dataclass
class Tape:
    """A session as it should come back."""

    calls: list[Call]
    records: list[Record]
    windows: list[list[Record]]
    flush: Sequence[str]

    def split(self) -> list[list[Record]]:
        return split_reps(self.records, self.calls, self.flush)


gaps, lengths = st.integers(0, 5), st.integers(1, 50)
kernels = st.lists(st.sampled_from(("add", "mul", "Memset")), min_size=1, max_size=3)


@st.composite
def tapes(draw: st.DrawFn) -> Tape:
    """Make a session of a few reps, with overlapping kernels in them and preparations between them."""
    tape, now_ns = Tape([], [], [], draw(st.sampled_from([FLUSH, ()]))), draw(st.integers(0, 2**62))

    def add(name: str) -> Record:
        nonlocal now_ns
        begin_ns = now_ns + draw(gaps)
        now_ns = begin_ns + draw(lengths)
        tape.records.append(kernel(begin_ns, now_ns, name))
        return tape.records[-1]

    for _ in range(draw(st.integers(1, 3))):
        tape.calls.append(call(draw(st.sampled_from("ab")), prepares := draw(st.booleans())))
        for _ in range(draw(st.integers(0, 2)) * prepares):
            add("prepare")
        for name in tape.flush:
            add(name)
        begin = add(BEGIN)
        window = [
            kernel(start_ns := begin.end_ns + draw(st.integers(0, 60)), start_ns + draw(lengths), name)
            for name in draw(kernels)
        ]
        window.sort(key=lambda record: record.start_ns)
        tape.records += window
        tape.windows.append(window)
        now_ns = max(record.end_ns for record in window)
        add(END)
    return tape


@given(tapes())
def test_splitting_finds_the_reps_that_were_taken(tape: Tape) -> None:
    """More or fewer calls than reps are refused."""
    assert tape.split() == tape.windows
    for calls in (tape.calls[:-1], [*tape.calls, call()]):
        with pytest.raises(IncompleteRecords):
            replace(tape, calls=calls).split()


@given(tapes(), st.data())
def test_no_sentinel_may_be_missing(tape: Tape, data: st.DataObject) -> None:
    """However many are missing, and wherever; a full buffer loses a whole stretch of records."""
    sentinels = {index for index, record in enumerate(tape.records) if record.name in (BEGIN, END)}
    ends = st.integers(0, len(tape.records))
    stretches = st.tuples(ends, ends).map(lambda pair: set(range(min(pair), max(pair)))).filter(sentinels.intersection)
    lost = data.draw(st.sets(st.sampled_from(sorted(sentinels)), min_size=1) | stretches)
    tape.records = [record for index, record in enumerate(tape.records) if index not in lost]
    with pytest.raises(IncompleteRecords):
        tape.split()
