"""Operations of a model's matrix products as PyTorch's FlopCounterMode counts them: flops.py CASES.json OUT.json.

Models live on the meta device, so nothing is computed. Where heads * d_k is d_model the layers are torch.nn's own;
torch.nn knows no other widths of a head, so for those they are written out here.
"""

import json
import sys

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c["heads"]
        self.query = nn.Linear(c["d_model"], c["heads"] * c["d_k"], bias=False)
        self.key = nn.Linear(c["d_model"], c["heads"] * c["d_k"], bias=False)
        self.value = nn.Linear(c["d_model"], c["heads"] * c["d_v"], bias=False)
        self.output = nn.Linear(c["heads"] * c["d_v"], c["d_model"], bias=False)

    def forward(self, x, memory):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        heads = scaled_dot_product_attention(
            split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        )
        return self.output(heads.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, c, attends_to_memory):
        super().__init__()
        self.self_attn = Attention(c)
        self.multihead_attn = Attention(c) if attends_to_memory else None
        self.linear1 = nn.Linear(c["d_model"], c["d_ff"])
        self.linear2 = nn.Linear(c["d_ff"], c["d_model"])

    def forward(self, x, memory=None):
        x = x + self.self_attn(x, x)
        if memory is not None:
            x = x + self.multihead_attn(x, memory)
        return x + self.linear2(self.linear1(x).relu())


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        if c["heads"] * c["d_k"] == c["d_model"] == c["heads"] * c["d_v"]:
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
    counts = forward.get_flop_counts()
    products = sum(n for operation, n in counts["Global"].items() if "bmm" in str(operation))
    attention = of_modules(forward, "self_attn") + of_modules(forward, "multihead_attn")
    return {
        "forward": total,
        "training": total + backward.get_total_flops(),
        "vocabulary_projection": of_modules(forward, ".projection"),
        "feed_forward": of_modules(forward, ".linear1") + of_modules(forward, ".linear2"),
        "attention_products": products,
        "attention_projections": attention - products,
    }


with open(sys.argv[1]) as file:
    cases = json.load(file)
with open(sys.argv[2], "w") as file:
    json.dump([count(case) for case in cases], file)
