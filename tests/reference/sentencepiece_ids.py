"""Writes the ids that Python's sentencepiece gives each line of a text, and what it decodes them to.

usage: sentencepiece_ids.py MODEL TEXT IDS DECODED
"""

import sys

import sentencepiece

model, text, ids, decoded = sys.argv[1:]
processor = sentencepiece.SentencePieceProcessor(model_file=model)
with open(text, encoding="utf-8", newline="\n") as lines, open(ids, "w") as out, open(
    decoded, "w", encoding="utf-8", newline="\n"
) as back:
    for line in lines:
        found = processor.encode(line.removesuffix("\n"))
        out.write(" ".join(map(str, found)) + "\n")
        back.write(processor.decode(found) + "\n")
