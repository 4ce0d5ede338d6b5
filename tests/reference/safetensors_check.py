"""Checks a file written by the tests with the safetensors package: safetensors_check.py FILE."""
import sys

import torch
from safetensors import safe_open

expected = {
    "f64": torch.tensor([[0.1, -2.5e300], [3.0, float("inf")]], dtype=torch.float64),
    "f32": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7,
    "f16": torch.tensor([1.5, -0.25, 65504.0], dtype=torch.float16),
    "bf16": torch.tensor([1.5, -0.25, 3e38], dtype=torch.bfloat16),
    "i64": torch.tensor([-(2**63), 2**63 - 1]),
    "i32": torch.tensor([-(2**31), 2**31 - 1], dtype=torch.int32),
    "i16": torch.tensor([-(2**15), 2**15 - 1], dtype=torch.int16),
    "i8": torch.tensor([-128, 127], dtype=torch.int8),
    "u8": torch.tensor([0, 255, 7], dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(3, 0, 2),
    "größe.weight": torch.ones(1, 1),
    "transposed": torch.arange(6, dtype=torch.float32).reshape(2, 3).t(),
}
with safe_open(sys.argv[1], framework="pt") as file:
    assert sorted(file.keys()) == sorted(expected), sorted(file.keys())
    for name, tensor in expected.items():
        found = file.get_tensor(name)
        assert found.dtype == tensor.dtype, (name, found.dtype)
        assert found.shape == tensor.shape, (name, found.shape)
        assert torch.equal(found, tensor), (name, found)
    assert file.metadata() == {"format": "test-1", "note": 'a "quoted"\nnote ü'}, file.metadata()
