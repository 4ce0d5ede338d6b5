"""torch.nn's encoder and decoder layer, with all gradients."""

import sys

import torch
from recording import DTYPES, Record, layer_name, padding, randomise

BATCH, TARGET, SOURCE, LENGTHS = 3, 5, 7, [7, 4, 1]
SIZES = dict(d_model=24, nhead=4, dim_feedforward=40, dropout=0.0, activation="relu", batch_first=True)


def finish(record, case, kind, layer, inputs, values, padded):
    cotangent = torch.randn_like(values)
    (values * cotangent).sum().backward()
    record.add(case, "input", mask=~padded[:, None, None, :], cotangent=cotangent, **inputs)
    record.add(case, "output", values=values)
    record.add(case, "gradient", **{name: tensor.grad for name, tensor in inputs.items()})
    record.parameters(case, layer, lambda name: layer_name(f"{kind}:{name}"))


def main():
    torch.manual_seed(2)
    record = Record()
    padded = padding(LENGTHS, SOURCE)
    future = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    for type_name, dtype in DTYPES.items():
        for bias in (False, True):
            random = lambda length: torch.randn(BATCH, length, SIZES["d_model"], dtype=dtype, requires_grad=True)
            suffix = "-bias" if bias else ""

            layer = torch.nn.TransformerEncoderLayer(**SIZES, layer_norm_eps=1e-5, dtype=dtype)
            randomise(layer, bias)
            x = random(SOURCE)
            values = layer(x, src_key_padding_mask=padded)
            finish(record, f"{type_name}-encoder{suffix}", "encoder", layer, {"x": x}, values, padded)

            layer = torch.nn.TransformerDecoderLayer(**SIZES, layer_norm_eps=1e-3, dtype=dtype)
            randomise(layer, bias)
            x, memory = random(TARGET), random(SOURCE)
            values = layer(x, memory, tgt_mask=future, memory_key_padding_mask=padded)
            inputs = {"x": x, "memory": memory}
            finish(record, f"{type_name}-decoder{suffix}", "decoder", layer, inputs, values, padded)
    record.save(sys.argv[1])


main()
