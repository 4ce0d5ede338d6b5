"""A model directory with untrained weights, the same for the same arguments: random_model.py DIR --vocabulary 37000.

The paper's base model (6 + 6 layers, d_model 512, d_ff 2048, 8 heads, one matrix for both embeddings and the projection)
with a vocabulary of made-up pieces, or a given one. Padding, begin and end have the zero vector for an embedding: their
logit is 0, far below the best of thousands of random ones, so that no search ever proposes them, whatever its rules about
them."""

import pathlib

import numpy as np
import safetensors.numpy
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_model

from common import Parser, above

RESERVED = ["<pad>", "<s>", "</s>", "<unk>"]


def vocabulary(size):
    model = sentencepiece_model.ModelProto()
    piece_type = sentencepiece_model.ModelProto.SentencePiece
    types = [piece_type.CONTROL] * 3 + [piece_type.UNKNOWN]
    pieces = RESERVED + [f"\u2581w{i}" for i in range(len(RESERVED), size)]
    for i, piece in enumerate(pieces):
        model.pieces.add(piece=piece, score=-float(i), type=types[i] if i < len(types) else piece_type.NORMAL)
    trainer = model.trainer_spec
    trainer.model_type = sentencepiece_model.TrainerSpec.UNIGRAM  # BPE would need shorter pieces to begin with
    trainer.vocab_size = size
    trainer.pad_id, trainer.bos_id, trainer.eos_id, trainer.unk_id = 0, 1, 2, 3
    trainer.pad_piece, trainer.bos_piece, trainer.eos_piece, trainer.unk_piece = RESERVED
    model.normalizer_spec.name = "identity"
    return model.SerializeToString()


def weights(size, d_model, d_ff, layers, seed):
    random = np.random.default_rng(seed)
    tensors = {}

    def matrix(name, rows, columns, scale):
        tensors[name] = (random.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale))

    def norm(name):
        tensors[name + ".norm.weight"] = np.ones(d_model, np.float32)
        tensors[name + ".norm.bias"] = np.zeros(d_model, np.float32)

    # Weak attention, and strong feed-forward networks without the constant part that max(0, .) brings, take every token
    # somewhere else. Otherwise an untrained model with one matrix for everything repeats its last token, and comparing
    # outputs would say little.
    def attention(name):
        matrix(name + ".input_weight", 3 * d_model, d_model, d_model ** -0.5)
        matrix(name + ".output.weight", d_model, d_model, 0.5 * d_model ** -0.5)

    def feed_forward(name):
        matrix(name + ".inner.weight", d_ff, d_model, d_model ** -0.5)
        matrix(name + ".outer.weight", d_model, d_ff, 2 * d_ff ** -0.5)
        tensors[name + ".inner.bias"] = np.zeros(d_ff, np.float32)
        mean = np.float32((2 * np.pi) ** -0.5)  # of max(0, x) for normal x
        tensors[name + ".outer.bias"] = -mean * tensors[name + ".outer.weight"].sum(axis=1)

    matrix("embedding.weight", size, d_model, d_model ** -0.5)
    tensors["embedding.weight"][:RESERVED.index("<unk>")] = 0
    for stack in ("encoder", "decoder"):
        for i in range(layers):
            layer = f"{stack}.layers.{i}"
            attention(f"{layer}.self_attention")
            norm(f"{layer}.after_self_attention")
            if stack == "decoder":
                attention(f"{layer}.memory_attention")
                norm(f"{layer}.after_memory_attention")
            feed_forward(f"{layer}.feed_forward")
            norm(f"{layer}.after_feed_forward")
    return tensors


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--vocabulary", type=above(len(RESERVED)), default=37000)
    parser.add_argument("--d-model", type=above(0), default=512)
    parser.add_argument("--d-ff", type=above(0), default=2048)
    parser.add_argument("--heads", type=above(0), default=8)
    parser.add_argument("--layers", type=above(0), default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pieces", type=pathlib.Path, help="a SentencePiece model of as many pieces, to be copied")
    args = parser.parse_args()

    args.directory.mkdir(parents=True, exist_ok=True)
    (args.directory / "vocabulary.model").write_bytes(
        args.pieces.read_bytes() if args.pieces else vocabulary(args.vocabulary))
    (args.directory / "config.yaml").write_text(f"""\
format: 1

model:
  d_model: {args.d_model}
  d_ff: {args.d_ff}
  heads: {args.heads}
  encoder_layers: {args.layers}
  decoder_layers: {args.layers}
  vocabulary_size: {args.vocabulary}
  shared_embeddings: all
""")
    partial = args.directory / "model.safetensors.partial"  # an interrupted run leaves nothing that looks whole
    safetensors.numpy.save_file(weights(args.vocabulary, args.d_model, args.d_ff, args.layers, args.seed), partial,
                                {"format": "transformer-model-1"})
    partial.replace(args.directory / "model.safetensors")


main()
