"""Makes the files that fuzzing starts from, valid ones and ones with a mistake each, into tests/fuzz/corpus/NAME. Inputs that
fuzzing found lie beside them under other names and are left alone.

usage: make_corpus.py       with .venv's Python: it writes vocabularies and weights by SentencePiece, safetensors and torch
"""

import gzip
import io
import json
import struct
import sys
from pathlib import Path

import numpy
import safetensors.numpy
import sentencepiece
import torch

ROOT = Path(__file__).resolve().parent
FP32 = numpy.float32


def put(target, name, data):
    folder = ROOT / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def files(**parts):
    """What fuzz.h's files_of takes apart; two underscores in a name stand for a point."""
    texts = {name.replace("__", "."): part for name, part in parts.items()}
    return b"\n".join(
        b"=== " + name.encode() + b"\n" + (part if isinstance(part, bytes) else part.encode())
        for name, part in texts.items()
    )


def vocabulary(size, model="bpe", bytes_=False, text="ba do ki lu mé no ra si tu vo x ba do ba do ki lu", own_ids=True):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text, "do ba", "lu ki ra", "tu vo si no"]), model_writer=out, vocab_size=size,
        model_type=model, byte_fallback=bytes_, hard_vocab_limit=False,
        **(dict(pad_id=0, bos_id=1, eos_id=2, unk_id=3) if own_ids else {}),
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=1,
        character_coverage=1.0,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    return out.getvalue(), processor.get_piece_size()


