"""Multi-head attention with all gradients: torch.nn.MultiheadAttention, and the formula of §3.2 head by head."""

import math
import sys

import torch
from recording import DTYPES, Record, attention_name, padding, randomise

BATCH, TARGET, SOURCE, LENGTHS = 3, 5, 7, [7, 4, 1]


def random_inputs(sharing, dtype, width):
    """query, key, value; the same tensor where the case shares it."""
    query = torch.randn(BATCH, TARGET, width, dtype=dtype, requires_grad=True)
    if sharing == "self":
        return query, query, query
    key = torch.randn(BATCH, SOURCE, width, dtype=dtype, requires_grad=True)
    if sharing == "memory":
        return query, key, key
    return query, key, torch.randn(BATCH, SOURCE, width, dtype=dtype, requires_grad=True)


def finish(record, case, inputs, values, weights, allowed):
    cotangent = torch.randn_like(values)
    (values * cotangent).sum().backward()
    named = dict(zip(("query", "key", "value"), inputs))
    record.add(case, "input", mask=allowed, cotangent=cotangent, **named)
    record.add(case, "output", values=values, weights=weights)
    record.add(case, "gradient", **{name: tensor.grad for name, tensor in named.items()})


def torch_module(record, case, dtype, sharing, causal, bias):
    width, heads = 24, 4
    module = torch.nn.MultiheadAttention(width, heads, batch_first=True, dtype=dtype)
    randomise(module, bias)
    query, key, value = random_inputs(sharing, dtype, width)
    lengths = [min(length, key.shape[1]) for length in LENGTHS]
    padded = padding(lengths, key.shape[1])
    future = torch.ones(TARGET, key.shape[1], dtype=torch.bool).triu(1) if causal else None
    values, weights = module(
        query, key, value, key_padding_mask=padded, attn_mask=future, need_weights=True, average_attn_weights=False
    )
    finish(record, case, (query, key, value), values, weights, ~padded[:, None, None, :])
    record.parameters(case, module, attention_name)


def formula(record, case, dtype, sharing):
    width, heads, d_k, d_v = 10, 3, 5, 7
    sizes = {"query": d_k, "key": d_k, "value": d_v}
    random = lambda *shape: (0.3 * torch.randn(*shape, dtype=dtype)).requires_grad_()
    matrix = {name: [random(width, size) for _ in range(heads)] for name, size in sizes.items()}
    offset = {name: [random(size) for _ in range(heads)] for name, size in sizes.items()}
    output_matrix, output_offset = random(heads * d_v, width), random(width)

    inputs = random_inputs(sharing, dtype, width)
    query, key, value = inputs
    longest = key.shape[1]
    padded = padding([min(length, longest) for length in LENGTHS], longest)
    all_heads, all_weights = [], []
    for head in range(heads):
        q = query @ matrix["query"][head] + offset["query"][head]
        k = key @ matrix["key"][head] + offset["key"][head]
        v = value @ matrix["value"][head] + offset["value"][head]
        scores = torch.einsum("btk,bsk->bts", q, k) / math.sqrt(d_k)
        exponentials = torch.exp(scores) * (~padded[:, None, :]).to(dtype)
        weights = exponentials / exponentials.sum(-1, keepdim=True)
        all_heads.append(torch.einsum("bts,bsv->btv", weights, v))
        all_weights.append(weights)
    values = torch.cat(all_heads, -1) @ output_matrix + output_offset
    finish(record, case, inputs, values, torch.stack(all_weights, 1), ~padded[:, None, None, :])

    # Rows of ours are columns of the paper's, all heads' queries first, then keys, then values.
    for kind, take in (("weight", lambda tensor: tensor), ("gradient", lambda tensor: tensor.grad)):
        record.add(
            case,
            kind,
            input_weight=torch.cat([take(m).T for name in sizes for m in matrix[name]]),
            input_bias=torch.cat([take(b) for name in sizes for b in offset[name]]),
            **{"output.weight": take(output_matrix).T, "output.bias": take(output_offset)},
        )


def main():
    torch.manual_seed(1)
    record = Record()
    for type_name, dtype in DTYPES.items():
        for bias in (False, True):
            for sharing, causal in (("self", False), ("self", True), ("memory", False), ("separate", False)):
                case = f"{type_name}-{sharing}{'-causal' if causal else ''}{'-bias' if bias else ''}"
                torch_module(record, case, dtype, sharing, causal, bias)
        for sharing in ("self", "memory", "separate"):
            formula(record, f"{type_name}-formula-{sharing}", dtype, sharing)
    record.save(sys.argv[1])


main()
