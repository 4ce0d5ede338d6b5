"""A model directory's Transformer in double precision from torch.nn's modules, one sentence pair at a time."""

import math
import pathlib

import torch
import yaml
from safetensors.torch import load_file

torch.set_num_threads(1)
BEGIN, END = 1, 2


class ReferenceModel:
    """Of the paper's layers alone: another model is refused."""

    def __init__(self, directory):
        directory = pathlib.Path(directory)
        self.settings = yaml.safe_load((directory / "config.yaml").read_text())["model"]
        for name, value in {"normalization": "post", "positions": "sinusoidal", "activation": "relu",
                            "compatibility": "scaled_dot_product", "feed_forward": "network", "attention_window": 0}.items():
            assert self.settings[name] == value, name
        self.weights = {name: tensor.double() for name, tensor in load_file(directory / "model.safetensors").items()}
        shared = self.settings["shared_embeddings"]
        self.source_embedding = self.weights["embedding.weight" if shared == "all" else "source_embedding.weight"]
        self.target_embedding = self.weights["embedding.weight" if shared == "all" else "target_embedding.weight"]
        self.projection = self.weights["projection.weight"] if shared == "none" else self.target_embedding

    def embed(self, table, ids):
        width = self.settings["d_model"]
        angles = torch.arange(len(ids))[:, None] / 10000.0 ** (torch.arange(0, width, 2, dtype=torch.double) / width)
        return table[ids] * math.sqrt(width) + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)

    def attend(self, name, queries, keys, hidden=None):
        """-> outputs [T, d_model], weights [heads, T, S]."""
        part = {key.removeprefix(name + "."): value for key, value in self.weights.items() if key.startswith(name + ".")}
        module = torch.nn.MultiheadAttention(self.settings["d_model"], self.settings["heads"],
                                             bias=self.settings["projection_bias"], dtype=torch.double)
        module.load_state_dict({key.replace("input_", "in_proj_").replace("output.", "out_proj."): value
                                for key, value in part.items()})
        return module(queries, keys, keys, attn_mask=hidden, average_attn_weights=False)

    def normalised(self, name, values):
        return torch.nn.functional.layer_norm(values, values.shape[-1:], self.weights[name + ".norm.weight"],
                                              self.weights[name + ".norm.bias"], self.settings["layer_norm_epsilon"])

    def feed_forward(self, layer, values):
        linear = lambda name, x: x @ self.weights[f"{layer}.feed_forward.{name}.weight"].T + \
            self.weights[f"{layer}.feed_forward.{name}.bias"]
        return self.normalised(layer + ".after_feed_forward", values + linear("outer", linear("inner", values).relu()))

    @torch.no_grad()
    def __call__(self, source, target):
        """Pieces without begin and end -> logits [T + 1, V] of `target` and the end token, and for each kind of
        attention its weights [layers, heads, queries, keys]."""
        maps = {"encoder": [], "decoder": [], "cross": []}
        memory = self.embed(self.source_embedding, [*source, END])
        for number in range(self.settings["encoder_layers"]):
            layer = f"encoder.layers.{number}"
            values, weights = self.attend(layer + ".self_attention", memory, memory)
            maps["encoder"].append(weights)
            memory = self.feed_forward(layer, self.normalised(layer + ".after_self_attention", memory + values))
        hidden = self.embed(self.target_embedding, [BEGIN, *target])
        future = torch.ones(len(hidden), len(hidden), dtype=torch.bool).triu(1)
        for number in range(self.settings["decoder_layers"]):
            layer = f"decoder.layers.{number}"
            values, weights = self.attend(layer + ".self_attention", hidden, hidden, future)
            maps["decoder"].append(weights)
            hidden = self.normalised(layer + ".after_self_attention", hidden + values)
            values, weights = self.attend(layer + ".memory_attention", hidden, memory)
            maps["cross"].append(weights)
            hidden = self.feed_forward(layer, self.normalised(layer + ".after_memory_attention", hidden + values))
        return hidden @ self.projection.T, {kind: torch.stack(layers) for kind, layers in maps.items()}
