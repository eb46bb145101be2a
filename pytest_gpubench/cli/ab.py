"""`pytest-gpubench ab`: two commits measured by alternating runs of the same tests on one GPU."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pytest_gpubench.errors import BadFile, BadRequest, DeviceUnavailable
from pytest_gpubench.limits import positive_number
from pytest_gpubench.results.model import Outcome, SavedRun
from pytest_gpubench.results.rounds import Arm, ArmRun, Ended, Judgement, Rule, judge, order_of
from pytest_gpubench.results.store import read_run
from pytest_gpubench.settings import fraction, whole_number
from pytest_gpubench.units import count, printable

ROUNDS = 3
MARGIN = 0.03
ALPHA = 0.01
TESTS_RAN = {0: "all passed", 1: "some failed", 5: "no test was collected"}
"""The exit statuses of pytest after which there is something to compare, or known to be nothing."""
TAIL_LINES = 15
END_S = 10.0
"""How long a run that is interrupted may take to end by itself."""
GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
"""What git tells its hooks: in one of them, it would mean the repository that the hook runs for."""
ORDER = (Outcome.FAIL, Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED, Outcome.PASS)
EPILOG = """\
A round is four runs of pytest, BASE HEAD HEAD BASE and every other time the other way round, so drift cancels.
Each run imports its own tree, which comes first on PYTHONPATH. A worktree holds what git tracks: neither submodules
nor build outputs nor data that git ignores; make them with --setup, in place (`python setup.py build_ext --inplace`,
`git submodule update --init`): a `pip install` would change the environment of both commits.
Exit status: 0 no regression, 1 a regression, 2 nothing was compared.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = commands.add_parser(
        "ab",
        help="compare two commits by alternating runs of their tests",
        usage="pytest-gpubench ab [OPTIONS] BASE [HEAD] -- PYTEST_ARGS",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="the commit to judge; without one, the working tree")
    parser.add_argument(
        "--rounds",
        type=checked(whole_number),
        default=ROUNDS,
        metavar="N",
        help=f"how often to take four runs; {_default(ROUNDS)}",
    )
    parser.add_argument(
        "--fail-slower",
        type=checked(slower),
        default=MARGIN,
        metavar="FRACTION",
        help=f"fail where HEAD is slower by more than this; {_default('3%%')}",
    )
    parser.add_argument(
        "--alpha",
        type=checked(chance),
        default=ALPHA,
        metavar="FRACTION",
        help=f"the chance, at most, that a test that keeps this fails; {_default(ALPHA)}",
    )
    parser.add_argument(
        "--metric",
        choices=("speedup", "median", "mean"),
        default="speedup",
        help="what is compared: the speedup over a test's reference where it has one, else its median; "
        + _default("speedup"),
    )
    parser.add_argument(
        "--setup",
        metavar="COMMAND",
        help="run this once in each worktree, before the first run; never in the working tree",
    )
    parser.add_argument("--keep", action="store_true", help="keep the worktrees, the results and what pytest printed")
    parser.set_defaults(run=run, pytest_arguments=[])
    _split_off_pytest(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure both commits and print what became of each test; see EPILOG for the exit status.

    Raises GpuBenchError where nothing can be compared, in a sentence.
    """
    rule = Rule(arguments.fail_slower, arguments.alpha, arguments.metric)
    with ending_by_signal(), Workshop.opened(arguments.keep) as workshop:
        arms = workshop.make_arms(arguments.base, arguments.head)
        pytest_runs = PytestRuns(workshop, tuple(arguments.pytest_arguments), one_gpu())
        runs = take_runs(arms, arguments.rounds, arguments.setup, pytest_runs)
    judgements = judge(runs, rule)
    print("\n".join(report_lines(judgements)))
    return exit_status(judgements)


def _default(value: object) -> str:
    return f"default {value}"


def _split_off_pytest(parser: argparse.ArgumentParser) -> None:
    """Keep what follows `--` from the parser, which forgets where it was: HEAD would be the first of pytest's."""
    parse = parser.parse_known_args

    def parse_first(args: Any = None, namespace: Any = None) -> Any:
        words = list(args)
        place = words.index("--") if "--" in words else len(words)
        found, unknown = parse(words[:place], namespace)
        found.pytest_arguments = words[place + 1 :]
        return found, unknown

    parser.parse_known_args = parse_first  # type: ignore[method-assign]


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of an option whose ValueError is argparse's error."""

    def parse_option(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not valid, {error}") from None

    return parse_option


def slower(text: str) -> float:
    """Parse how much slower something may be: 3% or 0.03; 0 and more than 100 % can be meant, too."""
    try:
        value = float(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError("it must be a number, or a percentage") from None
    return 0.0 if value == 0 else positive_number(value)


def chance(text: str) -> float:
    """Parse an alpha, a fraction or a percentage below one half."""
    value = fraction(text)
    if value >= 0.5:
        raise ValueError("it must be below 0.5, or chance decides")
    return value


# the repository


@dataclass(frozen=True)
class Repository:
    """A git repository, by the root of its working tree."""

    root: Path

    @classmethod
    def around(cls, folder: Path) -> "Repository":
        """Return the repository that a folder is in; raise BadRequest where there is none, or no git."""
        found = git(folder, "rev-parse", "--show-toplevel")
        if found.returncode:
            raise BadRequest(
                f"{folder} is not in the working tree of a git repository ({_last_line(found.stderr)}): "
                f"run this where the commits are"
            )
        return cls(Path(found.stdout.strip()))

    def commit(self, revision: str) -> str:
        """Return the full name of a commit; raise BadRequest if it is not known here."""
        found = git(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if found.returncode or revision.startswith("-"):
            shallow = git(self.root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
            remedy = (
                "this clone is shallow, fetch its history first (git fetch --unshallow)"
                if shallow
                else ("fetch it first, or see git branch --all")
            )
            raise BadRequest(f"{revision!r} names no commit of {self.root}: {remedy}")
        return found.stdout.strip()

    def changed_files(self) -> int:
        """Return how many files differ from the commit that is checked out, untracked ones included."""
        return len(git(self.root, "status", "--porcelain").stdout.splitlines())

    def add_worktree(self, folder: Path, commit: str) -> None:
        """Check a commit out into a new folder, without running the repository's hooks; raise BadRequest."""
        hooks = f"core.hooksPath={os.devnull}"
        made = git(self.root, "-c", hooks, "worktree", "add", "--quiet", "--detach", str(folder), commit)
        if made.returncode:
            raise BadRequest(f"git could not check {commit[:8]} out into {folder}: {_last_line(made.stderr)}")

    def remove_worktree(self, folder: Path) -> None:
        """Remove a worktree, whatever was left in it."""
        git(self.root, "worktree", "remove", "--force", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        git(self.root, "worktree", "prune")


def git(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run git in a folder; raise BadRequest where it is not installed."""
    environment = {name: value for name, value in os.environ.items() if name not in GIT_PLACES}
    try:
        return subprocess.run(
            ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise BadRequest("git is not installed, or not on PATH: ab needs it to check both commits out") from None


# the two versions


@dataclass(frozen=True)
class Tree:
    """One of the two versions: where its files are, and where in them the tests are run."""

    arm: Arm
    root: Path
    folder: Path
    """Where pytest runs: what stands for the folder that `ab` was called in."""
    origin: Path
    """The root of the working tree."""
    state: Path
    """Where its runs keep what must not be the other's: caches of pytest, hypothesis and torch's extensions."""

    @property
    def is_worktree(self) -> bool:
        """Whether it was checked out for this comparison."""
        return self.root != self.origin

    def environment(self) -> dict[str, str]:
        """Return the variables for its runs: this tree is imported first, and nothing is imported from the other.

        The caches of Triton and Inductor are shared: what is in them is found by the source it was compiled from.
        torch's extensions are not, they are found by their name.
        """
        environment = {name: value for name, value in os.environ.items() if not _is_of_outer_run(name)}
        before = [self.rebased(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
        own = [str(path) for path in (self.folder, self.root, self.root / "src") if path.is_dir()]
        return environment | {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([*own, *before])),
            "TORCH_EXTENSIONS_DIR": str(self.state / "torch_extensions"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.state / "hypothesis"),
        }

    def rebased(self, text: str) -> str:
        """Return a path in the working tree as the same path in this one; other texts as they are."""
        path = Path(text)
        if not path.is_absolute() or not path.is_relative_to(self.origin):
            return text
        return str(self.root / path.relative_to(self.origin))

    def foreign_modules(self) -> dict[str, str]:
        """Return the packages and modules of this tree that Python would import from elsewhere, with where from."""
        places = {path: self._names_in(path) for path in (self.root, self.root / "src")}
        names = sorted({name for found in places.values() for name in found})
        asked = subprocess.run(
            [sys.executable, "-c", ASK_ORIGINS, *names],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            errors="replace",
        )
        origins = dict(line.split("\t", 1) for line in asked.stdout.splitlines() if "\t" in line)
        return {
            name: origin for name, origin in origins.items() if not Path(origin).resolve().is_relative_to(self.root)
        }

    def _names_in(self, folder: Path) -> list[str]:
        packages = [path.parent.name for path in folder.glob("*/__init__.py")]
        modules = [path.stem for path in folder.glob("*.py")]
        return [name for name in [*packages, *modules] if name.isidentifier()]


ASK_ORIGINS = """
import importlib.util, sys
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    if spec is not None and spec.origin and spec.has_location:
        print(name, spec.origin, sep="\\t")
"""


def _is_of_outer_run(name: str) -> bool:
    """Tell the variables that would make twelve runs write to one CI summary, or take themselves for xdist workers."""
    return name.startswith("PYTEST_XDIST_") or name in (*GIT_PLACES, "PYTEST_CURRENT_TEST", "GITHUB_STEP_SUMMARY")


@dataclass
class Workshop:
    """A temporary folder with the worktrees in it, which are removed when it is left."""

    repository: Repository
    here: Path
    """The folder that `ab` was called in."""
    folder: Path
    keep: bool
    worktrees: list[Path] = field(default_factory=list)

    @classmethod
    @contextmanager
    def opened(cls, keep: bool) -> Iterator["Workshop"]:
        """Make a workshop for the repository around this folder, and clean it up whatever happens."""
        here = Path.cwd().resolve()
        repository = Repository.around(here)
        workshop = cls(repository, here, Path(tempfile.mkdtemp(prefix="gpubench-ab-")).resolve(), keep)
        try:
            yield workshop
        finally:
            workshop.close()

    def make_arms(self, base: str, head: str | None) -> dict[Arm, Tree]:
        """Check the commits out and say what is compared with what; without a head it is the working tree."""
        base_commit = self.repository.commit(base)
        head_commit = None if head is None else self.repository.commit(head)
        changed = self.repository.changed_files()
        say(f"BASE is {base} ({base_commit[:8]})")
        if head_commit is None:
            state = f"with {count(changed, 'changed file')}" if changed else "which is clean"
            say(f"HEAD is the working tree as it is, {state}, at {self.repository.commit('HEAD')[:8]}")
        else:
            unused = f"; {count(changed, 'changed file')} of the working tree left out" if changed else ""
            say(f"HEAD is {head} ({head_commit[:8]}){unused}")
        if base_commit == head_commit:
            say("BASE and HEAD are the same commit: every difference is noise")
        arms: dict[Arm, Tree] = {"BASE": self._checked_out("BASE", base_commit)}
        arms["HEAD"] = self._working_tree() if head_commit is None else self._checked_out("HEAD", head_commit)
        if any((tree.root / ".gitmodules").exists() for tree in arms.values() if tree.is_worktree):
            say("submodules are not checked out: --setup 'git submodule update --init' does it")
        return arms

    def close(self) -> None:
        """Remove the worktrees and all results, unless they are to be kept; interrupts wait for it."""
        if self.keep:
            say(f"kept: {self.folder} (remove its worktrees with git worktree remove)")
            return
        with interrupts_ignored():
            for worktree in self.worktrees:
                self.repository.remove_worktree(worktree)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _checked_out(self, arm: Arm, commit: str) -> Tree:
        root = self.folder / arm.lower()
        self.worktrees.append(root)
        self.repository.add_worktree(root, commit)
        folder = root / self.here.relative_to(self.repository.root.resolve())
        if not folder.is_dir():
            raise BadRequest(f"{arm} has no folder {folder.relative_to(root)}: run ab in one that both commits have")
        return self._tree(arm, root, folder)

    def _working_tree(self) -> Tree:
        return self._tree("HEAD", self.repository.root.resolve(), self.here)

    def _tree(self, arm: Arm, root: Path, folder: Path) -> Tree:
        state = self.folder / f"{arm.lower()}-state"
        state.mkdir()
        return Tree(arm, root, folder, self.repository.root.resolve(), state)


# the runs


@dataclass
class PytestRuns:
    """Run pytest in a tree, results and output going to the workshop."""

    workshop: Workshop
    arguments: tuple[str, ...]
    gpu: dict[str, str]
    """The variables that pin CUDA to one GPU; empty where they need not."""
    taken: int = 0

    def run(self, tree: Tree, round: int) -> ArmRun:
        """Run pytest once; raise BadRequest where it could not run its tests."""
        self.taken += 1
        place = self.workshop.folder / f"{self.taken:02}-{tree.arm}"
        results, junit, log = (place.with_suffix(suffix) for suffix in (".json", ".xml", ".log"))
        status = run_logged(self.command(tree, results, junit), tree.folder, tree.environment() | self.gpu, log)
        if status not in TESTS_RAN:
            raise BadRequest(
                f"pytest could not run the tests in {tree.arm} (exit status {status}); it ended with:\n{tail(log)}"
            )
        if not results.exists() and status != 5:
            raise BadRequest(f"the tests in {tree.arm} left no results; pytest ended with:\n{tail(log)}")
        saved = read_run(results) if results.exists() else SavedRun(records=(), datetime="")
        return ArmRun(tree.arm, round, saved, read_ended(junit, saved))

    def command(self, tree: Tree, results: Path, junit: Path) -> list[str]:
        """Return the command: the arguments that were given, then what makes two trees alike and keeps the results."""
        given = [tree.rebased(word) for word in self.arguments]
        seeded = any(word.startswith("--hypothesis-seed") for word in given)
        return [
            *(sys.executable, "-m", "pytest", *given),
            *([] if seeded else ["--hypothesis-seed=0"]),
            *("-o", f"cache_dir={tree.state / 'pytest_cache'}"),
            f"--junitxml={junit}",
            f"--gpu-bench-json={results}",
        ]


def take_runs(arms: Mapping[Arm, Tree], rounds: int, setup: str | None, pytest_runs: PytestRuns) -> list[ArmRun]:
    """Prepare the trees and run pytest in them by turns; raise BadRequest where one of them cannot run its tests."""
    for tree in arms.values():
        if setup is not None and tree.is_worktree:
            say(f"setting {tree.arm} up: {setup}")
            run_setup(setup, tree, pytest_runs.workshop.folder / f"setup-{tree.arm}.log")
        for name, origin in tree.foreign_modules().items():
            say(f"warning: {tree.arm} imports {name} from {origin}, not from its own tree: what is measured is not it")
    runs: list[ArmRun] = []
    turns = [(round, arm) for round in range(rounds) for arm in order_of(round)]
    for number, (round, arm) in enumerate(turns, 1):
        began_s = time.monotonic()
        taken = pytest_runs.run(arms[arm], round)
        runs.append(taken)
        measured = sum(len(record.measurements) for record in taken.run.records)
        say(
            f"run {number} of {len(turns)}: {arm}, {count(len(taken.ended), 'test')}, "
            f"{count(measured, 'measurement')}, {time.monotonic() - began_s:.0f} s"
        )
        if {each.arm for each in runs} == {"BASE", "HEAD"} and not any(each.run.records for each in runs):
            break  # neither version measures anything: no further run will
    return runs


def run_setup(command: str, tree: Tree, log: Path) -> None:
    """Run the user's command in a worktree; raise BadRequest with the end of what it printed if it fails."""
    status = run_logged(["sh", "-c", command], tree.root, tree.environment(), log)
    if status:
        raise BadRequest(f"--setup failed in {tree.arm} (exit status {status}); it ended with:\n{tail(log)}")


def run_logged(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
    """Run a command in a session of its own and return its exit status; an interrupt ends it and all it started."""
    waiting = InterruptsLater()
    with log.open("wb") as output, waiting:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if waiting.came:
            raise KeyboardInterrupt
        return process.wait()
    except BaseException:
        end_group(process)
        raise


class InterruptsLater:
    """Note a Ctrl-C or SIGTERM instead of raising it: one while a process is started would leave it running."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> None:
        self.before = {each: signal.signal(each, self._note) for each in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.came = True


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process as Ctrl-C would, and then, by force, what is left of it and of what it started."""
    with interrupts_ignored():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Make SIGTERM, with which CI cancels a job, an interrupt like Ctrl-C, so that worktrees are removed."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Let no second Ctrl-C, or SIGTERM, stop the cleaning up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def one_gpu() -> dict[str, str]:
    """Return the variables that pin all runs to one GPU, taken for them; nothing where NVML sees none to choose from.

    Its place is held until this process ends, so that the workers of other runs take another GPU.
    """
    from pytest_gpubench.gpu.allocation import claim_gpu
    from pytest_gpubench.gpu.visible import find_visible

    visible = find_visible()
    if len(visible) < 2:
        return {}
    try:
        claim = claim_gpu(visible)
    except (BadRequest, DeviceUnavailable) as error:
        say(f"warning: no GPU is held for these runs, the first one is used: {error}")
        return {"CUDA_VISIBLE_DEVICES": visible[0].uuid}
    say(f"both are measured on {claim.gpus[0].name} {claim.gpus[0].uuid}, one of {len(visible)} GPUs")
    HELD.append(claim)
    return claim.environment()


HELD: list[object] = []
"""Claims last as long as they are referred to."""


# what pytest says of its tests


def read_ended(junit: Path, run: SavedRun) -> dict[str, Ended]:
    """Return how each test ended, by node id where it measured something and by JUnit's two names elsewhere."""
    nodeids = {junit_names(record.nodeid): record.nodeid for record in run.records}
    ended: dict[str, Ended] = {}
    try:
        cases = list(ElementTree.parse(junit).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        raise BadFile(f"pytest's own report {junit.name} cannot be read ({error})") from None
    for case in cases:
        names = case.get("classname", ""), case.get("name", "")
        nodeid = nodeids.get(names, "::".join(name for name in names if name))
        now: Ended = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            now = "failed"
        elif case.find("skipped") is not None:
            now = "skipped"
        if ended.get(nodeid) != "failed":  # a test may be there twice: its call, and its teardown
            ended[nodeid] = now
    return ended


def junit_names(nodeid: str) -> tuple[str, str]:
    """Return the class name and the name by which JUnit's file knows a test."""
    address, bracket, parameters = nodeid.partition("[")
    path, *names = address.split("::")
    parts = [re.sub(r"\.py$", "", path.replace("/", ".")), *names]
    parts[-1] += bracket + parameters
    return ".".join(parts[:-1]), parts[-1]


# what is printed


def report_lines(judgements: Sequence[Judgement]) -> list[str]:
    """Return a line for each judgement, the worst first, and a line of how many there are of each."""
    ordered = sorted(judgements, key=lambda each: ORDER.index(each.outcome))
    width = max(len(outcome.value) for outcome in ORDER)
    lines = [f"{each.outcome.value.upper():{width}}  {_name(each)}: {printable(each.sentence)}" for each in ordered]
    compared = sum(each.change is not None for each in judgements)
    numbers = [(sum(each.outcome is outcome for each in judgements), outcome.value) for outcome in ORDER]
    words = ", ".join(f"{number} {value}" for number, value in numbers if number)
    if not compared:
        return [*lines, "gpu_bench: nothing was compared: no measurement is in both versions"]
    return [*lines, f"gpu_bench: {count(compared, 'measurement')} compared: {words}"]


def exit_status(judgements: Sequence[Judgement]) -> int:
    """Return 1 where something failed, 2 where nothing was compared, else 0."""
    if any(each.outcome is Outcome.FAIL for each in judgements):
        return 1
    return 0 if any(each.change is not None for each in judgements) else 2


def tail(log: Path) -> str:
    """Return the last lines that a command printed."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"    {printable(line)}" for line in lines) or "    (nothing)"


def say(sentence: str) -> None:
    """Say what goes on, on stderr: stdout is for the verdicts."""
    print(f"gpu_bench: {sentence}", file=sys.stderr, flush=True)


def _name(judgement: Judgement) -> str:
    label = f" [{judgement.label}]" if judgement.label else ""
    return printable(f"{judgement.nodeid}{label}")


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "no reason given")
