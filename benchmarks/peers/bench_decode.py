"""Decoding on a CPU against CTranslate2: scripts/bench decode.

The very same weights (`export --to ctranslate2`) and the same token ids on both sides, which take turns in one run.

- base: the paper's base model with fixed random weights (random_model.py), 25 tokens in, exactly 25 out for every
  sentence: CTranslate2 with min_decoding_length = max_decoding_length = 25, ours with no end to look for. The outputs
  are compared.
- trained: the shipped model on its validation sentences, until the end tokens, with the same search on both sides
  (beam 4, length^0.6, done when as many hypotheses have finished as the beam is wide). Outputs are compared as well.

With --imported, the model is one of MarianMT, trained once with `transformers` (imported.py). With --all-ways, a teacher
and its students are compared, every way to be faster in one table (ways.py). With --features, decoding's
features are compared with the plain search, and shortlists with CTranslate2's (features.py).

Rounded to int8 the two differ in more than speed: how many outputs agree is printed for what it is. CTranslate2 has no
bf16 on these processors; ours is measured against our own float32."""

import collections
import hashlib
import os
import pathlib
import random
import sys

import sentencepiece

from common import Parser, above, lines_of, output_file, pattern
from pairs import (BINARIES, PEER_ENVIRONMENTS, ROOT, WORK, Side, alternate, base_model, begun, export_to_ctranslate2,
                   parsed, prepare, run, summary)

HERE = pathlib.Path(__file__).parent
STEPS = 25
CASES = [(1, 4), (32, 4), (32, 1)]  # sentences at once, beam
SECONDS = 1.0                       # that a measurement takes at least, where enough sentences are at hand


class Work:
    """A model of both formats, and sentences."""

    def __init__(self, name, ours, sources, steps, unit, folder=None):
        self.name, self.ours, self.steps = name, ours, steps
        self.unit = unit  # sentences of the smallest measurement, by batch
        self.folder = WORK / (folder or name.replace(" ", "-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.theirs = self.folder / "ctranslate2"
        self.sources = self.folder / "sources"
        self.count = len(sources)
        self.sources.write_text("".join(" ".join(map(str, source)) + "\n" for source in sources))
        (self.theirs / "vmap.txt").unlink(missing_ok=True)  # of an earlier run, which `export` would not replace
        export_to_ctranslate2(ours, self.theirs)

    def our_side(self, precision, threads):
        return Side([BINARIES / "decode_worker", self.ours, precision, threads, self.sources], threads)

    def their_side(self, precision, threads, environment):
        return Side([sys.executable, HERE / "ctranslate2_decode.py", self.theirs, precision, threads, self.sources],
                    threads, environment)

    def file(self, side):
        return self.folder / f"{side}.ids"


def base(vocabulary):
    generator = random.Random(1)
    sources = [[generator.randrange(4, vocabulary) for _ in range(STEPS - 1)] for _ in range(1024)]
    return Work(f"base V {vocabulary}", base_model(vocabulary), sources, STEPS, {1: 2, 32: 32})


def trained(name="trained"):
    model = ROOT / "data" / "model-en-de"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model / "vocabulary.model"))
    sources = processor.encode(lines_of(ROOT / "data" / "tatoeba-en-de" / "valid.en.gz"))
    return Work(name, model, sources, 0, {1: 32, 32: 256})


def best_environment(work, precision):
    """The name of the peer's fastest way on this processor, and the seconds that each took."""
    times = {}
    for name, environment in PEER_ENVIRONMENTS.items():
        with work.their_side(precision, 1, environment) as side:
            least = float("inf")
            for _ in range(3):
                seconds = run(side, 1, 4, 1, work.steps)[0] + run(side, 8, 4, 8, work.steps)[0]
                least = min(least, seconds)
                if times and seconds > 2 * min(times.values()):
                    break  # hopeless, as MKL's int8 is on processors of another maker
            times[name] = least
    return min(times, key=times.get), times


def agreement(work, ours, theirs, batch, beam, count):
    """How many of `count` outputs are the same."""
    run(ours, batch, beam, count, work.steps, work.file("ours"))
    run(theirs, batch, beam, count, work.steps, work.file("theirs"))
    a, b = (work.file(side).read_text().splitlines() for side in ("ours", "theirs"))
    assert len(a) == len(b) == count
    return sum(x == y for x, y in zip(a, b))


