"""What the end-to-end tests train on: made-up sentences, translated word by word; and a model that nobody trained."""

import json
import math
import random
import re
import shutil
import struct

WORDS = {"red": "rot", "green": "grün", "blue": "blau", "dog": "Hund", "cat": "Katze", "tree": "Baum", "house": "Haus",
         "sees": "sieht", "and": "und", "big": "groß", "small": "klein", "my": "mein"}

# Figures of a run that depend on the clock and the machine; the length of metrics.jsonl because they have more or fewer
# digits.
TIMES = {"seconds", "process_seconds", "tokens_per_second", "memory", "metrics_bytes"}


def write_corpus(folder, name, lines, seed):
    generator = random.Random(seed)
    sources = [generator.choices(sorted(WORDS), k=generator.randint(2, 7)) for _ in range(lines)]
    (folder / f"{name}.en").write_text("".join(" ".join(words) + "\n" for words in sources))
    (folder / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in words) + "\n" for words in sources))


# Training in several processes: of a step's four micro-batches two ranks take two each, three ranks 2, 1 and 1.
SHARED = ("steps: 12, batch_tokens: 320, micro_batch_tokens: 80, warmup_steps: 400, log_every: 4, validate_every: 6, "
          "checkpoint_every: 4, average_checkpoints: 1, threads: 1, timeout_seconds: 20")


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


def write_draft(folder, model, width, layers, seed):
    """A model of random weights with the vocabulary of the model in the folder `model`."""
    generator = random.Random(seed)
    shapes = {"embedding.weight": [4000, width]}

    def add(name, *shape):
        shapes[name] = list(shape)

    for stack, attentions in (("encoder", ["self_attention"]), ("decoder", ["self_attention", "memory_attention"])):
        for layer in range(layers):
            place = f"{stack}.layers.{layer}"
            for attention in attentions:
                add(f"{place}.{attention}.input_weight", 3 * width, width)
                add(f"{place}.{attention}.output.weight", width, width)
            add(f"{place}.feed_forward.inner.weight", 2 * width, width)
            add(f"{place}.feed_forward.inner.bias", 2 * width)
            add(f"{place}.feed_forward.outer.weight", width, 2 * width)
            add(f"{place}.feed_forward.outer.bias", width)
            for after in [f"after_{attention}" for attention in attentions] + ["after_feed_forward"]:
                add(f"{place}.{after}.norm.weight", width)
                add(f"{place}.{after}.norm.bias", width)
    header, body = {}, b""
    for name, shape in shapes.items():
        numbers = [generator.gauss(0, 0.3) for _ in range(math.prod(shape))]
        data = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    config = (model / "config.yaml").read_text()
    sizes = {"d_model": width, "d_ff": 2 * width, "heads": 2, "d_k": width // 2, "d_v": width // 2,
             "encoder_layers": layers, "decoder_layers": layers}
    for name, size in sizes.items():
        config = re.sub(rf"(?m)^  {name}: .*$", f"  {name}: {size}", config)
    (folder / "config.yaml").write_text(config)
    shutil.copy(model / "vocabulary.model", folder)


def without_times(values):
    return {key: value for key, value in values.items() if key not in TIMES}
