"""`pytest-gpubench judge`: judge candidates in processes of their own."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpubench.cli.arguments import add_output, add_value
from pytest_gpubench.cli.output import write, write_raw
from pytest_gpubench.limits import memory_size
from pytest_gpubench.results.files import write_text
from pytest_gpubench.settings.parsers import positive_count, seconds, whole_number_or_zero, word_or

if TYPE_CHECKING:
    from pytest_gpubench.judge.judging import Judge
    from pytest_gpubench.judge.serving import Referees

ABOUT = "judge an untrusted candidate, in a process of its own"
EXAMPLES = """judge softmax.py --spec softmax_spec.py
judge --jsonl --spec softmax_spec.py < candidates > verdicts
judge --serve judge.sock --spec softmax_spec.py"""
COMMAND = (sys.executable, "-m", "pytest_gpubench", "judge", "--jsonl")
MOST_AHEAD = 16
WARM_BYTES = 4 * 2**30
"""The memory that the host must have for each process warmed ahead."""
SPARE_CORES = 2
PROMISE = """
A candidate runs in a process of its own, which never holds the reference, its outputs, the limits or the seeds. Each
call gets new inputs, and outputs are compared in the referee's process. On a GPU its call is saved as a CUDA graph, and
timed by a process of the referee's that replays it, when the candidate's is dead. What cannot be replayed is timed by
the candidate's process if the spec says trust_claims = True; else by nobody, and it is inconclusive.

Not promised: protection of the machine (processes share the GPU's driver, and isolation is as far as the kernel allows,
which the judgement states); that a tolerance is tight enough.

status: pass, fail, inconclusive, invalid, wrong, crash, timeout, out_of_memory, compile_error, refused
exit status: 0 if every candidate passes, 1 if not, 2 for bad usage
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{parser.description}\n{PROMISE}"
    parser.add_argument("candidate", nargs="?", type=Path, metavar="CANDIDATE.py", help="defines the spec's function")
    parser.add_argument("--spec", required=True, type=Path, metavar="SPEC.py", help="reference, inputs, limits")
    help = "write the judgement as JSON to a file, - for standard output"
    add_output(parser, "--json", may_be_standard=True, help=help)
    help = 'read a candidate a line, a path or {"candidate": path, "spec": path}, and write a judgement a line'
    parser.add_argument("--jsonl", action="store_true", help=help)
    help = 'answer requests over a Unix socket, {"candidate": path} a line, until SIGTERM; those sent are answered'
    parser.add_argument("--serve", type=Path, metavar="SOCKET", help=help)
    help = (
        "time what cannot be replayed in the candidate's own process, and believe that, as a spec's trust_claims = True"
    )
    parser.add_argument("--trust-claims", action="store_true", help=help)
    help = "for loading, and for each case (default: 60)"
    add_value(parser, "--timeout", parse=seconds, metavar="SECONDS", help=help, default=60.0)
    help = "what the candidate may take of the host, and of the GPU (default: 16GiB)"
    add_value(parser, "--memory", parse=memory_size, metavar="SIZE", help=help, default=memory_size("16GiB"))
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU if there is one")
    help = "for the reps of each case (default: 1)"
    add_value(parser, "--budget", parse=seconds, metavar="SECONDS", help=help, default=1.0)
    help = "if all else passes, draw N cases by the spec's strategy `search`, and compare their outputs"
    add_value(parser, "--search", parse=whole_number_or_zero, metavar="N", help=help, default=0)
    parser.add_argument("--lock-folder", metavar="FOLDER", help="as --gpu-bench-lock-folder")
    help = "with --jsonl or --serve: on N GPUs; auto: on all"
    add_value(parser, "-n", parse=word_or(positive_count, "auto"), metavar="N", help=help, dest="referees")
    help = (
        "with --jsonl or --serve: warm N processes ahead on each GPU; a process takes 1 to 2 s to warm up and 0.5 GiB "
        "of the GPU (default: as many as there are cores and memory, at most 16)"
    )
    add_value(parser, "--ahead", parse=positive_count, metavar="N", help=help)


def run(arguments: argparse.Namespace) -> int:
    """Judge; return 0 if every candidate passes."""
    _check_words(arguments)
    _keep_output()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that processes and folders are removed
    try:
        if arguments.serve:
            return _serve(arguments)
        if len(_gpus(arguments)) > 1:
            return _judge_on_all(arguments)
        with _judge(arguments) as judge:
            if arguments.jsonl:
                passed = [_judge_line(judge, line.strip()) for line in sys.stdin if line.strip()]
                return int(not all(passed))
            with redirect_stdout(sys.stderr):
                judgement = judge(arguments.candidate)
            if arguments.json == "-":
                write_raw(judgement.to_json())
            else:
                if arguments.json is not None:
                    write_text(judgement.to_json() + "\n", Path(arguments.json))
                write(f"{judgement.status.upper()} {judgement.candidate}: {judgement.reason}")
                if judgement.detail and not judgement.passed:
                    write(judgement.detail)
            return int(not judgement.passed)
    finally:
        signal.signal(signal.SIGTERM, before)


