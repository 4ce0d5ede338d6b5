"""A small model on Multi30k, English to German: trains configs/multi30k.yaml, translates its validation part and a test
part in every precision, scores them (tokenised, lower-cased BLEU), and compares with what CTranslate2 makes of the same model.

    .venv/bin/python benchmarks/multi30k.py --output benchmarks/results/multi30k

writes FOLDER/README.md, with the learning curve, and the translations that were scored. Training goes on after an
interruption; a finished one is not trained again. data/README.md says where to get the text."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import ctranslate2
import sentencepiece
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "multi30k.yaml"
PARTS = ("val", "test_2016_flickr")
PRECISIONS = ("float32", "bf16", "int8")


def run(binaries, program, *arguments, **options):
    return subprocess.run([binaries / program, *map(str, arguments)], check=True, cwd=ROOT, **options)


class Model:
    def __init__(self, args):
        self.args, self.folder = args, args.model or ROOT / "runs" / "multi30k"
        if not args.model:
            run(args.binaries, "train", CONFIG)
        self.config = yaml.safe_load((self.folder / "config.yaml").read_text())

    def text(self, part, language):
        return self.args.data / f"{part}.lc.norm.tok.{language}"

    def translated(self, part, precision, *options):
        output = self.args.output / f"{part}.{precision}.de"
        run(self.args.binaries, "translate", "--model", self.folder, "--precision", precision, *options,
            "--input", self.text(part, "en"), "--output", output)
        return output

    def bleu(self, part, hypotheses):
        with hypotheses.open() as lines:
            done = run(self.args.binaries, "evaluate", "bleu", "--tokenized", "--format", "json", "--reference",
                       self.text(part, "de"), stdin=lines, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def differences(self, part):
        """Of so many sentences, how many CTranslate2 translates otherwise by its rules."""
        beam = self.config["decoding"]["beam"]
        ours = self.translated(part, "float32", "--length-penalty", "power", "--stop", "beam_finished")
        vocabulary = sentencepiece.SentencePieceProcessor(model_file=str(self.folder / "vocabulary.model"))
        with tempfile.TemporaryDirectory() as folder:
            exported = f"{folder}/exported"
            run(self.args.binaries, "export", "--to", "ctranslate2", "--model", self.folder, "--output", exported,
                stdout=subprocess.DEVNULL)
            translator = ctranslate2.Translator(exported, compute_type="float32", inter_threads=1, intra_threads=1)
        lines = self.text(part, "en").read_text().splitlines()
        results = translator.translate_batch(
            vocabulary.encode(lines, out_type=str), beam_size=beam, length_penalty=self.config["decoding"]["alpha"],
            min_decoding_length=0, max_decoding_length=300, return_end_token=True, max_batch_size=32)
        theirs = [vocabulary.decode(result.hypotheses[0][:-1]) for result in results]
        return sum(a != b for a, b in zip(ours.read_text().splitlines(), theirs, strict=True)), len(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="trained already")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data" / "multi30k")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    args = parser.parse_args()
    args.output, args.binaries, args.data = (path.resolve() for path in (args.output, args.binaries, args.data))
    missing = [str(file) for part in ("train", *PARTS) for language in ("en", "de")
               if not (file := args.data / f"{part}.lc.norm.tok.{language}").exists()]
    if missing:
        parser.error(f"missing: {', '.join(missing)}; data/README.md says where to get them")
    args.output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    model = Model(args)
    differing = {part: model.differences(part) for part in PARTS}
    rows, signature = [], ""
    for part in PARTS:
        for precision in PRECISIONS:
            hypotheses = model.translated(part, precision)
            score = model.bleu(part, hypotheses)
            signature = score["signature"]
            rows.append(f"| {part} | {precision} | {score['score']:.2f} |")
            print(rows[-1], flush=True)
            if precision != "float32":
                hypotheses.unlink()
    summary = json.loads((model.folder / "summary.json").read_text())
    decoding, training = model.config["decoding"], model.config["training"]
    metrics = list(map(json.loads, (model.folder / "metrics.jsonl").read_text().splitlines()))
    text = [
        "# Multi30k, English to German",
        "",
        f"configs/multi30k.yaml, seed {training['seed']}: {summary['parameters']:,} parameters, {summary['steps']:,} steps, "
        f"{summary['target_tokens']:,} target tokens in {summary['seconds'] / 60:.0f} minutes. Beam {decoding['beam']}, "
        f"length penalty {decoding['length_penalty']} with alpha {decoding['alpha']}. All but the length penalty was chosen on the validation part.",
        "",
        "| part | precision | BLEU |\n|---|---|---:|\n" + "\n".join(rows),
        "",
        f"BLEU of tokenised, lower-cased text: {signature}.",
        "",
        "By CTranslate2's rules for lengths and the search's end, in float32, translated otherwise than by CTranslate2: "
        + ", ".join(f"{count} of {total} ({part})" for part, (count, total) in differing.items()) + ".",
        "",
        "The learning curve, on the validation part (single checkpoints; BLEU by 13a's tokens):",
        "",
        "| step | training loss | perplexity | BLEU |\n|---:|---:|---:|---:|",
    ]
    loss = float("nan")
    for line in metrics:
        if line["kind"] == "train":
            loss = line["loss"]
        if line["kind"] == "validation" and "bleu" in line:
            text.append(f"| {line['step']} | {loss:.3f} | {line['perplexity']:.2f} | {line['bleu']:.2f} |")
    (args.output / "README.md").write_text("\n".join(text) + "\n")


main()
