"""`scripts/bench decode --features`: what decoding's features cost, one thread.

- costs: the processor's time with each beside the plain search's, in one process that takes turns, the shipped model on
  its validation sentences, 32 at once and one at a time. Outputs with a feature may be longer or shorter, so that what is
  compared is the time that a token of output takes; that of all the sentences stands beside it. Samples are compared with
  greedy search, which has one hypothesis as well, and once with beam 4; since a single long sample is a batch of its own
  in the end, also where each output has as many tokens, none of which ends it. Required phrases are two words in a row of
  each sentence's own plain output; forbidden are ten words that the references hold now and then; two models are two
  copies, each with weights of its own in memory.
- lists: outputs written in a list's candidates, ours and CTranslate2's with the very same list (vmap.py), each to itself
  without. The shipped model's is that of the corpus in data/. A base model of 37,000 word pieces has random weights, but
  everything that decides about candidates is real: a vocabulary learned from that corpus, its list, and for sources the
  validation sentences one behind the other, cut into 24 pieces each, so that sentences of a batch share what is frequent.
- workers: what it costs that many workers have fewer sentences each, from the same 1,024. One worker decodes the share of
  each, a slice of the text, one share after another, which counts the work that small batches make dearer, and not that
  the last worker lets the others wait. Then as many threads as there are workers take turns on one core, which counts
  what a worker's caches lose to the next one's, too, as they do not where each has a core of its own."""

import collections
import itertools
import re
import statistics
import subprocess
import sys

import sacrebleu
import sentencepiece

import vmap
from common import lines_of
from pairs import BINARIES, ROOT, WORK, alternate, in_turn, run

HERE = ROOT / "benchmarks" / "peers"
CORPUS = ROOT / "data" / "tatoeba-en-de"
PRECISIONS = ["float32", "int8"]
CASES = [(1, 4), (32, 1), (32, 4)]  # sentences at once, beam
SECONDS = 0.15                  # that a measurement takes at least
UNITS = {1: 32, 32: 96}         # sentences of the smallest measurement, by batch
VOCABULARY, PIECES = 37000, 24  # of the base model, and of its sources

# `beam` with the feature, `beside` which beam without it; `steps` 0: until the ends; `bar`: how many times as long a token
# may take.
Feature = collections.namedtuple("Feature", "name wish beam beside steps bar", defaults=([], 4, 4, 0, None))
SAMPLING = ["decoding.search=sampling", "decoding.temperature=1"]
FEATURES = [
    Feature("a sample, beside greedy search", SAMPLING, 1, 1, bar=1.05),
    Feature("a sample of 12 tokens, beside greedy search", SAMPLING, 1, 1, 12, bar=1.05),
    Feature("a sample, beside beam 4", SAMPLING, 1, 4),
    Feature("no_repeat_ngram 3", ["decoding.no_repeat_ngram=3"], bar=1.05),
    Feature("repetition_penalty 1.2", ["decoding.repetition_penalty=1.2"]),
    Feature("10 forbidden words", ["forbidden={folder}/forbidden"]),
    Feature("a bias for 10 tokens", ["bias=10"]),
    Feature("1 required phrase", ["required=1"], bar=2),
    Feature("2 required phrases", ["required=2"], bar=2),
    Feature("1 required phrase of the reference", ["required=1", "of={folder}/references"], bar=2),
    Feature("2 required phrases of the reference", ["required=2", "of={folder}/references"], bar=2),
    Feature("2 models", ["models=2"], bar=2.1),
    Feature("2 groups, diversity 0.5", ["decoding.beam_groups=2"]),
    Feature("min_length 5", ["decoding.min_length=5"]),
    Feature("alignments", ["alignments"]),
    Feature("confidences", ["confidences"]),
]


def text(name):
    return lines_of(CORPUS / f"{name}.gz")


def newer(made, *sources):
    """Whether what was made before can be used."""
    return made.exists() and all(made.stat().st_mtime > source.stat().st_mtime for source in sources)


def judged(ratio, bar):
    return f"; bar {bar:g}x: {'met' if ratio <= bar else 'missed'}" if bar else ""


def worked(side, batch, beam, count, steps, first=0):
    """Decodes: (seconds of the processor, tokens). What else the machine does in the meantime does not count."""
    _, tokens = run(side, batch, beam, count, steps, first=first)
    return float(side.ask("processor")), tokens


