"""Training and sweeps under a real Slurm of one machine, this one: slurm_test.py TRAIN SWEEP.

Standard library only. Slurm's daemons (Debian's slurm-wlm) run as whoever runs the test, in a folder of their own, on
free ports, and end with it. Where they are not installed the test is skipped.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest

from programs import ENVIRONMENT, ProgramTest, free_ports
from toy import SHARED, write_recipe

TRAIN, SWEEP = sys.argv[1:3]
# Administrators' programs are not in everybody's path.
SEARCHED = os.environ["PATH"] + ":/usr/sbin:/sbin"
DAEMONS = {name: shutil.which(name, path=SEARCHED) for name in ("munged", "slurmctld", "slurmd")}
SKIPPED = 77  # as tests/end_to_end/CMakeLists.txt has it

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
MpiDefault=none
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={processors} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class SlurmTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 1500, 20, SHARED)
        cls.root.chmod(0o711)  # munged wants its socket to be within everybody's reach
        cls.start_slurm(cls.root / "slurm")

    @classmethod
    def start_slurm(cls, folder):
        for part in ("state", "spool"):
            (folder / part).mkdir(parents=True)
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(
            folder=folder, host=socket.gethostname().split(".")[0], user=subprocess.getoutput("id -un"),
            ports=free_ports(2), processors=os.cpu_count()))
        cls.environment = dict(ENVIRONMENT, SLURM_CONF=str(configuration))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        munge = [f"--{what}={folder / name}" for what, name in (
            ("socket", "munge.socket"), ("key-file", "munge.key"), ("pid-file", "munged.pid"),
            ("log-file", "munged.log"), ("seed-file", "munged.seed"))]
        cls.start(folder, "munged", "--foreground", *munge)
        if not wait_until((folder / "munge.socket").exists, 30):
            raise AssertionError("munged does not start: " + cls.logs(folder))
        cls.start(folder, "slurmctld", "-D", "-c")
        cls.start(folder, "slurmd", "-D")
        # It is idle as soon as it may be given work.
        if not wait_until(lambda: cls.slurm("sinfo", "--noheader", "--format=%T").strip() == "idle", 60):
            raise AssertionError("Slurm does not start: " + cls.logs(folder))

    @classmethod
    def start(cls, folder, name, *arguments):
        log = open(folder / f"{name}.out", "wb")
        cls.addClassCleanup(log.close)
        process = subprocess.Popen([DAEMONS[name], *arguments], env=cls.environment, stdout=log, stderr=log)
        # In the opposite order, before the folder goes.
        cls.addClassCleanup(process.wait, timeout=60)
        cls.addClassCleanup(process.terminate)

    @staticmethod
    def logs(folder):
        return "".join(f"{file.name}: {file.read_text()}\n" for file in folder.glob("*.out"))

    @classmethod
    def slurm(cls, *command):
        return subprocess.run(command, env=cls.environment, capture_output=True, text=True, timeout=60).stdout

    def train(self, output, *arguments, launcher=()):
        done = subprocess.run([*launcher, TRAIN, self.root / "tiny.yaml", "--output", output, *arguments],
                              env=self.environment, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def sweep(self, output, *arguments):
        done = subprocess.run([SWEEP, self.root / "grid.yaml", "--output", output, "--launcher", "slurm", *arguments],
                              env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return int(re.search(r"handed in as job (\d+)", done.stdout + done.stderr)[1])

    def write_grid(self, steps):
        (self.root / "grid.yaml").write_text(f"""
title: A toy study
base: tiny.yaml
seeds: [1]
base_row: base
set: {{training: {{steps: {steps}}}}}
rows:
  - {{name: base, seeds: [1, 2]}}
  - {{name: h1, group: A, model: {{heads: 1}}}}
""")

    def finish(self, job):
        self.assertTrue(wait_until(lambda: not self.slurm("squeue", "--noheader", f"--jobs={job}").strip(), 200),
                        self.slurm("squeue"))

    def states(self, output):
        results = json.loads((output / "results.json").read_text())
        return {row["name"]: [run["state"] for run in row["runs"]] for row in results["rows"]}

    def test_srun_starts_the_processes_of_a_run(self):
        alone, output = self.root / "alone", self.root / "srun"
        self.train(alone, "--processes", "2")
        text = self.train(output, launcher=("srun", "--ntasks=2"))
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2 (srun), Gloo, device cpu", text)
        self.assertEqual((output / "model.safetensors").read_bytes(), (alone / "model.safetensors").read_bytes())

    def test_a_step_that_is_told_to_end_leaves_a_checkpoint_to_go_on_from(self):
        output = self.root / "stopped"
        process = subprocess.Popen(["srun", "--ntasks=2", "--job-name=stopped", TRAIN, self.root / "tiny.yaml",
                                    "--output", output, "--set", "training.steps=100000"], env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertTrue(wait_until(lambda: list(output.glob("checkpoints/step-*")), 60))
        self.slurm("scancel", "--name=stopped", "--signal=TERM")  # to every process, as at the end of its time
        text = process.communicate(timeout=100)[0]
        self.assertNotEqual(process.returncode, 0, text)
        stopped = int(re.search(r"stopped after step (\d+); the same command goes on from there", text)[1])
        text = self.train(output, "--set", f"training.steps={stopped + 2}", launcher=("srun", "--ntasks=2"))
        self.assertRegex(text, rf"going on from \S*step-{stopped:08}")

    def test_a_sweep_is_a_job_array(self):
        output = self.root / "array"
        self.write_grid(12)
        self.finish(self.sweep(output))
        logs = "".join(file.read_text() for file in output.glob("slurm-*.log"))
        self.assertEqual(len(list(output.glob("slurm-*.log"))), 3)  # a task for each run
        self.assertEqual(self.states(output), {"base": ["finished"] * 2, "h1": ["finished"]}, logs)
        self.assertTrue((output / "report.html").is_file())

    def test_a_sweep_whose_time_is_up_goes_on(self):
        output = self.root / "interrupted"
        self.write_grid(4000)
        job = self.sweep(output, "--only", "h1")
        self.assertTrue(wait_until(lambda: list(output.glob("h1/*/checkpoints/step-*")), 60))
        # As at the end of its time: --signal=B:TERM@120 is for the script alone, whose place the sweep has taken.
        self.slurm("scancel", "--batch", "--signal=TERM", str(job))
        self.finish(job)
        log = (output / "h1" / "seed-1.log").read_text()
        stopped = re.search(r"stopped after step (\d+); the same command goes on from there", log)
        self.assertTrue(stopped, log)
        self.write_grid(int(stopped[1]) + 2)
        self.finish(self.sweep(output, "--only", "h1"))
        self.assertIn("going on from", (output / "h1" / "seed-1.log").read_text())
        self.assertEqual(self.states(output)["h1"], ["finished"])


if __name__ == "__main__":
    missing = [name for name, program in DAEMONS.items() if not program]
    if missing:
        print(f"skipped: there is no {', no '.join(missing)} here (Debian's slurm-wlm)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
