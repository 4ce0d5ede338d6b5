"""Makes a small MarianMT model that means something: marian_model.py FOLDER [--minutes M] [--threads N]. It is trained with
`transformers` on the corpus in data/, English to German, for some minutes, and saved as Helsinki-NLP's models are: two
SentencePiece models, one vocabulary, a padding piece that decoding starts from and whose embedding is zero."""

import json
import pathlib
import random
import shutil
import time

import sentencepiece
import torch
import transformers

from common import Parser, above, lines_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIECES = 2000  # of each language
WARM_UP = 400
BATCH_TOKENS = 2000


def corpus(part, language):
    return lines_of(ROOT / "data" / "tatoeba-en-de" / f"{part}.{language}.gz")


def make_tokenizer(folder):
    texts = set()
    for language, name in (("en", "source"), ("de", "target")):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus("train", language)), model_prefix=str(folder / name), vocab_size=PIECES,
            model_type="unigram", character_coverage=1.0, minloglevel=2, num_threads=1)
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        (folder / f"{name}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        texts |= {model.id_to_piece(i) for i in range(model.get_piece_size())}
    pieces = ["</s>", "<unk>"] + sorted(texts - {"<s>", "</s>", "<unk>"}) + ["<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    tokenizer = transformers.MarianTokenizer(
        *(str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")), source_lang="en", target_lang="de")
    tokenizer.save_pretrained(folder)
    return tokenizer, len(pieces)


def batches(pairs, chosen):
    """Pairs of like length, as many as have BATCH_TOKENS, in any order, for ever."""
    order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i][1]), len(pairs[i][0])))
    groups, group, longest = [], [], 0
    for i in order:
        longest = max(longest, *map(len, pairs[i]))
        if group and (len(group) + 1) * longest > BATCH_TOKENS:
            groups.append(group)
            group, longest = [], max(map(len, pairs[i]))
        group.append(i)
    while True:
        for at in chosen.sample(range(len(groups)), len(groups)):
            yield [pairs[i] for i in groups[at]]


def padded(rows, filler):
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])


def train(model, tokenizer, minutes):
    padding = tokenizer.pad_token_id
    sources = tokenizer(corpus("train", "en"))["input_ids"]
    targets = tokenizer(text_target=corpus("train", "de"))["input_ids"]
    pairs = [pair for pair in zip(sources, targets) if max(map(len, pair)) <= 60]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP, (WARM_UP / (step + 1)) ** 0.5))
    end = time.process_time() + 60 * minutes  # of its own, whatever else the machine does
    model.train()
    for step, batch in enumerate(batches(pairs, random.Random(1))):
        if time.process_time() > end:
            break
        source, target = (padded([pair[side] for pair in batch], padding) for side in (0, 1))
        inputs = torch.cat([torch.full((len(batch), 1), padding), target[:, :-1]], 1)
        with torch.autocast("cpu", torch.bfloat16):  # where a processor has products of it, several times as fast
            logits = model(input_ids=source, attention_mask=(source != padding).long(), decoder_input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=padding,
                                                 label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rate.step()
        with torch.no_grad():
            model.model.shared.weight[padding] = 0  # the projection is the same matrix, and would change it
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {(end - time.process_time()) / 60:.1f} minutes left", flush=True)
    return model.eval()


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--minutes", type=above(0, float), default=20)
    parser.add_argument("--threads", type=above(0), default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    unfinished = args.folder.with_name(args.folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    tokenizer, size = make_tokenizer(unfinished)
    config = transformers.MarianConfig(
        vocab_size=size, decoder_vocab_size=size, d_model=128, encoder_layers=3, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, dropout=0.1,
        activation_function="swish", scale_embedding=True, max_position_embeddings=512, pad_token_id=size - 1,
        eos_token_id=0, forced_eos_token_id=0, decoder_start_token_id=size - 1)
    model = train(transformers.MarianMTModel._from_config(config, attn_implementation="eager"), tokenizer, args.minutes)
    model.generation_config.update(num_beams=4, max_length=512, bad_words_ids=[[size - 1]], pad_token_id=size - 1,
                                   eos_token_id=0, decoder_start_token_id=size - 1)
    model.save_pretrained(unfinished)
    unfinished.rename(args.folder)


main()
