"""What benchmarks against a peer have in common: two processes that take turns at the same work, medians over pairs, and a
results file that keeps every pair."""

import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

from common import above, output_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build" / "release" / "bin"
WORK = ROOT / "build" / "benchmarks"  # models and inputs, made once

# How CTranslate2 may be run; which is fastest depends on the processor, and is tried.
PEER_ENVIRONMENTS = {
    "as it chooses": {},
    "AVX-512": {"CT2_FORCE_CPU_ISA": "AVX512"},
    "MKL, packed": {"CT2_USE_MKL": "1", "CT2_USE_EXPERIMENTAL_PACKED_GEMM": "1"},
}


def machine():
    """The processor and what it can, in words."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*:\s*(.*)$", info, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.*)$", info, re.MULTILINE)
    known = ["avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8"]
    can = [flag for flag in known if flags and flag in flags[1].split()]
    return f"{name[1] if name else platform.machine()}, {len(os.sched_getaffinity(0))} cores, {' '.join(can)}"


def busy():
    """A warning where others use the machine, else nothing. (The load average also remembers what is over, and counts
    processes that stand still.)"""
    def worked():  # all but idle and iowait
        times = [int(ticks) for ticks in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")

    before = worked()
    time.sleep(1)
    cores = worked() - before
    return f"{cores:.1f} cores were busy at the start: these figures mean little" if cores > 0.2 else ""


def revision():
    """Of the sources, where git tells."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def base_model(vocabulary):
    """The directory of a model of the paper's base size with random weights, made unless it is there."""
    model, maker = WORK / f"base-V-{vocabulary}" / "model", pathlib.Path(__file__).with_name("random_model.py")
    weights = model / "model.safetensors"
    if not weights.exists() or weights.stat().st_mtime < maker.stat().st_mtime:
        print(f"making {model.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, maker, model, "--vocabulary", str(vocabulary)], check=True)
    return model


def export_to_ctranslate2(model, output):
    output.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([BINARIES / "export", "--to", "ctranslate2", "--model", model, "--output", output, "--force"],
                   check=True, stdout=subprocess.DEVNULL)


class Side:
    """A process that works when asked and waits otherwise: a command a line in, an answer a line out."""

    def __init__(self, command, threads, environment=None):
        """`threads`: so many cores, each with one; None: all, where the work is done elsewhere."""
        # The same for both sides; the first has most interrupts.
        cores = sorted(os.sched_getaffinity(0))[-threads if threads else None:]
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.ready = self.answer().split()[1:]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[:2]} ended with {self.process.wait()}")
        return line.strip()

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def run(side, batch, beam, count, steps, file="-", first=0):
    """Decodes (decode_worker.cpp): (seconds, tokens)."""
    seconds, tokens = side.ask("run", batch, beam, first, count, steps, file).split()
    return float(seconds), int(tokens)


def in_turn(measures, rounds):
    """A tuple of what each of `measures` returned, a round; who begins takes turns, too."""
    results = []
    for i in range(rounds):
        found = {}
        for j in range(len(measures)):
            at = (i + j) % len(measures)
            found[at] = measures[at]()
        results.append(tuple(found[at] for at in range(len(measures))))
    return results


def alternate(ours, theirs, pairs):
    """[(ours(), theirs())]: turn about, and so is who begins."""
    return in_turn([ours, theirs], pairs)


def summary(rates):
    """Medians of rates [(ours, theirs)], and of the pairs' ratios."""
    return (statistics.median(a for a, _ in rates), statistics.median(b for _, b in rates),
            statistics.median(a / b for a, b in rates))


class Results:
    """Lines that are printed as they come, and kept in a file where one is given. `with` them: until its block has ended
    well they are in FILE.partial, and figures of an earlier run stay."""

    def __init__(self, file):
        self.file = file
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.partial = file.with_name(file.name + ".partial")
            self.kept = open(self.partial, "w", encoding="utf-8")

    def add(self, line="", print_it=True):
        if print_it:
            print(line, flush=True)
        if self.file:
            print(line, file=self.kept, flush=True)

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if self.file:
            self.kept.close()
            if not failed:
                self.partial.replace(self.file)


def parsed(parser, default_output):
    """The command line, with what every benchmark takes added."""
    parser.add_argument("--pairs", type=above(0), default=5, help="measurements of each side (default 5)")
    parser.add_argument("--output", type=output_file,
                        help=f"results file (default {default_output}, where nothing is left out)")
    parser.add_argument("--no-build", action="store_true", help="the programs are built already")
    return parser.parse_args()


def prepare(args, targets, default_output):
    """Builds `targets`, unless they are already, and settles where results go."""
    if not args.no_build:
        subprocess.run([ROOT / "scripts" / "build", *targets], check=True)
    args.output = args.output or (None if args.only else ROOT / default_output)


def begun(args, title):
    """Results that begin with what is measured, where, and of which sources."""
    results = Results(args.output)
    results.add(title)
    results.add(f"{machine()}; revision {revision()}; {args.pairs} pairs a setting")
    if warning := busy():
        results.add(warning)
    return results
