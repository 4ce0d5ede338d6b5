"""Which attention of a model aligns words best: alignments.py [--attend PROGRAM] [--model DIR] [--pairs N] [--output FILE].

There are no hand-made alignments for this corpus, so two things stand in for them, and no attention has a hand in either:

- statistical alignments of both directions: IBM's model 1, then the same with a preference for the diagonal, as
  fast_align has it, learned from the training pairs and the pairs that are aligned. What both directions say is sure, what
  one says is possible; AER, precision and recall are those of Och and Ney (2003). Word forms are compared in lower case and
  without punctuation around them;
- words that stand once in the source and once in the target, spelled alike (names, numbers): how many are linked to each
  other, and to nothing else.

Every layer and head of the decoder's attention over the source, the mean of every layer's heads, and the mean of all are
read for the validation pairs in one forced pass (`attend --format json`), at the positions that write a word and at those
that read it, its pieces joined; a word of the target is linked to the source word with the greatest weight, and to none
where the end token has it.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
from common import Parser, above, lines_of, output_file  # noqa: E402

DATA = ROOT / "data" / "tatoeba-en-de"


def corpus(name):
    return [line.strip() for line in lines_of(DATA / name)]


def words_of(line):
    """As `alignment_words` has them: what ASCII white space separates."""
    return [word for word in line.translate(str.maketrans("\t\v\f\r", "    ")).split(" ") if word]


def form(word):
    bare = word.lower().strip(".,;:!?\"'()[]…„“”‚‘’»«-–")
    return bare or word


class Statistical:
    """p(target word | source word) for all pairs at once: `cell` numbers the pairs of word types that occur together."""

    def __init__(self, sources, targets):
        number = {}
        ids = lambda words: [number.setdefault(word, len(number)) for word in words]
        first, second, self.segment, prior = [], [], [], []
        self.shapes = []
        segments = 0
        for source, target in zip(sources, targets):
            s, t = numpy.array(ids(["\0"] + source)), numpy.array(ids(target))  # \0: no word
            first.append(numpy.tile(s, len(t)))
            second.append(numpy.repeat(t, len(s)))
            self.segment.append(numpy.repeat(numpy.arange(len(t)) + segments, len(s)))
            segments += len(t)
            place = numpy.abs((numpy.arange(len(source)) + 1)[None] / max(1, len(source))
                              - (numpy.arange(len(t)) + 1)[:, None] / max(1, len(t)))
            weight = numpy.exp(-4 * place)
            weight = 0.92 * weight / weight.sum(1, keepdims=True)
            prior.append(numpy.concatenate([numpy.full((len(t), 1), 0.08), weight], 1).ravel())
            self.shapes.append((len(t), len(s)))
        first, second = numpy.concatenate(first), numpy.concatenate(second)
        self.segment, self.prior = numpy.concatenate(self.segment), numpy.concatenate(prior)
        cells, self.cell = numpy.unique(first * len(number) + second, return_inverse=True)
        self.given = cells // len(number)
        self.words = len(number)
        self.table = numpy.full(len(cells), 1.0)

    def expectation(self, prior):
        joint = self.table[self.cell] * (prior if prior is not None else 1)
        return joint / numpy.bincount(self.segment, joint)[self.segment]

    def iterate(self, prior):
        counts = numpy.bincount(self.cell, self.expectation(prior), len(self.table))
        self.table = counts / numpy.bincount(self.given, counts, self.words)[self.given]

    def links(self, last):
        """Of the last pairs: sets of (source, target)."""
        for _ in range(5):
            self.iterate(None)
        for _ in range(5):
            self.iterate(self.prior)
        posterior = self.expectation(self.prior)
        sizes = [t * s for t, s in self.shapes]
        start = sum(sizes[:-last])
        result = []
        for (t, s), size in zip(self.shapes[-last:], sizes[-last:]):
            best = posterior[start:start + size].reshape(t, s).argmax(1)
            result.append({(source - 1, target) for target, source in enumerate(best) if source > 0})
            start += size
        return result


def statistical_links(sources, targets):
    """Sure and possible links of each pair."""
    train = [(words_of(a), words_of(b)) for a, b in zip(corpus("train.en.gz"), corpus("train.de.gz"))]
    both = [([form(w) for w in s], [form(w) for w in t])
            for s, t in train + [(words_of(a), words_of(b)) for a, b in zip(sources, targets)]]
    from_source, from_target = [s for s, _ in both], [t for _, t in both]
    forward = Statistical(from_source, from_target).links(len(sources))
    backward = Statistical(from_target, from_source).links(len(sources))
    backward = [{(s, t) for t, s in links} for links in backward]
    return [f & b for f, b in zip(forward, backward)], [f | b for f, b in zip(forward, backward)]


def same_words(source, target):
    """Links between words that stand once on either side and are spelled alike."""
    s, t = [form(w) for w in words_of(source)], [form(w) for w in words_of(target)]
    counts = [collections.Counter(s), collections.Counter(t)]
    return {(s.index(word), t.index(word)) for word in s
            if word[:1].isalnum() and counts[0][word] == counts[1][word] == 1}


def word_of(tokens):
    """Of every piece but the end, the number of its word."""
    numbers, number, blank = [], -1, False
    for i, token in enumerate(tokens[:-1]):
        if i == 0 or (token.startswith("▁") and not blank):
            number += 1
        blank = token == "▁"
        numbers.append(number)
    return numpy.array(numbers)


def attention_links(weights, source, target, shift):
    """weights [layers, heads, T, S] -> for every [layer, head] its links; positions that write the target's words, or
    with `shift` those that read them."""
    keys = numpy.zeros((source[-1] + 2, weights.shape[3]))
    keys[numpy.append(source, source[-1] + 1), numpy.arange(weights.shape[3])] = 1
    rows = numpy.zeros((target[-1] + 1, weights.shape[2]))
    rows[target, numpy.arange(len(target)) + shift] = 1
    rows /= rows.sum(1, keepdims=True)
    best = (rows @ weights @ keys.T).argmax(-1)  # [layers, heads, words of the target]
    return lambda layer, head: {(s, t) for t, s in enumerate(best[layer, head]) if s <= source[-1]}


def scores(found, sure, possible, same):
    hits = sum(len(f & s) for f, s in zip(found, sure))
    allowed = sum(len(f & p) for f, p in zip(found, possible))
    links, sures = sum(map(len, found)), sum(map(len, sure))
    precision, recall = allowed / max(1, links), hits / sures
    # A word that is linked to its like and to another one is not counted.
    alike = sum(1 for f, words in zip(found, same) for s, t in words if [l for l in f if s == l[0] or t == l[1]] == [(s, t)])
    return {"aer": 1 - (hits + allowed) / (links + sures), "precision": precision, "recall": recall,
            "f1": 2 * hits / (links + sures), "same": alike / max(1, sum(map(len, same)))}


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("--attend", type=pathlib.Path, default=ROOT / "build/release/bin/attend")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "data/model-en-de")
    parser.add_argument("--pairs", type=above(0), default=1500)
    parser.add_argument("--output", type=output_file)
    options = parser.parse_args()
    parser.check_model("--model", options.model)
    if not options.attend.is_file():
        parser.error(f"argument --attend: {options.attend}: no such program")
    model = options.model.resolve()

    sources, targets = corpus("valid.en.gz")[:options.pairs], corpus("valid.de.gz")[:options.pairs]
    sure, possible = statistical_links(sources, targets)
    same = [same_words(s, t) for s, t in zip(sources, targets)]

    found = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (("source", sources), ("target", targets)):
            (pathlib.Path(folder) / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        process = subprocess.Popen([options.attend.resolve(), "--model", model, "--kind", "cross", "--format", "json",
                                    "--input", f"{folder}/source", "--target", f"{folder}/target"],
                                   stdout=subprocess.PIPE, text=True, encoding="utf-8")
        for line in process.stdout:
            view = json.loads(line)["attention"]["cross"]
            weights = numpy.array(view["weights"])
            layers, heads = weights.shape[:2]
            source, target = word_of(view["keys"]), word_of(view["queries"])
            # Means of heads as a further head, and means of layers as a further layer.
            weights = numpy.concatenate([weights, weights.mean(1, keepdims=True)], 1)
            weights = numpy.concatenate([weights, weights.mean(0, keepdims=True)], 0)
            for shift in (0, 1):
                links = attention_links(weights, source, target, shift)
                for layer in range(layers + 1):
                    for head in range(heads + 1):
                        if layer < layers or head == heads:
                            found[shift, layer, head].append(links(layer, head))
        if process.wait() != 0:
            raise SystemExit("attend failed")

    rows = []
    for (shift, layer, head), links in found.items():
        name = "all layers" if layer == layers else f"layer {layer + 1}"
        name += ", all heads" if head == heads else f", head {head + 1}"
        rows.append({"name": name, "at": ["writing", "reading"][shift], **scores(links, sure, possible, same)})
    rows.sort(key=lambda row: (row["at"], row["name"]))
    best = min(row["aer"] for row in rows)
    text = [f"{model.relative_to(ROOT) if model.is_relative_to(ROOT) else model}: {len(sources)} pairs of "
            f"data/tatoeba-en-de/valid; {sum(map(len, sure))} sure and {sum(map(len, possible))} possible statistical links, "
            f"{sum(map(len, same))} words spelled alike.",
            "Percent; AER: the lower the better. * best AER.", "",
            f"{'attention':<24}{'at':<9}{'AER':>7}{'precision':>11}{'recall':>8}{'F1':>7}{'alike':>7}"]
    for row in rows:
        text.append(f"{row['name']:<24}{row['at']:<9}" + f"{100 * row['aer']:>6.1f}{'*' if row['aer'] == best else ' '}"
                    + f"{100 * row['precision']:>11.1f}{100 * row['recall']:>8.1f}{100 * row['f1']:>7.1f}"
                    + f"{100 * row['same']:>7.1f}")
    report = "\n".join(text) + "\n"
    print(report, end="")
    if options.output:
        options.output.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
