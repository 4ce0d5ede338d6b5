"""What people who run `translate` rely on: translate_test.py TRANSLATE MAKE_MODEL EVALUATE. Standard library only."""

import contextlib
import ctypes
import errno
import fcntl
import gzip
import html.parser
import json
import math
import os
import pathlib
import platform
import pty
import random
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tty
import unittest

from programs import ENVIRONMENT, ProgramTest, as_permitted
from toy import write_draft

TRANSLATE, MAKE_MODEL, EVALUATE = sys.argv[1:4]
DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
SHIPPED = DATA / "model-en-de"


def sentences(count, seed=1):
    generator = random.Random(seed)
    syllables = ["ba", "do", "ki", "lu", "mé", "no", "ra", "si"]
    return [
        " ".join("".join(generator.choices(syllables, k=2)) for _ in range(generator.randint(1, 9))) + "."
        for _ in range(count)
    ]


class TranslateTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.root / "model"
        subprocess.run([MAKE_MODEL, cls.model], check=True, env=ENVIRONMENT)

    def run_program(self, *arguments, text="", model=None, status=0):
        data = text if isinstance(text, bytes) else text.encode()
        done = subprocess.run(
            [TRANSLATE, "--model", model or self.model, *map(str, arguments)],
            input=data, capture_output=True, env=ENVIRONMENT, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()

    def translate(self, text, *arguments):
        output, errors = self.run_program(*arguments, text=text)
        self.assertEqual(errors, "")
        return output

    def assert_one_line(self, errors, *parts):
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)

    def test_every_precision_gives_a_line_for_a_line_whatever_the_threads(self):
        text = "\n".join(sentences(40)) + "\n\n"
        plain = self.translate(text)
        for precision in ("float32", "bf16", "int8"):
            output = self.translate(text, "--precision", precision, "--threads", 1)
            self.assertEqual(output.count("\n"), text.count("\n"))
            self.assertEqual(output, self.translate(text, "--precision", precision, "--threads", 3, "--batch-sentences", 7))
            if precision == "float32":
                self.assertEqual(output, plain)
        _, errors = self.run_program("--precision", "int4", status=2)
        self.assert_one_line(errors, "--precision", "int4", "int8")

    def test_order_and_blank_lines(self):
        lines = sentences(30)
        lines[3] = lines[11] = lines[29] = ""
        output = self.translate("\n".join(lines) + "\n")
        self.assertEqual(output.count("\n"), 30)
        translations = output.split("\n")[:30]
        self.assertEqual([translations[i] for i in (3, 11, 29)], [""] * 3)
        self.assertGreater(len(set(translations)), 10)
        alone = "".join(self.translate(line + "\n", "--batch-sentences", 1) for line in lines[:4])
        self.assertEqual(alone.split("\n")[:4], translations[:4])
        backwards = self.translate("\n".join(reversed(lines)) + "\n", "--batch-sentences", 3)
        self.assertEqual(backwards.split("\n")[:30], translations[::-1])

    def test_more_lines_than_fit_a_window(self):
        lines = [sentences(1, seed)[0] if seed % 7 == 0 else "" for seed in range(2500)]
        output = self.translate("\n".join(lines) + "\n", "--beam", 1, "--max-extra-length", 0).split("\n")
        self.assertEqual(len(output), 2501)
        few = self.translate("\n".join(lines[2100:2200]) + "\n", "--beam", 1, "--max-extra-length", 0).split("\n")
        self.assertEqual(output[2100:2200], few[:100])

    def test_memory_does_not_grow_with_the_input(self):
        few = sentences(97)
        source, output = self.root / "many", self.root / "many.out"
        peaks, found = [], []
        for count in (3000, 30000):
            source.write_text("".join(few[i % 97] + "\n" for i in range(count)))
            with source.open("rb") as lines, output.open("wb") as written:
                process = subprocess.Popen([TRANSLATE, "--model", self.model, "--beam", "1", "--max-extra-length", "0"],
                                           stdin=lines, stdout=written, env=ENVIRONMENT)
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            peaks.append(used.ru_maxrss / 1024)  # MiB
            found = output.read_text().splitlines()
            self.assertEqual(len(found), count)
            self.assertEqual(found, [found[i % 97] for i in range(count)])
        self.assertGreater(len(set(found)), 50)
        self.assertLess(peaks[1] - peaks[0], 1, peaks)  # the lines alone are 0.8 MiB, their translations as much

    def test_wishes(self):
        lines = sentences(12) + [""]
        text = "\n".join(lines) + "\n"
        plain = self.translate(text).split("\n")
        beginnings, required, forbidden = (self.root / name for name in ("beginnings", "required", "forbidden"))
        beginnings.write_text("".join(f"{'Ba' if i % 2 else ''}\n" for i in range(13)))
        found = self.translate(text, "--prefix", beginnings).split("\n")
        for i in range(12):
            self.assertTrue(found[i].startswith("Ba") if i % 2 else found[i] == plain[i], found[i])
        required.write_text("doki\tba lu\n" * 12 + "\n")
        found = self.translate(text, "--require", required, "--max-extra-length", 30).split("\n")
        for line in found[:12]:
            self.assertIn("doki", line)
            self.assertIn("ba lu", line)
        # In batches of any size, and by any number of threads, the same.
        self.assertEqual(self.translate(text, "--require", required, "--max-extra-length", 30, "--threads", 2,
                                        "--batch-sentences", 3).split("\n"), found)
        # Control characters, which an untrained model writes, are nothing that could be forbidden.
        words = {word for word in " ".join(plain).split() if word.isprintable()}
        self.assertTrue(words)
        forbidden.write_text("".join(word + "\n" for word in sorted(words)))
        found = self.translate(text, "--forbid", forbidden).split("\n")
        for line in found[:12]:
            self.assertFalse(set(line.split()) & words, line)
        # No room for it: said at the end.
        _, errors = self.run_program("--require", required, "--max-length", 2, text=text)
        self.assert_one_line(errors, "12 lines lack", "line 1 '", "...")
        # A line without text holds nothing; what a line lacks is named.
        (self.root / "lines").write_text("doki\n\tba lu\t\n")
        output, errors = self.run_program("--require", self.root / "lines", "--output-format", "jsonl",
                                          text="\n" + lines[0] + "\n")
        self.assert_one_line(errors, "1 line lacks phrases that were required: line 1 'doki'")
        lacking, held = (json.loads(line) for line in output.splitlines())
        self.assertEqual(lacking["missing_phrases"], ["doki"])
        self.assertNotIn("missing_phrases", held)
        output, _ = self.run_program("--require", required, "--max-length", 2, "--output-format", "jsonl",
                                     text="\n".join(lines[:12]) + "\n")
        for entry in map(json.loads, output.splitlines()):
            self.assertTrue(set(entry["missing_phrases"]) <= {"doki", "ba lu"}, entry)
            for phrase in {"doki", "ba lu"} - set(entry["missing_phrases"]):
                self.assertIn(phrase, entry["text"])
        # What was said of lines is said again where the work goes on behind them.
        source, output, wishes = self.root / "lacking.txt", self.root / "lacking.out", self.root / "lacking.wishes"
        many = [b"ba do ki."] * 1050
        wishes.write_text("\n" * 2 + "doki\n" + "\n" * 1048)
        arguments = ("--require", wishes, "--max-length", 1, "--input", source, "--output", output)
        source.write_bytes(b"\n".join([*many, b"\xff"]) + b"\n")
        _, errors = self.run_program(*arguments, status=2)
        self.assertIn("the same command goes on", errors)
        source.write_bytes(b"\n".join([*many, b"ba."]) + b"\n")
        _, errors = self.run_program(*arguments)
        self.assertIn("goes on behind line 1024", errors)
        self.assertIn("1 line lacks phrases that were required: line 3 'doki'\n", errors)
        # A file of other lines than the input's is somebody's mistake.
        beginnings.write_text("\n" * 14)
        output, errors = self.run_program("--prefix", beginnings, text=text)
        self.assertEqual(output.split("\n"), plain)
        self.assert_one_line(errors, "warning", "has 14 lines, and the input 13")
        # What cannot be had costs its line.
        required.write_text("doki\n" * 12)
        output, errors = self.run_program("--require", required, "--forbid", self.root / "forbidden2", text=text,
                                          status=2)
        self.assert_one_line(errors, "forbidden2")
        output, errors = self.run_program("--require", required, text=text, status=2)
        self.assert_one_line(errors, "has 12 lines", "line 13")
        (self.root / "forbidden2").write_text("doki\n")
        output, errors = self.run_program("--require", required, "--forbid", self.root / "forbidden2", "--bad-lines",
                                          "empty", text="\n".join(lines[:12]) + "\n")
        self.assertEqual(output, "\n" * 12)
        self.assert_one_line(errors, "12 lines could not be used", "'doki' holds 'doki', which is forbidden")
        (self.root / "begins").write_text("Lu doki ba\n")
        output, errors = self.run_program("--prefix", self.root / "begins", "--forbid", self.root / "forbidden2",
                                          text="ba do.\n", status=2)
        self.assertEqual(output, "")
        self.assert_one_line(errors, "input:1", "'Lu doki ba'", "'doki', which is forbidden")
        # A glossary's mistake is every line's, and told before the first.
        (self.root / "terms").write_text("zzz\trara\nki\tlu doki\n")
        output, errors = self.run_program("--glossary", self.root / "terms", "--forbid", self.root / "forbidden2",
                                          "--bad-lines", "empty", text="ba do.\n", status=2)
        self.assertEqual(output, "")
        self.assert_one_line(errors, "--glossary", "'lu doki' for 'ki'", "'doki' of --forbid")
        _, errors = self.run_program("--document", "--require", required, text=text, status=2)
        self.assert_one_line(errors, "--require", "--document")
        (self.root / "bias").write_text("nopiece\t1\n")
        _, errors = self.run_program("--bias", self.root / "bias", text=text, status=2)
        self.assert_one_line(errors, "bias:1", "nopiece")
        (self.root / "bias").write_text("<unk>\t-100\n")
        self.assertNotIn("\u2047", self.translate(text, "--bias", self.root / "bias"))

    def test_samples(self):
        text = "\n".join(sentences(20)) + "\n"
        sampling = ("--search", "sampling", "--temperature", "1.5", "--top-p", "0.95")
        plain = self.translate(text, *sampling)
        self.assertEqual(self.translate(text, *sampling, "--threads", 2, "--batch-sentences", 3), plain)
        self.assertNotEqual(self.translate(text, *sampling, "--seed", 2), plain)
        several = self.translate(text, *sampling, "--n-best", 3).split("\n")
        self.assertEqual([line.split(" ||| ")[1] for line in several[0:60:3]], plain.split("\n")[:20])
        for wrong, name in ((("--temperature", "0.5"), "decoding.temperature"),
                            ((*sampling, "--beam-groups", "2"), "decoding.beam_groups"),
                            ((*sampling, "--coverage-penalty", "0.2"), "decoding.coverage_penalty"),
                            (("--min-length", "5", "--max-length", "4"), "decoding.min_length")):
            _, errors = self.run_program(*wrong, text=text, status=2)
            self.assert_one_line(errors, name)

    def test_what_no_line_can_have_is_refused_before_the_first(self):
        wishes = self.root / "wishes"
        wishes.write_text("\nba\n")
        for search in (["--search", "sampling"], ["--beam", 4, "--beam-groups", 2]):
            output, errors = self.run_program("--require", wishes, "--bad-lines", "empty", *search, text="ba do.\nki.\n",
                                              status=2)
            self.assertEqual(output, "")
            self.assert_one_line(errors, "required phrases")

    def test_one_file_is_one_output_whatever_links_lead_there(self):
        (self.root / "folder").mkdir()
        (self.root / "link").symlink_to("folder")
        for other in ("x", "x.partial", "x.partial.journal"):
            _, errors = self.run_program("--output", self.root / "folder/x", "--alignments", self.root / "link" / other,
                                         text="ba do.\n", status=2)
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertEqual(list((self.root / "folder").iterdir()), [])

    def test_a_name_that_is_no_text_goes_on_like_others(self):
        output = os.fsencode(self.root) + b"/out\xe9"
        lines = sentences(3000)
        broken = "\n".join([*lines[:2500], "ba " * 6000]).encode() + b"\n"
        command = [TRANSLATE, "--model", self.model, "--beam", "1", "--output", output]
        done = subprocess.run(command, input=broken, capture_output=True, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 2, done.stderr)
        done = subprocess.run(command, input="\n".join(lines).encode() + b"\n", capture_output=True, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(output, encoding="utf-8") as file:
            self.assertEqual(file.read(), self.translate("\n".join(lines) + "\n", "--beam", 1))

    def test_a_signal_before_the_first_window_leaves_nothing(self):
        folder = self.root / "ended"
        folder.mkdir()
        running = subprocess.Popen([TRANSLATE, "--model", self.model, "--output", folder / "x"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        running.stdin.write(b"ba do ki lu " * 500 + b"\n")
        running.stdin.write(("ba do ki lu. " * 400 + "\n").encode() * 1500)  # takes minutes
        running.stdin.flush()
        for _ in range(500):
            if (folder / "x.partial").exists():
                break
            time.sleep(0.02)
        self.assertTrue((folder / "x.partial").exists())
        running.terminate()
        _, errors = running.communicate()
        self.assertEqual(running.returncode, 128 + signal.SIGTERM)
        self.assertEqual(errors, b"translate: stopped\n")
        self.assertEqual(list(folder.iterdir()), [])

    def test_no_output_is_a_file_of_the_model(self):
        model = self.root / "unchecked"
        shutil.copytree(self.model, model)
        (model / "checksums.xxh128").unlink(missing_ok=True)
        for file in sorted(model.iterdir()):
            before = file.read_bytes()
            _, errors = self.run_program("--output", file, text="ba do.\n", model=model, status=2)
            self.assert_one_line(errors, "of the model that is read as well")
            self.assertEqual(file.read_bytes(), before)

    def test_a_draft_changes_nothing(self):
        with gzip.open(DATA / "tatoeba-en-de" / "valid.en.gz", "rt") as file:
            text = "".join(line for _, line in zip(range(250), file))
        drafts = [SHIPPED]
        for width, layers in ((8, 1), (24, 2)):
            drafts.append(self.root / f"draft-{width}")
            write_draft(drafts[-1], SHIPPED, width, layers, width)

        def translated(*arguments):
            return self.run_program("--threads", 2, "--scores", *arguments, text=text, model=SHIPPED)[0]

        for precision in ("float32", "bf16", "int8"):
            plain = translated("--beam", 1, "--precision", precision)
            for draft in drafts:
                found = translated("--beam", 1, "--precision", precision, "--draft", draft)
                self.assertEqual(found.splitlines(), plain.splitlines(), (precision, draft))
        one_by_one = ["--beam", 1, "--batch-sentences", 1, "--max-extra-length", 2]
        self.assertEqual(translated(*one_by_one, "--draft", SHIPPED, "--proposals", 64), translated(*one_by_one))
        sampling = ["--search", "sampling", "--temperature", 0.7, "--seed", 3]
        self.assertEqual(translated(*sampling, "--draft", SHIPPED), translated(*sampling))

    def test_drafts_that_have_no_place_are_refused(self):
        for arguments, parts in (
                (["--draft", SHIPPED], ("decoding.beam", "beam to 1")),
                (["--draft", SHIPPED, "--search", "sampling", "--n-best", 3], ("decoding.n_best", "one sample")),
                (["--draft", SHIPPED, "--beam", 1, "--model", SHIPPED], ("--draft", "one model")),
                (["--draft", SHIPPED, "--beam", 1, "--device", "cuda"], ("--draft", "CPU")),
                (["--draft", SHIPPED, "--beam", 1, "--coverage-penalty", 0.2], ("decoding.coverage_penalty", "draft")),
                (["--draft", self.model, "--beam", 1], (str(self.model), "another vocabulary")),
                (["--draft", self.root / "none", "--beam", 1], ("none",)),
                (["--draft", SHIPPED, "--beam", 1, "--proposals", 65], ("proposals",))):
            self.assert_one_line(self.run_program(*arguments, model=SHIPPED, status=2)[1], *parts)

    def test_several_models(self):
        text = "\n".join(sentences(20)) + "\n"
        plain = self.translate(text)
        for average in ("probabilities", "log_probabilities"):
            self.assertEqual(self.translate(text, "--model", self.model, "--weights", "2,1", "--ensemble", average), plain)
        second = self.root / "second"
        write_draft(second, SHIPPED, 24, 2, seed=1)

        def both(*arguments):
            return self.run_program("--model", second, "--scores", *arguments, text="Good morning.\n", model=SHIPPED)[0]

        self.assertNotEqual(both("--weights", "1,3"), both("--weights", "3,1"))
        self.assertNotEqual(both("--ensemble", "probabilities"), both("--ensemble", "log_probabilities"))
        self.assertEqual(both("--weights", "1,1"), both())
        _, errors = self.run_program("--model", self.model, "--weights", "1", text=text, status=2)
        self.assert_one_line(errors, "weights", "2 models")
        _, errors = self.run_program("--weights", "1", text=text, status=2)
        self.assert_one_line(errors, "--model", "averaged")

    def test_line_ends(self):
        one, two = sentences(2)
        plain = self.translate(f"{one}\n{two}\n")
        self.assertEqual(self.translate(f"{one}\n{two}"), plain)
        self.assertEqual(self.translate(f"{one}\r\n{two}\r\n"), plain)
        self.assertEqual(self.translate(f"\ufeff{one}\n{two}\n"), plain)
        self.assertEqual(self.translate(""), "")
        self.assertEqual(self.translate("\n"), "\n")
        self.assertEqual(self.translate(" \t\n\n"), "\n\n")

    def test_scores_and_n_best(self):
        lines = sentences(3) + [""]
        text = "\n".join(lines) + "\n"
        plain = self.translate(text).split("\n")
        scored = self.translate(text, "--scores").split("\n")
        n_best = self.translate(text, "--n-best", 4).split("\n")
        self.assertEqual(len(n_best), 3 * 4 + 1 + 1)
        for i in range(3):
            score, translation = scored[i].split("\t", 1)
            self.assertEqual(translation, plain[i])
            self.assertLess(float(score), 0)
            group = [line.split(" ||| ") for line in n_best[4 * i:4 * i + 4]]
            self.assertTrue(all(len(parts) == 3 and parts[0] == str(i) for parts in group), group)
            self.assertEqual(group[0][1], plain[i])
            self.assertAlmostEqual(float(group[0][2]), float(score), places=3)
        self.assertRegex(n_best[12], r"^3 \|\|\|  \|\|\| -?0\.0+$")

    def test_search_options_have_an_effect(self):
        text = "\n".join(sentences(20)) + "\n"
        self.assertNotEqual(self.translate(text, "--beam", 1), self.translate(text, "--beam", 6))
        short = self.translate(text, "--alpha", -2, "--length-penalty", "power")
        long = self.translate(text, "--alpha", 4, "--length-penalty", "power")
        self.assertLess(len(short), len(long))

    def test_defaults_come_from_the_model(self):
        text = "\n".join(sentences(10)) + "\n"
        other = self.root / "greedy"
        subprocess.run(["cp", "-r", self.model, other], check=True)
        config = (other / "config.yaml").read_text()
        self.assertIn("beam: 4", config)
        (other / "config.yaml").write_text(config.replace("beam: 4", "beam: 1"))
        greedy, _ = self.run_program(text=text, model=other)
        self.assertEqual(greedy, self.translate(text, "--beam", 1))
        self.assertNotEqual(greedy, self.translate(text))

    def with_settings(self, name, **settings):
        """A copy of the model whose config.yaml has these of `decoding`."""
        model = self.root / name
        shutil.copytree(self.model, model)
        config = (model / "config.yaml").read_text()
        for setting, value in settings.items():
            config, found = re.subn(rf"(?m)^  {setting}: .*$", f"  {setting}: {value}", config)
            self.assertEqual(found, 1, setting)
        (model / "config.yaml").write_text(config)
        return model

    def test_another_search_than_the_models_own(self):
        text = "\n".join(sentences(10)) + "\n"
        sampling = self.with_settings("sampling", search="sampling", temperature=0.7, top_k=9, top_p=0.9, min_p=0.01, seed=3)
        self.assertEqual(self.run_program("--search", "beam", text=text, model=sampling)[0], self.translate(text))
        self.assertEqual(self.run_program(text=text, model=sampling)[0],
                         self.translate(text, "--search", "sampling", "--temperature", 0.7, "--top-k", 9, "--top-p", 0.9,
                                        "--min-p", 0.01, "--seed", 3))
        _, errors = self.run_program("--search", "beam", "--seed", 4, text=text, model=sampling, status=2)
        self.assert_one_line(errors, "decoding.seed")
        groups = self.with_settings("groups", beam_groups=2, coverage_penalty=0.2, diversity=0.9)
        self.assertEqual(self.run_program("--search", "sampling", text=text, model=groups)[0],
                         self.translate(text, "--search", "sampling"))
        # What has no effect is a mistake where it is asked for, and not where it is stored.
        self.assertEqual(self.run_program(text=text, model=self.with_settings("diversity", diversity=0.9))[0],
                         self.translate(text))

    def test_a_text_has_one_translation_whatever_the_model_gives_of_lines(self):
        text = "Ba do. Ki.\n"
        several = self.with_settings("several", n_best=2)
        for kind in ("--document", "--markup", "--placeholders"):
            _, errors = self.run_program(kind, text=text, model=several, status=2)
            self.assert_one_line(errors, "decoding.n_best", "give --n-best 1", kind)
            self.assertEqual(self.run_program(kind, "--n-best", 1, text=text, model=several)[0], self.translate(text, kind))

    def test_files(self):
        text = "\n".join(sentences(5)) + "\n"
        expected = self.translate(text)
        source, output = self.root / "in.txt", self.root / "out.txt"
        source.write_text(text)
        self.assertEqual(self.translate("", "--input", source, "--output", output), "")
        self.assertEqual(output.read_text(), expected)
        compressed = self.root / "in.gz"
        compressed.write_bytes(gzip.compress(text.encode()))
        self.assertEqual(self.translate("", "--input", compressed), expected)
        # "-" is a standard stream, for each of them.
        self.assertEqual(self.translate(text, "--input", "-", "--output", "-"), expected)
        self.assertEqual(self.translate(gzip.compress(text.encode())), expected)
        self.assertEqual(self.translate(gzip.compress(text[:20].encode()) + gzip.compress(text[20:].encode())), expected)
        # A run that fails leaves the older file alone, and what is done in another.
        source.write_bytes(text.encode() + b"broken \xff\n")
        _, errors = self.run_program("--input", source, "--output", output, status=2)
        self.assert_one_line(errors, "in.txt:6", "not UTF-8", "out.txt.partial", "does them again")
        self.assertEqual(output.read_text(), expected)
        self.assertEqual((self.root / "out.txt.partial").read_text(), expected)
        source.write_text(text + text)
        self.run_program("--input", source, "--output", output)
        self.assertEqual(output.read_text(), expected + expected)
        self.assertEqual([p.name for p in self.root.iterdir() if "out.txt" in p.name], ["out.txt"])
        # One that fails at once leaves nothing.
        source.write_bytes(b"broken \xff\n")
        self.run_program("--input", source, "--output", output, status=2)
        self.assertEqual([p.name for p in self.root.iterdir() if "out.txt" in p.name], ["out.txt"])
        self.assertEqual(output.read_text(), expected + expected)

    def test_streams_are_written_to_as_they_are(self):
        text = "\n".join(sentences(3)) + "\n"
        expected = self.translate(text)
        self.assertEqual(self.translate(text, "--output", "/dev/stdout"), expected)
        self.assertEqual(self.translate(text, "--output", "/dev/null"), "")
        self.assertTrue(os.path.exists("/dev/null") and not os.path.isfile("/dev/null"))
        _, errors = self.run_program("--output", "/dev/stderr", text=text)
        self.assertEqual(errors, expected)
        # A file that standard output leads to is written where it stands, never replaced.
        file = self.root / "redirected"
        with file.open("wb") as opened:
            opened.write(b"before\n")
            opened.flush()
            number = os.fstat(opened.fileno()).st_ino
            subprocess.run([TRANSLATE, "--model", self.model, "--output", "/dev/stdout"], input=text.encode(),
                           stdout=opened, check=True, env=ENVIRONMENT, timeout=120)
        self.assertEqual(file.read_text(), "before\n" + expected)
        self.assertEqual(file.stat().st_ino, number)
        # Named pipes, in and out.
        for name in ("in.pipe", "out.pipe"):
            os.mkfifo(self.root / name)
        process = subprocess.Popen([TRANSLATE, "--model", self.model, "--input", self.root / "in.pipe", "--output",
                                    self.root / "out.pipe"], env=ENVIRONMENT)
        with open(self.root / "in.pipe", "wb", buffering=0) as written:
            written.write(text.split("\n")[0].encode() + b"\n")
            with open(self.root / "out.pipe", "rb", buffering=0) as read:
                self.assertEqual(read.read(1 << 16).decode(), expected.split("\n")[0] + "\n")  # before the next is there
                written.write("\n".join(text.split("\n")[1:]).encode())
                written.close()
                rest = b"".join(iter(lambda: read.read(1 << 16), b""))
        self.assertEqual(process.wait(60), 0)
        self.assertEqual(rest.decode(), "\n".join(expected.split("\n")[1:]))
        self.assertTrue((self.root / "out.pipe").is_fifo())
        for arguments in (["--alignments", "-"], ["--alignments", "-", "--output", "-"]):
            _, errors = self.run_program(*arguments, text=text, status=2)
            self.assert_one_line(errors, "standard output", "--output")
        links = self.translate(text, "--alignments", "-", "--output", self.root / "beside")
        self.assertEqual(links.count("\n"), 3)
        self.assertEqual((self.root / "beside").read_text(), expected)

    def test_a_bad_line_costs_a_line(self):
        good = sentences(1200)
        few = ("--beam", 1, "--max-extra-length", 0)
        expected = self.translate("\n".join(good) + "\n", *few).split("\n")[:-1]
        bad = {3: b"caf\xe9 ba\xff", 700: b"qx " * 6000, 1100: b"q" * (3 << 20)}
        copies = {3: "caf\ufffd ba\ufffd", 700: "qx " * 6000, 1100: ""}  # of half a line there is no copy
        lines, wanted = [line.encode() for line in good], {"empty": list(expected), "copy": list(expected)}
        for place, line in bad.items():
            lines.insert(place, line)
            wanted["empty"].insert(place, "")
            wanted["copy"].insert(place, copies[place])
        data = b"\n".join(lines) + b"\n"
        for mode in ("empty", "copy"):
            for output in ([], ["--output", self.root / "bad.out"]):
                found, errors = self.run_program("--bad-lines", mode, *few, *output, text=data)
                if output:
                    found = (self.root / "bad.out").read_text()
                self.assertEqual(found.split("\n")[:-1], wanted[mode])
                self.assert_one_line(errors, "warning: 3 lines", "line 4 is not UTF-8 (byte 4", "line 701 has",
                                     "line 1101 is longer than 1 MiB")
                self.assertEqual("copied (left empty where longer than 1 MiB)" in errors, mode == "copy")
        # By default it ends there, all before it done.
        found, errors = self.run_program(*few, text=data, status=2)
        self.assertEqual(found.split("\n")[:-1], expected[:3])
        self.assert_one_line(errors, "standard input:4", "not UTF-8")
        found, errors = self.run_program(*few, text=data.replace(bad[3], b""), status=2)
        self.assertEqual(found.split("\n")[:-1], expected[:3] + [""] + expected[3:699])
        self.assert_one_line(errors, "standard input:701", "word pieces", "split")
        # With everything that is written beside it.
        links = self.root / "bad.links"
        found, _ = self.run_program("--bad-lines", "copy", "--n-best", 2, "--alignments", links, "--scores",
                                    text=b"ba do.\nd\xff\n\nki.\n")
        rows = found.splitlines()
        self.assertEqual([row.split(" ||| ")[0] for row in rows], ["0", "0", "1", "2", "3", "3"])
        self.assertEqual(rows[2], "1 ||| d\ufffd ||| 0.000000")
        self.assertEqual([line == "" for line in links.read_text().splitlines()[2:4]], [True, True])
        self.assertEqual(len(links.read_text().splitlines()), 6)
        found, _ = self.run_program("--bad-lines", "empty", "--scores", text=b"\xff\nki.\n")
        self.assertEqual(found.splitlines()[0], "0.000000\t")
        _, errors = self.run_program("--bad-lines", "skip", text="ba\n", status=2)
        self.assert_one_line(errors, "--bad-lines", "copy")

    def test_odd_text(self):
        one, two = sentences(2)
        for text, count in [(f"{one}\0{two}\n", 1), ("\0\n", 1), (f"{one}\u2028{two}\n", 1), ("\u2028\n\u00a0\n", 2),
                            (f"{one}\r{two}\n", 1), ("\t \n", 1), ("a\tb", 1), ("\ufeff", 1), ("\ufeff\n", 1),
                            ("\r\n\r\n", 2)]:
            with self.subTest(text=text):
                output = self.translate(text)
                self.assertEqual(output.count("\n"), count)
        self.assertEqual(self.translate("\u2028\n"), "\n")
        with open("/dev/zero", "rb") as endless:
            done = subprocess.run([TRANSLATE, "--model", self.model], stdin=endless, capture_output=True,
                                  env=ENVIRONMENT, timeout=60)
        self.assertEqual([done.returncode, done.stdout], [2, b""])
        self.assert_one_line(done.stderr.decode(), "standard input:1", "1 MiB", "break it into lines of at most 1 MiB")
        _, errors = self.run_program("--input", self.root, status=2)
        self.assert_one_line(errors, str(self.root), "folder")
        for damaged, part in [(gzip.compress(b"ba do.\n" * 9)[:-9], "too early"), (gzip.compress(b"ba do.\n" * 9)[:-8] + bytes(8), "damaged"),
                              (gzip.compress(b"ba do.\n" * 9) + b"ba do.\n", "followed by bytes that are none")]:
            _, errors = self.run_program(text=damaged, status=2)
            self.assert_one_line(errors, "standard input:", part)

    def many(self, count=9000):
        few = sentences(97, 3)
        return "".join(few[i % 97] + "\n" for i in range(count))

    def leftovers(self, name):
        return sorted(path.name for path in self.root.iterdir() if path.name.startswith(name))

    def start(self, *arguments, **options):
        return subprocess.Popen([TRANSLATE, "--model", self.model, *map(str, arguments)], env=ENVIRONMENT,
                                stderr=subprocess.PIPE, **options)

    def stop_after_some(self, process, partial, signal_number, bytes_written=1):
        deadline = time.monotonic() + 120
        while not partial.exists() or partial.stat().st_size < bytes_written:
            self.assertIsNone(process.poll(), "it ended before it could be stopped")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.002)
        process.send_signal(signal_number)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors.decode()

    def test_a_killed_translation_goes_on(self):
        source, output, links = self.root / "long.in", self.root / "long.out", self.root / "long.links"
        source.write_text(self.many())
        for extra in ([], ["--n-best", 2, "--scores", "--alignments", links]):
            self.run_program("--input", source, "--output", output, "--beam", 2, *extra)
            expected = [file.read_bytes() for file in ([output, links] if extra else [output])]
            for file in (output, links):
                file.unlink(missing_ok=True)
            arguments = ["--input", source, "--output", output, "--beam", 2, *extra]
            sizes = []
            for number, status in [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)]:
                process = self.start(*arguments)
                # A window is behind what is written before the first end, or the next one would begin anew.
                sizes.append((self.root / "long.out.partial").stat().st_size if sizes else len(expected[0]) // 4)
                found, errors = self.stop_after_some(process, self.root / "long.out.partial", number, sizes[-1] + 1)
                self.assertEqual(found, status, errors)
                if number != signal.SIGKILL:
                    self.assertIn("goes on behind line", errors)
                    self.assertRegex(errors, r"stopped; \d+ lines are kept in \S*long.out.partial, and the same command goes on")
                self.assertFalse(output.exists() or links.exists())
            _, errors = self.run_program(*arguments)
            behind = int(re.search(r"goes on behind line (\d+),", errors).group(1))
            self.assertGreaterEqual(behind, 1024)
            self.assertEqual([file.read_bytes() for file in ([output, links] if extra else [output])], expected)
            self.assertEqual(self.leftovers("long"), ["long.in"] + (["long.links"] if extra else []) + ["long.out"])

    def kept(self, text, *arguments, name="other"):
        """Leaves what a killed translation leaves, and how many lines that is."""
        output = self.root / f"{name}.out"
        process = self.start("--output", output, "--beam", 1, *arguments, stdin=subprocess.PIPE)
        process.stdin.write(text.encode() if isinstance(text, str) else text)  # and stays open: the last window waits for more
        process.stdin.flush()
        partial = self.root / f"{name}.out.partial"
        deadline = time.monotonic() + 120
        while not partial.exists() or partial.read_bytes().count(b"\n") < 2048:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        time.sleep(0.2)
        process.kill()
        process.communicate()
        return output, partial

    def test_what_belongs_to_other_work_is_kept(self):
        text = self.many(2500)
        plain = self.translate(text, "--beam", 1)
        # The same lines through a pipe go on; further ones may follow.
        output, _ = self.kept(text)
        _, errors = self.run_program("--output", output, "--beam", 1, text=text + "ba do.\n")
        self.assertIn("goes on behind line 2048", errors)
        self.assertEqual(output.read_text(), plain + self.translate("ba do.\n", "--beam", 1))
        # Others: from the window on that differs.
        changed = text.split("\n")
        changed[1500] = "ki."
        changed = "\n".join(changed)
        output, _ = self.kept(text)
        _, errors = self.run_program("--output", output, "--beam", 1, text=changed)
        self.assertIn("goes on behind line 1024", errors)
        self.assertEqual(output.read_text(), self.translate(changed, "--beam", 1))
        # Other text, other settings, another model: nothing goes, and the remedy is one.
        model = self.root / "another"
        subprocess.run([MAKE_MODEL, model, "two"], check=True, env=ENVIRONMENT)
        broken = b"\xff\n" + text.split("\n", 1)[1].encode()
        for given, said in (({"text": "ba do.\n"}, "of other text"), ({"text": b"\xff\n"}, "of other text"),
                            ({"text": ""}, "of other text"), ({"text": text, "beam": 2}, "with another search"),
                            ({"text": text, "model": model}, "with another model")):
            output, partial = self.kept(text)
            others = {"text": given["text"], "model": given.get("model", self.model)}
            lines = partial.read_bytes()
            arguments = ("--output", output, "--beam", given.get("beam", 1))
            _, errors = self.run_program(*arguments, **others, status=2)
            self.assert_one_line(errors, "other.out.partial: is unfinished, and was made " + said, "delete it")
            self.assertEqual(partial.read_bytes(), lines)
            _, errors = self.run_program("--output", output, "--beam", 1, text=text)
            self.assertIn("goes on behind line 2048", errors)
            output, partial = self.kept(text)
            partial.unlink()
            if given["text"] == text:
                self.run_program(*arguments, **others)
                self.assertEqual(output.read_text(), self.run_program(*arguments[2:], **others)[0])
            else:
                (self.root / "other.out.partial.journal").unlink()
        output, partial = self.kept(broken, "--bad-lines", "empty")
        lines = partial.read_bytes()
        _, errors = self.run_program("--output", output, "--beam", 1, "--bad-lines", "copy", text=broken, status=2)
        self.assert_one_line(errors, "was made with another --bad-lines")
        self.assertEqual(partial.read_bytes(), lines)
        _, errors = self.run_program("--output", output, "--beam", 1, "--bad-lines", "empty", text=broken)
        self.assertIn("goes on behind line 2048", errors)
        self.assertRegex(errors, r"1 line could not be used.*line 1 is not UTF-8")
        # Which of the lines it was that nothing stands for is known, though it is not one of those that are named.
        bad = b"\xff\n" * 5 + b"q" * (1 << 20) + b"q\n" + text.encode()
        output, _ = self.kept(bad, "--bad-lines", "copy")
        _, errors = self.run_program("--output", output, "--beam", 1, "--bad-lines", "copy", text=bad)
        self.assertIn("goes on behind line 2048", errors)
        self.assertIn("6 lines could not be used and were copied (left empty where longer than 1 MiB)", errors)
        # Less than a window would be done again in any case; what nobody knows to be of the work stays.
        short, links = b"ba do.\n\xff\n", self.root / "other.links"
        _, errors = self.run_program("--output", output, "--alignments", links, text=short, status=2)
        self.assertIn("1 line is kept in", errors)
        self.assertIn("the same command does them again", errors)
        _, errors = self.run_program("--output", output, text=short, status=2)
        _, errors = self.run_program("--output", output, "--alignments", links, text="ba do.\n", status=2)
        self.assert_one_line(errors, "other.links.partial", "is not of this work", "move it away")
        (self.root / "other.links.partial").unlink()
        self.run_program("--output", output, "--alignments", links, text="ba do.\n")
        links.unlink()
        # What was changed since is done again; so is what a journal that was cut off does not tell.
        for damage in (lambda partial, journal: partial.write_bytes(b"X" + partial.read_bytes()[1:]),
                       lambda partial, journal: partial.write_bytes(partial.read_bytes()[:100]),
                       lambda partial, journal: partial.unlink(),
                       lambda partial, journal: journal.write_bytes(journal.read_bytes()[:-20])):
            output, partial = self.kept(text)
            damage(partial, self.root / "other.out.partial.journal")
            self.run_program("--output", output, "--beam", 1, text=text)
            self.assertEqual(output.read_text(), plain)
        self.assertEqual(self.leftovers("other"), ["other.out"])

    def test_what_was_begun_with_an_option_is_not_gone_on_with_without_it(self):
        text = self.many(2500)
        wishes, terms = self.root / "begun.wishes", self.root / "begun.terms"
        wishes.write_text("\n" * 2500)
        terms.write_text("zzz\trara\n")
        of_wishes, of_splitting = "with another file of wishes", "with another way of splitting"
        for options, said in ((["--prefix", wishes], of_wishes), (["--require", wishes], of_wishes),
                              (["--forbid", terms], of_wishes), (["--bias", self.root / "begun.bias"], of_wishes),
                              (["--glossary", terms], of_wishes), (["--document"], of_splitting),
                              (["--markup"], "with another"), (["--placeholders"], "with another")):
            (self.root / "begun.bias").write_text("<unk>\t-100\n")
            output, partial = self.kept(text, *options, name="begun")
            journal = self.root / "begun.out.partial.journal"
            before = partial.read_bytes(), journal.read_bytes()
            _, errors = self.run_program("--output", output, "--beam", 1, text=text, status=2)
            self.assert_one_line(errors, "begun.out.partial: is unfinished, and was made " + said, "delete it")
            self.assertEqual((partial.read_bytes(), journal.read_bytes()), before)
            partial.unlink()
            journal.unlink()
        # Batches decide nothing.
        output, _ = self.kept(text, "--batch-sentences", 7, name="begun")
        _, errors = self.run_program("--output", output, "--beam", 1, text=text)
        self.assertIn("goes on behind line 2048", errors)
        self.assertEqual(output.read_text(), self.translate(text, "--beam", 1))

    def test_what_cannot_be_read_ends_the_start_and_stays(self):
        text = self.many(2500)
        lines = text.splitlines(keepends=True)
        output, partial = self.kept(text, name="unread")
        journal = self.root / "unread.out.partial.journal"
        source, failing, cut = self.root / "unread.in", self.root / "unread.mem", self.root / "unread.gz"
        source.write_text("".join(lines[:2048]))
        failing.symlink_to("/proc/self/mem")
        cut.write_bytes(gzip.compress("".join(lines[:1500]).encode())[:-8])

        def assert_stays(given, said, status):
            there = sorted((file, file.read_bytes()) for file in (output, partial, journal) if file.exists())
            command = as_permitted(TRANSLATE, "--model", self.model, "--input", given, "--output", output, "--beam", "1")
            done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assert_one_line(done.stderr, said)
            self.assertEqual(sorted((file, file.read_bytes()) for file in (output, partial, journal) if file.exists()), there)

        # The text, at its beginning and within what is done.
        assert_stays(failing, "unread.mem: cannot be read", 1)
        assert_stays(cut, "the gzip data end too early", 2)
        partial.chmod(0o200)
        assert_stays(source, "unread.out.partial: cannot be opened: Permission denied; start again when it can be read", 1)
        # As a process leaves it that dies when the file has its name already.
        partial.rename(output)
        assert_stays(source, "unread.out: cannot be opened: Permission denied; start again when it can be read", 1)
        output.chmod(0o644)
        _, errors = self.run_program("--input", source, "--output", output, "--beam", 1)
        self.assertIn("goes on behind line 2048", errors)
        self.assertEqual(output.read_text(), self.translate(source.read_text(), "--beam", 1))

    def test_a_reader_who_has_seen_enough_is_told_nothing_of_lines_that_were_not_read(self):
        source, wishes = self.root / "enough.in", self.root / "enough.wishes"
        source.write_text(self.many())
        wishes.write_text("\n" * 9000)
        process = self.start("--input", source, "--prefix", wishes, "--beam", 1, stdout=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.stderr.read(), b"")
        self.assertEqual(process.wait(60), 1)
        process.stderr.close()

    def test_files_of_others_are_never_touched(self):
        for name in ("mine.out.partial", "mine.out.partial.journal"):
            for content in (b"a thesis", b"unfinished business\n"):
                file = self.root / name
                file.write_bytes(content)
                _, errors = self.run_program("--output", self.root / "mine.out", text="ba do.\n", status=2)
                self.assert_one_line(errors, name, "in the way")
                self.assertEqual(file.read_bytes(), content)
                self.assertEqual(self.leftovers("mine"), [name])
                file.unlink()
        thesis = self.root / "thesis"
        thesis.write_text("a thesis")
        for name in ("mine.out.partial", "mine.out.partial.journal"):
            (self.root / name).symlink_to("thesis")
            self.run_program("--output", self.root / "mine.out", text="ba do.\n",
                             status=1 if name.endswith("journal") else 2)
            self.assertEqual(thesis.read_text(), "a thesis")
            (self.root / name).unlink()
        long_name = self.root / ("n" * 255)
        self.translate("ba do.\n", "--output", long_name)
        self.assertEqual(long_name.read_text(), self.translate("ba do.\n"))

    def test_outputs_that_would_share_a_name_are_refused(self):
        for other in ("two.out", "two.out.partial", "two.out.partial.journal"):
            _, errors = self.run_program("--output", self.root / "two.out", "--alignments", self.root / other,
                                         text="ba do.\n", status=2)
            self.assert_one_line(errors, "two.out")
            self.assertEqual(self.leftovers("two"), [])

    def test_ignored_signals_keep_no_translation_from_its_end(self):
        for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            for source, status in (("ba do.\n", 0), (None, 2)):
                file = self.root / "ignored.in"
                file.unlink(missing_ok=True)
                if source:
                    file.write_text(source)
                process = self.start("--input", file, "--output", self.root / "ignored.out",
                                     preexec_fn=lambda ignored=ignored: signal.signal(ignored, signal.SIG_IGN))
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, status)

    @unittest.skipUnless(platform.machine() == "x86_64", "the calls have other numbers elsewhere")
    def test_a_kernel_without_memory_to_wait_with_keeps_no_translation_from_its_end(self):
        # poll() and ppoll() fail for good, with ENOMEM; everything else does as ever.
        load, is_equal, give, allow, fail = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050000 | errno.ENOMEM
        code = b"".join(struct.pack("=HBBI", *step) for step in (
            (load, 0, 0, 0), (is_equal, 1, 0, 7), (is_equal, 0, 1, 271), (give, 0, 0, fail), (give, 0, 0, allow)))
        steps = ctypes.create_string_buffer(code, len(code))
        program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(steps)))
        control = ctypes.CDLL(None, use_errno=True).prctl
        no_new_privileges, seccomp, by_filter = 38, 22, 2

        def without_poll():
            assert control(no_new_privileges, 1, 0, 0, 0) == 0
            assert control(seccomp, by_filter, program, 0, 0) == 0

        source, output = self.root / "unpolled.in", self.root / "unpolled.out"
        source.write_text("ba do.\n")
        process = self.start("--input", source, "--output", output, preexec_fn=without_poll)
        self.assertEqual(process.communicate(timeout=60)[1], b"")
        self.assertEqual(process.returncode, 0)
        self.assertEqual(output.read_text(), self.translate("ba do.\n"))
        given, giving = os.pipe()
        with open(giving, "wb"):
            process = self.start("--output", output, stdin=given, preexec_fn=without_poll)
            os.close(given)
            journal = self.root / "unpolled.out.partial.journal"
            deadline = time.monotonic() + 60
            while not journal.exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            process.terminate()
            self.assertIn(b"translate: stopped", process.communicate(timeout=60)[1])
            self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def test_two_processes_on_one_output(self):
        output = self.root / "twice.out"
        process = self.start("--output", output, stdin=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not (self.root / "twice.out.partial.journal").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        time.sleep(0.2)
        _, errors = self.run_program("--output", output, text="ba\n", status=2)
        self.assert_one_line(errors, "twice.out", "another process")
        process.communicate(b"ba do.\n", timeout=60)
        self.assertEqual(output.read_text(), self.translate("ba do.\n"))

    def test_a_disk_that_fills_keeps_what_is_done(self):
        source, output = self.root / "full.in", self.root / "full.out"
        source.write_text(self.many(4000))
        expected = self.translate(source.read_text(), "--beam", 1)
        limit = len(expected.encode()) * 3 // 4

        def limited():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        process = self.start("--input", source, "--output", output, "--beam", 1, preexec_fn=limited)
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, errors)
        self.assert_one_line(errors.decode(), "full.out", "File too large", "lines are kept", "goes on")
        _, errors = self.run_program("--input", source, "--output", output, "--beam", 1)
        self.assertIn("goes on behind line", errors)
        self.assertEqual(output.read_text(), expected)

    def test_progress(self):
        output = self.root / "progress.out"
        terminal, side = pty.openpty()
        source = self.root / "progress.in"
        source.write_text(self.many(6000))
        process = subprocess.Popen([TRANSLATE, "--model", self.model, "--input", source, "--output", output], stderr=side,
                                   env=ENVIRONMENT)
        os.close(side)
        shown = b""
        while True:
            try:
                read = os.read(terminal, 1 << 16)
            except OSError:
                break
            if not read:
                break
            shown += read
        os.close(terminal)
        self.assertEqual(process.wait(60), 0)
        self.assertRegex(shown.decode(), r"\rtranslate \[#+\.*\] +\d+ %  \d+ lines, ")
        self.assertEqual(shown.count(b"\n"), 1)

    def test_alignments(self):
        lines = sentences(12)
        lines[2] = lines[7] = ""
        text = "\n".join(lines) + "\n"
        links, output = self.root / "links", self.root / "aligned.txt"
        plain = self.translate(text)
        self.assertEqual(self.translate(text, "--alignments", links), plain)
        aligned = links.read_text().split("\n")
        self.assertEqual(len(aligned), 13)
        self.assertEqual([aligned[i] for i in (2, 7, 12)], [""] * 3)
        self.assertGreater(len(set(aligned)), 3)
        for source, target, line in zip(lines, plain.split("\n"), aligned):
            pairs = [tuple(map(int, link.split("-"))) for link in line.split()]
            self.assertTrue(all(s < len(source.split()) for s, _ in pairs), (source, line))
            # In the order of the output's words, each at most once.
            self.assertEqual([t for _, t in pairs], sorted({t for _, t in pairs}))
            self.assertTrue(all(t < len(re.split("[ \t\n\v\f\r]+", target)) for _, t in pairs), (target, line))
        # Whatever the batch, and whether output goes to a file.
        self.translate(text, "--alignments", links, "--batch-sentences", 3, "--output", output)
        self.assertEqual([links.read_text().split("\n"), output.read_text()], [aligned, plain])
        # A line for every hypothesis.
        n_best = self.translate(text, "--alignments", links, "--n-best", 3)
        several = links.read_text().split("\n")
        self.assertEqual(len(several), len(n_best.split("\n")))
        numbers = [line.split(" ", 1)[0] for line in n_best.splitlines()]
        firsts = [numbers.index(str(i)) for i in range(12)]
        self.assertEqual([several[i] for i in firsts], aligned[:12])
        # Other attention, other links.
        self.translate(text, "--alignments", links, "--alignment-layer", 1, "--alignment-head", 2,
                       "--alignment-at", "reading")
        self.assertNotEqual(links.read_text().split("\n"), aligned)
        # A run that fails leaves the older file alone.
        before = links.read_text()
        self.run_program("--alignments", links, text=b"ba\nbad \xff\n", status=2)
        self.assertEqual(links.read_text(), before)
        self.assertEqual([p.name for p in self.root.iterdir() if p.name.startswith("links")], ["links"])
        for arguments, status, parts in [
            (["--alignment-layer", 1], 2, ["--alignment-layer", "--alignments"]),
            (["--alignments", links, "--alignment-layer", 3], 2, ["alignment_layer", "no layer 3"]),
            (["--alignments", links, "--alignment-head", 3], 2, ["alignment_head", "no head 3"]),
            (["--alignments", links, "--alignment-head", -1], 2, ["--alignment-head"]),
            (["--alignments", links, "--alignment-at", "once"], 2, ["--alignment-at", "reading"]),
            (["--alignments", links, "--output", links], 2, ["links", "--output"]),
            (["--alignments", self.root / "no" / "links"], 2, ["links", "no folder"]),
        ]:
            with self.subTest(arguments=arguments):
                written, errors = self.run_program(*arguments, text="ba\n", status=status)
                self.assertEqual(written, "")
                self.assert_one_line(errors, *parts)

    def json_lines(self, text, *arguments):
        output, errors = self.run_program("--output-format", "jsonl", *arguments, text=text)

        def no_constant(name):
            raise AssertionError(f"{name} is no JSON")

        return [json.loads(line, parse_constant=no_constant) for line in output.split("\n")[:-1]], errors

    def assert_tells_all(self, entry):
        self.assertEqual(entry["words"], entry["text"].split())
        self.assertEqual(len(entry["word_confidences"]), len(entry["words"]))
        self.assertEqual(len(entry["word_entropies"]), len(entry["words"]))
        # No more than all choices alike have of a vocabulary of less than a thousand pieces.
        self.assertTrue(all(0 <= each <= math.log(1000) for each in [entry["entropy"], *entry["word_entropies"]]))
        self.assertEqual(len(entry["token_log_probabilities"]), len(entry["tokens"]) + entry["finished"])
        logs = entry["token_log_probabilities"]
        self.assertAlmostEqual(sum(logs), entry["log_probability"], places=9)
        self.assertAlmostEqual(entry["confidence"], math.exp(sum(logs) / len(logs)), places=9)
        self.assertLessEqual(entry["log_probability"], entry["score"])
        targets = [target for _, target in entry["alignment"]]
        self.assertEqual(targets, sorted(set(targets)))
        self.assertTrue(all(target < len(entry["words"]) for target in targets))
        # The pieces of a word are those up to the next that begins with a space.
        if "".join(entry["tokens"]).replace("▁", " ").split() != entry["words"] or not "".join(entry["tokens"][:1]).startswith("▁"):
            return 0
        pieces = []
        for piece, log in zip(entry["tokens"], logs):
            if piece.startswith("▁"):
                pieces.append([])
            pieces[-1].append(log)
        if any("▁" in piece[1:] for piece in entry["tokens"]) or "▁" in entry["tokens"]:
            return 0
        for found, word in zip(entry["word_confidences"], pieces):
            self.assertAlmostEqual(found, math.exp(sum(word) / len(word)), places=9)
        return 1

    def test_json_lines(self):
        lines = sentences(12)
        lines[2] = ""
        lines[5] = 'ba "do"\t\\ \x01 <ki> \u202elu \u0301'
        text = "\n".join(lines) + "\n"
        links = self.root / "links"
        found, errors = self.json_lines(text, "--n-best", 3, "--alignments", links)
        self.assertEqual(errors, "")
        n_best = self.translate(text, "--n-best", 3).splitlines()
        listed = [entry for line in found for entry in line["n_best"]]
        numbers = [number for number, line in enumerate(found) for _ in line["n_best"]]
        self.assertEqual([f"{number} ||| {entry['text']} ||| {entry['score']:.6f}"
                          for number, entry in zip(numbers, listed)], n_best)
        self.assertEqual([" ".join(f"{s}-{t}" for s, t in entry["alignment"]) for entry in listed],
                         links.read_text().splitlines())
        spelled = 0
        for number, line in enumerate(found):
            sources = line.pop("source_words")
            best, *_ = line.pop("n_best")
            self.assertEqual(line, best)
            self.assertEqual(sources, lines[number].split())
            if number == 2:
                self.assertEqual([best["text"], best["confidence"], best["tokens"], best["words"], best["alignment"]],
                                 ["", None, [], [], []])
                continue
            self.assertTrue(all(source < len(sources) for source, _ in best["alignment"]))
        for entry in listed:
            if entry["tokens"]:
                spelled += self.assert_tells_all(entry)
        self.assertGreater(spelled, 0)
        # Without a list the best alone, whatever the batch.
        plain, _ = self.json_lines(text, "--batch-sentences", 2, "--threads", 2)
        self.assertNotIn("n_best", plain[0])
        self.assertEqual([line["text"] for line in plain], self.translate(text).splitlines())

    def test_json_lines_of_bad_lines(self):
        one, two = sentences(2)
        text = one.encode() + b"\nbad \xff \"\n" + b"ba " * 5100 + b"\n" + two.encode() + b"\n"
        found, errors = self.json_lines(text, "--bad-lines", "copy")
        self.assertIn("2 lines could not be used", errors)
        self.assertEqual(found[1]["text"], 'bad \ufffd "')
        self.assertIn("UTF-8", found[1]["problem"])
        self.assertIn("word pieces", found[2]["problem"])
        self.assertEqual([len(found), "problem" in found[0], "problem" in found[3]], [4, False, False])
        empty, _ = self.json_lines(text, "--bad-lines", "empty")
        self.assertEqual([line["text"] for line in empty[1:3]], ["", ""])
        self.assertEqual(empty[3], found[3])

    def test_documents_are_translated_sentence_by_sentence(self):
        one, two, three, four = (sentence.capitalize() for sentence in sentences(4, seed=5))
        alone = dict(zip([one, two, three, four], self.translate("\n".join([one, two, three, four])).splitlines()))
        document = f"\n\n\t {one}  {two}\r\n \u00a0 \r\n-----\n{three}\u3000{four}\n***  \n  {one}"
        expected = (f"\n\n\t {alone[one]}  {alone[two]}\r\n \u00a0 \r\n-----\n{alone[three]}\u3000{alone[four]}\n***  \n"
                    f"  {alone[one]}")
        self.assertEqual(self.translate(document, "--document"), expected)
        self.assertEqual(self.translate(document, "--document", "--batch-sentences", 1, "--threads", 2), expected)
        self.assertEqual(self.translate(document + "\r\n", "--document"), expected + "\r\n")
        for nothing in ("", "\n", "\r\n\n", " "):
            self.assertEqual(self.translate(nothing, "--document"), nothing)
        source, output = self.root / "document.gz", self.root / "document.out"
        source.write_bytes(gzip.compress(document.encode()))
        self.assertEqual(self.translate("", "--document", "--input", source, "--output", output), "")
        self.assertEqual(output.read_bytes().decode(), expected)
        # As JSON: a line's text, and its sentences with all that there is to know of them.
        # What marks a list's items is no text.
        marked = f"- {one}\n * {two} {three}\n12. {four}\r\n\u2022\t{one}\n"
        self.assertEqual(self.translate(marked, "--document"),
                         f"- {alone[one]}\n * {alone[two]} {alone[three]}\n12. {alone[four]}\r\n\u2022\t{alone[one]}\n")
        found, _ = self.json_lines(document, "--document")
        self.assertEqual([line["text"] for line in found], expected.replace("\r", "").split("\n"))
        self.assertEqual([sentence["source"] for line in found for sentence in line["sentences"]],
                         [one, two, three, four, one])
        for line in found:
            for sentence in line["sentences"]:
                self.assertEqual(sentence["text"], alone[sentence["source"]])
                self.assertEqual(sentence["source_words"], sentence["source"].split())
                self.assert_tells_all(sentence)

    def test_what_a_document_says_at_its_beginning_is_said_of_all_its_sentences(self):
        one, two, three = (sentence.capitalize() for sentence in sentences(3, seed=6))
        model = self.root / "tagged"
        shutil.copytree(self.model, model)
        config = model / "config.yaml"
        config.write_text(config.read_text() + "\ndata:\n  train_tags: [\"\", do, lu]\n")

        def entries(text, *arguments):
            output, _ = self.run_program("--output-format", "jsonl", *arguments, text=text, model=model)
            return [json.loads(line) for line in output.splitlines()]

        alone = entries(f"do {one}\ndo {two}\nlu {three}\nlu {one}\n{two}\n")
        lines = entries(f"do {one} {two}\nlu {three} {one}\n{two}\n", "--document")
        found = [sentence for line in lines for sentence in line["sentences"]]
        self.assertEqual([sentence["source"] for sentence in found], [f"do {one}", two, f"lu {three}", one, two])
        # Each as if it had been told alone, and what is said before a sentence is none of its words.
        for sentence, expected, said in zip(found, alone, [0, 1, 0, 1, 0]):
            for key in ("text", "score", "tokens", "token_log_probabilities", "entropy", "word_entropies"):
                self.assertEqual(sentence[key], expected[key], key)
            self.assertEqual(sentence["alignment"],
                             [[source - said, target] for source, target in expected["alignment"] if source >= said])
        self.assertNotEqual(found[1]["score"], found[4]["score"])
        # Where tags go is read from the same attention.
        marked, plain = (self.run_program("--document", "--markup", text=text, model=model)[0]
                         for text in (f"do {one} <b>{two}</b>", f"{one} <b>{two}</b>"))
        self.assertEqual(marked.count("<b>"), 1)
        self.assertNotEqual(marked, plain)

    def test_long_sentences_are_cut_and_counted(self):
        long = "ba do " * 1500 + "ba; " + "lu mé " * 1500 + "lu."
        arguments = ["--document", "--beam", 1, "--max-extra-length", 0]
        output, errors = self.run_program(*arguments, text=f"Ba.\n {long} Do.\n")
        self.assert_one_line(errors, "1 sentence was longer than the 5000 word pieces", "cut")
        self.assertEqual(output.count("\n"), 2)
        found, _ = self.json_lines(f"{long}\n", *arguments)
        self.assertGreater(len(found[0]["sentences"]), 1)
        self.assertEqual(found[0]["sentences"][0]["source"], "ba do " * 1500 + "ba;")
        # Work that goes on counts what was cut before.
        source, output = self.root / "cut.txt", self.root / "cut.out"
        lines = ["ba " * 5100] + ["Ba. Do."] * 1050
        source.write_bytes("\n".join(lines).encode() + b"\n\xff\n")
        _, errors = self.run_program(*arguments, "--input", source, "--output", output, status=2)
        self.assertIn("the same command goes on", errors)
        source.write_bytes("\n".join(lines).encode() + b"\n")
        _, errors = self.run_program(*arguments, "--input", source, "--output", output)
        self.assertIn("goes on behind line 1024", errors)
        self.assertIn("1 sentence was longer", errors)
        self.assertEqual(len(output.read_text().splitlines()), 1051)
        # Bad lines are bad as they are elsewhere, and with another way of splitting the work is another.
        output, errors = self.run_program("--document", "--bad-lines", "copy", text=b"a \xff b\r\nBa.")
        self.assertTrue(output.startswith("a \ufffd b\r\n"), output)
        self.assertIn("could not be used", errors)

    def test_tags_go_over_the_lines_of_a_page(self):
        page = ("<!DOCTYPE html\n\"a\">\n<!-- first\n\n<b>second --><p class='a'\r\n  id=b>Ba.</p><script>\nvar ba = 1 < 2;\n"
                "</script\n>\nDo.\n<style>p {\n}</style><br")
        expected = page
        for word in ("Ba.", "Do."):
            expected = expected.replace(word, self.translate(f"{word}\n").rstrip("\n"))
        output, _ = self.run_program("--document", "--markup", text=page)
        self.assertEqual(output, expected)
        # What ends the work in between changes nothing.
        lines = ["Ba."] * 1000 + ["<!--", "do"] + ["do <!-- ba"] * 1100 + ["--> Ba."] + ["Ba."] * 300
        text = "\n".join(lines) + "\n"
        output, partial = self.kept(text, "--document", "--markup", name="page")
        _, errors = self.run_program("--document", "--markup", "--beam", 1, "--output", output, text=text)
        self.assertIn("goes on behind line 2048", errors)
        done = output.read_text().split("\n")
        self.assertEqual(done[1000:2102], lines[1000:2102])
        self.assertEqual(done[2102], "--> " + done[0])
        self.assertEqual(done[2103:-1], done[:1] * 300)
        # What does not end is told.
        _, errors = self.run_program("--document", "--markup", text="Ba.\n<i>ba</i> <!-- do\n\nba\n")
        self.assert_one_line(errors, "what begins in line 2", "does not end")
        # Without --document each line is a text.
        output, _ = self.run_program("--markup", text="<!-- ba\ndo -->\n")
        self.assertNotEqual(output, "<!-- ba\ndo -->\n")

    def test_markup_is_carried_over(self):
        generator = random.Random(8)

        def marked(depth):
            parts = []
            for _ in range(generator.randint(0, 3)):
                kind = generator.random()
                if kind < 0.5 or depth == 0:
                    parts.append(" ".join(sentences(1, generator.random())[0].split()[:3]) + generator.choice(["", " &amp; ", "&lt;ba&gt;"]))
                elif kind < 0.9:
                    name = generator.choice(["b", "i", "p", "li", "a href='x>y'"])
                    parts.append(f"<{name}>{marked(depth - 1)}</{name.split()[0]}>")
                else:
                    parts.append(generator.choice(["<br/>", "<!-- note -->", "<img src=\"x\">"]))
            return generator.choice(["", " "]).join(parts)

        class Reader(html.parser.HTMLParser):
            def __init__(self, text):
                super().__init__(convert_charrefs=True)
                self.tags, self.text, self.open = [], "", []
                self.feed(text)
                self.close()

            def handle_starttag(self, tag, attributes):
                self.tags.append(self.get_starttag_text())
                if tag != "img":
                    self.open.append(tag)

            def handle_startendtag(self, tag, attributes):
                self.tags.append(self.get_starttag_text())

            def handle_endtag(self, tag):
                self.tags.append(f"</{tag}>")
                assert self.open.pop() == tag, "elements are within each other"

            def handle_data(self, data):
                self.text += data

            def handle_comment(self, data):
                self.tags.append(f"<!--{data}-->")

        lines = [marked(4) for _ in range(60)]
        lines[5] = ""
        plain = [Reader(line).text for line in lines]
        text = "\n".join(lines) + "\n"
        output = self.translate(text, "--markup")
        for line, translated, expected in zip(lines, output.split("\n"), self.translate("\n".join(plain) + "\n").split("\n")):
            with self.subTest(line=line):
                before, after = Reader(line), Reader(translated)
                self.assertEqual(sorted(after.tags), sorted(before.tags))
                # Of the model's own making: Python's parser normalises no other characters.
                self.assertEqual(after.text.replace("\0", "\ufffd"), expected.replace("\0", "\ufffd"))
        self.assertEqual(self.translate(text, "--markup", "--batch-sentences", 3, "--threads", 2), output)
        # Paragraphs by themselves, blanks as they were, and everything beside each other.
        page = "<p>Ba do. <b>Ki lu.</b></p>\r\n\n  <ul><li>Mé<li>Ba do.</ul> <!-- x -->\n<p title='a > b'>"
        found = self.translate(page, "--markup", "--document")
        self.assertRegex(found, r"^<p>.*<b>.*</b></p>\r\n\n  <ul><li>.*<li>.*</ul> <!-- x -->\n<p title='a > b'>$")
        json_line = self.json_lines(page.replace("\r", ""), "--markup", "--document")[0]
        self.assertEqual("\n".join(line["text"] for line in json_line), found.replace("\r", ""))
        self.assertEqual([s["source"] for line in json_line for s in line["sentences"]],
                         ["Ba do.", "Ki lu.", "Mé", "Ba do."])
        for hostile in ("<b>" * 2000 + "ba" + "</b>" * 2000, "<" * 3000, "&" * 3000, "<b ba", "\u202e<b>\u05d0</b>\u0301 \0"):
            self.assertEqual(self.translate(hostile + "\n", "--markup").count("<b>"), hostile.count("<b>"))

    def test_placeholders_are_carried_over(self):
        generator = random.Random(4)
        kinds = ["{name}", "{0}", "{n:.2f}", "{{x}}", "${home}", "%s", "%d", "%1$s", "%(a)s", "http://a.b/c?d=1", "me@x.org"]
        lines, plain, expected = [], [], []
        for words in (sentence.split() for sentence in sentences(60, seed=12)):
            own = generator.choices(kinds, k=generator.randint(0, 3))
            for place, placeholder in zip(sorted(generator.choices(range(len(words)), k=len(own)), reverse=True), own):
                words.insert(place, placeholder)
            lines.append(" ".join(words))
            plain.append(" ".join(word for word in words if word not in kinds))
            expected.append(sorted(own))
        text = "\n".join(lines) + "\n"
        translations = self.translate("\n".join(plain) + "\n").split("\n")
        output = self.translate(text, "--placeholders")
        any_of_them = re.compile("|".join(map(re.escape, kinds)))
        for line, found, own, translation in zip(lines, output.split("\n"), expected, translations):
            with self.subTest(line=line):
                self.assertEqual(sorted(any_of_them.findall(found)), own)
                # But for blanks beside them, the rest is the translation of the text without.
                self.assertEqual("".join(any_of_them.sub("", found).split()), "".join(translation.split()))
        self.assertEqual(self.translate(text, "--placeholders", "--batch-sentences", 3, "--threads", 2), output)
        # Text that has none is translated as ever, and nothing is a reference.
        harmless = "Ba 100 % do { 5% d'accord.\nKi & <b> lu 100%ige.\n"
        self.assertEqual(self.translate(harmless, "--placeholders"), self.translate(harmless))
        # In documents, and in markup, whose tags are left alone.
        page = "<p>Ba do {0}. <b>Ki</b> lu <a href='%s'>{a}</a>.</p>\n  Mé &amp; \"%d\"!\n"
        for arguments in (["--markup"], ["--markup", "--document"]):
            found = self.translate(page, "--placeholders", *arguments)
            for part in ("{0}", "<a href='%s'>", "{a}", '"%d"', "<b>", "</a>"):
                self.assertEqual(found.count(part), 1, found)
        self.assertEqual(self.translate("  {a}: {b}\n%s\n", "--placeholders", "--document"), "  {a}: {b}\n%s\n")
        self.assertNotIn("{name}", self.translate("{name}\n"))

    def test_the_least_risk_of_several_translations(self):
        lines = sentences(30, seed=3) + ["", "ba"]
        text = "\n".join(lines) + "\n"
        sampling = ["--search", "sampling", "--temperature", 0.5, "--n-best", 12, "--seed", 5]
        for search in (sampling, ["--n-best", 4]):
            several = self.translate(text, *search)
            for metric in ("chrf", "chrf++", "bleu"):
                with self.subTest(search=search, metric=metric):
                    chosen = subprocess.run([EVALUATE, "mbr", "--best", "--metric", metric], input=several.encode(),
                                            capture_output=True, env=ENVIRONMENT, check=True).stdout.decode()
                    found = self.translate(text, *search, "--mbr", metric)
                    self.assertEqual(found, chosen)
                    self.assertEqual(self.translate(text, *search, "--mbr", metric, "--threads", 2, "--batch-sentences", 3),
                                     found)
        self.assertNotEqual(found, self.translate(text))
        # Of those cut short, the one most like all others may lack what is required, which others hold.
        (self.root / "asked").write_text("Donaudampfschiff\n")
        asked = ("--require", self.root / "asked", "--beam", 12, "--n-best", 12, "--max-extra-length", 2)
        several, _ = self.run_program(*asked, model=SHIPPED, text="We met in Boston.\n")
        alike = subprocess.run([EVALUATE, "mbr", "--best"], input=several.encode(), capture_output=True, env=ENVIRONMENT,
                               check=True).stdout.decode()
        self.assertNotIn("Donaudampfschiff", alike)
        chosen, errors = self.run_program(*asked, "--mbr", "chrf", model=SHIPPED, text="We met in Boston.\n")
        self.assertIn("Donaudampfschiff", chosen)
        self.assertEqual(errors, "")
        # With what there is to know of the one that was chosen, whose score is the model's.
        scored = self.translate(text, *sampling, "--mbr", "chrf", "--scores").split("\n")[:-1]
        links = self.root / "chosen.links"
        objects = self.json_lines(text, *sampling, "--mbr", "chrf", "--alignments", links)[0]
        listed = {tuple(line.split(" ||| ")[1:]) for line in self.translate(text, *sampling).split("\n")[:-1]}
        self.assertEqual(len(links.read_text().split("\n")[:-1]), len(lines))
        self.assertEqual([len(scored), len(objects)], [len(lines)] * 2)
        for line, entry in zip(scored, objects):
            score, translation = line.split("\t")
            self.assertEqual(entry["text"], translation)
            self.assertIn((translation, score), listed)
            self.assertNotIn("n_best", entry)
            self.assertAlmostEqual(entry["score"], float(score), places=5)

    def test_terms_of_a_glossary_are_translated_as_it_says(self):
        lines = sentences(20, seed=9)
        word = lines[0].split()[0].strip(".")
        lines[0] = f"{word.upper()} {lines[0]}"
        glossary = self.root / "terms.tsv"
        glossary.write_text(f"{word}\tdoki lu\n\n{word} {word}\tnono\nzzz\trara\n")
        text = "\n".join(lines) + "\n"
        plain = self.translate(text).split("\n")
        for arguments in ([], ["--document"], ["--markup"]):
            with self.subTest(arguments=arguments):
                found, errors = self.run_program("--glossary", glossary, *arguments, text=text)
                has = [word in line.lower().replace(".", "").split() for line in lines]
                self.assertTrue(has[0] and not all(has))
                lacking = 0
                for line, before, after, term in zip(lines, plain, found.split("\n"), has):
                    if not term:
                        self.assertEqual(after, before)
                    elif f"{word} {word}" in line.lower():
                        lacking += "nono" not in after
                    else:
                        lacking += "doki lu" not in after
                self.assertEqual("lack" in errors, lacking > 0, errors)
                self.assertEqual(
                    self.run_program("--glossary", glossary, *arguments, "--threads", 2, "--batch-sentences", 3, text=text)[0],
                    found)
        # What a sentence lacks is named.
        output, errors = self.run_program("--glossary", glossary, "--document", "--output-format", "jsonl", "--max-length", 1,
                                          text=text)
        for line, has_term in zip(output.splitlines(), has):
            lacking = {phrase for sentence in json.loads(line)["sentences"] for phrase in sentence.get("missing_phrases", [])}
            self.assertLessEqual(lacking, {"doki lu", "nono"} if has_term else set())
            self.assertEqual(bool(lacking), has_term)
        for content, parts in [("one\n", ["terms.tsv:1", "a tab"]), ("a\tb\na\tc\n", ["terms.tsv:2", "came before"]),
                               ("", ["terms.tsv", "no terms"])]:
            glossary.write_text(content)
            _, errors = self.run_program("--glossary", glossary, text="ba\n", status=2)
            self.assert_one_line(errors, *parts)

    def test_answers_each_line_at_once(self):
        process = subprocess.Popen([TRANSLATE, "--model", self.model], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   env=ENVIRONMENT, bufsize=0)
        for line in sentences(4) + [""]:
            process.stdin.write(line.encode() + b"\n")
            ready, _, _ = select.select([process.stdout], [], [], 60)
            self.assertTrue(ready, "no answer while the next line was not yet written")
            self.assertEqual(os.read(process.stdout.fileno(), 1 << 16).count(b"\n"), 1)
        # Half a line gets no answer until it is whole.
        process.stdin.write("ba do".encode())
        self.assertFalse(select.select([process.stdout], [], [], 0.5)[0])
        process.stdin.write(b" ki.\nno")
        self.assertTrue(select.select([process.stdout], [], [], 60)[0])
        self.assertEqual(os.read(process.stdout.fileno(), 1 << 16).count(b"\n"), 1)
        process.stdin.close()
        self.assertEqual(process.stdout.read().count(b"\n"), 1)
        process.stdout.close()
        self.assertEqual(process.wait(60), 0)

    def test_broken_text_is_named_and_what_came_before_is_written(self):
        good = sentences(3)
        expected = self.translate("\n".join(good) + "\n")
        data = ("\n".join(good) + "\n").encode() + b"bad \xc3\x28 byte\n" + b"ba\n"
        output, errors = self.run_program(text=data, status=2)
        self.assertEqual(output, expected)
        self.assert_one_line(errors, "standard input:4", "UTF-8")

    def test_overlong_lines_are_named_and_what_came_before_is_written(self):
        good = sentences(3)
        expected = self.translate("\n".join(good) + "\n")
        for overlong, remedy in (("qx " * 6000, "split it into sentences"), ("q" * (2 << 20), "break it into lines")):
            output, errors = self.run_program(text="\n".join(good) + "\n" + overlong + "\nba\n", status=2)
            self.assertEqual(output, expected)
            self.assert_one_line(errors, "standard input:4", remedy)

    def test_streams_that_do_not_wait_are_waited_for(self):
        # As a program before this one may have left them.
        text = "".join(f"{line}\n" for line in sentences(300, seed=8)).encode()
        expected = self.translate(text.decode()).encode()
        for kind in ("pipe", "socket"):
            given, giving = os.pipe()
            if kind == "pipe":
                taking, taken = os.pipe()
                fcntl.fcntl(taken, fcntl.F_SETPIPE_SZ, 4096)
            else:
                ends = socket.socketpair()
                ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                taking, taken = (end.detach() for end in ends)
            for end in (given, taken):
                os.set_blocking(end, False)
            process = subprocess.Popen([TRANSLATE, "--model", self.model], stdin=given, stdout=taken,
                                       stderr=subprocess.PIPE, env=ENVIRONMENT)
            os.close(given)
            os.close(taken)
            time.sleep(0.5)  # it finds nothing, and later no room
            writer = threading.Thread(target=lambda: (os.write(giving, text), os.close(giving)))
            writer.start()
            time.sleep(1)
            with open(taking, "rb") as output:
                self.assertEqual(output.read(), expected, kind)
            writer.join()
            self.assertEqual(process.communicate(timeout=60)[1], b"")
            self.assertEqual(process.returncode, 0)

    def test_what_is_printed_waits_for_its_readers_as_well(self):
        for stream, arguments, status in (("stdout", ["--help"], 0), ("stderr", ["--no-such-option"], 2)):
            done = subprocess.run([TRANSLATE, *arguments], capture_output=True, env=ENVIRONMENT)
            self.assertTrue(getattr(done, stream))
            for ends in (os.pipe, pty.openpty):
                taking, taken = ends()
                if ends == pty.openpty:
                    tty.setraw(taken)
                os.set_blocking(taken, False)
                before = full = 0
                while full < 10:  # a terminal passes on what it has, and then takes more
                    try:
                        before += os.write(taken, b"x" * (1 if full else 4096))
                        full = 0
                    except BlockingIOError:
                        full += 1
                        time.sleep(0.02)
                process = subprocess.Popen([TRANSLATE, *arguments], env=ENVIRONMENT, start_new_session=True,
                                           **{stream: taken})
                time.sleep(0.5)
                self.assertIsNone(process.poll())
                terminal = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1].split()[4]
                self.assertEqual(terminal, "0")  # none has come to be its own
                self.assertFalse(os.get_blocking(taken))  # others have it as it was
                os.close(taken)
                read = b""
                with contextlib.suppress(OSError):  # the end of a terminal
                    while part := os.read(taking, 1 << 16):
                        read += part
                os.close(taking)
                self.assertEqual(read, b"x" * before + getattr(done, stream))
                self.assertEqual(process.wait(60), status)

    def test_reader_that_leaves(self):
        process = subprocess.Popen([TRANSLATE, "--model", self.model, "--beam", "1"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        process.stdout.close()
        process.stdin.write(("\n".join(sentences(5)) + "\n").encode())
        process.stdin.close()
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([TRANSLATE, "--model", self.model], input=b"ba do.\n", stdout=full,
                                  stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr.decode(), "standard output", "No space left on device")

    def test_mistakes_are_named(self):
        for arguments, parts in [
            (["--beam", 0], ["--beam", "1"]),
            (["--beam", "many"], ["--beam"]),
            (["--alpha", "nan"], ["--alpha"]),
            (["--n-best", 9], ["n_best", "beam"]),
            (["--stop", "never"], ["--stop", "exact", "beam_finished"]),
            (["--length-penalty", "none"], ["--length-penalty", "gnmt"]),
            (["--batch-sentences", 0], ["--batch-sentences"]),
            (["--threads", 0], ["--threads"]),
            (["--device", "tpu"], ["tpu", "cpu"]),
            (["--device", "cuda:99"], ["cuda:99", "cpu"] if not os.path.exists("/dev/nvidia0") else ["cuda:99"]),
            (["--input", self.root / "missing.txt"], ["missing.txt"]),
            (["--no-such-option"], ["--no-such-option"]),
            (["--output-format", "xml"], ["--output-format", "text, jsonl"]),
            (["--output-format", "jsonl", "--scores"], ["--scores", "jsonl"]),
            (["--document", "--scores"], ["--scores", "--document"]),
            (["--document", "--alignments", self.root / "none"], ["--alignments", "--document"]),
            (["--document", "--n-best", 2], ["--n-best", "--document"]),
            (["--markup", "--scores"], ["--scores", "--markup"]),
            (["--markup", "--n-best", 2], ["--n-best", "--markup"]),
            (["--placeholders", "--n-best", 2], ["--n-best", "--placeholders"]),
            (["--placeholders", "--scores"], ["--scores", "--placeholders"]),
            (["--mbr", "chrf"], ["--mbr", "--n-best 2"]),
            (["--mbr", "ter", "--n-best", 2], ["--mbr", "chrf"]),
            (["--mbr", "bleu", "--n-best", 2, "--document"], ["--mbr", "--document"]),
            (["--document-language", "german"], ["--document-language", "--document"]),
            (["--document", "--document-language", "latin"], ["--document-language", "english"]),
            (["--diversity", 5], ["--diversity", "--beam-groups"]),
            (["--diversity", 5, "--search", "sampling"], ["--diversity", "--beam-groups"]),
            (["--proposals", 4, "--beam", 1], ["--proposals", "--draft"]),
            (["--beam", 8, "--search", "sampling"], ["--beam", "--n-best", "--search beam"]),
            (["--stop", "exact", "--search", "sampling"], ["--stop", "--search beam"]),
        ]:
            with self.subTest(arguments=arguments):
                output, errors = self.run_program(*arguments, text="ba\n", status=2)
                self.assertEqual(output, "")
                self.assert_one_line(errors, *parts)

    def test_what_is_no_model(self):
        empty = self.root / "empty"
        empty.mkdir()
        for model in (self.root / "nowhere", empty, self.model / "config.yaml"):
            with self.subTest(model=model):
                _, errors = self.run_program(text="ba\n", model=model, status=2)
                self.assert_one_line(errors, str(model))
        for name in ("config.yaml", "model.safetensors", "vocabulary.model"):
            with self.subTest(damaged=name):
                damaged = self.root / ("damaged-" + name)
                subprocess.run(["cp", "-r", self.model, damaged], check=True)
                (damaged / name).write_bytes((damaged / name).read_bytes()[:50])
                _, errors = self.run_program(text="ba\n", model=damaged, status=2)
                self.assert_one_line(errors, name)

    def test_two_vocabularies(self):
        model = self.root / "two"
        subprocess.run([MAKE_MODEL, model, "two"], check=True, env=ENVIRONMENT)
        output, _ = self.run_program(text="ba do.\n\nki.\n", model=model)
        self.assertEqual(output.count("\n"), 3)

    def test_help(self):
        done = subprocess.run([TRANSLATE, "--help"], capture_output=True, env=ENVIRONMENT, timeout=60)
        self.assertEqual(done.returncode, 0)
        for option in ("--model", "--beam", "--alpha", "--length-penalty", "--stop", "--max-extra-length", "--n-best",
                       "--batch-sentences", "--scores", "--threads", "--device", "--input", "--output", "--bad-lines"):
            self.assertRegex(done.stdout.decode(), re.escape(option) + r"\b")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
