"""Models of many languages of several shapes, with random weights, and what `transformers` makes of them:
multilingual.py CORPUS FOLDER [NAME ...]. Each FOLDER/NAME holds the model; FOLDER/NAME.safetensors logits, and what greedy search and
a beam of 4 find; FOLDER/NAME.json lines, their ids and languages."""

import gzip
import json
import pathlib
import random
import sys

import sentencepiece
import torch
import transformers
from safetensors.torch import save_file
from transformers import (M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer, MBart50Tokenizer, MBartConfig,
                          MBartForConditionalGeneration, NllbTokenizer)

CORPUS, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SENTENCES, LENGTH, PIECES, TEXTS, ENDING = 8, 12, 500, 8, 3  # texts of each length, and what ends have in advance
PADDING, END = 1, 2
NLLB_CODES = ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"]

ODD = ["two  spaces   here", "ＡＢＣ ① ﬁ …", "“Quoted”—dashes–and ‘more’ « là »", ">>deu<< Hello", "eng_Latn Hello", "__en__ Hi",
       "en_XX Hi", "日本語 のテキスト", "x日本y語", "مرحبا بالعالم", "नमस्ते", "😀👩‍👩‍👧 ok", "e\u0301 é", "x" * 600,
       "zero\u200bwidth\u00a0nbsp\u3000wide", "soft\u00adhyphen", "1,000.50 % & <b>bold</b>", "<0x41>", "&amp; &quot;",
       "ß ẞ ſ İ ı", "¿Qué? ¡Sí!", "a</s>b", "<pad> <unk> </s> <mask>", "<s> x"]


def corpus_lines(language, count):
    lines = []
    for part in ("valid", "train"):
        for file in sorted(CORPUS.glob(f"{part}*.{language}.gz")):
            with gzip.open(file, "rt", encoding="utf-8") as text:
                lines += [line.rstrip("\n") for _, line in zip(range(count - len(lines)), text)]
    return lines


def train_sentencepiece(folder, kind):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus_lines("en", 1000) + corpus_lines("de", 1000)), model_prefix=str(folder / "m"),
        vocab_size=PIECES, model_type=kind, character_coverage=0.999, minloglevel=2, num_threads=1)
    (folder / "m.model").rename(folder / "sentencepiece.bpe.model")
    (folder / "m.vocab").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))


def nllb_text(folder, change):
    """As the folders of NLLB are: languages have the ids behind the pieces, <mask> the one behind these."""
    train_sentencepiece(folder, "bpe")
    NllbTokenizer.from_pretrained(folder).save_pretrained(folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    core = [token for token in tokenizer["added_tokens"] if token["content"] in ("<s>", "<pad>", "</s>", "<unk>")]
    first = PIECES + 1
    tokenizer["added_tokens"] = core + [
        {"id": first + i, "content": code, "single_word": False, "lstrip": code == "<mask>", "rstrip": False,
         "normalized": False, "special": True} for i, code in enumerate([*NLLB_CODES, "<mask>"])]
    tokenizer["post_processor"] = None
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.update(src_lang="eng_Latn", tgt_lang=None)
    if "legacy" in change:
        config["legacy_behaviour"] = True
    config["extra_special_tokens"] = NLLB_CODES
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    made = NllbTokenizer.from_pretrained(folder)
    # One file or the other says which languages there are; where it is a list, ids follow from its order.
    if "listed" in change:
        file.unlink()
    else:
        del config["extra_special_tokens"]
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert made.convert_tokens_to_ids(NLLB_CODES) == list(range(first, first + len(NLLB_CODES)))
    return made, first + len(NLLB_CODES) + 1 + 2, ("eng_Latn", "fra_Latn")


def m2m_100_text(folder, change):
    """Ids come from vocab.json; of SentencePiece's pieces some are missing, and others stand for nothing."""
    model = train_sentencepiece(folder, "bpe")
    pieces = [model.id_to_piece(i) for i in range(3, PIECES)]
    random.Random(2).shuffle(pieces)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces[15:], "日本語"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    codes = dict(language_codes="wmt21") if "wmt21" in change else {}
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), **codes)
    tokenizer.save_pretrained(folder)
    return tokenizer, len(vocabulary) + (8 if codes else 100) + 8, ("en", "ha" if codes else "fr")


def mbart_text(folder, _):
    train_sentencepiece(folder, "unigram")
    tokenizer = MBart50Tokenizer.from_pretrained(folder, src_lang="en_XX")
    assert tokenizer.convert_tokens_to_ids(["ar_AR", "sl_SI", "<mask>"]) == [PIECES + 1, PIECES + 52, PIECES + 53]
    tokenizer.save_pretrained(folder)
    return tokenizer, PIECES + 54, ("en_XX", "fr_XX")


SHAPES = {
    "nllb": (nllb_text, dict()),
    "nllb, legacy": (nllb_text, dict(legacy=True, d_model=48, encoder_attention_heads=6, decoder_attention_heads=6,
                                     encoder_layers=1, decoder_layers=3)),
    "nllb, listed": (nllb_text, dict(listed=True, scale_embedding=False, activation_function="gelu")),
    "nllb, odd width": (nllb_text, dict(d_model=35, encoder_attention_heads=5, decoder_attention_heads=5,
                                        max_position_embeddings=40)),
    "m2m100": (m2m_100_text, dict(encoder_ffn_dim=40, decoder_ffn_dim=40)),
    "m2m100, wmt21, projection of its own": (m2m_100_text, dict(wmt21=True, tie_word_embeddings=False,
                                                               activation_function="swish")),
    "mbart": (mbart_text, dict()),
    "mbart, scaled, odd width": (mbart_text, dict(scale_embedding=True, d_model=35, encoder_attention_heads=5,
                                                  decoder_attention_heads=5, activation_function="relu",
                                                  max_position_embeddings=50, encoder_layers=1)),
}


