"""CTranslate2's side of `scripts/bench decode`: ctranslate2_decode.py MODEL PRECISION THREADS SOURCES. Loads a model that
`export --to ctranslate2` wrote, then obeys the commands that benchmarks/peers/decode_worker.cpp describes.

Its settings are those it is fastest with: a translator a thread, batches made by itself from sentences of like length,
and of what it can return only what both sides are asked for."""

import json
import pathlib
import sys
import time

import ctranslate2

ALPHA = 0.6
END = 2  # the id that both sides reserve for it


def status(field):
    """A field of /proc/self/status that counts kB, in bytes."""
    for line in open("/proc/self/status"):
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def main():
    model, precision, threads, sources = sys.argv[1:]
    before = status("VmRSS")
    translator = ctranslate2.Translator(model, compute_type=precision, inter_threads=int(threads), intra_threads=1)
    pieces = json.loads((pathlib.Path(model) / "shared_vocabulary.json").read_text())
    ids = {piece: i for i, piece in enumerate(pieces)}
    lines = [[pieces[int(i)] for i in line.split()] for line in pathlib.Path(sources).read_text().splitlines()]
    end = pieces[END]
    print(f"ready {ctranslate2.__version__} {before}", flush=True)
    for command in sys.stdin:
        verb, *words = command.split()
        if verb == "memory":
            print(status("VmHWM"), status("VmRSS"), flush=True)
            continue
        batch, beam, first, count, steps = map(int, words[:5])
        chosen = lines[first:first + count]
        longest = steps or max(map(len, chosen)) + 300
        start = time.perf_counter()
        results = translator.translate_batch(chosen, beam_size=beam, max_batch_size=batch, length_penalty=ALPHA,
                                             min_decoding_length=steps, max_decoding_length=longest,
                                             return_end_token=True)
        seconds = time.perf_counter() - start
        hypotheses = [result.hypotheses[0] for result in results]
        if words[5] != "-":
            text = "".join(" ".join(str(ids[piece]) for piece in hypothesis if piece != end) + "\n"
                           for hypothesis in hypotheses)
            pathlib.Path(words[5]).write_text(text)
        print(f"{seconds:.6f}", sum(map(len, hypotheses)), flush=True)


main()