def shapes_of_model(pieces):
    """A model of d_model 4, d_ff 4, 2 heads and a layer on each side, by the names in data/model-en-de."""
    sizes = {192: 4, 384: 8, 576: 12, 768: 4, 4000: pieces}
    with open(ROOT.parents[1] / "data" / "model-en-de" / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {
        name: [sizes[size] for size in entry["shape"]]
        for name, entry in header.items()
        if name != "__metadata__" and not any(f".{layer}." in name for layer in (1, 2))
    }


def tensors(shapes, prefix="", seed=1):
    random = numpy.random.default_rng(seed)
    return {prefix + name: random.normal(0, 0.5, shape).astype(FP32) for name, shape in shapes.items()}


def save(arrays, metadata=None):
    return safetensors.numpy.save(arrays, metadata)


def packed(arrays, precision="int8"):
    """As `export --to packed` writes them: panels of 64 columns, groups of four int8 along the depth."""
    result = {}
    for name, array in arrays.items():
        if array.ndim < 2:
            result[name] = array
            continue
        parts = {name: array}
        if "memory_attention.input_weight" in name:
            third = len(array) // 3
            prefix = name.removesuffix("input_weight")
            parts = {prefix + "query_weight": array[:third], prefix + "key_value_weight": array[third:]}
        for part, rows in parts.items():
            scales = numpy.abs(rows).max(1) / 127
            values = numpy.rint(rows / scales[:, None]).astype(numpy.int8)
            panels, groups = -(-len(rows) // 64), -(-rows.shape[1] // 4)
            padded = numpy.zeros((panels * 64, groups * 4), numpy.int8)
            padded[:len(rows), :rows.shape[1]] = values
            result[part] = padded.reshape(panels, 64, groups, 4).transpose(0, 2, 1, 3).copy()
            result[part + ".scales"] = scales.astype(FP32)
            result[part + ".sums"] = values.astype(numpy.int32).sum(1, dtype=numpy.int32)
    return save(result, {"packed": precision})


def raw_safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def settings():
    put("settings", "plain", "model:\n  width: 64\n  layers: 3\n  dropout: 0.2\n")
    put("settings", "every",
        'format: 1\nmodel:\n  width: 1\n  encoder_layers: 2\n  decoder_layers: 100\n  seed: 18446744073709551615\n'
        '  dropout: 0.0\n  any: -1.0e-300\n  bias: true\n  kind: learned\n  name: "a\\tb\\x07\\u2028é"\n'
        "  files: [a, \"b, c\", '']\n  weights: [1, 0.5]\n")
    put("settings", "extends", files(main="extends: one\nmodel: {width: 3}\n", one="extends: two\nmodel: {bias: yes}\n",
                                     two="model: {any: .inf, name: two}\n", set="model.layers=4"))
    put("settings", "circle", files(main="extends: one\n", one="extends: main\n"))
    put("settings", "set_list", files(main="model: {}\n", set='model.files=[a, "b"]'))
    put("settings", "unknown", "model:\n  widht: 3\nother: {a: [1, {b: c}]}\n")
    put("settings", "anchors", "a: &a [1, 2]\nb: &b [*a, *a]\nmodel: {weights: *a, name: !!str 3}\n")
    put("settings", "blocks", "model:\n  name: |\n    two\n    lines\n  files:\n  - >-\n    folded\n  - plain\n")
    put("settings", "merge", "one: &one {width: 3}\nmodel:\n  <<: *one\n")
    put("settings", "documents", "%YAML 1.2\n---\nmodel: {}\n...\n---\nmodel: {}\n")
    put("settings", "deep", "model: " + "[" * 60 + "]" * 60 + "\n")
    put("settings", "mark", b"\xef\xbb\xbfmodel: {width: 0x10, any: 1_000, name: ~}\n")
    put("settings", "utf16", "model: {width: 3}\n".encode("utf-16"))


def tensors_corpus():
    arrays = {"a": numpy.arange(6, dtype=FP32).reshape(2, 3), "b": numpy.array([True, False]),
              "c": numpy.zeros((0, 4), numpy.int64), "d": numpy.array(3.5, numpy.float64)}
    put("tensors", "several", save(arrays, {"format": "x", "é": "ü"}))
    put("tensors", "empty", save({}))
    put("tensors", "half", save({"h": numpy.ones((3, 2), numpy.float16), "i": numpy.ones(4, numpy.int8)}))
    put("tensors", "bf16", raw_safetensors({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"\0\0\x80?"))
    one = lambda shape, offsets, kind="F32": {"w": {"dtype": kind, "shape": shape, "data_offsets": offsets}}
    put("tensors", "cut", save(arrays)[:-3])
    put("tensors", "overflow", raw_safetensors(one([2**32, 2**32], [0, 0])))
    put("tensors", "negative", raw_safetensors(one([-1], [0, 4]), b"1234"))
    put("tensors", "offsets", raw_safetensors(one([1], [2**63, 2**63 + 4]), b"1234"))
    put("tensors", "no_rows", raw_safetensors(one([0, 2**40], [0, 0])))
    put("tensors", "boolean", raw_safetensors(one([2], [0, 2], "BOOL"), b"\1\2"))
    put("tensors", "repeated", raw_safetensors(
        b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"12"))
    put("tensors", "overlap", raw_safetensors(
        {n: {"dtype": "U8", "shape": [2], "data_offsets": [i, i + 2]} for i, n in enumerate("ab")}, b"123"))
    put("tensors", "huge_header", struct.pack("<Q", 2**62) + b"{}")
    put("tensors", "deep", raw_safetensors(b"[" * 500))


def checksums():
    a, b = "a" * 32, "0123456789abcdef" * 2
    empty = "99aa06d3014798d86001c324468d497f"  # of no bytes
    put("checksums", "empty_files", f"{empty}  a\n{empty}  b\n".encode() + files(a="", b=""))
    put("checksums", "other", f"{a}  a\n{b}  b\n=== a\nhello\n=== b\nworld\n")
    put("checksums", "missing", f"{empty}  a\n")
    put("checksums", "binary_mode", f"{empty} *a\n=== a\n")
    put("checksums", "path", f"{empty}  ../a\n{empty}  /etc/passwd\n{empty}  .\n")
    put("checksums", "short", "abc  a\n\n  \n=== a\n")
    put("checksums", "twice", f"{empty}  a\n{a}  a\r\n=== a\n")
    put("checksums", "nothing", "")


def vocabulary_corpus():
    for name, arguments in {"bpe": (28, "bpe"), "unigram": (30, "unigram"), "char": (30, "char"), "word": (16, "word"),
                            "bytes": (300, "bpe", True)}.items():
        model, _ = vocabulary(*arguments)
        put("vocabulary", name, model)
    model, _ = vocabulary(28)
    put("vocabulary", "cut", model[:-20])
    put("vocabulary", "half", model[: len(model) // 2])
    put("vocabulary", "no_model", "hello\n")
    put("vocabulary", "repeated_piece", model + b"\x0a\x09\x0a\x02ba\x15\0\0\0\0")
    put("vocabulary", "empty_piece", model + b"\x0a\x07\x0a\x00\x15\0\0\0\0")
    table = lambda *texts: b"".join(b"\xca\x0c" + bytes([len(text)]) + text for text in texts)
    tabled = model + b"\xc2\x0c\x18transformer.pieces=table"
    put("vocabulary", "table", tabled + table(b"<pad>", b"<s>", b"</s>", b"<unk>", b"ba", "\u2581do".encode(), b">>de<<"))
    put("vocabulary", "table_repeated", tabled + table(b"<pad>", b"<s>", b"</s>", b"<unk>", b"ba", b"ba"))
    put("vocabulary", "table_short", tabled + table(b"<pad>", b"<s>", b"</s>", b"<unk>"))
    put("vocabulary", "nan_score", model + b"\x0a\x09\x0a\x02qq\x15\0\0\xc0\x7f")


def lines():
    put("lines", "plain", "one\ntwo\nthree\n")
    put("lines", "no_end", "one\r\ntwo\r\nthree")
    put("lines", "mark", b"\xef\xbb\xbfone\n\n\xef\xbb\xbf\n")
    put("lines", "broken", b"one\n\xc0\x80\n")
    put("lines", "surrogate", b"\xed\xa0\x80\n")
    put("lines", "zeros", b"\0\0\n\0")
    put("lines", "empty", "")
    zipped = gzip.compress(b"one\ntwo\nthree\n", mtime=0)
    put("lines", "gzip", zipped)
    put("lines", "gzip_twice", zipped + zipped)
    put("lines", "gzip_cut", zipped[:-5])
    put("lines", "gzip_tail", zipped + b"tail")
    put("lines", "gzip_padded", zipped + bytes(512))
    put("lines", "gzip_empty", gzip.compress(b"", mtime=0))


TREES = {
    "plain": "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))\n",
    "no_label": "( (S (NP-SBJ-1 (-NONE- *)) (VP (VB go) (PRT (RP on)))) )\n( (S (ADVP|PRT (RB up))))\n",
    "lines": "(S\n  (NP (PRP It))\n\n  (VP (VBZ is) (NP=2 (CD 3))))\n\n()\n(TOP)\n",
    "brackets": "(TOP (PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-)))\n",
    "unary": "(ROOT (S (VP (VP (VB Go)))))\n",
    "words": "(S (XX XX) (NN (S) (NN S))\n",
    "many": "(S (A a)) (S (B b)) (S1 (C c))",
    "deep": "(A " * 1100 + "(B b)" + ")" * 1100,
    "open": "(S (NP (DT The)",
    "closed": "(S (A a))) (S",
    "odd": "(S (: --) (`` ``) ('' '') (, ,) ($ $) (é ß))\n",
    "tags": "(S (TOP a) (NP (TOP (A a))))\n",
}


def trees():
    for name, text in TREES.items():
        put("treebank", name, text)
    plain = TREES["plain"]
    put("brackets", "same", files(gold=plain, parsed=plain))
    put("brackets", "crossing", files(gold=plain, parsed="(S (A (DT The)) (B (C (NN dog) (VP (VBZ barks))) (. .)))\n"))
    put("brackets", "other_words", files(gold=plain, parsed="(S (NN dog))\n"))
    put("brackets", "punctuation", files(gold="(S (. .) (, ,))\n" + plain, parsed="(S (X .) (Y ,))\n()\n"))
    put("brackets", "unary", files(gold=TREES["unary"], parsed="(ROOT (S (S (VP (VB Go)))))\n"))
    put("brackets", "no_label", TREES["no_label"])
    put("brackets", "prt", files(gold="(S (PRT (RP up)) (VB go))", parsed="(S (ADVP (RP up)) (VB go))"))
    for name, text in {"plain": "(S (NP XX XX )NP (VP XX )VP )S\nThe dog barks", "copied": "(S The (NP dgo ))S\nThe dog",
                       "closing": ")S )NP (S\nGo", "labels": "(S-1 (NP|X (TOP ( XX ) )\na b c", "words": "a b c d\nb d",
                       "nothing": "\na b", "nested": "(A " * 1200 + "\na", "brackets": "( ) (( ))\n( )"}.items():
        put("tree_tokens", name, text)


def corpus_cache():
    ids = lambda *numbers: struct.pack(f"<{len(numbers)}i", *numbers)
    offsets = lambda *numbers: struct.pack(f"<{len(numbers)}q", *numbers)
    entry = lambda pairs, a, b, c, d: files(pairs=pairs, source__ids=a, source__offsets=b, target__ids=c, target__offsets=d)
    put("corpus_cache", "whole", entry("2", ids(4, 5, 6, 7), offsets(0, 3, 4), ids(8, 99), offsets(0, 0, 2)))
    put("corpus_cache", "no_pairs", entry("0", b"", offsets(0), b"", offsets(0)))
    put("corpus_cache", "empty", entry("0", b"", b"", b"", b""))
    put("corpus_cache", "high_id", entry("1", ids(100), offsets(0, 1), ids(4), offsets(0, 1)))
    put("corpus_cache", "low_id", entry("1", ids(2), offsets(0, 1), ids(-4), offsets(0, 1)))
    put("corpus_cache", "disorder", entry("2", ids(4, 5), offsets(0, 5, 2), ids(4), offsets(0, -1, 1)))
    put("corpus_cache", "far", entry("2", ids(4, 5), offsets(0, 2**62, 2), ids(4), offsets(0, -(2**62), 1)))
    put("corpus_cache", "wrap", entry("2", ids(4), offsets(0, 2**63 - 1, 1), ids(4), offsets(0, -(2**63), 1)))
    put("corpus_cache", "pairs", entry("9223372036854775807", ids(4), offsets(0, 1), ids(4), offsets(0, 1)))
    put("corpus_cache", "odd", entry("1", ids(4) + b"x", offsets(0, 1) + b"x", ids(4), offsets(0, 1)))
    put("corpus_cache", "manifest", files(corpus__json='{"format": 1, "pairs": [], "files": 3}'))
    put("corpus_cache", "manifest_deep", files(corpus__json="[" * 1000))


def hypotheses():
    put("hypotheses", "plain", files(hypotheses="The dog barks.\nIt rains, 3.5 %!\n", reference="A dog barks.\nIt rained.\n"))
    put("hypotheses", "same", "ein gut-er Hund &quot;bellt&quot; <skipped> 1,000\n")
    put("hypotheses", "blank", files(hypotheses="\n\n\n", reference="a\n\n \n"))
    put("hypotheses", "scripts", files(hypotheses="Привет ΑΣ İıſß 日本 語\n", reference="привет ας i̇ 日本語\n"))
    put("hypotheses", "long", "a b " * 200 + "\n")
    put("hypotheses", "hyphens", "a-b-c--d - -e f-\n")
    put("hypotheses", "nothing", "")


GRID = """title: Grid
base: base.yaml
output: runs/x
seeds: [1, 2]
base_row: base
set: {training: {steps: 10}}
rows:
  - name: base
  - {name: A, group: A, model: {heads: 1}, seeds: [3], paper: {perplexity: 5.29, bleu: 24.9, parameters: 65}}
"""


def sweep():
    put("grid", "rows", GRID)
    put("grid", "products", "base: b\nproducts:\n  - name: h{model.heads}-{model.width}\n    model: {heads: [1, 2], width: [3, 4]}\n")
    put("grid", "many", "base: b\nproducts:\n  - name: '{model.a}{model.b}{model.c}'\n    model: {a: &l [1, 2, 3, 4, 5, 6, 7, 8], b: *l, c: *l}\n")
    put("grid", "names", "base: b\nrows: [{name: ..}, {name: a/b}, {name: ''}]\n")
    put("grid", "same", "base: b\nrows: [{name: a}, {name: a}]\n")
    put("grid", "seeds", "base: b\nseeds: [-1, 1.5, x, 99999999999999999999]\nrows: [{name: a}]\n")
    put("grid", "reserved", "base: b\nrows: [{name: a, training: {seed: 3, output: x}}]\n")
    put("grid", "paper", "base: b\nrows: [{name: a, paper: {perplexity: .nan, bleu: 1e999, parameters: -1}}]\n")
    put("grid", "lists", "base: []\nrows: {}\nproducts: 3\nset: [1]\n")
    metrics = '{"kind":"header","format":1}\n{"kind":"train","step":5,"target_tokens":100,"tokens_per_second":2.5}\n' \
              '{"kind":"validation","step":5,"perplexity":3.5,"bleu":20}\n{"kind":"final","step":5,"perplexity":3.4}\n'
    summary = '{"perplexity":3.4,"bleu":20.5,"bleu_signature":"x","parameters":1000,"seconds":2.5,"flops":1e12}'
    put("results", "finished", files(metrics__jsonl=metrics, summary__json=summary, log="done\n"))
    put("results", "failed", files(metrics__jsonl=metrics, log="x: error: y\nsweep: 2017-06-12 17:57:34: failed: y\n"))
    put("results", "half", files(metrics__jsonl=metrics[:-20], summary__json=summary[:20]))
    put("results", "numbers", files(metrics__jsonl='{"kind":"train","step":1e300,"target_tokens":-1e300}\n{"kind":"validation",'
                                    '"step":18446744073709551615,"perplexity":1e400}\n{"kind":"final","step":-5,"perplexity":-1}\n',
                                    summary__json='{"parameters":1e300,"seconds":-1,"perplexity":0,"flops":1e308}'))
    put("results", "types", files(metrics__jsonl='[]\n3\n{"kind":3,"step":"x"}\n{"kind":"validation","perplexity":[]}\n',
                                  summary__json='{"parameters":"x","bleu_signature":3}'))
    put("results", "many", files(metrics__jsonl="".join(
        '{"kind":"validation","step":%d,"perplexity":%d}\n' % (i, 10**i) for i in range(12)), summary__json=summary))
    put("results", "deep", files(summary__json="[" * 2000, metrics__jsonl='{"a":' * 500))
    put("results", "bytes", files(log=b"\xff\xfe: error: \xff\nsweep: failed: \xff\0"))
    put("run_log", "finished", files(metrics__jsonl=metrics, summary__json=summary, output="a x c",
                                     config__yaml="training: {steps: 9}\ndata: {validation_source: [a, b]}\n"))
    put("run_log", "half", files(metrics__jsonl=metrics[:-20], summary__json=summary[:20], config__yaml="training: [\n"))
    put("run_log", "numbers", files(metrics__jsonl='{"kind":"train","step":1e300,"loss":-1e300,"rate":1e308,"seconds":-1}\n'
                                    '{"kind":"train","step":1,"loss":1e308,"perplexity":1e-308,"memory":-5}\n'
                                    '{"kind":"train","step":2,"loss":NaN}\n{"kind":"final","step":-5,"bleu":1e308}\n',
                                    config__yaml="training: {steps: 99999999999999999999}\n"))
    put("run_log", "types", files(metrics__jsonl='[]\n3\n{"kind":3}\n{"kind":"train","step":[],"loss":{}}\n', output=b"\xff\0"))
    put("run_log", "deep", files(metrics__jsonl="[" * 2000 + "\n", summary__json="[" * 2000))


CONFIG = """model:
  d_model: 4
  d_ff: 4
  heads: 2
  layers: 1
  vocabulary_size: {pieces}
{more}decoding:
  beam: 2
  max_extra_length: 2
"""


def models():
    for name, model in {"bpe": "bpe", "unigram": "unigram"}.items():
        vocabulary_, pieces = vocabulary(28 if model == "bpe" else 30, model)
        arrays = tensors(shapes_of_model(pieces))
        put("model_directory", name, files(config__yaml=CONFIG.format(pieces=pieces, more=""),
                                           vocabulary__model=vocabulary_, model__safetensors=save(arrays)))
    vocabulary_, pieces = vocabulary(28)
    arrays = tensors(shapes_of_model(pieces))
    half = {name: array.astype(numpy.float16) for name, array in arrays.items()}
    directory = lambda more="", arrays=arrays, **others: files(
        **({"config__yaml": CONFIG.format(pieces=pieces, more=more), "vocabulary__model": vocabulary_,
            "model__safetensors": save(arrays)} | others))
    put("model_directory", "half", directory(arrays=half))
    put("model_directory", "packed", directory(model__safetensors=packed(arrays)))
    put("model_directory", "packed_otherwise",
        directory("  d_ff: 5\n", model__safetensors=packed(arrays, "bf16")))
    put("model_directory", "variations", directory("  attention_window: 2\n  compatibility: dot_product\n"))
    put("model_directory", "no_number", directory(arrays=arrays | {"embedding.weight": arrays["embedding.weight"] * numpy.nan}))
    put("model_directory", "missing", directory(arrays=dict(list(arrays.items())[1:])))
    put("model_directory", "huge", directory("  d_k: 4611686018427387904\n"))
    put("model_directory", "layers", directory("  encoder_layers: 1000000000\n"))
    put("model_directory", "other_size", directory("  source_vocabulary_size: 4000000000\n"))
    put("model_directory", "two", files(config__yaml=CONFIG.format(pieces=pieces, more="  shared_embeddings: none\n"),
                                        source__model=vocabulary_, target__model=vocabulary_,
                                        model__safetensors=save(arrays)))
    put("model_directory", "checksums", directory(checksums__xxh128="a" * 32 + "  model.safetensors\n"))
    put("model_directory", "window", directory("  attention_window: 9223372036854775807\n"))

    small = shapes_of_model(8)
    put("weights", "whole", save(tensors(small)))
    put("weights", "double", save({name: array.astype(numpy.float64) for name, array in tensors(small).items()}))
    put("weights", "other", save(tensors(shapes_of_model(9))))
    put("weights", "more", save(tensors(small) | {"x": numpy.ones(1, FP32)}))
    put("weights", "integers", save({name: array.astype(numpy.int32) for name, array in tensors(small).items()}))
    put("weights", "none", save({}))

    progress = {"format": 1, "step": 7, "epoch": 0, "batch": 3, "micro_batch_tokens": 0, "source_tokens": 5, "target_tokens": 5,
                "flops": 1.5, "seconds": 2.5, "metrics_bytes": 20, "best": [{"step": 5, "value": 3.5}],
                "validations_since_best": 0, "window_loss": 0.5, "window_nll": 0.5, "window_tokens": 3}
    optimizer = tensors(small, "first_moment.") | tensors(small, "second_moment.", 2)
    optimizer |= {"step." + name: numpy.array(7, FP32) for name in small}
    vocabulary_, _ = vocabulary(28)
    checkpoint = lambda progress: files(config__yaml="model: {}\n", vocabulary__model="x",
                                        model__safetensors=save(tensors(small)),
                                        optimizer__safetensors=save(optimizer),
                                        progress__json=progress if isinstance(progress, str) else json.dumps(progress))
    put("checkpoint", "whole", checkpoint(progress))
    put("checkpoint", "types", checkpoint(progress | {"step": "x"}))
    put("checkpoint", "numbers", checkpoint(progress | {"step": 1e300, "epoch": -1, "metrics_bytes": -(2**63)}))
    put("checkpoint", "format", checkpoint(progress | {"format": 2}))
    put("checkpoint", "best", checkpoint(progress | {"best": {"step": 1}}))
    put("checkpoint", "missing", checkpoint({"format": 1}))
    put("checkpoint", "cut", checkpoint(json.dumps(progress)[:-9]))
    put("checkpoint", "no_files", files(progress__json="{}"))

    lines_ = '{"kind":"header","format":1}\n{"kind":"train","step":1}\n'
    put("metrics", "whole", str(len(lines_)) + "\n" + files(metrics__jsonl=lines_).decode())
    put("metrics", "cut", "29\n" + files(metrics__jsonl=lines_).decode())
    put("metrics", "negative", "-9\n" + files(metrics__jsonl=lines_).decode())
    put("metrics", "long", "9223372036854775807\n" + files(metrics__jsonl=lines_).decode())
    put("metrics", "none", "5\n")


def torch_files():
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.half), "c": torch.zeros(0, 4),
             "d": torch.ones(3, dtype=torch.int64), "e": torch.ones(2, 2, dtype=torch.bfloat16)}
    state["f"] = state["a"][1:]

    def saved(value, **options):
        out = io.BytesIO()
        torch.save(value, out, **options)
        return out.getvalue()

    whole, older = saved(state), saved(state, _use_new_zipfile_serialization=False)
    put("torch_file", "whole", whole)
    put("torch_file", "older", older)
    put("torch_file", "protocol_4", saved(state, pickle_protocol=4))
    put("torch_file", "module", saved(torch.nn.Linear(2, 3).state_dict()))
    put("torch_file", "parameter", saved({"w": torch.nn.Parameter(torch.ones(2))}))
    put("torch_file", "transposed", saved({"w": torch.ones(2, 3).t()}))
    put("torch_file", "nested", saved({"model": state}))
    put("torch_file", "tensor", saved(state["a"]))
    put("torch_file", "cut", whole[:-30])
    put("torch_file", "older_cut", older[:-3])
    put("torch_file", "system", older[:15] + b"\x80\x02M\xe9\x03.\x80\x02}.\x80\x02cposix\nsystem\nX\x02\0\0\0id\x85R.")
    put("torch_file", "circle", older[:15] + b"\x80\x02K\1.\x80\x02}.\x80\x02}q\0X\1\0\0\0ah\0s.\x80\x02].")


def marian_files():
    model, _ = vocabulary(28, "unigram")
    pieces = ["</s>", "<unk>", "ba", "\u2581do", ">>de<<"]
    yml = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for i, piece in enumerate(pieces))
    options = {"type": "transformer", "dim-emb": 4, "dim-vocabs": "[5, 5]", "enc-depth": 1, "dec-depth": 1,
               "transformer-heads": 2, "transformer-dim-ffn": 4, "transformer-ffn-activation": "swish",
               "transformer-preprocess": '""', "transformer-postprocess": "dan", "transformer-dropout": 0.1}
    shapes = {"Wemb": [5, 4], "decoder_ff_logit_out_b": [1, 5]}
    for stack in ("encoder", "decoder"):
        for kind in ("self", "context")[:1 if stack == "encoder" else 2]:
            name = f"{stack}_l1_{kind}"
            for part in "qkvo":
                shapes |= {f"{name}_W{part}": [4, 4], f"{name}_b{part}": [1, 4]}
            shapes |= {f"{name}_Wo_ln_scale": [1, 4], f"{name}_Wo_ln_bias": [1, 4]}
        name = f"{stack}_l1_ffn"
        shapes |= {f"{name}_W1": [4, 4], f"{name}_b1": [1, 4], f"{name}_W2": [4, 4], f"{name}_b2": [1, 4],
                   f"{name}_ffn_ln_scale": [1, 4], f"{name}_ffn_ln_bias": [1, 4]}
    weights = tensors(shapes)

    def archive(more={}, write=numpy.savez_compressed, **changed):
        text = "".join(f"{key}: {value}\n" for key, value in (options | more).items()).encode() + b"\0"
        out = io.BytesIO()
        write(out, **(weights | {"special:model.yml": numpy.frombuffer(text, numpy.int8)} | changed))
        return out.getvalue()

    def folder(name, npz=None, **others):
        parts = {"decoder__yml": "models: [model.npz]\nvocabs: [vocab.yml, vocab.yml]\nbeam-size: 6\nnormalize: 1\n",
                 "vocab__yml": yml, "source__spm": model, "target__spm": model, "model__npz": npz or archive()} | others
        put("marian_file", name, files(**{name: part for name, part in parts.items() if part is not None}))

    folder("whole")
    folder("stored", archive(write=numpy.savez))
    few = lambda **arrays: (lambda out: (numpy.savez(out, **arrays), out.getvalue())[1])(io.BytesIO())
    folder("no_options", few(a=numpy.ones(2, FP32)))
    folder("sizes", archive({"dim-emb": 2**62, "dim-vocabs": "[4000000, 4000000]"}))
    folder("another_kind", few(**{"special:model.yml": numpy.frombuffer(b"type: s2s\n\0", numpy.int8)}))
    folder("broken_options", few(**{"special:model.yml": numpy.frombuffer(b"type: [\xff", numpy.uint8)}))
    folder("columns", few(a=numpy.ones((2, 3), FP32, order="F")))
    folder("types", few(a=numpy.ones(2, ">f4"), b=numpy.array(["x"])))
    folder("numbers", few(a=numpy.float32(1), b=numpy.zeros((0, 3), FP32)))
    whole = archive()
    folder("cut", whole[:-30])
    folder("damaged", whole[:60] + b"\xff" * 8 + whole[68:])
    folder("spm", archive({"dim-vocabs": "[25, 25]"}), vocab__yml=None, decoder__yml="models: [model.npz]\nvocabs: [v.spm, v.spm]\n", v__spm=model)
    for name, text in {"whole": yml, "twice": yml + "x: 2\n", "quotes": '"\\x41\\u0042": 0\n\'\'\'\': 1\n? long\n: 2\n',
                       "escape": '"\\q": 0\n', "hole": "a: 0\nb: 7\n", "no_ids": "a\n? b\nc: 1\n"}.items():
        put("marian_file", "vocabulary_" + name, files(vocab__yml=text))


def ctranslate2_models():
    model, _ = vocabulary(28, "unigram")
    pieces = ["</s>", "<unk>", "ba", "\u2581do"]
    types = [numpy.dtype(name) for name in ("float32", "int8", "int16", "int32", "float16")]
    positions = numpy.zeros((3, 4), FP32)
    for row in range(3):
        positions[row] = [numpy.sin(row), numpy.sin(row / 100), numpy.cos(row), numpy.cos(row / 100)]
    values = {}
    for stack in ("encoder", "decoder"):
        values |= {f"{stack}/num_heads": numpy.int16(2), f"{stack}/pre_norm": numpy.int8(0),
                   f"{stack}/activation": numpy.int8(2), f"{stack}/scale_embeddings": FP32(2)}
        layer = f"{stack}/layer_0/"
        linear = {layer + "self_attention/linear_0": 12, layer + "self_attention/linear_1": 4,
                  layer + "ffn/linear_0": 4, layer + "ffn/linear_1": 4}
        norms = [layer + "self_attention", layer + "ffn"]
        if stack == "decoder":
            linear |= {layer + f"attention/linear_{i}": rows for i, rows in enumerate((4, 8, 4))}
            norms.append(layer + "attention")
        for name, rows in linear.items():
            values |= tensors({name + "/weight": [rows, 4], name + "/bias": [rows]})
        for name in norms:
            values |= tensors({name + "/layer_norm/gamma": [4], name + "/layer_norm/beta": [4]})
    values |= tensors({"decoder/embeddings/weight": [4, 4], "decoder/projection/bias": [4]})
    values |= {"decoder/position_encodings/encodings": positions, "decoder/start_from_zero_embedding": numpy.int8(1),
               "decoder/alignment_layer": numpy.int16(-1)}
    aliases = {"encoder/embeddings_0/weight": "decoder/embeddings/weight",
               "decoder/projection/weight": "decoder/embeddings/weight",
               "encoder/position_encodings/encodings": "decoder/position_encodings/encodings"}

    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    def binary(values=values, aliases=aliases, version=6, kind="TransformerSpec"):
        result = struct.pack("<I", version) + text(kind) + struct.pack("<II", 7, len(values))
        for name, value in sorted(values.items()):
            result += text(name) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
            result += struct.pack("<BI", types.index(value.dtype), value.nbytes) + value.tobytes()
        return result + struct.pack("<I", len(aliases)) + b"".join(text(a) + text(b) for a, b in aliases.items())

    def folder(name, bin_=None, config={}, **others):
        parts = {"config__json": json.dumps({"add_source_eos": True, "layer_norm_epsilon": None} | config),
                 "shared_vocabulary__json": json.dumps(pieces), "source__spm": model, "target__spm": model,
                 "model__bin": bin_ or binary()} | others
        put("ctranslate2_import", name, files(**{name: part for name, part in parts.items() if part is not None}))

    folder("whole")
    folder("text", shared_vocabulary__json=None, shared_vocabulary__txt="\n".join(pieces) + "\n")
    folder("learned", binary(values | {"decoder/position_encodings/encodings": positions * 2}))
    integers = {}
    for name, value in values.items():
        if name.endswith("/weight"):
            scale = 127 / numpy.abs(value).max(1)
            integers |= {name: numpy.rint(value * scale[:, None]).astype(numpy.int8), name + "_scale": scale.astype(FP32)}
        else:
            integers[name] = value.astype(numpy.float16) if value.ndim else value
    folder("int8", binary(integers))
    name = "decoder/embeddings/weight"
    small = lambda **more: binary({name: values[name]} | {key.replace("__", "/"): value for key, value in more.items()}, {})
    folder("scales", binary(values | {name: numpy.ones((4, 4), numpy.int8), name + "_scale": numpy.ones(3, FP32)}))
    folder("no_scales", binary(values | {name: numpy.ones((4, 4), numpy.int16)}))
    folder("few", small())
    folder("integers", small(decoder__num_heads=numpy.ones(1, numpy.int16)))
    folder("nowhere", binary({}, {"a": "b"}))
    folder("circle", binary({}, {"a": "a"}))
    folder("another", binary({}, {}, kind="WhisperSpec"))
    folder("version", binary({}, {}, version=5))
    folder("cut", binary()[:-9])
    folder("huge", binary({}, {})[:-8] + struct.pack("<I", 2**32 - 1) + text("a") + b"\2" + b"\xff" * 8)
    folder("heads", binary(values | {"encoder/num_heads": numpy.int16(-3), "decoder/num_heads": numpy.int16(-3)}))
    folder("tokens", binary(values | {"decoder/start_from_zero_embedding": numpy.int8(0)}),
           {"decoder_start_token": "</s>", "bos_token": 3})
    folder("pieces", shared_vocabulary__json='["</s>", "<unk>", "<unk>", ["a"]]')


def hugging_face():
    model, _ = vocabulary(28, "unigram")
    words = ["</s>", "<unk>", "ba", "\u2581do", ">>de<<", "<pad>"]
    vocab = {word: i for i, word in enumerate(words)}
    config = {"model_type": "marian", "d_model": 4, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
              "decoder_attention_heads": 2, "encoder_ffn_dim": 4, "decoder_ffn_dim": 4, "activation_function": "swish",
              "scale_embedding": True, "vocab_size": len(words), "decoder_vocab_size": len(words), "pad_token_id": 5,
              "eos_token_id": 0, "decoder_start_token_id": 5}
    shapes = {"model.shared.weight": [len(words), 4], "final_logits_bias": [1, len(words)]}
    for stack in ("encoder", "decoder"):
        layer = f"model.{stack}.layers.0."
        for attention in ("self_attn", "encoder_attn")[:1 if stack == "encoder" else 2]:
            for part in "qkv":
                shapes[f"{layer}{attention}.{part}_proj.weight"] = [4, 4]
                shapes[f"{layer}{attention}.{part}_proj.bias"] = [4]
            shapes |= {f"{layer}{attention}.out_proj.weight": [4, 4], f"{layer}{attention}.out_proj.bias": [4],
                       f"{layer}{attention}_layer_norm.weight": [4], f"{layer}{attention}_layer_norm.bias": [4]}
        shapes |= {f"{layer}fc1.weight": [4, 4], f"{layer}fc1.bias": [4], f"{layer}fc2.weight": [4, 4],
                   f"{layer}fc2.bias": [4], f"{layer}final_layer_norm.weight": [4], f"{layer}final_layer_norm.bias": [4]}
    weights = tensors(shapes)

    def folder(name, more={}, **others):
        parts = {"config__json": json.dumps(config | more), "vocab__json": json.dumps(vocab), "source__spm": model,
                 "target__spm": model, "model__safetensors": save(weights)} | others
        put("hugging_face", name, files(**{name: part for name, part in parts.items() if part is not None}))

    folder("whole")
    folder("two", {"share_encoder_decoder_embeddings": False}, tokenizer_config__json='{"separate_vocabs": true}',
           target_vocab__json=json.dumps(vocab), model__safetensors=save(
               {name: array for name, array in weights.items() if "shared" not in name} |
               {f"model.{stack}.embed_tokens.weight": weights["model.shared.weight"] for stack in ("encoder", "decoder")}))
    folder("shards", model__safetensors=None, model__safetensors__index__json=json.dumps(
        {"weight_map": dict.fromkeys(weights, "part.safetensors")}), part__safetensors=save(weights))
    folder("shard_elsewhere", model__safetensors=None,
           model__safetensors__index__json='{"weight_map": {"a": "../a"}}')
    out = io.BytesIO()
    torch.save({name: torch.from_numpy(array) for name, array in weights.items()}, out)
    folder("pickle", model__safetensors=None, pytorch_model__bin=out.getvalue())
    folder("kept", tokenizer_config__json='{"source_lang": "ba", "target_lang": "do", "eos_token": {"content": "</s>"}}',
           generation_config__json='{"num_beams": 6, "bad_words_ids": [[5]], "length_penalty": 0.5}',
           README__md="---\nlanguage: ba\nlicense: cc-by-4.0\n---\n# x\n")
    folder("sizes", {"d_model": 2**62, "encoder_layers": 1000, "vocab_size": 10**18})
    folder("types", {"d_model": "4", "dropout": [], "vocab_size": 4.5})
    folder("deep", config__json="[" * 4000)
    folder("repeated", vocab__json='{"a": 0, "a": 1}')
    folder("ids", vocab__json=json.dumps(vocab | {"ba": 3}))
    folder("tanh", {"activation_function": "tanh"})
    folder("missing", model__safetensors=save({}))
    folder("not_finite", model__safetensors=save(
        weights | {"model.shared.weight": weights["model.shared.weight"] * numpy.nan}))


def wishes():
    for name, text in {"plain": "hard drive\tFestplatte\n\nbay \t Schacht\n", "capitals": "\ufeffIT\tEDV\r\nit\tes\r\n\u0130\ti\n",
                       "within": "a b\tx\na b c\ty\nb c\tz\n", "marks": "C++\tC plus plus\n\u0301\te\n(\t)\n",
                       "decomposed": "e\u0301a\tx\n", "twice": "a\tb\nA\tc\na  \td\n", "no_tab": "a b\n",
                       "blank": " \tb\n", "three": "a\tb\tc\n", "unspaced": "\u4f60\t\u4f60\u597d\n\u4f60\u597d\tx\n",
                       "controls": "a\x01b\tc\x7f\n\u200b\td\n", "long": "a" * 1001 + "\tb\n", "nothing": ""}.items():
        put("glossary", name, text)
    put("glossary", "broken", b"a\xff\tb\n")

    model, pieces = vocabulary(28)
    biases = lambda text: files(vocabulary__model=model, biases=text)
    for name, text in {"plain": "</s>\t-1\n\u2581do\t 2.5 \n", "bounds": "ba\t100\n</s>\t-100\n", "far": "ba\t101\n",
                       "nan": "ba\tnan\n", "infinite": "ba\t-inf\n", "overflow": "ba\t1e999\n", "tiny": "ba\t1e-999\n",
                       "twice": "ba\t1\nba\t1\n", "no_piece": "qqq\t1\n", "reserved": "<pad>\t1\n", "no_tab": "ba\n",
                       "two_tabs": "ba\t1\t\n", "no_number": "ba\t\n", "hexadecimal": "ba\t0x1p3\n", "plus": "ba\t+1\n",
                       "blank": "\n", "nothing": ""}.items():
        put("biases", name, biases(text))

    checksum = "v" * 32  # the target puts the vocabulary's there
    metadata = {"format": "transformer-shortlist-1", "source_vocabulary": checksum, "target_vocabulary": checksum}
    ids = lambda *numbers: numpy.array(numbers, numpy.int32)

    def shortlist(name, always=ids(2, 3, 5), starts=None, translations=ids(4, 6, 2, 7), **others):
        if starts is None:
            starts = numpy.array([0] * 5 + [2] + [len(translations)] * (pieces - 5), numpy.int64)
        said = metadata | others
        put("shortlist", name, files(vocabulary__model=model, shortlist=save(
            {"always": always, "starts": starts, "translations": translations}, said)))

    shortlist("whole")
    shortlist("none", starts=numpy.zeros(pieces + 1, numpy.int64), translations=ids())
    shortlist("no_end", always=ids(3, 5))
    shortlist("empty", always=ids())
    shortlist("begin", always=ids(1, 2))
    shortlist("beyond", always=ids(2, pieces))
    shortlist("disorder", translations=ids(6, 4, 2, 7))
    shortlist("twice", translations=ids(4, 4, 2, 7))
    shortlist("negative", translations=ids(-4, 6, 2, 7))
    shortlist("short", starts=numpy.array([0, 4], numpy.int64))
    shortlist("no_starts", starts=numpy.array([], numpy.int64))
    shortlist("backwards", starts=numpy.array([0] * 5 + [9, -3] + [4] * (pieces - 6), numpy.int64))
    shortlist("far", starts=numpy.array([0] * 5 + [2**62] + [4] * (pieces - 5), numpy.int64))
    shortlist("types", translations=numpy.array([4.0, 6.0], FP32))
    shortlist("shape", always=ids(2, 3).reshape(1, 2))
    shortlist("version", format="transformer-shortlist-2")
    shortlist("other_vocabulary", target_vocabulary="0" * 32)
    put("shortlist", "cut", files(vocabulary__model=model, shortlist=save({"always": ids(2)}, metadata)[:-2]))
    put("shortlist", "no_tensors", files(vocabulary__model=model, shortlist=save({}, metadata)))


def many_languages():
    model, count = vocabulary(28, "unigram", own_ids=False)
    size = count + 1 + 2 + 2
    config = {"d_model": 4, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
              "decoder_attention_heads": 2, "encoder_ffn_dim": 4, "decoder_ffn_dim": 4, "vocab_size": size,
              "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_position_embeddings": 9}
    shapes = {"model.shared.weight": [size, 4]}
    for stack in ("encoder", "decoder"):
        layer = f"model.{stack}.layers.0."
        for attention in ("self_attn", "encoder_attn")[:1 if stack == "encoder" else 2]:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                shapes |= {f"{layer}{attention}.{part}.weight": [4, 4], f"{layer}{attention}.{part}.bias": [4]}
        norms = [f"{layer}self_attn_layer_norm", f"{layer}final_layer_norm", f"model.{stack}.layer_norm"]
        if stack == "decoder":
            norms.append(f"{layer}encoder_attn_layer_norm")
        for name in norms:
            shapes |= {f"{name}.weight": [4], f"{name}.bias": [4]}
        for name in ("fc1", "fc2"):
            shapes |= {f"{layer}{name}.weight": [4, 4], f"{layer}{name}.bias": [4]}
    more = {f"model.{stack}.{name}": [11, 4] if "positions" in name else [4] for stack in ("encoder", "decoder")
            for name in ("embed_positions.weight", "layernorm_embedding.weight", "layernorm_embedding.bias")}

    def folder(name, kind, others={}, weights=shapes, **parts):
        given = {"config__json": json.dumps(config | {"model_type": kind} | others), "sentencepiece__bpe__model": model,
                 "special_tokens_map__json": '{"additional_special_tokens": ["eng_Latn", {"content": "fra_Latn"}]}',
                 "model__safetensors": save(tensors(weights))} | parts
        put("hugging_face", name, files(**{name: part for name, part in given.items() if part is not None}))

    folder("nllb", "m2m_100", tokenizer_config__json='{"src_lang": "eng_Latn", "legacy_behaviour": true}',
           generation_config__json=json.dumps({"forced_bos_token_id": count + 1}))
    folder("nllb_by_ids", "m2m_100", special_tokens_map__json=None, tokenizer__json=json.dumps(
        {"added_tokens": [{"id": count + 1, "content": "eng_Latn"}, {"id": count + 2, "content": "<mask>"}]}))
    folder("nllb_ids", "m2m_100", tokenizer_config__json=json.dumps(
        {"added_tokens_decoder": {"4": {"content": "eng_Latn"}, "-1": {"content": "fra_Latn"}, "x": {"content": "ba"}}}))
    words = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", "ba", "\u2581do"])}
    wide = len(words) + 8 + 8
    folder("m2m_100", "m2m_100", {"vocab_size": wide}, shapes | {"model.shared.weight": [wide, 4]},
           vocab__json=json.dumps(words), tokenizer_config__json='{"language_codes": "wmt21"}')
    wide = count + 1 + 53
    folder("mbart", "mbart", {"vocab_size": wide}, shapes | more | {
        "model.shared.weight": [wide, 4], "final_logits_bias": [1, wide]}, special_tokens_map__json=None)
    folder("mbart_positions", "mbart", {"max_position_embeddings": 2**40, "d_model": 3})


def long_text():
    put("split_text", "german", "Am 3. Mai kam Dr. Müller, z. B. mit dem Zug. „Gut!“ sagte er; dann ging er.\r\n\n  1. Eins.\n***\n")
    put("split_text", "unspaced", "你好。“好！”然后，他说 a.b. C. ")
    put("split_text", "broken", b"a.\xff B.\x00 C\xe2\x80 . \xcc\x81 D\xe2\x80\xa8E? (f) \"G")
    put("split_text", "list", "- One. Two\n * Three\n1. Four\n\t\u2022\tFive\na) - - - - - Six\n3. Mai\n- ***\n-")
    put("split_text", "empty", b"")
    put("markup", "nested", "<p>The <b>red <i>car</i></b>, &amp; so<br/> on &eacute;&#8212;</p>\nvoiture (rouge), la <x> &")
    put("markup", "crossed", "<b>a<i>b</b>c</i><li>d<li>e</ul><!-- <b> -->\nu v w x")
    put("markup", "unended", "<b x=\"a <i x='>c</i> <!-- d <script> e <![CDATA[ f &#x110000; &#; &\nx")
    put("markup", "broken", b"<b>\xff</b\xe2> a\x00\xcc\x81<i>\xe2\x80\x8f</i>\n\xff b \xe2")
    put("markup", "placeholders", "Hello <b>{name}</b>, \"%1$s\" (%d/%d) 100 %ige {{x}} ${y}: {n, number}!\nHallo, ige x")
    put("markup", "addresses", "see (https://a.b/c_(d)?e=f&amp;g&gt;) www.x.y, or me@x.org. {a}{b}MB\nsiehe MB, oder & so")
    put("markup", "names", "<p>About &brandShortName;, (&copyCmd.label;) &amp; &a-b:c_d;s &x y&z;<!a <!b [\nÜber, & s x")
    put("markup", "nothing", "")
    put("normalization", "blanks", " a\tb\u00a0\u3000c\u2028d\r\n")
    put("normalization", "marks", "e\u0301 a\u0323\u0308\u0301 \u0308x \u1ebf \u212b \u0344 \u1fee \u0958")
    put("normalization", "hangul", "\u1112\u1161\u11ab \ud55c\u11a8 \uac00\u11a8")
    put("normalization", "controls", b"\x01 a\x7fb\xc2\x85 \x1b[0m \xe2\x80\x8b")
    put("normalization", "broken", b"a\xff\xed\xa0\x80 \xf4\x90\x80\x80 \xc3")
    put("normalization", "plain", "\u00c4rger im Stra\u00dfenverkehr, \u0250\u02af")


def translation_calls():
    put("translation_calls", "one", '{"q": "Guten Tag", "source": "en", "target": "de", "format": "text", '
                                    '"alternatives": 2, "api_key": "k"}')
    put("translation_calls", "list", r'{"q": ["a", "\u00e9\ud83d\ude00", ""], "target": "de", "alternatives": "3"}')
    put("translation_calls", "own", '{"text": ["a"], "model": "m", "alignments": true, "stream": false, '
                                    '"decoding": {"beam": 3, "alpha": 0.5, "list": ["x", 2, true]}}')
    put("translation_calls", "html", '{"text": "<b>a</b>", "target": "de", "format": "html"}')
    put("translation_calls", "score", '{"text": ["a", "b"], "translation": ["c", ""], "target": "de", "source": null}')
    put("translation_calls", "broken-score", '{"text": ["a"], "translation": "c", "target": "de"}')
    put("translation_calls", "form", "q=Good+day%0A%C3%A9&q=b&source=en&target=de&alternatives=1&api_key=k")
    put("translation_calls", "broken-form", "q=%4&target=%ff")
    put("translation_calls", "broken-json", r'{"q": "\ud800", "target": 1e999}')
    put("translation_calls", "broken-utf8", b'{"q": "\xc3\x28", "target": "de"}')
    put("translation_calls", "deep", "[" * 12)


def http_requests():
    post = "POST /a?b=c HTTP/1.1\r\nHost: a\r\n"
    for name, text in {
            "get": "GET /a HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-1\r\nConnection: close\r\n\r\n",
            "head": "HEAD /a HTTP/1.0\r\n\r\n",
            "whole-address": "GET http://a:1/b?c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "no-path": "GET https://a?b HTTP/1.1\r\nHost: a\r\n\r\n",
            "post": post + "Content-Length: 2\r\nAuthorization: Bearer k\r\n\r\n{}",
            "parts": "POST /parts HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
            "parts-of-old": "GET /parts HTTP/1.0\r\n\r\n",
            "chunks": post + "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n",
            "broken-chunks": post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            "two-lengths": post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
            "length-and-chunks": post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "long-body": post + "Content-Length: 2000\r\n\r\n" + "x" * 2000,
            "long-header": post + "X: " + "y" * 2000 + "\r\n\r\n",
            "expect": post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
            "several": "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\n" + post +
                       "Content-Length: 1\r\n\r\nx",
            "no-host": "GET /a HTTP/1.1\r\n\r\n",
            "packed": post + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
            "half": post + "Content-Length: 5\r\n\r\n{}",
            "folded": "GET /a HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
            "other-method": "BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n",
            "version": "GET / HTTP/9.9\r\n\r\n",
            "nothing": ""}.items():
        put("http_requests", name, text)
    put("http_requests", "tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60))
    put("http_requests", "control", b"GET /\x00\xff HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    for make in (settings, tensors_corpus, checksums, vocabulary_corpus, lines, trees, corpus_cache, hypotheses, sweep, models,
                 torch_files, hugging_face, many_languages, wishes, marian_files, ctranslate2_models, long_text, translation_calls,
                 http_requests):
        make()
