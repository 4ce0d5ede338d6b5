"""Exported models as CTranslate2 sees them: ctranslate2_check.py DIR... Each DIR holds a model directory `ours`, its
export `theirs`, and `expected.safetensors`: ids of sentences, and log p of every token of the targets and of their ends.

The file's variables are compared with those of CTranslate2's own specification, and its scores with ours."""

import json
import pathlib
import struct
import sys

import ctranslate2
import numpy as np
import safetensors.numpy
import yaml
from ctranslate2.specs import common_spec, model_spec, transformer_spec

TYPES = ["float32", "int8", "int16", "int32", "float16", "bfloat16"]


def read_variables(file):
    """(header, {name: array}, {alias: name}) of a model.bin."""
    data = memoryview(file.read_bytes())
    at = 0

    def number(kind):
        nonlocal at
        (value,) = struct.unpack_from(kind, data, at)
        at += struct.calcsize(kind)
        return value

    def text():
        nonlocal at
        size = number("H")
        value = bytes(data[at:at + size])
        at += size
        assert value.endswith(b"\0")
        return value[:-1].decode()

    header = number("I"), text(), number("I")
    values, aliases = {}, {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind, size = np.dtype(TYPES[number("B")]), number("I")
        values[name] = np.frombuffer(data[at:at + size], kind).reshape(shape)
        at += size
    for _ in range(number("I")):
        alias = text()
        aliases[alias] = text()
    assert at == len(data), f"{len(data) - at} bytes more than the file says"
    return header, values, aliases


def specification(settings):
    activation = {"relu": common_spec.Activation.RELU, "gelu": common_spec.Activation.GELU,
                  "swiglu": common_spec.Activation.SWISH, "swish": common_spec.Activation.SWISH}[settings["activation"]]
    options = dict(pre_norm=settings["normalization"] == "pre", activation=activation,
                   ffn_glu=settings["activation"] == "swiglu", layernorm_embedding=settings["embedding_normalization"],
                   head_dim=None if settings["d_k"] in (0, settings["d_model"] // settings["heads"])
                   else settings["d_k"])
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(settings["encoder_layers"], settings["heads"], **options),
        transformer_spec.TransformerDecoderSpec(settings["decoder_layers"], settings["heads"], **options))
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = settings["scaled_embeddings"]
    return spec


def check_names(settings, header, values, aliases):
    spec = specification(settings)
    assert header == (model_spec.CURRENT_BINARY_VERSION, spec.name, spec.revision), header
    needed, possible = {}, set()

    def visit(_, name, value):
        possible.add(name)
        if not (isinstance(value, str) and value == model_spec.OPTIONAL):
            needed[name] = value

    model_spec.visit_spec(spec, visit)
    names = set(values) | set(aliases)
    assert set(needed) <= names, f"missing: {set(needed) - names}"
    assert names <= possible, f"unknown: {names - possible}"
    assert all(original in values for original in aliases.values())
    for name, value in needed.items():
        if value is None:  # a weight
            continue
        found = values[name]
        assert found.shape == () and found == value, f"{name}: {found}, expected {value}"
        kind = np.int8 if isinstance(value, bool) else value.dtype
        assert found.dtype == kind, f"{name}: {found.dtype}, expected {kind}"


def check_scores(directory, expected):
    vocabularies = {}
    for side in ("source", "target"):
        file = directory / f"{side}_vocabulary.json"
        if not file.exists():
            file = directory / "shared_vocabulary.json"
        vocabularies[side] = json.loads(file.read_text())

    def pieces(side, i):
        return [vocabularies[side][token] for token in expected[f"{side}.{i}"]]

    count = sum(name.startswith("source.") for name in expected)
    translator = ctranslate2.Translator(str(directory), compute_type="float32", intra_threads=1)
    results = translator.score_batch([pieces("source", i) for i in range(count)],
                                     [pieces("target", i) for i in range(count)])
    worst = 0
    for i, result in enumerate(results):
        ours = expected[f"log_probabilities.{i}"].flatten()
        assert len(result.log_probs) == len(ours), (len(result.log_probs), len(ours))
        worst = max(worst, np.abs(np.array(result.log_probs) - ours).max())
    return worst


for folder in map(pathlib.Path, sys.argv[1:]):
    with safetensors.safe_open(folder / "expected.safetensors", "numpy") as opened:
        variation = opened.metadata()["variation"]
    settings = yaml.safe_load((folder / "ours" / "config.yaml").read_text())["model"]
    check_names(settings, *read_variables(folder / "theirs" / "model.bin"))
    worst = check_scores(folder / "theirs", safetensors.numpy.load_file(folder / "expected.safetensors"))
    print(f"{variation}: log-probabilities differ by at most {worst:.1e}")
    assert worst < 1e-3, variation  # rounding; what is computed otherwise differs by 0.1 and more
