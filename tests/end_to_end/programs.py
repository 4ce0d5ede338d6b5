"""What the end-to-end tests have in common: a folder to work in, and one OpenMP thread a program."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import tempfile
import unittest

# Of what launchers set, programs would be one process of several.
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI", "SLURM_",
             "TRANSFORMER_PROCESSES")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
ENVIRONMENT["OMP_NUM_THREADS"] = "1"
# What a script starts with & ignores it, and programs go on ignoring it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def without_proc(*command):
    """The command where /proc is an empty folder."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "-",
            *command]


def as_permitted(*command):
    """The command, for which permissions of files hold, though it be root's."""
    overrides = "-dac_override,-dac_read_search"
    root = ["setpriv", "--bounding-set", overrides, "--inh-caps", overrides] if os.geteuid() == 0 else []
    return [*root, *command]


def free_ports(count):
    """Ports of the loopback that nobody has just now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def damage(file, how):
    """Makes a good file a bad one: "missing", "cut" in half, or "noise" in its place."""
    if how == "missing":
        file.unlink()
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:file.stat().st_size // 2])
    else:
        file.write_bytes(random.Random(1).randbytes(2000))


def copy_without_normalization(model, folder):
    """Copies a model whose vocabulary is to take texts as they are, with every blank."""
    shutil.copytree(model, folder)
    (folder / "checksums.xxh128").unlink()
    from sentencepiece import sentencepiece_model_pb2  # most tests need none
    vocabulary = sentencepiece_model_pb2.ModelProto()
    vocabulary.ParseFromString((folder / "vocabulary.model").read_bytes())
    vocabulary.DiscardUnknownFields()  # our record of the normalization
    (folder / "vocabulary.model").write_bytes(vocabulary.SerializeToString())


class ProgramTest(unittest.TestCase):
    """`cls.root` is a new folder, which goes when the class's tests have run."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name).resolve()
