"""What was promised of formats: what earlier versions wrote (the folders beside this file, see make_formats.py) is read, and
means what it meant: formats_test.py TRANSLATE TRAIN EVALUATE REPORT. Standard library only."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TRANSLATE, TRAIN, EVALUATE, REPORT = sys.argv[1:5]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")
VERSIONS = sorted(folder for folder in pathlib.Path(__file__).resolve().parent.iterdir()
                  if re.fullmatch(r"\d+\.\d+\.\d+", folder.name))


class FormatsTest(unittest.TestCase):
    def setUp(self):
        self.assertTrue(VERSIONS)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def versions(self):
        """The folder of each version, as a copy that may be written to."""
        for version in VERSIONS:
            copy = pathlib.Path(self.folder.name) / version.name
            if not copy.exists():
                shutil.copytree(version, copy)
            with self.subTest(version=version.name):
                yield copy

    def run_program(self, folder, *command, status=0, text=None):
        done = subprocess.run(list(map(str, command)), cwd=folder, input=text or "", capture_output=True, text=True,
                              env=ENVIRONMENT, timeout=300)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def test_models_translate_as_they_did(self):
        for folder in self.versions():
            checkpoint, = (folder / "run" / "checkpoints").iterdir()
            for model, expected in (("run", "run.de"), (checkpoint, "run.de"), ("int8", "int8.de")):
                found = self.run_program(folder, TRANSLATE, "--model", model, "--input", "valid.en")
                self.assertEqual(found, (folder / expected).read_text(), model)
            found = self.run_program(folder, TRANSLATE, "--model", "run", "--shortlist", "shortlist", "--input", "valid.en")
            self.assertEqual(found, (folder / "shortlist.de").read_text())
            found = self.run_program(folder, TRANSLATE, "--model", "run", "--scores", "--input", "valid.en")
            for line, before in zip(found.splitlines(), (folder / "scores").read_text().splitlines(), strict=True):
                (score, text), (score_before, text_before) = line.split("\t"), before.split("\t")
                self.assertEqual(text, text_before)
                self.assertAlmostEqual(float(score), float(score_before), delta=1e-3)

    def test_vocabularies_split_text_as_they_did(self):
        for folder in self.versions():
            found = self.run_program(folder, TRANSLATE, "--model", "run", "--input", "pieces.en", "--output-format", "jsonl")
            for line, before in zip(found.splitlines(), (folder / "pieces.jsonl").read_text().splitlines(), strict=True):
                now, then = json.loads(line), json.loads(before)
                # Fields may be added, none goes.
                self.assertLessEqual(set(then), set(now))
                self.assertEqual((now["text"], now["tokens"]), (then["text"], then["tokens"]))
                self.assertAlmostEqual(now["log_probability"], then["log_probability"], delta=1e-3)

    def test_runs_go_on_and_are_shown(self):
        for folder in self.versions():
            summary = json.loads((folder / "run" / "summary.json").read_text())
            measured = self.run_program(folder, EVALUATE, "perplexity", "--model", "run", "--source", "valid.en", "--target",
                                        "valid.de")
            self.assertAlmostEqual(float(re.search(r"perplexity = (\d+\.\d+)", measured)[1]), summary["perplexity"], delta=1e-2)
            page = self.run_program(folder, REPORT, "run")
            self.assertIn(f"{summary['parameters']}", page.replace(",", ""))
            lines = (folder / "run" / "metrics.jsonl").read_text()
            steps = summary["steps"] + 10
            log = self.run_program(folder, TRAIN, "recipe.yaml", "--set", f"training.steps={steps}")
            self.assertRegex(log, rf"going on from run/checkpoints/step-0*{summary['steps']}\b")
            self.assertEqual(json.loads((folder / "run" / "summary.json").read_text())["steps"], steps)
            # What was recorded before stays; the final model's line was of a run that has gone on.
            kept = [line for line in lines.splitlines() if json.loads(line)["kind"] != "final"]
            self.assertEqual((folder / "run" / "metrics.jsonl").read_text().splitlines()[:len(kept)], kept)

    def test_lists_of_translations_are_read(self):
        for folder in self.versions():
            listed = (folder / "n-best").read_text()
            best = {int(number): text for number, text, _ in
                    (line.split(" ||| ") for line in reversed(listed.splitlines()))}
            chosen = self.run_program(folder, EVALUATE, "rescore", "--model", "run", "--source", "valid.en", "--weight", "1",
                                      text=listed)
            firsts = {}
            for line in chosen.splitlines():
                number, text, _ = line.split(" ||| ")
                firsts.setdefault(int(number), text)
            self.assertEqual(firsts, best)

    def test_what_is_newer_is_refused_by_name(self):
        for folder in self.versions():
            config = folder / "int8" / "config.yaml"
            text = config.read_text()
            self.assertIn("\nformat: ", "\n" + text)
            config.write_text(re.sub(r"(?m)^format: \d+", "format: 999", text))
            (folder / "int8" / "checksums.xxh128").unlink()
            self.assertIn("999", self.run_program(folder, TRANSLATE, "--model", "int8", status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
