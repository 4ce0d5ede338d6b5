"""What the references of the model share: random values, and a record of tensors for the C++ tests.

A tensor's name in the file is `case/kind/name`: kind `weight`, `input`, `output` or `gradient`.
"""

import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Record:
    def __init__(self):
        self.tensors = {}

    def add(self, case, kind, **tensors):
        for name, tensor in tensors.items():
            self.tensors[f"{case}/{kind}/{name}"] = tensor.detach().clone().contiguous()

    def parameters(self, case, module, name_of):
        """Weights of `module` and, after backward, their gradients, under our own names."""
        for name, parameter in module.named_parameters():
            self.tensors[f"{case}/weight/{name_of(name)}"] = parameter.detach().clone()
            if parameter.grad is not None:
                self.tensors[f"{case}/gradient/{name_of(name)}"] = parameter.grad.clone()

    def save(self, file):
        save_file(self.tensors, file)


def randomise(module, projection_bias):
    """Every parameter random, normalisation's too; the attention projections' biases zero where ours have none."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            elif not projection_bias and name.endswith(("in_proj_bias", "out_proj.bias")):
                parameter.zero_()
            else:
                parameter.normal_(0, 0.3)


def attention_name(name):
    for theirs, our in (("in_proj_weight", "input_weight"), ("in_proj_bias", "input_bias"), ("out_proj", "output")):
        name = name.replace(theirs, our)
    return name


def layer_name(name):
    """`encoder:` or `decoder:` and torch.nn's name of a layer's parameter -> our name."""
    parts = {
        "self_attn": "self_attention",
        "multihead_attn": "memory_attention",
        "linear1": "feed_forward.inner",
        "linear2": "feed_forward.outer",
    }
    decoder = {
        "norm1": "after_self_attention.norm",
        "norm2": "after_memory_attention.norm",
        "norm3": "after_feed_forward.norm",
    }
    encoder = {"norm1": "after_self_attention.norm", "norm2": "after_feed_forward.norm"}
    kind, _, rest = name.partition(":")
    for theirs, our in {**parts, **(decoder if kind == "decoder" else encoder)}.items():
        rest = rest.replace(theirs, our)
    return attention_name(rest)


def padding(lengths, longest):
    """[B, longest], true = padding: PyTorch's meaning of a key_padding_mask."""
    return torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)
