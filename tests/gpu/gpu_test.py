"""What a GPU computes, beside what the CPU does: gpu_test.py TRAIN TRANSLATE. scripts/gpu runs it; standard library only."""

import contextlib
import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMITATED = int(os.environ.get("STAND_IN_GPUS", "0"))  # stand_in_test.py
GPUS = IMITATED or len(
    subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines() if shutil.which("nvidia-smi") else [])
TRAIN, TRANSLATE = (pathlib.Path(name).resolve() for name in sys.argv[1:3])

TOKENS = 800 if IMITATED else 4000

RECIPE = """
data: {{train_source: [{data}/train.en.gz], train_target: [{data}/train.de.gz], max_length: 60, cache: {folder}/cache}}
vocabulary: {{sample_sentences: 50000}}
model: {{d_model: 128, d_ff: 512, heads: 4, layers: 2, vocabulary_size: 4000, dropout: {dropout}}}
training: {{steps: 20, batch_tokens: {tokens}, micro_batch_tokens: {half}, warmup_steps: 100, log_every: 5, validate_every: 0,
           validate_bleu: false, checkpoint_every: 10, average_checkpoints: 1, device: cuda}}
"""


class GpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.temporary.name)
        for name, dropout in (("plain", 0), ("dropout", 0.1)):
            (cls.root / f"{name}.yaml").write_text(
                RECIPE.format(data=ROOT / "data" / "tatoeba-en-de", folder=cls.root, dropout=dropout, tokens=TOKENS, half=TOKENS // 2))
        cls.train("first", "plain", "training.device=cpu")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def train(cls, name, recipe, *settings, flags=()):
        """The losses that a run reports. All but the first take their weights and vocabulary from that one."""
        output = cls.root / name
        first = [] if name == "first" else ["--init-from", cls.root / "first"]
        done = subprocess.run([TRAIN, cls.root / f"{recipe}.yaml", "--output", output, *first, *flags,
                               *(part for setting in settings for part in ("--set", setting))],
                              capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line.get("kind") == "train"]

    def assert_close(self, losses, others, tolerance):
        self.assertEqual(len(losses), 4)
        for loss, other in zip(losses, others, strict=True):
            self.assertLess(abs(loss - other), tolerance * other)

    def test_a_gpu_learns_what_the_cpu_learns(self):
        expected = self.train("cpu", "plain", "training.device=cpu")
        self.assert_close(self.train("float32", "plain"), expected, 1e-3)
        self.assert_close(self.train("bf16", "plain", "training.precision=bf16"), expected, 0.03)
        self.assert_close(self.train("recomputed", "plain", "training.recompute=true"), expected, 1e-3)
        self.assert_close(self.train("found", "plain", "training.micro_batch_tokens=0", "training.micro_batch=auto"),
                          expected, 0.1)  # other batches
        regularised = ("training.rdrop=5", "training.layer_drop=0.2")
        self.assertLess(self.train("regularised", "dropout", *regularised)[-1], 20)

    def test_a_deterministic_run_repeats_itself_and_goes_on_bit_for_bit(self):
        settings = ("training.deterministic=true", "training.precision=bf16")
        self.train("whole", "dropout", *settings)
        self.train("again", "dropout", *settings)
        self.train("parts", "dropout", *settings, "training.steps=10")
        self.train("parts", "dropout", *settings)
        whole = (self.root / "whole" / "model.safetensors").read_bytes()
        self.assertEqual((self.root / "again" / "model.safetensors").read_bytes(), whole)
        self.assertEqual((self.root / "parts" / "model.safetensors").read_bytes(), whole)

    @unittest.skipUnless(GPUS > 1, "there is one GPU")
    def test_two_gpus_learn_what_one_does(self):
        expected = self.train("one", "plain")
        self.assert_close(self.train("two", "plain", "training.micro_batch_tokens=0", flags=("--processes", "2")), expected, 0.1)
        self.assert_close(self.train("sharded", "plain", "training.micro_batch_tokens=0", "training.shard_optimizer=true",
                                     flags=("--processes", "2")), expected, 0.1)

    @unittest.skipUnless(GPUS > 1, "there is one GPU")
    def test_a_rank_that_is_lost_ends_the_others(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            output = self.root / f"lost-{number}"
            process = subprocess.Popen(
                [TRAIN, self.root / "plain.yaml", "--output", output, "--init-from", self.root / "first", "--processes", "2",
                 "--set", "training.steps=100000", "--set", "training.micro_batch_tokens=0",
                 "--set", "training.timeout_seconds=20"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 120
            while not (output / "checkpoints").is_dir() or not any((output / "checkpoints").iterdir()):
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[-1]), number)
            try:
                errors = process.communicate(timeout=120)[1]
            finally:
                with contextlib.suppress(ProcessLookupError):  # the others' end may have been its own
                    os.kill(int(children[-1]), signal.SIGKILL)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("rank", errors)

    @unittest.skipIf(IMITATED, "what stands in for a GPU has no kernels")
    def test_a_profile_has_the_gpus_kernels(self):
        self.train("profiled", "plain", "training.precision=bf16", flags=("--profile", "3"))
        events = json.loads((self.root / "profiled" / "trace.json").read_text())["traceEvents"]
        kernels = {event["name"] for event in events if event.get("cat") == "kernel"}
        for name in ("residual_forward", "residual_backward", "smoothed_loss_in_pieces"):
            self.assertIn(name, kernels)

    @unittest.skipIf(IMITATED, "what stands in for a GPU has no cuBLAS")
    def test_cublas_keeps_nan_through_its_activation(self):
        import torch  # which scripts/gpu has found

        for depth, width in ((128, 512), (512, 2048), (1024, 4096)):
            x, weight = (torch.randn(rows, depth, device="cuda", dtype=torch.bfloat16) for rows in (4000, width))
            bias = torch.zeros(width, device="cuda", dtype=torch.bfloat16)
            bias[3] = float("nan")
            self.assertTrue(torch._addmm_activation(bias, x, weight.t())[:, 3].isnan().all())

    def test_a_gpu_translates_as_the_cpu_does(self):
        with gzip.open(ROOT / "data" / "tatoeba-en-de" / "valid.en.gz", "rt") as text:
            lines = "".join(line for line, _ in zip(text, range(20 if IMITATED else 200)))

        def translated(*arguments):
            done = subprocess.run([TRANSLATE, "--model", ROOT / "data" / "model-en-de", *arguments], input=lines,
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.splitlines()

        expected = translated("--precision", "float32")
        for precision, most in (("float32", 2), ("fp16", 20), ("bf16", 60)):
            found = translated("--device", "cuda", "--precision", precision)
            self.assertEqual(len(found), len(expected))
            self.assertLessEqual(sum(a != b for a, b in zip(found, expected)), most, precision)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
