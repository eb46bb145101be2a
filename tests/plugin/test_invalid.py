"""Honest functions, which are never suspected of cheating."""

import re
import textwrap

import pytest
import torch

from tests.plugin.conftest import BenchRun, CheckRows

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")

HEAD = """
import torch

x = torch.rand(64, 64, generator=torch.Generator().manual_seed(1)) + 0.5

def double(x): return x * 2
"""
QUICK = ("--gpu-bench-device=cpu", "--gpu-bench-cache=hot", "--gpu-bench-reps=20", "--gpu-bench-warmup=2")

STATIC = """
out = torch.empty_like(x)
def static(x): return torch.mul(x, 2, out=out)
"""
PARAMETERS = """
linear = torch.nn.Linear(64, 8)
other = torch.nn.Linear(64, 8)
other.load_state_dict(linear.state_dict())
"""
NOISE = """
def noisy(x, generator): return x + torch.rand(x.shape, generator=generator)
def noisy_too(x, generator): return torch.rand(x.shape, generator=generator) + x
def with_generator(): return x, torch.Generator().manual_seed(3)

def drop(x): return torch.nn.functional.dropout(x, 0.5)
def drop_too(x): return torch.nn.functional.dropout(x, 0.5) * 1.0
def seeded():
    torch.manual_seed(3)
    return (x,)
"""
IN_PLACE = """
buffer = torch.empty_like(x)
def in_place(x): return x.mul_(2)
def in_part(x): return x.mul_(2)[:32]
def half(x): return x[:32] * 2
def nothing_returned(x): x.mul_(2)
"""
POSITIVE = """
def checked_sum(x):
    if (x < 0).any(): raise ValueError("x must not be negative")
    return x.sum()
def clamped(x): return x.clamp(min=0).sum()
"""
RISING = """
rising = torch.arange(64.0)
def checked_scale(x):
    if (x.diff() < 0).any(): raise ValueError("x must rise")
    return x * 2
"""
LOSS = """
p, target = x - 0.5, (x > 1).float()
def by_hand(p, target): return -(target * p.log() + (1 - target) * (1 - p).log()).mean()
"""
SORTED = """
edges, values = torch.arange(64.0), torch.rand(99) * 64
def search(edges, values): return torch.searchsorted(edges, values)
def count(edges, values): return (edges[None] < values[:, None]).sum(1)
"""

