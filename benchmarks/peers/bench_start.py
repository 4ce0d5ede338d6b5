"""What one sentence costs: scripts/bench start.

The shipped model in int8, one thread. Ours is the whole life of `translate`, from its start to its end. CTranslate2's is
a Python process that translates the same sentence with the same weights: what counts there is the time from the library
being imported to the translation being there, and the process's peak memory. Both take turns; everything is in the
page cache."""

import os
import statistics
import subprocess
import sys
import time

from common import Parser
from pairs import BINARIES, ROOT, WORK, alternate, begun, export_to_ctranslate2, parsed, prepare

SENTENCE = "Good morning. Where is the train station?"
MODEL = ROOT / "data" / "model-en-de"
OUTPUT = "benchmarks/results/start-cpu.txt"
PEER = """
import sys, time
import ctranslate2, sentencepiece
start = time.perf_counter()
translator = ctranslate2.Translator(sys.argv[1], compute_type="int8", inter_threads=1, intra_threads=1)
processor = sentencepiece.SentencePieceProcessor(model_file=sys.argv[2])
best = translator.translate_batch([processor.encode(sys.argv[3], out_type=str)], beam_size=4)[0].hypotheses[0]
text = processor.decode(best)
print(time.perf_counter() - start, text, sep="\\t")
"""


def measured(command, text=None):
    """(seconds, peak bytes, standard output) of a process's whole life."""
    core = sorted(os.sched_getaffinity(0))[-1]
    start = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env={**os.environ, "OMP_NUM_THREADS": "1"},
                               preexec_fn=lambda: os.sched_setaffinity(0, [core]))
    process.stdin.write((text or "").encode())
    process.stdin.close()
    output = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return seconds, usage.ru_maxrss * 1024, output


def ours():
    seconds, peak, text = measured([BINARIES / "translate", "--model", MODEL, "--precision", "int8", "--threads", "1"],
                                   SENTENCE + "\n")
    return seconds, peak, text.strip()


def theirs():
    _, peak, output = measured([sys.executable, "-c", PEER, WORK / "start", MODEL / "vocabulary.model", SENTENCE])
    seconds, text = output.strip().split("\t")
    return float(seconds), peak, text


def measure(pairs, results):
    ours(), theirs()  # both are in the page cache
    measurements = alternate(ours, theirs, pairs)
    for what, index, scale, unit in (("time", 0, 1e3, "ms"), ("peak memory", 1, 1e-6, "MB")):
        mine, their = (statistics.median(pair[side][index] for pair in measurements) * scale for side in (0, 1))
        ratio = statistics.median(pair[0][index] / pair[1][index] for pair in measurements)
        results.add(f"{what}: {mine:.1f} to {their:.1f} {unit}; {ratio:.2f}x (less is better for ours)")
        results.add("    pairs: " + ", ".join(f"{a[index] * scale:.1f} / {b[index] * scale:.1f}" for a, b in measurements),
                    print_it=False)
    same = measurements[0][0][2] == measurements[0][1][2]
    results.add(f"the translations are {'the same' if same else f'{measurements[0][0][2]!r} and {measurements[0][1][2]!r}'}")


def main():
    parser = Parser(prog="scripts/bench start", description=__doc__)
    parser.set_defaults(only=None)
    args = parsed(parser, OUTPUT)
    prepare(args, ["export", "translate"], OUTPUT)
    export_to_ctranslate2(MODEL, WORK / "start")
    with begun(args, "One sentence, the shipped model in int8, one thread: ours, a whole process, to CTranslate2 in Python, "
               "imports left out of its time.") as results:
        measure(args.pairs, results)


main()
