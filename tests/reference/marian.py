"""MarianMT models of several shapes, with random weights, and what `transformers` makes of them:
marian.py CORPUS FOLDER. Each FOLDER/NAME holds the model; FOLDER/NAME.safetensors logits, a loss and what greedy search
finds; FOLDER/text-NAME lines and their ids."""

import gzip
import json
import pathlib
import random
import sys

import sentencepiece
import torch
import transformers
from safetensors.torch import save_file
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

CORPUS, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SENTENCES, LENGTH = 8, 12

ODD = ["", " ", "  two  spaces ", "\t tab", "ＡＢＣ ① ﬁ …", "“Quoted”—dashes–and ‘more’ « là »", "a</s>b", "<pad> <unk> </s>",
       "<s> x", ">>deu<<", ">>deu<< Hello", ">>deu<<Hello", " >>deu<< Hello", ">>xyz<< Hello", ">>de <<x", ">>deu Hello",
       "Hello >>deu<< there", ">> << x", "▁ under ▁▁ line", "日本語 のテキスト", "مرحبا بالعالم", "नमस्ते", "😀👩‍👩‍👧 ok", "e\u0301 é",
       "x" * 600, "\u200bzero\u200bwidth\u00a0nbsp\u3000wide", "soft\u00adhyphen", "1,000.50 % & <b>bold</b>", "<0x41>",
       "&amp; &quot;", "\u0001control", "ß ẞ ſ İ ı", "¿Qué? ¡Sí!", ">>deu<<>>deu<< twice", ">>deu<<\u3000x"]


def corpus_lines(language, count):
    lines = []
    for part in ("valid", "train"):
        for file in sorted(CORPUS.glob(f"{part}*.{language}.gz")):
            with gzip.open(file, "rt", encoding="utf-8") as text:
                lines += [line.rstrip("\n") for _, line in zip(range(count - len(lines)), text)]
    return lines


