"""Several processes on this machine: distributed_test.py WORKER. Standard library only."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

WORKER, STAND_IN = sys.argv[1:3]
TORCHRUN = pathlib.Path(sys.executable).parent / "torchrun"
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMIX_", "SLURM_", "TRANSFORMER_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
ENVIRONMENT["OMP_NUM_THREADS"] = "1"


class Done:
    def __init__(self, process, timeout):
        begun = time.monotonic()
        try:
            self.out, self.errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.out, self.errors = process.communicate()
            raise AssertionError(f"still running after {timeout} s: {self.out}{self.errors}") from None
        self.seconds = time.monotonic() - begun
        self.status = process.returncode
        self.lines = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def __str__(self):
        return f"status {self.status} after {self.seconds:.1f} s\n{self.out}{self.errors}"


def start(command, environment=None, **more):
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**ENVIRONMENT, **(environment or {})}, **more)


def run(*arguments, timeout=120, **environment):
    return Done(start([WORKER, *arguments], environment), timeout)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def by_hand(count, *arguments, **environment):
    """The ranks as a launcher without a store of its own starts them: rank 0 holds the store."""
    port = str(free_port())
    return [start([WORKER, *arguments], {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}) for rank in range(count)]


def alive(process_id):
    try:
        return pathlib.Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class GradientsTest(unittest.TestCase):
    """As many processes as one likes compute what one computes from the whole batch."""

    def trained(self, done, world_size, steps=20, rounding=1e-9):
        self.assertEqual(done.status, 0, done)
        found = next(line for line in done.lines if "gradients" in line)
        self.assertEqual(found["world_size"], world_size)
        self.assertLess(found["gradients"], 1e-9)
        self.assertLess(found["weights"], rounding)
        self.assertLess(found["average"], rounding)
        self.assertGreater(found["moved"], 0.01)  # the steps did something
        self.assertEqual(found["steps"], steps)
        if world_size > 1:
            # However many micro-batches it has, a step sums every gradient once, bucket by bucket.
            self.assertGreater(min(found["buckets"]), 3)
            self.assertEqual(found["collectives"], sum(found["buckets"]))
            self.assertEqual(found["bytes"], steps * 8 * found["parameters"])
            self.assertEqual(found["last_bytes"], 8 * found["parameters"])
            self.assertTrue(found["ordered"])
            self.assertGreater(found["before_the_end"], 0)  # sums begin while gradients are still computed
        return next(line for line in done.lines if "own" in line)["own"]

    def test_one_process(self):
        self.assertEqual(max(self.trained(run("train"), 1)), 5)

    def test_two_processes(self):
        own = self.trained(run("processes=2", "train"), 2)
        self.assertEqual(sorted(set(own)), [0, 2])

    def test_clipped(self):
        for count in (1, 2, 3):
            done = run(f"processes={count}", "clip=0.05", "train")
            self.trained(done, count, rounding=1e-6)  # the norm is a float32 number
            self.assertGreater(next(line for line in done.lines if "gradients" in line)["largest_norm"], 0.1)

    def test_three_processes_with_unequal_parts(self):
        own = self.trained(run("processes=3", "micro_batches=4", "train"), 3)
        self.assertEqual(sorted(set(own)), [0, 1])

    def test_an_optimizer_in_parts(self):
        for count in (2, 3):
            self.trained(run(f"processes={count}", "shard=1", "train"), count, rounding=1e-12)
        numbers = 5 + 1 + 37 * 21 + 64 + 1 + 3 * 2 * 7 + 130
        for count in (1, 2, 3):
            done = run(f"processes={count}", "shard")
            self.assertEqual(done.status, 0, done)
            self.assertEqual(len(done.lines), 2 * count, done)  # in both types
            for line in done.lines:
                for what in ("stepped", "skipped", "gathered", "resumed"):
                    self.assertTrue(line[what], (what, line))
                self.assertLess(abs(line["own"] - numbers / count), 64)
                self.assertIn("here: the optimizer's 'second_moment.p3' is missing or of another shape", line["refused"])
            self.assertEqual(sum(line["own"] for line in done.lines), 2 * numbers)

    def test_a_task_of_ones_own(self):
        with tempfile.TemporaryDirectory() as folder:
            weights = {}
            for name, arguments in (("one", ()), ("two", ("processes=2",)), ("parts", ("processes=2", "shard=1"))):
                done = run(*arguments, f"folder={folder}/{name}", "validates=all", "trainer")
                self.assertEqual(done.status, 0, done)
                weights[name] = [line["weights"] for line in done.lines]
                lines = [json.loads(line) for line in pathlib.Path(folder, name, "metrics.jsonl").read_text().splitlines()]
                self.assertEqual([line["kind"] for line in lines],
                                 ["header", "train", "validation", "train", "validation", "train", "final"])
                self.assertEqual({line["rate"] for line in lines if "rate" in line}, {1e-3})
            # Rank 0's rate is everybody's.
            for two in weights["two"] + weights["parts"]:
                self.assertAlmostEqual(two, weights["one"][0], places=6)
            self.assertEqual(len(weights["two"]), 2)
            done = run("processes=2", f"folder={folder}/differ", "validates=one", "trainer")
            self.assertEqual(done.status, 2, done)
            self.assertIn("differs between processes: 'with validation' on rank 0, but 'without validation' on rank 1",
                          done.errors)
            self.assertFalse(pathlib.Path(folder, "differ").exists())

    def test_damage_that_one_rank_sees_is_named_by_all(self):
        with tempfile.TemporaryDirectory() as folder:
            for rank, process in enumerate(by_hand(2, f"folder={folder}/run", "damaged=1", "timeout=20", "trainer")):
                done = Done(process, 60)
                self.assertEqual(done.status, 1, done)
                self.assertIn("the optimizer's 'second_moment.linear.bias' is not finite", done.errors, f"rank {rank}")

    def test_sums_are_exact(self):
        done = run("processes=3", "sums")
        self.assertEqual(done.status, 0, done)
        self.assertEqual(sorted(line["rank"] for line in done.lines), [0, 1, 2])
        for line in done.lines:
            for what in ("exact", "shared", "zeros", "accumulated", "any"):
                self.assertTrue(line[what], (what, line))
            self.assertEqual(line["all_reduce"], 3 * 5 + 0 + 1 + 2)
            self.assertEqual(line["broadcast"], 7)

    def test_sums_of_one_process(self):
        line, = run("sums").lines
        self.assertTrue(line["zeros"] and line["accumulated"] and line["shared"] and line["exact"])

    def test_differences_are_found(self):
        done = run("processes=2", "differ")
        self.assertEqual(len(done.lines), 2, done)
        for found in done.lines:
            self.assertEqual({name: found[name] for name in found if name != "rank"}, {
                "text": "Error: settings: differs between processes: 'b: 2' on rank 0, but 'b: 3' on rank 1",
                "longer": "Error: settings: differs between processes: nothing on rank 0, but 'b: 3' on rank 1",
                "same": "nothing",
                "seen": "nothing",
                "unseen": "Error: runs/a: rank 1 does not see rank 0's file; the run's folder must be one that all "
                          "machines see",
                "another": "Error: runs/a: rank 1 does not see rank 0's file, but another; the run's folder must be "
                           "one that all machines see",
                "distinct": "nothing",
                "unknown": "nothing",
                "shared": "Error: device 'cuda': ranks 0 and 1 have the same: GPU-a",
                "shape": "Error: model: differs between processes: 'weight [3, 2] Float' on rank 0, but "
                         "'weight [4, 2] Float' on rank 1",
                "values": "Failure: bias: rank 1 holds other values than rank 0",
                "unused": "Failure: bias: this parameter has no part in the loss"})


class FailureTest(unittest.TestCase):
    """One process fails in the middle of a backward pass; the others end, soon, and say who it was."""

    TIMEOUT = 3

    def failed(self, how, expected, rank=1, seconds=25, count=3):
        done = run(f"processes={count}", f"how={how}", f"rank={rank}", f"timeout={self.TIMEOUT}", "grace=3", "fail")
        self.assertNotEqual(done.status, 0, done)
        self.assertLess(done.seconds, seconds, done)
        for other in set(range(count)) - {rank}:
            self.assertRegex(done.errors, rf"error: rank {other}: stopped, because rank {rank} {expected}", done)
        return done

    def test_killed(self):
        done = self.failed("kill", r"was ended by signal 9 \(Killed\)", seconds=10)
        self.assertIn("rank 1 was ended by signal 9 (Killed)", done.errors.splitlines()[0])

    def test_killed_rank_0(self):
        self.failed("kill", r"was ended by signal 9 \(Killed\)", rank=0, seconds=10)

    def test_stopped(self):
        # What it is told wakes it.
        done = self.failed("stop", r"has given no sign of life for \d+ s", rank=2)
        self.assertIn("rank 2 was ended by signal 15 (Terminated)", done.errors)

    def test_asleep(self):
        self.failed("sleep", rf"did not come to an operation of all ranks within {self.TIMEOUT} s", count=2)

    def test_exception(self):
        self.failed("throw", "failed: a made-up failure", seconds=10)

    def test_out_of_memory(self):
        self.failed("memory", "failed: out of memory", seconds=10, count=2)

    def test_ended_early(self):
        self.failed("exit", "has given no sign of life for", seconds=20, count=2)

    def test_rank_0_holds_the_store(self):
        for how, expected in (("kill", "has given no sign of life for|holds the store"),
                              ("stop", "has given no sign of life for|holds the store"),
                              ("throw", "failed: a made-up failure")):
            with self.subTest(how):
                first, second = by_hand(2, f"how={how}", "rank=0", f"timeout={self.TIMEOUT}", "fail")
                done = Done(second, 30)
                if how == "stop":
                    first.kill()
                self.assertNotEqual(Done(first, 30).status, 0)
                self.assertEqual(done.status, 1, done)
                self.assertRegex(done.errors, f"because rank 0.*({expected})")

    def test_who_does_not_come(self):
        environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        done = run("timeout=2", "sums", timeout=30, **environment)
        self.assertEqual(done.status, 1, done)
        self.assertIn("ranks 1, 2 of 3 did not come to 127.0.0.1:", done.errors)
        environment.update(RANK="1", LOCAL_RANK="1")
        done = run("timeout=2", "sums", timeout=30, **environment)
        self.assertEqual(done.status, 1, done)
        self.assertIn("cannot reach rank 0 at 127.0.0.1:", done.errors)

    def test_port_in_use(self):
        with socket.socket() as other:
            other.bind(("0.0.0.0", 0))
            other.listen()
            done = run("timeout=2", "sums", timeout=30, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(other.getsockname()[1]))
        self.assertEqual(done.status, 2, done)
        self.assertIn("MASTER_PORT: rank 0 cannot open port", done.errors)

    def test_work_of_rank_0_has_no_time_limit(self):
        done = run("processes=2", "timeout=1", "seconds=3", "alone")
        self.assertEqual(done.status, 0, done)
        self.assertEqual(done.lines, [{"done": True}])
        done = run("processes=2", "timeout=1", "seconds=0", "how=throw", "alone")
        self.assertEqual(done.status, 1, done)
        self.assertIn("rank 1: stopped, because rank 0 failed: a made-up failure", done.errors)
        done = run("processes=2", "timeout=1", "seconds=0", "how=kill", "alone")
        self.assertEqual(done.status, 1, done)
        self.assertIn("rank 1: stopped, because rank 0 was ended by signal 9 (Killed)", done.errors)

    def test_work_of_rank_0_is_not_cut_off_where_another_dies_meanwhile(self):
        done = run("processes=2", "timeout=1", "seconds=6", "meanwhile=kill", "grace=1", "alone")
        self.assertEqual(done.status, 1, done)
        self.assertEqual(done.lines, [{"written": True}])

    def test_a_mistake_decides_the_status_whoever_ends_first(self):
        for rank in ("0", "2"):
            done = run("processes=3", f"rank={rank}", "mistake")
            self.assertEqual(done.status, 2, done)

    def one_rank(self, rank, address, port, *arguments):
        return run(*arguments, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR=address, MASTER_PORT=str(port))

    def test_another_run_at_the_same_port_harms_nobody(self):
        processes = by_hand(2, "timeout=30", "seconds=10", "begins=1", "alone")
        self.assertIn("begun", processes[0].stdout.readline())
        port = pathlib.Path(f"/proc/{processes[0].pid}/environ").read_text().split("MASTER_PORT=")[1].split("\0")[0]
        stranger = self.one_rank(1, "127.0.0.1", port, "timeout=30", "alone")
        self.assertEqual(stranger.status, 2, stranger)
        self.assertIn("another rank 1 has come to", stranger.errors)
        for process in processes:
            done = Done(process, 60)
            self.assertEqual(done.status, 0, done)

    def test_a_rank_that_was_told_another_number_of_ranks_says_so(self):
        for first, second in ((2, 3), (3, 2)):
            port = str(free_port())
            processes = [start([WORKER, "timeout=4", "sums"], {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank, size in enumerate((first, second))]
            told = f"WORLD_SIZE: is {second} on rank 1, but {first} on rank 0; start all ranks of a run with the same"
            leader, other = (Done(process, 30) for process in processes)
            self.assertEqual((other.status, leader.status), (2, 1), f"{other}{leader}")
            self.assertIn(f"error: {told}", other.errors)
            self.assertIn(f"rank 0: stopped, because rank 1 failed: {told}", leader.errors)

    def test_an_interface_that_there_is_not_is_named(self):
        names = ", ".join(name for _, name in socket.if_nameindex())
        told = f"GLOO_SOCKET_IFNAME: is 'eth9', and this machine has no such interface (it has {names})"
        port = str(free_port())
        processes = [start([WORKER, "timeout=4", "sums"], {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": name})
            for rank, name in enumerate(("lo,eth9", "eth9"))]
        first, second = (Done(process, 30) for process in processes)
        self.assertEqual((first.status, second.status), (1, 2), f"{first}{second}")
        self.assertIn(f"error: {told}", second.errors)
        self.assertIn(f"rank 0: stopped, because rank 1 failed: {told}", first.errors)
        done = run("processes=2", "sums", GLOO_SOCKET_IFNAME="")
        self.assertEqual(done.status, 0, done)

    def test_a_service_of_another_kind_is_not_waited_for(self):
        with socket.create_server(("127.0.0.1", 0)) as service:
            done = self.one_rank(1, "127.0.0.1", service.getsockname()[1], "timeout=1", "sums")
        self.assertEqual(done.status, 1, done)
        self.assertIn("does not answer as a store does", done.errors)
        self.assertLess(done.seconds, 30)

    def test_an_address_that_is_none_is_named(self):
        done = self.one_rank(0, "no-such-host.invalid", free_port(), "timeout=1", "sums")
        self.assertEqual(done.status, 2, done)
        self.assertIn("error: MASTER_ADDR: rank 0 cannot reach itself at no-such-host.invalid:", done.errors)

    def test_nccl_without_a_gpu(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("this machine has a GPU")
        built = pathlib.Path(WORKER).with_name("transformer_nccl.so").exists()
        self.nccl_refused(WORKER, "NCCL itself refuses (" if built else "there is no transformer_nccl.so in ",
                          "nvidia-smi" if built else "scripts/setup")

    def test_an_nccl_module_that_does_not_load(self):
        with tempfile.TemporaryDirectory() as folder:
            worker = shutil.copy(WORKER, pathlib.Path(folder).resolve())
            module = pathlib.Path(worker).with_name("transformer_nccl.so")
            self.nccl_refused(worker, f"there is no transformer_nccl.so in {module.parent};", "scripts/setup")
            module.symlink_to("nowhere")
            self.nccl_refused(worker, f"there is no transformer_nccl.so in {module.parent};", "scripts/setup")
            module.unlink()
            module.write_bytes(b"damaged")
            self.nccl_refused(worker, f"its module is there, but cannot be loaded ({module}: file too short)",
                              "install the LibTorch for CUDA")
            # A library that needs what this machine has not, and one that is no module of ours.
            ctypes.CDLL("libm.so.6")
            library = next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
                           if "/libm.so" in line or "/libm-" in line)
            code = pathlib.Path(library).read_bytes()
            module.write_bytes(code.replace(b"\0libc.so.6\0", b"\0libq.so.6\0"))
            self.nccl_refused(worker, "its module is there, but cannot be loaded (libq.so.6: cannot open shared object "
                                      "file: No such file or directory)", "install the LibTorch for CUDA")
            module.write_bytes(code)
            self.nccl_refused(worker, "transformer_nccl.so belongs to another version", "build it again")

    def test_nccl_is_let_go_of(self):
        with tempfile.TemporaryDirectory() as folder:
            worker = shutil.copy(WORKER, pathlib.Path(folder).resolve())
            shutil.copy(STAND_IN, pathlib.Path(worker).with_name("transformer_nccl.so"))
            done = Done(start([worker, "processes=2", "nccl=1", "timeout=20", "sums"]), 120)
            self.assertEqual(done.status, 0, done)
            for rank in (0, 1):
                self.assertEqual(done.errors.count(f"NCCL of rank {rank} is shut down"), 1, done)
            self.assertNotIn("aborted", done.errors)
            # Where a rank has failed, operations will never end, and shutting down would wait for them.
            done = Done(start([worker, "processes=2", "nccl=1", "timeout=20", "how=throw", "fail"]), 120)
            self.assertEqual(done.status, 1, done)
            for rank in (0, 1):
                self.assertEqual(done.errors.count(f"NCCL of rank {rank} is aborted"), 1, done)
            self.assertNotIn("shut down", done.errors)

    def nccl_refused(self, worker, reason, remedy):
        done = Done(start([worker, "processes=2", "nccl=1", "timeout=20", "sums"]), 120)
        self.assertEqual(done.status, 2, done)
        line = next(line for line in done.errors.splitlines() if "error: backend 'nccl': " in line)
        self.assertIn("error: backend 'nccl': " + reason, line)
        self.assertIn(remedy, line.split("; ", 1)[1])


class AttemptsTest(unittest.TestCase):
    """Attempts that share a store, as under torchrun, whose agents hold it and count restarts each by itself."""

    def setUp(self):
        self.store = subprocess.Popen([WORKER, "store"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env=ENVIRONMENT)
        self.addCleanup(self.store.communicate)
        self.port = str(json.loads(self.store.stdout.readline())["port"])

    def rank(self, rank, size, restarts=0, timeout=60):
        return start([WORKER, f"timeout={timeout}", "sums"], {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port, "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RUN_ID": "shared", "TORCHELASTIC_RESTART_COUNT": str(restarts)})

    def meet(self, processes):
        for process in processes:
            done = Done(process, 90)
            self.assertEqual(done.status, 0, done)
            self.assertEqual(done.lines[0]["all_reduce"], {2: 2 * 5 + 0 + 1, 3: 3 * 5 + 0 + 1 + 2}[len(processes)])

    def test_a_new_attempt_is_not_taken_in_by_what_an_earlier_one_left(self):
        self.meet([self.rank(0, 2), self.rank(1, 2)])
        for first, second in ((1, 0), (0, 1)):
            early = self.rank(first, 2, restarts=first)
            time.sleep(2)
            self.meet([early, self.rank(second, 2, restarts=second)])

    def test_a_rank_without_a_leader_of_its_own_says_so(self):
        self.meet([self.rank(0, 2), self.rank(1, 2)])
        done = Done(self.rank(1, 2, timeout=2), 30)
        self.assertEqual(done.status, 1, done)
        self.assertIn(f"rank 1: rank 0 of 2 did not come to 127.0.0.1:{self.port} within 2 s", done.errors)
        done = Done(self.rank(0, 3, timeout=2), 30)
        self.assertEqual(done.status, 1, done)
        self.assertIn(f"rank 0: ranks 1, 2 of 3 did not come to 127.0.0.1:{self.port} within 2 s", done.errors)

    def test_a_rank_that_is_started_again_before_all_have_come(self):
        leader, early = self.rank(0, 3), self.rank(1, 3)
        time.sleep(2)
        early.kill()
        Done(early, 30)
        self.meet([leader, self.rank(1, 3, restarts=1), self.rank(2, 3)])

    def test_rank_0_is_started_again_before_all_have_come(self):
        leader, early = self.rank(0, 3), self.rank(1, 3)
        time.sleep(2)
        leader.kill()
        Done(leader, 30)
        self.meet([self.rank(0, 3, restarts=1), early, self.rank(2, 3)])

    def test_attempts_of_another_number_of_processes_do_not_meet(self):
        leader, other = self.rank(0, 3, timeout=8), self.rank(1, 3, timeout=8)
        self.meet([self.rank(0, 2), self.rank(1, 2)])
        for process in (leader, other):
            done = Done(process, 60)
            self.assertEqual(done.status, 1, done)
            self.assertIn("rank 2 of 3 did not come", done.errors)


class LauncherTest(unittest.TestCase):
    def launched(self, done, launcher, agent_store, attempts=1):
        self.assertEqual(done.status, 0, done)
        lines = [line for line in done.lines if "launcher" in line]
        self.assertEqual(sorted((line["rank"], line["local_rank"]) for line in lines),
                         sorted([(0, 0), (1, 1)] * attempts), done)
        self.assertEqual(len({line["run"] for line in lines}), 1)
        for line in lines:
            self.assertEqual((line["launcher"], line["world_size"], line["local_world_size"], line["agent_store"]),
                             (launcher, 2, 2, agent_store))

    def trained(self, done):
        found = next(line for line in done.lines if "gradients" in line)
        self.assertEqual(found["world_size"], 2)
        self.assertLess(found["gradients"], 1e-9)

    def test_torchrun(self):
        # --standalone: its store on a free port, which the agent holds and the processes share. So does the second
        # attempt, which finds there what ranks of the first said of their failure.
        torchrun = [TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
                    "--monitor-interval", "0.1"]
        done = Done(start([*torchrun, WORKER, "launch=1", "how=once", "steps=3", "timeout=30", "train"]), 120)
        self.launched(done, "torchrun", True, attempts=2)
        self.trained(done)
        self.assertIn("error: at first", done.errors)

    def test_torchrun_prints_the_cause(self):
        # Rank 0 ends because of rank 1, in the same second perhaps.
        torchrun = [TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", "2", "--monitor-interval", "2"]
        done = Done(start([*torchrun, WORKER, "how=throw", "rank=1", "timeout=30", "fail"]), 120)
        self.assertNotEqual(done.status, 0)
        cause = done.errors[done.errors.index("Root Cause"):]
        self.assertRegex(cause, r"rank +: 1 ")
        self.assertRegex(cause, "traceback : a made-up failure")

    def test_srun(self):
        """Its environment, without Slurm: two tasks on each of two machines, all of them this one."""
        port = str(free_port())
        processes = [start([WORKER, "launch=1", "sums"], {
            "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": "0", "SLURM_NODEID": str(rank), "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            "SLURM_STEP_NODELIST": "localhost,nowhere[1-2]", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"})
            for rank in range(2)]
        for rank, process in enumerate(processes):
            done = Done(process, 60)
            self.assertEqual(done.status, 0, done)
            self.assertEqual(done.errors, "")
            launch, sums = done.lines
            self.assertEqual((launch["launcher"], launch["rank"], launch["local_world_size"]), ("srun", rank, 1))
            self.assertEqual(sums["all_reduce"], 2 * 5 + 0 + 1)

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        if not mpirun:
            self.skipTest("mpirun is not installed")
        done = Done(start([mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", WORKER, "launch=1", "steps=3",
                           "train"]), 60)
        self.launched(done, "mpirun", False)
        self.trained(done)

    def test_processes(self):
        environment = {name: value for name, value in ENVIRONMENT.items() if name != "OMP_NUM_THREADS"}
        done = Done(subprocess.Popen([WORKER, "processes=2", "launch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, env=environment), 60)
        self.launched(done, "--processes", True)
        for line in done.lines:
            self.assertEqual(line["threads"], str(max(1, len(os.sched_getaffinity(0)) // 2)))

    def test_inside_another_launcher(self):
        done = run("processes=2", "launch", RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        self.assertEqual(done.status, 2, done)
        self.assertIn("--processes: this process is itself rank 0 of 2, started by torchrun", done.errors)

    def test_no_processes(self):
        done = run("processes=0", "launch")
        self.assertEqual(done.status, 2, done)


class ParentTest(unittest.TestCase):
    """The parent of --processes."""

    def test_statuses(self):
        done = run("processes=2", "status=7", "rank=1", "exit")
        self.assertEqual(done.status, 7, done)
        self.assertEqual(done.errors, "distributed_worker: rank 1 ended with status 7\n")

    def test_the_others_are_stopped(self):
        done = run("processes=3", "status=7", "rank=1", "others=1000", "grace=1", "exit")
        self.assertEqual(done.status, 7, done)
        self.assertLess(done.seconds, 15)
        for rank in (0, 2):
            self.assertIn(f"rank {rank} was ended by signal 15 (Terminated)", done.errors)

    def started(self, count):
        # In a group of its own, as a shell starts it: Ctrl-Z stops what somebody can continue.
        process = start([WORKER, f"processes={count}", "signal"], preexec_fn=os.setpgrp)
        children = {}
        for _ in range(count):
            line = json.loads(process.stdout.readline())
            children[line["rank"]] = line["pid"]
        self.assertEqual(sorted(children), list(range(count)))
        return process, children

    def test_signals_are_passed_on_once(self):
        process, children = self.started(2)
        process.send_signal(signal.SIGTERM)
        done = Done(process, 30)
        self.assertEqual(sorted((line["rank"], line["signal"]) for line in done.lines),
                         [(0, signal.SIGTERM), (1, signal.SIGTERM)])
        self.assertEqual(done.status, 130, done)
        self.assertEqual(done.errors, "")
        self.assertFalse(any(map(alive, children.values())))

    def test_a_signal_to_the_group_arrives_once(self):
        # As a terminal's Ctrl-C does.
        process = subprocess.Popen([WORKER, "processes=2", "signal"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=ENVIRONMENT, start_new_session=True)
        for _ in range(2):
            process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        done = Done(process, 30)
        self.assertEqual([line["signal"] for line in done.lines], [signal.SIGINT, signal.SIGINT])

    def test_a_signal_that_comes_before_a_rank_is_ready_ends_all(self):
        process = start([WORKER, "processes=2", "late"])
        for _ in range(2):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        done = Done(process, 50)
        self.assertEqual(done.status, 130, done)
        self.assertIn("rank 1: stopped, because rank 0 was ended by signal 2", done.errors)

    def test_ctrl_z_stops_all(self):
        def state(process_id):
            return pathlib.Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
        process, children = self.started(2)
        everybody = [process.pid, *children.values()]
        process.send_signal(signal.SIGTSTP)
        self.assertTrue(wait_until(lambda: all(state(one) == "T" for one in everybody)))
        process.send_signal(signal.SIGCONT)
        self.assertTrue(wait_until(lambda: all(state(one) != "T" for one in everybody)))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(Done(process, 30).status, 130)

    def test_a_rank_that_is_stopped_gets_the_signal_too(self):
        process, children = self.started(2)
        os.kill(children[1], signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        done = Done(process, 30)
        self.assertEqual(sorted((line["rank"], line["signal"]) for line in done.lines),
                         [(0, signal.SIGTERM), (1, signal.SIGTERM)])
        self.assertEqual(done.status, 130, done)

    def test_children_die_with_the_parent(self):
        process, children = self.started(2)
        self.assertEqual(self.listening(process), ["0100007F"])  # its store is for this machine alone
        process.kill()
        self.assertTrue(wait_until(lambda: not any(map(alive, children.values())), 10), children)
        process.communicate()

    def listening(self, process):
        """The addresses at which it does, as /proc writes them."""
        links = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{process.pid}/fd").iterdir()]
        sockets = {link[len("socket:["):-1] for link in links if link.startswith("socket:[")}
        found = []
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in sockets:
                    found.append(fields[1].split(":")[0])
        return found


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
