"""What people who run `report` rely on: report_test.py REPORT."""

import json
import re
import subprocess
import sys
import time
import unittest

import sacrebleu
from programs import ProgramTest

REPORT = sys.argv[1]
REFERENCE = ["Der Hund bellt laut .", "Das Haus ist groß und alt .", "Sie sieht <b>ihn</b> & lacht .", "Ja ."]
OUTPUTS = {"first": ["Der Hund bellt laut .", "Das Haus ist klein .", "Sie lacht <script> .", "Nein ."],
           "second": ["Ein Hund bellt .", "Das Haus ist groß und neu .", "Er sieht <b>ihn</b> .", "Ja !"]}


def lines(texts):
    return "".join(text + "\n" for text in texts)


class ReportTest(ProgramTest):
    def make_run(self, name, outputs=None, finished=True):
        run = self.root / self.id() / name
        (run / "validation").mkdir(parents=True)
        metrics = [{"kind": "header", "format": 1}]
        metrics += [{"kind": "train", "step": step, "loss": 5 - step / 100, "seconds": step} for step in range(10, 110, 10)]
        metrics.append({"kind": "validation", "step": 100, "perplexity": 12.5, "bleu": 3.5, "seconds": 100})
        (run / "metrics.jsonl").write_text(lines(map(json.dumps, metrics)))
        source, target = (self.root / f"valid.{side}" for side in ("en", "de"))
        source.write_text(lines(f"sentence {i}" for i in range(len(REFERENCE))))
        target.write_text(lines(REFERENCE))
        (run / "config.yaml").write_text(f"data:\n  validation_source: [{source}]\n  validation_target: [{target}]\n"
                                         "training: {steps: 200}\n")
        if outputs:
            (run / "validation" / "step-00000100.txt").write_text(lines(outputs))
        if finished:
            (run / "summary.json").write_text('{"parameters": 1000}')
        return run

    def report(self, *arguments, status=0):
        done = subprocess.run([REPORT, *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def test_runs_side_by_side_with_the_scores_of_their_translations(self):
        runs = [self.make_run(name, outputs) for name, outputs in OUTPUTS.items()]
        page = self.report(*runs)
        self.assertNotIn("<script> .", page)
        self.assertIn("Sie <del>sieht &lt;b&gt;ihn&lt;/b&gt; &amp;</del> lacht <ins>&lt;script&gt;</ins> .", page)
        shown = re.findall(r"<dt>line (\d)</dt>(.*?)</li>", page.split('data-show="best"')[0], re.S)
        scores = {int(line): [float(score) for score in re.findall(r"<b>([\d.]+)</b>", text)] for line, text in shown}
        for line, reference in enumerate(REFERENCE, 1):
            expected = [sacrebleu.sentence_bleu(OUTPUTS[name][line - 1], [reference]).score for name in OUTPUTS]
            for found, wanted in zip(scores[line], expected, strict=True):
                self.assertAlmostEqual(found, wanted, delta=0.051)
        means = [sum(found) for found in scores.values()]
        self.assertEqual(means, sorted(means))
        self.assertEqual(page.count("<li "), 2 * len(REFERENCE))
        self.assertEqual(self.report(*runs, "--sentences", 1).count("<li "), 2)

    def test_runs_that_have_only_begun_or_have_nothing_to_compare(self):
        page = self.report(self.make_run("begun", finished=False))
        self.assertIn("not finished, of 200 steps", page)
        self.assertIn("begun has no validation translations: training.validate_bleu writes them", page)
        other = self.make_run("other", OUTPUTS["first"][:2])
        self.assertIn("are of another text", self.report(other))
        (other / "validation" / "final.txt").write_bytes(b"\xff\n" * 4)
        self.assertIn("Translations of other are left out", self.report(other))
        (other / "metrics.jsonl").write_text("")
        self.report(other)
        (other / "config.yaml").unlink()
        (other / "validation" / "final.txt").write_text(lines(OUTPUTS["first"]))
        self.assertIn("--source and --reference do", self.report(other))
        page = self.report(other, "--source", self.root / "valid.en", "--reference", self.root / "valid.de")
        self.assertIn("sentence 3", page)

    def test_what_is_blank_or_damaged(self):
        run = self.make_run("blank", [*OUTPUTS["first"][:3], ""])
        (self.root / "valid.de").write_text(lines([*REFERENCE[:3], ""]))
        with open(run / "metrics.jsonl", "a") as metrics:
            metrics.write('{"kind": "train", "st\n{"kind": "train", "step": 110}\n')
        other = self.make_run("other")
        for folder, pieces in ((run, "some"), (other, "others")):
            (folder / "vocabulary.model").write_text(pieces)
        (self.root / "valid.de").write_text(lines([*REFERENCE[:3], ""]))
        page = self.report(run, other)
        self.assertEqual(re.findall(r"<dt>line (\d)</dt>", page.split('data-show="best"')[0]), ["3", "2"])
        self.assertIn(f"{run / 'metrics.jsonl'}: 1 line is damaged and left out; the first is line 13", page)
        self.assertIn("of different vocabularies, and do not compare: blank; other", page)
        (run / "metrics.jsonl").write_text("loss 3\n")
        self.assertIn("metrics.jsonl:1: is no record of a run", self.report(run, status=2))

    def test_a_run_is_followed_until_it_is_finished(self):
        run = self.make_run("run", OUTPUTS["first"], finished=False)
        file = run.parent / "page.html"
        with subprocess.Popen([REPORT, run, "--watch", "0.2", "--output", file]) as process:
            with open(run / "metrics.jsonl", "a") as metrics:
                for part in ('{"kind":"train","st', 'ep":12345}\n'):
                    metrics.write(part)
                    metrics.flush()
                    time.sleep(0.3)
            deadline = time.monotonic() + 60
            while (not file.exists() or "12,345" not in file.read_text()) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertIn('data-reload="0.2"', file.read_text())
            self.assertIn("12,345", file.read_text())
            self.assertIsNone(process.poll())
            (run / "summary.json").write_text("{}")
            self.assertEqual(process.wait(60), 0)
        self.assertIn('data-reload="0"', file.read_text())

    def test_a_run_that_begins_anew_keeps_its_last_page(self):
        run = self.make_run("run", finished=False)
        metrics, file = run / "metrics.jsonl", run.parent / "page.html"
        figures = metrics.read_text()
        with subprocess.Popen([REPORT, run, "--watch", "0.2", "--output", file], stderr=subprocess.PIPE,
                              text=True) as process:
            deadline = time.monotonic() + 60
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            metrics.rename(run / "moved")
            warning = process.stderr.readline()
            self.assertIsNone(process.poll())
            self.assertIn("not finished", file.read_text())
            metrics.write_text(figures + '{"kind":"train","step":23456}\n')
            while "23,456" not in file.read_text() and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertIn("23,456", file.read_text())
            (run / "summary.json").write_text("{}")
            more = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 0)
        self.assertLessEqual(more.count("\n"), 1, more)  # read in between, it may be missing in another way
        self.assertIn("report: warning: the page stays as it is: ", warning)
        self.assertIn("metrics.jsonl", warning)

    def test_what_cannot_be_read_at_the_moment_keeps_the_last_page(self):
        run = self.make_run("run", finished=False)
        summary, kept, file = run / "summary.json", run / "kept", run.parent / "page.html"
        with subprocess.Popen([REPORT, run, "--watch", "0.2", "--output", file], stderr=subprocess.PIPE,
                              text=True) as process:
            deadline = time.monotonic() + 60
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            summary.symlink_to("/proc/self/mem")
            warning = process.stderr.readline()
            kept.write_text('{"parameters": 1000}')
            kept.rename(summary)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
        self.assertRegex(warning, "^report: warning: the page stays as it is: .*summary.json: cannot be read: ")
        page = file.read_text()
        self.assertNotIn("not finished", page)
        summary.unlink()
        summary.symlink_to("/proc/self/mem")
        self.assertIn("summary.json: cannot be read", self.report(run, "--output", file, status=1))
        self.assertEqual(file.read_text(), page)

    def test_a_text_that_is_given(self):
        run = self.make_run("run", OUTPUTS["first"])
        (run / "config.yaml").unlink()
        source, target = self.root / "valid.en", self.root / "valid.de"
        whole = self.report(run, "--source", source, "--reference", target)
        # The source is shown, and not needed.
        page = self.report(run, "--reference", target)
        self.assertIn("sentence 3", whole)
        self.assertEqual(page, re.sub(r'(?<=<dd dir="auto">)sentence \d', "", whole))
        # Both may be pipes, which are read but once, however often the page is written.
        page = run.parent / "page.html"
        command = f"exec '{REPORT}' '{run}' --source <(cat '{source}') --reference <(cat '{target}')"
        self.assertEqual(subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60).stdout, whole)
        (run / "summary.json").unlink()
        with subprocess.Popen(["bash", "-c", f"{command} --watch 0.1 --output '{page}'"]) as process:
            deadline = time.monotonic() + 60
            while not page.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            page.unlink()
            while not page.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertIn("sentence 3", page.read_text())
            (run / "summary.json").write_text("{}")
            self.assertEqual(process.wait(60), 0)

    def test_a_text_is_the_same_whatever_its_files_are_called(self):
        runs = [self.make_run(name, outputs) for name, outputs in OUTPUTS.items()]
        config = (runs[1] / "config.yaml").read_text()
        (runs[1] / "config.yaml").write_text(config.replace("valid.en", "./valid.en"))
        page = self.report(*runs)
        self.assertNotIn("of another text", page)
        self.assertNotIn("different texts", page)
        self.assertEqual(page.split('data-show="best"')[1].count("<dt>second</dt>"), len(REFERENCE))
        other = self.root / "other.de"
        other.write_text(lines(["Ein anderer Satz ."] * len(REFERENCE)))
        (runs[1] / "config.yaml").write_text(config.replace("valid.de", "other.de"))
        page = self.report(*runs)
        self.assertIn("are of another text", page)
        self.assertIn("Validations are of different texts, and do not compare: first; second", page)

    def test_mistakes(self):
        run = self.make_run("run")
        self.assertIn("metrics.jsonl is missing", self.report(self.root, status=2))
        self.assertIn("--watch", self.report(run, "--watch", 1, status=2))
        self.assertIn("is what is read as well", self.report(run, "--output", run / "metrics.jsonl", status=2))
        # The texts that it compares are read, too.
        (run / "validation").mkdir(exist_ok=True)
        written, target = run / "validation" / "step-00000010.txt", self.root / "target"
        # And what a run has besides: the record of what is its own, its model, TensorBoard's events.
        kept = (written, target, run / "run.json", run / "model.safetensors", run / "events.out.tfevents.0.transformer")
        for file in kept:
            file.write_text("ein Satz\n")
        (run / "checksums.xxh128").write_text(f"{'0' * 32}  model.safetensors\n")
        (run / "config.yaml").write_text(f"data: {{validation_source: [{target}], validation_target: [{target}]}}\n")
        for file in kept:
            self.assertIn("read as well", self.report(run, "--output", file, status=2))
            self.assertEqual(file.read_text(), "ein Satz\n")
        text, other = self.root / "five", self.root / "forty"
        text.write_text("a line\n" * 5)
        other.write_text("a line\n" * 40)
        self.assertIn("nowhere", self.report(run, "--source", self.root / "nowhere", "--reference", other, status=2))
        self.assertIn("40 lines", self.report(run, "--source", text, "--reference", other, status=2))
        self.report(status=2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