def _keep_output() -> None:
    """Let what a spec writes to standard output in C, or by a command, go to standard error; only this process does."""
    if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:  # no test captures it
        sys.stdout.flush()
        sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
        with suppress(OSError):  # standard error is closed
            os.dup2(2, 1)


def _check_words(arguments: argparse.Namespace) -> None:
    """Raise BadRequest for options that do not go together."""
    from pytest_gpubench.errors import BadRequest

    if [arguments.candidate is not None, arguments.jsonl, arguments.serve is not None].count(True) != 1:
        raise BadRequest("give one candidate, or --jsonl to read many from standard input, or --serve SOCKET")
    for option, given in (("-n", arguments.referees), ("--ahead", arguments.ahead)):
        if given and arguments.candidate is not None:
            raise BadRequest(
                f"{option} is for many candidates: give --jsonl, and the candidates on standard input, or --serve"
            )
    if arguments.json and arguments.candidate is None:
        raise BadRequest("--json writes one judgement: leave it out, as --jsonl and --serve write all of them")


def _judge(arguments: argparse.Namespace) -> "Judge":
    from pytest_gpubench.judge.judging import Judge

    with redirect_stdout(sys.stderr):  # a spec may print
        return Judge(
            arguments.spec,
            device=arguments.device,
            timeout_s=arguments.timeout,
            memory_bytes=arguments.memory,
            budget_s=arguments.budget,
            lock_folder=arguments.lock_folder,
            search=arguments.search,
            ahead=0 if arguments.candidate else _ahead(arguments, 1),
            trust_claims=arguments.trust_claims,
        )


def _serve(arguments: argparse.Namespace) -> int:
    from pytest_gpubench.judge.serving import Server

    with _referees(arguments) as referees:
        server = Server(referees, arguments.spec, arguments.serve)
        signal.signal(signal.SIGTERM, server.stop)
        server.serve(lambda: write(f"listening on {arguments.serve}"))
    return 0


def _judge_on_all(arguments: argparse.Namespace) -> int:
    passed = []

    def show(line: str) -> None:
        passed.append(json.loads(line).get("status") == "pass")
        write_raw(line)

    with _referees(arguments) as referees:
        for each in filter(str.strip, sys.stdin):
            referees.judge(each.strip(), show)
        referees.finish()
    return int(not all(passed))


def _referees(arguments: argparse.Namespace) -> "Referees":
    """Start this command in a process for each GPU."""
    from pytest_gpubench.judge.serving import Referees

    gpus = _gpus(arguments)
    words = ["--spec", arguments.spec, "--device", arguments.device, "--timeout", arguments.timeout]
    words += ["--memory", f"{arguments.memory}B", "--budget", arguments.budget, "--search", arguments.search]
    words += ["--ahead", _ahead(arguments, len(gpus))]
    words += ["--lock-folder", arguments.lock_folder] if arguments.lock_folder else []
    words += ["--trust-claims"] if arguments.trust_claims else []
    return Referees([*COMMAND, *map(str, words)], gpus)


def _gpus(arguments: argparse.Namespace) -> Sequence[str | None]:
    """Return the GPU of each referee by its UUID; None leaves it to the referee."""
    from pytest_gpubench.gpu.visible import find_visible

    visible = [] if arguments.device == "cpu" or arguments.referees is None else find_visible()
    number = (len(visible) or 1) if arguments.referees == "auto" else arguments.referees or 1
    return [visible[each % len(visible)].uuid if visible else None for each in range(number)]


def _ahead(arguments: argparse.Namespace, referees: int) -> int:
    """Return how many processes a referee warms ahead."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    afforded = min(cores // referees - SPARE_CORES, memory_bytes // WARM_BYTES // referees, MOST_AHEAD)
    return int(arguments.ahead or max(1, afforded))


def _judge_line(judge: "Judge", line: str) -> bool:
    """Judge the candidate of a line: a path, or an object with that of a spec, perhaps; return whether it passes."""
    from pytest_gpubench.errors import GpuBenchError

    candidate, spec = line, None
    with suppress(ValueError, KeyError, TypeError, RecursionError):  # it is a path, or names nothing
        found = json.loads(line)
        if isinstance(found["candidate"], str) and isinstance(found.get("spec"), str | None):
            candidate, spec = found["candidate"], found.get("spec")
    try:
        with redirect_stdout(sys.stderr):
            judge.use_spec(spec)
            judgement = judge(Path(candidate))
    except GpuBenchError as error:
        if spec is None:
            raise
        write_raw(json.dumps({"error": str(error)}))
        return False
    write_raw(judgement.to_json())
    return judgement.passed
