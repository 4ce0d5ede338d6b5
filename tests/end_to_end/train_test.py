"""What people who run `train` rely on: train_test.py TRAIN TRANSLATE EVALUATE AVERAGE SOURCE_DIR."""

import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np
import safetensors.numpy

from programs import ENVIRONMENT, ProgramTest
from toy import without_times, write_corpus, write_recipe

TRAIN, TRANSLATE, EVALUATE, AVERAGE, SOURCE = sys.argv[1:6]


class TrainTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 2000, 40,
                     "steps: 60, batch_tokens: 300, warmup_steps: 50, log_every: 10, validate_every: 30, "
                     "checkpoint_every: 20, threads: 1, average_checkpoints: 2")

    def run_train(self, *arguments, status=0, config="tiny.yaml", cwd=None, before=None, environment=ENVIRONMENT):
        done = subprocess.run([TRAIN, str(self.root / config), *map(str, arguments)], capture_output=True, text=True,
                              env=environment, timeout=500, cwd=cwd or self.root, preexec_fn=before)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def refused(self, *arguments, parts, **keywords):
        _, errors = self.run_train(*arguments, status=2, **keywords)
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)

    def metrics(self, output):
        return [without_times(json.loads(line)) for line in (output / "metrics.jsonl").read_text().splitlines()]

    def test_from_text_to_translations(self):
        output = self.root / "whole"
        text, _ = self.run_train("--output", output, "--set", "training.steps=1400", "--set", "training.rate_factor=0.5",
                                 "--set", "training.warmup_steps=200", "--set", "training.batch_tokens=500",
                                 "--set", "model.d_model=64", "--set", "model.dropout=0",
                                 "--set", "training.checkpoint_every=200", "--set", "training.validate_every=700",
                                 "--set", "training.log_every=20")
        for part in ("step", "perplexity", "rate", "tokens/s", "left", "BLEU", "averaging"):
            self.assertIn(part, text)
        for name in ("model.safetensors", "config.yaml", "vocabulary.model", "metrics.jsonl"):
            self.assertTrue((output / name).is_file(), name)
        self.assertEqual(self.metrics(output)[0], {"kind": "header", "format": 1})
        kinds = [line["kind"] for line in self.metrics(output)]
        self.assertEqual(kinds.count("train"), 70)
        self.assertEqual(kinds.count("validation"), 1)
        self.assertEqual(kinds[-1], "final")
        hypotheses = subprocess.run([TRANSLATE, "--model", output], input=(self.root / "valid.en").read_text(),
                                    capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
        scored = subprocess.run([EVALUATE, "bleu", "--reference", self.root / "valid.de", "--format", "json"],
                                input=hypotheses, capture_output=True, text=True, check=True).stdout
        score = json.loads(scored)["score"]
        self.assertGreater(score, 90)
        self.assertAlmostEqual(score, self.metrics(output)[-1]["bleu"], places=6)
        self.assertEqual((output / "validation" / "final.txt").read_text(), hypotheses)
        measured = subprocess.run([EVALUATE, "perplexity", "--model", output, "--source", self.root / "valid.en",
                                   "--target", self.root / "valid.de", "--format", "json"],
                                  capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
        self.assertAlmostEqual(json.loads(measured)["perplexity"], self.metrics(output)[-1]["perplexity"], places=4)

    def compare_perplexity(self, model, source, target):
        """With the same from PyTorch's own modules; -> the reference's findings."""
        files = [self.root / "judged.source", self.root / "judged.target"]
        for file, lines in zip(files, (source, target)):
            file.write_text("".join(line + "\n" for line in lines))
        measured = json.loads(subprocess.run(
            [EVALUATE, "perplexity", "--model", model, "--source", files[0], "--target", files[1], "--format", "json"],
            capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout)
        reference = json.loads(subprocess.run(
            [sys.executable, f"{SOURCE}/tests/reference/perplexity.py", model, *files],
            capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout)
        self.assertEqual(measured["tokens"], reference["tokens"])
        for name in ("perplexity", "loss"):
            self.assertAlmostEqual(measured[name] / reference[name], 1, delta=1e-5)
        return reference

    def test_perplexity_is_what_pytorch_finds(self):
        model, pairs = f"{SOURCE}/data/model-en-de", self.shipped_validation_set()
        self.assertLess(self.compare_perplexity(model, *(lines[:50] for lines in pairs))["perplexity"], 5)
        # And with a pair that all others of its batch are padded to.
        pairs = [[*lines[:20], " ".join(lines[50:100])] for lines in pairs]
        self.assertGreater(self.compare_perplexity(model, *pairs)["longest"], 256)

    def shipped_validation_set(self):
        sides = []
        for language in ("en", "de"):
            with gzip.open(f"{SOURCE}/data/tatoeba-en-de/valid.{language}.gz", "rt") as lines:
                sides.append(lines.read().splitlines())
        return sides

    def test_perplexity_judges_long_lines_whole(self):
        text = self.root / "long.txt"
        text.write_text("the cat sees the dog and " * 80 + "\n")
        measured = subprocess.run([EVALUATE, "perplexity", "--model", f"{SOURCE}/data/model-en-de", "--source", text,
                                   "--target", text, "--format", "json"], capture_output=True, text=True, check=True,
                                  env=ENVIRONMENT)
        self.assertGreater(json.loads(measured.stdout)["tokens"], 480)
        self.assertEqual(measured.stderr, "")

    def test_validation_judges_what_training_leaves_out(self):
        output = self.root / "short"
        text, _ = self.run_train("--output", output, "--set", "data.max_length=12", "--set", "training.steps=20",
                                 "--set", "training.warmup_steps=5")
        self.assertNotIn("0 longer than 12 pieces", text)
        measured = subprocess.run([EVALUATE, "perplexity", "--model", output, "--source", self.root / "valid.en",
                                   "--target", self.root / "valid.de", "--format", "json"],
                                  capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
        self.assertAlmostEqual(json.loads(measured)["perplexity"], self.metrics(output)[-1]["perplexity"], places=4)

    def test_validation_takes_long_lines_and_what_was_there_in_the_beginning(self):
        files = []
        for language in ("en", "de"):
            files.append(self.root / f"judged.{language}")
            lines = (self.root / f"valid.{language}").read_text().splitlines()[:10]
            files[-1].write_text("\n".join([*lines, " ".join(lines) + " " + " ".join(lines)]) + "\n")
        output = self.root / "judged"
        running = subprocess.Popen(
            [TRAIN, self.root / "tiny.yaml", "--output", output, "--set", f"data.validation_source=[{files[0]}]",
             "--set", f"data.validation_target=[{files[1]}]", "--set", "model.positions=learned",
             "--set", "model.max_positions=40", "--set", "data.max_length=30", "--set", "training.steps=80"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        with running:
            for line in running.stdout:
                if re.search(r"step +10\b", line):
                    files[0].write_text("Something else.\n")
                    files[1].unlink()
            errors = running.stderr.read()
        self.assertEqual(running.returncode, 0, errors)
        self.assertFalse(files[1].exists())
        self.assertEqual(len((output / "validation" / "final.txt").read_text().splitlines()), 11)

    def test_a_run_that_diverges_publishes_nothing(self):
        output = self.root / "diverged"
        _, errors = self.run_train("--output", output, "--set", "training.rate_factor=1e6", status=1)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("finite", errors)
        self.assertIn("training.rate_factor", errors)
        for name in ("model.safetensors", "summary.json"):
            self.assertFalse((output / name).exists(), name)
        self.assertEqual(list(output.glob("checkpoints/*step-*")), [])

    def test_killed_and_started_again(self):
        undisturbed, killed = self.root / "undisturbed", self.root / "killed"
        self.run_train("--output", undisturbed)
        process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", killed], env=ENVIRONMENT,
                                   stdout=subprocess.DEVNULL)
        while not list(killed.glob("checkpoints/step-*")):
            self.assertIsNone(process.poll(), "ended before its first checkpoint")
            time.sleep(0.01)
        process.kill()
        process.wait()
        text, _ = self.run_train("--output", killed)
        self.assertIn("going on from", text)
        self.assertEqual((killed / "model.safetensors").read_bytes(), (undisturbed / "model.safetensors").read_bytes())
        self.assertEqual(self.metrics(killed), self.metrics(undisturbed))

    def started(self, output, *arguments, **options):
        """A run that has written its first checkpoint."""
        process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, "--set",
                                    "training.steps=100000", *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, **options)
        while not list(output.glob("checkpoints/step-*")):
            self.assertIsNone(process.poll(), "ended before its first checkpoint")
            time.sleep(0.01)
        return process

    def test_a_signal_ends_the_run_with_a_checkpoint(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            output = self.root / f"signalled-{status}"
            process = self.started(output)
            self.refused("--output", output, parts=["another run", "training.output"])  # two runs, one folder
            process.send_signal(number)
            text = process.communicate(timeout=60)[0]
            self.assertEqual(process.returncode, status)
            self.assertIn("the same command goes on from there", text)
            stopped = int(text.split("stopped after step ")[1].split(";")[0])
            self.assertTrue(list(output.glob(f"checkpoints/*step-{stopped:08}")))
            text, _ = self.run_train("--output", output, "--set", f"training.steps={stopped + 2}")
            self.assertIn(f"step-{stopped:08}", text.split("going on from")[1].split("\n")[0])

    def test_a_log_that_nobody_reads_any_more_costs_no_checkpoint(self):
        output = self.root / "unread"
        process = self.started(output)
        process.stdout.close()  # as tee goes, which Ctrl-C ends first
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        self.assertTrue(list(output.glob("checkpoints/interrupted-step-*")))

    def test_signals_that_a_parent_has_blocked_end_a_run_all_the_same(self):
        def block():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE])

        output = self.root / "blocked"
        process = self.started(output, preexec_fn=block)
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 143, text)
        self.assertIn("the same command goes on from there", text)

    def test_settings_may_come_through_a_pipe(self):
        command = f"{TRAIN} <(cat {self.root}/tiny.yaml)"
        for more, status, said in (("--dry-run", 0, "parameters"),
                                   ("--processes 2", 2, "is read by every process, and can be read once")):
            done = subprocess.run(["bash", "-c", f"{command} --output {self.root}/of-pipe {more}"], capture_output=True,
                                  text=True, env=ENVIRONMENT, cwd=self.root, timeout=100)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(said, done.stdout + done.stderr)
        self.assertFalse((self.root / "of-pipe").exists())

    def test_signals_that_come_together_leave_a_checkpoint(self):
        output = self.root / "together"
        process = self.started(output)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 143, text)
        stopped = int(text.split("stopped after step ")[1].split(";")[0])
        self.assertTrue(list(output.glob(f"checkpoints/*step-{stopped:08}")))

    def started_and_blocked(self, output):
        """A run that waits in the middle of what it does, and hears of signals alone."""
        process = self.started(output)
        # Opening it takes until somebody reads: the run sleeps there, and nowhere else for long.
        os.mkfifo(self.root / "pipe")
        os.replace(self.root / "pipe", output / "metrics.jsonl")
        sleeps = 0
        while sleeps < 20:
            self.assertIsNone(process.poll())
            state = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1][0]
            sleeps = sleeps + 1 if state == "S" else 0
            time.sleep(0.01)
        return process

    def signalled_in_time(self, process, number, pause, most_seconds):
        """Whether both of two signals came, and found the run there, within so many seconds: not on a machine that
        halted in between, where it may well have ended."""
        began = time.monotonic()
        process.send_signal(number)
        time.sleep(pause)
        process.send_signal(number)
        time.sleep(0.05)
        ended = process.poll() is not None
        if time.monotonic() - began > most_seconds:
            return False
        self.assertFalse(ended)
        return True

    def test_a_later_signal_ends_a_run_at_once(self):
        for attempt in range(10):
            process = self.started_and_blocked(self.root / f"at-once-{attempt}")
            if self.signalled_in_time(process, signal.SIGINT, 0.001, 0.5):
                time.sleep(1.5)
                self.assertIsNone(process.poll())
                # Another kind is no second one, and launchers take longer than people.
                if self.signalled_in_time(process, signal.SIGTERM, 1.5, 4):
                    break
            process.kill()
            process.communicate()
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, -signal.SIGINT, text)

    def test_a_run_whose_folder_is_moved_away_makes_no_other(self):
        output, moved = self.root / "moved", self.root / "elsewhere"
        process = self.started(output, "--set", "training.log_every=100000")
        output.rename(moved)
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 1, text)
        self.assertIn(f"{output}: is not the folder any more that the run began in", text)
        self.assertFalse(output.exists())
        moved.rename(output)
        text, _ = self.run_train("--output", output)
        self.assertIn("going on from", text)

    def test_a_signal_ends_a_run_that_has_nothing_to_save(self):
        text = self.root / "much.en"
        text.write_text("".join(f"the {i} of {i * 7919 % 100003} and {i * 104729 % 99991}\n" for i in range(300000)))
        output = self.root / "unbegun"
        process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, "--set",
                                    f"data.train_source={text}", "--set", f"data.train_target={text}"],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
        for line in process.stdout:
            if "learning a vocabulary" in line:
                break
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, -signal.SIGTERM, rest)
        self.assertNotIn("training text", rest)
        self.assertFalse((output / "vocabulary.model").exists())
        text.unlink()

    def test_what_needs_validations_needs_text_for_them(self):
        without = ("--set", "data.validation_source=[]", "--set", "data.validation_target=[]", "--dry-run")
        for setting in ("training.patience=3", "training.keep_best=3"):
            self.refused(*without, "--set", setting, parts=[setting.split("=")[0], "no validation text"])

    def test_a_finished_run_is_left_as_it_is(self):
        output = self.root / "finished"
        arguments = ("--output", output, "--set", "training.steps=20", "--set", "training.device_flops=1e9")
        text, _ = self.run_train(*arguments, "--profile", "2")
        self.assertIn("FLOP/s", text)
        summary = json.loads((output / "summary.json").read_text())
        self.assertEqual((summary["format"], summary["steps"], summary["ended_by"]), (1, 20, "steps"))
        self.assertAlmostEqual(summary["flops"] / summary["seconds"], summary["flops_per_second"], delta=1)
        self.assertAlmostEqual(summary["paper_cost_estimate"], summary["seconds"] * 1e9, delta=1)
        # 6 FLOPs a parameter and token, roughly, for a model this narrow; embeddings and short sentences blur it.
        rough = 3 * 2 * summary["parameters"] * summary["target_tokens"]
        self.assertTrue(rough / 3 < summary["flops"] < 3 * rough, (summary["flops"], rough))
        _, errors = self.run_train(*arguments, "--profile", "2", status=2)
        self.assertIn("no step to be traced", errors)
        shorter = self.root / "shorter"
        text, _ = self.run_train("--output", shorter, "--set", "training.steps=4", "--profile", "40")
        self.assertIn("trace of 3 steps", text)
        self.assertTrue(json.loads((shorter / "trace.json").read_text())["traceEvents"])
        trace = json.loads((output / "trace.json").read_text())
        names = [event.get("name") for event in trace["traceEvents"]]
        for part in ("forward", "loss", "backward", "optimizer"):
            self.assertEqual(names.count(part), 2, part)
        self.assertTrue(list(output.glob("events.out.tfevents*")))
        before = {file: file.stat().st_mtime_ns for file in output.rglob("*") if file.is_file() and file.name != ".lock"}
        text, _ = self.run_train(*arguments)
        self.assertIn("finished", text)
        self.assertEqual(before, {file: file.stat().st_mtime_ns for file in before})
        text, _ = self.run_train(*arguments, "--set", "training.steps=24")
        self.assertIn("going on from", text)
        self.assertEqual(json.loads((output / "summary.json").read_text())["steps"], 24)

    def test_fine_tuning(self):
        first, second = self.root / "first", self.root / "second"
        self.run_train("--output", first, "--set", "training.steps=40")
        write_corpus(self.root, "other", 300, 7)
        files = ("--set", f"data.train_source={self.root}/other.en", "--set", f"data.train_target={self.root}/other.de")
        text, _ = self.run_train("--output", second, "--init-from", first, "--set", "training.steps=1", *files,
                                 "--set", "training.schedule=constant", "--set", "training.rate=1e-30",
                                 "--set", "training.warmup_steps=0",
                                 "--set", "model.max_positions=77", "--set", "model.parameter_heads=3")  # of no use
        self.assertNotIn("learning a vocabulary", text)
        self.assertEqual((first / "vocabulary.model").read_bytes(), (second / "vocabulary.model").read_bytes())
        # A rate that changes nothing: the model is the one it started from.
        self.assertEqual(self.metrics(first)[-1]["perplexity"], self.metrics(second)[-1]["perplexity"])
        out = ("--output", self.root / "refused", *files, "--init-from")
        self.refused(*out, first, "--set", "model.d_ff=48", parts=["model.d_ff: 64 there, 48 here", "extends"])
        self.refused(*out, first, "--set", "vocabulary.joint=false", "--set", "model.shared_embeddings=none",
                     parts=["source.model", "vocabulary.joint"])
        self.refused(*out, self.root, parts=["config.yaml"])

    def test_every_seed_has_initial_weights_of_its_own(self):
        weights = []
        for seed in (1, 1 + 2**32):
            output = self.root / f"seed-{seed}"
            self.run_train("--output", output, "--set", f"training.seed={seed}", "--set", "training.steps=1", "--set",
                           "training.schedule=constant", "--set", "training.rate=1e-30", "--set", "training.warmup_steps=0")
            weights.append(safetensors.numpy.load_file(output / "model.safetensors")["embedding.weight"])
        self.assertGreater(np.abs(weights[0] - weights[1]).max(), 1e-3)

    def test_a_shallower_model_starts_from_some_of_the_layers(self):
        teacher, student, expected = self.root / "deep", self.root / "shallow", self.root / "assembled"
        self.run_train("--output", teacher, "--set", "training.steps=40", "--set", "model.encoder_layers=4",
                       "--set", "model.decoder_layers=3")
        arguments = ("--init-from", teacher, "--set", "training.steps=1", "--set", "training.schedule=constant",
                     "--set", "training.rate=1e-30", "--set", "training.warmup_steps=0",
                     "--set", "model.encoder_layers=3", "--set", "model.decoder_layers=1")
        said = "the encoder's 4 layers numbers 1, 3, 4, of the decoder's 3 layers number 1"
        text, _ = self.run_train("--output", student, *arguments, "--dry-run")
        self.assertIn(said, text)
        text, _ = self.run_train("--output", student, *arguments)
        self.assertIn(said, text)
        # The same model put together by hand, and judged by PyTorch's own modules.
        expected.mkdir()
        shutil.copy(student / "config.yaml", expected)
        shutil.copy(student / "vocabulary.model", expected)
        weights = safetensors.numpy.load_file(teacher / "model.safetensors")
        for stack, layers in (("encoder", (0, 2, 3)), ("decoder", (0,))):
            taken = {f"{stack}.layers.{i}.{name.split('.', 3)[3]}": weights[name] for i, layer in enumerate(layers)
                     for name in weights if name.startswith(f"{stack}.layers.{layer}.")}
            weights = {name: value for name, value in weights.items() if not name.startswith(f"{stack}.layers.")}
            weights.update(taken)
        safetensors.numpy.save_file(weights, expected / "model.safetensors")
        found = safetensors.numpy.load_file(student / "model.safetensors")
        self.assertEqual(found.keys(), weights.keys())
        for name, value in found.items():  # a rate that changes zeros alone, and these by nothing that counts
            self.assertTrue(np.array_equal(np.where(np.abs(value) < 1e-20, 0, value), weights[name]), name)
        judged = subprocess.run([sys.executable, f"{SOURCE}/tests/reference/perplexity.py", expected,
                                 self.root / "valid.en", self.root / "valid.de"], capture_output=True, text=True, check=True)
        self.assertAlmostEqual(self.metrics(student)[-1]["perplexity"], json.loads(judged.stdout)["perplexity"], places=3)
        self.refused("--output", self.root / "refused", "--init-from", teacher, "--set", "model.encoder_layers=5",
                     "--set", "model.decoder_layers=1", parts=["model.encoder_layers: 4 there, 5 here"])
        self.refused("--output", self.root / "refused", "--init-from", teacher, "--set", "model.encoder_layers=2",
                     "--set", "model.decoder_layers=2", "--set", "model.heads=4", parts=["model.heads: 2 there, 4 here"])

    def test_averaging_as_a_program(self):
        run = self.root / "to-average"
        self.run_train("--output", run, "--set", "training.keep_checkpoints=3")
        done = subprocess.run([AVERAGE, "--last", "2", "--output", self.root / "averaged", run], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.root / "averaged" / "model.safetensors").read_bytes(),
                         (run / "model.safetensors").read_bytes())  # as the run averaged its last two
        subprocess.run([TRANSLATE, "--model", self.root / "averaged"], input="red dog\n", text=True, check=True,
                       capture_output=True, env=ENVIRONMENT)
        for arguments, part in ((("--last", "9", run), "3 checkpoints"), ((self.root,), "not a model directory"),
                                ((run, self.root / "missing"), "missing")):
            done = subprocess.run([AVERAGE, "--output", self.root / "no", *arguments], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(part, done.stderr)
        done = subprocess.run([AVERAGE, "--output", run, "--last", "2", run], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds a model already", done.stderr)
        # What was packed for decoding is good for nothing else, and is refused before anything is written.
        packed = self.root / "packed"
        subprocess.run([pathlib.Path(TRANSLATE).parent / "export", "--to", "packed", "--model", run, "--output", packed],
                       check=True, capture_output=True)
        done = subprocess.run([AVERAGE, "--output", self.root / "no", packed, packed], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("packed for decoding", done.stderr)
        self.assertFalse((self.root / "no").exists())
        self.refused("--output", self.root / "no", "--init-from", packed, parts=["packed for decoding"])
        self.assertFalse((self.root / "no").exists())
        # A byte of the weights changed: every program that reads them says so.
        weights = self.root / "averaged" / "model.safetensors"
        damaged = bytearray(weights.read_bytes())
        damaged[-100] ^= 4
        weights.write_bytes(damaged)
        model, output, programs = self.root / "averaged", self.root / "no", pathlib.Path(TRANSLATE).parent
        exports = [[programs / "export", "--to", system, "--model", model, "--output", output]
                   for system in ("packed", "ctranslate2", "hugging-face")]
        for command in ([TRANSLATE, "--model", model], [AVERAGE, "--output", output, model],
                        [EVALUATE, "describe", "--model", model], *exports):
            with self.subTest(command=command):
                done = subprocess.run(command, input="red\n", text=True, capture_output=True)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn("is damaged", done.stderr)
                self.assertFalse(output.exists())
        self.refused("--output", output, "--init-from", model, parts=["is damaged"])
        self.assertFalse(output.exists())

    def test_a_damaged_checkpoint_costs_only_its_steps(self):
        whole, damaged = self.root / "undamaged", self.root / "damaged"
        self.run_train("--output", whole)
        process = self.started(damaged)
        while not (damaged / "checkpoints" / "step-00000040").is_dir():
            self.assertIsNone(process.poll())
            time.sleep(0.005)
        process.kill()
        process.communicate()
        newest = sorted(damaged.glob("checkpoints/step-*"))[-1] / "optimizer.safetensors"
        newest.write_bytes(newest.read_bytes()[:-1])
        text, _ = self.run_train("--output", damaged)
        self.assertIn("is damaged", text)
        self.assertIn("trying the one before", text)
        self.assertEqual((damaged / "model.safetensors").read_bytes(), (whole / "model.safetensors").read_bytes())
        self.assertEqual(self.metrics(damaged), self.metrics(whole))

    def test_a_checkpoint_that_cannot_be_read_is_waited_for(self):
        output = self.root / "unreadable"
        self.run_train("--output", output)
        more = ("--output", output, "--set", "training.steps=80")
        file = output / "checkpoints" / "step-00000060" / "model.safetensors"
        for _ in ("to go on from", "to be averaged"):
            (output / "summary.json").unlink()
            before = sorted((output / "checkpoints").iterdir())
            file.rename(self.root / "aside")
            file.symlink_to(file.name)
            _, errors = self.run_train(*more, status=1)
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertIn(f"{file}: cannot be ", errors)
            self.assertEqual(sorted((output / "checkpoints").iterdir()), before)
            self.assertFalse((output / "summary.json").exists())
            file.unlink()
            (self.root / "aside").rename(file)
            text, _ = self.run_train(*more)
            self.assertIn("going on from", text)
        # Who names an earlier one gets past it.
        file = output / "checkpoints" / "step-00000080" / "model.safetensors"
        file.unlink()
        file.symlink_to(file.name)
        text, _ = self.run_train(*more, "--from", "60")
        self.assertIn("step-00000060", text.split("going on from")[1].split("\n")[0])

    def test_what_runs_out_is_named_and_the_checkpoints_stay(self):
        output = self.root / "limits"
        self.run_train("--output", output, "--set", "training.steps=20")
        checkpoints = {file: file.read_bytes() for file in output.rglob("checkpoints/*/*")}
        more = ("--output", output, "--set", "training.steps=40")

        def little_space():  # what a full disk does, short of filling one
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        _, errors = self.run_train(*more, status=1, before=little_space)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("cannot write", errors)
        self.assertFalse(list(output.glob("checkpoints/.partial*")))

        # The address sanitizer takes terabytes of addresses, and has a limit of its own to offer.
        sanitizer = os.environ.get("ASAN_OPTIONS")
        limited = dict(ENVIRONMENT, ASAN_OPTIONS=f"{sanitizer}:allocator_may_return_null=1:max_allocation_size_mb=150")

        def little_memory():
            if not sanitizer:
                resource.setrlimit(resource.RLIMIT_AS, (1_400_000_000, 1_400_000_000))

        large = ("--output", self.root / "large", "--set", "model.d_ff=200000", "--set", "training.steps=2")
        _, errors = self.run_train(*large, status=1, before=little_memory, environment=limited)
        self.assertIn("train: error: step 1: out of memory; there is no checkpoint yet", errors.splitlines()[-1])
        self.assertEqual(errors.count("\n"), errors.count("AddressSanitizer") + 1, errors)
        self.refused("--output", "/proc/run", parts=["training.output", "/proc/run"])
        self.assertEqual(checkpoints, {file: file.read_bytes() for file in checkpoints})
        self.run_train(*more)

    def test_micro_batches_are_made_to_fit_into_memory(self):
        more = ("--set", "training.batch_tokens=400000", "--set", "training.micro_batch=auto", "--set",
                "training.steps=6", "--set", "training.checkpoint_every=2")

        def size(text):
            return int(re.search(r"micro-batches of (\d+) tokens fit into memory", text)[1])

        def little_memory():
            resource.setrlimit(resource.RLIMIT_AS, (1_800_000_000, 1_800_000_000))

        plenty, _ = self.run_train("--output", self.root / "plenty", *more)
        if not os.environ.get("ASAN_OPTIONS"):  # which takes terabytes of addresses
            little, _ = self.run_train("--output", self.root / "little", *more, before=little_memory)
            self.assertLess(size(little), size(plenty))
            # A run keeps its size, wherever it goes on.
            text, _ = self.run_train("--output", self.root / "little", *more[:-4], "--set", "training.steps=8", "--set",
                                     "training.checkpoint_every=2")
            self.assertNotIn("fit into memory", text)
        self.refused("--output", self.root / "both", *more, "--set", "training.micro_batch_tokens=100",
                     parts=["training.micro_batch_tokens", "auto"])
        self.refused("--output", self.root / "tf32", "--set", "training.precision=tf32", parts=["TensorFloat-32", "cpu"])

    def test_best_checkpoints_that_were_not_kept_are_none_to_average(self):
        output = self.root / "forgotten"
        more = ("--output", output, "--set", "training.checkpoint_every=20", "--set", "training.validate_bleu=false",
                "--set", "training.keep_checkpoints=1", "--set", "training.average_checkpoints=1")
        self.run_train(*more, "--set", "training.validate_every=20", "--set", "training.steps=41")
        text, _ = self.run_train(*more, "--from", "last", "--set", "training.validate_every=1000",
                                 "--set", "training.steps=62", "--set", "training.keep_best=1",
                                 "--set", "training.average_of=best")
        self.assertIn("the newest whole one becomes the model", text)
        self.assertIn("averaging 1 checkpoint: 62", text)

    def test_text_beyond_the_positions_is_refused_before_training(self):
        self.refused("--output", self.root / "beyond", "--set", "model.positions=learned",
                     "--set", "model.max_positions=6", parts=["data.max_length", "leaves room for 5", "set it to 5"])
        self.assertFalse((self.root / "beyond" / "checkpoints").exists())
        # Text that is not used sets no limit.
        for language in ("en", "de"):
            (self.root / f"long.{language}").write_text("red " * 60 + "\n")
        two = ("--output", self.root / "unused", "--set", "training.steps=2",
               "--set", f"data.train_source=[{self.root}/long.en,{self.root}/train.en]",
               "--set", f"data.train_target=[{self.root}/long.de,{self.root}/train.de]",
               "--set", "model.positions=learned", "--set", "model.max_positions=35")
        self.refused(*two, parts=["data.max_length", "leaves room for 34"])
        self.run_train(*two, "--set", "data.train_weights=[0,1]")

    def test_the_setting_that_ended_a_run_is_named(self):
        for name, steps, minutes in (("steps", 20, 0), ("max_minutes", 100000, 0.02)):
            more = ("--output", self.root / name, "--set", f"training.steps={steps}",
                    "--set", f"training.max_minutes={minutes}")
            text, _ = self.run_train(*more)
            self.assertEqual("training.max_minutes (0.02) are over: training ends" in text, name == "max_minutes")
            text, _ = self.run_train(*more)
            self.assertIn(f"this run is finished; raise training.{name} to go on with it", text)
            for dry in ((), ("--dry-run",)):
                self.refused(*more, *dry, "--profile", 2, parts=["--profile", f"raise training.{name}"])

    def test_early_stopping_by_bleu_and_schedules(self):
        output = self.root / "patient"
        more = ("--output", output, "--set", "training.patience=2", "--set", "training.best_by=bleu",
                "--set", "training.validate_every=5", "--set", "training.steps=5000",
                "--set", "training.schedule=inverse_sqrt", "--set", "training.rate=1e-3",
                "--set", "training.warmup_steps=10", "--set", "training.keep_best=2",
                "--set", "training.average_of=best", "--set", "training.log_every=5")
        text, _ = self.run_train(*more)
        self.assertIn("2 validations without a new best", text)
        metrics = self.metrics(output)
        rates = {line["step"]: line["rate"] for line in metrics if line["kind"] == "train"}
        self.assertGreaterEqual(len(rates), 3)
        for step, rate in rates.items():
            self.assertAlmostEqual(rate, 1e-3 * min(step / 10, (10 / step) ** 0.5))
        bleu = [(line["bleu"], line["step"]) for line in metrics if line["kind"] == "validation"]
        self.assertEqual(metrics[-1]["best_step"], max(bleu, key=lambda pair: (pair[0], -pair[1]))[1])
        self.assertEqual(json.loads((output / "summary.json").read_text())["ended_by"], "patience")
        text, _ = self.run_train(*more)
        self.assertIn("this run is finished; raise training.patience", text)

    def test_one_run_a_folder(self):
        output = self.root / "one"
        self.run_train("--output", output, "--set", "training.steps=2")
        self.refused("--output", output, "--set", "model.d_ff=48", parts=["model.d_ff: 64 there, 48 now", "--restart"])
        text, _ = self.run_train("--output", output, "--set", "training.steps=2", "--set", "model.d_ff=48", "--restart")
        self.assertNotIn("going on from", text)
        text, _ = self.run_train("--output", output, "--set", "training.steps=4", "--set", "model.d_ff=48")
        self.assertIn("going on from", text)
        shutil.rmtree(output / "checkpoints")  # a model directory that was given to somebody
        self.refused("--output", output, "--set", "training.steps=4", parts=["without the checkpoints", "--restart"])
        self.assertTrue((output / "model.safetensors").exists())

    def test_a_vocabulary_each(self):
        output = self.root / "separate"
        said = self.run_train("--output", output, "--set", "training.steps=2", "--set", "vocabulary.joint=false",
                              "--set", "vocabulary.algorithm=unigram", "--set", "model.shared_embeddings=target",
                              "--set", "model.source_vocabulary_size=290", "--set", "model.target_vocabulary_size=295")
        self.assertIn("model.vocabulary_size (320) has no effect: model.source_vocabulary_size (290)", "".join(said))
        self.assertFalse((output / "vocabulary.model").exists())
        done = subprocess.run([TRANSLATE, "--model", output], input="red dog\n", capture_output=True, text=True,
                              check=True, env=ENVIRONMENT)
        self.assertEqual(done.stdout.count("\n"), 1)
        self.compare_perplexity(output, *((self.root / name).read_text().splitlines() for name in ("valid.en", "valid.de")))

    def test_the_shipped_model_scores_what_it_says(self):
        """As its README has it; less than rounding weights and activations to 8 bits costs may be lost."""
        table = pathlib.Path(f"{SOURCE}/data/model-en-de/README.md").read_text()
        said = {name: float(re.search(rf"^\| {name} \| ([\d.]+) \|", table, re.MULTILINE)[1])
                for name in ("BLEU", "chrF2", "perplexity per word piece")}
        files = [self.root / f"shipped.{language}" for language in ("en", "de")]
        for file, lines in zip(files, self.shipped_validation_set()):
            file.write_text("".join(line + "\n" for line in lines))
        evaluate = lambda *arguments, **keywords: json.loads(subprocess.run(
            [EVALUATE, *arguments, "--format", "json"], capture_output=True, text=True, check=True, env=ENVIRONMENT,
            **keywords).stdout)
        for precision in ("float32", "int8"):
            hypotheses = subprocess.run(
                [TRANSLATE, "--model", f"{SOURCE}/data/model-en-de", "--precision", precision, "--threads", "1"],
                input=files[0].read_text(), capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
            for command, name in (("bleu", "BLEU"), ("chrf", "chrF2")):
                with self.subTest(f"{precision}, {name}"):
                    score = evaluate(command, "--reference", files[1], input=hypotheses)["score"]
                    self.assertAlmostEqual(score, said[name], delta=0.3)
        measured = evaluate("perplexity", "--model", f"{SOURCE}/data/model-en-de", "--source", files[0], "--target",
                            files[1])
        self.assertAlmostEqual(measured["perplexity"], said["perplexity per word piece"], delta=0.006)

    def test_mistakes_are_named_in_one_line(self):
        out = ("--output", self.root / "refused")
        self.refused(*out, "--set", "model.d_modle=3", parts=["model.d_modle", "model.d_model"])
        self.refused(*out, "--set", "model.d_model=wide", parts=["model.d_model", "wide"])
        self.refused(*out, "--set", "model.heads=0", parts=["model.heads", "from 1 to 4096"])
        self.refused(*out, "--set", "model.heads=5", parts=["does not divide"])
        self.refused(*out, "--set", "training.label_smoothing=1.5", parts=["training.label_smoothing"])
        self.refused(*out, "--set", "training.average_checkpoints=50", parts=["keep_checkpoints"])
        self.refused(*out, "--set", "training.device=tpu", parts=["tpu"])
        self.refused(*out, "--set", "training.schedule=constant", parts=["training.rate"])
        self.refused(*out, "--set", "training.rate=0.1", parts=["training.rate", "training.schedule"])
        self.refused(*out, "--set", "training.warmup_steps=0", parts=["training.warmup_steps"])
        self.refused(*out, "--set", "training.average_of=best", parts=["training.keep_best"])
        self.refused(*out, "--set", "training.patience=2", "--set", "training.validate_every=0",
                     parts=["training.patience", "training.validate_every"])
        self.refused(*out, "--set", "training.best_by=bleu", "--set", "training.validate_bleu=false",
                     parts=["training.best_by"])
        self.refused(*out, "--set", "vocabulary.joint=false", parts=["shared_embeddings"])
        self.refused(*out, "--set", f"data.train_source={self.root}/missing.en", parts=["missing.en"])
        self.refused(*out, "--set", f"data.train_source={self.root}/valid.en", parts=["40", "2000"])
        self.refused(*out, "--set", "model.vocabulary_size=30000", parts=["30000", "(model.vocabulary_size, or"])
        (self.root / "empty").touch()
        empty = ("--set", f"data.train_source={self.root}/empty", "--set", f"data.train_target={self.root}/empty")
        self.refused(*out, *empty, "--dry-run", parts=["data.train_source", "holds no line"])
        self.refused(config="missing.yaml", parts=["missing.yaml"])
        (self.root / "broken.yaml").write_text("model:\n  d_model: 32\n  d_mode: 32\n")
        self.refused(config="broken.yaml", parts=["broken.yaml:3", "model.d_mode", "d_model"])
        (self.root / "bad.en").write_bytes((self.root / "train.en").read_bytes().replace(b"red", b"r\xffd", 1))
        self.refused(*out, "--set", f"data.train_source={self.root}/bad.en", parts=["bad.en:", "UTF-8"])
        done = subprocess.run([TRAIN], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)

    def test_dry_run(self):
        text, _ = self.run_train("--dry-run", "--output", self.root / "dry")
        self.assertRegex(text, r"\Aparameters: \d+\n")
        self.assertIn("train: 2000 pairs", text)
        self.assertIn("vocabulary: vocabulary.model will be learned", text)
        self.assertFalse((self.root / "dry").exists())
        self.assertNotIn("device:", text)
        for more, said in (((), True), (("--set", "training.checkpoint_minutes=10"), False)):
            text, _ = self.run_train("--dry-run", "--output", self.root / "dry", "--set", "training.checkpoint_every=0", *more)
            self.assertEqual("no checkpoint is written before the end" in text, said)
        self.assertNotIn("to be averaged", text)
        for more, least in ((("training.checkpoint_every=0", "training.keep_best=1"), "is 1 checkpoint"),
                            (("training.checkpoint_every=60", "training.average_checkpoints=3"), "is 1 checkpoint"),
                            (("training.checkpoint_every=59", "training.average_checkpoints=3"), "are 2 checkpoints"),
                            (("training.checkpoint_every=59",), None),
                            (("training.checkpoint_every=0", "training.keep_best=2", "training.average_of=best"), None)):
            text, _ = self.run_train("--dry-run", "--output", self.root / "dry",
                                     *(word for setting in more for word in ("--set", setting)))
            self.assertEqual("to be averaged" in text, least is not None, text)
            self.assertIn(f"there {least} at most" if least else "", text)
        traced = self.root / "traced"
        traced.mkdir()
        (traced / "trace.json").write_text("mine")
        self.run_train("--dry-run", "--output", traced)
        self.refused("--dry-run", "--output", traced, "--profile", 2, parts=["trace.json", "is in the way"])
        pipe = self.root / "pipe"
        os.mkfifo(pipe)  # to which nobody writes
        for name, side in (("train", "source"), ("validation", "target")):
            self.refused("--dry-run", "--output", self.root / "dry", "--set", f"data.{name}_{side}={pipe}",
                         parts=[f"data.{name}_{side}: {pipe} can be read once", "write the text to a file"])
        pipe.unlink()
        self.refused("--dry-run", "--output", self.root / "dry", "--set", "data.target_language=fra_Latn",
                     parts=["data.target_language", "'fra_Latn'", "learned here", "data.train_tags"])
        text, _ = self.run_train("--dry-run", "--output", self.root / "dry", "--device", "cuda:99")
        self.assertIn("device: not here: device 'cuda:99'", text)
        done = subprocess.run([TRAIN, f"{SOURCE}/configs/base.yaml", "--dry-run", "--set",
                               "model.vocabulary_size=41100"], capture_output=True, text=True, cwd=self.root)
        self.assertEqual(done.returncode, 2)  # WMT's text is not there
        self.assertEqual(round(int(done.stdout.split("\n")[0].split(": ")[1]) / 1e6), 65)
        self.assertIn("data/wmt14", done.stderr)
        # A model that no machine holds is counted, not made.
        large = ("model.d_model=8192", "model.d_ff=32768", "model.heads=64", "model.layers=28")
        done = subprocess.run([TRAIN, f"{SOURCE}/configs/base.yaml", "--dry-run",
                               *(word for setting in large for word in ("--set", setting))],
                              capture_output=True, text=True, cwd=self.root)
        self.assertRegex(done.stdout, r"\Aparameters: \d{11}\n", done.stderr)
        self.assertIn("data/wmt14", done.stderr)

    def test_a_vocabulary_may_be_given(self):
        short = ("--set", "training.steps=2", "--set", "training.checkpoint_every=2", "--set", "training.warmup_steps=1")
        self.run_train("--output", self.root / "learned", *short, "--set", "vocabulary.algorithm=unigram")
        learned = self.root / "learned" / "vocabulary.model"
        given = ("--set", f"data.vocabulary=[{learned}]", *short)
        output = self.root / "given"
        text, _ = self.run_train("--output", output, *given, "--dry-run")
        self.assertIn(f"vocabulary: vocabulary.model of {learned}", text)
        self.assertFalse(output.exists())
        text, _ = self.run_train("--output", output, *given)
        self.assertNotIn("learning a vocabulary", text)
        self.assertEqual((output / "vocabulary.model").read_bytes(), learned.read_bytes())
        self.assertIn(str(learned), (output / "config.yaml").read_text())
        # A run that has begun has its own, wherever the given one has gone; and one that learned its own goes on with that.
        hidden = learned.rename(self.root / "hidden.model")
        text, _ = self.run_train("--output", output, *given, "--set", "training.steps=4")
        self.assertIn("going on", text)
        self.refused("--output", self.root / "learned", *given, "--set", "vocabulary.algorithm=unigram",
                     parts=["data.vocabulary", "--restart"])

        other = self.root / "other"
        at = ("--output", other)
        self.refused(*at, *given, parts=[str(learned), "no such file"])
        given = ("--set", f"data.vocabulary=[{hidden}]", *short)
        self.refused(*at, *given, "--set", "model.vocabulary_size=300", parts=["data.vocabulary", "320", "300", "set model"])
        self.refused(*at, *given, "--set", "vocabulary.joint=false", "--set", "model.shared_embeddings=none",
                     parts=["data.vocabulary", "1 file", "vocabulary.joint"])
        self.refused(*at, "--set", f"data.vocabulary=[{hidden},{hidden}]", parts=["data.vocabulary", "2 files"])
        self.refused(*at, *given, "--init-from", output, parts=["data.vocabulary", "training.init_from"])
        damaged = self.root / "damaged.model"
        damaged.write_bytes(hidden.read_bytes()[:-100])
        self.refused(*at, "--set", f"data.vocabulary=[{damaged}]", parts=[str(damaged)])
        self.assertFalse(other.exists())
        # One that lies there already has to be the same.
        other.mkdir()
        (other / "vocabulary.model").write_bytes(hidden.read_bytes())
        self.run_train(*at, *given, "--dry-run")
        self.run_train("--output", self.root / "bpe", *short)
        (other / "vocabulary.model").write_bytes((self.root / "bpe" / "vocabulary.model").read_bytes())
        self.refused(*at, *given, parts=["data.vocabulary", "another vocabulary", "remove"])
        self.assertEqual([file.name for file in other.iterdir()], ["vocabulary.model"])
        # Weights have the vocabulary that they were learned by.
        self.refused("--output", other, *short, "--init-from", output,
                     parts=["training.init_from", f"{other}/vocabulary.model is another", "remove"])
        self.assertEqual([file.name for file in other.iterdir()], ["vocabulary.model"])
        # Two, one for each language.
        two = self.root / "two"
        self.run_train("--output", two, *short, "--set", f"data.vocabulary=[{hidden},{hidden}]", "--set",
                       "vocabulary.joint=false", "--set", "model.shared_embeddings=none")
        for name in ("source.model", "target.model"):
            self.assertEqual((two / name).read_bytes(), hidden.read_bytes())

    def test_the_reference_of_settings_is_up_to_date(self):
        subprocess.run([TRAIN, "--settings-reference", self.root / "reference.md"], check=True)
        generated = (self.root / "reference.md").read_text()
        committed = pathlib.Path(f"{SOURCE}/configs/README.md").read_text()
        self.assertTrue(committed.endswith(generated),
                        "configs/README.md: run build/release/bin/train --settings-reference and paste its tables")

    def test_a_short_run_needs_no_space_for_checkpoints_that_it_never_makes(self):
        def needed(steps, every=1):
            done = subprocess.run([TRAIN, self.root / "tiny.yaml", "--dry-run", "--output", self.root / "none", "--set",
                                   f"training.steps={steps}", "--set", "training.keep_checkpoints=1000", "--set",
                                   f"training.checkpoint_every={every}"],
                                  capture_output=True, text=True, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 0, done.stderr)
            return int(re.search(r"checkpoints need about (\d+) MB", done.stdout + done.stderr)[1])

        self.assertGreater(needed(1000), 100 * needed(2))
        self.assertGreater(needed(1000), 50 * needed(1000, 500))
        self.assertEqual(needed(1000, 0), needed(1))

    def test_the_papers_recipes_run_at_their_real_size(self):
        corpus = f"{SOURCE}/data/tatoeba-en-de"
        data = [f"data.{part}_{side}={corpus}/{file}.{language}.gz"
                for part, file in (("train", "train"), ("validation", "valid"))
                for side, language in (("source", "en"), ("target", "de"))]
        vocabulary = None
        for name in ("base", "big"):
            output = self.root / name
            if vocabulary:
                output.mkdir()
                shutil.copy(vocabulary, output)
            overrides = data + ["training.steps=2", "training.batch_tokens=400", "training.keep_checkpoints=20",
                                "training.validate_bleu=false", f"data.validation_source={self.root}/valid.en",
                                f"data.validation_target={self.root}/valid.de"]
            arguments = [argument for override in overrides for argument in ("--set", override)]
            done = subprocess.run([TRAIN, f"{SOURCE}/configs/{name}.yaml", "--output", output, *arguments],
                                  capture_output=True, text=True, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue((output / "model.safetensors").is_file())
            vocabulary = output / "vocabulary.model"
            shutil.rmtree(output / "checkpoints")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
