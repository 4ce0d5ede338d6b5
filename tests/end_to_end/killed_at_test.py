"""Kills programs before a call that gives, takes or changes a name, one call after another, and runs them again: nothing
is lost or left behind, and what comes of it is what comes of a program that nobody killed.

    .venv/bin/python tests/end_to_end/killed_at_test.py PROGRAMS killed_at.so EVERY

Every EVERYth call of a case is tried, from another one on in each case. Standard library only."""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest

from kill_test import result
from programs import ENVIRONMENT, ProgramTest
from toy import write_corpus, write_recipe

NOTES = "the user's\n"


class KilledAtTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 300, 6,
                     "steps: 7, batch_tokens: 150, warmup_steps: 50, log_every: 2, validate_every: 4, checkpoint_every: 2, "
                     "keep_checkpoints: 4, average_checkpoints: 4, keep_best: 1, validate_bleu: true, threads: 1")
        cls.run_folder = cls.root / "run"
        cls.run_folder.mkdir()
        (cls.run_folder / "notes.txt").write_text(NOTES)
        cls.train = [PROGRAMS / "train", cls.root / "tiny.yaml", "--output", cls.run_folder]
        cls.cases = 0
        cls.keep("nothing")
        cls.done(cls.train)
        cls.keep("finished")

    @classmethod
    def keep(cls, name):
        shutil.copytree(cls.run_folder, cls.root / "kept" / name, symlinks=True)

    def put_back(self, kept):
        shutil.rmtree(self.run_folder)
        shutil.copytree(self.root / "kept" / kept, self.run_folder, symlinks=True)

    @staticmethod
    def call(command, killed_at=0):
        environment = ENVIRONMENT | ({"LD_PRELOAD": str(KILLED_AT), "KILLED_AT": str(killed_at)} if killed_at else {})
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    @classmethod
    def done(cls, command):
        ended = cls.call(command)
        assert ended.returncode == 0, ended.stderr
        return ended

    def everything(self, folder):
        """What is there, without figures of time and without what the result says in more detail."""
        # For a file that had no other name yet when its program was killed an hour is waited; texts.json is there where
        # the texts are older than some seconds.
        names = {str(file.relative_to(folder)) for file in folder.rglob("*")
                 if not file.name.startswith(".writing-") and file.name != "texts.json"}
        self.assertEqual((self.run_folder / "notes.txt").read_text(), NOTES)
        return names, result(folder) if (folder / "metrics.jsonl").exists() else {
            name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}

    def tried(self, kept, command, folder=None, between=None, every=None):
        """The command, where there is what was kept, killed at one call after another, and then not killed."""
        every = every or EVERY
        folder = folder or self.run_folder
        self.put_back(kept)
        self.done(command)
        expected = self.everything(folder)
        type(self).cases += 1
        kills = 0
        call = 1 + self.cases % every
        while True:
            self.put_back(kept)
            ended = self.call(command, call)
            if ended.returncode == 0:
                break
            self.assertEqual(ended.returncode, -9, ended.stderr)
            kills += 1
            with self.subTest(command=" ".join(map(str, command[1:])), call=call):
                if between:
                    between()
                again = self.call(command)
                names, contents = self.everything(folder)
                # It may have been killed when all was done, but for an empty folder.
                is_done = again.returncode == 2 and "already" in again.stderr
                self.assertTrue(again.returncode == 0 or is_done, again.stderr)
                names = {name for name in names if not is_done or ".partial-" not in name}
                self.assertEqual(names, expected[0], again.stderr)
                for name, content in expected[1].items():
                    self.assertTrue(contents[name] == content, f"{name} is another: {again.stderr}")
            call += every
        self.assertGreater(kills, 0)

    def test_a_run_begins(self):
        self.tried("nothing", self.train)

    def test_a_finished_run_goes_on(self):
        self.tried("finished", [*self.train, "--set", "training.steps=11"])

    def test_a_run_begins_anew(self):
        self.tried("finished", [*self.train, "--restart"])

    def test_a_run_branches_off(self):
        self.tried("finished", [*self.train, "--from", "4", "--set", "training.rate_factor=0.5"])

    def test_a_run_without_a_checkpoint_begins_anew(self):
        """Of another text: nothing of the vocabulary of the first one is used."""
        for kept, command in (("nothing", self.train), ("finished", [*self.train, "--restart"])):
            self.put_back(kept)
            for call in range(1, 1000):
                self.assertEqual(self.call(command, call).returncode, -9)
                if (self.run_folder / "vocabulary.model").exists() and not (self.run_folder / "summary.json").exists():
                    break
                self.put_back(kept)
            self.keep("begun")
            write_corpus(self.root, "train", 300, 3)
            self.tried("begun", command)
            write_corpus(self.root, "train", 300, 1)
            shutil.rmtree(self.root / "kept/begun")

    def test_what_was_replaced_comes_back(self):
        self.put_back("finished")
        branch = [*self.train, "--from", "4", "--set", "training.rate_factor=0.5"]
        for call in range(1, 1000):
            self.assertEqual(self.call(branch, call).returncode, -9)
            record = json.loads((self.run_folder / "run.json").read_text())
            if record.get("set_aside", {}).get("stage") == "kept":
                break
            self.put_back("finished")
        self.keep("branched")
        self.tried("branched", [*self.train, "--undo"], every=5)

    def test_what_may_come_back_is_whole(self):
        """Where nothing is left to train either: as long as it may, no checkpoint goes."""
        branch = [*self.train, "--from", "last", "--set", "training.keep_checkpoints=1",
                  "--set", "training.average_checkpoints=1"]
        kept = self.root / "kept/finished"
        undone = 0
        for call in range(3, 1000, 4):
            self.put_back("finished")
            if self.call(branch, call).returncode == 0:
                break
            if self.call([*self.train, "--undo"]).returncode == 0:
                undone += 1
                for name in ("checkpoints", "validation"):
                    there, before = ({file.name for file in (run / name).iterdir() if file.name != ".replaced"}
                                     for run in (self.run_folder, kept))
                    self.assertEqual(there, before)
        self.assertGreater(undone, 0)

    def test_an_average(self):
        average = [PROGRAMS / "average", "--last", "2", "--output", self.run_folder / "mean", self.run_folder]
        self.tried("finished", average, self.run_folder / "mean", every=2)
        (self.root / "kept/finished/mean").mkdir()
        (self.root / "kept/finished/mean/notes.txt").write_text(NOTES)
        self.tried("finished", average, self.run_folder / "mean", every=2)
        shutil.rmtree(self.root / "kept/finished/mean")

    def test_a_model_in_another_ones_place(self):
        packed = self.run_folder / "packed"
        export = [PROGRAMS / "export", "--to", "packed", "--model", self.run_folder, "--output", packed]

        def is_whole():
            self.done([PROGRAMS / "evaluate", "describe", "--model", packed])

        self.tried("finished", export, every=3)
        self.put_back("finished")
        self.done(export)
        self.keep("exported")
        self.tried("exported", [*export, "--force"], between=is_whole, every=3)


if __name__ == "__main__":
    PROGRAMS, KILLED_AT, EVERY = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
