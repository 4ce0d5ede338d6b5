"""How far work is, as people at a terminal see it: progress_test.py TRAIN SWEEP TRANSLATE SOURCE_DIR. Standard library
only."""

import os
import pty
import re
import subprocess
import sys
import threading
import unittest

from programs import ENVIRONMENT, ProgramTest
from toy import write_recipe

TRAIN, SWEEP, TRANSLATE, SOURCE = sys.argv[1:5]
TERMINAL = dict(ENVIRONMENT, TERM="xterm", COLUMNS="", LINES="")
GRID = """
title: A toy study
base: tiny.yaml
seeds: [1]
base_row: base
set: {training: {average_checkpoints: 1}}
rows:
  - {name: base}
  - {name: h1, model: {heads: 1}}
"""


def all_from(terminal):
    """What has been written to a terminal, whose other end is closed, or will be."""
    read = []
    try:
        while data := os.read(terminal, 1 << 16):
            read.append(data)
    except OSError:  # the terminal's end
        pass
    return b"".join(read)


def screen(text):
    """The lines that a terminal shows in the end, and all that it has shown in its last one meanwhile."""
    lines, drawn, column = [""], [], 0
    for part in re.findall(r"\r\n|\r|\n|\x1b\[K|\x1b\[[0-9;]*m|[^\r\n\x1b]+", text):
        if part == "\r\n" or part == "\n":
            lines.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
            drawn.append(lines[-1])
        elif not part.startswith("\x1b"):
            lines[-1] = lines[-1][:column].ljust(column) + part + lines[-1][column + len(part):]
            column += len(part)
    return lines, drawn


class ProgressTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 1000, 20,
                     "steps: 60, batch_tokens: 300, warmup_steps: 50, log_every: 20, validate_every: 30, "
                     "checkpoint_every: 30, average_checkpoints: 1")
        (cls.root / "grid.yaml").write_text(GRID)

    def at_terminal(self, command, environment=TERMINAL, output=None, status=0):
        """What `command` writes to a terminal: to standard error and, unless it has another, standard output."""
        ours, theirs = pty.openpty()
        read = []
        reader = threading.Thread(target=lambda: read.append(all_from(ours)))
        reader.start()
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output if output else theirs, stderr=theirs,
                                  env=environment, timeout=500, cwd=self.root)
        finally:
            os.close(theirs)
            reader.join()
            os.close(ours)
        text = read[0].decode()
        self.assertEqual(done.returncode, status, text)
        return text

    def elsewhere(self, command, environment=ENVIRONMENT):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
                              timeout=500, cwd=self.root)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for stream in (done.stdout, done.stderr):
            self.assertNotIn("\r", stream)
            self.assertNotIn("\x1b", stream)
            self.assertNotIn("[#", stream)
        return done.stdout, done.stderr

    def assert_whole_lines(self, lines, pattern):
        """Every line that stays is one of the log: nothing of the line of progress is left in it."""
        self.assertEqual(lines.pop(), "")
        self.assertGreater(len(lines), 3)
        for line in lines:
            self.assertRegex(line, pattern)
            self.assertNotRegex(line, r"\[[#.]{8}")

    def test_training_shows_a_line_below_its_log(self):
        text = self.at_terminal([TRAIN, "tiny.yaml", "--output", "seen"])
        lines, drawn = screen(text)
        self.assert_whole_lines(lines, r"^\d\d:\d\d:\d\d ")
        for pattern in (r"^learning 320 word pieces", r"^tokenising \[#{8,}\] 100 %  1000 pairs", r"^training .* 0/60 steps",
                        r"^training \[#+\.*\] +\d+ %  \d+/60 steps, .*loss \d"):
            self.assertTrue(any(re.search(pattern, line) for line in drawn), (pattern, drawn))
        self.assertTrue(all(len(line) < 80 for line in drawn), drawn)

        out, err = self.elsewhere([TRAIN, "tiny.yaml", "--output", "unseen"])
        self.assertEqual(err, "")
        plain = [re.sub(r"\S*\d\S*", "#", line).replace("unseen", "seen") for line in out.splitlines()]
        logged = [re.sub(r"\S*\d\S*", "#", line) for line in lines]
        self.assertEqual(logged, plain)

        # A terminal that cannot draw over a line, and standard error alone at one.
        for environment in (dict(TERMINAL, TERM="dumb"), {key: value for key, value in TERMINAL.items() if key != "TERM"}):
            text = self.at_terminal([TRAIN, "tiny.yaml", "--output", "seen"], environment)
            self.assertNotIn("\x1b[K", text)
        with open(self.root / "log", "w") as log:
            text = self.at_terminal([TRAIN, "tiny.yaml", "--output", "logged"], output=log)
        self.assertRegex(text, r"training .* \d+/60 steps")
        self.assertEqual(screen(text)[0], [""])
        self.assertNotIn("\x1b[K", (self.root / "log").read_text())

    def test_a_failure_is_told_on_a_line_of_its_own(self):
        text = self.at_terminal([TRAIN, "tiny.yaml", "--output", "failed", "--set",
                                 "training.rate_factor=1e6", "--set", "training.steps=1000"], status=1)
        lines, drawn = screen(text)
        self.assertTrue(any(line.startswith("training ") for line in drawn), drawn)
        self.assertRegex(lines[-2], r"^train: error: ")

    def test_a_sweep_shows_how_far_all_is(self):
        text = self.at_terminal([SWEEP, "grid.yaml", "--train", TRAIN, "--output", "seen-sweep", "--set",
                                 "training.steps=2000", "--set", "training.max_minutes=0.05"])
        lines, drawn = screen(text)
        self.assertTrue(any(re.match(r"sweep .* \d/2 runs", line) for line in drawn), drawn)
        self.assert_whole_lines(lines, r"^\d\d:\d\d:\d\d ")
        out, err = self.elsewhere([SWEEP, "grid.yaml", "--train", TRAIN, "--output", "unseen-sweep", "--progress", "0.01"])
        self.assertEqual(err, "")
        self.assertRegex(out, r"\| base/seed-1 step \d+/60")

    def test_decoding_a_file_shows_how_much_of_it_is_read(self):
        (self.root / "in.en").write_text("The dog sleeps.\n" * 40)
        command = [TRANSLATE, "--model", f"{SOURCE}/data/model-en-de", "--beam", "1"]
        lines, drawn = screen(self.at_terminal([*command, "--input", "in.en", "--output", "out.de"]))
        self.assertRegex(lines[-2], r"^translate \[#+\] 100 %  40 lines")
        self.assertTrue(any("%  0 lines" in line or "%" in line for line in drawn), drawn)
        with open(self.root / "in.en") as text, open(self.root / "seen.de", "w") as output:
            ours, theirs = pty.openpty()
            subprocess.run(command, stdin=text, stdout=output, stderr=theirs, env=TERMINAL, check=True, timeout=500)
            os.close(theirs)
            self.assertIn(b"40 lines", all_from(ours))
            os.close(ours)
        out, err = self.elsewhere([*command, "--input", "in.en", "--output", "other.de"])
        self.assertEqual(out + err, "")
        self.assertEqual((self.root / "seen.de").read_text(), (self.root / "other.de").read_text())
        # Lines that somebody waits for come alone.
        text = self.at_terminal([*command, "--input", "in.en"])
        self.assertEqual(screen(text)[0], (self.root / "other.de").read_text().split("\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
