"""Datasheets: found by the GPU's name, consistent, and known without torch."""

import pytest

from pytest_gpubench.gpu.datasheets import datasheet_of
from tests.results.measured import facts

SHEETS = [
    ("NVIDIA B200", 8000, 2250),
    ("NVIDIA H200", 4800, 989.4),
    ("NVIDIA H200 NVL", 4800, 835),
    ("NVIDIA H100 80GB HBM3", 3352, 989.4),
    ("NVIDIA H100 PCIe", 2039, 756),
    ("NVIDIA H100 NVL", 3938, 835),
    ("NVIDIA A100-SXM4-80GB", 2039, 312),
    ("NVIDIA A100 80GB PCIe", 1935, 312),
    ("NVIDIA A100-SXM4-40GB", 1555, 312),
    ("A100-PCIE-40GB", 1555, 312),
    ("NVIDIA L40S", 864, 366.5),
    ("NVIDIA L4", 300, 121),
    ("NVIDIA L40", 864, None),
    ("NVIDIA A10G", 600, None),
    ("NVIDIA A10", 600, 125),
    ("Tesla V100-SXM2-16GB", 900, None),
    ("Tesla V100-PCIE-32GB", 900, None),
    ("NVIDIA GeForce RTX 4090", 1008, 165.2),
]


@pytest.mark.parametrize(("name", "gbps", "bfloat16"), SHEETS)
def test_the_datasheet_of(name: str, gbps: float, bfloat16: float | None) -> None:
    """Its numbers add up: those of one kind of tensor core are about twice those of the next."""
    found = datasheet_of(facts(name, mig=False))
    assert found is not None
    rates = found.tflops
    assert (found.gbps, rates.get("bfloat16")) == (gbps, bfloat16)
    assert str(found).startswith(found.source)
    assert bool(found.source and rates) == (found.boost_mhz is not None)
    if "float8_e4m3fn" in rates:
        assert rates["float8_e4m3fn"] == rates["float8_e5m2"] == pytest.approx(2 * rates["float16"], rel=0.01)
    if "tfloat32" in rates:
        assert rates["bfloat16"] == pytest.approx(2 * rates["tfloat32"], rel=0.02)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GH200 480GB",
        "NVIDIA GB200",
        "NVIDIA H20",
        "NVIDIA A100X",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H200 MIG 1g.18gb",
        "Tesla V100-FHHL-16GB",
        "AMD Instinct MI300X",
        "Some CPU",
    ],
)
def test_no_datasheet_of(name: str) -> None:
    """Nor of a part of a GPU."""
    assert datasheet_of(facts(name)) is None
    assert datasheet_of(facts(mig=True)) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "NVIDIA B200",
            "HGX B200 datasheet; half of what it states with sparsity; memory: up to 8 TB/s, 7.7 in later issues",
        ),
        ("NVIDIA H200", "H200 datasheet, SXM; half of what it states with sparsity"),
        ("NVIDIA A10", "A10 datasheet"),
    ],
)
def test_what_is_said_of_a_datasheet(name: str, said: str) -> None:
    sheet = datasheet_of(facts(name))
    assert sheet is not None
    assert str(sheet) == said