def make_model(name, make_text, change):
    folder = FOLDER / name
    folder.mkdir()
    mbart = make_text is mbart_text
    tokenizer, size, (source_language, target_language) = make_text(folder, change)
    of_text = ("legacy", "listed", "wmt21")
    options = dict(vocab_size=size, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                   decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
                   pad_token_id=PADDING, bos_token_id=0, eos_token_id=END, decoder_start_token_id=END)
    options.update({key: value for key, value in change.items() if key not in of_text})
    torch.manual_seed(len(name))
    model = (MBartForConditionalGeneration(MBartConfig(**options)) if mbart else
             M2M100ForConditionalGeneration(M2M100Config(**options))).eval()
    with torch.no_grad():
        for parameter_name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions.weights" not in parameter_name:
                # Layers that say more than the residual connection does, which would repeat the token read.
                scale = 0.3 if parameter.dim() < 2 else 0.2 if "layers" not in parameter_name else 0.6
                parameter.copy_(torch.randn_like(parameter) * scale +
                                (1 if "norm" in parameter_name and parameter_name.endswith("weight") else 0))
        # Ends come, and what no text has does not.
        head = model.lm_head.weight
        head[PADDING] *= 0.01
        model.model.decoder.layer_norm.bias += ENDING * head[END] / (head[END] @ head[END])
    source_id, target_id = tokenizer.convert_tokens_to_ids(
        [f"__{code}__" if "m2m100" in name else code for code in (source_language, target_language)])
    model.generation_config.update(num_beams=4, max_length=60, early_stopping="listed" in change,
                                   forced_eos_token_id=None, decoder_start_token_id=END, pad_token_id=PADDING, eos_token_id=END)
    if mbart:
        model.generation_config.update(forced_bos_token_id=target_id)
    model.save_pretrained(folder)

    def with_language(ids):
        if "legacy" in change:
            return torch.cat([ids, torch.tensor([[END, source_id]])], 1)
        return torch.cat([torch.tensor([[source_id]]), ids, torch.tensor([[END]])], 1)

    expected = {}
    with torch.no_grad():
        for i in range(SENTENCES):
            source = torch.randint(4, 480, (1, 1 + (5 * i) % LENGTH))
            target = torch.cat([torch.tensor([[target_id]]), torch.randint(3, size, (1, 1 + (7 * i) % LENGTH))], 1)
            inputs = with_language(source)
            logits = model(input_ids=inputs, decoder_input_ids=torch.cat([torch.tensor([[END]]), target], 1)).logits
            expected[f"source.{i}"], expected[f"target.{i}"] = source[0].contiguous(), target[0].contiguous()
            expected[f"input.{i}"], expected[f"logits.{i}"] = inputs[0].contiguous(), logits[0].contiguous()
        for length in range(1, LENGTH + 1):
            sources = torch.randint(4, 480, (TEXTS, length))
            inputs = torch.cat([with_language(row[None]) for row in sources])
            for beam in (1, 4):
                found = model.generate(inputs, num_beams=beam, max_new_tokens=length + 12, max_length=None,
                                       do_sample=False, forced_bos_token_id=target_id,
                                       **(dict(length_penalty=0.6, early_stopping="never") if beam > 1 else {}))
                for i, tokens in enumerate(found):
                    expected[f"text.{(length - 1) * TEXTS + i}"] = sources[i].clone()
                    expected[f"beam {beam}.{(length - 1) * TEXTS + i}"] = tokens[1:].clone()
    save_file(expected, FOLDER / f"{name}.safetensors")
    # What no text names for us: the library's unigram models take their own special tokens for words.
    odd = [line for line in ODD if not (mbart and any(token in line for token in ("<", "en_XX")))]
    lines = corpus_lines("en", 1500) + corpus_lines("de", 1500) + odd
    tokenizer.src_lang = source_language
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.encode_special_tokens = True
    ids = tokenizer(lines, split_special_tokens=True)["input_ids"]
    chosen = random.Random(3)
    drawn = [[chosen.randrange(480) for _ in range(i % 12)] for i in range(200)]
    texts = [text.strip() for text in tokenizer.batch_decode(drawn, skip_special_tokens=True)]
    tokens = [token_of(tokenizer, i) for i in range(size)]
    (FOLDER / f"{name}.json").write_text(json.dumps(
        {"lines": lines, "ids": ids, "source": source_language, "target": target_language, "drawn": drawn,
         "texts": texts, "tokens": tokens}), encoding="utf-8")


def token_of(tokenizer, i):
    """Empty for ids that stand for nothing."""
    if i >= len(tokenizer) and not isinstance(tokenizer, M2M100Tokenizer):
        return ""
    token = tokenizer.convert_ids_to_tokens(i)
    return "" if token is None or (token == "<unk>" and i != tokenizer.unk_token_id) else token


torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
for shape, (text, changed) in SHAPES.items():
    if shape in (sys.argv[3:] or SHAPES):
        make_model(shape, text, changed)
