"""What people who run `export` rely on: export_test.py EXPORT TRANSLATE SOURCE_DIR. The shipped model is exported, and
CTranslate2 gives the translations that `translate` gives."""

import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import ctranslate2
import sentencepiece

from programs import ENVIRONMENT, ProgramTest

EXPORT, TRANSLATE, SOURCE = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
MODEL = SOURCE / "data" / "model-en-de"
LINES = 400
ALPHA = 0.6


class ExportTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.exported = cls.root / "exported"
        cls.run_export("--model", MODEL, "--output", cls.exported)
        cls.vocabulary = sentencepiece.SentencePieceProcessor(model_file=str(MODEL / "vocabulary.model"))
        with gzip.open(SOURCE / "data" / "tatoeba-en-de" / "valid.en.gz", "rt", encoding="utf-8") as lines:
            cls.lines = [line.rstrip("\n") for _, line in zip(range(LINES), lines)]

    def test_packed_weights_translate_alike(self):
        sizes = {}
        for precision in ("float32", "bf16", "int8"):
            output = self.root / f"packed-{precision}"
            self.run_export("--model", MODEL, "--output", output, "--precision", precision, to="packed")
            sizes[precision] = (output / "model.safetensors").stat().st_size
            for threads in (1, 3):
                texts = [subprocess.run([TRANSLATE, "--scores", "--threads", str(threads), "--model", *arguments],
                                        input="\n".join(self.lines[:100]) + "\n", capture_output=True, text=True,
                                        check=True, env=ENVIRONMENT).stdout
                         for arguments in ((MODEL, "--precision", precision), (output,))]
                self.assertEqual(*texts)
        self.assertLess(sizes["bf16"], 0.52 * sizes["float32"])
        self.assertLess(sizes["int8"], 0.28 * sizes["float32"])
        # Without a word about it: int8, and the name ends with a slash.
        again = self.root / "packed"
        self.run_export("--model", MODEL, "--output", f"{again}/", to="packed")
        for file in again.iterdir():
            self.assertEqual(file.read_bytes(), (self.root / "packed-int8" / file.name).read_bytes(), file.name)

    def test_packed_models_are_for_decoding_alone(self):
        packed = self.root / "for-decoding"
        self.run_export("--model", MODEL, "--output", packed, to="packed")
        for to in ("packed", "ctranslate2"):
            _, error = self.run_export("--model", packed, "--output", self.root / "never", to=to, status=2)
            self.assertIn("packed for decoding", error)
            self.assertEqual(error.count("\n"), 1)
        _, error = self.run_export("--model", MODEL, "--output", packed, to="packed", status=2)
        self.assertIn("exists already", error)
        (packed / "letter.txt").write_text("mine")
        _, error = self.run_export("--model", MODEL, "--output", packed, "--force", to="packed", status=2)
        self.assertIn("letter.txt", error)
        (packed / "letter.txt").unlink()
        self.run_export("--model", MODEL, "--output", packed, "--force", to="packed")
        _, error = self.run_export("--model", MODEL, "--output", self.root / "never", "--precision", "int8", status=2)
        self.assertIn("--precision", error)
        self.assertEqual(sorted(path.name for path in self.root.glob("*never*")), [])
        with open(packed / "model.safetensors", "r+b") as file:  # a bit falls over
            file.seek(100000)
            byte = file.read(1)[0]
            file.seek(100000)
            file.write(bytes([byte ^ 1]))
        done = subprocess.run([TRANSLATE, "--model", packed], input="Yes.\n", capture_output=True, text=True,
                              env=ENVIRONMENT)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("model.safetensors", done.stderr)

    @staticmethod
    def run_export(*arguments, status=0, to="ctranslate2"):
        done = subprocess.run([EXPORT, "--to", to, *map(str, arguments)], capture_output=True, text=True,
                              env=ENVIRONMENT, timeout=120)
        assert done.returncode == status, f"ended with {done.returncode}: {done.stderr}"
        return done.stdout, done.stderr

    def ours(self, *arguments):
        """(score, text) of every line, by `translate` with CTranslate2's length penalty and stopping rule."""
        done = subprocess.run(
            [TRANSLATE, "--model", MODEL, "--scores", "--length-penalty", "power", "--stop", "beam_finished",
             "--alpha", str(ALPHA), "--max-extra-length", "300", *map(str, arguments)],
            input="\n".join(self.lines) + "\n", capture_output=True, text=True, check=True, env=ENVIRONMENT,
            timeout=600)
        pairs = [line.split("\t", 1) for line in done.stdout.splitlines()]
        return [(float(score), text) for score, text in pairs]

    def theirs(self, **options):
        translator = ctranslate2.Translator(str(self.exported), compute_type=options.pop("compute_type", "float32"),
                                            inter_threads=1, intra_threads=1)
        # With the end returned, a hypothesis's length counts it, as ours does. A minimum of 1, the default, would take
        # the end's probability at the first step away and raise all others'.
        results = translator.translate_batch(
            self.vocabulary.encode(self.lines, out_type=str), length_penalty=ALPHA, min_decoding_length=0,
            max_decoding_length=300, return_scores=True, return_end_token=True, max_batch_size=32, **options)
        end = self.vocabulary.id_to_piece(self.vocabulary.eos_id())
        best = []
        for result in results:
            self.assertEqual(result.hypotheses[0][-1], end, "a translation was cut")
            best.append((result.scores[0], self.vocabulary.decode(result.hypotheses[0][:-1])))
        return best

    def test_same_translations(self):
        for beam in (4, 1):
            with self.subTest(beam=beam):
                ours, theirs = self.ours("--beam", beam), self.theirs(beam_size=beam)
                self.assertEqual(len(ours), LINES)
                self.assertGreater(len({text for _, text in ours}), LINES // 2)
                self.assertEqual([text for _, text in ours], [text for _, text in theirs])
                for (our_score, text), (their_score, _) in zip(ours, theirs):
                    self.assertAlmostEqual(our_score, their_score, delta=2e-5, msg=text)

    def test_rounded_to_integers(self):
        """The file serves CTranslate2's int8, too: it rounds while it loads."""
        exact, rounded = self.theirs(beam_size=1), self.theirs(beam_size=1, compute_type="int8")
        same = sum(a[1] == b[1] for a, b in zip(exact, rounded))
        self.assertGreater(same, 0.7 * LINES)

    def test_files(self):
        self.assertEqual(sorted(file.name for file in self.exported.iterdir()),
                         ["config.json", "model.bin", "shared_vocabulary.json", "vocabulary.model"])
        pieces = json.loads((self.exported / "shared_vocabulary.json").read_text())
        self.assertEqual(pieces, [self.vocabulary.id_to_piece(i) for i in range(self.vocabulary.get_piece_size())])

    def assert_refused(self, *parts, arguments, to="ctranslate2"):
        before = sorted(self.root.iterdir())
        output, errors = self.run_export(*arguments, status=2, to=to)
        self.assertEqual(output, "")
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)
        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_existing_folders(self):
        output = self.root / "again"
        self.run_export("--model", MODEL, "--output", output)
        self.assert_refused("again", "exists", "--force", arguments=["--model", MODEL, "--output", output])
        (output / "model.bin").write_bytes(b"older")
        self.run_export("--model", MODEL, "--output", output, "--force")
        self.assertEqual((output / "model.bin").read_bytes(), (self.exported / "model.bin").read_bytes())
        self.assert_refused("not replaced", arguments=["--model", MODEL, "--output", self.root, "--force"])
        self.assertTrue(output.exists())

    def test_what_people_said_in_a_folder_for_transformers_is_not_replaced(self):
        output = self.root / "for-transformers"
        again = ["--model", MODEL, "--output", output, "--force"]
        self.run_export("--model", MODEL, "--output", output, to="hugging-face")
        self.run_export(*again, to="hugging-face")
        for name, key, value in (("generation_config.json", "num_beams", 6), ("tokenizer_config.json", "model_max_length", 256),
                                 ("tokenizer_config.json", "separate_vocabs", "no")):
            with self.subTest(file=name, key=key):
                own = (output / name).read_text()
                changed = json.dumps(json.loads(own) | {key: value}, indent=2)
                (output / name).write_text(changed)
                self.assert_refused(name, "not replaced", "move it away", arguments=again, to="hugging-face")
                self.assertEqual((output / name).read_text(), changed)
                (output / name).write_text(own)
        # What another model's export has written is an export's as well.
        config = json.loads((output / "tokenizer_config.json").read_text()) | {"separate_vocabs": True, "pad_token": "<blänk>"}
        (output / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        (output / "generation_config.json").unlink()
        self.run_export(*again, to="hugging-face")
        self.assertEqual(json.loads((output / "tokenizer_config.json").read_text())["pad_token"], "<pad>")
        shutil.rmtree(output)

    @staticmethod
    def say_trained_with(weights, setting):
        data = weights.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        header["__metadata__"]["model_settings"] += f"{setting}\n"
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        weights.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size:])

    def test_mistakes_are_named(self):
        output = self.root / "refused"
        self.assert_refused("--to", "ctranslate2", arguments=["--model", MODEL, "--output", output], to="onnx")
        self.assert_refused("nowhere", arguments=["--model", self.root / "nowhere", "--output", output])
        for setting, part in [("attention_window: 8", "model.attention_window"),
                              ("compatibility: additive", "model.compatibility"),
                              ("feed_forward: attention_over_parameters", "model.feed_forward")]:
            with self.subTest(setting=setting), tempfile.TemporaryDirectory() as folder:
                varied = pathlib.Path(folder) / "model"
                shutil.copytree(MODEL, varied)
                (varied / "checksums.xxh128").unlink()
                self.say_trained_with(varied / "model.safetensors", setting)
                config = (varied / "config.yaml").read_text()
                name = setting.split(":")[0]
                changed, count = re.subn(f"(?m)^  {name}: .*$", f"  {setting}", config)
                self.assertEqual(count, 1)
                (varied / "config.yaml").write_text(changed)
                self.assert_refused(part, "CTranslate2", arguments=["--model", varied, "--output", output])

    def test_folder_that_cannot_be_made(self):
        blocked = self.root / "file"
        blocked.write_text("")
        _, errors = self.run_export("--model", MODEL, "--output", blocked / "below", status=2)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("file", errors)
        blocked.unlink()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
