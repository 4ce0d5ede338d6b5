"""`scripts/bench decode --imported`: a MarianMT model, as we import it, as CTranslate2 converts the same folder, and in
`transformers` itself.

The model is a small one that marian_model.py trains once. All sides are given the same pieces of the validation text and
search alike (length^0.6, done when as many hypotheses have finished as the beam is wide); equal outputs are counted
against ours, and every side's text is scored. Ours and each of the others take turns."""

import json
import shutil
import subprocess
import sys

import sacrebleu
import transformers
from ctranslate2.converters import TransformersConverter

from common import lines_of
from pairs import BINARIES, ROOT, WORK, Side, alternate, run, summary

HERE = ROOT / "benchmarks" / "peers"
CASES = [(1, 4), (32, 4), (32, 1)]  # sentences at once, beam
FOLDER = WORK / "imported"
FEW = 64  # sentences that `transformers` is timed on, and ours beside it


def corpus(language, count):
    return lines_of(ROOT / "data" / "tatoeba-en-de" / f"valid.{language}.gz")[:count]


class Numbered:
    """A side's numbering of the pieces, its sources in that, and what it found, as text."""

    def __init__(self, name, pieces, sentences, tokenizer):
        self.name, self.pieces, self.tokenizer = name, pieces, tokenizer
        ids = {piece: i for i, piece in enumerate(pieces)}
        self.sources, self.found = FOLDER / f"{name}.sources", FOLDER / f"{name}.ids"
        self.sources.write_text("".join(" ".join(str(ids[piece]) for piece in pieces) + "\n" for pieces in sentences))

    def texts(self, side, batch, beam, count):
        run(side, batch, beam, count, 0, self.found)
        return [self.tokenizer.convert_tokens_to_string([self.pieces[int(i)] for i in line.split()])
                for line in self.found.read_text().splitlines()]


class ImportedWork:
    """The model in its three forms; what bench_decode.py looks for the peer's fastest way with."""

    steps = 0  # until the ends

    def __init__(self, count, minutes):
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.model, self.ours, self.theirs = FOLDER / "marian", FOLDER / "ours", FOLDER / "ctranslate2"
        if not self.model.exists():
            print(f"training {self.model.relative_to(ROOT)} for {minutes:g} minutes", flush=True)
            subprocess.run([sys.executable, HERE / "marian_model.py", self.model, "--minutes", str(minutes)], check=True)
        if self.ours.exists():
            shutil.rmtree(self.ours)
        subprocess.run([BINARIES / "import", "--from", "hugging-face", self.model, "--output", self.ours], check=True,
                       stdout=subprocess.DEVNULL)
        TransformersConverter(str(self.model)).convert(str(self.theirs), force=True)
        tokenizer = transformers.MarianTokenizer.from_pretrained(self.model)
        known = json.loads((self.model / "vocab.json").read_text())
        pieces = sorted(known, key=known.get)
        sentences = [[piece if piece in known else "<unk>" for piece in tokenizer.tokenize(line)]
                     for line in corpus("en", count)]
        self.count = len(sentences)
        # `import` puts the four reserved pieces first, and a begin of its own among them.
        reserved = ["<pad>", None, "</s>", "<unk>"]
        self.numbered = {
            "ours": Numbered("ours", reserved + [piece for piece in pieces if piece not in reserved], sentences, tokenizer),
            "CTranslate2": Numbered("CTranslate2", json.loads((self.theirs / "shared_vocabulary.json").read_text()), sentences,
                                    tokenizer),
            "transformers": Numbered("transformers", pieces, sentences, tokenizer)}

    def our_side(self, precision, threads):
        return Side([BINARIES / "decode_worker", self.ours, precision, threads, self.numbered["ours"].sources], threads)

    def their_side(self, precision, threads, environment):
        return Side([sys.executable, HERE / "ctranslate2_decode.py", self.theirs, precision, threads,
                     self.numbered["CTranslate2"].sources], threads, environment)

    def transformers_side(self, threads):
        return Side([sys.executable, HERE / "transformers_decode.py", self.model, "float32", threads,
                     self.numbered["transformers"].sources], threads)


def measure(work, precision, environment, pairs, results):
    """One precision of ours to CTranslate2's; in float32, which is what it computes in here, to `transformers` as well."""
    references = [corpus("de", work.count)]
    others = {"CTranslate2": lambda: work.their_side(precision, 1, environment)}
    if precision == "float32":
        others["transformers"] = lambda: work.transformers_side(1)
    for name, open_side in others.items():
        with work.our_side(precision, 1) as ours, open_side() as theirs:
            for batch, beam in CASES:
                label = f"{precision:<8} batch {batch:>2} beam {beam}, ours to {name:<12}"
                count = work.count if name == "CTranslate2" else min(work.count, FEW)
                mine = work.numbered["ours"].texts(ours, batch, beam, count)
                their = work.numbered[name].texts(theirs, batch, beam, count)
                same = sum(a == b for a, b in zip(mine, their))
                scores = [sacrebleu.corpus_bleu(texts, [references[0][:count]]).score for texts in (mine, their)]
                timed = alternate(lambda: run(ours, batch, beam, count, 0), lambda: run(theirs, batch, beam, count, 0), pairs)
                rates = [tuple(tokens / seconds for seconds, tokens in pair) for pair in timed]
                our_rate, their_rate, ratio = summary(rates)
                results.add(f"{label}: {our_rate:8.1f} to {their_rate:8.1f} tokens/s; {same} of {count} outputs the same; "
                            f"BLEU {scores[0]:.2f} to {scores[1]:.2f}; {ratio:.2f}x")
                results.add(f"    pairs of {count} sentences: " + ", ".join(f"{a:.1f} / {b:.1f}" for a, b in rates),
                            print_it=False)
            peaks = [int(side.ask("memory").split()[0]) / 1e6 for side in (ours, theirs)]
            results.add(f"{precision:<8} peak memory, ours to {name:<12}: {peaks[0]:.0f} to {peaks[1]:.0f} MB")