HONEST = [
    (STATIC, "static, double, (x,)", "static output"),
    (STATIC, "double, static, (x,)", "static output of the reference"),
    ("", "{'sum': lambda x: x.t().sum()}, torch.sum, (x,)", "whatever the order"),
    ("", "{'max': lambda x: x.reshape(-1).amax()}, torch.max, (x,)", "largest"),
    ("", "{'ones': lambda x: x + x}, double, (torch.ones(9),)", "constant inputs"),
    ("", "{'zeros': lambda x: x + x}, double, (torch.zeros(9),)", "zeros"),
    ("", "{'none': lambda x: x + x}, double, (torch.zeros(0),)", "no elements"),
    ("", "{'integers': lambda x: x + x}, double, (torch.arange(9),)", "integers"),
    ("", "{'take': lambda x, i: x[i]}, lambda x, i: x.take(i), (x[0], torch.arange(9))", "indices"),
    ("", "{'constant': lambda: torch.ones(9)}, lambda: torch.ones(9)", "no inputs"),
    (
        "a = x @ x.t() + 64 * torch.eye(64)",
        "{'again': lambda a: torch.linalg.cholesky(a, upper=True).mT}, torch.linalg.cholesky, (a,)",
        "refused by the reference",
    ),
    ("", "{'power': lambda x: x.mean() ** 0.5}, lambda x: x.mean().sqrt(), (x,)", "root"),
    ("", "{'log': lambda x: x.prod().log()}, lambda x: x.prod().log(), (x.double(),)", "not finite"),
    (NOISE, "noisy_too, noisy, setup=with_generator", "random numbers, a generator"),
    (NOISE, "drop_too, drop, setup=seeded", "random numbers, seeded by setup"),
    ("", "{'view': lambda x: x + x}, double, (x.t()[1::2, 3:],)", "views"),
    ("", "{'twice': lambda a, b: b + a}, torch.add, (x, x)", "given twice"),
    ("", "{'views': lambda a, b: b + a}, torch.add, (x[:40], x[24:])", "overlapping"),
    ("", "{'keyword': lambda *, x: x + x}, lambda *, x: x * 2, kwargs={'x': x}", "keywords"),
    ("", "{'windows': lambda x: x.sum(1)}, lambda x: x.sum(1), (x[0].unfold(0, 5, 1),)", "windows"),
    ("", "{'expanded': lambda x: x + x}, double, (x[:1].expand(64, 64),)", "expanded"),
    ("", "{'inside': lambda x: x[1:]}, lambda x: x[1:], (x,)", "outputs in the inputs"),
    (PARAMETERS, "{'module': other}, linear, (x,)", "modules"),
    (PARAMETERS, "{'module': lambda m, x: m(x)}, lambda m, x: linear(x), (other, x)", "module given"),
    (IN_PLACE, "in_place, double, setup=lambda: (x.clone(),)", "in place"),
    (IN_PLACE, "in_place, double, setup=lambda: (buffer.copy_(x),)", "in place, one buffer"),
    (IN_PLACE, "in_part, half, setup=lambda: (x.clone(),)", "in place, in part"),
    (IN_PLACE, "{'same': in_place}, in_place, setup=lambda: (x.clone(),)", "both in place"),
    ("", "{'inside': lambda x: x[1:]}, lambda x: x[1:].clone(), setup=lambda: (x.clone(),)", "a view"),
    ("", "{'g': lambda x: x + x}, double, (x.clone().requires_grad_(),), grads=True", "with gradients"),
    ("", "{'g': lambda x: x + x}, double, (x.clone().requires_grad_(),), backward='both'", "backward"),
    ("", "{'complex': lambda x: x + x}, double, (torch.complex(x, x),)", "complex"),
    ("", "{'half': lambda x: x + x}, double, (x.bfloat16(),)", "bfloat16"),
    ("", "{'found': lambda x: x[x > 1]}, lambda x: x.masked_select(x > 1), (x,)", "as many as found"),
    ("", "{'golden': lambda x: x + x}, double, (x,), golden='float64'", "golden"),
    (NOISE, "drop_too, drop, (x,)", "random numbers, without a setup"),
    (NOISE, "drop_too, drop, setup=lambda: (torch.rand(9, 9) + 1,)", "random numbers, drawn twice"),
    (NOISE, "drop_too, drop, (torch.arange(9).float(),), grads=False", "random numbers, vary"),
    (POSITIVE, "checked_sum, clamped, (x,)", "only where positive"),
    (LOSS, "by_hand, torch.nn.functional.binary_cross_entropy, (p, target)", "only between 0 and 1"),
    (RISING, "checked_scale, double, (rising,), vary=False", "only where rising, not varied"),
    ("", "{'unused': lambda x, y: x + x}, lambda x, y: x * 2, (x, x.t())", "an argument unused"),
    (SORTED, "count, search, (edges, values), vary=False", "only where sorted, not varied"),
]


@pytest.mark.parametrize("seed", [1, 2])
def test_honest_functions_are_let_be(bench_run: BenchRun, seed: int) -> None:
    """Both orders of a round: in one the candidate's last call comes last, in the other the reference's."""
    tests = [
        f"def test_{re.sub(r'[^a-z0-9]', '_', name)}(gpu_bench):\n"
        + textwrap.indent(f"{functions}\ngpu_bench.compare({call})\n", "    ")
        for functions, call, name in HONEST
    ]
    result = bench_run(HEAD + "\n".join(tests), *QUICK, f"--gpu-bench-seed={seed}", timer="wall")
    result.assert_outcomes(passed=len(HONEST))
    assert "invalid" not in result.stdout.str()


CHOSEN = {
    f"{RISING}checked_scale, double, (rising,)": "ValueError: x must rise",
    f"{SORTED}count, search, (edges, values)": "WrongResult: count is wrong for other values (turned round inputs*",
}


def test_where_only_some_values_are_meant_the_way_out_is_said(check_rows: CheckRows) -> None:
    tests = {}
    for source, error in CHOSEN.items():
        functions, _, call = source.rpartition("\n")
        tests[f"{functions}\ndef test_it(gpu_bench): gpu_bench.compare({call})"] = error
    for report in check_rows(HEAD, tests, "--gpu-bench-timer=wall", *QUICK):
        assert "vary=False" in report.longreprtext
