"""Models as Marian saves them, of several shapes and with random weights, and what CTranslate2 makes of them:
marian_files.py CORPUS FOLDER. Each FOLDER/NAME holds the model, its vocabularies and a decoder.yml; FOLDER/NAME.json
sentences as pieces, their log-probabilities, what greedy search finds, and lines with their pieces."""

import gzip
import json
import pathlib
import random
import sys

import ctranslate2
import numpy
import sentencepiece
import yaml
from ctranslate2.converters import MarianConverter

CORPUS, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SENTENCES, LENGTH = 8, 12
ODD = [",", '"', "'", "\\", "a: b", "#", "- x", "\x85", "? y", "'z'", "it's", "日本語", ">>deu<<"]


def corpus_lines(language, count):
    with gzip.open(CORPUS / f"valid.{language}.gz", "rt", encoding="utf-8") as text:
        return [line.rstrip("\n") for _, line in zip(range(count), text)]


def train_pieces(language, file, **more):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus_lines(language, 800)), model_prefix=str(file.with_suffix("")), vocab_size=260,
        model_type="unigram", character_coverage=0.999, minloglevel=2, num_threads=1, **more)
    file.with_suffix(".model").rename(file)
    file.with_suffix(".vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


def spelled(piece, i):
    """As YAML has it, in one of the ways that there are."""
    if piece == "\x85":
        return '"\\x85": %d' % i
    if piece == "'z'":
        return '"%s": %d' % (piece, i)
    if i % 7 == 0:
        return "? %s\n: %d" % (spelled(piece, 1).rsplit(":", 1)[0], i)
    if i % 5 == 0 or piece in ("- x", ",", "#", "? y", "a: b", "'", '"', "\\"):
        return '"%s": %d' % (piece.replace("\\", "\\\\").replace('"', '\\"'), i)
    if i % 3 == 0:
        return "'%s': %d" % (piece.replace("'", "''"), i)
    return "%s: %d" % (piece, i)


def write_vocabulary(file, pieces):
    file.write_text("".join(spelled(piece, i) + "\n" for i, piece in enumerate(pieces)), encoding="utf-8")


SHAPES = {
    "plain": dict(),
    "two vocabularies": {"tied-embeddings-all": False, "transformer-ffn-activation": "relu", "compressed": True},
    "projection of its own": {"tied-embeddings-src": True, "tied-embeddings": False, "enc-depth": 1, "dec-depth": 3},
    "three matrices": {"tied-embeddings-all": False, "tied-embeddings": False, "transformer-heads": 2},
    "pre-norm": {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"},
    "vocabularies of SentencePiece": {"transformer-ffn-activation": "relu", "compressed": True},
}


def make_weights(options, sizes, chosen):
    d, inner = options["dim-emb"], options["transformer-dim-ffn"]
    weights = {}

    def draw(name, *shape, scale=0.25, shift=0.0):
        weights[name] = (chosen.normal(0, scale, shape) + shift).astype(numpy.float32)

    pre = options["transformer-preprocess"] == "n"

    def norm(name, ending):
        draw(f"{name}_ln_scale{ending}", 1, d, shift=1.0)
        draw(f"{name}_ln_bias{ending}", 1, d)

    def attention(name):
        for part in "qkvo":
            draw(f"{name}_W{part}", d, d)
            draw(f"{name}_b{part}", 1, d)
        norm(f"{name}_Wo", "_pre" if pre else "")

    for stack, depth in (("encoder", options["enc-depth"]), ("decoder", options["dec-depth"])):
        for i in range(1, depth + 1):
            layer = f"{stack}_l{i}"
            for kind in ("self", "context")[:1 if stack == "encoder" else 2]:
                attention(f"{layer}_{kind}")
            draw(f"{layer}_ffn_W1", d, inner)
            draw(f"{layer}_ffn_b1", 1, inner)
            draw(f"{layer}_ffn_W2", inner, d)
            draw(f"{layer}_ffn_b2", 1, d)
            norm(f"{layer}_ffn_ffn", "_pre" if pre else "")
        if pre:
            norm(f"{stack}_top", "")
    if options["tied-embeddings-all"] or options["tied-embeddings-src"]:
        draw("Wemb", sizes[0], d)
    else:
        draw("encoder_Wemb", sizes[0], d)
        draw("decoder_Wemb", sizes[1], d)
    if not options["tied-embeddings"]:
        if options["tied-embeddings-src"]:
            draw("decoder_ff_logit_out_W", d, sizes[1])
        else:
            draw("decoder_ff_logit_out_Wt", sizes[1], d)
    if options["transformer-heads"] != 2:  # newer versions may leave it out
        draw("decoder_ff_logit_out_b", 1, sizes[1])
        weights["decoder_ff_logit_out_b"][0, 0] += 3  # ends, so that outputs differ in length
    return weights


def make_model(name, change):
    folder = FOLDER / name
    folder.mkdir()
    options = {"type": "transformer", "dim-emb": 32, "dim-vocabs": [0, 0], "enc-depth": 2, "dec-depth": 2,
               "transformer-heads": 4, "transformer-dim-ffn": 48, "transformer-ffn-depth": 2,
               "transformer-ffn-activation": "swish", "transformer-decoder-autoreg": "self-attention",
               "transformer-no-projection": False, "transformer-guided-alignment-layer": "last",
               "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
               "transformer-dropout": 0.1, "transformer-tied-layers": [], "input-types": [], "version": "v1.9.0; made up",
               "tied-embeddings": True, "tied-embeddings-src": False, "tied-embeddings-all": True,
               "ulr-query-vectors": "", "skip": False}
    options |= {"tied-embeddings-all": False} if change.get("tied-embeddings-src") else {}
    compressed = change.get("compressed", False)
    options |= {key: value for key, value in change.items() if key != "compressed"}
    shuffled = random.Random(len(name))
    of_pieces = "SentencePiece" in name
    if of_pieces:
        pieces = train_pieces("en", folder / "vocab.spm", bos_id=-1, eos_id=0, unk_id=1)
        vocabularies = [pieces, pieces]
        names = ["vocab.spm", "vocab.spm"]
        models = [folder / "vocab.spm"] * 2
    else:
        models = [folder / "source.spm", folder / "target.spm"]
        learned = [train_pieces(language, file) for language, file in zip(("en", "de"), models)]
        joint = options["tied-embeddings-all"] or options["tied-embeddings-src"]
        vocabularies = []
        for texts in [learned[0] + learned[1]] * 2 if joint else learned:
            texts = sorted(set(texts + ODD) - {"<s>", "</s>", "<unk>"})
            random.Random(7).shuffle(texts)
            vocabularies.append(["</s>", "<unk>"] + texts[20:])
        names = ["vocab.yml", "vocab.yml"] if joint else ["vocab.en.yml", "vocab.de.yml"]
    yml = [folder / (name if name.endswith(".yml") else "dumped.yml") for name in names]
    for file, pieces in zip(yml, vocabularies):
        write_vocabulary(file, pieces)
    options["dim-vocabs"] = [len(pieces) for pieces in vocabularies]
    weights = make_weights(options, options["dim-vocabs"], numpy.random.default_rng(len(name)))
    text = yaml.safe_dump(options).encode() + b"\0"
    weights["special:model.yml"] = numpy.frombuffer(text, numpy.int8)
    (numpy.savez_compressed if compressed else numpy.savez)(folder / "model.npz", **weights)
    (folder / "decoder.yml").write_text(yaml.safe_dump(
        {"relative-paths": True, "models": ["model.npz"], "vocabs": names, "beam-size": 6, "normalize": 0.6}))

    converted = FOLDER / f"{name} converted"
    MarianConverter(str(folder / "model.npz"), list(map(str, yml))).convert(str(converted))
    translator = ctranslate2.Translator(str(converted), compute_type="float32", intra_threads=1)

    def draw(pieces, length):
        return [shuffled.choice(pieces[2:]) for _ in range(length)]
    sources = [draw(vocabularies[0], 1 + 5 * i % LENGTH) for i in range(SENTENCES)]
    targets = [draw(vocabularies[1], 2 + 7 * i % LENGTH) for i in range(SENTENCES)]
    scores = translator.score_batch(sources, targets)
    found = translator.translate_batch(sources, beam_size=1, max_decoding_length=30, min_decoding_length=0,
                                      disable_unk=True)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(models[0]))
    lines = corpus_lines("en", 300) + ["", "  x ", "日本語 x", "ＡＢＣ", "</s> <unk>"]
    known = set(vocabularies[0][2:])
    tokens = [[piece if piece in known else "<unk>" for piece in processor.encode(line, out_type=str)] for line in lines]
    (FOLDER / f"{name}.json").write_text(json.dumps({
        "sources": sources, "targets": targets, "log_probabilities": [score.log_probs for score in scores],
        "greedy": [result.hypotheses[0] for result in found], "lines": lines, "pieces": tokens}))


for shape in SHAPES.items():
    make_model(*shape)
