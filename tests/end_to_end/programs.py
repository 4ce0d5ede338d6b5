"""What the end-to-end tests have in common: a folder to work in, and one OpenMP thread a program."""

import os
import pathlib
import random
import tempfile
import unittest

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")


def damage(file, how):
    """Makes a good file a bad one: "missing", "cut" in half, or "noise" in its place."""
    if how == "missing":
        file.unlink()
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:file.stat().st_size // 2])
    else:
        file.write_bytes(random.Random(1).randbytes(2000))


class ProgramTest(unittest.TestCase):
    """`cls.root` is a new folder, which goes when the class's tests have run."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name).resolve()