def shares(side, work, batch, beam, seconds):
    """What decoding makes of the processor and of its memory, from the seconds that a token of output takes: both limits
    are measured here and now, on the same core. Products with weights alone count; a sentence at a time has to read all
    of them in every step, and memory limits it, where many sentences wait for multiplications. More than all of the memory's
    speed is possible where caches hold a part of the weights."""
    most, memory = map(float, side.ask("limits").split())
    source, row, source_bytes, step_bytes = map(int, side.ask("work").split())
    steps = work.steps
    done = (steps * source + (1 + (steps - 1) * beam) * row) / steps  # sources have as many tokens; one row at first
    read = (source_bytes / steps + step_bytes) / batch
    text = f"{read / seconds / memory:.0%} of the memory's {memory / 1e9:.1f} GB/s"
    return (f"{done / seconds / most:.0%} of {most / 1e9:.0f} G multiply-adds/s, " if most else "") + text


def shortened(side, work, threads, batch, beam, count, pairs, label, results):
    """With a shortlist, to itself without: made up, as many candidates as a trained model's has for so many pieces."""
    translations = 50

    def timed(wanted):
        side.ask("shortlist", wanted)
        return run(side, batch, beam, count, work.steps)

    candidates, _ = side.ask("shortlist", translations).split()
    run(side, batch, beam, work.unit[batch] * threads, work.steps)
    rates = [tuple(tokens / seconds for seconds, tokens in pair)
             for pair in alternate(lambda: timed(translations), lambda: timed(0), pairs)]
    side.ask("shortlist", 0)
    mine, whole, ratio = summary(rates)
    results.add(f"{label}  batch {batch:>2} beam {beam}, a shortlist of {candidates} a sentence: {mine:8.1f} to {whole:8.1f} "
                f"tokens/s without; {ratio:.2f}x")


