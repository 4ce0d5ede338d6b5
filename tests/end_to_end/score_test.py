"""What people who run `evaluate score`, `rescore` and `mbr`, and `shortlist`, rely on: score_test.py EVALUATE TRANSLATE
SHORTLIST SOURCE_DIR."""

import gzip
import json
import pathlib
import subprocess
import sys
import unittest

from programs import ENVIRONMENT, ProgramTest, copy_without_normalization

EVALUATE, TRANSLATE, SHORTLIST, SOURCE = *sys.argv[1:4], pathlib.Path(sys.argv[4])
MODEL = SOURCE / "data" / "model-en-de"
LINES = 60


class ScoreTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.files, cls.lines = [], []
        for language in ("en", "de"):
            with gzip.open(SOURCE / "data" / "tatoeba-en-de" / f"valid.{language}.gz", "rt", encoding="utf-8") as lines:
                cls.lines.append([line.rstrip("\n") for _, line in zip(range(LINES), lines)])
            cls.files.append(cls.write(f"text.{language}", cls.lines[-1]))

    @classmethod
    def write(cls, name, lines):
        file = cls.root / name
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return file

    def run_evaluate(self, command, *arguments, text="", status=0):
        done = subprocess.run([EVALUATE, command, "--model", MODEL, *map(str, arguments)], input=text,
                              capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout.splitlines() if status == 0 else (done.stdout.splitlines(), done.stderr)

    def score(self, *arguments, sides=None, **options):
        source, target = sides or self.files
        return self.run_evaluate("score", "--source", source, "--target", target, *arguments, **options)

    def test_few_sentences_are_remarked_on(self):
        """Of `compare`, which has no model."""
        for count, remarks in ((LINES, 0), (1, 1), (7, 1)):
            system = self.write("system", self.lines[1][:count])
            baseline = self.write("baseline", [line.replace("e", "a") for line in self.lines[1][:count]])
            command = [EVALUATE, "compare", "--reference", system, "--baseline", baseline, "--system", system]
            text, found = (subprocess.run([*command, "--format", form], capture_output=True, text=True, check=True,
                                          env=ENVIRONMENT, timeout=60).stdout for form in ("text", "json"))
            self.assertEqual(text.count(" little: with fewer than 50"), remarks, text)
            found = json.loads(found)
            self.assertEqual(found["sentences"], count)
            for metric in found["metrics"]:
                self.assertGreater(metric["difference"]["score"], 0)
                self.assertEqual(metric["p_value"] == 1, count == 1)

    def test_scores_are_what_pytorch_finds(self):
        # An empty translation and an empty source are judged like any other.
        sides = [self.write("source", [*self.lines[0], "Yes.", ""]), self.write("target", [*self.lines[1], "", "Ja."])]
        expected = json.loads(subprocess.run(
            [sys.executable, SOURCE / "tests" / "reference" / "scores.py", MODEL, *sides],
            capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout)
        found = [json.loads(line) for line in self.score("--format", "jsonl", sides=sides)]
        self.assertEqual(len(found), len(expected))
        for line, tokens in zip(found, expected):
            self.assertEqual(len(line["tokens"]), len(tokens))
            for mine, theirs in zip(line["token_log_probabilities"], tokens):
                self.assertAlmostEqual(mine, theirs, delta=2e-4)
            self.assertAlmostEqual(line["log_probability"], sum(line["token_log_probabilities"]), places=9)
            self.assertEqual(line["tokens"][-1], "</s>")
        for form, value in (("log-probability", lambda line: line["log_probability"]),
                            ("score", lambda line: line["score"]),
                            ("per-token", lambda line: line["log_probability"] / len(line["tokens"]))):
            for mine, line in zip(self.score("--format", form, sides=sides), found):
                self.assertAlmostEqual(float(mine), value(line), places=5)

    def test_blanks_at_a_lines_ends_are_none_of_what_is_judged(self):
        model = self.root / "as-it-is"
        copy_without_normalization(MODEL, model)
        source, target = self.lines[0][5], self.lines[1][5]
        sides = [self.write("blanks.en", [source, f"  {source}", f"{source} \t", source]),
                 self.write("blanks.de", [target, target, f" {target}", f"{target}  "])]
        done = subprocess.run([EVALUATE, "score", "--model", model, "--source", sides[0], "--target", sides[1]],
                              capture_output=True, text=True, check=True, env=ENVIRONMENT, timeout=300)
        scores = done.stdout.splitlines()
        self.assertEqual(scores, scores[:1] * 4)
        inner = self.write("inner.en", [source.replace(" ", "  ", 1)])  # it does take texts as they are
        done = subprocess.run([EVALUATE, "score", "--model", model, "--source", inner, "--target",
                               self.write("one.de", [target])],
                              capture_output=True, text=True, check=True, env=ENVIRONMENT, timeout=300)
        self.assertNotEqual(done.stdout.splitlines(), scores[:1])

    def test_threads_and_rounding(self):
        exact = self.score("--format", "jsonl")
        self.assertEqual(self.score("--format", "jsonl", "--threads", 3), exact)
        for precision in ("bf16", "int8"):
            for rounded, line in zip(self.score("--precision", precision), exact):
                line = json.loads(line)
                self.assertAlmostEqual(float(rounded), line["log_probability"], delta=0.3 * len(line["tokens"]))

    def test_files_judge_like_standard_input(self):
        source, target = self.files
        for command in ("bleu", "chrf"):
            found = [subprocess.run([EVALUATE, command, "--reference", target, *arguments], capture_output=True,
                                    input=target.read_bytes(), check=True).stdout
                     for arguments in ((), ("--input", "-"), ("--input", target))]
            self.assertTrue(found[0])
            self.assertEqual(found[1:], found[:1] * 2)
        pair = ("--source", source, "--target", target)
        self.assertEqual(self.run_evaluate("perplexity", *pair), self.run_evaluate("perplexity", *pair, "--threads", 2))

    def test_an_unfinished_run_names_its_checkpoint(self):
        checkpoints = self.root / "unfinished" / "checkpoints"
        newest = checkpoints / "interrupted-step-00000025"
        for checkpoint in (checkpoints / "step-00000003", checkpoints / "step-backup", newest, checkpoints / "step-00000017"):
            checkpoint.mkdir(parents=True)
            (checkpoint / "model.safetensors").touch()
        done = subprocess.run([EVALUATE, "perplexity", "--model", self.root / "unfinished", "--source", self.files[0],
                               "--target", self.files[1]], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"a checkpoint is a model directory, too: {newest}", done.stderr)

    def test_a_language_that_is_given_is_the_one_that_is_wrong(self):
        for command in ("score", "rescore", "perplexity"):
            text = ["--source", self.files[0]] if command == "rescore" else ["--source", self.files[0], "--target",
                                                                              self.files[1]]
            for option in ("--from", "--to"):
                _, error = self.run_evaluate(command, *text, option, "en", status=2)
                self.assertIn(f"evaluate: error: {option}: is 'en', and this model cannot be told a language", error)

    def test_the_other_way_round(self):
        forwards = self.score("--format", "jsonl", sides=self.files[::-1])
        self.assertEqual(self.score("--format", "jsonl", "--reverse"), forwards)

    def test_bad_lines(self):
        broken = self.root / "broken"
        broken.write_bytes("\n".join(self.lines[1][:3]).encode() + b"\n\xff\n" + "\n".join(self.lines[1][4:]).encode())
        good = self.score()
        kept, message = self.score(sides=(self.files[0], broken), status=2)
        self.assertEqual(kept, good[:3])
        self.assertIn("broken:4", message)
        self.assertEqual(message.count("\n"), 1)
        filled = self.score("--bad-lines", "empty", sides=(self.files[0], broken))
        self.assertEqual(filled, [*good[:3], "", *good[4:]])
        # A side that is good says nothing of the other one; a pair that is bad on both sides is one.
        for sides in ((broken, self.files[1]), (broken, broken)):
            done = subprocess.run([EVALUATE, "score", "--model", MODEL, "--source", sides[0], "--target", sides[1],
                                   "--bad-lines", "empty"], capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([number for number, line in enumerate(done.stdout.splitlines()) if not line], [3])
            self.assertIn("1 line", done.stderr)
        long = self.write("long", [*self.lines[1][:2], "wort " * 6000, *self.lines[1][3:]])
        kept, message = self.score(sides=(self.files[0], long), status=2)
        self.assertEqual((kept, message.count("\n")), (good[:2], 1))
        self.assertIn("long:3", message)
        short = self.write("short", self.lines[1][:5])
        kept, message = self.score(sides=(self.files[0], short), status=2)
        self.assertEqual(kept, good[:5])
        self.assertIn("ends after 5 lines", message)
        _, message = self.score(sides=("-", "-"), status=2)
        self.assertIn("standard input", message)

    def n_best(self):
        return subprocess.run([TRANSLATE, "--model", MODEL, "--n-best", "4"], input="\n".join(self.lines[0]) + "\n",
                              capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout.splitlines()

    def test_rescoring(self):
        listed = [line.split(" ||| ") for line in self.n_best()]
        texts = [self.write("read", [self.lines[0][int(index)] for index, _, _ in listed]),
                 self.write("written", [text for _, text, _ in listed])]
        scores = [float(score) for score in self.score("--format", "score", sides=texts)]
        # Where the search spelled a text in the pieces that the vocabulary would, its score is the model's.
        self.assertGreater(sum(abs(float(score) - mine) < 1e-4 for (_, _, score), mine in zip(listed, scores)),
                           0.95 * len(listed))
        for weight in (0, 0.25, 1):
            mixed = [(int(index), text, (1 - weight) * float(score) + weight * mine)
                     for (index, text, score), mine in zip(listed, scores)]
            expected = sorted(mixed, key=lambda line: (line[0], -line[2]))
            found = [line.split(" ||| ") for line in self.run_evaluate(
                "rescore", "--source", self.files[0], "--weight", weight, text="\n".join(self.n_best()) + "\n")]
            for (index, text, score), line in zip(expected, found, strict=True):
                self.assertEqual(index, int(line[0]))
                self.assertAlmostEqual(score, float(line[2]), delta=2e-6)
            self.assertEqual(sorted(line[1] for line in found), sorted(text for _, text, _ in expected))
        best = self.run_evaluate("rescore", "--source", self.files[0], "--best", text="\n".join(self.n_best()) + "\n")
        self.assertEqual(best, [next(text for index, text, _ in expected if index == line) for line in range(LINES)])
        file = self.write("list", self.n_best())
        self.assertEqual(self.run_evaluate("rescore", "--source", self.files[0], "--best", "--input", file), best)
        text = self.files[0].read_text()
        self.assertEqual(self.run_evaluate("rescore", "--source", "-", "--best", "--input", file, text=text), best)
        self.assertIn("standard input", self.run_evaluate("rescore", "--source", "-", "--best", status=2)[1])

    def test_lists_that_are_none(self):
        good = self.n_best()[:8]  # of lines 0 and 1
        for bad, message in (("nothing", "is no line of an n-best list"), ("x ||| a ||| 1", "number of a line"),
                             ("1 ||| a ||| b", "does not end with a number"), ("1 ||| a ||| nan", "with a number"),
                             ("-1 ||| a ||| 1", "number of a line"), ("0 ||| a ||| 1", "is of line 0 again"),
                             (f"{LINES} ||| a ||| 1", f"has {LINES} lines"),
                             ("99999999999999999999 ||| a ||| 1", "number of a line"), ("", "is no line")):
            kept, error = self.run_evaluate("rescore", "--source", self.files[0], status=2,
                                            text="\n".join([*good, bad]) + "\n")
            self.assertIn(message, error)
            self.assertIn("standard input:9", error)
            self.assertEqual(error.count("\n"), 1)
            self.assertEqual(len(kept), 8 if bad.startswith(str(LINES)) else 4)
        self.assertEqual(self.run_evaluate("rescore", "--source", self.files[0]), [])
        # Lines of --best belong to the text's, so that none may be left out.
        three = self.write("three", self.lines[0][:3])
        for listed, message, whole in (((0, 2), "is of line 2, but 1 comes next", ["Ja."]),
                                       ((0,), "ends after line 0, but", ["Ja."])):
            text = "".join(f"{index} ||| Ja. ||| -1\n" for index in listed)
            kept, error = self.run_evaluate("rescore", "--source", three, "--best", status=2, text=text)
            self.assertEqual((kept, error.count("\n")), (whole, 1))
            self.assertIn(message, error)
            self.assertEqual(len(self.run_evaluate("rescore", "--source", three, text=text)), len(listed))

    def test_a_shortlist_says_what_it_did_not_learn_from(self):
        for sentences, status, message in ((1, 0, ""), (60, 2, "with a side longer than 100 pieces")):
            files = []
            for side in ("a", "b"):
                files.append(self.root / f"{sentences}.{side}")
                files[-1].write_text(" ".join(["Good morning."] * sentences) + "\n")
            done = subprocess.run([SHORTLIST, "--model", MODEL, "--source", files[0], "--target", files[1],
                                   "--output", self.root / "list"], capture_output=True, text=True)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(message, done.stderr)
            self.assertEqual((self.root / "list").exists(), status == 0)
            (self.root / "list").unlink(missing_ok=True)

    def test_a_shortlist_loses_little(self):
        data = SOURCE / "data" / "tatoeba-en-de"
        file = self.root / "shortlist"
        make = [SHORTLIST, "--model", MODEL, "--source", data / "train.en.gz", "--target", data / "train.de.gz"]
        done = subprocess.run([*make, "--output", file], capture_output=True, text=True,
                              check=True, env=ENVIRONMENT)
        self.assertIn("translations a piece, of 4000", done.stdout)
        with gzip.open(data / "valid.en.gz", "rt", encoding="utf-8") as lines:
            text = lines.read()
        with gzip.open(data / "valid.de.gz", "rt", encoding="utf-8") as lines:
            reference = self.write("reference", lines.read().splitlines())
        outputs, scores = [], []
        for arguments in ([], ["--shortlist", file], ["--shortlist", file, "--threads", "3"]):
            outputs.append(subprocess.run([TRANSLATE, "--model", MODEL, "--precision", "int8", *arguments], input=text,
                                          capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout)
            scores.append(json.loads(subprocess.run([EVALUATE, "bleu", "--reference", reference, "--format", "json"],
                                                    input=outputs[-1], capture_output=True, text=True, check=True,
                                                    env=ENVIRONMENT).stdout)["score"])
        self.assertEqual(outputs[1], outputs[2])
        self.assertNotEqual(outputs[0], outputs[1])
        self.assertGreater(scores[1], scores[0] - 0.1)

        for arguments, message in ((["--shortlist", self.files[0]], "safetensors"),
                                   (["--shortlist", self.root / "none"], "none")):
            done = subprocess.run([TRANSLATE, "--model", MODEL, *arguments], input="Yes.\n", capture_output=True, text=True,
                                  env=ENVIRONMENT)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))
            self.assertIn(message, done.stderr)
        done = subprocess.run([*make, "--output", data / "train.en.gz"], capture_output=True, text=True, env=ENVIRONMENT)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))

    def test_minimum_bayes_risk(self):
        def mbr(text, *arguments, status=0):
            done = subprocess.run([EVALUATE, "mbr", *arguments], input=text, capture_output=True, text=True,
                                  env=ENVIRONMENT, timeout=300)
            self.assertEqual(done.returncode, status, done.stderr)
            return done.stdout.splitlines() if status == 0 else (done.stdout.splitlines(), done.stderr)

        texts = ["something else", "the cat sat", "the cat sits", "the cat sat", "the dog sat"]
        lines = [f"{line} ||| {text} ||| {-k}.5" for line in range(600) for k, text in enumerate(texts)]
        found = [line.split(" ||| ") for line in mbr("\n".join(lines))]
        self.assertEqual([int(line[0]) for line in found], [line for line in range(600) for _ in texts])
        for line in range(0, 3000, 5):
            scores = [float(score) for _, _, score in found[line:line + 5]]
            self.assertEqual(scores, sorted(scores, reverse=True))
            self.assertEqual(sorted(text for _, text, _ in found[line:line + 5]), sorted(texts))
        self.assertEqual(mbr("\n".join(lines), "--best", "--threads", "3"), ["the cat sat"] * 600)
        # Where the first is all but certain, it is the least risk.
        certain = "0 ||| something else ||| -1\n0 ||| the cat sat ||| -20\n0 ||| the cat sits ||| -20\n"
        self.assertEqual(mbr(certain, "--best", "--probabilities", "score", "--metric", "bleu"), ["something else"])
        self.assertEqual(mbr(certain, "--best"), ["the cat sits"])
        self.assertEqual(mbr("0 |||  ||| 0.0\n", "--best"), [""])
        self.assertEqual(mbr("0 ||| ||| 0.0\n", "--best"), [""])
        self.assertEqual(mbr(""), [])
        # What is whole is written, where the list goes wrong behind it; a bad line may be of the one before.
        for text, part, kept in [("x\n", "standard input:1", 0), ("0 ||| a ||| 1\n2 ||| b ||| 1\n", "standard input:2", 1),
                                 ("1 ||| a ||| 1\n", "is of line 1", 0), ("0 ||| a ||| nan\n", "standard input:1", 0),
                                 ("0 ||| a ||| 1\n1 ||| b ||| 1\nx\n", "standard input:3", 1),
                                 ("0 ||| a ||| 1\n1 ||| b ||| 1\n0 ||| c ||| 1\n", "is of line 0", 1)]:
            found, error = mbr(text, status=2)
            self.assertIn(part, error)
            self.assertEqual(len(found), kept, text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
