"""What the end-to-end tests have in common: a folder to work in, and one OpenMP thread a program."""

import os
import pathlib
import tempfile
import unittest

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")


class ProgramTest(unittest.TestCase):
    """`cls.root` is a new folder, which goes when the class's tests have run."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name).resolve()
