"""Operations of a model's matrix products as PyTorch's FlopCounterMode counts them: flops.py CASES.json OUT.json.

Models live on the meta device, so nothing is computed. Where heads * d_k is d_model the layers are torch.nn's own;
torch.nn knows no other widths of a head and none of the paper's variations, so for those they are written out here.
"""

import json
import sys

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode


class Neighbours(nn.Module):
    """Scores and weighted sum of every position against the window around it: [B, H, T, d] gathered to [.., T, w, d]."""

    def forward(self, query, key, value, window):
        length, reach = query.shape[2], window // 2
        width = min(length, 2 * reach + 1)
        places = torch.zeros(length * width, dtype=torch.long)
        gather = lambda x: x.index_select(2, places).unflatten(2, (length, width)).flatten(0, 2)
        weights = (query.flatten(0, 2).unsqueeze(1) @ gather(key).mT).softmax(-1)
        return (weights @ gather(value)).view(*query.shape[:3], -1)


class PerHead(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(heads, width, width))

    def forward(self, x):
        return x @ self.matrix


class Additive(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.hidden_query = PerHead(c["heads"], c["d_k"])
        self.hidden_key = PerHead(c["heads"], c["d_k"])
        self.vector = nn.Parameter(torch.empty(c["heads"], c["d_k"], 1))

    def forward(self, query, key, value):
        hidden = torch.tanh(self.hidden_query(query).unsqueeze(3) + self.hidden_key(key).unsqueeze(2))  # [B, H, T, S, d_k]
        scores = (hidden.flatten(2, 3) @ self.vector).view(*hidden.shape[:4])
        return scores.softmax(-1) @ value


class ParameterAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        heads, d_k, d_v, pairs = (c[f"parameter_{name}"] for name in ("heads", "d_k", "d_v", "pairs"))
        self.query = nn.Linear(c["d_model"], heads * d_k, bias=False)
        self.keys = nn.Parameter(torch.empty(heads, pairs, d_k))
        self.values = nn.Parameter(torch.empty(heads, pairs, d_v))
        self.output = nn.Linear(heads * d_v, c["d_model"], bias=False)

    def forward(self, x):
        query = self.query(x).unflatten(-1, (len(self.keys), -1)).transpose(1, 2)  # [B, h_p, T, d_pk]
        attended = (query @ self.keys.mT).softmax(-1) @ self.values
        return self.output(attended.transpose(1, 2).flatten(2))


class Network(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.linear1 = nn.Linear(c["d_model"], c["d_ff"])
        self.linear2 = nn.Linear(c["d_ff"], c["d_model"])
        self.linear3 = nn.Linear(c["d_model"], c["d_ff"]) if c["swiglu"] else None

    def forward(self, x):
        hidden = self.linear1(x)
        return self.linear2(hidden.relu() if self.linear3 is None else nn.functional.silu(self.linear3(x)) * hidden)


class Attention(nn.Module):
    def __init__(self, c, window):
        super().__init__()
        self.heads = c["heads"]
        self.window = window
        self.additive = Additive(c) if c["additive"] else None
        self.neighbours = Neighbours() if window else None
        self.query = nn.Linear(c["d_model"], c["heads"] * c["d_k"], bias=False)
        self.key = nn.Linear(c["d_model"], c["heads"] * c["d_k"], bias=False)
        self.value = nn.Linear(c["d_model"], c["heads"] * c["d_v"], bias=False)
        self.output = nn.Linear(c["heads"] * c["d_v"], c["d_model"], bias=False)

    def forward(self, x, memory):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query, key, value = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        if self.additive:
            heads = self.additive(query, key, value)
        elif self.neighbours:
            heads = self.neighbours(query, key, value, self.window)
        else:
            heads = scaled_dot_product_attention(query, key, value)
        return self.output(heads.transpose(1, 2).flatten(2))


class Recurrence(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.forget = nn.Linear(c["d_model"], c["d_model"])
        self.taken = nn.Linear(c["d_model"], c["d_model"], bias=False)

    def forward(self, x, _):
        return self.forget(x).sigmoid() * self.taken(x)  # its steps have no products of matrices


class Layer(nn.Module):
    def __init__(self, c, attends_to_memory):
        super().__init__()
        self.self_attn = Recurrence(c) if c["recurrent"] and attends_to_memory else Attention(c, c["window"])
        self.multihead_attn = Attention(c, 0) if attends_to_memory else None
        self.feed_forward = ParameterAttention(c) if c["over_parameters"] else Network(c)

    def forward(self, x, memory=None):
        x = x + self.self_attn(x, x)
        if memory is not None:
            x = x + self.multihead_attn(x, memory)
        return x + self.feed_forward(x)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        varied = c["recurrent"] or c["window"] or c["additive"] or c["swiglu"] or c["over_parameters"]
        if not varied and c["heads"] * c["d_k"] == c["d_model"] == c["heads"] * c["d_v"]:
            sizes = dict(d_model=c["d_model"], nhead=c["heads"], dim_feedforward=c["d_ff"], dropout=0.0, batch_first=True)
            encoder_layer = lambda: nn.TransformerEncoderLayer(**sizes)
            decoder_layer = lambda: nn.TransformerDecoderLayer(**sizes)
        else:
            encoder_layer = lambda: Layer(c, attends_to_memory=False)
            decoder_layer = lambda: Layer(c, attends_to_memory=True)
        self.source = nn.Embedding(c["vocabulary"], c["d_model"])
        self.target = nn.Embedding(c["vocabulary"], c["d_model"])
        self.encoder = nn.ModuleList(encoder_layer() for _ in range(c["encoder_layers"]))
        self.decoder = nn.ModuleList(decoder_layer() for _ in range(c["decoder_layers"]))
        self.projection = nn.Linear(c["d_model"], c["vocabulary"], bias=False)

    def forward(self, source, target):
        memory, x = self.source(source), self.target(target)
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.projection(x)


def of_modules(counter, last_name):
    """Forward operations of every module of that name."""
    return sum(
        sum(operations.values()) for name, operations in counter.get_flop_counts().items() if name.endswith(last_name)
    )


def network_layers(c):
    """Where torch.nn's own layers have their feed-forward networks' matrices."""
    stacks = (("encoder", c["encoder_layers"]), ("decoder", c["decoder_layers"]))
    return [(stack, i, n) for stack, layers in stacks for i in range(layers) for n in (1, 2)]


def attention_products(counter):
    """Batched products in attention over sentences; additive attention's own matrices are projections."""
    batched = lambda operations: sum(n for operation, n in operations.items() if "bmm" in str(operation))
    counts = counter.get_flop_counts()
    others = (".feed_forward", ".hidden_query", ".hidden_key")
    return batched(counts["Global"]) - sum(batched(n) for name, n in counts.items() if name.endswith(others))


def count(c):
    ids = lambda length: torch.zeros(c["rows"], length, dtype=torch.long)
    # The unfused attention: its backward pass computes nothing again.
    with torch.device("meta"), sdpa_kernel(SDPBackend.MATH):
        model, source, target = Model(c), ids(c["source_length"]), ids(c["target_length"])
        with FlopCounterMode(display=False) as forward:
            logits = model(source, target)
        with FlopCounterMode(display=False) as backward:
            logits.sum().backward()
    total = forward.get_total_flops()
    products = attention_products(forward)
    attention = of_modules(forward, "self_attn") + of_modules(forward, "multihead_attn")
    return {
        "forward": total,
        "training": total + backward.get_total_flops(),
        "vocabulary_projection": of_modules(forward, ".projection"),
        "feed_forward": of_modules(forward, ".feed_forward")
        + sum(of_modules(forward, f"{stack}.{i}.linear{n}") for stack, i, n in network_layers(c)),
        "attention_products": products,
        "attention_projections": attention - products,
    }


with open(sys.argv[1]) as file:
    cases = json.load(file)
with open(sys.argv[2], "w") as file:
    json.dump([count(case) for case in cases], file)
