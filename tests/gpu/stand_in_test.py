"""What programs do with GPUs, on a machine without one: stand_in_test.py TRAIN TRANSLATE STAND_IN_CUDA STAND_IN_NCCL.

Runs gpu_test.py, and what only an imitated GPU can tell: what the host waited for. Standard library only."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

train, translate, stand_in_cuda, stand_in_nccl = (pathlib.Path(name).resolve() for name in sys.argv[1:5])
chosen = sys.argv[5:]
folder = tempfile.TemporaryDirectory()
root = pathlib.Path(folder.name).resolve()

# LibTorch's CUDA part is looked for where LibTorch is, NCCL's module beside the program.
(root / "lib").mkdir()
(root / "bin").mkdir()
torch = next(pathlib.Path(line.split(" => ")[1].rsplit(" (", 1)[0]).parent for line in subprocess.run(
    ["ldd", train], capture_output=True, text=True, check=True).stdout.splitlines() if "libtorch_cpu.so" in line)
for library in torch.iterdir():
    if library.name != "libtorch_cuda.so":
        (root / "lib" / library.name).symlink_to(library)
(root / "lib" / "libtorch_cuda.so").symlink_to(stand_in_cuda)
for file, name in ((train, "train"), (translate, "translate"), (translate.parent / "transformer_modules.so",) * 2,
                   (stand_in_nccl, "transformer_nccl.so")):
    shutil.copy(file, root / "bin" / pathlib.Path(name).name)
# LibTorch's other libraries are found beside it.
before = os.environ.get("LD_LIBRARY_PATH")
os.environ["LD_LIBRARY_PATH"] = f"{root / 'lib'}:{before}" if before else str(root / "lib")
os.environ.update(STAND_IN_GPUS="2", OMP_NUM_THREADS="1")

sys.argv[1:] = [str(root / "bin" / "train"), str(root / "bin" / "translate")]
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from gpu_test import ROOT, GpuTest  # noqa: E402


class StandInTest(unittest.TestCase):
    """On text this small, a second is all that a run takes."""

    @classmethod
    def setUpClass(cls):
        cls.root = root / "small"
        cls.root.mkdir()
        lines = [f"{word} {word} {other}" for word in "abcdefgh" for other in "ijklmnop"]
        for name in ("source", "target"):
            (cls.root / f"text.{name}").write_text("\n".join(lines) + "\n")
        (cls.root / "recipe.yaml").write_text(f"""
data: {{train_source: [{cls.root}/text.source], train_target: [{cls.root}/text.target]}}
model: {{d_model: 16, d_ff: 32, heads: 2, layers: 1, vocabulary_size: 280}}
training: {{steps: 10, batch_tokens: 200, log_every: 1000, validate_every: 0, validate_bleu: false,
           checkpoint_every: 0, average_checkpoints: 1, device: cuda}}
""")

    def run_training(self, name, *settings, environment=None):
        report = self.root / f"{name}.report"
        done = subprocess.run(
            [root / "bin" / "train", self.root / "recipe.yaml", "--output", self.root / name,
             *(part for setting in settings for part in ("--set", setting))],
            capture_output=True, text=True, timeout=120,
            env={**os.environ, "STAND_IN_GPU_REPORT": str(report), **(environment or {})})
        waits = json.loads(report.read_text()) if report.exists() else {}
        return done, waits

    def test_steps_wait_for_nothing(self):
        for settings in ((), ("training.precision=bf16", "training.clip_norm=1", "training.moving_average=0.9"),
                         ("training.micro_batch_tokens=100", "training.rdrop=1", "training.layer_drop=0.1"),
                         ("training.recompute=true", "training.deterministic=true")):
            found = []
            for steps in (10, 30):
                done, waits = self.run_training(f"{len(settings)}{settings}-{steps}", f"training.steps={steps}", *settings)
                self.assertEqual(done.returncode, 0, done.stderr)
                found.append(waits)
            self.assertEqual(*found, settings)
            self.assertGreater(found[0]["a number"], 0)  # the figures of its checkpoint

    def test_memory_that_runs_out_is_told_as_such(self):
        done, _ = self.run_training("full", environment={"STAND_IN_GPU_BYTES": "1e5"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("memory", done.stderr)
        self.assertNotIn("c10", done.stderr)

    def test_a_gpu_that_is_not_there(self):
        done, _ = self.run_training("third", "training.device=cuda:2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("this machine has 2 GPUs", done.stderr)

    def test_validation_and_micro_batches_that_are_found(self):
        source, target = (f"[{self.root}/text.{side}]" for side in ("source", "target"))
        done, _ = self.run_training("validated", f"data.validation_source={source}", f"data.validation_target={target}",
                                    "training.validate_every=5", "training.validate_bleu=true",
                                    "training.micro_batch=auto", "training.keep_best=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = [json.loads(line)["kind"] for line in (self.root / "validated" / "metrics.jsonl").read_text().splitlines()]
        self.assertIn("validation", kinds)
        self.assertIn("final", kinds)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *chosen], verbosity=2)
