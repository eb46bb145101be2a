"""`pytest-gpubench judge`: judge candidates in processes of their own."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpubench.cli.arguments import Commands, add_parser, checked
from pytest_gpubench.cli.output import write, write_raw
from pytest_gpubench.limits import memory_size
from pytest_gpubench.parsers import positive, whole_number_or_zero
from pytest_gpubench.results.files import write_text

if TYPE_CHECKING:
    from pytest_gpubench.judge.judgement import Judgement

MOST_AHEAD = 8
"""A process takes some seconds to warm up, and 0.5 GiB of the GPU; a judgement takes a second."""
PROMISE = """
A candidate runs in a process of its own, which never holds the reference, its outputs, the limits or the seeds. It is
given the values of its inputs when a call has been announced, and outputs are compared in the referee's process. Times
that its process claims are compared with the referee's own clock; a pass holds for both.

Not promised: protection of the machine (a GPU's driver is shared, and isolation is what the kernel allows, as the
judgement says); that calls of less than 150 us do not overlap in a batch; that a tolerance is not too wide.

status: pass, fail, inconclusive, invalid, wrong, crash, timeout, out_of_memory, compile_error, refused
exit status: 0 if every candidate passes, 1 if not, 2 for bad usage
"""


def add(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = add_parser(
        commands,
        "judge",
        "judge a candidate that nobody vouches for, in a process of its own",
        "judge softmax.py --spec softmax_spec.py\njudge --jsonl --spec softmax_spec.py < candidates > verdicts",
    )
    parser.description = f"{parser.description}\n{PROMISE}"
    parser.add_argument("candidate", nargs="?", type=Path, metavar="CANDIDATE.py", help="defines the spec's function")
    parser.add_argument("--spec", required=True, type=Path, metavar="SPEC.py", help="reference, inputs, limits")
    parser.add_argument("--json", metavar="PATH", help="write the judgement as JSON to a file, - for standard output")
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help='read a candidate a line, a path or {"candidate": path}, and write a judgement a line',
    )
    parser.add_argument(
        "--timeout", type=checked(positive), default=60.0, metavar="SECONDS", help="for loading, and for each case (60)"
    )
    parser.add_argument(
        "--memory", type=checked(memory_size), default=memory_size("16GiB"), metavar="SIZE", help="at most (16GiB)"
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU if there is one")
    parser.add_argument(
        "--budget",
        type=checked(positive),
        default=1.0,
        metavar="SECONDS",
        help="for the reps of each way of timing (1)",
    )
    parser.add_argument(
        "--search",
        type=checked(whole_number_or_zero),
        default=0,
        metavar="N",
        help="if all else passes, draw N cases by the spec's strategy `search`, and compare their outputs",
    )
    parser.add_argument("--lock-folder", metavar="DIR", help="as --gpu-bench-lock-folder")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Judge; return 0 if every candidate passes."""
    from pytest_gpubench.errors import BadRequest
    from pytest_gpubench.judge.judging import Judge

    if (arguments.candidate is None) != arguments.jsonl:
        raise BadRequest("give one candidate, or --jsonl to read many from standard input")
    with Judge(
        arguments.spec,
        arguments.device,
        arguments.timeout,
        arguments.memory,
        arguments.budget,
        arguments.lock_folder,
        drawn=arguments.search,
        ahead=min(MOST_AHEAD, max(1, (os.cpu_count() or 1) // 2)) if arguments.jsonl else 0,
    ) as judge:
        if arguments.jsonl:
            passed = [_show_line(judge(each)) for each in _candidates()]
            return int(not all(passed))
        return int(not _show(judge(arguments.candidate), arguments.json))


def _candidates() -> Iterator[Path]:
    """Yield the candidates that standard input names, as it does."""
    return (_path_of(line.strip()) for line in sys.stdin if line.strip())


def _path_of(line: str) -> Path:
    import json

    from pytest_gpubench.errors import BadRequest

    if not line.startswith("{"):
        return Path(line)
    try:
        return Path(json.loads(line)["candidate"])
    except (ValueError, KeyError, TypeError):
        raise BadRequest(f'{line[:80]!r} is no candidate: give a path or {{"candidate": path}} a line') from None


def _show_line(judgement: "Judgement") -> bool:
    write_raw(judgement.to_json())
    return judgement.passed


def _show(judgement: "Judgement", target: str | None) -> bool:
    """Write a judgement as text, and as JSON where that is asked for."""
    if target == "-":
        write_raw(judgement.to_json())
        return judgement.passed
    if target is not None:
        write_text(judgement.to_json() + "\n", Path(target))
    write(f"{judgement.status.upper()} {judgement.candidate}: {judgement.reason}")
    if judgement.detail and not judgement.passed:
        write(judgement.detail)
    return judgement.passed
