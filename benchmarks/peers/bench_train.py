"""Training on a CPU against PyTorch's own nn.Transformer, eager: scripts/bench train.

The same function on both sides (torch_train.py says what was taken off nn.Transformer for that), from the same weights,
on the same batches, with dropout 0.1, label smoothing 0.1 and Adam; bf16 is products in bfloat16 (autocast) over float32
weights. Both take turns in one run. What is measured is whole steps: forward, backward, Adam.

- unpadded: batches of 64 pairs of 32 + 32 random tokens.
- real: pairs of a parallel text, sorted by length, about 2,000 target tokens a batch with its padding; the shipped
  model's word pieces.

Of our side it is printed, too, which share of a step's time its matrix products take where they are computed alone, by
LibTorch on the same threads, and which share of the processor's multiply-adds they are; both limits are measured in the
same run.

Dropout falls on other elements on the two sides, so their losses are alike, not the same; after as many steps on the same
batches both are printed."""

import gzip
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import numpy
import safetensors.numpy
import sentencepiece

from common import Parser, pattern
from pairs import BINARIES, ROOT, WORK, Side, alternate, begun, parsed, prepare, summary

HERE = pathlib.Path(__file__).parent
OUTPUT = "benchmarks/results/train-cpu.txt"
SECONDS = 1.0  # that a measurement takes at least

MODELS = {
    "tiny": dict(d_model=128, d_ff=512, layers=2, heads=4, vocabulary=4000),
    "small": dict(d_model=256, d_ff=1024, layers=3, heads=4, vocabulary=8000),
    "base V 8000": dict(d_model=512, d_ff=2048, layers=6, heads=8, vocabulary=8000),
    "base V 37000": dict(d_model=512, d_ff=2048, layers=6, heads=8, vocabulary=37000),
}
PADDING, BEGIN, END = 0, 1, 2
BATCH_TOKENS = 2000


def batch_of(pairs):
    """(source, target input, target output) of pairs of ids without ends, padded on the right."""
    def filled(rows):
        padded = numpy.full((len(rows), max(map(len, rows))), PADDING, numpy.int64)
        for row, ids in zip(padded, rows):
            row[:len(ids)] = ids
        return padded
    return (filled([source + [END] for source, _ in pairs]), filled([[BEGIN] + target for _, target in pairs]),
            filled([target + [END] for _, target in pairs]))


def unpadded(vocabulary, rows=64, length=32, count=8):
    generator = random.Random(1)
    sentence = lambda: [generator.randrange(4, vocabulary) for _ in range(length - 1)]
    return [batch_of([(sentence(), sentence()) for _ in range(rows)]) for _ in range(count)]


def real(vocabulary, files):
    model = ROOT / "data" / "model-en-de" / "vocabulary.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    assert processor.vocab_size() <= vocabulary
    def lines(file):
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as text:
            return [line.rstrip("\n") for _, line in zip(range(20000), text)]
    source, target = (processor.encode(lines(file)) for file in files)
    pairs = sorted((pair for pair in zip(source, target) if max(map(len, pair)) <= 100),
                   key=lambda pair: (max(map(len, pair)), len(pair[0])))
    batches, rows = [], []
    for pair in pairs:
        longest = max(max(map(len, pair)) + 1, max((len(side) + 1 for row in rows for side in row), default=0))
        if rows and longest * (len(rows) + 1) > BATCH_TOKENS:
            batches.append(rows)
            rows = []
        rows.append(pair)
    batches.append(rows)
    # Every length in any few batches that follow each other.
    batches = [batch_of(rows) for rows in batches]
    random.Random(1).shuffle(batches)
    return batches[:64]


class Work:
    """A model, its first weights, and batches."""

    def __init__(self, name, kind, everywhere, text):
        self.settings = json.dumps({**MODELS[name], "dropout": 0.1, "dropout_everywhere": everywhere})
        folder = WORK / "train" / f"{name} {kind}".replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        self.weights, self.batches = folder / "weights.safetensors", folder / "batches.safetensors"
        subprocess.run([BINARIES / "train_worker", self.settings, "init", self.weights], check=True)
        vocabulary = MODELS[name]["vocabulary"]
        batches = unpadded(vocabulary) if kind == "unpadded" else real(vocabulary, text)
        names = ("source", "target_input", "target_output")
        safetensors.numpy.save_file({f"{i}.{part}": array for i, batch in enumerate(batches)
                                     for part, array in zip(names, batch)}, self.batches)
        self.unit = 1 if kind == "unpadded" else 4  # steps of the smallest measurement

    def side(self, command, precision, threads):
        # Threads of a product meet at the end of each: they are the process's own, all on its cores.
        return Side([*command, self.settings, precision, threads, self.weights, self.batches], threads,
                    {"OMP_NUM_THREADS": str(threads)})


