"""Training in several processes as people start it: distributed_test.py TRAIN TORCHRUN [CLASS]...

Standard library, and safetensors to compare weights.
"""

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

from safetensors.numpy import load_file

from programs import ENVIRONMENT, ProgramTest, free_ports, without_proc
from toy import SHARED, without_times, write_recipe

TRAIN, TORCHRUN = sys.argv[1:3]
# Of torchrun's agents: one may come late or back.
LATE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


class TrainingTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 1500, 20, SHARED)

    def train(self, output, *arguments, launcher=(), status=0):
        done = subprocess.run([*launcher, TRAIN, self.root / "tiny.yaml", "--output", output, *arguments],
                              capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def torchrun(self, *arguments):
        return (TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", "2", *arguments)

    def workers(self, parent):
        return list(map(int, pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()))

    def metrics(self, output):
        return [without_times(json.loads(line)) for line in (output / "metrics.jsonl").read_text().splitlines()]


class DistributedTest(TrainingTest):
    def assert_close(self, left, right):
        left, right = (load_file(output / "model.safetensors") for output in (left, right))
        self.assertEqual(left.keys(), right.keys())
        for name, values in left.items():
            self.assertLess(abs(values - right[name]).max(), 2e-5, name)

    def test_any_number_of_processes_trains_the_same_model(self):
        alone = self.root / "alone"
        self.train(alone)
        for count in (1, 2, 3):
            output = self.root / f"processes-{count}"
            text = self.train(output, "--processes", str(count))
            if count > 1:
                for rank in range(count):
                    self.assertIn(f"rank {rank} of {count} (--processes), Gloo, device cpu", text)
            self.assert_close(alone, output)  # with dropout, and micro-batches in other hands
            for ours, theirs in zip(self.metrics(output)[1:], self.metrics(alone)[1:], strict=True):  # but the header
                self.assertEqual(ours.keys(), theirs.keys())
                self.assertEqual(ours["step"], theirs["step"])
                self.assertAlmostEqual(ours["loss"], theirs["loss"], places=4)
                self.assertEqual(ours.get("target_tokens"), theirs.get("target_tokens"))
        recomputed = self.root / "recomputed"  # in backward passes within those that sum the gradients
        self.train(recomputed, "--processes", "2", "--set", "training.recompute=true")
        self.assertEqual((recomputed / "model.safetensors").read_bytes(),
                         (self.root / "processes-2" / "model.safetensors").read_bytes())
        # Two passes with dropout of their own, and layers left out: both follow from the micro-batch alone.
        regularised = [self.root / f"regularised-{count}" for count in (1, 2)]
        for count, output in enumerate(regularised, start=1):
            self.train(output, "--processes", str(count), "--set", "training.rdrop=5", "--set", "training.layer_drop=0.3")
        self.assert_close(*regularised)
        self.assertNotEqual(self.metrics(regularised[0])[1]["loss"], self.metrics(alone)[1]["loss"])
        # What a run that was interrupted ends with is what it would have been, whatever order a ring adds in.
        parts = self.root / "three-in-parts"
        self.train(parts, "--processes", "3", "--set", "training.steps=5")
        self.train(parts, "--processes", "3")
        self.assertEqual((parts / "model.safetensors").read_bytes(), (self.root / "processes-3" / "model.safetensors").read_bytes())
        # A checkpoint of two processes goes on with three, or with one; whole, though each had a part of the moments.
        sharded = ("--set", "training.shard_optimizer=true")
        for count in (1, 2, 3):
            output = self.root / f"two-then-{count}"
            self.train(output, "--processes", "2", *sharded, "--set", "training.steps=4")
            self.assertIn("going on from", self.train(output, "--processes", str(count), *sharded))
            if count != 2:
                self.assert_close(alone, output)
                continue
            for file in ("model.safetensors", "checkpoints/step-00000012/optimizer.safetensors"):
                self.assertEqual((output / file).read_bytes(), (self.root / "processes-2" / file).read_bytes())

    def test_validation_is_shared_and_finds_the_same_to_the_bit(self):
        found = []
        for count in (1, 2, 3):
            output = self.root / f"validated-{count}"
            # A rate that moves no weight: all runs judge the same model.
            self.train(output, "--processes", str(count), "--set", "training.rate_factor=1e-30")
            lines = [line for line in self.metrics(output) if line["kind"] in ("validation", "final")]
            self.assertEqual([(line["kind"], line["step"]) for line in lines], [("validation", 6), ("final", 12)])
            self.assertIn("bleu", lines[0])
            found.append([lines, *((output / "validation" / name).read_bytes()
                                   for name in ("step-00000006.txt", "final.txt"))])
            self.assertEqual(found[-1][1].count(b"\n"), 20)
        self.assertEqual(found[1], found[0])
        self.assertEqual(found[2], found[0])

    def tensors(self, output):
        """Of a run: what it publishes, and what its last checkpoint knows of the optimizer."""
        state = load_file(output / "checkpoints" / "step-00000012" / "optimizer.safetensors")
        return {**load_file(output / "model.safetensors"), **{f"state {name}": value for name, value in state.items()}}

    def gradient_norm(self, tensors):
        """Of Adam's first moments, a weighted mean of the gradients whose weights sum to less than 1."""
        return sum(float((values**2).sum()) for name, values in tensors.items() if "first_moment" in name) ** 0.5

    def test_clipping_the_moving_average_and_bf16_do_not_depend_on_the_number_of_processes(self):
        limit, losses = 0.3, {}
        for precision in ("float32", "bf16"):
            settings = [f"training.precision={precision}", f"training.clip_norm={limit}", "training.moving_average=0.9"]
            outputs = [self.root / f"{precision}-{count}" for count in (1, 2, 3)]
            for count, output in enumerate(outputs, start=1):
                self.train(output, "--processes", str(count), *(part for each in settings for part in ("--set", each)))
            alone, *several = map(self.tensors, outputs)
            losses[precision] = [line["loss"] for line in self.metrics(outputs[0]) if line["kind"] == "train"]
            for number, tensors in enumerate(several, start=2):
                self.assertEqual(tensors.keys(), alone.keys())
                for name, values in alone.items():
                    with self.subTest(f"{precision}, {number} processes, {name}"):
                        difference = abs(tensors[name] - values)
                        if precision == "float32":
                            self.assertLess(difference.max(), 1e-5 * abs(values).max() + 1e-12)
                        elif "moment" in name:
                            # Sums in another order round some weights, later, to a neighbour among the bf16 numbers:
                            # of a gradient next to zero that changes the sign, and so the weight's whole step.
                            self.assertLess(difference.max(), 1e-2 * abs(values).max())
                        else:
                            self.assertLess(difference.mean(), 2e-5)
            # All three did something: gradients are no longer than the limit, and the average is not the last weights.
            self.assertLess(self.gradient_norm(alone), limit)
            name = "encoder.layers.0.feed_forward.outer.weight"
            self.assertGreater(abs(alone[name] - alone[f"state weight.{name}"]).max(), 1e-4)
        self.assertNotEqual(losses["float32"], losses["bf16"])
        unclipped = self.root / "unclipped"
        self.train(unclipped, "--set", "training.precision=float32")
        self.assertGreater(self.gradient_norm(self.tensors(unclipped)), limit)

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "takes more addresses than a limit of memory can allow")
    def test_micro_batches_fit_the_process_with_the_least_memory(self):
        def sizes(limits):
            output = self.root / f"auto-{len(limits)}-{min(limits)}"
            port = str(free_ports(1)[0])
            processes = []
            for rank, limit in enumerate(limits):
                environment = dict(ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(len(limits)), LOCAL_RANK=str(rank),
                                   LOCAL_WORLD_SIZE=str(len(limits)), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                processes.append(subprocess.Popen(
                    [TRAIN, self.root / "tiny.yaml", "--output", output, "--set", "training.batch_tokens=800000",
                     "--set", "training.micro_batch_tokens=0", "--set", "training.micro_batch=auto", "--set",
                     "training.steps=2"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    preexec_fn=lambda bytes=limit: resource.setrlimit(resource.RLIMIT_AS, (bytes, bytes))))
            texts = [process.communicate(timeout=200)[0] for process in processes]
            self.assertEqual([process.returncode for process in processes], [0] * len(limits), "".join(texts))
            return int(re.search(r"micro-batches of (\d+) tokens fit", texts[0])[1])

        much, little = 6_000_000_000, 2_000_000_000
        self.assertLess(sizes([much, little]), sizes([much, much]))

    def test_a_signal_stops_all_processes_with_a_checkpoint(self):
        output = self.root / "interrupted"
        with open(self.root / "log", "w+") as log:
            process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, "--processes", "2", "--set",
                                        "training.steps=100000"], env=ENVIRONMENT, stdout=log, stderr=log)
            while not list(output.glob("checkpoints/step-*")):
                self.assertIsNone(process.poll(), "ended before its first checkpoint")
                time.sleep(0.01)
            # As a socket sends it whose other end has died: no reason to end without a word.
            for rank in self.workers(process):
                os.kill(rank, signal.SIGPIPE)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=60), 130)
            text = (self.root / "log").read_text()
        self.assertIn("the same command goes on", text)
        stopped = int(text.split("stopped after step ")[1].split(";")[0])
        self.assertTrue(list(output.glob(f"checkpoints/*step-{stopped:08}")))

    def test_a_signal_to_every_process_leaves_a_checkpoint(self):
        # As a service that is stopped gets it, or a machine that shuts down; the first process passes its own on.
        output = self.root / "service"
        with open(self.root / "log", "w+") as log:
            process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, "--processes", "2", "--set",
                                        "training.steps=100000"], env=ENVIRONMENT, stdout=log, stderr=log)
            while not list(output.glob("checkpoints/step-*")):
                self.assertIsNone(process.poll(), "ended before its first checkpoint")
                time.sleep(0.01)
            for each in (process.pid, *self.workers(process)):
                os.kill(each, signal.SIGTERM)
            process.wait(timeout=60)
            text = (self.root / "log").read_text()
        self.assertEqual(process.returncode, 143, text)
        stopped = int(text.split("stopped after step ")[1].split(";")[0])
        self.assertTrue(list(output.glob(f"checkpoints/*step-{stopped:08}")), text)

    def test_all_processes_go_on_from_one_of_two_checkpoints_of_a_step(self):
        # An interruption's and a scheduled one, as a kill leaves them that comes before the first of them is discarded.
        output = self.root / "both kinds"
        self.train(output, "--processes", "2")
        model = (output / "model.safetensors").read_bytes()
        last = output / "checkpoints" / "step-00000012"
        shutil.copytree(last, last.with_name(f"interrupted-{last.name}"))
        for name in ("model.safetensors", "summary.json", "checksums.xxh128"):
            (output / name).unlink()
        self.train(output, "--processes", "2")
        self.assertEqual((output / "model.safetensors").read_bytes(), model)

    def test_mistakes_are_named_once(self):
        out = self.root / "refused"
        text = self.train(out, "--processes", "2", "--set", "training.keep_checkpoints=0", status=2)
        self.assertEqual(text.count("\n"), 1, text)
        done = subprocess.run([TRAIN, self.root / "tiny.yaml", "--output", out], capture_output=True, text=True,
                              env=dict(ENVIRONMENT, RANK="0", WORLD_SIZE="2"))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("LOCAL_WORLD_SIZE", done.stderr)
        if subprocess.run(without_proc("true"), capture_output=True).returncode == 0:
            text = self.train(out, "--processes", "2", launcher=without_proc(), status=1)
            self.assertEqual(text.count("\n"), 1, text)
            self.assertIn("--processes: the file of this program is not known (/proc/self/exe: ", text)


