"""Arguments that every call is given as they were."""

from types import SimpleNamespace

import torch

from pytest_gpubench.bench.arguments import kept_arguments


def test_what_an_object_among_the_arguments_holds_is_put_back() -> None:
    norm, cache = torch.nn.BatchNorm1d(2), SimpleNamespace(keys=[torch.zeros(2)])
    arguments = kept_arguments([torch.add], (norm,), {"cache": cache}, None)
    for _ in range(3):
        (given,), kwargs = arguments.fresh()
        assert given is norm
        assert kwargs["cache"] is cache
        assert norm.running_mean is not None
        assert norm.running_mean.tolist() == cache.keys[0].tolist() == [0, 0]
        norm.running_mean.fill_(1)
        cache.keys[0].fill_(1)
    assert arguments.flags() == ["overwrites"]
