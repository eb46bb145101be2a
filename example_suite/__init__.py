"""Examples: Triton kernels and their torch references, tested as a user would test them."""

import os

import torch

ON_GPU = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
"""True where kernels run on a GPU. Elsewhere the examples take small sizes, for Triton's interpreter."""
