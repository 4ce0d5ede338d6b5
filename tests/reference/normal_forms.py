"""Random texts and their normal forms by Python's unicodedata, as JSON: [[text, normal form], ..].

usage: normal_forms.py OUT
"""

import json
import random
import sys
import unicodedata

random.seed(7)
ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
MARKS = [c for c in ALL if unicodedata.combining(c)]
BLANKS = [c for c in ALL if c.isspace()]
CONTROLS = [c for c in ALL if unicodedata.category(c) == "Cc" and not c.isspace()]
COMPOSED = [c for c in ALL if unicodedata.decomposition(c) and not unicodedata.decomposition(c).startswith("<")]


def normal(text):
    words = []
    for word in text.split():
        word = "".join(c for c in word if unicodedata.category(c) != "Cc")
        words.append(unicodedata.normalize("NFC", word) or "\ufffd")
    return " ".join(words)


def character():
    kind = random.random()
    if kind < 0.3:
        return chr(random.randrange(0x20, 0x7F))
    if kind < 0.4:
        return chr(random.randrange(0xA1, 0x300))
    if kind < 0.6:
        return random.choice(MARKS)
    if kind < 0.7:
        return random.choice(BLANKS)
    if kind < 0.75:
        return random.choice(CONTROLS)
    if kind < 0.9:
        composed = random.choice(COMPOSED)
        return random.choice([composed, unicodedata.normalize("NFD", composed)])
    return random.choice(ALL)


texts = ["".join(character() for _ in range(random.randrange(1, 25))) for _ in range(20000)]
texts += [c for c in ALL if not c.isspace() and not 0xE000 <= ord(c) < 0xF900 and ord(c) < 0xF0000]
texts += ["a" + c + "b" for c in BLANKS + CONTROLS]
with open(sys.argv[1], "w", encoding="utf-8") as out:
    json.dump([[text, normal(text)] for text in texts], out)
