"""The whole model from torch.nn's modules: logits, cross-entropy and all gradients."""

import math
import sys

import torch
from recording import DTYPES, Record, layer_name, padding, randomise

D_MODEL, HEADS, D_FF, ENCODER_LAYERS, DECODER_LAYERS, POSITIONS = 16, 4, 36, 2, 3, 12
SOURCE_VOCABULARY, TARGET_VOCABULARY = 17, 23
SOURCE_LENGTHS, TARGET_LENGTHS = [6, 9, 1, 4], [8, 2, 5, 1]


def sinusoid(position, dimension):
    angle = position / 10000 ** (dimension // 2 * 2 / D_MODEL)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


class Reference(torch.nn.Module):
    def __init__(self, shared, learned, dtype):
        super().__init__()
        source_size = TARGET_VOCABULARY if shared == "all" else SOURCE_VOCABULARY
        matrix = lambda rows: torch.nn.Parameter(torch.empty(rows, D_MODEL, dtype=dtype))
        self.target_embedding = matrix(TARGET_VOCABULARY)
        self.source_embedding = self.target_embedding if shared == "all" else matrix(source_size)
        self.projection = matrix(TARGET_VOCABULARY) if shared == "none" else self.target_embedding
        self.learned = learned
        if learned:
            self.source_positions, self.target_positions = matrix(POSITIONS), matrix(POSITIONS)
        sizes = dict(dim_feedforward=D_FF, dropout=0.0, activation="relu", batch_first=True, dtype=dtype)
        encoder_layer = torch.nn.TransformerEncoderLayer(D_MODEL, HEADS, **sizes)
        decoder_layer = torch.nn.TransformerDecoderLayer(D_MODEL, HEADS, **sizes)
        # nn.Transformer's own stacks end in one more normalisation, which the paper's post-norm layers do not have.
        self.encoder = torch.nn.TransformerEncoder(encoder_layer, ENCODER_LAYERS, enable_nested_tensor=False)
        self.decoder = torch.nn.TransformerDecoder(decoder_layer, DECODER_LAYERS)

    def embed(self, embedding, positions, ids):
        length = ids.shape[1]
        if self.learned:
            position = positions[:length]
        else:
            table = [[sinusoid(p, d) for d in range(D_MODEL)] for p in range(length)]
            position = torch.tensor(table, dtype=torch.float64).to(embedding.dtype)
        return embedding[ids] * math.sqrt(D_MODEL) + position

    def forward(self, source, target, source_padded, target_padded):
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        positions = (self.source_positions, self.target_positions) if self.learned else (None, None)
        memory = self.encoder(
            self.embed(self.source_embedding, positions[0], source), src_key_padding_mask=source_padded
        )
        hidden = self.decoder(
            self.embed(self.target_embedding, positions[1], target),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=target_padded,
            memory_key_padding_mask=source_padded,
        )
        return hidden @ self.projection.T


def random_ids(lengths, vocabulary):
    padded = padding(lengths, max(lengths))
    return torch.randint(1, vocabulary, padded.shape).masked_fill(padded, 0), padded


def main():
    torch.manual_seed(3)
    record = Record()
    for type_name, dtype in DTYPES.items():
        for shared, learned, bias in (("all", False, False), ("target", True, True), ("none", False, True)):
            case = f"{type_name}-{shared}"
            model = Reference(shared, learned, dtype)
            randomise(model, bias)
            source_size = TARGET_VOCABULARY if shared == "all" else SOURCE_VOCABULARY
            source, source_padded = random_ids(SOURCE_LENGTHS, source_size)
            target, target_padded = random_ids(TARGET_LENGTHS, TARGET_VOCABULARY)
            labels = torch.randint(1, TARGET_VOCABULARY, target.shape).masked_fill(target_padded, 0)
            logits = model(source, target, source_padded, target_padded)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=0, reduction="sum"
            )
            loss.backward()
            record.add(case, "input", source=source, target=target, labels=labels)
            record.add(case, "output", logits=logits, loss=loss)

            def name_of(name):
                stack, _, rest = name.partition(".")
                if stack in ("encoder", "decoder"):
                    return f"{stack}.{layer_name(f'{stack}:{rest}')}"
                if shared == "all":
                    return "embedding.weight"
                return f"{name}.weight"

            record.parameters(case, model, name_of)
    record.save(sys.argv[1])


main()
