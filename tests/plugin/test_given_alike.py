"""Examples whose texts are equal: drawn within the test, or tensors whose values the text leaves out."""

import pytest

from tests.plugin.conftest import BenchRun
from tests.plugin.test_given import TROUBLE, limited

DATA = "n=st.data()"
TENSORS = "n=st.integers(0, 9).map(lambda k: torch.full((4,), float(k)))"
RANDOMS = "n=st.randoms(use_true_random=False)"
HEAD = "from hypothesis import note\n"


def alike(body: str, given: str, marks: str = "max_time_us=20") -> str:
    return HEAD + limited(body, given, marks)


@pytest.mark.parametrize(
    ("given", "body", "smallest"),
    [
        (DATA, "k = n.draw(sizes); gpu_bench.compare(slow_from(k, 70), double, (torch.ones(3),))", "1: 70"),
        (DATA, "gpu_bench(add(1.0), torch.ones(1)); gpu_bench(slow_from(n.draw(sizes), 70), torch.ones(1))", "1: 70"),
        (TENSORS, "note(f'of {n[0]:g}'); gpu_bench.compare(slow_from(n[0], 5), double, (n,))", "of 5\n"),
        (RANDOMS, "gpu_bench.measure(slow_from(n.random(), 0.5), (torch.ones(3),))", "n=HypothesisRandom("),
    ],
)
def test_a_loss_is_found_and_shrunk(bench_run: BenchRun, given: str, body: str, smallest: str) -> None:
    marks = "min_speedup=0.8" if "compare" in body else "max_time_us=20"
    result = bench_run(alike(body, given, marks))
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "LimitBroken: " in text
    assert smallest in text
    assert given != DATA or "@example" not in text.partition("LimitBroken")[2], "hypothesis would not take it"
    assert not any(word in text for word in TROUBLE)


@pytest.mark.parametrize("call", ["measure({}, (torch.ones(3),))", "phases(dict(a={}), args=(torch.ones(3),))"])
def test_the_verdict_of_a_replay_is_the_same(bench_run: BenchRun, call: str) -> None:
    """Slow the first time alone: the same choices are the same example."""
    kernel = "add(50.0 if seen[k] == 1 and k > 20 else 5.0)"
    body = f"k = n.draw(sizes); seen[k] += 1; gpu_bench.{call.format(kernel)}"
    result = bench_run(alike(body, DATA))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *too slow: median 50.00 us*", "E *Draw 1: 21*"])
    assert not any(word in result.stdout.str() for word in TROUBLE)
