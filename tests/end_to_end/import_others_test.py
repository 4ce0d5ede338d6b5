"""What people who run `import --from marian` and `--from ctranslate2` rely on: import_others_test.py IMPORT EXPORT TRANSLATE
SOURCE_DIR. What the models compute is compared in tests/interop; here the shipped model goes to CTranslate2 and back, and
what cannot be imported is refused."""

import gzip
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest

import numpy
import yaml

from programs import ENVIRONMENT, ProgramTest, damage

IMPORT, EXPORT, TRANSLATE, SOURCE = *sys.argv[1:4], pathlib.Path(sys.argv[4])
MODEL = SOURCE / "data" / "model-en-de"
LINES = 60


def run_program(program, *arguments, status=0, text=None):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, input=text, env=ENVIRONMENT,
                          timeout=300)
    assert done.returncode == status, f"ended with {done.returncode}: {done.stderr}"
    return done.stdout, done.stderr


def with_variables(content, changed):
    """A model.bin of CTranslate2 whose variables `changed` has: name -> (shape, number of the type, bytes)."""
    at = 0

    def take(size):
        nonlocal at
        at += size
        return content[at - size:at]

    def number(kind):
        return struct.unpack("<" + kind, take(struct.calcsize(kind)))[0]

    written = [take(4)]  # version
    written.append(struct.pack("<H", number("H")))
    written += [take(struct.unpack("<H", written[-1])[0]), take(4)]  # specification, revision
    variables, count = {}, number("I")
    for _ in range(count):
        name = take(number("H"))[:-1].decode()
        shape = struct.unpack(f"<{(rank := number('B'))}I", take(4 * rank))
        variables[name] = (shape, number("B"), take(number("I")))
    rest = content[at:]  # aliases
    assert changed.keys() <= variables.keys(), variables.keys()
    variables.update(changed)
    written.append(struct.pack("<I", count))
    for name, (shape, kind, data) in variables.items():
        written += [struct.pack("<H", len(name) + 1), name.encode() + b"\0", struct.pack(f"<B{len(shape)}I", len(shape), *shape),
                    struct.pack("<BI", kind, len(data)), data]
    return b"".join(written) + rest


class ImportOthersTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A small whole model of either kind, as fuzzing begins with.
        for system, corpus in (("marian", "marian_file"), ("ctranslate2", "ctranslate2_import")):
            parts = re.split(rb"(?:^|\n)=== ([\w.-]+)\n", (SOURCE / "tests" / "fuzz" / "corpus" / corpus / "whole").read_bytes())
            folder = cls.root / system
            folder.mkdir()
            for name, content in zip(parts[1::2], parts[2::2]):
                (folder / name.decode()).write_bytes(content)

    def test_to_ctranslate2_and_back(self):
        there, back = self.root / "there", self.root / "back"
        run_program(EXPORT, "--to", "ctranslate2", "--model", MODEL, "--output", there)
        run_program(IMPORT, "--from", "ctranslate2", there, "--output", back)
        with gzip.open(SOURCE / "data" / "tatoeba-en-de" / "valid.en.gz", "rt", encoding="utf-8") as lines:
            text = "".join(line for _, line in zip(range(LINES), lines))
        ours, theirs = (run_program(TRANSLATE, "--scores", "--model", model, text=text)[0] for model in (MODEL, back))
        self.assertEqual(ours.count("\n"), LINES)
        self.assertEqual(ours, theirs)
        self.assertEqual((back / "vocabulary.model").read_bytes(), (MODEL / "vocabulary.model").read_bytes())
        # Without its vocabulary, or with that named, or with another.
        (there / "vocabulary.model").rename(self.root / "elsewhere.spm")
        self.refused("--sentencepiece", arguments=[IMPORT, "--from", "ctranslate2", there, "--output", self.root / "none"])
        run_program(IMPORT, "--from", "ctranslate2", there, "--sentencepiece", self.root / "elsewhere.spm", "--output",
                    self.root / "named")
        self.assertEqual((self.root / "named" / "model.safetensors").read_bytes(), (back / "model.safetensors").read_bytes())
        self.refused("model.bin", arguments=[IMPORT, "--from", "ctranslate2", there, "--sentencepiece", there / "model.bin",
                                             "--output", self.root / "none"])
        for folder in (there, back, self.root / "named"):
            shutil.rmtree(folder)
        (self.root / "elsewhere.spm").unlink()

    def refused(self, *parts, arguments, status=2):
        before = sorted(self.root.iterdir())
        output, errors = run_program(*arguments, status=status)
        self.assertEqual(output, "")
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)
        self.assertEqual(sorted(self.root.iterdir()), before)

    def varied(self, system, change):
        """Refuses a copy of the system's model that `change` has been at, which says what of."""
        folder = self.root / "varied"
        shutil.copytree(self.root / system, folder)
        try:
            self.refused(*change(folder), arguments=[IMPORT, "--from", system, folder, "--output", self.root / "refused"])
        finally:
            shutil.rmtree(folder)

    @staticmethod
    def with_options(folder, **options):
        """Changes options of a Marian model; None takes one out."""
        arrays = dict(numpy.load(folder / "model.npz"))
        text = yaml.safe_load(bytes(arrays["special:model.yml"])[:-1])
        text.update({key.replace("_", "-"): value for key, value in options.items()})
        text = {key: value for key, value in text.items() if value is not None}
        arrays["special:model.yml"] = numpy.frombuffer(yaml.safe_dump(text).encode() + b"\0", numpy.int8)
        numpy.savez(folder / "model.npz", **arrays)

    def test_options_of_marian_that_cannot_be_represented(self):
        for key, value in [("type", "s2s"), ("type", None), ("dim_emb", "wide"), ("dim_emb", 5), ("dim_emb", 10**18),
                           ("enc_depth", 10**9), ("dim_vocabs", [5]), ("dim_vocabs", [5, 6]), ("dim_vocabs", [5, -5]),
                           ("transformer_heads", 3), ("transformer_heads", 0), ("transformer_ffn_activation", "gelu"),
                           ("transformer_ffn_depth", 3), ("transformer_decoder_dim_ffn", 8),
                           ("transformer_decoder_autoreg", "average-attention"), ("transformer_no_projection", True),
                           ("dec_cell", "gru"), ("layer_normalization", True), ("transformer_rnn_projection", True),
                           ("transformer_train_position_embeddings", True), ("transformer_tied_layers", [1, 1]),
                           ("transformer_preprocess", "d"), ("transformer_postprocess", "da"),
                           ("transformer_postprocess_top", "n"), ("transformer_postprocess_emb", "nd"),
                           ("input_types", ["class", "sequence"]), ("right_left", True), ("ulr", "perhaps"),
                           ("lemma_dim_emb", 16), ("transformer_dropout", 7)]:
            with self.subTest(key=key, value=value):
                def change(folder):
                    recurrent = {"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru"}
                    self.with_options(folder, **(recurrent if key in ("dec_cell", "layer_normalization") else {}) | {key: value})
                    # Sizes that only together make no model are the library's to name.
                    return ["model.npz", {"enc_depth": "encoder_layers", "transformer_dropout": "dropout"}.get(
                        key, key.replace("_", "-"))] if (key, value) != ("dim_emb", 10**18) else ["d_model"]
                self.varied("marian", change)

    def test_searches_of_marian_that_cannot_be_represented(self):
        def with_decoder(folder, **options):
            file = folder / "decoder.yml"
            file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) |
                                           {key.replace("_", "-"): value for key, value in options.items()}))

        for key, value in [("word_penalty", 0.5), ("max_length_factor", 1.5), ("force_decode", True), ("allow_special", True),
                           ("output_sampling", ["topk", 10]), ("output_sampling", True), ("normalize", -1), ("beam_size", 0)]:
            with self.subTest(key=key, value=value):
                def change(folder):
                    with_decoder(folder, **{key: value})
                    return ["decoder.yml", "'" + key.replace("_", "-") + "'"]
                self.varied("marian", change)
        folder, output = self.root / "usual", self.root / "of-usual"
        shutil.copytree(self.root / "marian", folder)
        with_decoder(folder, word_penalty=0, max_length_factor=3, force_decode=False, output_sampling=[], allow_unk=True,
                     cpu_threads=4, workspace=512, mini_batch=8, maxi_batch=100, quiet=True, relative_paths=True,
                     gemm_type="int8", shortlist=["lex.s2t", 50, 50])
        run_program(IMPORT, "--from", "marian", folder, "--output", output)
        self.assertIn("write_unknown: true", (output / "config.yaml").read_text())
        shutil.rmtree(folder)
        shutil.rmtree(output)

    def test_a_model_of_marian_without_a_decoder_yml_is_searched_as_marian_would(self):
        folder = self.root / "bare"
        shutil.copytree(self.root / "marian", folder)
        names = yaml.safe_load((folder / "decoder.yml").read_text())
        (folder / "decoder.yml").write_text(yaml.safe_dump({key: names[key] for key in ("models", "vocabs")}))
        vocabularies = [part for name in names["vocabs"] for part in ("--vocabularies", folder / name)]
        decoding = []
        for model in (folder, folder / names["models"][0]):
            run_program(IMPORT, "--from", "marian", model, *vocabularies, "--output", self.root / "of-bare")
            decoding.append((self.root / "of-bare" / "config.yaml").read_text().split("\ndecoding:\n")[1])
            (folder / "decoder.yml").unlink(missing_ok=True)
            shutil.rmtree(self.root / "of-bare")
        self.assertEqual(*decoding)
        for line in ("beam: 12", "alpha: 0", "length_penalty: power", "write_unknown: false", "max_extra_length: 1000"):
            self.assertIn(f"  {line}\n", decoding[1])
        shutil.rmtree(folder)

    def test_weights_of_marian_that_are_damaged_or_others(self):
        def changed(**arrays):
            def change(folder):
                kept = dict(numpy.load(folder / "model.npz")) | arrays
                numpy.savez(folder / "model.npz", **{name: array for name, array in kept.items() if array is not None})
                return [next(iter(arrays))]
            return change

        one = numpy.ones((4, 4), numpy.float32)
        for arrays in ({"encoder_l1_self_Wq": one[:3]}, {"encoder_l1_self_Wq": None}, {"decoder_l2_self_Wq": one},
                       {"encoder_l1_ffn_W1": one.astype(numpy.int8)}, {"encoder_l1_ffn_W1": one * numpy.nan},
                       {"encoder_l1_ffn_W1": numpy.asfortranarray(numpy.arange(16, dtype=numpy.float32).reshape(4, 4))},
                       {"encoder_l1_ffn_W1": one.astype(">f4")}, {"special:model.yml": None}):
            with self.subTest(array=next(iter(arrays)), value=next(iter(arrays.values()))):
                self.varied("marian", changed(**arrays))

        def flipped(folder):
            file = folder / "model.npz"
            self.with_options(folder)  # stored, not deflated
            content = bytearray(file.read_bytes())
            at = content.index(numpy.load(file)["encoder_l1_ffn_W1"].tobytes())
            content[at] ^= 1
            file.write_bytes(content)
            return ["encoder_l1_ffn_W1", "checksum"]

        def two_models(folder):
            (folder / "decoder.yml").write_text("models: [a.npz, b.npz]\nvocabs: [vocab.yml, vocab.yml]\n")
            return ["decoder.yml", "'models'"]

        def one_text_many_times(folder):
            (folder / "decoder.yml").write_text(f"models: [&a {'x' * 1000000}{', *a' * 5000}]\n")  # 5 GB
            return ["decoder.yml", "'models'"]

        def nothing_said(folder):
            (folder / "decoder.yml").unlink()
            return ["decoder.yml", ".npz"]

        def another_piece(folder):
            file = folder / "vocab.yml"
            file.write_text(file.read_text().replace("</s>", "<end>"))
            return ["vocab.yml", "</s>"]

        def one_piece_twice(folder):
            file = folder / "vocab.yml"
            pieces = file.read_text().rstrip("\n").splitlines()
            file.write_text("\n".join([*pieces[:-1], pieces[-2].split(":")[0] + ":" + pieces[-1].split(":")[1], ""]))
            return ["vocab.yml", "twice"]

        for change in (flipped, two_models, one_text_many_times, nothing_said, another_piece, one_piece_twice):
            with self.subTest(change=change.__name__):
                self.varied("marian", change)

    def test_models_of_ctranslate2_that_cannot_be_represented(self):
        for key, value in [("add_source_bos", True), ("multi_query_attention", True), ("layer_norm_epsilon", "small"),
                           ("eos_token", "<end>"), ("unk_token", 3)]:
            with self.subTest(key=key, value=value):
                def change(folder):
                    file = folder / "config.json"
                    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
                    return ["<end>"] if value == "<end>" else ["config.json", "'" + key + "'"]
                self.varied("ctranslate2", change)

        for piece, part in (("</s>", "'</s>' twice"), ("", "empty piece"), ("a\0b", "is no text"), ("x" * 600, "600 bytes")):
            with self.subTest(piece=piece):
                def change(folder):
                    file = folder / "shared_vocabulary.json"
                    pieces = json.loads(file.read_text())
                    pieces[-1] = piece
                    file.write_text(json.dumps(pieces))
                    return ["shared_vocabulary.json", part]
                self.varied("ctranslate2", change)

        def many_values(folder):
            (folder / "shared_vocabulary.json").write_text("[" + '"a",' * 4_000_001 + '"a"]')
            return ["shared_vocabulary.json", "more than 4000001 values"]

        def many_lines(folder):
            (folder / "shared_vocabulary.json").unlink()
            (folder / "shared_vocabulary.txt").write_text("\n" * 4_000_001)
            return ["shared_vocabulary.txt", "more than 4000000 pieces"]

        for change in (many_values, many_lines):
            with self.subTest(change=change.__name__):
                self.varied("ctranslate2", change)

        def renamed(before, after, expected):
            def change(folder):
                file = folder / "model.bin"
                content = file.read_bytes()
                self.assertEqual(content.count(before), 1)
                self.assertEqual(len(before), len(after))
                file.write_bytes(content.replace(before, after))
                return ["model.bin", expected]
            return change

        for change in (renamed(b"encoder/layer_0/ffn/linear_0/bias", b"encoder/layer_0/ffn/linear_0/bIas", "linear_0/bias"),
                       renamed(b"decoder/alignment_layer", b"decoder/sliding_windows", "decoder/sliding_windows"),
                       renamed(b"encoder/scale_embeddings\0\0\0\x04\0\0\0\0\0\0\x40",
                               b"encoder/scale_embeddings\0\0\0\x04\0\0\0\0\0\x80\x40", "encoder/scale_embeddings")):
            with self.subTest():
                self.varied("ctranslate2", change)

        # No memory for a width that takes no byte; no half of a head.
        halves, endless = ((), 0, struct.pack("<f", 2.5)), ((), 0, struct.pack("<f", 1e30))
        scaled = {f"{stack}/scale_embeddings": ((), 1, b"\1") for stack in ("encoder", "decoder")}
        for values in ({"decoder/embeddings/weight": ((0, 2**32 - 1), 0, b""), **scaled},
                       {"decoder/embeddings/weight": ((4, 0), 0, b""), **scaled},
                       {"encoder/num_heads": halves, "decoder/num_heads": halves},
                       {"encoder/num_heads": endless, "decoder/num_heads": endless}):
            with self.subTest(values=values):
                def change(folder):
                    file = folder / "model.bin"
                    file.write_bytes(with_variables(file.read_bytes(), values))
                    return ["model.bin", *list(values)[:1]]
                self.varied("ctranslate2", change)

    def test_damaged_folders_are_refused_in_one_line(self):
        for system, names in (("marian", ("model.npz", "vocab.yml", "source.spm", "decoder.yml")),
                              ("ctranslate2", ("model.bin", "config.json", "shared_vocabulary.json", "target.spm"))):
            for name in names:
                for how in ("missing", "cut", "noise"):
                    with self.subTest(file=name, damage=how):
                        def change(folder):
                            damage(folder / name, how)
                            return [name] if how != "cut" or name not in ("decoder.yml", "vocab.yml") else []
                        self.varied(system, change)

        for system, name in (("marian", "decoder.yml"), ("marian", "source.spm"), ("ctranslate2", "model.bin"),
                             ("ctranslate2", "source_vocabulary.json"), ("ctranslate2", "source.spm")):
            with self.subTest(file=name):
                def change(folder):
                    (folder / name).unlink(missing_ok=True)
                    (folder / name).symlink_to(name)
                    return [f"{name}: cannot be looked at: " if (system, name) != ("marian", "source.spm") else name]
                self.varied(system, change)

    def test_mistakes_are_named(self):
        output = self.root / "other"
        for system in ("marian", "ctranslate2"):
            self.refused("nowhere", arguments=[IMPORT, "--from", system, self.root / "nowhere", "--output", output])
            self.refused("exists already", arguments=[IMPORT, "--from", system, self.root / system, "--output", self.root])
        self.refused("--vocabularies", "marian", arguments=[IMPORT, "--from", "ctranslate2", self.root / "ctranslate2",
                                                            "--vocabularies", "vocab.yml", "--output", output])
        self.refused("--sentencepiece", arguments=[IMPORT, "--from", "hugging-face", self.root, "--sentencepiece", "a",
                                                   "--output", output])
        # The .npz itself, with everything named, needs nothing beside it.
        alone = self.root / "alone"
        alone.mkdir()
        shutil.copy(self.root / "marian" / "model.npz", alone)
        self.refused("--vocabularies", arguments=[IMPORT, "--from", "marian", alone / "model.npz", "--output", output])
        model, vocabulary = alone / "model.npz", ("--vocabularies", self.root / "marian" / "vocab.yml")
        source, target = (self.root / "marian" / f"{side}.spm" for side in ("source", "target"))
        for arguments in ((model, *vocabulary, "--sentencepiece", source, target),
                          ("--sentencepiece", source, "--sentencepiece", target, *vocabulary, model),
                          (*vocabulary, model, "--sentencepiece", source, "--sentencepiece", target)):
            with self.subTest(arguments=arguments):
                run_program(IMPORT, "--from", "marian", *arguments, "--output", output)
                self.assertEqual(len(run_program(TRANSLATE, "--model", output, text="ba do\n")[0].splitlines()), 1)
                shutil.rmtree(output)
        shutil.rmtree(alone)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
