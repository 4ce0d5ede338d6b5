"""Models that CTranslate2's converters make of MarianMT: ctranslate2_models.py FOLDER EXPORTED. EXPORTED is a folder that
`export --to hugging-face` wrote. FOLDER/NAME holds each conversion with its SentencePiece models; FOLDER/NAME.json
sentences as pieces, their log-probabilities and what greedy search finds, by CTranslate2 in float32."""

import json
import pathlib
import random
import shutil
import sys

import ctranslate2
import torch
import transformers
from ctranslate2.converters import TransformersConverter
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

FOLDER, EXPORTED = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SENTENCES = 6

# Quantisation, and what differs in the model; the pieces are those of EXPORTED, padding put last as Marian has it.
SHAPES = {
    "float32": (None, {}),
    "half precision": ("float16", {"scale_embedding": False, "activation_function": "gelu"}),
    "int8": ("int8", {"activation_function": "relu", "decoder_layers": 1}),
    "int8 and half precision": ("int8_float16", {}),
    "int16": ("int16", {"tie_word_embeddings": False}),
}


def make_tokens(folder):
    folder.mkdir()
    for name in ("source.spm", "target.spm"):
        shutil.copy(EXPORTED / name, folder)
    pieces = json.loads((EXPORTED / "vocab.json").read_text())
    pieces = [piece for piece, _ in sorted(pieces.items(), key=lambda item: item[1])][:600]
    texts = [piece for piece in pieces if piece not in ("</s>", "<unk>", "<pad>", "<s>")]
    texts = ["</s>", "<unk>"] + texts + ["<pad>"]
    (folder / "vocab.json").write_text(json.dumps({text: i for i, text in enumerate(texts)}))
    tokenizer = MarianTokenizer(*(str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")))
    return tokenizer, texts


def make_model(name, quantization, change, tokenizer, pieces):
    folder, size = FOLDER / f"{name} of transformers", len(pieces)
    torch.manual_seed(len(name))
    options = dict(vocab_size=size, decoder_vocab_size=size, d_model=32, encoder_layers=2, decoder_layers=2,
                   encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                   activation_function="swish", scale_embedding=True, max_position_embeddings=128,
                   pad_token_id=size - 1, eos_token_id=0, forced_eos_token_id=0, decoder_start_token_id=size - 1)
    model = MarianMTModel(MarianConfig(**{**options, **change})).eval()
    with torch.no_grad():
        for parameter_name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in parameter_name:
                parameter.copy_(torch.randn_like(parameter) * 0.25 + (1 if "layer_norm.weight" in parameter_name else 0))
        for embedding in (model.model.shared, model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
            embedding.weight[size - 1] = 0  # decoding starts from zeros
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
        model.final_logits_bias[0, 0] += 2  # ends
        model.final_logits_bias[0, -1] = -1e4
    model.generation_config.update(num_beams=4, bad_words_ids=[[size - 1]], decoder_start_token_id=size - 1,
                                   pad_token_id=size - 1, eos_token_id=0)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    converted = FOLDER / name
    TransformersConverter(str(folder), copy_files=["source.spm", "target.spm"]).convert(str(converted), quantization=quantization)
    translator = ctranslate2.Translator(str(converted), compute_type="float32", intra_threads=1)
    chosen = random.Random(len(name))

    def draw(length):
        return [chosen.choice(pieces[2:-1]) for _ in range(length)]
    sources = [draw(1 + 5 * i % 12) for i in range(SENTENCES)]
    targets = [draw(2 + 7 * i % 12) for i in range(SENTENCES)]
    ended = [source + ["</s>"] for source in sources]
    scores = translator.score_batch(ended, targets)
    found = translator.translate_batch(ended, beam_size=1, max_decoding_length=30, min_decoding_length=0, disable_unk=True)
    (FOLDER / f"{name}.json").write_text(json.dumps({
        "sources": sources, "targets": targets, "log_probabilities": [score.log_probs for score in scores],
        "greedy": [result.hypotheses[0] for result in found], "lines": [], "pieces": []}))


torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
made = make_tokens(FOLDER / "tokens")
for shape, (quantized, changed) in SHAPES.items():
    make_model(shape, quantized, changed, *made)