def measure(work, precision, threads, cases, pairs, environment, results):
    label = f"{work.name:<12} {precision:<8} {threads} thread{'s' if threads > 1 else ' '}"
    if precision == "bf16":
        other_side = work.our_side("float32", threads)
        results.add(f"{label}  to float32:")
    else:
        other_side = work.their_side(precision, threads, environment)
    measured = []
    with work.our_side(precision, threads) as ours, other_side as theirs:
        for batch, beam in cases:
            unit = work.unit[batch] * threads
            same = agreement(work, ours, theirs, batch, beam, unit)  # and both are warm
            slower = max(run(side, batch, beam, unit, work.steps)[0] for side in (ours, theirs))
            count = unit * max(1, min(round(SECONDS / slower), work.count // unit))
            timed = alternate(lambda: run(ours, batch, beam, count, work.steps),
                              lambda: run(theirs, batch, beam, count, work.steps), pairs)
            rates = [tuple(tokens / seconds for seconds, tokens in pair) for pair in timed]
            mine, their, ratio = summary(rates)
            results.add(f"{label}  batch {batch:>2} beam {beam}: {mine:8.1f} to {their:8.1f} tokens/s; "
                        f"{same} of {unit} outputs the same; {ratio:.2f}x")
            measured.append((batch, beam, count, mine))
            results.add(f"    pairs of {count} sentences: " + ", ".join(f"{a:.1f} / {b:.1f}" for a, b in rates),
                        print_it=False)
        memory = [list(map(int, side.ask("memory").split())) for side in (ours, theirs)]
        (peak, now), (their_peak, their_now) = [[value / 1e6 for value in both] for both in memory]
        empty, their_empty = int(ours.ready[1]) / 1e6, int(theirs.ready[1]) / 1e6
        results.add(f"{label}  peak memory: {peak:.0f} to {their_peak:.0f} MB (before the model {empty:.0f} to "
                    f"{their_empty:.0f}, afterwards {now:.0f} to {their_now:.0f}); {peak / their_peak:.2f}x")
        # These take memory of their own.
        for batch, beam, count, mine in measured if work.steps else []:
            if threads == 1:
                results.add(f"{label}  batch {batch:>2} beam {beam}: {shares(ours, work, batch, beam, 1 / mine)}")
            shortened(ours, work, threads, batch, beam, count, pairs, label, results)


# Only what is asked for is made.
MAKERS = {"base V 37000": lambda: base(37000), "base V 8000": lambda: base(8000), "trained": trained}


def plain_cases(args):
    """{(work, precision, threads): cases} that are asked for."""
    chosen = {}
    for work in MAKERS:
        for precision in ("float32", "int8", "bf16"):
            for threads in (1, 2) if args.full else (1,):
                cases = [(batch, beam) for batch, beam in CASES
                         if not args.only or args.only.search(
                             f"{work} {precision} {threads} thread{'s' if threads > 1 else ''} batch {batch} beam {beam}")]
                if cases:
                    chosen[work, precision, threads] = cases
    return chosen


def measure_plain(args):
    works, environments = {}, {}
    with begun(args, "Decoding on a CPU, ours to CTranslate2: medians, the ratio last (of speeds: more is better for ours; of "
               "memory: less).") as results:
        for (name, precision, threads), cases in plain_cases(args).items():
            if name not in works:
                works[name] = MAKERS[name]()
            work = works[name]
            if precision != "bf16" and (name, precision) not in environments:
                fastest, times = best_environment(work, precision)
                environments[name, precision] = PEER_ENVIRONMENTS[fastest]
                tried = ", ".join(f"{way} {seconds:.2f} s" for way, seconds in times.items())
                with work.our_side(precision, 1) as side, work.their_side(precision, 1, None) as peer:
                    results.add(f"{name} {precision}: kernels {side.ready[0]} to CTranslate2 {peer.ready[0]}, {fastest} "
                                f"(fastest of: {tried})")
            if len(os.sched_getaffinity(0)) < threads:
                results.add(f"{name} {precision}: no {threads} cores for {threads} threads")
                continue
            measure(work, precision, threads, cases, args.pairs, environments.get((name, precision)), results)


def measure_imported(args):
    import imported  # which needs transformers, and sacreBLEU

    with begun(args, "Decoding an imported MarianMT model on a CPU, one thread: medians, the ratio last.") as results:
        work = imported.ImportedWork(args.sentences, args.minutes)
        for precision in ("float32", "int8"):
            fastest, _ = best_environment(work, precision)
            results.add(f"{precision}: CTranslate2 {fastest}")
            imported.measure(work, precision, PEER_ENVIRONMENTS[fastest], args.pairs, results)


def measure_features(args):
    import features  # which needs sacreBLEU

    def wanted(label):
        return not args.only or args.only.search(label)

    with begun(args, "What decoding's features cost, one thread: medians. features.py says how it is measured.") as results:
        work = trained()
        for precision in features.PRECISIONS:
            features.costs(work, precision, args.pairs, wanted, results)
        few = min(args.pairs, 3)  # rounds of what takes seconds
        # Folders of their own: a vmap.txt takes memory, whether it is used or not.
        makers = {"lists trained": (trained, args.pairs, min(args.sentences, work.count)),
                  "lists base": (lambda name: Work(name, *features.base_text(), STEPS, {1: 2, 32: 32}), few, 0)}
        environments = {}
        for name, (make, rounds, sentences) in makers.items():
            precisions = features.wanted_precisions(name, wanted)
            listed = make(name) if precisions else None
            for precision in precisions:
                if precision not in environments:
                    fastest, _ = best_environment(work, precision)
                    environments[precision] = PEER_ENVIRONMENTS[fastest]
                    results.add(f"{precision}: CTranslate2 {fastest}")
                features.lists(listed, precision, environments[precision], rounds, sentences, wanted, results)
        for precision in features.PRECISIONS:
            features.workers(work, precision, few, wanted, results)


def measure_ways(args):
    import ways  # which needs sacreBLEU

    def made(model, name):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model / "vocabulary.model"))
        sources = processor.encode(ways.text("valid.en"))
        # What lies there from earlier runs is of this model, whatever others are called.
        folder = f"ways/{hashlib.sha256(os.fsencode(model.resolve())).hexdigest()[:16]}"
        return Work(name, model.resolve(), sources, 0, {1: 32, 32: 256}, folder)

    with begun(args, "A teacher's translations, every way: one and two workers, medians.") as results:
        models = [args.teacher, *args.student]
        teacher, *students = map(made, models, ways.names_of(models))
        environments = {}
        for precision in ("float32", "int8"):
            fastest, _ = best_environment(teacher, precision)
            environments[precision] = PEER_ENVIRONMENTS[fastest]
            results.add(f"{precision}: CTranslate2 {fastest}")
        ways.measure(teacher, students, args.draft and args.draft.resolve(), environments,
                     min(args.timed, teacher.count), args.pairs, results, args.figures)