def measure(label, work, precision, threads, pairs, results):
    with work.side([BINARIES / "train_worker"], precision, threads) as ours, \
            work.side([sys.executable, HERE / "torch_train.py"], precision, threads) as theirs:
        def runner(side):
            done = 0

            def run(count):
                nonlocal done
                seconds, tokens, loss = map(float, side.ask("run", done, count).split())
                done += count
                return seconds, tokens, loss

            return run

        run_ours, run_theirs = runner(ours), runner(theirs)
        seconds = run_ours(work.unit)[0]  # the first steps warm both up
        run_theirs(work.unit)
        count = work.unit * max(1, round(SECONDS / seconds))
        timed = alternate(lambda: run_ours(count), lambda: run_theirs(count), pairs)
        rates = [tuple(tokens / seconds for seconds, tokens, _ in pair) for pair in timed]
        mine, their, ratio = summary(rates)
        loss, their_loss = (side[2] for side in timed[-1])
        memory = [list(map(int, side.ask("memory").split()))[0] / 1e6 for side in (ours, theirs)]
        done = work.unit + (pairs - 1) * count  # the last steps' products, alone
        alone, multiply_adds, most = map(float, ours.ask("products", done, count).split())
        shares = f"products alone would take {alone / timed[-1][0][0]:.0%} of the time"
        if most:
            shares += f"; {multiply_adds / timed[-1][0][0] / most:.0%} of {most / 1e9:.0f} G multiply-adds/s"
        empty = [int(side.ready[1]) / 1e6 for side in (ours, theirs)]
    results.add(f"{label}: {mine:8.1f} to {their:8.1f} target tokens/s; after {work.unit + pairs * count} steps a loss of "
                f"{loss:.3f} to {their_loss:.3f}; peak memory {memory[0]:.0f} to {memory[1]:.0f} MB (before the model "
                f"{empty[0]:.0f} to {empty[1]:.0f}), {memory[0] / memory[1]:.2f}x; {shares}; speed {ratio:.2f}x")
    results.add(f"    pairs of {count} steps: " + ", ".join(f"{a:.1f} / {b:.1f}" for a, b in rates), print_it=False)


def main():
    parser = Parser(prog="scripts/bench train", description=__doc__)
    parser.add_argument("--full", action="store_true",
                        help="two threads, real batches of every model, and dropout everywhere, too")
    parser.add_argument("--only", type=pattern, metavar="REGEX",
                        help="settings, of --full's, whose description matches, as 'small bf16 1 thread unpadded'")
    parser.add_argument("--text", nargs=2, type=pathlib.Path, metavar=("SOURCE", "TARGET"),
                        default=[ROOT / "data" / "tatoeba-en-de" / f"train.{language}.gz" for language in ("en", "de")],
                        help="of the real batches (default: the corpus in data/)")
    args = parsed(parser, OUTPUT)
    for file in args.text:
        if not file.is_file():
            parser.error(f"argument --text: there is no file {file}")

    chosen = []
    for name in MODELS:
        for kind in ("unpadded", "real", "unpadded, dropout everywhere"):
            for threads in (1, 2):
                default = threads == 1 and (kind == "unpadded" or (kind == "real" and name in ("tiny", "small")))
                for precision in ("float32", "bf16"):
                    label = f"{name:<12} {precision:<8} {threads} thread{'s' if threads > 1 else ' '} {kind}"
                    if args.only.search(re.sub(" +", " ", label)) if args.only else default or args.full:
                        chosen.append((label, name, kind, precision, threads))
    if not chosen:
        parser.error("argument --only: leaves no setting")
    prepare(args, ["train_worker"], OUTPUT)

    works = {}
    with begun(args, "Training on a CPU, ours to PyTorch's nn.Transformer: medians, the ratio of speeds last (more is better "
               "for ours; of memory: less).") as results:
        for label, name, kind, precision, threads in chosen:
            if len(os.sched_getaffinity(0)) < threads:
                results.add(f"{label}: no {threads} cores for {threads} threads")
                continue
            if (name, kind) not in works:
                works[name, kind] = Work(name, kind.split(",")[0], "everywhere" in kind, args.text)
            measure(label, works[name, kind], precision, threads, args.pairs, results)


main()
