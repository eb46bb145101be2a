# The repository that the commands of the page are run in: a branch on which softmax is slower.
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

kernels() {  # medians of torch_softmax, softmax and rms_norm, in microseconds
    cat <<END > kernels.py
import random

from pytest_gpubench import scripted


def samples(median_us):
    noise = random.Random(median_us)
    return [median_us * noise.gauss(1, 0.003) for _ in range(500)]


@scripted(samples($1))
def torch_softmax(x):
    return x


@scripted(samples($2))
def softmax(x):
    return x


@scripted(samples($3))
def rms_norm(x):
    return x
END
}

cat <<END > test_norm.py
import torch
from kernels import rms_norm, softmax, torch_softmax


def test_softmax(gpu_bench):
    gpu_bench.compare(softmax, torch_softmax, args=(torch.ones(64),))


def test_rms_norm(gpu_bench):
    gpu_bench(rms_norm, torch.ones(64))
END

cat <<END > pytest.ini
[pytest]
addopts = -p no:cacheprovider -p no:benchmark
gpu_bench_timer = scripted
gpu_bench_device = cpu
END

printf '.gpu_benchmarks\n__pycache__\n' > .gitignore
git init -q -b main .
kernels 54.4 29.4 161.5
git add -A
git commit -q -m "A softmax"
git switch -q -c softmax
kernels 56.0 32.7 149.7
git commit -q -a -m "Another softmax"
git switch -q main
