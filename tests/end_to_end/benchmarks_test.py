"""Benchmarks' command lines, and what they keep: benchmarks_test.py EXPORT SOURCE_DIR. Nothing is measured.
"""

import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import unittest

from programs import ENVIRONMENT, ProgramTest

EXPORT, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
PEERS = SOURCE / "benchmarks" / "peers"
MODEL = SOURCE / "data" / "model-en-de"
sys.path.insert(0, str(PEERS))
import bench_serve  # noqa: E402
import common  # noqa: E402
import pairs  # noqa: E402
import ways  # noqa: E402

# Goes on with what an interruption left, of the very same call alone; the plain search is interrupted once.
TRANSLATE = """
import pathlib, sys
words = sys.argv[1:]
output, unfinished = (pathlib.Path(words[-1] + end) for end in ("", ".unfinished"))
if unfinished.exists() and unfinished.read_text() != repr(words):
    sys.exit("translate: error: this was left by another call")
once = pathlib.Path(__file__).with_name("interrupted")
if "--stop" not in words and not once.exists():
    once.touch()
    unfinished.write_text(repr(words))
    sys.exit("translate: interrupted")
unfinished.unlink(missing_ok=True)
output.write_bytes(pathlib.Path(words[words.index("--input") + 1]).read_bytes())
"""
TRAIN = """
import json, pathlib, shutil, sys
pathlib.Path(__file__).with_name("train.json").write_text(json.dumps(sys.argv[1:]))
settings = dict(word.split("=", 1) for word in sys.argv if "=" in word)
output = pathlib.Path(settings.get("training.output", "runs/multi30k"))
if not output.exists():
    shutil.copytree({model!r}, output)
(output / "summary.json").write_text(json.dumps(dict(parameters=1, steps=1, target_tokens=1, seconds=1)))
(output / "metrics.jsonl").write_text('{{"kind": "train", "step": 7, "loss": 1}}\\n')
"""


