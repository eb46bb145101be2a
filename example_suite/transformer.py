"""A transformer block and a step of its training, in plain torch; regions name its parts."""

import math
from typing import Any

import torch
from torch.nn import functional

from pytest_gpubench import region

EPS = 1e-6


class RmsNorm(torch.autograd.Function):
    """Normalise rows, with a backward of its own: autograd runs it on a thread of its own, on a GPU."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with region("rms_norm"):
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            rstd = wide.square().mean(-1, keepdim=True).add(EPS).rsqrt()
            ctx.save_for_backward(x, weight, rstd)
            return (wide * rstd * weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with region("rms_norm"):
            x, weight, rstd = ctx.saved_tensors
            normed, upstream = x * rstd, grad * weight
            grad_x = rstd * (upstream - normed * (upstream * normed).mean(-1, keepdim=True))
            grad_weight = (grad * normed).flatten(0, -2).sum(0)
            return grad_x.to(x.dtype), grad_weight.to(weight.dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the rows of x, each divided by its root mean square, times the weight."""
    normed: torch.Tensor = RmsNorm.apply(x, weight)  # type: ignore[no-untyped-call] # torch gives it no types
    return normed


class Block(torch.nn.Module):
    """Attend, then feed forward, each on normalised rows and added to what came in."""

    def __init__(self, hidden: int, heads: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.heads = heads

        def weight(*shape: int) -> torch.nn.Parameter:
            noise = torch.randn(shape, dtype=dtype, device=device)
            return torch.nn.Parameter(noise / math.sqrt(shape[-1]))

        def ones() -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.ones(hidden, dtype=dtype, device=device))

        self.first_norm, self.second_norm = ones(), ones()
        self.qkv, self.out = weight(3 * hidden, hidden), weight(hidden, hidden)
        self.up, self.down = weight(4 * hidden, hidden), weight(hidden, 4 * hidden)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Let every token look at those before it; x is (batch, tokens, hidden)."""
        with region("attention"):
            batch, tokens, hidden = x.shape
            qkv = functional.linear(rms_norm(x, self.first_norm), self.qkv)
            q, k, v = qkv.view(batch, tokens, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + functional.linear(mixed.transpose(1, 2).reshape(x.shape), self.out)

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        """Widen, bend and narrow each token."""
        with region("mlp"):
            return x + functional.linear(
                functional.gelu(functional.linear(rms_norm(x, self.second_norm), self.up)), self.down
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what comes out of the block."""
        return self.feed(self.attend(x))


class Training:
    """Steps of training a block towards a target.

    The learning rate is 0: a step does all its work and leaves the weights as they were, so that one is like the next.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        on_gpu = block.qkv.is_cuda
        self.optimizer = torch.optim.AdamW(block.parameters(), lr=0.0, fused=on_gpu, capturable=on_gpu)

    def loss(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Run forward; return the mean squared distance from the target."""
        with region("forward"):
            found = self.block(x)
        with region("loss"):
            return functional.mse_loss(found.float(), target.float())

    def step(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Run forward, loss, backward and the optimizer's step; return the loss."""
        self.optimizer.zero_grad()
        loss = self.loss(x, target)
        with region("backward"):
            torch.autograd.backward(loss)
        with region("optimizer"):
            self.optimizer.step()
        return loss.detach()
