"""What attention dropout, copied words, the beam, and a search over trees alone are worth to a parser:
configs/parsing-tiny.yaml as it is, and shorter runs of it in which one thing differs, scored on a treebank's other part by
EVALB's rules.

    .venv/bin/python benchmarks/parsing.py --train train.mrg --dev dev.mrg --output benchmarks/results/parsing.md

Runs lie in --runs, go on after an interruption, and are not trained again once finished. The treebank in data/gum is the
default."""

import argparse
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARIES = ROOT / "build" / "release" / "bin"
CONFIG = ROOT / "configs" / "parsing-tiny.yaml"
# Name, what differs, its settings, whether the trees contain the words.
VARIANTS = [
    ("recipe", "the recipe", [], True),
    ("no-attention-dropout", "no attention dropout", ["model.attention_dropout=0"], True),
    ("not-copied", "words not copied", [], False),
]
SEARCHES = [(1, False), (4, False), (10, False), (4, True)]  # beam, whether the model may write what it will


def run(binaries, program, *arguments, **options):
    return subprocess.run([binaries / program, *map(str, arguments)], check=True, **options)


class Parsing:
    def __init__(self, args):
        self.args, self.folder = args, args.runs
        self.folder.mkdir(parents=True, exist_ok=True)
        # Text is made once, and is that of these files.
        made_of = self.folder / "treebank.json"
        wanted = [[[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in part]
                  for part in (args.train, args.dev)]
        if not made_of.exists():
            made_of.write_text(json.dumps(wanted))
        elif json.loads(made_of.read_text()) != wanted:
            raise SystemExit(f"parsing.py: the runs in {self.folder} are of another treebank; give another --runs")
        for part, trees in (("train", args.train), ("dev", args.dev)):
            words = self.folder / f"{part}.words"
            if not words.exists():
                run(args.binaries, "treebank", "words", "--output", words, *trees)
            for copied in (True, False):
                linear = self.linear(part, copied)
                if not linear.exists():
                    run(args.binaries, "treebank", "linearize", *(["--copy-words"] if copied else []), "--output", linear,
                        *trees)

    def linear(self, part, copied):
        return self.folder / f"{part}.{'copied' if copied else 'plain'}"

    def trained(self, name, settings, copied, steps):
        output = self.folder / name
        settings = [f"training.output={output}", *settings]
        for side, kind in (("source", "words"), ("target", "copied" if copied else "plain")):
            settings += [f"data.train_{side}=[{self.folder}/train.{kind}]",
                         f"data.validation_{side}=[{self.folder}/dev.{kind}]"]
        if steps:
            settings.append(f"training.steps={steps}")
        run(self.args.binaries, "train", CONFIG, *(word for setting in settings for word in ("--set", setting)))
        return output

    def score(self, model, beam, free):
        """Of all sentences, as `evaluate brackets` gives it, and how many trees had to be repaired."""
        parsed = self.folder / f"{model.name}.beam{beam}{'.free' if free else ''}"
        options = ["--model", model, "--beam", beam, "--threads", os.cpu_count(), *(["--free"] if free else [])]
        done = run(self.args.binaries, "parse", *options, "--verbose", "--input", self.folder / "dev.words", "--output",
                   parsed, stderr=subprocess.PIPE, text=True)
        with parsed.open() as trees:
            scores = run(self.args.binaries, "evaluate", "brackets", "--format", "json", "--reference", *self.args.dev,
                         stdin=trees, stdout=subprocess.PIPE, text=True)
        return json.loads(scores.stdout)["all"], int(done.stderr.split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", type=pathlib.Path, default=[ROOT / "data" / "gum" / "train.mrg.gz"])
    parser.add_argument("--dev", nargs="+", type=pathlib.Path, default=[ROOT / "data" / "gum" / "dev.mrg.gz"])
    parser.add_argument("--model", type=pathlib.Path,
                        help="a model of the whole recipe, trained already, whose trees contain the words")
    parser.add_argument("--steps", type=int, default=2500, help="of the runs in which one thing differs (default 2500)")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "parsing")
    parser.add_argument("--binaries", type=pathlib.Path, default=BINARIES)
    parser.add_argument("--output", type=pathlib.Path, help="the table, in Markdown; standard output if not given")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    parsing = Parsing(args)
    lines = ["| model | steps | beam | F1 | precision | recall | exact match | crossing brackets | repaired trees |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    rows = [(args.model, "recipe-whole", "the recipe, whole", [], True, None)]
    rows += [(None, name, words, settings, copied, args.steps) for name, words, settings, copied in VARIANTS]
    for model, name, words, settings, copied, steps in rows:
        model = model or parsing.trained(name, settings, copied, steps)
        metrics = map(json.loads, (model / "metrics.jsonl").read_text().splitlines())
        taken = max(line.get("step", 0) for line in metrics)
        for beam, free in SEARCHES:
            score, repaired = parsing.score(model, beam, free)
            figures = [score["f1"], score["precision"], score["recall"], score["exact_match"], score["average_crossing"]]
            search = f"{beam}{', free' if free else ''}"
            lines.append(f"| {words} | {taken} | {search} | " + " | ".join(f"{x:.2f}" for x in figures) + f" | {repaired} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if args.output:
        args.output.write_text(text)
    else:
        print(text, end="")


main()
