"""From a treebank to a score: parse_test.py TREEBANK TRAIN PARSE EVALUATE. Standard library only.

A tiny model learns a made-up grammar, and everything a user would type is typed.
"""

import gzip
import json
import pathlib
import random
import subprocess
import sys
import unittest

from programs import ENVIRONMENT, ProgramTest

TREEBANK, TRAIN, PARSE, EVALUATE = sys.argv[1:5]
TRANSLATOR = pathlib.Path(__file__).resolve().parents[2] / "data" / "model-en-de"
CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"

CONFIG = """
data: {train_source: [train.words], train_target: [train.copied], validation_source: [dev.words],
       validation_target: [dev.copied]}
model: {layers: 1, d_model: 64, d_ff: 128, heads: 4, vocabulary_size: 320, dropout: 0}
training: {output: run, threads: 1, steps: 800, batch_tokens: 800, warmup_steps: 200, validate_every: 0,
           validate_bleu: false, checkpoint_every: 400, keep_checkpoints: 1, average_checkpoints: 1}
decoding: {beam: 2, alpha: 0.3, max_extra_length: 100}
"""


def noun_phrase(rng):
    noun = f"(NN {rng.choice(['dog', 'cat', 'tree', 'bird'])})"
    return rng.choice([f"(NP (DT the) {noun})", "(NP (PRP it))", f"(NP (DT a) (JJ big) {noun})"])


def sentence(rng):
    subject = noun_phrase(rng).replace("(NP", "(NP-SBJ", 1)
    phrase = rng.choice([f"(VP (VBZ sees) {noun_phrase(rng)})", "(VP (VBZ sleeps) (NP (-NONE- *)))"])
    return f"(ROOT\n  (S {subject}\n     {phrase}\n     (. .)))\n\n"


class ParseTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = random.Random(5)
        for name, count in [("one.mrg", 400), ("two.mrg", 400), ("dev.mrg", 60)]:
            (cls.root / name).write_text("".join(sentence(rng) for _ in range(count)))
        (cls.root / "two.mrg.gz").write_bytes(gzip.compress((cls.root / "two.mrg").read_bytes()))
        cls.run_here(TREEBANK, "words", "--output", "train.words", "one.mrg", "two.mrg.gz")
        cls.run_here(TREEBANK, "words", "--output", "dev.words", "dev.mrg")
        for name, files in [("train", ["one.mrg", "two.mrg.gz"]), ("dev", ["dev.mrg"])]:
            cls.run_here(TREEBANK, "linearize", "--output", f"{name}.trees", *files)
            cls.run_here(TREEBANK, "linearize", "--copy-words", "--output", f"{name}.copied", *files)
        (cls.root / "config.yaml").write_text(CONFIG)
        cls.run_here(TRAIN, "config.yaml", timeout=1200)

    @classmethod
    def run_here(cls, *arguments, text="", status=0, timeout=300):
        done = subprocess.run(arguments, input=text if isinstance(text, bytes) else text.encode(), capture_output=True, env=ENVIRONMENT, timeout=timeout,
                              cwd=cls.root)
        if done.returncode != status:
            raise AssertionError(f"{arguments}: status {done.returncode}: {done.stderr.decode()}")
        return done.stdout.decode(), done.stderr.decode()

    def score(self, parsed, *arguments):
        output, _ = self.run_here(EVALUATE, "brackets", "--reference", "dev.mrg", "--format", "json", *arguments,
                                  text=parsed)
        return json.loads(output)

    def test_treebank_to_text(self):
        words = (self.root / "train.words").read_text().splitlines()
        trees = (self.root / "train.trees").read_text().splitlines()
        self.assertEqual([len(words), len(trees)], [800, 800])
        for line, tree in zip(words, trees):
            self.assertEqual(tree.split().count("XX"), len(line.split()))
            self.assertTrue(tree.startswith("(S (NP ") and tree.endswith(" XX )S"), tree)
            self.assertNotIn("-", tree)
        copied = (self.root / "train.copied").read_text().splitlines()
        self.assertEqual([" ".join(t for t in line.split() if t[0] not in "()") for line in copied], words)
        clean, _ = self.run_here(TREEBANK, "clean", "dev.mrg")
        self.assertEqual(clean.count("\n"), 60)
        self.assertEqual(clean.count("(TOP (S (NP "), 60)
        self.assertNotIn("-NONE-", clean)
        for file in ("dev.mrg", "two.mrg.gz"):
            piped, _ = self.run_here(TREEBANK, "clean", "-", text=(self.root / file).read_bytes())
            self.assertEqual(piped, self.run_here(TREEBANK, "clean", file)[0])
        output, errors = self.run_here(TREEBANK, "words", "-", text=b"(ROOT (NP (NN a)))\n(ROOT (NP (NN \xff)))\n", status=2)
        self.assertIn("standard input:2: is not UTF-8", errors)

    def test_malformed_treebank_is_refused(self):
        (self.root / "broken.mrg").write_text("(ROOT (NP (NN a)))\n(ROOT (NP (NN b))\n(ROOT (NP (NN c)))\n")
        for command in ("linearize", "words", "clean"):
            (self.root / "kept").write_text("as it was")
            output, errors = self.run_here(TREEBANK, command, "--output", "kept", "one.mrg", "broken.mrg", status=2)
            self.assertEqual(output, "")
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertIn("broken.mrg:3: expected 1 more ')'", errors)
            self.assertEqual((self.root / "kept").read_text(), "as it was")
        _, errors = self.run_here(EVALUATE, "brackets", "--reference", "broken.mrg", status=2)
        self.assertIn("broken.mrg:3", errors)

    def test_parses_are_scored(self):
        parsed, errors = self.run_here(PARSE, "--model", "run", "--input", "dev.words", "--verbose")
        self.assertEqual(errors, "0 of 60 trees repaired\n")  # the search knows what a tree is
        free, errors = self.run_here(PARSE, "--model", "run", "--input", "dev.words", "--verbose", "--free",
                                     "--precision", "int8")
        self.assertRegex(errors, r"^\d+ of 60 trees repaired\n$")
        self.assertEqual(free.count("\n"), 60)
        _, errors = self.run_here(PARSE, "--model", "run", "--input", "dev.words", "--verbose", "--precision", "int8")
        self.assertEqual(errors, "0 of 60 trees repaired\n")
        # Trees that were repaired before the work went on are counted.
        words = (self.root / "dev.words").read_text().splitlines()
        free = ("--model", "run", "--input", "many.words", "--verbose", "--free", "--max-extra-length", "1")
        (self.root / "many.words").write_text("\n".join(words[:1] * 1030) + "\n")
        _, errors = self.run_here(PARSE, *free, "--output", "whole.trees")
        (self.root / "many.words").write_bytes("\n".join(words[:1] * 1029).encode() + b"\n\xff\n")
        self.run_here(PARSE, *free, "--output", "parts.trees", status=2)
        (self.root / "many.words").write_text("\n".join(words[:1] * 1030) + "\n")
        _, more = self.run_here(PARSE, *free, "--output", "parts.trees")
        self.assertIn("goes on behind line 1024", more)
        self.assertEqual(more.splitlines()[-1], errors.splitlines()[-1])
        self.assertRegex(errors, r"^\d+ of 1030 trees repaired\n$")
        lines = parsed.splitlines()
        self.assertEqual(len(lines), 60)
        for line, sentence_words in zip(lines, words):
            leaves = [token.rstrip(")") for token in line.split() if not token.startswith("(")]
            self.assertEqual(leaves, sentence_words.split())
        score = self.score(parsed)
        self.assertEqual(score["all"]["sentences"], 60)
        self.assertEqual(score["all"]["unparsed"], 0)
        self.assertGreater(score["score"], 85)
        self.assertEqual(score["score"], score["all"]["f1"])
        output, _ = self.run_here(EVALUATE, "brackets", "--reference", "dev.mrg", text=parsed)
        self.assertTrue(output.startswith(f"bracket F1 = {score['score']:.2f}\n"), output)

        # By file, in another batching, and from standard input: the same.
        self.run_here(PARSE, "--model", "run", "--input", "dev.words", "--output", "dev.parsed", "--batch-sentences", "7")
        self.assertEqual((self.root / "dev.parsed").read_text(), parsed)
        again, _ = self.run_here(PARSE, "--model", "run", "--n-best", "2", text="\n".join(words[:3]) + "\n")
        self.assertEqual(again.count("\n"), 3)
        # A model together with itself, or with guesses of its own, is the model; together with another, it is not.
        twice, _ = self.run_here(PARSE, "--model", "run", "--model", "run", "--input", "dev.words")
        self.assertEqual(twice, parsed)
        greedy, guessed = (self.run_here(PARSE, "--model", "run", "--beam", "1", "--input", "dev.words", *draft)[0]
                           for draft in ((), ("--draft", "run")))
        self.assertEqual(greedy, guessed)
        self.run_here(TRAIN, "config.yaml", *(f"--set={setting}" for setting in (
            "training.output=untaught", "training.steps=20", "data.vocabulary=[run/vocabulary.model]")))
        together, _ = self.run_here(PARSE, "--model", "run", "--model", "untaught", "--weights", "1,9", "--input",
                                    "dev.words")
        self.assertNotEqual(together, parsed)

    def test_recipes_are_sound(self):
        for name, count in [("tiny", 1), ("wsj", 1), ("semi-supervised", 3)]:
            output, _ = self.run_here(
                TRAIN, CONFIGS / f"parsing-{name}.yaml", "--dry-run",
                # Twenty checkpoints want more disk than a test should.
                "--set", "training.keep_checkpoints=1", "--set", "training.average_checkpoints=1",
                "--set", f"data.train_source=[{', '.join(['train.words'] * count)}]",
                "--set", f"data.train_target=[{', '.join(['train.trees'] * count)}]",
                "--set", "data.validation_source=[dev.words]", "--set", "data.validation_target=[dev.trees]")
            self.assertIn("train: 800 pairs", output)

    def test_odd_input(self):
        output, _ = self.run_here(PARSE, "--model", "run", text="\n  \nit  sleeps\t(now) .\r\nunheard Wörter 日本 .")
        lines = output.split("\n")
        self.assertEqual(lines[:2], ["", ""])
        self.assertIn("(XX it)", lines[2])
        self.assertIn("(XX -LRB-now-RRB-)", lines[2])
        for word in ("unheard", "Wörter", "日本", "."):
            self.assertIn(f"(XX {word})", lines[3])
        pretty, _ = self.run_here(PARSE, "--model", "run", "--pretty", text="the dog sleeps .\n")
        self.assertIn("─ dog\n", pretty)
        self.assertTrue(pretty.endswith("\n\n"))
        (self.root / "broken.words").write_bytes(b"the dog sleeps .\n\nb\xff\n")
        output, errors = self.run_here(PARSE, "--model", "run", "--input", "broken.words", status=2)
        self.assertEqual(output.count("\n"), 2)
        self.assertIn("(XX dog)", output)
        self.assertEqual(errors.count("\n"), 1)
        self.assertIn("broken.words", errors)
        output, errors = self.run_here(PARSE, "--model", "run", "--input", "broken.words", "--bad-lines", "copy",
                                       "--output", "-")
        self.assertEqual(output.splitlines()[1:], ["", "b\ufffd"])
        self.assertIn("1 line could not be used and was copied: line 3 is not UTF-8", errors)
        self.run_here(PARSE, "--model", "run", "--input", "broken.words", "--output", "broken.trees", status=2)
        self.assertFalse((self.root / "broken.trees").exists())
        self.assertIn("(XX dog)", (self.root / "broken.trees.partial").read_text())
        self.run_here(PARSE, "--model", "run", "--input", "broken.words", "--output", "broken.trees", "--bad-lines", "empty")
        self.assertEqual((self.root / "broken.trees").read_text().splitlines()[1:], ["", ""])
        self.assertFalse((self.root / "broken.trees.partial").exists())
        # A model that translates is none that parses.
        _, errors = self.run_here(PARSE, "--model", TRANSLATOR, text="the dog sleeps .\n", status=2)
        self.assertIn("is no parser", errors)
        self.assertEqual(errors.count("\n"), 1)
        _, errors = self.run_here(PARSE, "--model", "none", status=2)
        self.assertIn("none", errors)

    def test_what_is_scored(self):
        gold = (self.root / "dev.mrg").read_text()
        self.assertEqual(self.score(gold)["score"], 100)
        clean, _ = self.run_here(TREEBANK, "clean", "dev.mrg")
        self.assertEqual(self.score(clean)["all"]["exact_match"], 100)
        lines = clean.splitlines()
        lines[0] = ""
        score = self.score("\n".join(lines) + "\n")["all"]
        self.assertEqual([score["unparsed"], score["precision"]], [1, 100])
        self.assertLess(score["recall"], 100)
        _, errors = self.run_here(EVALUATE, "brackets", "--reference", "dev.mrg", text="(NP (NN a))\n", status=2)
        self.assertIn("60 trees", errors)
        lines[1] = "(TOP (S"
        _, errors = self.run_here(EVALUATE, "brackets", "--reference", "dev.mrg", text="\n".join(lines), status=2)
        self.assertIn("standard input:2: ", errors)
        output, errors = self.run_here(EVALUATE, "brackets", "--reference", "dev.mrg", "--bad-lines", "empty", "--format",
                                       "json", text="\n".join(lines))
        self.assertEqual(json.loads(output)["all"]["unparsed"], 2)
        self.assertIn("line 2 is no tree", errors)
        # Of translations as well: a line that is no text stands there as an empty one, or ends the work.
        (self.root / "reference").write_text("a b c d\nthe dog barks now\ne f g h\n")
        broken, empty = b"a b c d\nthe \xff dog\ne f g h\n", b"a b c d\n\ne f g h\n"
        for metric in ("bleu", "chrf"):
            command = (EVALUATE, metric, "--reference", "reference")
            output, errors = self.run_here(*command, text=broken, status=2)
            self.assertEqual((output, errors.count("\n")), ("", 1))
            self.assertIn("standard input:2: ", errors)
            expected, _ = self.run_here(*command, text=empty)
            output, errors = self.run_here(*command, "--bad-lines", "empty", text=broken)
            self.assertEqual(output, expected)
            self.assertIn("line 2 ", errors)
        # Several files are one treebank.
        output, _ = self.run_here(EVALUATE, "brackets", "--reference", "one.mrg", "two.mrg.gz", "--format", "json",
                                  text=(self.root / "one.mrg").read_text() + (self.root / "two.mrg").read_text())
        self.assertEqual(json.loads(output)["all"]["sentences"], 800)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
