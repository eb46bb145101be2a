"""The kernels under test: each a Triton kernel with the function that launches it."""
