"""Writes what a version's programs leave behind, for formats_test.py of all later ones: make_formats.py PROGRAMS FOLDER.

PROGRAMS is the folder of the programs; FOLDER, named like the version, must not be there yet. To be run once for each
version that is released, and never for one that was.
"""

import gzip
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

if len(sys.argv) != 3:
    sys.exit(__doc__)
PROGRAMS, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
WORDS = {"red": "rot", "green": "grün", "blue": "blau", "dog": "Hund", "cat": "Katze", "tree": "Baum", "house": "Haus",
         "sees": "sieht", "and": "und", "big": "groß", "small": "klein", "my": "mein"}
RECIPE = """data:
  train_source: [train.en.gz]
  train_target: [train.de.gz]
  validation_source: [valid.en]
  validation_target: [valid.de]
vocabulary: {byte_fallback: false}
model: {layers: 1, d_model: 24, d_ff: 32, heads: 2, vocabulary_size: 76, dropout: 0.0}
training: {output: run, steps: 3000, batch_tokens: 500, schedule: inverse_sqrt, rate: 6e-3, warmup_steps: 200,
           label_smoothing: 0.0, log_every: 500, validate_every: 1000, checkpoint_every: 1000, keep_checkpoints: 1,
           average_checkpoints: 1, threads: 1, validate_bleu: true}
decoding: {beam: 3}
"""


def write(file, text):
    data = text.encode()
    if file.name.startswith("train"):
        file, data = file.with_name(file.name + ".gz"), gzip.compress(data, mtime=0)
    file.write_bytes(data)


def write_text(folder, name, lines, seed):
    generator = random.Random(seed)
    sources = [generator.choices(sorted(WORDS), k=generator.randint(2, 5)) for _ in range(lines)]
    write(folder / f"{name}.en", "".join(" ".join(words) + "\n" for words in sources))
    write(folder / f"{name}.de", "".join(" ".join(WORDS[word] for word in words) + "\n" for words in sources))


def main():
    if FOLDER.exists():
        raise SystemExit(f"{FOLDER} is there already: what a version has written stays as it is")
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name) / "formats"
        root.mkdir()
        write_text(root, "train", 1000, 1)
        write_text(root, "valid", 20, 2)
        (root / "recipe.yaml").write_text(RECIPE)

        def run(program, *arguments, input=None, output=None):
            done = subprocess.run([PROGRAMS / program, *arguments], cwd=root, stdin=input, capture_output=True, check=True)
            if output:
                (root / output).write_bytes(done.stdout)

        run("train", "recipe.yaml")
        shutil.rmtree(root / "run" / "corpus")  # made again from the text
        for unread in [*(root / "run").glob("events.*"), root / "run" / ".lock"]:
            unread.unlink()
        run("export", "--to", "packed", "--precision", "int8", "--model", "run", "--output", "int8")
        run("shortlist", "--model", "run", "--source", "train.en.gz", "--target", "train.de.gz", "--frequent", "4",
            "--translations", "4", "--output", "shortlist")
        run("translate", "--model", "run", "--input", "valid.en", "--output", "run.de")
        run("translate", "--model", "run", "--input", "valid.en", "--n-best", "3", "--output", "n-best")
        run("translate", "--model", "run", "--input", "valid.en", "--scores", "--output", "scores")
        run("translate", "--model", "int8", "--input", "valid.en", "--output", "int8.de")
        run("translate", "--model", "run", "--shortlist", "shortlist", "--input", "valid.en", "--output", "shortlist.de")
        # What a vocabulary makes of a text, other than the one it was learned from.
        (root / "pieces.en").write_text("my big red house\nthe trees and dogs see green cats\n")
        run("translate", "--model", "run", "--input", "pieces.en", "--output-format", "jsonl", "--output", "pieces.jsonl")
        shutil.copytree(root, FOLDER)


if __name__ == "__main__":
    main()
