"""What attention dropout, copied words, the beam, and a search over trees alone are worth to a parser:
configs/parsing-tiny.yaml as it is, and shorter runs of it in which one thing differs, scored on a treebank's other part by
EVALB's rules.

    .venv/bin/python benchmarks/parsing.py --train train.mrg --dev dev.mrg --output benchmarks/results/parsing.md

With --rounds, how far the small parser gets instead: rounds of training, each from the weights of one before, on neighbouring
sentences that are joined as well as on each alone, and the rounds' models together. Some nine hours on one core; with
--device cuda, minutes a round.

Runs lie in --runs, go on after an interruption, and are not trained again once finished. The treebank in data/gum is the
default."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
from common import Parser, above, lines_of, output_file  # noqa: E402

BINARIES = ROOT / "build" / "release" / "bin"
CONFIG = ROOT / "configs" / "parsing-tiny.yaml"
# Name, what differs, its settings, whether the trees contain the words.
VARIANTS = [
    ("recipe", "the recipe", [], True),
    ("no-attention-dropout", "no attention dropout", ["model.attention_dropout=0"], True),
    ("not-copied", "words not copied", [], False),
]
# Name, what it is, the round whose weights it starts from, how often each sentence comes alone for once joined, settings.
ROUNDS = [
    ("joined", "joined sentences too", None, 1, []),
    ("second", "from there, dropout 0.1", "joined", 2, ["model.dropout=0.1", "training.rate=8e-4"]),
    ("third", "from there, dropout 0.2", "second", 2, ["training.rate=8e-4"]),
    ("r-drop", "from the second, R-Drop", "second", 2,
     ["training.rate=8e-4", "training.rdrop=1", "training.steps=10000"]),
    ("other-seed", "another seed from the start, R-Drop", None, 2,
     ["training.seed=2", "training.batch_tokens=6000", "training.rate=1.6e-3", "training.rdrop=1", "training.steps=6000",
      "training.checkpoint_every=300", "training.weights=bf16"]),
]
TOGETHER = [("second", "third"), ("third", "r-drop"), ("second", "third", "r-drop"), ("r-drop", "other-seed"),
            ("third", "r-drop", "other-seed")]
JOINED_TOKENS = 260  # of a tree of joined sentences, at most
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

    def joined(self, alone):
        """Training text, words and trees: every sentence `alone` times, and half of them joined with the one or two that
        follow."""
        made = [self.folder / f"train.joined-{alone}.{kind}" for kind in ("words", "copied")]
        if all(file.exists() for file in made):
            return made
        texts = [lines_of(self.folder / f"train.{kind}") for kind in ("words", "copied")]
        choose, starts = random.Random(1), []
        for i in range(len(texts[1])):
            if choose.random() >= 0.5:
                continue
            end = i + (2 if choose.random() < 0.7 else 3)
            if sum(len(tree.split()) for tree in texts[1][i:end]) <= JOINED_TOKENS:
                starts.append((i, end))
        for file, lines in zip(made, texts):
            together = [" ||| ".join(lines[i:end]) for i, end in starts]
            file.write_text("".join(f"{line}\n" for line in lines * alone + together))
        return made

    def trained(self, name, settings, copied=True, steps=None, text=None):
        """On the treebank's sentences, or on `text`, words and trees."""
        output = self.folder / name
        kind = "copied" if copied else "plain"
        text = text or [self.folder / "train.words", self.folder / f"train.{kind}"]
        settings = [f"training.output={output}", f"data.train_source=[{text[0]}]", f"data.train_target=[{text[1]}]",
                    f"data.validation_source=[{self.folder}/dev.words]",
                    f"data.validation_target=[{self.folder}/dev.{kind}]", *settings]
        if steps:
            settings.append(f"training.steps={steps}")
        run(self.args.binaries, "train", CONFIG, *(word for setting in settings for word in ("--set", setting)))
        return output

    def score(self, models, beam, free):
        """Of all sentences, as `evaluate brackets` gives it, and how many trees had to be repaired."""
        name = "+".join(model.name for model in models)
        parsed = self.folder / f"{name}.beam{beam}{'.free' if free else ''}"
        options = [*(word for model in models for word in ("--model", model)), "--beam", beam, "--threads", os.cpu_count(),
                   *(["--free"] if free else [])]
        done = run(self.args.binaries, "parse", *options, "--verbose", "--input", self.folder / "dev.words", "--output",
                   parsed, stderr=subprocess.PIPE, text=True)
        with parsed.open() as trees:
            scores = run(self.args.binaries, "evaluate", "brackets", "--format", "json", "--reference", *self.args.dev,
                         stdin=trees, stdout=subprocess.PIPE, text=True)
        # Not all that it says: of one that was interrupted, where it goes on.
        return json.loads(scores.stdout), int(re.search(r"(\d+) of \d+ trees repaired", done.stderr)[1])