class BenchmarksTest(ProgramTest):
    def run_benchmark(self, file, *arguments, cwd=None):
        return subprocess.run([sys.executable, file, *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT,
                              timeout=300, cwd=cwd or self.root)

    def copied(self, name, **programs):
        """A repository with a folder `bin` of made-up programs."""
        root = self.root / name
        shutil.copytree(SOURCE / "benchmarks", root / "benchmarks", ignore=shutil.ignore_patterns("results", "*.cpp", "*.h"))
        shutil.copytree(SOURCE / "configs", root / "configs")
        (root / "bin").mkdir()
        for program, text in programs.items():
            (root / "bin" / program).write_text(f"#!{sys.executable}\n{text}")
            (root / "bin" / program).chmod(0o755)
        return root

    def test_wrong_arguments_are_one_line_before_anything_is_measured(self):
        another = self.root / "another" / "model"
        another.mkdir(parents=True)
        for file, arguments, message in (
                ("bench_decode.py", ["--all-way"], "unrecognized arguments: --all-way"),
                ("bench_decode.py", ["--pairs", "0"], "--pairs: expected a number above 0, not '0'"),
                ("bench_decode.py", ["--only", "("], "--only: '(' is no regular expression"),
                ("bench_decode.py", ["--only", "nothing"], "--only: leaves no setting"),
                ("bench_decode.py", ["--imported", "--only", "int8"], "--only: says nothing with --imported"),
                ("bench_decode.py", ["--all-ways", "--only", "int8"], "--only: says nothing with --all-ways"),
                ("bench_decode.py", ["--student", MODEL], "--student: says nothing without --all-ways"),
                ("bench_decode.py", ["--imported", "--features"], "--features: not allowed with argument --imported"),
                ("bench_decode.py", ["--all-ways", "--timed", "0"], "--timed: expected a number above 0"),
                ("bench_decode.py", ["--all-ways", "--teacher", another], f"--teacher: {another} is no such model"),
                ("bench_decode.py", ["--all-ways", "--teacher", MODEL, "--student", MODEL / ".." / "model-en-de"],
                 "was named before"),
                ("bench_decode.py", ["--all-ways", "--teacher", MODEL, "--draft", another], "--draft: "),
                ("bench_decode.py", ["--output", another], "--output: "),
                ("bench_serve.py", ["--threads", "0"], "--threads: expected a number above 0"),
                ("bench_serve.py", ["--seconds", "nan"], "--seconds: expected a number above 0"),
                ("bench_start.py", ["--pair", "1"], "unrecognized arguments: --pair 1"),
                ("bench_train.py", ["--pairs", "many"], "--pairs: invalid int value: 'many'"),
                ("../data_parallel.py", ["--rounds", "0"], "--rounds: expected a number above 0"),
                ("../parsing.py", ["--model", another], f"--model: {another} is no such model"),
                ("../alignments.py", ["--pairs", "-1"], "--pairs: expected a number above 0"),
                ("../multi30k.py", ["--output", self.root / "m", "--model", another], "--model: ")):
            with self.subTest(file=file, arguments=arguments):
                done = self.run_benchmark(PEERS / file, *arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(message, done.stderr.splitlines()[-1])
                self.assertNotIn("Traceback", done.stderr)

    def test_figures_of_an_earlier_run_stay_until_all_new_ones_are_there(self):
        file, partial = self.root / "new" / "figures.txt", self.root / "new" / "figures.txt.partial"
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            with pairs.Results(file) as results:
                results.add("first")
                results.add("kept alone", print_it=False)
                self.assertEqual((file.exists(), partial.read_text()), (False, "first\nkept alone\n"))
            self.assertEqual((file.read_text(), partial.exists()), ("first\nkept alone\n", False))
            with self.assertRaises(ValueError), pairs.Results(file) as results:
                results.add("second")
                raise ValueError
            self.assertEqual((file.read_text(), partial.read_text()), ("first\nkept alone\n", "second\n"))
            with pairs.Results(None) as results:
                results.add("third")
        self.assertEqual(shown.getvalue(), "first\nsecond\nthird\n")

    def test_models_are_told_apart_by_the_ends_of_their_paths(self):
        def names(*paths):
            return ways.names_of([pathlib.Path(path) for path in paths])

        self.assertEqual(names("/runs/a", "/runs/b"), ["a", "b"])
        self.assertEqual(names("/one/x/model", "/two/x/model", "/student"), ["one/x/model", "two/x/model", "student"])
        self.assertEqual(names("/model", "/a/model"), ["/model", "a/model"])

    def test_a_peer_has_as_many_threads_as_we_have(self):
        self.assertEqual(bench_serve.peer_ways(1), {"one worker": (1, 1, 1)})
        for threads in (2, 3, 8):
            self.assertEqual(list(bench_serve.peer_ways(threads).values()),
                             [(threads, 1, 1), (threads, 1, threads), (1, threads, 1)])

    def test_only_a_line_feed_ends_a_line(self):
        file = self.root / "lines"
        file.write_bytes("a\u2028b\u0085c\rd\r\n\ne".encode())
        self.assertEqual(common.lines_of(file), ["a\u2028b\u0085c\rd\r", "", "e"])

    def test_a_model_is_trained_on_the_text_that_was_named_and_goes_on_after_an_interruption(self):
        root = self.copied("multi30k", translate=TRANSLATE, train=TRAIN.format(model=str(MODEL)),
                           evaluate="print('{\"score\": 1, \"signature\": \"of a test\"}')")
        (root / "bin" / "export").symlink_to(EXPORT)
        text = self.root / "a [text], odd"
        text.mkdir()
        for part in ("train", "val", "test_2016_flickr"):
            for language in ("en", "de"):
                (text / f"{part}.lc.norm.tok.{language}").write_text("Good morning .\nThe\u2028weather is nice .\n")
        arguments = (root / "benchmarks/multi30k.py", "--binaries", "multi30k/bin", "--data", text.name, "--output", "scored")
        self.assertIn("translate: interrupted", self.run_benchmark(*arguments).stderr)
        done = self.run_benchmark(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(file.name for file in (self.root / "scored").iterdir()),
                         ["README.md", "test_2016_flickr.float32.de", "val.float32.de"])
        self.assertRegex((self.root / "scored" / "README.md").read_text(), r"than by CTranslate2: \d of 2 \(val\)")
        trained = json.loads((root / "bin" / "train.json").read_text())
        for setting, file in (("train_source", "train.lc.norm.tok.en"), ("train_target", "train.lc.norm.tok.de"),
                              ("validation_source", "val.lc.norm.tok.en"), ("validation_target", "val.lc.norm.tok.de")):
            self.assertIn(f'data.{setting}=["../{text.name}/{file}"]', trained)
        # A model that is named is the caller's folder, too.
        shutil.copytree(root / "runs" / "multi30k", self.root / "named")
        shutil.rmtree(root / "runs")
        done = self.run_benchmark(*arguments, "--model", "named")
        self.assertEqual((done.returncode, (root / "runs").exists()), (0, False), done.stderr)

    def test_the_default_text_is_that_of_the_configuration(self):
        root = self.copied("default", train=TRAIN.format(model=str(MODEL)), translate="raise SystemExit(1)")
        for part in ("train", "val", "test_2016_flickr"):
            for language in ("en", "de"):
                file = root / "data" / "multi30k" / f"{part}.lc.norm.tok.{language}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("a\n")
        self.run_benchmark(root / "benchmarks/multi30k.py", "--binaries", root / "bin", "--output", "default/scored")
        # As configs/multi30k.yaml spells it, so that a run that was begun with that goes on.
        self.assertIn('data.train_source=["data/multi30k/train.lc.norm.tok.en"]',
                      json.loads((root / "bin" / "train.json").read_text()))

    def test_trees_that_were_repaired_are_counted_after_an_interruption_too(self):
        write = "import pathlib, sys\npathlib.Path(sys.argv[sys.argv.index('--output') + 1]).write_text('(S)\\n')\n"
        said = "print('parse: 3 lines of an interrupted run are there', file=sys.stderr)\n" \
               "print('2 of 9 trees repaired', file=sys.stderr)\n"
        every = {name: 1 for name in ("f1", "precision", "recall", "exact_match", "average_crossing")}
        scores = json.dumps({"all": every, "up_to_40_words": every})
        root = self.copied("parsing", treebank=write, train=TRAIN.format(model=str(MODEL)), parse=write + said,
                           evaluate=f"print({scores!r})")
        (root / "trees").write_text("(S)\n")
        done = self.run_benchmark(root / "benchmarks/parsing.py", "--binaries", root / "bin", "--train", root / "trees", "--dev",
                                  root / "trees", "--runs", root / "runs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| the recipe, whole | 7 | 1 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 2 |", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
