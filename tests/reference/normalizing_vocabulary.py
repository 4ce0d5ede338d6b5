"""Trains a SentencePiece model that normalises by itself (nmt_nfkc), with the ids that are reserved here.

usage: normalizing_vocabulary.py TEXT.gz PREFIX
"""

import gzip
import sys

import sentencepiece

text, prefix = sys.argv[1:]
with gzip.open(text, "rt", encoding="utf-8") as lines, open(prefix + ".model", "wb") as model:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=500, model_type="bpe", byte_fallback=True,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, minloglevel=2
    )
