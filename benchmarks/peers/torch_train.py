"""The other side of `scripts/bench train`: torch_train.py MODEL PRECISION THREADS WEIGHTS BATCHES [DEVICE [compiled]], with
PyTorch's own nn.Transformer, eager or compiled; benchmarks/peers/train_worker.cpp describes the arguments and the commands.

It computes the same function of the same weights. What nn.Transformer has beyond the paper is taken off: the biases of
the attention projections and the normalisation after each stack, which would only make it slower; and, unless dropout is
asked for everywhere, its dropout on attention weights and activations, of which the first keeps it from its fastest
attention."""

import json
import math
import sys
import time

import torch
from tensor_file import load_file
from torch import nn
from torch.nn import functional

PADDING = 0
SMOOTHING = 0.1
RATE, BETAS, EPSILON = 1e-4, (0.9, 0.98), 1e-9


def status(field):
    """A field of /proc/self/status that counts kB, in bytes."""
    for line in open("/proc/self/status"):
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def sinusoids(count, width):
    position = torch.arange(count, dtype=torch.float64).unsqueeze(1)
    angle = position / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1).float()


class Model(nn.Module):
    def __init__(self, d_model, d_ff, heads, layers, vocabulary, dropout, dropout_everywhere):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", sinusoids(512, d_model), persistent=False)
        self.transformer = nn.Transformer(d_model, heads, layers, layers, d_ff, dropout, batch_first=True)
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.in_proj_bias = module.out_proj.bias = None
                if not dropout_everywhere:
                    module.dropout = 0.0
            if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)) and not dropout_everywhere:
                module.dropout.p = 0.0

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * self.scale + self.positions[:ids.shape[1]])

    def forward(self, source, target, source_padding):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], target.device)
        # Padding follows a sentence's tokens, so that the causal mask is enough for the target.
        hidden = self.transformer(self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True,
                                  src_key_padding_mask=source_padding, memory_key_padding_mask=source_padding)
        return functional.linear(hidden, self.embedding.weight)


# Ours to nn.Transformer's.
NAMES = {"self_attention.input_weight": "self_attn.in_proj_weight", "self_attention.output.weight": "self_attn.out_proj.weight",
         "memory_attention.input_weight": "multihead_attn.in_proj_weight",
         "memory_attention.output.weight": "multihead_attn.out_proj.weight",
         "feed_forward.inner": "linear1", "feed_forward.outer": "linear2", "after_self_attention.norm": "norm1",
         "after_memory_attention.norm": "norm2"}


def load(model, file):
    state = {}
    for name, tensor in load_file(file).items():
        if name != "embedding.weight":
            name = "transformer." + name
            last = "norm3" if "decoder" in name else "norm2"
            for ours, theirs in {**NAMES, "after_feed_forward.norm": last}.items():
                name = name.replace(ours, theirs)
        state[name] = tensor.float()
    model.load_state_dict(state)


def main():
    settings, precision, threads, weights, batches_file, *rest = sys.argv[1:]
    device = torch.device(rest[0] if rest else "cpu")
    settings = json.loads(settings)
    torch.set_num_threads(int(threads))
    torch.set_num_interop_threads(1)
    before = status("VmRSS")
    model = Model(**settings)
    load(model, weights)
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, fused=True)
    forward = torch.compile(model) if rest[1:] == ["compiled"] else model
    tensors = load_file(batches_file)
    batches = []
    for i in range(len(tensors) // 3):
        source, target_input, target_output = (tensors[f"{i}.{part}"].to(device) for part in
                                               ("source", "target_input", "target_output"))
        padding = source == PADDING
        # Where nothing is padded no mask is given: attention is faster then.
        batches.append((source, target_input, target_output, padding if padding.any() else None,
                        int((target_output != PADDING).sum())))
    print(f"ready {torch.__version__} {before}", flush=True)

    def step(batch):
        source, target_input, target_output, padding, count = batch
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            logits = forward(source, target_input, padding)
            loss = functional.cross_entropy(logits.flatten(0, 1), target_output.flatten(), ignore_index=PADDING,
                                            label_smoothing=SMOOTHING, reduction="mean")
        loss.backward()
        optimizer.step()
        return loss.detach()

    for command in sys.stdin:
        verb, *words = command.split()
        if verb == "memory":
            print(status("VmHWM"), status("VmRSS"), flush=True)
            continue
        first, count = map(int, words)
        chosen = [batches[i % len(batches)] for i in range(first, first + count)]
        start = time.perf_counter()
        losses = [step(batch) for batch in chosen]
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        tokens = sum(batch[4] for batch in chosen)
        loss = sum(float(loss) * batch[4] for loss, batch in zip(losses, chosen)) / tokens
        print(f"{seconds:.6f} {tokens} {loss:.6f}", flush=True)


main()
