"""What a user of pytest-gpubench would write: kernels with their torch references, checked first and then measured."""
