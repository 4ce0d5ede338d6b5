"""A small model on Multi30k, English to German: trains configs/multi30k.yaml, translates its validation part and a test
part in every precision, scores them (tokenised, lower-cased BLEU), and compares with what CTranslate2 makes of the same model.

    .venv/bin/python benchmarks/multi30k.py --output benchmarks/results/multi30k

writes FOLDER/README.md, with the learning curve, and the translations that were scored. Training goes on after an
interruption; a finished one is not trained again. data/README.md says where to get the text."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import ctranslate2
import sentencepiece
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
from common import Parser, lines_of  # noqa: E402

CONFIG = ROOT / "configs" / "multi30k.yaml"
PARTS = ("val", "test_2016_flickr")
PRECISIONS = ("float32", "bf16", "int8")


def run(binaries, program, *arguments, **options):
    return subprocess.run([binaries / program, *map(str, arguments)], check=True, cwd=ROOT, **options)


class Model:
    def __init__(self, args):
        self.args, self.folder = args, args.model or ROOT / "runs" / "multi30k"
        if not args.model:
            run(args.binaries, "train", CONFIG, *(word for setting in self.data() for word in ("--set", setting)))
        self.config = yaml.safe_load((self.folder / "config.yaml").read_text())

    def data(self):
        """The settings of what is trained on; a folder is spelled as the configuration spells it, since a run goes on with
        the same ones alone."""
        return [f"data.{use}_{side}=[{json.dumps(os.path.relpath(self.text(part, language), ROOT), ensure_ascii=False)}]"
                for use, part in (("train", "train"), ("validation", "val"))
                for side, language in (("source", "en"), ("target", "de"))]

    def text(self, part, language):
        return self.args.data / f"{part}.lc.norm.tok.{language}"

    def translated(self, part, precision, *options, by=""):
        """`by` tells a search with `options` from the plain one: what an interruption leaves of it is its own."""
        output = self.args.output / f"{part}.{precision}{by}.de"
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
        ours = self.translated(part, "float32", "--length-penalty", "power", "--stop", "beam_finished",
                               by=".ctranslate2-rules")
        vocabulary = sentencepiece.SentencePieceProcessor(model_file=str(self.folder / "vocabulary.model"))
        with tempfile.TemporaryDirectory() as folder:
            exported = f"{folder}/exported"
            run(self.args.binaries, "export", "--to", "ctranslate2", "--model", self.folder, "--output", exported,
                stdout=subprocess.DEVNULL)
            translator = ctranslate2.Translator(exported, compute_type="float32", inter_threads=1, intra_threads=1)
        lines = lines_of(self.text(part, "en"))
        results = translator.translate_batch(
            vocabulary.encode(lines, out_type=str), beam_size=beam, length_penalty=self.config["decoding"]["alpha"],
            min_decoding_length=0, max_decoding_length=300, return_end_token=True, max_batch_size=32)
        theirs = [vocabulary.decode(result.hypotheses[0][:-1]) for result in results]
        differing = sum(a != b for a, b in zip(lines_of(ours), theirs, strict=True))
        ours.unlink()
        return differing, len(lines)


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, help="trained already")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data" / "multi30k")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    args = parser.parse_args()
    # Programs run in the repository, whose configuration is relative to it.
    args.output, args.binaries, args.data = map(pathlib.Path.absolute, (args.output, args.binaries, args.data))
    if args.model:
        args.model = args.model.absolute()
        parser.check_model("--model", args.model, "metrics.jsonl", "summary.json", "vocabulary.model")
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
    metrics = list(map(json.loads, lines_of(model.folder / "metrics.jsonl")))
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
