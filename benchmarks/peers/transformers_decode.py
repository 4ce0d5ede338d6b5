"""The side of `transformers` in `scripts/bench decode --imported`: transformers_decode.py MODEL PRECISION THREADS SOURCES.
Loads a MarianMT model, then obeys the commands that benchmarks/peers/decode_worker.cpp describes, but for outputs of a
given length. Sentences of like length share a batch, as on the other sides."""

import sys
import time

import torch
import transformers

from worker import obey, read_sources, status

ALPHA = 0.6


def main():
    model, precision, threads, sources = sys.argv[1:]
    torch.set_num_threads(int(threads))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    before = status("VmRSS")
    model = transformers.MarianMTModel.from_pretrained(model, dtype=getattr(torch, precision)).eval()
    lines = read_sources(sources)
    padding, end = model.config.pad_token_id, model.config.eos_token_id

    def decode(batch, beam, first, count, steps):
        assert steps == 0
        order = sorted(range(first, first + count), key=lambda i: len(lines[i]))
        outputs, tokens = {}, 0
        start = time.perf_counter()
        for at in range(0, count, batch):
            chosen = order[at:at + batch]
            width = max(len(lines[i]) for i in chosen) + 1
            ids = torch.tensor([lines[i] + [end] + [padding] * (width - 1 - len(lines[i])) for i in chosen])
            with torch.inference_mode():
                found = model.generate(ids, attention_mask=(ids != padding).long(), num_beams=beam, do_sample=False,
                                       length_penalty=ALPHA, early_stopping=True, max_length=None,
                                       max_new_tokens=width + 300)
            for i, output in zip(chosen, found.tolist()):
                outputs[i] = [token for token in output[1:] if token not in (padding, end)]
                tokens += len(outputs[i]) + 1
        return time.perf_counter() - start, tokens, [outputs[i] for i in range(first, first + count)]

    obey(transformers.__version__, before, decode)


main()
