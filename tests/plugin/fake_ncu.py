"""An `ncu` for runs in processes of their own, and a GPU that counts: each function's counters are in `counts.json`.

It runs pytest, in which calls are captured on a CPU, and writes the table that ncu writes, with a row for the mark of
each capture, and one for a kernel, which executes so many instructions, and does all else five times.
"""

import csv
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "gpu_bench_noop"


def capture(call: Any, device: object, cache: object, note: Callable[[], object]) -> None:
    for _ in range(3):
        note()
        call.prepare()()


def why_uncounted(test: object, request: Any) -> str:
    return "" if request.is_repeatable else "not of these"


def untimed(request: Any, reason: str) -> Any:
    return request._untimed(dict.fromkeys(request.judged, ()), reason)


def run(program: list[str]) -> int:
    """Run pytest as its command does, in a process that may die; return its exit status."""
    from pytest_gpubench import public_call
    from pytest_gpubench.bench import switches
    from pytest_gpubench.bench.comparison import CompareRequest

    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    public_call.take_captures = capture  # type: ignore[attr-defined] # its import
    public_call.why_uncounted = why_uncounted  # type: ignore[attr-defined]
    switches.switches = tuple  # type: ignore[assignment] # the stub of torch has none
    CompareRequest.call_only = untimed  # type: ignore[assignment,method-assign] # to check outputs takes torch
    switches.switches = tuple  # type: ignore[assignment] # so do its switches
    sys.argv = program[program.index("pytest") :]
    status = 0
    try:
        runpy.run_module("pytest", run_name="__main__")
    except SystemExit as end:
        status = int(end.code or 0)
    sys.stdout.flush()
    os._exit(status)


def main(arguments: list[str]) -> int:
    """Run the program as ncu would, and write what `counts.json` has for each capture."""
    log = Path(arguments[arguments.index("--log-file") + 1])
    metrics = arguments[arguments.index("--metrics") + 1].split(",")
    notes_file, os.environ["UNDER_NCU"] = Path(os.environ["PYTEST_GPUBENCH_COUNTING"]), "1"
    with Path("ncu-runs").open("a") as file:
        print(*metrics, file=file)
    status = run(arguments[arguments.index("--metrics") + 2 :])
    said = json.loads(Path("counts.json").read_text())
    if "says" in said:
        log.write_text(said["says"])
        return 1
    notes = [note for note in map(json.loads, notes_file.read_text().splitlines()) if isinstance(note, list)]
    with log.open("w", newline="") as file:
        print("==PROF== Connected to process 1", file=file)
        table = csv.writer(file, quoting=csv.QUOTE_ALL)
        table.writerow(["ID", "Kernel Name", *metrics])
        table.writerow(["", "", *("byte" for _ in metrics)])
        for number, (_, _, label) in enumerate(notes):
            table.writerow([2 * number, MARK, *("1" for _ in metrics)])
            kernel, instructions = said[label][number % len(said[label])]
            counts = (instructions if metric == "smsp__inst_executed.sum" else 5 for metric in metrics)
            table.writerow([2 * number + 1, kernel, *counts])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
