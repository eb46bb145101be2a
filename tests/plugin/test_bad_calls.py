"""Bad calls: each raises one sentence that says what to write, and fails its own test only."""

from tests.plugin.conftest import CheckRows

FUNCTIONS = """
import torch
from torch._subclasses import FakeTensorMode

x = torch.arange(8.0)
fake = FakeTensorMode().from_tensor(x)

@scripted([20.0])
def double(x): return x * 2
@scripted([10.0])
def add(x): return x + x
@scripted([10.0])
async def later(x): return x * 2
"""
NO_RESULTS = "there is nothing to compare: *changes no argument; let it return its results"
BAD_CALLS = {
    "measure(fast, 3)": "args= must be a tuple of positional arguments, found int: write args=(x,) for one",
    "measure(fast, setup=3)": "setup= must be a function without arguments, found int",
    "measure(fast, setup=lambda: 3)": "*found int: for a single argument, `return (x,)`",
    "measure(fast, (1,), setup=lambda: (2,))": "setup= returned arguments, but args= or kwargs=*",
    "measure(fast, backward='sideways')": "backward='sideways' is not known*",
    "measure(fast, reps=0)": "measure(reps=...): 0 is not valid, it must be at least 1",
    "measure(fast, budget_s=-1.0)": "measure(budget_s=...): -1.0 is not valid, it must be above 0*",
    "compare({}, double, (x,))": "compare() needs a candidate, found an empty mapping",
    "compare(3, double, (x,))": "compare() needs functions, found int as candidate: arguments go in args=(...)*",
    "compare({'a': add, 'b': 'add'}, double, (x,))": "compare() needs functions, found str: 'add'",
    "compare(add, None, (x,))": "compare() needs functions, found NoneType as reference: *",
    "compare(add, {'torch': double}, (x,))": "compare() needs one function as reference, found dict: *",
    "compare({1: add}, double, (x,))": "compare() needs names of candidates that are texts, found 1",
    "compare(add, double, (x,), precision=2.0)": "compare(precision=...): 2.0 is not valid, it must be below 1*",
    "compare(add, double, (x,), rtol=1e-3)": "rtol= is given without atol=: give both, or neither*",
    "compare(add, double, (x,), golden='float16')": "golden= must be 'float64' or a function, found 'float16'",
    "compare(add, double, (x,), grads=True)": "grads=True compares gradients of the inputs, but none requires one*",
    "compare(add, double, (x,), kwargs=5)": "kwargs= must be a mapping of names to keyword arguments, found 5",
    "compare(add, double, (x,), {5: x})": "kwargs= must be a mapping of names to keyword arguments, found {5:*",
    "compare(add, double, (x,), timers=5)": "compare(timers=5) is not valid: give a list of different ones of *",
    "compare(add, double, (x,), timers=[[]])": "compare(timers=[[][[][]][]]) is not valid: give a list of *",
    "compare(add, double, (x,), equal_nan='no')": "compare(equal_nan='no') is not valid: it must be True or False",
    "compare(add, double, (x,), grads=1)": "compare(grads=1) is not valid: it must be True or False",
    "compare(add, double, (x,), vary=None)": "compare(vary=None) is not valid: it must be True or False",
    "compare(add, double, (x,), golden_factor=3.0)": "golden_factor=3.0 is given without golden=: give both*",
    "compare(add, double, (x,), golden=lambda x: None)": "golden= returns no output: let it return what *",
    "compare(later, double, (x,))": "'later' returns a coroutine, whose work may not be done by then: measure a *",
    "compare(add, lambda x: (y for y in x), (x,))": "'<lambda>' returns a generator, whose work may not be done*",
    "measure(fast, (x.to('meta'),))": "args[[]0[]] is a tensor without data (on the device meta, or fake), so there *",
    "compare(add, double, setup=lambda: (fake,))": "args[[]0[]] is a tensor without data *",
    "compare(add, double, kwargs={'x': {'y': fake}})": "kwargs[[]'x'[]][[]'y'[]] is a tensor without data *",
    "compare(lambda x: x.to('meta'), double, (x,))": "the output of '<lambda>' is a tensor without data *",
    "compare(add, lambda x: None, (x,))": NO_RESULTS,
    "compare(add, lambda x: [], (x,))": NO_RESULTS,
    "compare({'a': add, 'b': add}, double, (x,)).speedup": "there are several candidates (a, b): read *",
    "measure(fast, bytes=-1)": "bytes=-1 is not valid: it must be at least 0",
    "compare(lambda: pytest.fail('it was called'), slow, bytes=2**63 + 1)": "bytes=9* is not valid: * at most 9*",
    "measure(fast, flops=0)": "flops=0 is not valid: it must be at least 1",
    "compare(add, double, (x,), flops=1.5)": "flops=1.5 is not valid: it must be a whole number",
    "phases({'a': fast}, elements=0)": "phases(elements=0) is not valid: it must be at least 1",
    "ranks(fast, 1)": "ranks(world_size=1) is not valid: it must be at least 2",
    "ranks(fast, collective='reduce', message_bytes=0)": "ranks(message_bytes=0) is not valid: it must be at least 1",
    "ranks(fast, timeout_s=float('nan'))": "ranks(timeout_s=nan) is not valid: it must be above 0 and finite",
    "judge('a.py', slow, id, timeout_s=0)": "judge(timeout_s=0) is not valid: it must be above 0 and finite",
    "judge(fast, slow, id)": "judge(candidate=...) must be the path of a Python file, * found function: *",
    "judge('a.py', slow, id, trust_claims='no')": "judge(trust_claims='no') is not valid: it must be True or False",
    "judge('a.py', slow, id, memory='1')": "judge(memory='1') is not valid: it needs a unit, as in 1B or 1GiB",
    "compare(add, double, (x,), golden='float64', golden_factor=10**400)": "golden_factor=1000* is not valid: *",
    "compare(fast, slow, timers=())": "compare(timers=()) is not valid: give a list of different ones of profiler, *",
    "compare(fast, slow, timers=('profiler', 'wall'))": "compare(timers=('profiler', 'wall')) is not valid: *",
    "compare(fast, slow, timers=('graph', 'graph'))": "compare(timers=('graph', 'graph')) is not valid: *",
    "compare(fast, slow, timer='wall', timers=('graph', 'events'))": "compare(timer='wall', *: the first of timers= *",
}
"""Methods of `gpu_bench` with bad arguments, and the sentence of each one's BadRequest."""
BAD_LINES = {
    "gpu_bench(3)": "gpu_bench needs a function to call, found int: write gpu_bench(f, x)",
    "gpu_bench(print)": "timer='scripted' needs samples: decorate 'print' with @scripted(samples_us=[[]...[]])",
    "gpu_bench.measure(lambda: gpu_bench(fast), label='out')": "'fast' cannot be measured while 'out' of * is: *",
    "gpu_bench.stats": "there is no gpu_bench.stats: read the Timing that gpu_bench(f, x) returns: timing.median_us",
    "gpu_bench.pedantic(fast)": "there is no gpu_bench.pedantic: write gpu_bench.measure(f, args, kwargs, setup=*",
    "gpu_bench.mesure(fast)": "there is no gpu_bench.mesure: did you mean measure[?]",
    "gpu_bench.group = 'a'": "gpu_bench.group cannot be set: --gpu-bench-group-by groups the table",
    "gpu_bench.extra_info = {}": "gpu_bench.extra_info cannot be set: write gpu_bench.extra_info[[]*",
    "gpu_bench(scripted([1.0])(lambda: 0), reps=5)": "*'reps': gpu_bench(f, ...) gives all its keywords to f; write *",
    "gpu_bench.measure(fast, rep=3)": "gpu_bench.measure() takes no rep=: did you mean reps=[?]",
    "gpu_bench.compare(fast, slow, rounds=3)": "gpu_bench.compare() takes no rounds=: did you mean reps=[?]",
    "gpu_bench.phases({'a': fast}, max_time=3)": "gpu_bench.phases() takes no max_time=: did you mean budget_s=[?]",
    "gpu_bench.compare(fast, slow, tol=1)": "*takes no tol=: gpu_bench.compare takes rtol= and atol=",
    "gpu_bench.ranks(fast, odd=3)": "gpu_bench.ranks() takes no odd=",
    "gpu_bench.compare(fast, slow, min_speedup=2)": "*takes no min_speedup=: put it into the test's mark, @pytest*",
    "gpu_bench.measure(fast, device='cpu')": "*takes no device=: it is for the whole run, --gpu-bench-device",
    "gpu_bench(fast).median": "there is no timing.median: did you mean median_us[?]",
    "gpu_bench(fast).stddev": "there is no timing.stddev: did you mean std_us[?]",
    "gpu_bench.compare(fast, slow).ratio": "there is no comparison.ratio",
    "gpu_bench.compare(fast, slow).median_us": "there is no comparison.median_us: read that of comparison.timing*",
    "gpu_bench.compare({'a': fast}, slow)['b']": "*comparison[[]'b'[]]: there is no such candidate, only a*",
    "gpu_bench(fast).shape": "there is no timing.shape: gpu_bench(f, x) returns a Timing, not what f returns: *",
    "torch.sum(gpu_bench(fast))": "torch's sum was given a Timing: gpu_bench(f, x) returns a Timing, not what f *",
}
"""Other lines, most of them out of the habit of pytest-benchmark, and the right spelling that each is answered with."""


def test_a_bad_call_gets_one_sentence(check_rows: CheckRows) -> None:
    calls = {f"gpu_bench.{call}": f"BadRequest: {sentence}" for call, sentence in BAD_CALLS.items()}
    tests = {f"def test_it(gpu_bench): {line}": sentence for line, sentence in (calls | BAD_LINES).items()}
    *reports, _ = check_rows(FUNCTIONS, tests | {"def test_it(gpu_bench): gpu_bench.compare(add, double, (x,))": None})
    for report in reports:
        assert "pytest_gpubench/" not in report.longreprtext
        assert "All traceback entries are hidden" not in report.longreprtext
