"""The paper's variations with all gradients: torch.nn's layers where it has them, formulas head by head where not."""

import math
import sys

import torch
from recording import DTYPES, Record, layer_name, padding, randomise

BATCH, TARGET, SOURCE, LENGTHS = 3, 5, 7, [7, 4, 1]
SIZES = dict(d_model=24, nhead=4, dim_feedforward=40, dropout=0.0, batch_first=True)


def random(dtype, *shape, scale=0.3):
    return (scale * torch.randn(*shape, dtype=dtype)).requires_grad_()


def record_case(record, case, inputs, values, parameters, **others):
    """`parameters`: our name -> how to put the tensor together from the reference's own, or from their gradients."""
    cotangent = torch.randn_like(values)
    (values * cotangent).sum().backward()
    record.add(case, "input", cotangent=cotangent, **inputs, **others)
    record.add(case, "output", values=values)
    record.add(case, "gradient", **{name: tensor.grad for name, tensor in inputs.items()})
    for kind, take in (("weight", lambda tensor: tensor), ("gradient", lambda tensor: tensor.grad)):
        record.add(case, kind, **{name: put_together(take) for name, put_together in parameters.items()})


def stacks(record, case, dtype, norm_first, activation):
    """Encoder and decoder of two layers, with the last normalisation that pre-norm stacks end in."""
    padded = padding(LENGTHS, SOURCE)
    future = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    sizes = dict(**SIZES, norm_first=norm_first, activation=activation, dtype=dtype)
    norm = lambda: torch.nn.LayerNorm(SIZES["d_model"], dtype=dtype) if norm_first else None
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**sizes), 2, norm(), False)
    decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**sizes), 2, norm())
    for kind, stack in (("encoder", encoder), ("decoder", decoder)):
        randomise(stack, False)
        x = random(dtype, BATCH, SOURCE if kind == "encoder" else TARGET, SIZES["d_model"], scale=1)
        inputs = {"x": x}
        if kind == "encoder":
            values = stack(x, src_key_padding_mask=padded)
        else:
            inputs["memory"] = random(dtype, BATCH, SOURCE, SIZES["d_model"], scale=1)
            values = stack(x, inputs["memory"], tgt_mask=future, memory_key_padding_mask=padded)
        record_case(record, f"{case}-{kind}", inputs, values, {}, mask=~padded[:, None, None, :])
        record.parameters(f"{case}-{kind}", stack, lambda name: layer_name(f"{kind}:{name}"))


def swiglu(record, case, dtype):
    width, inner = 6, 9
    w1, w2, w3 = random(dtype, width, inner), random(dtype, inner, width), random(dtype, width, inner)
    b1, b2, b3 = random(dtype, inner), random(dtype, width), random(dtype, inner)
    x = random(dtype, 2, 5, width, scale=1)
    gate = x @ w3 + b3
    values = (gate / (1 + torch.exp(-gate)) * (x @ w1 + b1)) @ w2 + b2
    parameters = {
        "inner.weight": lambda take: take(w1).T,
        "outer.weight": lambda take: take(w2).T,
        "gate.weight": lambda take: take(w3).T,
        "inner.bias": lambda take: take(b1),
        "outer.bias": lambda take: take(b2),
        "gate.bias": lambda take: take(b3),
    }
    record_case(record, case, {"x": x}, values, parameters)


def attention_over_parameters(record, case, dtype):
    """Two Feed-Forward Layers = Attention over Parameters, a head and a position at a time."""
    width, heads, d_pk, d_pv, pairs = 10, 3, 4, 6, 11
    w_query = [random(dtype, width, d_pk) for _ in range(heads)]
    keys = [random(dtype, pairs, d_pk) for _ in range(heads)]
    values = [random(dtype, pairs, d_pv) for _ in range(heads)]
    w_output = random(dtype, heads * d_pv, width)
    x = random(dtype, BATCH, TARGET, width, scale=1)
    rows = []
    for sentence in x:
        for position in sentence:
            parts = []
            for head in range(heads):
                query = position @ w_query[head]
                scores = math.sqrt(width) * keys[head] @ query / math.sqrt(d_pk)
                weights = torch.exp(scores - scores.max())
                parts.append(weights / weights.sum() @ (math.sqrt(width) * values[head]))
            rows.append(torch.cat(parts) @ w_output)
    parameters = {
        "query.weight": lambda take: torch.cat([take(w).T for w in w_query]),
        "keys": lambda take: torch.stack([take(k) for k in keys]),
        "values": lambda take: torch.stack([take(v) for v in values]),
        "output.weight": lambda take: take(w_output).T,
    }
    record_case(record, case, {"x": x}, torch.stack(rows).view(BATCH, TARGET, width), parameters)