# What may be measured, with the programs that it needs, its results file, and the options that say something to it.
Mode = collections.namedtuple("Mode", "measure targets output options")
MODES = {
    "": Mode(measure_plain, ["export", "decode_worker"], "benchmarks/results/decode-cpu.txt", {"full", "only"}),
    "imported": Mode(measure_imported, ["import", "decode_worker"], "benchmarks/results/imported-cpu.txt",
                     {"sentences", "minutes"}),
    "features": Mode(measure_features, ["export", "shortlist", "decode_worker"],
                     "benchmarks/results/decode-features-cpu.txt", {"only", "sentences"}),
    "all-ways": Mode(measure_ways, ["export", "shortlist", "decode_worker"], "benchmarks/results/ways-cpu.txt",
                     {"teacher", "student", "draft", "timed", "figures"}),
}


def check(parser, args):
    """Ends the program where options do not go together, or ask for what is not there."""
    for option in sorted(set().union(*(mode.options for mode in MODES.values())) - MODES[args.mode].options):
        if getattr(args, option) != parser.get_default(option):
            takers = " or ".join(f"--{name}" for name, mode in MODES.items() if option in mode.options)
            parser.error(f"argument --{option}: says nothing " + (f"with --{args.mode}" if args.mode else f"without {takers}"))
    if not args.mode and not plain_cases(args):
        parser.error("argument --only: leaves no setting")
    if args.mode == "all-ways":
        for option, model in (("teacher", args.teacher), *(("student", model) for model in args.student),
                              ("draft", args.draft or args.teacher)):
            parser.check_model(f"--{option}", model, "vocabulary.model")
        known = {args.teacher.resolve()}
        for model in args.student:
            if model.resolve() in known:
                parser.error(f"argument --student: {model} was named before")
            known.add(model.resolve())


def main():
    parser = Parser(prog="scripts/bench decode", description=__doc__)
    parser.add_argument("--full", action="store_true", help="with two threads, too")
    parser.add_argument("--only", type=pattern, metavar="REGEX",
                        help="settings whose description matches, as 'base V 8000 int8 1 thread batch 32 beam 4'")
    modes = parser.add_mutually_exclusive_group()

    def add_mode(name, what):
        modes.add_argument(f"--{name}", dest="mode", action="store_const", const=name, default="", help=what)

    add_mode("imported",
             "a MarianMT model instead, against CTranslate2's own conversion and transformers (trained once)")
    add_mode("features", "what decoding's features cost instead, and shortlists against CTranslate2's (five minutes)")
    parser.add_argument("--sentences", type=above(0), default=500,
                        help="with --imported or --features: of the validation text, that are scored (default 500)")
    parser.add_argument("--minutes", type=above(0, float), default=20,
                        help="with --imported: that the model is trained for, where there is none yet (default 20)")
    add_mode("all-ways", "a teacher and its students instead, every way to be faster in one table")
    parser.add_argument("--teacher", type=pathlib.Path, default=ROOT / "runs" / "teacher", metavar="MODEL",
                        help="with --all-ways: what is to be matched (default runs/teacher, of configs/teacher.yaml)")
    parser.add_argument("--student", type=pathlib.Path, action="append", default=[], metavar="MODEL",
                        help="with --all-ways: a smaller model of its vocabulary; repeat for more")
    parser.add_argument("--draft", type=pathlib.Path, metavar="MODEL",
                        help="with --all-ways: what guesses for the teacher")
    parser.add_argument("--timed", type=above(0), default=320,
                        help="with --all-ways: sentences that are timed; all are scored (default 320)")
    parser.add_argument("--figures", type=output_file, metavar="FILE",
                        help="with --all-ways: write some of them for `evaluate speed --figures`")
    args = parsed(parser, MODES[""].output)
    check(parser, args)
    mode = MODES[args.mode]
    prepare(args, mode.targets, mode.output)
    mode.measure(args)


if __name__ == "__main__":
    main()
