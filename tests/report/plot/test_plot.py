"""Charts of sweeps: scales and ticks, letters that fit the screen, and SVG that any reader parses."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Measurement
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.plot.panels import panels_of, svg_files, text_charts
from pytest_gpubench.report.sweeps import sweeps_of
from tests.report.showcase import NASTY
from tests.report.test_sweeps import over, swept
from tests.results.measured import clocked, record

MOST_SERIES = 8
NUMBERS = st.floats(1e-9, 1e12)


@given(NUMBERS, st.floats(1.01, 1e9), st.integers(2, 9))
def test_ticks_are_shown_and_few(low: float, times: float, most: int) -> None:
    (sweep,) = sweeps_of(swept(*over("n", *map(repr, (low, low * times)))))
    scale = panels_of(sweep)[0].x
    ticks = scale.ticks(most)
    assert all(-1e-6 <= scale.share(tick) <= 1 + 1e-6 for tick in ticks)
    assert ticks == sorted(ticks)
    assert len(ticks) <= most + 3


def test_numbers_are_short() -> None:
    texts = {512: "512", 16384: "16384", 999999: "999999", 2**20: "1.049M", 0.25: "0.25", 16384.5: "16.38k", 0: "0"}
    (sweep,) = sweeps_of(swept(*over("n", *map(str, texts))))
    assert dict(panels_of(sweep)[0].x_ticks(9)) == texts


def test_the_panels_of_a_comparison() -> None:
    (sweep,) = sweeps_of(swept(*over("n", "8", "16"), moved_bytes=25000))
    time, rate, speedup = panels_of(sweep)
    assert [each.title for each in (time, rate, speedup)] == ["time, us", "GB/s", "speedup"]
    assert [(each.series.label, each.tone) for each in time.curves] == [("torch", "reference"), ("ours", "candidate")]
    assert [(x, y) for x, y, *_ in rate.curves[0].points] == [(8, 1.0), (16, 1.0)]
    assert [(x, round(y, 3)) for x, y, *_ in speedup.curves[0].points] == [(8, 2.5), (16, 1.25)]
    assert all(low <= y <= high for _, y, low, high in speedup.curves[0].points if low and high)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_chart_in_letters_fits(width: int) -> None:
    sweeps = sweeps_of(swept(*over("n", "8", "16", "1024")))
    lines = text_charts(sweeps, Screen(width)).splitlines()
    assert max(map(len, lines)) <= width
    heading = " ".join(lines[: 1 if width > 40 else 2]).split()
    assert " ".join(heading) == "tests/test_a.py::test_it: time, us over n"
    assert [line.strip() for line in lines[-2:]] == ["o torch", "x ours"]
    assert sum(line.count("x") for line in lines[1:-2]) == 3
    assert lines[-3].split() == ["8", "16", "1024"]
    shapes = swept(*over("n", "(64, 4096)", "(4096, 64)", "(512, 512)"))
    assert ")(" not in text_charts(sweeps_of(shapes), Screen(width)), "labels without room are left out"
    plain = text_charts(sweeps, Screen(width, encoding="ascii"))
    assert plain.isascii()
    assert "?" not in plain


def test_only_some_series_are_drawn_and_the_rest_is_counted() -> None:
    records = [
        record(
            Measurement(timing=clocked("f", 9.0 + x)), params={"x": str(x), "k": f"k{k}"}, nodeid=f"a.py::b[{x}-{k}]"
        )
        for k in range(MOST_SERIES + 2)
        for x in (1, 2)
    ]
    ((_, text),) = svg_files(sweeps_of(records)).items()
    assert text.count('class="line') == MOST_SERIES
    assert "and 2 more" in text


def right_ends(panel: ElementTree.Element) -> list[float]:
    of_width = {"end": 0.0, "middle": 3.5, None: 7.0}
    texts = [each for each in panel.iter() if each.tag.endswith("text")]
    return [float(each.attrib["x"]) + of_width[each.get("text-anchor")] * len(each.text or "") for each in texts]


@pytest.mark.parametrize("test", ["a.py::b", "tests/test_kernels.py::TestNorm::test_rms_norm_of_a_long_sequence"])
def test_no_text_of_a_chart_is_cut(test: str) -> None:
    item, shapes = Measurement(timing=clocked("f", 9.0)), ("(64, 4096)", "(4096, 64)", "(512, 512)")
    records = [record(item, params={"shape": shape}, nodeid=f"{test}[{shape}]") for shape in shapes]
    ((_, text),) = svg_files(sweeps_of(records)).items()
    root = ElementTree.fromstring(text)
    assert max(right_ends(root[2])) <= 380  # after the style and the title
    assert 56 + 7 * len(root[1].text or "") <= float(root.attrib["width"])


def test_files_are_named_by_their_test_and_are_xml() -> None:
    records = [*swept(*over("n", "8", "16")), *swept(*over("n/..", "8", "16"))]
    item = Measurement(timing=clocked(NASTY, 9.0))
    hostile = [record(item, nodeid=f"{NASTY}::t[{n}]", params={NASTY: str(n)}) for n in (1, 2)]
    files = svg_files(sweeps_of([*records, *hostile]))
    assert all("/" not in name for name in files)
    for text in files.values():
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert "script" not in {node.tag.rpartition("}")[2] for node in root.iter()}
    other = [record(item, nodeid=each.nodeid, params=each.params) for each in records[:2]]  # of another device
    names = ["tests_test_a.py.test_it-n.svg", "tests_test_a.py.test_it-n-2.svg"]
    assert list(svg_files([*sweeps_of(records[:2]), *sweeps_of(other)])) == names


@pytest.mark.parametrize(("folder", "kept"), [("a" * 178, True), ("a" * 179, False), ("é" * 250, False)])
def test_a_file_is_named_so_that_it_can_be_written(folder: str, kept: bool) -> None:
    """A path may be longer than a name, which has at most 255 bytes."""
    item, ids = Measurement(timing=clocked("f", 9.0)), [f"{folder}/t.py::test_in_some_{name}" for name in "ab"]
    records = [record(item, nodeid=f"{each}[{n}]", params={"n": str(n)}) for each in ids for n in (1, 2)]
    names = list(svg_files(sweeps_of(records)))
    assert (names == [f"{folder}_t.py.test_in_some_{name}-n.svg" for name in "ab"]) == kept
    assert max(len(name.encode()) for name in names) <= 204
    assert len({*names}) == 2
