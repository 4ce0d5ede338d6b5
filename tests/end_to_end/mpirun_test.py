"""Training under a real mpirun: mpirun_test.py TRAIN.

Standard library only. Where Open MPI's mpirun is not installed the test is skipped.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from programs import ENVIRONMENT, ProgramTest
from toy import SHARED, write_recipe

TRAIN = sys.argv[1]
SKIPPED = 77  # as tests/end_to_end/CMakeLists.txt has it
# Open MPI asks whoever is root whether that is meant.
AS_ROOT = dict(ENVIRONMENT, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


class MpirunTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 1500, 20, SHARED)

    def command(self, output, *arguments):
        # mpirun hands SIGTERM on, waits so many seconds (1 by itself), and kills.
        return ("mpirun", "-np", "2", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", "10", TRAIN,
                self.root / "tiny.yaml", "--output", output, *arguments)

    def test_it_trains_what_two_processes_train(self):
        under, alone = self.root / "mpirun", self.root / "processes"
        done = subprocess.run(self.command(under), capture_output=True, text=True, env=AS_ROOT, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in (0, 1):
            self.assertRegex(done.stdout + done.stderr, rf"rank {rank} of 2 \(mpirun\)")
        subprocess.run([TRAIN, self.root / "tiny.yaml", "--output", alone, "--processes", "2"], capture_output=True,
                       check=True, env=ENVIRONMENT, timeout=300)
        self.assertEqual((under / "model.safetensors").read_bytes(), (alone / "model.safetensors").read_bytes())

    def test_told_to_end_it_leaves_a_checkpoint(self):
        output = self.root / "ended"
        with open(self.root / "log", "w+") as log:
            process = subprocess.Popen(self.command(output, "--set", "training.steps=100000"), env=AS_ROOT, stdout=log,
                                       stderr=log)
            while not list(output.glob("checkpoints/step-*")):
                self.assertIsNone(process.poll(), "ended before its first checkpoint")
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            text = (self.root / "log").read_text()
        self.assertIn("stopped after step ", text)
        stopped = int(text.split("stopped after step ")[1].split(";")[0])
        self.assertTrue(list(output.glob(f"checkpoints/*step-{stopped:08}")), text)


if __name__ == "__main__":
    if shutil.which("mpirun", path=os.environ["PATH"]) is None:
        print("skipped: there is no mpirun here (Debian's openmpi-bin)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
