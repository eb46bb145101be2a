"""GPU work that no record shows is noticed; calls that look as if they had some are timed."""

import ctypes
import time
from collections.abc import Callable

import pytest
import torch

from pytest_gpubench import GpuBench, IncompleteRecords
from tests.on_gpu.nvcc import compiled
from tests.on_gpu.study.workloads import WORKLOADS
from tests.results.measured import present

CODE = r"""
#include <cuda_runtime.h>
#include <unistd.h>

__global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}

__global__ void parent(long long cycles) { spin<<<1, 32, 0, cudaStreamFireAndForget>>>(cycles); }
__global__ void tail_parent(long long cycles) { spin<<<1, 32, 0, cudaStreamTailLaunch>>>(cycles); }
__global__ void starter(cudaGraphExec_t graph) { cudaGraphLaunch(graph, cudaStreamGraphFireAndForget); }
__global__ void tail_starter(cudaGraphExec_t graph) { cudaGraphLaunch(graph, cudaStreamGraphTailLaunch); }

static void CUDART_CB rest(void* microseconds) { usleep((long long)microseconds); }

static cudaGraphExec_t outer_graph = nullptr;

extern "C" int make_graphs(long long cycles, int at_the_end) {
  cudaStream_t stream;
  cudaGraph_t inner, outer;
  cudaGraphExec_t inner_graph;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error) return error;
  if ((error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))) return error;
  spin<<<1, 32, 0, stream>>>(cycles);
  if ((error = cudaStreamEndCapture(stream, &inner))) return error;
  if ((error = cudaGraphInstantiate(&inner_graph, inner, cudaGraphInstantiateFlagDeviceLaunch))) return error;
  if ((error = cudaGraphUpload(inner_graph, stream))) return error;
  if ((error = cudaStreamSynchronize(stream))) return error;
  if ((error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))) return error;
  if (at_the_end) tail_starter<<<1, 1, 0, stream>>>(inner_graph);
  else starter<<<1, 1, 0, stream>>>(inner_graph);
  if ((error = cudaStreamEndCapture(stream, &outer))) return error;
  // only a graph that can itself be launched by the device may launch one behind it
  unsigned long long flags = at_the_end ? cudaGraphInstantiateFlagDeviceLaunch : 0;
  if ((error = cudaGraphInstantiate(&outer_graph, outer, flags))) return error;
  if ((error = cudaGraphUpload(outer_graph, stream))) return error;
  return cudaStreamSynchronize(stream);
}

extern "C" int launch(int way, long long cycles, cudaStream_t stream) {
  switch (way) {
    case 0: spin<<<1, 32, 0, stream>>>(cycles); break;
    case 1: parent<<<1, 1, 0, stream>>>(cycles); break;
    case 2: tail_parent<<<1, 1, 0, stream>>>(cycles); break;
    case 3: return cudaGraphLaunch(outer_graph, stream);
    case 4: {
      spin<<<1, 32, 0, stream>>>(1000);
      cudaError_t error = cudaLaunchHostFunc(stream, rest, (void*)(cycles / 2000));
      if (error) return error;
    }
  }
  return cudaGetLastError();
}
"""
WAYS = {
    "a kernel launches a kernel": 1,
    "a kernel launches a kernel behind it": 2,
    "a graph launches a graph": 3,
    "a graph launches a graph behind it": 3,
    "a function of the host in the stream": 4,
}
CYCLES_PER_US = 2000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return ctypes.CDLL(str(compiled(CODE, tmp_path_factory.mktemp("unseen"))))


def check(error: int) -> None:
    if error:
        pytest.skip(f"needs launches by the device: CUDA error {error}")


def launching(library: ctypes.CDLL, way: int, us: int) -> Callable[[], None]:
    cycles, stream = ctypes.c_longlong(us * CYCLES_PER_US), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    return lambda: check(library.launch(way, cycles, stream))


@pytest.fixture(params=WAYS)
def hidden(request: pytest.FixtureRequest, library: ctypes.CDLL, hidden_us: int) -> Callable[[], None]:
    """Work of so many microseconds that no record shows."""
    name: str = request.param
    if "graph" in name:
        check(library.make_graphs(ctypes.c_longlong(hidden_us * CYCLES_PER_US), int("behind" in name)))
    return launching(library, WAYS[name], hidden_us)


