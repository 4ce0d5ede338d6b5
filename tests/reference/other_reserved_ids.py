"""Trains a SentencePiece model with the ids that SentencePiece reserves by default: unknown 0, begin 1, end 2.

usage: other_reserved_ids.py TEXT.gz PREFIX
"""

import gzip
import sys

import sentencepiece

text, prefix = sys.argv[1:]
with gzip.open(text, "rt", encoding="utf-8") as lines, open(prefix + ".model", "wb") as model:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=500, minloglevel=2
    )
