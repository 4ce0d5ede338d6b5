"""CTranslate2's side of `scripts/bench decode`: ctranslate2_decode.py MODEL PRECISION THREADS SOURCES. Loads a model that
`export --to ctranslate2` wrote, or CTranslate2's own converter, of one vocabulary, then obeys the commands that
benchmarks/peers/decode_worker.cpp describes, and `shortlist`: anything but 0 has outputs written in the candidates of
the model's vmap.txt, which vmap.py makes.

Its settings are those it is fastest with: a translator a thread, batches made by itself from sentences of like length,
and of what it can return only what both sides are asked for."""

import json
import pathlib
import sys
import time

import ctranslate2

from worker import obey, read_sources, status

ALPHA = 0.6


def main():
    model, precision, threads, sources = sys.argv[1:]
    before = status("VmRSS")
    translator = ctranslate2.Translator(model, compute_type=precision, inter_threads=int(threads), intra_threads=1)
    pieces = json.loads((pathlib.Path(model) / "shared_vocabulary.json").read_text())
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    end = config["eos_token"]
    given = [] if config["add_source_eos"] else [end]
    ids = {piece: i for i, piece in enumerate(pieces)}
    lines = [[pieces[i] for i in source] + given for source in read_sources(sources)]
    listed = False

    def shorten(wanted):
        nonlocal listed
        listed = wanted != "0"
        return "done"

    def decode(batch, beam, first, count, steps):
        chosen = lines[first:first + count]
        longest = steps or max(map(len, chosen)) + 300
        start = time.perf_counter()
        results = translator.translate_batch(chosen, beam_size=beam, max_batch_size=batch, length_penalty=ALPHA,
                                             min_decoding_length=steps, max_decoding_length=longest,
                                             return_end_token=True, use_vmap=listed)
        seconds = time.perf_counter() - start
        hypotheses = [result.hypotheses[0] for result in results]
        outputs = [[ids[piece] for piece in hypothesis if piece != end] for hypothesis in hypotheses]
        return seconds, sum(map(len, hypotheses)), outputs

    obey(ctranslate2.__version__, before, decode, {"shortlist": shorten})


main()