def steps_of(model):
    metrics = map(json.loads, lines_of(model / "metrics.jsonl"))
    return str(max(line.get("step", 0) for line in metrics))


def differences(parsing, args):
    """Rows: what it is, models, beam, whether the search is free."""
    rows = [(args.model, "recipe-whole", "the recipe, whole", [], True, None)]
    rows += [(None, name, words, settings, copied, args.steps) for name, words, settings, copied in VARIANTS]
    for model, name, words, settings, copied, steps in rows:
        model = model or parsing.trained(name, settings, copied, steps)
        for beam, free in SEARCHES:
            yield words, [model], beam, free


def rounds(parsing):
    """The same rows."""
    models = {}
    for name, words, before, alone, settings in ROUNDS:
        start = [f"training.device={parsing.args.device}"]
        if before:
            start.append(f"training.init_from={models[before]}")
        elif models:  # models of one vocabulary can parse together
            start.append(f"data.vocabulary=[{next(iter(models.values()))}/vocabulary.model]")
        models[name] = parsing.trained(name, [*start, *settings], text=parsing.joined(alone))
        yield words, [models[name]], 10, False
    for names in TOGETHER:
        yield f"{', '.join(names)} together", [models[name] for name in names], 10, False


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("--train", nargs="+", type=pathlib.Path, default=[ROOT / "data" / "gum" / "train.mrg.gz"])
    parser.add_argument("--dev", nargs="+", type=pathlib.Path, default=[ROOT / "data" / "gum" / "dev.mrg.gz"])
    parser.add_argument("--model", type=pathlib.Path,
                        help="a model of the whole recipe, trained already, whose trees contain the words")
    parser.add_argument("--steps", type=above(0), default=2500, help="of the runs in which one thing differs (default 2500)")
    parser.add_argument("--rounds", action="store_true", help="rounds of training, instead of runs that differ")
    parser.add_argument("--device", default="cpu", help="that rounds are trained on (default cpu)")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "parsing")
    parser.add_argument("--binaries", type=pathlib.Path, default=BINARIES)
    parser.add_argument("--output", type=output_file, help="the table, in Markdown; standard output if not given")
    args = parser.parse_args()
    if args.model:
        parser.check_model("--model", args.model, "metrics.jsonl")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    parsing = Parsing(args)
    rows = rounds(parsing) if args.rounds else differences(parsing, args)
    lines = ["| model | steps | beam | F1 | up to 40 words | precision | recall | exact match | crossing brackets | "
             "repaired trees |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for words, models, beam, free in rows:
        score, repaired = parsing.score(models, beam, free)
        every = score["all"]
        figures = [every["f1"], score["up_to_40_words"]["f1"], every["precision"], every["recall"], every["exact_match"],
                   every["average_crossing"]]
        search = f"{beam}{', free' if free else ''}"
        lines.append(f"| {words} | {' + '.join(map(steps_of, models))} | {search} | "
                     + " | ".join(f"{x:.2f}" for x in figures) + f" | {repaired} |")
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if args.output:
        args.output.write_text(text)
    else:
        print(text, end="")


main()
