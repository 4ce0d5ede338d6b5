"""log p of every token of translations, the end included, line by line: scores.py MODEL SOURCE TARGET. Prints JSON."""

import json
import pathlib
import sys

import torch
from model_directory import END, ReferenceModel
from sentencepiece import SentencePieceProcessor


def main(directory, source, target):
    directory = pathlib.Path(directory)
    pieces = SentencePieceProcessor(model_file=str(directory / "vocabulary.model"))
    model = ReferenceModel(directory)
    found = []
    for pair in zip(*(pathlib.Path(file).read_text().splitlines() for file in (source, target)), strict=True):
        ids = [pieces.encode(line) for line in pair]
        labels = torch.tensor([*ids[1], END])
        log_probabilities = torch.log_softmax(model(*ids)[0].double(), -1)
        found.append(log_probabilities[torch.arange(len(labels)), labels].tolist())
    print(json.dumps(found))


main(*sys.argv[1:])
