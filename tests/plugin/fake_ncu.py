"""An `ncu` for runs in processes of their own, and a GPU that counts: each function's counters are in `counts.json`.

Its conftest lets calls be captured on a CPU. It writes the table that ncu writes, with a row for each capture's mark,
and one for each kernel of the captured function.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

MARK = "gpu_bench_noop"
CONFTEST = """
from pytest_gpubench import counted

def capture(call, device, cache, note):
    for _ in range(3):
        note()
        call.prepare()()

counted.capture = capture
counted._why_uncounted = lambda test, request: "" if request.is_repeatable else "not of these"
"""


def main(arguments: list[str]) -> int:
    """Run the program as ncu would, and write what `counts.json` has for each capture."""
    log = Path(arguments[arguments.index("--log-file") + 1])
    metrics = arguments[arguments.index("--metrics") + 1].split(",")
    program = arguments[arguments.index("--metrics") + 2 :]
    status = subprocess.run(program, check=False).returncode
    said = json.loads(Path("counts.json").read_text())
    if "says" in said:
        log.write_text(said["says"])
        return 1
    notes = Path(os.environ["PYTEST_GPUBENCH_COUNTING"]).read_text().splitlines()
    with log.open("w", newline="") as file:
        print("==PROF== Connected to process 1", file=file)
        table = csv.writer(file, quoting=csv.QUOTE_ALL)
        table.writerow(["ID", "Kernel Name", *metrics])
        table.writerow(["", "", *("byte" for _ in metrics)])
        for number, line in enumerate(notes):
            _, _, label = json.loads(line)
            table.writerow([2 * number, MARK, *("1" for _ in metrics)])
            kernel, *counts = said[label][number % len(said[label])]
            table.writerow([2 * number + 1, kernel, *(counts[at % len(counts)] for at in range(len(metrics)))])
    with Path("ncu-runs").open("a") as file:
        print(len(notes), *metrics, file=file)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
