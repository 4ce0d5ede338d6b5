"""The perplexity of a text, teacher-forced, the end token included: perplexity.py MODEL SOURCE TARGET. Prints JSON."""

import json
import math
import pathlib
import sys

import torch
from model_directory import END, ReferenceModel
from sentencepiece import SentencePieceProcessor


def main(directory, source, target):
    directory = pathlib.Path(directory)
    joint = (directory / "vocabulary.model").exists()
    pieces = [SentencePieceProcessor(model_file=str(directory / ("vocabulary" if joint else side)) + ".model")
              for side in ("source", "target")]
    lines = [pathlib.Path(file).read_text().splitlines() for file in (source, target)]
    model = ReferenceModel(directory)
    loss, tokens, longest = 0, 0, 0
    for pair in zip(*lines, strict=True):
        ids = [side.encode(line) for side, line in zip(pieces, pair)]
        labels = torch.tensor([*ids[1], END])
        loss += torch.nn.functional.cross_entropy(model(*ids)[0], labels, reduction="sum").item()
        tokens += len(labels)
        longest = max(longest, *map(len, ids))
    print(json.dumps({"perplexity": math.exp(loss / tokens), "loss": loss / tokens, "tokens": tokens,
                      "longest": longest}))


main(*sys.argv[1:])
