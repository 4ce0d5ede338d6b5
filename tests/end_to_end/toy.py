"""What the end-to-end tests train on: made-up sentences, translated word by word."""

import random

WORDS = {"red": "rot", "green": "grün", "blue": "blau", "dog": "Hund", "cat": "Katze", "tree": "Baum", "house": "Haus",
         "sees": "sieht", "and": "und", "big": "groß", "small": "klein", "my": "mein"}

# Figures of a run that depend on the clock and the machine; the length of metrics.jsonl because they have more or fewer
# digits.
TIMES = {"seconds", "tokens_per_second", "memory", "metrics_bytes"}


def write_corpus(folder, name, lines, seed):
    generator = random.Random(seed)
    sources = [generator.choices(sorted(WORDS), k=generator.randint(2, 7)) for _ in range(lines)]
    (folder / f"{name}.en").write_text("".join(" ".join(words) + "\n" for words in sources))
    (folder / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in words) + "\n" for words in sources))


def write_recipe(folder, train_lines, validation_lines, training):
    """The corpus, and tiny.yaml, which trains a tiny model on it; `training` is what is in that section."""
    write_corpus(folder, "train", train_lines, 1)
    write_corpus(folder, "valid", validation_lines, 2)
    (folder / "tiny.yaml").write_text(f"""
data:
  train_source: [{folder}/train.en]
  train_target: [{folder}/train.de]
  validation_source: [{folder}/valid.en]
  validation_target: [{folder}/valid.de]
model: {{layers: 1, d_model: 32, d_ff: 64, heads: 2, vocabulary_size: 320, dropout: 0.1}}
training: {{{training}}}
""")


def without_times(values):
    return {key: value for key, value in values.items() if key not in TIMES}