def costs(work, precision, rounds, wanted, results):
    words = collections.Counter(word for line in text("valid.de") for word in re.findall(r"[^\W\d_]{4,}", line))
    (work.folder / "forbidden").write_text("".join(word + "\n" for word, _ in words.most_common(110)[100:]))
    (work.folder / "references").write_text("".join(line + "\n" for line in text("valid.de")), encoding="utf-8")
    with work.our_side(precision, 1) as side:
        for batch, feature in itertools.product((32, 1), FEATURES):
            label = f"costs {precision:<8} batch {batch:>2}  {feature.name}"
            if not wanted(label):
                continue

            def timed(wish, beam, count):
                side.ask("wish", *(word.format(folder=work.folder) for word in wish))
                return worked(side, batch, beam, count, feature.steps)

            seconds, _ = timed([], feature.beside, UNITS[batch])
            count = UNITS[batch] * max(1, min(round(SECONDS / seconds), work.count // UNITS[batch]))
            timed(feature.wish, feature.beam, count)
            measured = alternate(lambda: timed(feature.wish, feature.beam, count),
                                 lambda: timed([], feature.beside, count), rounds)
            rates = [tuple(tokens / seconds for seconds, tokens in pair) for pair in measured]
            with_it, without = (statistics.median(pair[i] for pair in rates) for i in (0, 1))
            token = statistics.median(without / with_it for with_it, without in rates)
            whole = statistics.median(with_it[0] / without[0] for with_it, without in measured)
            results.add(f"{label:<71}: {with_it:8.1f} tokens/s to {without:8.1f} without; a token takes "
                        f"{token:.2f}x the time, all {whole:.2f}x{judged(token, feature.bar)}")
            results.add(f"    pairs of {count} sentences: " + ", ".join(f"{a:.1f} / {b:.1f}" for a, b in rates),
                        print_it=False)


def add_list(work):
    """Makes the list of a work's vocabulary, in our format and in CTranslate2's: the file of ours."""
    file, program = work.folder / "shortlist", BINARIES / "shortlist"
    if not newer(file, program, work.ours / "vocabulary.model"):
        print(f"making {file.relative_to(ROOT)}", flush=True)
        subprocess.run([program, "--model", work.ours, "--source", CORPUS / "train.en.gz", "--target",
                        CORPUS / "train.de.gz", "--output", file], check=True, stdout=subprocess.DEVNULL)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(work.ours / "vocabulary.model"))
    vmap.write(file, [processor.id_to_piece(i) for i in range(len(processor))], work.theirs / "vmap.txt")
    return file


def base_text():
    """The model directory of the base model with real pieces, and its sources."""
    folder = WORK / f"base-V-{VOCABULARY}-text"
    folder.mkdir(parents=True, exist_ok=True)
    learned, model, maker = folder / "learned.model", folder / "model", HERE / "random_model.py"
    if not newer(learned, CORPUS / "train.en.gz", CORPUS / "train.de.gz"):
        print(f"learning {learned.relative_to(ROOT)}", flush=True)
        with open(learned.with_suffix(".partial"), "wb") as partial:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(text("train.en") + text("train.de")), model_writer=partial, vocab_size=VOCABULARY,
                model_type="bpe", character_coverage=1.0, pad_id=0, bos_id=1, eos_id=2, unk_id=3, minloglevel=2)
        learned.with_suffix(".partial").replace(learned)
    if not newer(model / "model.safetensors", learned, maker):
        print(f"making {model.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, maker, model, "--vocabulary", str(VOCABULARY), "--pieces", learned], check=True)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(learned))
    pieces = list(itertools.chain.from_iterable(processor.encode(text("valid.en"))))
    return model, [pieces[i:i + PIECES] for i in range(0, len(pieces) - PIECES + 1, PIECES)]


def list_label(name, precision, batch, beam):
    return f"{name} {precision:<8} batch {batch:>2} beam {beam}"


def wanted_precisions(name, wanted):
    """In which anything is asked for."""
    return [precision for precision in PRECISIONS if any(wanted(list_label(name, precision, *case)) for case in CASES)]


def lists(work, precision, environment, rounds, sentences, wanted, results):
    """`sentences`: how many are scored; 0: outputs say nothing."""
    file = add_list(work)
    references = [text("valid.de")[:sentences]]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(work.ours / "vocabulary.model"))
    with work.our_side(precision, 1) as ours, work.their_side(precision, 1, environment) as theirs:
        candidates = ours.ask("shortlist", file).split()
        sides = [(ours, 0), (ours, file), (theirs, 0), (theirs, file)]

        def decoded(which, batch, beam, count, output="-"):
            side, listed = sides[which]
            side.ask("shortlist", listed)
            return run(side, batch, beam, count, work.steps, output)

        def outputs(which, batch, beam, count):
            seconds, _ = decoded(which, batch, beam, count, work.file("listed"))
            return [list(map(int, line.split())) for line in work.file("listed").read_text().splitlines()], seconds / count

        for batch, beam in CASES:
            label = list_label(work.name, precision, batch, beam)
            if not wanted(label):
                continue
            unit = min(work.unit[batch], UNITS[batch])
            # And all are warm.
            found, each = zip(*(outputs(which, batch, beam, sentences or unit) for which in range(4)))
            count = unit * max(1, min(round(SECONDS / (unit * max(each))), work.count // unit))
            measured = in_turn([lambda which=which: decoded(which, batch, beam, count) for which in range(4)], rounds)
            rates = [tuple(tokens / seconds for seconds, tokens in four) for four in measured]
            a, b, c, d = (statistics.median(four[which] for four in rates) for which in range(4))
            ratios = [statistics.median(four[one] / four[other] for four in rates)
                      for one, other in ((1, 0), (3, 2), (0, 2), (1, 3))]
            same = [sum(x == y for x, y in zip(found[one], found[other])) for one, other in ((0, 1), (2, 3), (1, 3))]
            results.add(f"{label}: ours {b:.1f} tokens/s to {a:.1f} without ({ratios[0]:.2f}x), CTranslate2 {d:.1f} to "
                        f"{c:.1f} ({ratios[1]:.2f}x); ours to CTranslate2 {ratios[2]:.2f}x without, {ratios[3]:.2f}x with")
            results.add(f"    {candidates[0]} candidates a sentence, {candidates[1]} for 32 together; of {len(found[0])} "
                        f"outputs the list leaves {same[0]} of ours and {same[1]} of CTranslate2's as they are; with it, "
                        f"{same[2]} of both are the same")
            if sentences:
                scores = [sacrebleu.corpus_bleu(processor.decode(ids), references).score for ids in found]
                results.add(f"    BLEU of {sentences}: ours {scores[1]:.2f} to {scores[0]:.2f} without, CTranslate2 "
                            f"{scores[3]:.2f} to {scores[2]:.2f}")
            results.add(f"    rounds of {count} sentences, ours without and with, CTranslate2 without and with: " +
                        ", ".join(" / ".join(f"{rate:.1f}" for rate in four) for four in rates), print_it=False)


def workers(work, precision, rounds, wanted, results):
    counts, sentences, bar = (1, 16, 32), 1024, 1.05
    with work.our_side(precision, 1) as side:
        for beam in (1, 4):
            label = f"workers {precision:<8} batch 32 beam {beam}"
            if not wanted(label):
                continue

            def shared(count):
                share = sentences // count
                parts = [worked(side, 32, beam, share, work.steps, first) for first in range(0, sentences, share)]
                return tuple(map(sum, zip(*parts)))

            def taking_turns(count):
                side.ask("workers", count)
                measured = worked(side, 32, beam, sentences, work.steps)
                side.ask("workers", 1)
                return measured

            shared(1)
            ways = [(shared, count) for count in counts] + [(taking_turns, count) for count in counts[1:]]
            measured = in_turn([lambda way=way, count=count: way(count) for way, count in ways], rounds)
            rates = [tuple(tokens / seconds for seconds, tokens in each) for each in measured]
            for at, (way, count) in enumerate(ways[1:], 1):
                one, many = (statistics.median(each[i] for each in rates) for i in (0, at))
                ratio = statistics.median(each[at][0] / each[0][0] for each in measured)
                how, limit = ("one after another", bar) if way is shared else ("taking turns on a core", None)
                results.add(f"{label}: {count} workers with {sentences // count} sentences each, {how}, write {many:.1f} "
                            f"tokens a second of the processor, one with all of them {one:.1f}; {ratio:.2f}x the time"
                            f"{judged(ratio, limit)}")
            results.add("    rounds: " + ", ".join(" / ".join(f"{rate:.1f}" for rate in each) for each in rates),
                        print_it=False)
