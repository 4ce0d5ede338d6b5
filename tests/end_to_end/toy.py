"""What the end-to-end tests train on: made-up sentences, translated word by word."""

import random

WORDS = {"red": "rot", "green": "grün", "blue": "blau", "dog": "Hund", "cat": "Katze", "tree": "Baum", "house": "Haus",
         "sees": "sieht", "and": "und", "big": "groß", "small": "klein", "my": "mein"}

# Figures of a run that depend on the clock; the length of metrics.jsonl because times have more or fewer digits.
TIMES = {"seconds", "tokens_per_second", "metrics_bytes"}


def write_corpus(folder, name, lines, seed):
    generator = random.Random(seed)
    sources = [generator.choices(sorted(WORDS), k=generator.randint(2, 7)) for _ in range(lines)]
    (folder / f"{name}.en").write_text("".join(" ".join(words) + "\n" for words in sources))
    (folder / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in words) + "\n" for words in sources))


def without_times(values):
    return {key: value for key, value in values.items() if key not in TIMES}