def make_text(folder, *, separate, kind, seed):
    """SentencePiece models and vocabularies, in which some pieces are missing and others stand for nothing."""
    chosen = random.Random(seed)
    pieces = {}
    for language, name, size in (("en", "source", 400), ("de", "target", 420)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus_lines(language, 1500)), model_prefix=str(folder / name), vocab_size=size,
            model_type=kind, character_coverage=0.999, minloglevel=2, num_threads=1)
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        (folder / f"{name}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces[name] = [model.id_to_piece(i) for i in range(model.get_piece_size())]

    def vocabulary(texts):
        texts = sorted(set(texts) - {"<s>", "</s>", "<unk>"})
        chosen.shuffle(texts)
        texts = ["</s>", "<unk>"] + texts[20:] + [">>deu<<", ">>fra<<", "日本語", "<pad>"]
        return {text: i for i, text in enumerate(texts)}

    def write(name, texts):
        (folder / name).write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
        return texts

    if separate:
        source, target = (write(name, vocabulary(texts)) for name, texts in
                          (("vocab.json", pieces["source"]), ("target_vocab.json", pieces["target"])))
        # One id of padding for both.
        size = max(len(source), len(target))
        for name, texts in (("vocab.json", source), ("target_vocab.json", target)):
            del texts["<pad>"]
            while len(texts) < size - 1:
                texts[f"filler {len(texts)}"] = len(texts)
            texts["<pad>"] = size - 1
            write(name, texts)
        return size, size
    both = write("vocab.json", vocabulary(pieces["source"] + pieces["target"]))
    return len(both), len(both)


def tokenizer_of(folder, separate):
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    return MarianTokenizer(*files, target_vocab_file=str(folder / "target_vocab.json") if separate else None,
                           separate_vocabs=separate, source_lang="en", target_lang="de")


def text_expectations(name, tokenizer, count):
    folder = FOLDER / f"text-{name}"
    folder.mkdir()
    chosen = random.Random(3)
    for side, language in (("source", "en"), ("target", "de")):
        lines = corpus_lines(language, count) + [line for line in ODD]
        if side == "source":
            ids = tokenizer(lines, split_special_tokens=True)["input_ids"]
        else:
            ids = tokenizer(text_target=lines, split_special_tokens=True)["input_ids"]
        assert all(line[-1] == tokenizer.eos_token_id for line in ids)
        (folder / f"{side}.json").write_text(json.dumps([lines, [line[:-1] for line in ids]]), encoding="utf-8")
    size = len(tokenizer.target_encoder if tokenizer.separate_vocabs else tokenizer.encoder)
    drawn = [[chosen.randrange(size) for _ in range(chosen.randrange(12))] for _ in range(300)]
    texts = tokenizer.batch_decode(drawn, skip_special_tokens=True)
    (folder / "decoded.json").write_text(json.dumps([texts, drawn]), encoding="utf-8")


SHAPES = {
    "plain": dict(),
    "embeddings as they are": dict(scale_embedding=False, activation_function="gelu"),
    "relu, more of everything": dict(activation_function="relu", d_model=48, encoder_ffn_dim=80, decoder_ffn_dim=80,
                                     encoder_attention_heads=6, decoder_attention_heads=6, encoder_layers=1,
                                     decoder_layers=3),
    "odd width": dict(d_model=35, encoder_attention_heads=5, decoder_attention_heads=5, activation_function="silu"),
    "projection of its own": dict(tie_word_embeddings=False),
    "two vocabularies": dict(share_encoder_decoder_embeddings=False),
    "three matrices, another start": dict(share_encoder_decoder_embeddings=False, tie_word_embeddings=False,
                                          decoder_start_token_id=7),
    "learned positions": dict(),
    "half precision": dict(),
    "shards": dict(),
    "pickle": dict(),
    "older pickle": dict(),
    "bfloat16 pickle in shards": dict(),
}


def make_model(name, change, text):
    folder = FOLDER / name
    folder.mkdir()
    separate = not change.get("share_encoder_decoder_embeddings", True)
    tokenizer, source_size, target_size = text[separate]
    options = dict(vocab_size=source_size, decoder_vocab_size=target_size, d_model=32, encoder_layers=2,
                   decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                   decoder_ffn_dim=64, activation_function="swish", scale_embedding=True, max_position_embeddings=128,
                   pad_token_id=target_size - 1, eos_token_id=0, forced_eos_token_id=0,
                   decoder_start_token_id=target_size - 1)
    torch.manual_seed(len(name))
    model = MarianMTModel(MarianConfig(**{**options, **change})).eval()
    with torch.no_grad():
        for parameter_name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in parameter_name:
                parameter.copy_(torch.randn_like(parameter) * (0.25 if parameter.dim() > 1 else 0.3) +
                                (1 if "layer_norm.weight" in parameter_name else 0))
            elif name == "learned positions":
                parameter.copy_(torch.randn_like(parameter))
        model.final_logits_bias[0, 0] += 4  # ends, so that outputs differ in length
        if name == "half precision":
            model = model.half().float()
        if "bfloat16" in name:
            model = model.bfloat16().float()
        if name != "learned positions":  # which are computed, not kept
            for stack in (model.model.encoder, model.model.decoder):
                stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())

    # What differs in a saved one is what people have: older files, other types, shards.
    model.generation_config.update(num_beams=4, max_length=60, bad_words_ids=[[target_size - 1]],
                                   decoder_start_token_id=model.config.decoder_start_token_id,
                                   pad_token_id=target_size - 1, eos_token_id=0)
    tokenizer.save_pretrained(folder)
    saved = model
    if name == "half precision":
        saved = MarianMTModel(model.config)
        saved.load_state_dict(model.state_dict())
        saved.generation_config = model.generation_config
        saved = saved.half()
    saved.save_pretrained(folder, max_shard_size="40KB" if name == "shards" else "5GB")
    state = dict(model.state_dict())
    if "pickle" in name:
        (folder / "model.safetensors").unlink()
        if "shards" in name:
            names = sorted(state)
            parts = [names[::2], names[1::2]]
            files = {}
            for i, part in enumerate(parts):
                file = f"pytorch_model-{i + 1:05}-of-00002.bin"
                torch.save({key: state[key].bfloat16() for key in part}, folder / file)
                files.update(dict.fromkeys(part, file))
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
        else:
            torch.save(model.state_dict(), folder / "pytorch_model.bin",
                       _use_new_zipfile_serialization=name == "pickle")
    if name == "learned positions":
        save_file({key: value.clone() for key, value in state.items()}, folder / "model.safetensors")

    expected = {}
    sources, targets = ([], [])
    with torch.no_grad():
        for i in range(SENTENCES):
            source = torch.randint(1, source_size - 1, (1, 1 + (5 * i) % LENGTH))
            source = torch.cat([source, torch.zeros(1, 1, dtype=torch.long)], 1)
            target = torch.randint(1, target_size - 1, (1, 2 + (7 * i) % LENGTH))
            start = torch.full((1, 1), model.config.decoder_start_token_id)
            logits = model(input_ids=source, decoder_input_ids=torch.cat([start, target], 1)).logits
            expected[f"source.{i}"], expected[f"target.{i}"] = source[0].contiguous(), target[0].contiguous()
            expected[f"logits.{i}"] = logits[0].contiguous()
            if i == 0:
                labels = torch.cat([target, torch.zeros(1, 1, dtype=torch.long)], 1)
                expected["loss"] = model(input_ids=source, labels=labels).loss.reshape(1)
            found = model.generate(source, num_beams=1, max_new_tokens=source.shape[1] + 10, max_length=None,
                                   do_sample=False)
            expected[f"greedy.{i}"] = found[0, 1:].contiguous()
    save_file(expected, FOLDER / f"{name}.safetensors")


def main():
    text = {}
    for separate, name, kind in ((False, "one", "unigram"), (True, "two", "bpe")):
        folder = FOLDER / f"tokens-{name}"
        folder.mkdir()
        sizes = make_text(folder, separate=separate, kind=kind, seed=5)
        tokenizer = tokenizer_of(folder, separate)
        text[separate] = (tokenizer, *sizes)
        text_expectations(name, tokenizer, 5000 if name == "one" else 1000)
    for name, change in SHAPES.items():
        make_model(name, change, text)


torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
main()
