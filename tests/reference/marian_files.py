"""Models as Marian saves them, of several shapes and with random weights, and what CTranslate2 makes of them, or, of those
with recurrent units, which it does not know, Marian's formulas:
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
    "recurrent": {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "layer-normalization": False,
                  "transformer-ffn-activation": "relu"},
    "recurrent, pre-norm": {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "transformer-preprocess": "n",
                            "transformer-postprocess": "da", "transformer-postprocess-top": "n"},
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
            kinds = ("self",) if stack == "encoder" else ("self", "context")
            if stack == "decoder" and options["transformer-decoder-autoreg"] == "rnn":
                draw(f"{layer}_rnn_W", d, d)
                draw(f"{layer}_rnn_Wf", d, d)
                draw(f"{layer}_rnn_bf", 1, d)
                norm(*((f"{layer}_rnn", "_pre") if pre else (f"{layer}_rnn_ffn", "")))
                kinds = ("context",)
            for kind in kinds:
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


class Recurrent:
    """Log-probabilities of a model whose decoder has recurrent units, in float64, a pair at a time."""

    def __init__(self, options, weights):
        self.options = options
        self.weights = {name: array.astype(numpy.float64) for name, array in weights.items() if ":" not in name}
        self.pre = options["transformer-preprocess"] == "n"

    def affine(self, x, name, which=""):
        return x @ self.weights[f"{name}_W{which}"] + self.weights[f"{name}_b{which}"]

    def normalised(self, x, name, ending=""):
        centred = x - x.mean(-1, keepdims=True)
        scale = numpy.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return centred / scale * self.weights[f"{name}_ln_scale{ending}"] + self.weights[f"{name}_ln_bias{ending}"]

    def around(self, x, layer, before, after):
        if self.pre:
            return x + layer(self.normalised(x, before, "_pre"))
        return self.normalised(x + layer(x), after)

    def attention(self, x, memory, name):
        heads = self.options["transformer-heads"]
        split = lambda y: y.reshape(len(y), heads, -1).swapaxes(0, 1)
        query, key, value = (split(self.affine(of, name, part)) for of, part in ((x, "q"), (memory, "k"), (memory, "v")))
        scores = query @ key.swapaxes(1, 2) / numpy.sqrt(query.shape[-1])
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self.affine((weights @ value).swapaxes(0, 1).reshape(len(x), -1), name, "o")

    def feed_forward(self, x, name):
        inner = self.affine(x, name, "1")
        relu = self.options["transformer-ffn-activation"] == "relu"
        return self.affine(numpy.maximum(inner, 0) if relu else inner / (1 + numpy.exp(-inner)), name, "2")

    def recurrence(self, x, name):
        forget = 1 / (1 + numpy.exp(-self.affine(x, name, "f")))
        taken = x @ self.weights[f"{name}_W"]
        state, outputs = numpy.zeros_like(x[0]), []
        for f, w in zip(forget, taken):
            state = f * state + (1 - f) * w
            outputs.append(numpy.maximum(state, 0))
        return numpy.stack(outputs)

    def embedded(self, rows):
        d = self.options["dim-emb"]
        angles = numpy.arange(len(rows))[:, None] / 10000 ** (numpy.arange(d // 2) * 2 / d)
        return numpy.sqrt(d) * rows + numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], 1)

    def log_probabilities(self, source, target):
        """Of every piece at each position behind those of `target`."""
        rows, d = self.weights["Wemb"], self.options["dim-emb"]
        x = self.embedded(rows[source])
        for i in range(1, self.options["enc-depth"] + 1):
            name = f"encoder_l{i}"
            x = self.around(x, lambda y: self.attention(y, y, f"{name}_self"), *[f"{name}_self_Wo"] * 2)
            x = self.around(x, lambda y: self.feed_forward(y, f"{name}_ffn"), *[f"{name}_ffn_ffn"] * 2)
        memory = self.normalised(x, "encoder_top") if self.pre else x
        x = self.embedded(numpy.concatenate([numpy.zeros((1, d)), rows[target]]))
        for i in range(1, self.options["dec-depth"] + 1):
            name = f"decoder_l{i}"
            x = self.around(x, lambda y: self.recurrence(y, f"{name}_rnn"), f"{name}_rnn", f"{name}_rnn_ffn")
            x = self.around(x, lambda y: self.attention(y, memory, f"{name}_context"), *[f"{name}_context_Wo"] * 2)
            x = self.around(x, lambda y: self.feed_forward(y, f"{name}_ffn"), *[f"{name}_ffn_ffn"] * 2)
        x = self.normalised(x, "decoder_top") if self.pre else x
        logits = x @ rows.T + self.weights["decoder_ff_logit_out_b"]
        most = logits.max(-1, keepdims=True)
        return logits - most - numpy.log(numpy.exp(logits - most).sum(-1, keepdims=True))

    def scores(self, source, target):
        found = self.log_probabilities(source, target)
        return [float(row[piece]) for row, piece in zip(found, target + [0])]

    def greedy(self, source, longest):
        target = []
        while len(target) < longest:
            row = self.log_probabilities(source, target)[-1]
            row[1] = -numpy.inf  # the unknown piece
            if (best := int(row.argmax())) == 0:
                break
            target.append(best)
        return target


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

    def draw(pieces, length):
        return [shuffled.choice(pieces[2:]) for _ in range(length)]
    sources = [draw(vocabularies[0], 1 + 5 * i % LENGTH) for i in range(SENTENCES)]
    targets = [draw(vocabularies[1], 2 + 7 * i % LENGTH) for i in range(SENTENCES)]
    if options["transformer-decoder-autoreg"] == "rnn":
        model = Recurrent(options, weights)
        numbers = lambda pieces: [vocabularies[0].index(piece) for piece in pieces]  # of both languages
        scores = [model.scores(numbers(source) + [0], numbers(target)) for source, target in zip(sources, targets)]
        greedy = [[vocabularies[0][i] for i in model.greedy(numbers(source) + [0], 30)] for source in sources]
    else:
        converted = FOLDER / f"{name} converted"
        MarianConverter(str(folder / "model.npz"), list(map(str, yml))).convert(str(converted))
        translator = ctranslate2.Translator(str(converted), compute_type="float32", intra_threads=1)
        scores = [score.log_probs for score in translator.score_batch(sources, targets)]
        found = translator.translate_batch(sources, beam_size=1, max_decoding_length=30, min_decoding_length=0,
                                           disable_unk=True)
        greedy = [result.hypotheses[0] for result in found]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(models[0]))
    lines = corpus_lines("en", 300) + ["", "  x ", "日本語 x", "ＡＢＣ", "</s> <unk>"]
    known = set(vocabularies[0][2:])
    tokens = [[piece if piece in known else "<unk>" for piece in processor.encode(line, out_type=str)] for line in lines]
    (FOLDER / f"{name}.json").write_text(json.dumps({
        "sources": sources, "targets": targets, "log_probabilities": scores, "greedy": greedy, "lines": lines,
        "pieces": tokens}))


for shape in SHAPES.items():
    make_model(*shape)
