"""What people who run `import` and `export --to hugging-face` rely on: import_test.py IMPORT EXPORT TRANSLATE EVALUATE
TRAIN SOURCE_DIR. The shipped model is exported, `transformers` translates with it as `translate` does, and so does what is
imported from it again."""

import gzip
import json
import pathlib
import shutil
import subprocess
import sys
import unittest

import ctranslate2
import safetensors.numpy
import torch
import transformers

from programs import ENVIRONMENT, ProgramTest, damage

IMPORT, EXPORT, TRANSLATE, EVALUATE, TRAIN, SOURCE = *sys.argv[1:6], pathlib.Path(sys.argv[6])
MODEL = SOURCE / "data" / "model-en-de"
LINES = 200
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


class ImportTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.exported, cls.imported = cls.root / "exported", cls.root / "imported"
        cls.run_program(EXPORT, "--to", "hugging-face", "--model", MODEL, "--output", cls.exported)
        (cls.exported / "README.md").write_text("---\nlanguage:\n- en\nlicense: cc-by-4.0\n---\n# A model\n")
        cls.run_program(IMPORT, "--from", "hugging-face", cls.exported, "--output", cls.imported)
        with gzip.open(SOURCE / "data" / "tatoeba-en-de" / "valid.en.gz", "rt", encoding="utf-8") as lines:
            cls.lines = [line.rstrip("\n") for _, line in zip(range(LINES), lines)]

    @staticmethod
    def run_program(program, *arguments, status=0, text=None):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, input=text,
                              env=ENVIRONMENT, timeout=300)
        assert done.returncode == status, f"ended with {done.returncode}: {done.stderr}"
        return done.stdout, done.stderr

    def ours(self, model, *arguments):
        output, _ = self.run_program(TRANSLATE, "--model", model, "--length-penalty", "power", "--alpha", "1", *arguments,
                                     text="\n".join(self.lines) + "\n")
        return output.splitlines()

    def test_same_translations(self):
        model = transformers.MarianMTModel.from_pretrained(self.exported).eval()
        tokenizer = transformers.MarianTokenizer.from_pretrained(self.exported)

        def theirs(beam):
            found = []
            for first in range(0, LINES, 20):
                batch = tokenizer(self.lines[first:first + 20], return_tensors="pt", padding=True)
                with torch.inference_mode():
                    found += model.generate(**batch, num_beams=beam, max_new_tokens=100)
            return tokenizer.batch_decode(found, skip_special_tokens=True)

        greedy = theirs(1)
        self.assertGreater(len(set(greedy)), LINES // 2)
        self.assertEqual(self.ours(MODEL, "--beam", "1"), greedy)
        self.assertEqual(self.ours(self.imported, "--beam", "1"), greedy)
        self.assertEqual(self.by_ctranslate2(tokenizer), greedy)
        # Its search may stop earlier than ours: it takes no hypothesis for better than it is at the length it has.
        wide = theirs(4)
        for model in (MODEL, self.imported):
            same = sum(a == b for a, b in zip(self.ours(model, "--beam", "4"), wide))
            self.assertGreaterEqual(same, 0.99 * LINES)

    def by_ctranslate2(self, tokenizer):
        """What CTranslate2 makes of the imported model."""
        folder = self.root / "ctranslate2"
        self.run_program(EXPORT, "--to", "ctranslate2", "--model", self.imported, "--output", folder)
        translator = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
        results = translator.translate_batch([tokenizer.tokenize(line) for line in self.lines], beam_size=1,
                                             min_decoding_length=0, max_batch_size=32)
        shutil.rmtree(folder)
        return [tokenizer.convert_tokens_to_string(result.hypotheses[0]) for result in results]

    def test_fine_tuning_starts_from_the_same_loss(self):
        pairs = 16
        files = {}
        for language in ("en", "de"):
            files[language] = self.root / f"few.{language}"
            with gzip.open(SOURCE / "data" / "tatoeba-en-de" / f"valid.{language}.gz", "rt", encoding="utf-8") as lines:
                files[language].write_text("".join(line for _, line in zip(range(pairs), lines)), encoding="utf-8")
        model = transformers.MarianMTModel.from_pretrained(self.exported).eval()
        tokenizer = transformers.MarianTokenizer.from_pretrained(self.exported)
        batch = tokenizer(files["en"].read_text().splitlines(), text_target=files["de"].read_text().splitlines(),
                          return_tensors="pt", padding=True)
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        with torch.inference_mode():
            expected = model(**batch).loss.item()

        config = self.root / "tuned.yaml"
        config.write_text(f"""
extends: {self.imported}/config.yaml
data: {{train_source: [{files["en"]}], train_target: [{files["de"]}],
       validation_source: [{files["en"]}], validation_target: [{files["de"]}]}}
model: {{dropout: 0}}
training: {{output: {self.root}/tuned, init_from: {self.imported}, steps: 1, batch_tokens: 4000, label_smoothing: 0,
           log_every: 1, validate_bleu: false}}
""")
        self.run_program(TRAIN, config)
        metrics = [json.loads(line) for line in (self.root / "tuned" / "metrics.jsonl").read_text().splitlines()]
        losses = [entry["loss"] for entry in metrics if entry["kind"] == "train"]
        self.assertEqual(len(losses), 1)
        self.assertAlmostEqual(losses[0], expected, delta=1e-4)
        # What comes of it is a model like others, of the same origin, and so is what a run that goes on makes.
        def described(*parts):
            output, _ = self.run_program(EVALUATE, "describe", "--model", self.root.joinpath("tuned", *parts),
                                         "--format", "json")
            known = json.loads(output)
            return known["licence"], known["origin"]
        wanted = ("cc-by-4.0", "Hugging Face, MarianMT; trained further")
        self.assertEqual(described(), wanted)
        self.run_program(TRAIN, config, "--set", "training.steps=2")
        self.assertEqual(described("checkpoints", "step-00000002"), wanted)
        self.assertEqual(len(self.ours(self.root / "tuned")), LINES)
        shutil.rmtree(self.root / "tuned")
        for file in (config, *files.values()):
            file.unlink()

    def test_description(self):
        output, _ = self.run_program(EVALUATE, "describe", "--model", self.imported, "--format", "json")
        described = json.loads(output)
        ours, _ = self.run_program(EVALUATE, "describe", "--model", MODEL, "--format", "json")
        shipped = json.loads(ours)
        biases = 9 * 4 * 192 + shipped["target_pieces"]  # of 9 attentions, and of the projection
        self.assertEqual(described["parameters"], shipped["parameters"] + biases)
        self.assertEqual(sum(described["parts"].values()), described["parameters"])
        self.assertEqual(described["bytes"], 4 * described["parameters"])
        self.assertEqual(described["types"], ["float32"])
        self.assertEqual((described["licence"], described["origin"]), ("cc-by-4.0", "Hugging Face, MarianMT"))
        self.assertIn("attention projections with biases", described["variations"])
        self.assertNotIn("licence", shipped)
        # Whatever is made of it says the same of its origin.
        packed, again = self.root / "packed", self.root / "again"
        self.run_program(EXPORT, "--to", "packed", "--model", self.imported, "--output", packed)
        output, _ = self.run_program(EVALUATE, "describe", "--model", packed, "--format", "json")
        self.assertEqual(json.loads(output)["licence"], "cc-by-4.0")
        self.run_program(EXPORT, "--to", "hugging-face", "--model", self.imported, "--output", again)
        self.assertIn("license: cc-by-4.0", (again / "README.md").read_text())
        shutil.rmtree(packed)
        shutil.rmtree(again)
        text, _ = self.run_program(EVALUATE, "describe", "--model", self.imported)
        self.assertIn("cc-by-4.0", text)
        self.refused("nowhere", arguments=[EVALUATE, "describe", "--model", self.root / "nowhere"])

    def refused(self, *parts, arguments, status=2):
        before = sorted(self.root.iterdir())
        output, errors = self.run_program(*arguments, status=status)
        self.assertEqual(output, "")
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)
        self.assertEqual(sorted(self.root.iterdir()), before)

    def varied(self, change):
        """Refuses a copy of the exported model that `change` has been at."""
        folder = self.root / "varied"
        shutil.copytree(self.exported, folder)
        try:
            parts = change(folder)
            self.refused(*parts, arguments=[IMPORT, "--from", "hugging-face", folder, "--output", self.root / "refused"])
        finally:
            shutil.rmtree(folder)

    def test_what_cannot_be_represented_is_refused_by_its_key(self):
        for key, value in [("model_type", "bart"), ("normalize_before", True), ("normalize_embedding", True),
                           ("static_position_embeddings", False), ("activation_function", "tanh"), ("d_model", 193),
                           ("d_model", "wide"), ("decoder_ffn_dim", 5), ("decoder_attention_heads", 3),
                           ("encoder_layers", -1), ("vocab_size", 10**15), ("eos_token_id", 5), ("pad_token_id", -4),
                           ("decoder_start_token_id", 10**9), ("quantization_config", {}), ("dropout", 7)]:
            with self.subTest(key=key, value=value):
                def change(folder):
                    config = json.loads((folder / "config.json").read_text())
                    config[key] = value
                    (folder / "config.json").write_text(json.dumps(config))
                    return ["'" + key + "'" if key not in ("dropout", "encoder_layers") else key, "config.json"]
                self.varied(change)

        def banned(folder):
            (folder / "generation_config.json").write_text('{"bad_words_ids": [[0], [5]]}')
            return ["generation_config.json", "bad_words_ids"]

        def renormalised(folder):
            (folder / "generation_config.json").write_text('{"renormalize_logits": true, "min_length": 5}')
            return ["generation_config.json", "'renormalize_logits' is true beside 'min_length'"]

        for key, value in [("do_sample", True), ("num_beam_groups", 2), ("num_return_sequences", 2), ("suppress_tokens", [7]),
                           ("begin_suppress_tokens", [7]), ("sequence_bias", [[[7], -1.0]]), ("forced_decoder_ids", [[1, 7]]),
                           ("force_words_ids", [[7]]), ("encoder_no_repeat_ngram_size", 2), ("encoder_repetition_penalty", 1.5),
                           ("exponential_decay_length_penalty", [5, 1.1]), ("max_time", 1.5),
                           ("penalty_alpha", 0.6), ("guidance_scale", 2), ("stop_strings", "."), ("repetition_penalty", 0.5),
                           ("repetition_penalty", 1.5), ("no_repeat_ngram_size", -1), ("max_length", 2), ("max_new_tokens", 0),
                           ("min_length", 10**9), ("min_new_tokens", -1), ("eos_token_id", [2, 7]),
                           ("forced_eos_token_id", 7), ("decoder_start_token_id", 7), ("max_length", "long")]:
            with self.subTest(key=key, value=value):
                def change(folder):
                    file = folder / "generation_config.json"
                    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))  # which searches greedily
                    return ["generation_config.json", f"'{key}'"]
                self.varied(change)

        for file, key, value in [("tokenizer_config.json", "tokenizer_class", "SomethingElse"),
                                 ("tokenizer_config.json", "tokenizer_class", "MBartTokenizer"),
                                 ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["own.Tokenizer", None]}),
                                 ("tokenizer_config.json", "auto_map", ["own.Tokenizer", None]),
                                 ("tokenizer_config.json", "bos_token", "ice"), ("tokenizer_config.json", "answer_token", "ice"),
                                 ("tokenizer_config.json", "mask_token", {"content": "day", "lstrip": False}),
                                 ("tokenizer_config.json", "model_specific_special_tokens", {"answer": "ice"}),
                                 ("special_tokens_map.json", "cls_token", "ice"), ("special_tokens_map.json", "sep_token", "ice"),
                                 ("special_tokens_map.json", "pad_token", "ice"),
                                 ("added_tokens.json", "ice", 17), ("added_tokens.json", "<pad>", 17)]:
            with self.subTest(file=file, key=key, value=value):
                def change(folder):
                    self.say(folder / file, **{key: value})
                    return [file, f"'{key}'"]
                self.varied(change)

        def class_of_the_model(folder):
            self.say(folder / "tokenizer_config.json", tokenizer_class=None)
            self.say(folder / "config.json", tokenizer_class="BartTokenizer")
            return ["config.json", "'tokenizer_class' is 'BartTokenizer'; MarianTokenizer is"]

        def added(folder):
            file = folder / "tokenizer_config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"extra_special_tokens": ["<mask>"]}))
            return ["extra_special_tokens"]

        def matrices(folder):
            weights = safetensors.numpy.load_file(folder / "model.safetensors")
            weights["lm_head.weight"] = weights["model.shared.weight"] + 1
            safetensors.numpy.save_file(weights, folder / "model.safetensors")
            return ["'lm_head.weight' should be one matrix"]

        def unknown_weights(folder):
            weights = safetensors.numpy.load_file(folder / "model.safetensors")
            weights["model.encoder.layer_norm.weight"] = weights["final_logits_bias"]
            safetensors.numpy.save_file(weights, folder / "model.safetensors")
            return ["'model.encoder.layer_norm.weight'"]

        for change in (banned, renormalised, class_of_the_model, added, matrices, unknown_weights):
            with self.subTest(change=change.__name__):
                self.varied(change)

    @staticmethod
    def say(file, **settings):
        """Adds settings to a JSON file, or makes one of them."""
        file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | settings))

    def test_tokens_that_every_text_may_have_come_in(self):
        folder, output = self.root / "usual", self.root / "of-usual"
        shutil.copytree(self.exported, folder)
        self.say(folder / "tokenizer_config.json", tokenizer_class="MarianTokenizerFast", add_bos_token=False, bos_token="<s>",
                 sep_token="</s>", cls_token=None, mask_token={"content": "<mask>"}, auto_map={})
        self.say(folder / "special_tokens_map.json", pad_token={"content": "<pad>"}, eos_token="</s>", unk_token="<unk>")
        self.run_program(IMPORT, "--from", "hugging-face", folder, "--output", output)
        for name in ("source.model", "target.model"):
            self.assertEqual((output / name).read_bytes(), (self.imported / name).read_bytes())
        shutil.rmtree(folder)
        shutil.rmtree(output)

    def test_a_tokenizer_that_transformers_saved_with_such_tokens_comes_in(self):
        folder, output = self.root / "saved", self.root / "of-saved"
        shutil.copytree(self.exported, folder)
        tokenizer = transformers.MarianTokenizer.from_pretrained(self.exported, mask_token="<mask>", bos_token="<s>")
        tokenizer.save_pretrained(folder)
        self.assertIn("<mask>", (folder / "added_tokens.json").read_text())
        self.run_program(IMPORT, "--from", "hugging-face", folder, "--output", output)
        for name in ("source.model", "target.model"):
            self.assertEqual((output / name).read_bytes(), (self.imported / name).read_bytes())
        shutil.rmtree(folder)
        shutil.rmtree(output)

    def test_files_of_many_values_are_refused_while_they_are_read(self):
        for name, begin, count in (("vocab.json", "[", 4_000_001), ("config.json", '{"architectures": [', 1_000_000)):
            with self.subTest(file=name):
                def change(folder):
                    (folder / name).write_text(begin + "0," * count + "0]" + "}" * (begin[0] == "{"))
                    return [name, f"more than {count} values"]
                self.varied(change)

    def generating(self, **settings):
        """The section `decoding` that is imported of such a generation_config.json."""
        folder, output = self.root / "generating", self.root / "generates"
        shutil.copytree(self.exported, folder)
        file = folder / "generation_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))
        self.run_program(IMPORT, "--from", "hugging-face", folder, "--output", output)
        lines = (output / "config.yaml").read_text().split("\ndecoding:\n")[1].splitlines()
        translations = self.run_program(TRANSLATE, "--model", output, text="\n".join(self.lines[:40]) + "\n")[0].splitlines()
        model = transformers.MarianMTModel.from_pretrained(folder).eval()
        tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
        with torch.inference_mode():
            found = model.generate(**tokenizer(self.lines[:40], return_tensors="pt", padding=True))
        shutil.rmtree(folder)
        shutil.rmtree(output)
        return dict(line.split(": ") for line in map(str.strip, lines)), translations, tokenizer.batch_decode(
            found, skip_special_tokens=True)

    def test_how_a_model_generates_comes_in(self):
        usual = {"beam": "4", "alpha": "1", "length_penalty": "power", "stop": "exact"}
        neutral = {"num_beams": 4, "do_sample": False, "temperature": 0.5, "top_k": 50, "top_p": 0.9, "num_beam_groups": 1,
                   "num_return_sequences": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0,
                   "suppress_tokens": [], "eos_token_id": [2], "sequence_bias": None}
        for settings, expected in (({}, {}), ({"renormalize_logits": True}, {}), ({"max_length": 20}, {"max_length": "18"}),
                                   ({"max_length": None}, {}), ({"max_length": 8}, {"max_length": "6"}),
                                   ({"max_length": 8, "forced_eos_token_id": None}, {"max_length": "7"}),
                                   ({"max_new_tokens": 7}, {"max_length": "6"}), ({"min_length": 14}, {"min_length": "13"}),
                                   ({"min_new_tokens": 13}, {"min_length": "13"}),
                                   ({"repetition_penalty": 2.0}, {"repetition_penalty": "2"}),
                                   ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram": "1"})):
            with self.subTest(settings=settings):
                decoding, ours, theirs = self.generating(**neutral | settings)
                longest = {"max_extra_length": expected.get("max_length", "512")}  # whatever the source's length is
                self.assertEqual(decoding, usual | longest | expected)
                # The two differ in when they end a search.
                self.assertGreaterEqual(sum(a == b for a, b in zip(ours, theirs)), 30)

    def test_a_limit_that_nobody_has_said_is_none(self):
        """Old versions wrote 20 into config.json where nothing else was said."""
        folder, output = self.root / "old", self.root / "of-old"
        for longest, expected in ((20, "max_extra_length: 512"), (21, "max_length: 19")):
            shutil.copytree(self.exported, folder)
            (folder / "generation_config.json").unlink()
            self.say(folder / "config.json", max_length=longest)
            self.run_program(IMPORT, "--from", "hugging-face", folder, "--output", output)
            decoding = (output / "config.yaml").read_text().split("\ndecoding:\n")[1]
            self.assertIn(f"  {expected}\n", decoding)
            self.assertEqual("  max_length:" in decoding, longest == 21)
            shutil.rmtree(folder)
            shutil.rmtree(output)

    def test_output_may_be_as_long_as_the_model_says(self):
        decoding, ours, theirs = self.generating(num_beams=1, min_length=120)
        self.assertEqual(decoding["min_length"], "119")
        self.assertGreaterEqual(sum(a == b for a, b in zip(ours, theirs)), 30)

    def test_front_matter_of_windows(self):
        folder, output = self.root / "windows", self.root / "of-windows"
        shutil.copytree(self.exported, folder)
        (folder / "README.md").write_bytes((folder / "README.md").read_bytes().replace(b"\n", b"\r\n"))
        self.run_program(IMPORT, "--from", "hugging-face", folder, "--output", output)
        described, _ = self.run_program(EVALUATE, "describe", "--model", output, "--format", "json")
        self.assertEqual(json.loads(described)["licence"], "cc-by-4.0")
        shutil.rmtree(folder)
        shutil.rmtree(output)

    def test_damaged_folders_are_refused_in_one_line(self):
        for name in ("config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors"):
            for how in ("missing", "cut", "noise"):
                with self.subTest(file=name, damage=how):
                    def change(folder):
                        damage(folder / name, how)
                        return [name if how != "missing" or name != "model.safetensors" else "safetensors"]
                    self.varied(change)

        # Neither is what cannot be looked at what a model need not have.
        for name in ("generation_config.json", "tokenizer_config.json", "added_tokens.json", "README.md", "source.spm"):
            with self.subTest(file=name):
                def change(folder):
                    (folder / name).unlink(missing_ok=True)
                    (folder / name).symlink_to(name)
                    return [f"{name}: cannot be looked at: "]
                self.varied(change)

        def shard_elsewhere(folder):
            (folder / "model.safetensors").rename(folder / "part")
            (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../exported/model.safetensors"}}')
            return ["weight_map", "../exported"]

        def pickle_that_calls(folder):
            (folder / "model.safetensors").unlink()

            class Call:
                def __reduce__(self):
                    return print, ("called",)
            torch.save({"a": Call()}, folder / "pytorch_model.bin")
            return ["pytorch_model.bin", "print"]

        for change in (shard_elsewhere, pickle_that_calls):
            with self.subTest(change=change.__name__):
                self.varied(change)

    def test_mistakes_are_named(self):
        output = self.root / "other"
        self.refused("nowhere", arguments=[IMPORT, "--from", "hugging-face", self.root / "nowhere", "--output", output])
        self.refused("--from", "hugging-face", arguments=[IMPORT, "--from", "onnx", self.exported, "--output", output])
        self.refused("exists already", arguments=[IMPORT, "--from", "hugging-face", self.exported, "--output", self.imported])
        self.refused("exists already", "--force",
                     arguments=[EXPORT, "--to", "hugging-face", "--model", MODEL, "--output", self.exported])
        self.refused("not replaced", arguments=[EXPORT, "--to", "hugging-face", "--model", MODEL, "--output", self.imported,
                                                "--force"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