class RanksTest(TrainingTest):
    """Two ranks as a launcher starts them by hand: each in its own folder, with its own arguments."""

    def start_ranks(self, *arguments, count=2, of=2, places=None, own=((), ())):
        port = str(free_ports(1)[0])
        processes = []
        for rank in range(count):
            environment = dict(ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(of), LOCAL_RANK=str(rank),
                               LOCAL_WORLD_SIZE=str(of), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            processes.append(subprocess.Popen(
                [TRAIN, self.root / "tiny.yaml", *arguments, *own[rank]], env=environment, text=True,
                cwd=places[rank] if places else self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return processes

    def ranks(self, *arguments, statuses=(0, 0), **others):
        processes = self.start_ranks(*arguments, **others)
        texts = [process.communicate(timeout=100)[0] for process in processes]
        self.assertEqual(tuple(process.returncode for process in processes), statuses, "".join(texts))
        return texts

    def places(self, name):
        places = [self.root / f"{name}-{rank}" for rank in range(2)]
        for place in places:
            place.mkdir()
        return places

    def test_a_rank_that_reads_another_text_is_named(self):
        places = self.places("texts")
        for language in ("en", "de"):
            text = (self.root / f"valid.{language}").read_text()
            for place in places:
                (place / f"v.{language}").write_text(text)
        (places[1] / "v.de").write_text(text.replace("rot", "rot ", 1))  # which is the same in pieces
        output = self.root / "texts"
        for text in self.ranks("--output", output, "--set", "data.validation_source=v.en", "--set",
                               "data.validation_target=v.de", places=places, statuses=(2, 2)):
            self.assertIn("error: validation text: differs between processes: 'checksum ", text)
        self.assertFalse((output / "checkpoints").exists())

    def test_a_run_folder_that_is_not_shared_is_said_to_be(self):
        remedy = "; the run's folder must be one that all machines see"
        places = self.places("folders")
        for text in self.ranks("--output", "run", places=places, statuses=(2, 2)):
            self.assertIn(f"error: run: rank 1 does not see rank 0's vocabulary.model{remedy}", text)
        # A stale copy, and one of another run with a checkpoint of the same step.
        first, second = (place / "run" for place in places)
        shutil.rmtree(second, ignore_errors=True)
        self.train(first, "--set", "training.steps=4")
        shutil.copytree(first, second)
        self.train(first, "--set", "training.steps=8")
        going_on = ("--output", "run", "--set", "training.steps=12")
        told = "error: run/checkpoints: rank 1 does not see the checkpoint of step 8 that rank 0 goes on from"
        for text in self.ranks(*going_on, places=places, statuses=(2, 2)):
            self.assertIn(told + remedy, text)
        self.train(second, "--set", "training.steps=8", "--set", "training.log_every=3")
        for text in self.ranks(*going_on, places=places, statuses=(2, 2)):
            self.assertIn(f"{told}, but another{remedy}", text)

    def test_where_each_rank_computes_is_its_own_matter(self):
        output = self.root / "threads"
        self.ranks("--output", output, own=(("--threads", "1"), ("--threads", "2")))
        self.assertTrue((output / "model.safetensors").exists())
        places = self.places("outputs")
        for text in self.ranks(own=(("--output", "a"), ("--output", "b")), places=places, statuses=(2, 2)):
            self.assertIn("settings: differs between processes: 'training.output: a' on rank 0, but 'training.output: b' on rank 1",
                          text)

    def test_warnings_are_printed_once(self):
        texts = "".join(self.ranks("--output", self.root / "warned", "--set", "training.checkpoint_every=0"))
        self.assertEqual(texts.count("no checkpoint is written before the end"), 1, texts)

    def test_what_is_done_once_is_done_by_one_rank(self):
        output = self.root / "undone"
        self.train(output)
        before = (output / "metrics.jsonl").read_bytes()
        process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, "--restart", "--set",
                                    "training.steps=100000", "--set", "training.checkpoint_every=0"],
                                   env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in process.stdout:
            if "step " in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertNotEqual((output / "metrics.jsonl").read_bytes(), before)
        texts = self.ranks("--output", output, "--undo")
        self.assertIn("is as it was", texts[0])
        self.assertEqual(texts[1], "")
        self.assertEqual((output / "metrics.jsonl").read_bytes(), before)
        for what in ("--dry-run", "--settings"):
            self.assertEqual(self.ranks("--output", output, what)[1], "", what)

    def test_a_signal_ends_a_rank_that_waits_for_the_others(self):
        waiting, = self.start_ranks("--output", self.root / "alone", count=1)
        for line in waiting.stdout:
            if "rank 0 of 2" in line:
                break
        time.sleep(1)
        begun = time.monotonic()
        waiting.send_signal(signal.SIGTERM)
        rest = waiting.communicate(timeout=60)[0]
        self.assertEqual(waiting.returncode, -signal.SIGTERM, rest)
        self.assertLess(time.monotonic() - begun, 5)


class TorchrunTest(TrainingTest):
    """What torchrun starts again, on one machine and on several: most of it is waiting."""

    def test_a_run_under_torchrun_survives_the_death_of_a_rank(self):
        undisturbed = self.root / "undisturbed"
        more = ("--set", "training.steps=60")
        self.train(undisturbed, *more, launcher=self.torchrun())
        for victim, checkpoints in ((1, 1), (0, 3), (1, 5)):
            output = self.root / f"killed-{victim}-{checkpoints}"
            self.assertIn("going on from", self.train_and_kill(output, victim, 4 * checkpoints, *more))
            self.assert_same_run(output, undisturbed)

    def train_and_kill(self, output, victim, step, *arguments):
        """What a run under torchrun says that loses a rank when it has its checkpoint of `step`; 0: as soon as it is
        there."""
        with open(self.root / "log", "w+") as log:
            process = subprocess.Popen([*self.torchrun("--max-restarts", "3"), TRAIN, self.root / "tiny.yaml",
                                        "--output", output, *arguments], env=ENVIRONMENT, stdout=log, stderr=log)
            rank = None
            while rank is None or step > 0 and not self.has_checkpoint(output, step):
                self.assertIsNone(process.poll(), "ended before the moment came")
                time.sleep(0.002)
                rank = self.rank_of(process.pid, victim) if rank is None else rank
            os.kill(rank, signal.SIGKILL)
            self.assertEqual(process.wait(timeout=200), 0, (self.root / "log").read_text())
        return (self.root / "log").read_text()

    def has_checkpoint(self, output, step):
        return (output / "checkpoints" / f"step-{step:08}").is_dir()

    def assert_same_run(self, output, other):
        for file in ("model.safetensors", "checkpoints/step-00000060/optimizer.safetensors"):
            self.assertEqual((output / file).read_bytes(), (other / file).read_bytes())
        self.assertEqual(self.metrics(output), self.metrics(other))

    def test_restart_and_from_are_done_once_a_launch(self):
        more = ("--set", "training.steps=60")
        for flags in (("--restart",), ("--from", "4")):
            undisturbed = self.trained_twice(self.root / f"undisturbed{flags[0]}", *more, *flags)
            for machines in (1, 2):
                killed = self.root / f"killed{flags[0]}-{machines}"
                self.train(killed, "--processes", "2")
                if machines == 1:
                    text = self.train_and_kill(killed, 1, 24, *more, *flags)
                else:
                    # Where rank 0's agent begins again because the other has, it does not count that.
                    text = self.train_on_machines(killed, [(1, 24)], *more, *flags)
                begun = [int(step) for step in re.findall(r"going on from \S*step-(\d+)", text)]
                if flags == ("--from", "4"):
                    self.assertEqual(begun.pop(0), 4)
                self.assertEqual(len(begun), 1, text)
                self.assertGreaterEqual(begun[0], 24)
                self.assert_same_run(killed, undisturbed)

    def trained_twice(self, output, *arguments):
        self.train(output, "--processes", "2")
        self.train(output, "--processes", "2", *arguments)
        return output

    def test_restart_is_not_lost_with_a_first_attempt_that_came_to_nothing(self):
        more = ("--restart", "--set", "training.steps=60")
        undisturbed = self.trained_twice(self.root / "undisturbed-anew", *more)
        output = self.root / "killed-at-once"
        self.train(output, "--processes", "2")
        text = self.train_and_kill(output, 1, 0, *more)
        self.assertNotIn("going on from", text)
        self.assert_same_run(output, undisturbed)

    def rank_of(self, parent, rank):
        """The process of this rank that `parent` has started, if there is one."""
        for process in pathlib.Path("/proc").iterdir():
            try:
                if f"\0RANK={rank}\0" in "\0" + (process / "environ").read_text() and \
                        int((process / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                    return int(process.name)
            except (OSError, UnicodeDecodeError):
                continue  # gone meanwhile, or another user's
        return None

    def test_torchrun_told_to_end_leaves_a_checkpoint(self):
        output = self.root / "ended"
        with open(self.root / "log", "w+") as log:
            process = subprocess.Popen([*self.torchrun(), TRAIN, self.root / "tiny.yaml", "--output", output, "--set",
                                        "training.steps=100000"], env=ENVIRONMENT, stdout=log, stderr=log)
            while not list(output.glob("checkpoints/step-*")):
                self.assertIsNone(process.poll(), "ended before its first checkpoint")
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            text = (self.root / "log").read_text()
        stopped = int(text.split("stopped after step ")[1].split(";")[0])
        self.assertTrue(list(output.glob(f"checkpoints/*step-{stopped:08}")), text)

    def start_agent(self, name, port, nodes, output, *arguments, **environment):
        """A machine, as torchrun sees it; the rendezvous is on the one that is started first."""
        log = open(self.root / f"{name}.log", "w+")
        self.addCleanup(log.close)
        agent = subprocess.Popen(
            [TORCHRUN, "--no-python", "--nnodes", nodes, "--nproc-per-node", "1", "--rdzv-backend", "c10d",
             "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "machines", "--max-restarts", "3", "--rdzv-conf",
             "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3", "--local-addr", "127.0.0.1",
             TRAIN, self.root / "tiny.yaml", "--output", output, *arguments],
            env={**ENVIRONMENT, **environment}, stdout=log, stderr=log)
        self.addCleanup(self.end, agent)
        return agent

    def start_machines(self, name, nodes, output, *arguments, **environment):
        port, = free_ports(1)
        agents = []
        for number in (0, 1):
            agents.append(self.start_agent(f"{name}-{number}", port, nodes, output, *arguments, **environment))
            if number == 0:
                time.sleep(1)
        return agents, port

    def wait_for(self, condition, log, agents, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or any(agent.poll() is not None for agent in agents):
                self.fail((self.root / log).read_text())
            time.sleep(0.002)

    def train_on_machines(self, output, deaths, *arguments):
        """What a run on two machines says, of which a machine's rank is killed at a step, for each of `deaths`."""
        agents, _ = self.start_machines(output.name, "2", output, *arguments)
        logs = [f"{output.name}-{number}.log" for number in (0, 1)]
        for deaths_before, (number, step) in enumerate(deaths):
            # By processes that have begun after the death before.
            self.wait_for(lambda: sum((self.root / log).read_text().count("going on from") for log in logs) >= deaths_before
                          and self.has_checkpoint(output, step), logs[number], agents)
            for worker in self.workers(agents[number]):
                os.kill(worker, signal.SIGKILL)
        statuses = [agent.wait(timeout=200) for agent in agents]
        text = "".join((self.root / log).read_text() for log in logs)
        self.assertEqual(statuses, [0, 0], text)
        return text

    def test_a_run_on_several_machines_survives_the_death_of_a_rank(self):
        more = ("--set", "training.steps=60")
        undisturbed = self.root / "undisturbed-machines"
        self.train(undisturbed, "--processes", "2", *more)
        output = self.root / "machines"
        text = self.train_on_machines(output, [(1, 8), (0, 24)], *more)
        begun = [int(step) for step in re.findall(r"going on from \S*step-(\d+)", text)]
        self.assertEqual(len(begun), 2, text)  # no attempt was lost on agents that did not find each other
        self.assertGreaterEqual(begun[0], 8)
        self.assertGreaterEqual(begun[1], 24)
        self.assert_same_run(output, undisturbed)

    def wait_for_two(self, name, output, agents):
        """Until this machine trains with another."""
        def newest():
            names = [path.name.removeprefix("step-") for path in output.glob("checkpoints/step-*")]
            return max((int(name) for name in names if name.isdecimal()), default=0)

        self.wait_for(lambda: "of 2 (torchrun)" in (self.root / f"{name}.log").read_text(), f"{name}.log", agents)
        there = newest()
        self.wait_for(lambda: newest() > there, f"{name}.log", agents)

    def test_a_machine_that_goes_leaves_the_others_training(self):
        output = self.root / "fewer"
        agents, _ = self.start_machines("fewer", "1:2", output, "--set", "training.steps=3000",
                                        "--set", "training.checkpoint_every=50", **LATE)
        self.wait_for_two("fewer-1", output, agents)
        for process in (*self.workers(agents[1]), agents[1].pid):
            os.kill(process, signal.SIGKILL)
        self.assertEqual(agents[0].wait(timeout=300), 0, (self.root / "fewer-0.log").read_text())
        text = (self.root / "fewer-0.log").read_text()
        self.assertRegex(text, r"rank \d of 2 \(torchrun\)")
        self.assertIn("going on from", text)
        self.assertTrue((output / "model.safetensors").is_file())

    def test_a_machine_that_comes_back_is_taken_in(self):
        output = self.root / "back"
        alike = ("1:2", output, "--set", "training.steps=1000000", "--set", "training.checkpoint_every=50")
        agents, port = self.start_machines("back", *alike, **LATE)
        self.wait_for_two("back-1", output, agents)
        for process in (*self.workers(agents[1]), agents[1].pid):
            os.kill(process, signal.SIGKILL)
        self.end(agents.pop())
        self.wait_for(lambda: "going on from" in (self.root / "back-0.log").read_text(), "back-0.log", agents)
        agents.append(self.start_agent("back-2", port, *alike, **LATE))
        self.wait_for_two("back-2", output, agents)
        for agent in agents:
            agent.send_signal(signal.SIGTERM)
        for agent in agents:
            agent.wait(timeout=60)

    def end(self, process):
        if process.poll() is None:
            process.terminate()  # and its workers
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
