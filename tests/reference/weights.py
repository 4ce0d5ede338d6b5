"""Reads weights files with the safetensors package, and writes their tensors back in double precision, all negated.

Arguments: for each file its path, the path to write, and the element type expected.
"""

import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

arguments = iter(sys.argv[1:])
for path, result, dtype in zip(arguments, arguments, arguments):
    with safe_open(path, "pt") as file:
        assert file.metadata()["format"] == "transformer-model-1", file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    assert {tensor.dtype for tensor in tensors.values()} == {getattr(torch, dtype)}
    save_file({name: -tensor.double() for name, tensor in tensors.items()}, result)
