"""Outputs that differ, and by how much they may."""

from collections.abc import Mapping, Sequence

import pytest
import torch

from pytest_gpubench.replay.scatter import differing


def out(*values: float) -> Mapping[str, torch.Tensor]:
    return {"out": torch.tensor(values)}


ONE, WHOLE = out(1.0), out(1, 2)
INF, NAN = torch.inf, torch.nan
SCATTERED, WIDELY = (1.0, 1.01, 0.995, 1.0), (0.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("found", "expected", "further", "wrong"),
    [
        pytest.param(ONE, ONE, (), 0, id="equal: not computed again"),
        pytest.param(out(1 + 1e-7), ONE, (), 0, id="equal but for rounding"),
        pytest.param(out(1 + 0.99 * 0.04), ONE, [*map(out, SCATTERED)], 0, id="four times its scatter"),
        pytest.param(out(1 + 1.01 * 0.04), ONE, [*map(out, SCATTERED)], 1, id="more than that"),
        pytest.param(out(1 + 0.99 * 0.05), ONE, [*map(out, WIDELY)], 0, id="5 % of the largest"),
        pytest.param(out(1 + 1.01 * 0.05), ONE, [*map(out, WIDELY)], 1, id="random numbers prove nothing"),
        pytest.param(out(1.01), ONE, 4 * [ONE], 1, id="no scatter"),
        pytest.param(out(INF, NAN, 1.1), out(INF, NAN, 1.0), 4 * [out(INF, NAN, 2.0)], 1, id="not finite: no room"),
        pytest.param(out(1.0, 1.0), ONE, 4 * [ONE], 1, id="another shape"),
        pytest.param(WHOLE, WHOLE, (), 0, id="whole numbers"),
        pytest.param(out(1, 3), WHOLE, 4 * [out(5, 9)], 1, id="whole numbers have to be equal"),
        pytest.param({"other": ONE["out"] + 6}, ONE, (), 0, id="only outputs that both have"),
    ],
)
def test_outputs_may_differ_by_a_multiple_of_their_scatter(
    found: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    further: Sequence[Mapping[str, torch.Tensor]],
    wrong: int,
) -> None:
    calls = iter(further)
    assert len(differing(found, expected, lambda: next(calls))) == wrong
    assert next(calls, None) is None, "4 calls were made"
