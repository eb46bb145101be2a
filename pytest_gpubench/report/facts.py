"""The facts about a device and about a run, by the names that lines and pages give them."""

from collections.abc import Sequence

from pytest_gpubench.results.model import DeviceFacts, SavedRun
from pytest_gpubench.units import format_bytes


def device_facts(facts: DeviceFacts) -> dict[str, str]:
    """Return the known facts about a device, without its name."""
    known = {
        "host": facts.host,
        "UUID": facts.uuid,
        "compute capability": facts.compute_capability,
        "multiprocessors": facts.multiprocessors,
        "last-level cache": facts.cache_bytes and format_bytes(facts.cache_bytes),
        "memory": facts.memory_bytes and format_bytes(facts.memory_bytes),
        "driver": facts.driver,
        "CUDA (torch)": facts.cuda,
        "highest SM clock": facts.max_sm_clock_mhz and f"{facts.max_sm_clock_mhz} MHz",
        "highest memory clock": facts.max_memory_clock_mhz and f"{facts.max_memory_clock_mhz} MHz",
        "power cap": facts.power_limit_w and f"{facts.power_limit_w:g} W",
        "MIG": None if facts.mig is None else ("on" if facts.mig else "off"),
        "NVML": facts.nvml_error or ("usable" if facts.type == "cuda" else None),
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def run_facts(run: SavedRun) -> dict[str, list[str]]:
    """Return the devices of a run and how it timed, each value once, in the order of first appearance."""
    devices = [record.device for record in run.records]
    timings = [item.timing for record in run.records for item in record.measurements if item.timing.measured]
    facts: dict[str, Sequence[str | None]] = {
        "Device": [device.name for device in devices],
        "Driver": [device.driver for device in devices],
        "CUDA": [device.cuda for device in devices],
        "Host": [device.host for device in devices],
        "Timer": [timing.timer for timing in timings],
        "Cache": [timing.cache for timing in timings],
    }
    return {name: [value for value in dict.fromkeys(values) if value] for name, values in facts.items()}
