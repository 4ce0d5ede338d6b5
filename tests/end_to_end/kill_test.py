"""Kills a training run again and again, at chosen and at random moments, and checks that it ends as if nothing had been.

    .venv/bin/python tests/end_to_end/kill_test.py build/release/bin/train --kills 50 [--seed N]

A round kills one run with SIGKILL while it learns its vocabulary, tokenises, trains, writes a checkpoint, validates,
averages and finishes, starting it again each time, then lets it end and compares it with a run that was left alone:
weights, every checkpoint with its optimizer's state, every figure but times, every translation. Standard library only.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

from programs import ENVIRONMENT
from toy import without_times, write_recipe


def write_configuration(folder):
    write_recipe(folder, 3000, 30,
                 "steps: 150, batch_tokens: 300, micro_batch_tokens: 150, warmup_steps: 50, log_every: 5, "
                 "validate_every: 15, checkpoint_every: 10, keep_checkpoints: 3, keep_best: 2, average_checkpoints: 2, "
                 "threads: 1, moving_average: 0.9")


def result(output):
    """Everything of a finished run that must not depend on whether it was killed."""
    found = {"metrics.jsonl": [without_times(json.loads(line))
                               for line in (output / "metrics.jsonl").read_text().splitlines()]}
    for file in sorted(output.rglob("*")):
        name = str(file.relative_to(output))
        if file.name == "progress.json":
            found[name] = without_times(json.loads(file.read_text()))
        elif file.suffix in (".safetensors", ".model", ".txt"):
            found[name] = file.read_bytes()
    return found


class Run:
    """A started `train`, whose log can be watched."""

    def __init__(self, train, folder, output):
        self.output = output
        self.process = subprocess.Popen([train, folder / "tiny.yaml", "--output", output], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=ENVIRONMENT)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.log = ""

    def ended(self):
        return self.process.poll() is not None

    def read(self, seconds):
        if select.select([self.process.stdout], [], [], seconds)[0]:
            self.log += (self.process.stdout.read() or b"").decode()

    def wait_for(self, condition):
        while not self.ended() and not condition():
            self.read(0.0005)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.read(0.1)
        return self.process.returncode == -signal.SIGKILL

    def finish(self):
        while not self.ended():
            self.read(0.05)
        self.read(0.1)
        return self.process.returncode


def moments(generator, duration):
    """How to wait, in the order in which a run comes by, until it is to be killed: (name, wait(run))."""

    def after_line(pattern, seconds):
        def wait(run):
            run.wait_for(lambda: re.search(pattern, run.log))
            time.sleep(generator.uniform(0, seconds))
        return wait

    def writing_a_checkpoint(run):
        folder = run.output / "checkpoints"
        while not run.ended():  # without a pause: it takes some milliseconds
            if folder.is_dir() and any(name.startswith(".partial-") for name in os.listdir(folder)):
                break
        time.sleep(generator.uniform(0, 0.003))

    def at_any_time(run):
        time.sleep(generator.uniform(0, duration / 3))

    validating = after_line(rf"step +({'|'.join(str(step) for step in range(15, 150, 15))}) \|", 0.05)
    yield "vocabulary", after_line("learning a vocabulary", 0.05)
    yield "tokenising", after_line("pieces from", 0.2)
    yield "training", at_any_time
    yield "checkpoint", writing_a_checkpoint
    yield "validation", validating
    yield "checkpoint", writing_a_checkpoint
    yield "training", at_any_time
    yield "validation", validating
    yield "average", after_line("averaging", 0.02)
    yield "end", after_line("final model", 0.01)


def soak(train, kills, seed):
    generator = random.Random(seed)
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_configuration(folder)
        started = time.time()
        undisturbed = Run(train, folder, folder / "undisturbed")
        assert undisturbed.finish() == 0, undisturbed.log
        duration = time.time() - started
        expected = result(folder / "undisturbed")
        rounds = 0
        while sum(counts.values()) < kills:
            rounds += 1
            output = folder / f"round-{rounds}"
            for moment, wait in moments(generator, duration):
                if sum(counts.values()) == kills:
                    break
                run = Run(train, folder, output)
                wait(run)
                if run.kill():
                    counts[moment] += 1
                else:  # it had ended before the moment came
                    assert run.process.returncode == 0, run.log
                assert "cannot be used" not in run.log and "left out of the average" not in run.log, run.log
            last = Run(train, folder, output)
            assert last.finish() == 0, last.log
            found = result(output)
            assert found.keys() == expected.keys(), (sorted(found), sorted(expected))
            for file, content in expected.items():
                assert found[file] == content, f"round {rounds}: {file} differs"
    print(f"{sum(counts.values())} kills in {rounds} rounds: "
          + ", ".join(f"{count} {moment}" for moment, count in counts.items())
          + f"; {len(expected)} files equal in every round")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(soak(arguments.train, arguments.kills, arguments.seed))
