"""The attention weights of a model directory's Transformer: attention_maps.py MODEL SOURCE TARGET OUT, the sentences as
ids with commas between. OUT gets the tensors `encoder`, `decoder` and `cross`, [layers, heads, queries, keys]."""

import sys

from model_directory import ReferenceModel
from safetensors.torch import save_file


def main(directory, source, target, out):
    source, target = ([int(number) for number in ids.split(",")] for ids in (source, target))
    save_file(ReferenceModel(directory)(source, target)[1], out)


main(*sys.argv[1:])
