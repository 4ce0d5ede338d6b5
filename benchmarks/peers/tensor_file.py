"""Safetensors files by Python's torch alone, for machines that have nothing else."""

import ctypes
import json
import math

import torch

TYPES = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "I64": torch.int64}


def load_file(file):
    with open(file, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data = bytearray(stream.read())
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=TYPES[entry["dtype"]], offset=entry["data_offsets"][0],
                                   count=math.prod(entry["shape"])).view(entry["shape"]).clone()
            for name, entry in header.items()}


def save_file(tensors, file):
    names = {dtype: name for name, dtype in TYPES.items()}
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            tensor = tensor.contiguous()
            stream.write(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
