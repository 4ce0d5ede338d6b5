"""What people who run `translate` rely on: translate_test.py TRANSLATE MAKE_MODEL. Standard library only."""

import gzip
import os
import random
import re
import select
import subprocess
import sys
import unittest

from programs import ENVIRONMENT, ProgramTest

TRANSLATE, MAKE_MODEL = sys.argv[1], sys.argv[2]


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
        # A run that fails leaves the older file alone.
        source.write_bytes(text.encode() + b"broken \xff\n")
        _, errors = self.run_program("--input", source, "--output", output, status=2)
        self.assert_one_line(errors, "in.txt:6")
        self.assertEqual(output.read_text(), expected)
        self.assertEqual([p.name for p in self.root.iterdir() if "out.txt" in p.name], ["out.txt"])

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
        self.assertEqual([p.name for p in self.root.iterdir() if "links" in p.name], ["links"])
        for arguments, status, parts in [
            (["--alignment-layer", 1], 2, ["--alignments"]),
            (["--alignments", links, "--alignment-layer", 3], 2, ["alignment_layer", "no layer 3"]),
            (["--alignments", links, "--alignment-head", 3], 2, ["alignment_head", "no head 3"]),
            (["--alignments", links, "--alignment-head", -1], 2, ["--alignment-head"]),
            (["--alignments", links, "--alignment-at", "once"], 2, ["--alignment-at", "reading"]),
            (["--alignments", links, "--output", links], 2, ["--alignments", "--output"]),
            (["--alignments", self.root / "no" / "links"], 1, ["links"]),
        ]:
            with self.subTest(arguments=arguments):
                written, errors = self.run_program(*arguments, text="ba\n", status=status)
                self.assertEqual(written, "")
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
        self.assert_one_line(errors, "line 4", "UTF-8")

    def test_overlong_lines_are_named_and_what_came_before_is_written(self):
        good = sentences(3)
        expected = self.translate("\n".join(good) + "\n")
        for overlong in ("qx " * 6000, "q" * (2 << 20)):
            output, errors = self.run_program(text="\n".join(good) + "\n" + overlong + "\nba\n", status=2)
            self.assertEqual(output, expected)
            self.assert_one_line(errors, "line 4", "split")

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
                       "--batch-sentences", "--scores", "--threads", "--device", "--input", "--output"):
            self.assertRegex(done.stdout.decode(), re.escape(option) + r"\b")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
