"""Calls as CUDA graphs: what the driver knows of their kernels."""