def recurrent_unit(record, case, dtype):
    """A simpler simple recurrent unit, not step by step: what each position took up, times all that forgot it since."""
    width = 10
    w_forget, w_input, bias = random(dtype, width, width), random(dtype, width, width), random(dtype, width, scale=1)
    x = random(dtype, BATCH, TARGET, width, scale=1)
    forget = 1 / (1 + torch.exp(-(x @ w_forget + bias)))
    taken = (1 - forget) * (x @ w_input)
    states = []
    for t in range(TARGET):
        kept = [taken[:, s] * forget[:, s + 1 : t + 1].prod(1) for s in range(t + 1)]
        states.append(sum(kept))
    parameters = {
        "input_weight": lambda take: torch.cat([take(w_forget).T, take(w_input).T]),
        "forget_bias": lambda take: take(bias),
    }
    record_case(record, case, {"x": x}, torch.stack(states, 1).clamp_min(0), parameters)


def attention(record, case, dtype, compatibility, allowed, self_attention):
    """Multi-head attention; `allowed` [B, T, S], queries that are allowed nothing get zeros before the projection."""
    width, heads, d_k, d_v = 10, 3, 5, 7
    sizes = {"query": d_k, "key": d_k, "value": d_v}
    matrix = {name: [random(dtype, width, size) for _ in range(heads)] for name, size in sizes.items()}
    w_output = random(dtype, heads * d_v, width)
    hidden_query = [random(dtype, d_k, d_k) for _ in range(heads)]
    hidden_key = [random(dtype, d_k, d_k) for _ in range(heads)]
    vector = [random(dtype, d_k, scale=1) for _ in range(heads)]
    query = random(dtype, allowed.shape[0], allowed.shape[1], width, scale=1)
    inputs = {"query": query}
    memory = query
    if not self_attention:
        memory = inputs["memory"] = random(dtype, allowed.shape[0], allowed.shape[2], width, scale=1)
    all_heads = []
    for head in range(heads):
        q, k, v = query @ matrix["query"][head], memory @ matrix["key"][head], memory @ matrix["value"][head]
        if compatibility == "additive":
            hidden = torch.tanh((q @ hidden_query[head])[:, :, None] + (k @ hidden_key[head])[:, None])
            scores = torch.einsum("btsd,d->bts", hidden, vector[head])
        else:
            scores = torch.einsum("btd,bsd->bts", q, k)
            if compatibility == "scaled_dot_product":
                scores = scores / math.sqrt(d_k)
        weights = torch.exp(scores) * allowed.to(dtype)
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300 if dtype == torch.float64 else 1e-30)
        all_heads.append(weights @ v)
    parameters = {
        "input_weight": lambda take: torch.cat([take(m).T for name in sizes for m in matrix[name]]),
        "output.weight": lambda take: take(w_output).T,
    }
    if compatibility == "additive":
        parameters["additive_query"] = lambda take: torch.stack([take(m).T for m in hidden_query])
        parameters["additive_key"] = lambda take: torch.stack([take(m).T for m in hidden_key])
        parameters["additive_vector"] = lambda take: torch.stack([take(v) for v in vector])
    record_case(record, case, inputs, torch.cat(all_heads, -1) @ w_output, parameters)


def allowed_keys(lengths, queries, causal, window):
    """[B, T, S]: tokens, none later than the query with `causal`, none further away than half the window."""
    tokens = ~padding(lengths, max(lengths))
    allowed = tokens[:, None, :].expand(-1, queries, -1).clone()
    for t in range(queries):
        for s in range(max(lengths)):
            if (causal and s > t) or (window and abs(t - s) > window // 2):
                allowed[:, t, s] = False
    return allowed


def main():
    torch.manual_seed(4)
    record = Record()
    for type_name, dtype in DTYPES.items():
        stacks(record, f"{type_name}-pre", dtype, True, "relu")
        stacks(record, f"{type_name}-gelu", dtype, False, "gelu")
        stacks(record, f"{type_name}-pre-gelu", dtype, True, "gelu")
        swiglu(record, f"{type_name}-swiglu", dtype)
        attention_over_parameters(record, f"{type_name}-parameters", dtype)
        recurrent_unit(record, f"{type_name}-ssru", dtype)
        for compatibility in ("dot_product", "additive"):
            for causal in (False, True):
                case = f"{type_name}-{compatibility}-self{'-causal' if causal else ''}"
                attention(record, case, dtype, compatibility, allowed_keys(LENGTHS, SOURCE, causal, 0), True)
            memory = f"{type_name}-{compatibility}-memory"
            attention(record, memory, dtype, compatibility, allowed_keys(LENGTHS, TARGET, False, 0), False)
    # Longer than several blocks, and no multiple of one.
    for compatibility, windows in (("scaled_dot_product", (1, 6, 7, 140)), ("additive", (9,))):
        for window in windows:
            for causal in (False, True):
                case = f"float64-window-{compatibility}-{window}{'-causal' if causal else ''}"
                allowed = allowed_keys([150, 131, 3], 150, causal, window)
                attention(record, case, torch.float64, compatibility, allowed, True)
    record.save(sys.argv[1])


main()
