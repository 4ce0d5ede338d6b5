"""`scripts/bench decode --all-ways`: every way to translate faster than a teacher with a beam of four, in one table.

The teacher and its students are model directories of one vocabulary. All translate the validation text of the corpus in
data/; its first sentences are timed, all ways taking turns, and all of it is scored. Words are those of the source, so
that a way which writes less gains nothing; a core-hour is an hour of each worker. `x` is the speed beside CTranslate2's
with the teacher in int8 and a beam of four, the same number of sentences at once and of workers."""

import collections
import itertools
import json
import math
import pathlib
import statistics

import sacrebleu
import sentencepiece

from features import add_list, text
from pairs import in_turn, run

BATCHES, WORKERS = (1, 32), (1, 2)
BASELINE = "CTranslate2 int8, beam 4"
BAR, LOSS = 8, 0.5  # times as fast as the baseline with the teacher, at so many points of BLEU less

# `ours`: else CTranslate2.
Way = collections.namedtuple("Way", "name ours precision beam listed drafted", defaults=(False, False))
WAYS = [
    Way("CTranslate2 float32, beam 4", False, "float32", 4),
    Way(BASELINE, False, "int8", 4),
    Way("CTranslate2 int8, greedy", False, "int8", 1),
    Way("float32, beam 4", True, "float32", 4),
    Way("int8, beam 4", True, "int8", 4),
    Way("int8, beam 4, shortlist", True, "int8", 4, True),
    Way("int8, beam 2", True, "int8", 2),
    Way("int8, beam 2, shortlist", True, "int8", 2, True),
    Way("float32, greedy", True, "float32", 1),
    Way("int8, greedy", True, "int8", 1),
    Way("int8, greedy, shortlist", True, "int8", 1, True),
]
DRAFTED = [Way("float32, greedy, draft", True, "float32", 1, False, True),
           Way("int8, greedy, draft", True, "int8", 1, False, True)]
# What a picture has room for.
SHOWN = {BASELINE, "CTranslate2 int8, greedy", "int8, beam 4", "int8, beam 2, shortlist", "int8, greedy, shortlist"}


def names_of(models):
    """For each of different folders the shortest end of its path that no other has."""
    paths, names = [model.absolute().parts for model in models], []
    for path in paths:
        count = 1
        while sum(other[-count:] == path[-count:] for other in paths) > 1:
            count += 1
        names.append(str(pathlib.Path(*path[-count:])))
    return names


def parameters(model):
    """How many weights a model directory holds."""
    with (model / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


class Sides:
    """Processes by what they have loaded, started when they are first wanted."""

    def __init__(self, environments):
        self.environments, self.sides = environments, {}

    def of(self, work, way, workers, draft):
        key = work, way.ours, way.precision, way.drafted, workers
        if key not in self.sides:
            side = (work.our_side(way.precision, workers) if way.ours
                    else work.their_side(way.precision, workers, self.environments[way.precision]))
            if way.drafted:
                side.ask("draft", draft)
            self.sides[key] = side
        return self.sides[key]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for side in self.sides.values():
            side.__exit__()


def measure(teacher, students, draft, environments, timed, rounds, results, figures):
    """`teacher` and `students` are works; `figures` is a file for `evaluate speed --figures`, or None."""
    listed = add_list(teacher)
    references = [text("valid.de")]
    lines = text("valid.en")
    words = sum(len(line.split()) for line in lines[:timed])
    processor = sentencepiece.SentencePieceProcessor(model_file=str(teacher.ours / "vocabulary.model"))
    chosen = [(teacher, way) for way in WAYS + (DRAFTED if draft else [])]
    chosen += [(student, way) for student in students for way in WAYS]
    scores, chars = {}, {}
    speeds = collections.defaultdict(dict)
    with Sides(environments) as sides:
        def decoded(work, way, batch, workers, count, output="-"):
            side = sides.of(work, way, workers, draft)
            side.ask("shortlist", listed if way.listed else 0)
            return run(side, batch, way.beam, count, 0, output)[0]

        for work, way in chosen:
            decoded(work, way, max(BATCHES), 1, work.count, work.file("way"))
            outputs = [list(map(int, line.split())) for line in work.file("way").read_text().splitlines()]
            hypotheses = processor.decode(outputs)
            scores[work, way] = sacrebleu.corpus_bleu(hypotheses, references).score
            chars[work, way] = sacrebleu.corpus_chrf(hypotheses, references).score
        for batch, workers in itertools.product(BATCHES, WORKERS):
            measured = in_turn([lambda work=work, way=way: decoded(work, way, batch, workers, timed)
                                for work, way in chosen], rounds)
            baseline = chosen.index((teacher, next(way for way in WAYS if way.name == BASELINE)))
            for at, (work, way) in enumerate(chosen):
                seconds = statistics.median(each[at] for each in measured)
                ratio = statistics.median(each[baseline] / each[at] for each in measured)
                speeds[work, way][batch, workers] = words / seconds, words / (seconds * workers), ratio
        for way in DRAFTED if draft else []:
            steps, proposed, accepted = map(int, sides.of(teacher, way, 1, draft).ask("drafted").split())
            results.add(f"{way.name}: of {proposed} proposals {accepted / max(proposed, 1):.0%} are right, "
                        f"{accepted / max(steps, 1) + 1:.2f} tokens a pass")
    results.add(f"{timed} sentences timed, {words} words; {len(lines)} scored. Words a second, and in brackets millions a "
                "core-hour")
    columns = [(batch, workers) for batch in BATCHES for workers in WORKERS]
    width = max(16, *(len(work.name) for work, _ in chosen))
    head = f"{'model':<{width}} {'way':<28} {'BLEU':>6} {'chrF':>6}"
    results.add(head + "".join(f"  {f'{batch} at once, {workers} workers':>26}" for batch, workers in columns))
    for work, way in chosen:
        line = f"{work.name:<{width}} {way.name:<28} {scores[work, way]:6.2f} {chars[work, way]:6.2f}"
        for column in columns:
            rate, core, ratio = speeds[work, way][column]
            line += f"  {rate:8.0f} ({core * 3600 / 1e6:5.1f}) {ratio:6.2f}x"
        results.add(line)
    whole = scores[teacher, WAYS[1]]
    good = [(work, way) for work, way in chosen if way.ours and scores[work, way] >= whole - LOSS]
    for batch in BATCHES:
        best = max(good, key=lambda each: speeds[each][batch, 1][2], default=None)
        if best is None:
            results.add(f"{batch} at once: no way loses at most {LOSS} BLEU")
            continue
        ratio = speeds[best][batch, 1][2]
        results.add(f"{batch} at once, at most {LOSS} BLEU less than {BASELINE} with the teacher ({whole:.2f}): "
                    f"{best[0].name}, {best[1].name}, {ratio:.2f}x; bar {BAR}x: {'met' if ratio >= BAR else 'missed'}")
    if figures:
        models = []
        for work, way in ((work, way) for work, way in chosen if way.name in SHOWN):
            weights = work.ours / "model.safetensors" if way.ours else work.theirs / "model.bin"
            models.append({
                "name": work.name, "precision": way.name, "bleu": scores[work, way], "chrf": chars[work, way],
                "bytes": weights.stat().st_size, "parameters": parameters(work.ours),
                "speed": [{"sentences_at_once": batch, "words_per_second": speeds[work, way][batch, 1][0],
                           "words_per_core_second": speeds[work, way][batch, 1][1]} for batch in BATCHES]})
        figures.parent.mkdir(parents=True, exist_ok=True)
        figures.write_text(json.dumps({"models": models}, indent=1) + "\n")
