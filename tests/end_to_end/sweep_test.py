"""What people who run `sweep` rely on: sweep_test.py SWEEP TRAIN SOURCE_DIR. Standard library only."""

import fcntl
import html.parser
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest

from programs import ENVIRONMENT, ProgramTest, without_proc
from toy import without_times, write_recipe

SWEEP, TRAIN, SOURCE = sys.argv[1:4]

GRID = """
title: A toy study
base: tiny.yaml
seeds: [1]
base_row: base
set: {{training: {{average_checkpoints: 1}}}}
rows:
  - {{name: base, seeds: [1, 2], paper: {{perplexity: 4.92, bleu: 25.8, parameters: 65}}}}
  - {{name: h1, group: A, model: {{heads: 1}}, paper: {{perplexity: 5.29}}}}
{more}
"""
BAD = "  - {name: bad, group: D, model: {vocabulary_size: 30000}}"  # the text is too small for it: shown by training


class Page(html.parser.HTMLParser):
    """Tags that are left open, and what the page would load."""

    VOID = {"meta", "link", "br", "hr", "img", "input", "line", "path", "circle", "rect", "polyline", "col"}

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href") and not value.startswith("#")]

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


class SweepTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 1000, 20,
                     "steps: 40, batch_tokens: 300, warmup_steps: 50, log_every: 10, validate_every: 20, "
                     "checkpoint_every: 10")
        (cls.root / "grid.yaml").write_text(GRID.format(more=""))
        (cls.root / "failing.yaml").write_text(GRID.format(more=BAD))

    def command(self, *arguments, grid="grid.yaml"):
        return [SWEEP, str(self.root / grid), "--train", TRAIN, *map(str, arguments)]

    def sweep(self, *arguments, status=0, grid="grid.yaml", environment=ENVIRONMENT):
        done = subprocess.run(self.command(*arguments, grid=grid), capture_output=True, text=True, env=environment,
                              timeout=500, cwd=self.root)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def refused(self, *arguments, parts, **keywords):
        text = self.sweep(*arguments, status=2, **keywords)
        self.assertEqual(text.count("\n"), 1, text)
        for part in parts:
            self.assertIn(part, text)

    def results(self, output):
        """{row: [run, ..]}"""
        results = json.loads((output / "results.json").read_text())
        self.assertEqual(results["format"], 1)
        return {row["name"]: row["runs"] for row in results["rows"]}

    def times(self, folder):
        return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}

    def start_and_wait_for(self, output, pattern, *arguments):
        # In a group of its own, as a shell starts it: Ctrl-Z stops what somebody can continue.
        process = subprocess.Popen(self.command("--output", output, *arguments), env=ENVIRONMENT, cwd=self.root,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=os.setpgrp)
        while not list(output.glob(pattern)):
            self.assertIsNone(process.poll(), "ended before " + pattern)
            time.sleep(0.01)
        return process

    def test_from_a_grid_to_a_report(self):
        output = self.root / "whole"
        text = self.sweep("--output", output, "--jobs", 2, "--progress", "0.2", status=1, grid="failing.yaml")
        for part in ("[0/4]", "base/seed-1", "step ", "left", "bad/seed-1 FAILED", "too small for 30000 pieces",
                     "3 of 4 runs are finished, 1 failed", "report.html"):
            self.assertIn(part, text)
        results = self.results(output)
        self.assertEqual([run["seed"] for run in results["base"]], [1, 2])
        for row, seed in (("base", 1), ("base", 2), ("h1", 1)):
            run = next(run for run in results[row] if run["seed"] == seed)
            folder = output / row / f"seed-{seed}"
            summary = json.loads((folder / "summary.json").read_text())
            self.assertEqual(run["state"], "finished")
            for name in ("perplexity", "bleu", "bleu_signature", "parameters", "seconds", "flops", "steps", "ended_by",
                         "averaged_checkpoints"):
                self.assertEqual(run[name], summary[name], name)
            self.assertEqual((run["steps"], run["ended_by"], run["averaged_checkpoints"]), (40, "steps", 1))
            self.assertEqual([point["step"] for point in run["curve"]], [20, 40])
            config = (folder / "config.yaml").read_text()
            self.assertIn(f"seed: {seed}\n", config)
            self.assertIn("average_checkpoints: 1\n", config)
            self.assertIn("heads: 1\n" if row == "h1" else "heads: 2\n", config)
        self.assertNotEqual(results["base"][0]["perplexity"], results["base"][1]["perplexity"])
        self.assertEqual(results["bad"][0]["state"], "failed")
        self.assertIn("too small for 30000 pieces", results["bad"][0]["reason"])
        markdown, page = (output / "report.md").read_text(), (output / "report.html").read_text()
        mean = sum(run["perplexity"] for run in results["base"]) / 2
        for report in (markdown, page):
            for part in ("A toy study", "5.29", "25.8", "too small for 30000 pieces", f"{mean:.2f}"):
                self.assertIn(part, report)
        parsed = Page(page)
        self.assertEqual(parsed.open, [])
        self.assertEqual([link for link in parsed.loads if not link.startswith("data:")], [])

        # Again, nothing but the failed row is tried.
        before = self.times(output / "base") | self.times(output / "h1")
        text = self.sweep("--output", output, status=1, grid="failing.yaml")
        self.assertIn("3 of 4 runs are finished already", text)
        self.assertEqual(before, self.times(output / "base") | self.times(output / "h1"))
        self.sweep("--output", output, "--only", "base,h1", grid="failing.yaml")

        # Other settings than a finished run has are refused before anything starts, and it stays in the report.
        reports = [(output / name).read_bytes() for name in ("report.md", "report.html", "results.json")]
        before = self.times(output)
        for arguments, run in ((("--only", "h1"), "h1/seed-1"), ((), "base/seed-1")):
            self.refused("--output", output, *arguments, "--set", "model.d_ff=48", grid="failing.yaml",
                         parts=[f"run {run}: ", "model.d_ff: 64 there, 48 now"])
        for arguments in (("--dry-run",), ("--launcher", "slurm")):
            text = self.sweep("--output", output, *arguments, "--set", "model.d_ff=48", status=2, grid="failing.yaml")
            self.assertIn("run base/seed-1: ", text)
        self.assertEqual(before, self.times(output))
        self.assertEqual(reports,
                         [(output / name).read_bytes() for name in ("report.md", "report.html", "results.json")])
        self.assertIn("d_ff: 64", (output / "h1" / "seed-1" / "config.yaml").read_text())
        # A report of other settings knows nothing of it.
        self.sweep("--output", output, "--report", "--set", "model.d_ff=48", grid="failing.yaml")
        self.assertNotEqual(self.results(output)["h1"][0]["state"], "finished")
        self.sweep("--output", output, "--report", "--set", "training.log_every=7", grid="failing.yaml")
        self.assertEqual(self.results(output)["h1"][0]["state"], "finished")  # no figure depends on it
        self.sweep("--output", output, "--report", grid="failing.yaml")
        self.assertEqual(self.results(output)["h1"][0]["state"], "finished")

    def test_vocabulary_and_tokenised_text_are_made_once(self):
        output = self.root / "shared"
        self.sweep("--output", output)
        logs = [(output / name).read_text() for name in ("base/seed-1.log", "h1/seed-1.log", "base/seed-2.log")]
        self.assertEqual(["learning a vocabulary" in log for log in logs], [True, False, False])
        self.assertEqual(["tokenised before" in log for log in logs], [False, True, True])
        alone = self.root / "alone"  # what train does by itself, with the commands that a dry run lists
        subprocess.run([TRAIN, self.root / "tiny.yaml", "--output", alone, "--set", "model.heads=1", "--set",
                        "training.average_checkpoints=1"], check=True, capture_output=True, env=ENVIRONMENT)
        self.assertEqual((alone / "model.safetensors").read_bytes(),
                         (output / "h1" / "seed-1" / "model.safetensors").read_bytes())
        metrics = [[without_times(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
                   for folder in (alone, output / "h1" / "seed-1")]
        self.assertEqual(*metrics)

    def test_rows_are_compared_on_the_same_text(self):
        output, text = self.root / "same-text", self.root / "valid.de"
        self.sweep("--output", output, "--only", "base", "--seeds", "1")
        whole, before = text.read_text(), self.times(output / "base")
        first, second, *rest = whole.splitlines(keepends=True)
        self.assertNotEqual(first, second)
        text.write_text("".join([second, first, *rest]))
        try:
            for arguments in ((), ("--only", "h1")):
                self.refused("--output", output, *arguments, parts=["valid.de: is another file", "--output"])
            self.assertIn("valid.de: is another file", self.sweep("--output", output, "--dry-run", status=2))
            self.sweep("--output", output, "--only", "base", "--seeds", "1")  # finished, and reads nothing
            self.sweep("--output", output, "--report")
            self.sweep("--output", self.root / "other-text", "--only", "base", "--seeds", "1")
        finally:
            text.write_text(whole)
        self.assertEqual(before, self.times(output / "base"))
        self.sweep("--output", output, "--only", "h1")

    def test_killed_and_started_again(self):
        undisturbed, killed = self.root / "undisturbed", self.root / "killed"
        self.sweep("--output", undisturbed)
        process = self.start_and_wait_for(killed, "h1/seed-1/checkpoints/step-*")
        log = (killed / "h1" / "seed-1.log").read_text()
        process.kill()
        process.communicate()
        lock = subprocess.run(["flock", "--timeout", "5", killed / "h1" / "seed-1" / ".lock", "true"])
        self.assertEqual(lock.returncode, 0, "the run outlived its sweep: " + log)
        before = self.times(killed / "base" / "seed-1")
        text = self.sweep("--output", killed, "--report")
        self.assertEqual(self.results(killed)["h1"][0]["state"], "waiting")
        text = self.sweep("--output", killed)
        self.assertIn("1 of 3 runs are finished already", text)
        self.assertEqual(before, self.times(killed / "base" / "seed-1"))
        self.assertIn("going on from", (killed / "h1" / "seed-1.log").read_text())
        for run in ("base/seed-1", "h1/seed-1", "base/seed-2"):
            self.assertEqual((killed / run / "model.safetensors").read_bytes(),
                             (undisturbed / run / "model.safetensors").read_bytes(), run)

    def test_a_signal_ends_the_sweep_with_checkpoints(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            output = self.root / f"signalled-{status}"
            process = self.start_and_wait_for(output, "*/seed-1/checkpoints/step-*", "--set", "training.steps=100000",
                                              "--jobs", "2")
            self.refused("--output", output, parts=["another sweep", "--output"])
            process.send_signal(number)
            text = process.communicate(timeout=60)[0]
            self.assertEqual(process.returncode, status)
            self.assertIn("the same command goes on", text)
            self.assertIn("stopped after step", (output / "base" / "seed-1.log").read_text())
            self.assertEqual(self.results(output)["base"][0]["state"], "waiting")
            # A run that has begun is of other settings: found before anything starts, with a way out that sweep has.
            before = self.times(output)
            for arguments in ((), ("--dry-run",)):
                text = self.sweep("--output", output, "--set", "training.steps=100000", "--set", "model.d_ff=48",
                                  *arguments, status=2)
                self.assertIn("run base/seed-1: ", text)
                self.assertIn("move its folder away, or choose another --output", text)
                self.assertNotIn("--restart", text)
            self.assertEqual(before, self.times(output))
            # What is damaged fails by itself.
            record = output / "base" / "seed-1" / "run.json"
            whole = record.read_text()
            record.write_text("{")
            self.sweep("--output", output, "--set", "training.steps=100000", "--dry-run")
            record.write_text(whole)
            checkpoints = (output / "base" / "seed-1" / "checkpoints").glob("step-*")
            steps = max(int(checkpoint.name.split("-")[1]) for checkpoint in checkpoints) + 10
            self.sweep("--output", output, "--only", "base", "--seeds", "1", "--set", f"training.steps={steps}")
            self.assertIn("going on from", (output / "base" / "seed-1.log").read_text())

    def test_a_sweep_whose_log_nobody_reads_any_more_goes_on_and_stops_in_order(self):
        output = self.root / "unread"
        process = self.start_and_wait_for(output, "base/seed-1/checkpoints/step-*", "--set", "training.steps=100000",
                                          "--progress", "0.1")
        process.stdout.close()  # as tee does at Ctrl-C, and head
        time.sleep(1)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130)
        self.assertIn("stopped after step", (output / "base" / "seed-1.log").read_text())

    def test_ctrl_z_stops_what_trains_as_well(self):
        def states():
            trains = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return {pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
                    for one in (process.pid, *trains)}
        def wait_until_stopped(stopped):
            end = time.monotonic() + 30
            while states() != {stopped}:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
        process = self.start_and_wait_for(self.root / "halted", "*/seed-1/checkpoints/step-*", "--set",
                                          "training.steps=100000", "--jobs", "2")
        process.send_signal(signal.SIGTSTP)
        wait_until_stopped(True)
        process.send_signal(signal.SIGCONT)
        wait_until_stopped(False)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143)

    def test_without_proc(self):
        if subprocess.run(without_proc("true"), capture_output=True).returncode != 0:
            self.skipTest("nobody may hide /proc here")
        output = self.root / "without-proc"
        def run(*arguments, status=0):
            done = subprocess.run(without_proc(SWEEP, *map(str, arguments)), capture_output=True, text=True,
                                  cwd=self.root, env=ENVIRONMENT)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stdout + done.stderr
        self.assertIn("Usage", run("--help"))
        grid = ("grid.yaml", "--output", output)
        self.assertIn("sweep: error: --train: the file of this program is not known (/proc/self/exe: ",
                      run(*grid, status=1))
        self.assertIn("--launcher slurm: the file of this program", run(*grid, "--train", TRAIN, "--launcher", "slurm", status=1))
        self.assertFalse(output.exists())
        self.assertIn("2 of 2 runs are finished", run(*grid, "--train", TRAIN, "--only", "base"))
        run(*grid, "--report")

    def test_a_job_array(self):
        """sbatch is a stand-in, which runs the tasks on the spot."""
        bin, output = self.root / "bin", self.root / "array"
        bin.mkdir()
        sbatch = bin / "sbatch"
        sbatch.write_text("""#!/bin/bash
[[ $1 == --parsable ]] || exit 1
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$2")
for ((task = 0; task <= last; ++task)); do
  SLURM_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task bash "$2" >>"$2.tasks" 2>&1 || echo "task $task: $?" >>"$2.tasks"
done
echo 7
""")
        sbatch.chmod(0o755)
        environment = dict(ENVIRONMENT, PATH=f"{bin}:{ENVIRONMENT['PATH']}")
        arguments = ("--output", output, "--launcher", "slurm", "--sbatch-option=--partition=long", "--set",
                     "training.steps=20")
        text = self.sweep(*arguments, environment=environment, grid="failing.yaml")
        self.assertIn("4 runs are handed in as job 7", text)
        script = (output / "sweep.sbatch").read_text()
        self.assertIn("#SBATCH --partition=long\n", script)
        tasks = (output / "sweep.sbatch.tasks").read_text()
        results = self.results(output)
        self.assertEqual({run["state"] for row in ("base", "h1") for run in results[row]}, {"finished"}, tasks)
        self.assertEqual(results["bad"][0]["state"], "failed")
        self.assertIn("task 2: 1\n", tasks)
        self.assertTrue((output / "report.html").is_file())
        # Nor is what another process trains: it holds the run's log.
        with open(output / "bad" / "seed-1.log") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            tasks = (output / "sweep.sbatch.tasks").read_text()
            text = self.sweep(*arguments, environment=environment, grid="failing.yaml")
            self.assertIn("1 run is being trained by another process, and not handed in", text)
            self.assertEqual(tasks, (output / "sweep.sbatch.tasks").read_text())
            self.assertEqual(self.results(output)["bad"][0]["state"], "running")
            text = self.sweep(*arguments[:2], *arguments[-2:], "--run", "bad/seed-1", status=1, grid="failing.yaml")
            self.assertIn("0 of 1 runs are finished, 0 failed, 1 left to another process", text)
            self.assertEqual(self.results(output)["bad"][0]["state"], "running")
        # A task reads no run but its own, and has nothing to do where another one will write the report.
        metrics = output / "h1" / "seed-1" / "metrics.jsonl"
        before = metrics.read_text()
        metrics.write_text(before + before.splitlines(keepends=True)[1] * 500000)
        def processor_time(*more):
            start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.sweep(*arguments[:2], *arguments[-2:], *more, grid="failing.yaml")
            return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
        whole = processor_time("--report")
        (output / "results.json").unlink()
        with open(output / ".report.lock", "w") as report, open(output / ".next-report.lock", "w") as next_report:
            fcntl.flock(report, fcntl.LOCK_EX)
            fcntl.flock(next_report, fcntl.LOCK_EX)
            self.assertLess(processor_time("--run", "base/seed-1"), whole / 2)
        self.assertFalse((output / "results.json").exists())
        metrics.write_text(before)
        # Again: what is finished is not handed in once more.
        self.sweep(*arguments, environment=environment, grid="failing.yaml")
        self.assertIn("#SBATCH --array=0-0\n", (output / "sweep.sbatch").read_text())
        self.refused(*arguments, grid="failing.yaml", parts=["sbatch", "sweep.sbatch"],
                     environment=dict(ENVIRONMENT, PATH=str(self.root)))

    def test_what_a_user_puts_between_its_files_stays(self):
        output = self.root / "between"
        command = [SWEEP, self.root / "grid.yaml", "--output", output, "--train", "/bin/false"]
        def run(*arguments, status):
            done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=ENVIRONMENT,
                                  cwd=self.root)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stdout + done.stderr
        run("--only", "base", status=1)
        run("--report", status=0)
        mine = (output / "h1" / "seed-1" / "vocabulary.model", output / "sweep.sbatch", output / "base" / "seed-2")
        (output / "base" / "seed-2").rmdir()
        mine[0].parent.mkdir(parents=True)
        for file in mine:
            file.write_text("mine")
        run("--only", "h1", status=1)
        text = run("--jobs", "2", status=1)
        for part in ("3 failed", "base/seed-1 failed: train ended with status 1", "seed-2: cannot be made"):
            self.assertIn(part, text)
        self.assertIn("sweep.sbatch: is in the way", run("--launcher", "slurm", status=2))
        self.assertEqual([file.read_text() for file in mine], ["mine"] * 3)

    def test_mistakes_are_named_before_anything_runs(self):
        output = self.root / "refused"
        def grid(more):
            (self.root / "wrong.yaml").write_text(GRID.format(more=more))
            return {"grid": "wrong.yaml"}
        out = ("--output", output)
        self.refused(*out, **grid("  - {name: x, model: {head: 1}}"), parts=["wrong.yaml:10", "model.head", "model.heads"])
        self.refused(*out, **grid("  - {name: x, model: {heads: 5}}"), parts=["wrong.yaml:10", "'x'", "does not divide"])
        self.refused(*out, **grid("  - {name: x, trainin: {steps: 5}}"), parts=["wrong.yaml:10", "'training'"])
        self.refused(*out, **grid("  - {name: x, training: {average_checkpoints: 50}}"),
                     parts=["wrong.yaml:10", "keep_checkpoints"])
        self.refused(*out, **grid("  - {name: h1}"), parts=["two rows are called 'h1'"])
        self.refused(*out, "--only", "h2", parts=["'h2'", "did you mean 'h1'?"])
        self.refused(*out, "--set", "model.haeds=1", parts=["--set model.haeds=1", "model.heads"])
        self.refused(*out, "--devices", "tpu", parts=["--devices", "tpu"])
        self.refused(*out, "--devices", "cpu,cuda:0", parts=["--devices"])
        # Text that is not there, of any row, and a model to begin with.
        for difference, part in (("data: {train_source: [missing.en]}", "missing.en"),
                                 ("data: {validation_target: [train.de]}", "train.de has"),
                                 ("training: {init_from: missing}", "missing"),
                                 ("data: {vocabulary: [train.en]}", "train.en")):
            for arguments in ((), ("--dry-run",)):
                done = subprocess.run(self.command(*out, *arguments, **grid(f"  - {{name: x, {difference}}}")),
                                      capture_output=True, text=True, env=ENVIRONMENT, cwd=self.root)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn("row x: ", done.stderr)
                self.assertIn(part, done.stderr)
                self.assertFalse(output.exists())
        # No vocabulary that is learned knows a language; and nothing that is shown of it is a terminal's command.
        text = self.sweep(*out, "--dry-run", status=2, **grid('  - {name: x, data: {source_language: "\\e[2Jx"}}'))
        for part in ("row x: data.source_language", "source_language \\x1b[2Jx", "$'data.source_language=\\x1b[2Jx'"):
            self.assertIn(part, text)
        self.assertNotIn("\x1b", text)
        self.refused(*out, **grid("  - {name: x, training: {device: cuda}}"), parts=["training.device", "all on one kind"])
        # A GPU that is not there, before any run starts: none is visible, whatever the machine has.
        blind = dict(ENVIRONMENT, CUDA_VISIBLE_DEVICES="")
        self.refused(*out, "--devices", "cuda:0", parts=["device 'cuda:0'", "'cpu'"], environment=blind)
        self.refused(*out, "--set", "training.device=cuda", parts=["device 'cuda'", "'cpu'"], environment=blind)
        self.refused(*out, "--set", "heads=1", parts=["--set heads=1", "'model.heads'"])
        self.assertFalse(output.exists())
        self.refused(*out, "--sbatch-option=--time=1", parts=["--launcher slurm"])
        self.refused(*out, "--run", "h1/seed-9", parts=["h1/seed-9"])
        self.refused("--output", self.root / "grid.yaml" / "sweep", parts=["grid.yaml/sweep", "cannot create the folder"])
        self.refused(*out, "--report", parts=["refused", "no such sweep"])
        self.refused(*out, "--launcher", "slurm", "--devices", "cpu", parts=["--devices", "Slurm"])
        self.refused(*out, "--run", "", parts=["--run", "is empty"])
        self.refused(*out, "--run", "h1/seed-1", "--only", "h1", parts=["--only", "--run"])
        self.refused("--output", self.root / "back\\slash", "--launcher", "slurm", parts=["--output", "backslashes"])
        self.assertFalse((self.root / "back\\slash").exists())
        self.assertFalse(output.exists())
        done = subprocess.run([SWEEP, self.root / "none.yaml"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
        for program in ("/none/train", str(self.root)):  # a folder is none, either
            done = subprocess.run([SWEEP, self.root / "grid.yaml", "--output", output, "--train", program],
                                  capture_output=True, text=True, cwd=self.root)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--train: there is no program " + program, done.stderr)
            self.assertFalse(output.exists())

    def test_a_dry_run_lists_what_would_run(self):
        text = self.sweep("--output", self.root / "dry", "--dry-run", "--seeds", "4,5")
        self.assertFalse((self.root / "dry").exists())
        # An option that takes a list ends with its word.
        for several in (("--only", "base,h1"), ("--seeds", "4,5"), ("--devices", "cpu")):
            done = subprocess.run([SWEEP, *several, self.root / "grid.yaml", "--dry-run"], capture_output=True, text=True,
                                  env=ENVIRONMENT, cwd=self.root)
            self.assertEqual(done.returncode, 0, done.stderr)
        runs = [line for line in text.splitlines() if "parameters" in line]
        self.assertEqual([line.split(":")[0] for line in runs], ["base/seed-4", "h1/seed-4", "base/seed-5", "h1/seed-5"])
        # Commands that can be pasted.
        command = text.splitlines()[3].strip()
        self.assertIn("model.heads=1", command)
        done = subprocess.run(["bash", "-c", command + " --dry-run"], capture_output=True, text=True, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[0].split(": ")[1], runs[1].split(": ")[1].split(" ")[0])

    def test_the_papers_grids_have_its_parameter_counts(self):
        # Table 3 prints millions, for a vocabulary of 41,100 (the big model's figure is that of 36,000).
        for grid, printed in (("table3", {"base": 65, "B-dk16": 58, "B-dk32": 60, "C-n2": 36, "C-n4": 50, "C-n8": 80,
                                          "C-d256": 28, "C-d1024": 168, "C-dff1024": 53, "C-dff4096": 90}),
                              ("attention-over-parameters", {"AOP1": 65, "AOP2": 65})):
            done = subprocess.run([SWEEP, f"{SOURCE}/configs/sweeps/{grid}.yaml", "--dry-run", "--set",
                                   "model.vocabulary_size=41100", "--only", ",".join(printed)], capture_output=True,
                                  text=True, cwd=self.root, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 2)  # WMT's text is not there
            self.assertIn("data/wmt14", done.stderr)
            counted = {line.split("/")[0]: round(int(line.split(": ")[1].split(" ")[0]) / 1e6)
                       for line in done.stdout.splitlines() if " parameters" in line}
            self.assertEqual(counted, printed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