@pytest.mark.parametrize("hidden_us", [60, 3000])
def test_hidden_work_is_no_number(gpu_bench: GpuBench, hidden: Callable[[], None], hidden_us: int) -> None:
    ones = torch.ones(32, device=gpu_bench.device)

    def call() -> None:
        ones.neg()
        hidden()

    with pytest.raises(IncompleteRecords, match="it does not see work that the GPU launches itself"):
        gpu_bench.measure(call)


@pytest.mark.parametrize("hidden_us", [300])
def test_hidden_work_is_no_speedup_and_events_time_it(
    gpu_bench: GpuBench, library: ctypes.CDLL, hidden: Callable[[], None], hidden_us: int
) -> None:
    seen, ones = launching(library, 0, hidden_us), torch.ones(32, device=gpu_bench.device)

    def returning(launch: Callable[[], None]) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            launch()
            return ones + 1

        return call

    with pytest.raises(IncompleteRecords, match="'mine' keeps the GPU busy for"):
        gpu_bench.compare({"mine": returning(hidden)}, returning(seen))
    timing = gpu_bench.measure(hidden, timer="events")
    assert hidden_us * 0.5 < timing.median_us < hidden_us * 2.5


@pytest.mark.parametrize("us", [5, 60, 3000])
def test_the_same_work_that_the_host_launches_is_timed(gpu_bench: GpuBench, library: ctypes.CDLL, us: int) -> None:
    timing = gpu_bench.measure(launching(library, 0, us))
    cycles = timing.median_us * present(timing.median_sm_clock_mhz)
    assert cycles / CYCLES_PER_US == pytest.approx(us, rel=0.3, abs=2)


# honest calls


def tiny() -> Callable[[], object]:
    x = torch.ones(32, device="cuda")
    return x.neg


def many(number: int) -> Callable[[], object]:
    neg = tiny()
    return lambda: [neg() for _ in range(number)]


def graph_of(call: Callable[[], object]) -> Callable[[], object]:
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def side(joined: bool) -> Callable[[], object]:
    stream, x = torch.cuda.Stream(), torch.ones(2**22, device="cuda")  # type: ignore[no-untyped-call]

    def call() -> None:
        if joined:
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x.neg()
        x[:1000].neg()
        if joined:
            torch.cuda.current_stream().wait_stream(stream)

    return call


def waiting(call: Callable[[], object]) -> Callable[[], object]:
    x = torch.ones(1000, device="cuda")

    def wait() -> None:
        x.sum().item()
        call()
        torch.cuda.synchronize()
        x.neg()

    return wait


def slow_host(seconds: float) -> Callable[[], object]:
    neg = tiny()

    def call() -> None:
        neg()
        time.sleep(seconds)
        neg()

    return call


def copies() -> Callable[[], object]:
    host, x = torch.ones(2**16).pin_memory(), torch.ones(2**16, device="cuda")

    def call() -> None:
        x.copy_(host, non_blocking=True)
        x.neg_()
        host.copy_(x, non_blocking=True)

    return call


def memsets() -> Callable[[], object]:
    x = torch.ones(2**16, dtype=torch.uint8, device="cuda")
    return lambda: [x.zero_() for _ in range(10)]


def changing() -> Callable[[], object]:
    """Return a call whose time is another in each call, from 2 to 60 us."""
    x, calls = torch.ones(2**25, device="cuda"), list[int]()

    def call() -> None:
        calls.append(1)
        torch.neg(x[: 2 ** (18 + len(calls) * 7 % 8)], out=x[: 2 ** (18 + len(calls) * 7 % 8)])

    return call


HONEST: dict[str, Callable[[], Callable[[], object]]] = {
    "tiny": tiny,
    "30 tiny kernels": lambda: many(30),
    "a graph of one kernel": lambda: graph_of(tiny()),
    "a graph of 300 kernels": lambda: graph_of(many(300)),
    "more launches than the queue holds": lambda: many(1500),
    "a joined side stream": lambda: side(True),
    "a graph of two streams": lambda: graph_of(side(True)),
    "a side stream": lambda: side(False),
    "waits": lambda: waiting(tiny()),
    "a host of 2 ms": lambda: slow_host(0.002),
    "a host of 60 ms": lambda: slow_host(0.06),
    "copies": copies,
    "memsets": memsets,
    "changing": changing,
    **WORKLOADS,
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_calls_are_timed(gpu_bench: GpuBench, name: str) -> None:
    call = HONEST[name]()
    gpu_bench.measure(call, reps=20)
    gpu_bench.measure(call, reps=20, cache="hot")
