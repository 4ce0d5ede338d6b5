"""What programs say of mistakes, and of strangers' files: messages_test.py TRANSLATE TRAIN SOURCE. Standard library only."""

import shutil
import subprocess
import sys
import unittest

from programs import ENVIRONMENT, ProgramTest

TRANSLATE, TRAIN, SOURCE = sys.argv[1:4]


class MessagesTest(ProgramTest):
    def refused(self, *command, parts, status=2):
        done = subprocess.run([*map(str, command)], input=b"Hello.\n", capture_output=True, env=ENVIRONMENT,
                              cwd=self.root, timeout=120)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, status, message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertTrue(message.rstrip("\n").isprintable(), repr(message))
        self.assertLess(len(message), 5000)
        for part in parts:
            self.assertIn(part, message)

    def test_options(self):
        self.refused(TRANSLATE, "--modle", "x", parts=["'--modle'", "did you mean --model?"])
        self.refused(TRANSLATE, "--model", "x", "--bema=3", parts=["'--bema'", "did you mean --beam?"])
        self.refused(TRANSLATE, "--model", "x", "--beam", "wide",
                     parts=["--beam takes an integer, from 1 to 10000, found 'wide'"])
        self.refused(TRANSLATE, "--model", "x", "--threads", "9" * 25, parts=["--threads takes an integer, from 1 to 1024"])
        self.refused(TRANSLATE, "--model", "x", "--precision", "bf61", parts=["--precision takes one of", "'bf61'"])
        self.refused(TRANSLATE, "--model", parts=["--model needs a value"])
        self.refused(TRANSLATE, parts=["--model is required"])
        self.refused(TRAIN, "a.yaml", "b.yaml", parts=["one argument too many"])

    def test_nothing_reaches_a_terminal_raw(self):
        (self.root / "bad.yaml").write_text(f"model:\n  {'x' * 900000}: 3\n")
        self.refused(TRAIN, "bad.yaml", parts=["bad.yaml"])
        for text in ("\x1b[2J\x1b]0;owned\x07", "a\nb", "\u202etxt.exe", "x" * 120000, "é" * 60000):
            self.refused(TRANSLATE, "--model", text,
                         parts=["is not a model directory" if len(text) < 100 else "File name too long"])
            self.refused(TRANSLATE, f"--{text}", parts=["unknown option"])
            self.refused(TRAIN, f"{SOURCE}/configs/base.yaml", "--set", f"model.d_model={text}", parts=["model.d_model"])

    def test_numbers(self):
        for setting in ("model.d_model=1000000", "model.d_k=9e18", "model.encoder_layers=1e9", "training.bucket_mb=1e300",
                        "training.timeout_seconds=1e18", "training.keep_checkpoints=9e18"):
            self.refused(TRAIN, f"{SOURCE}/configs/base.yaml", "--dry-run", "--set", setting,
                         parts=[setting.split("=")[0], "out of range", "at most" if "bucket" in setting else "from"])

    def test_a_models_settings_belong_to_its_weights(self):
        model = self.root / "model"
        shutil.copytree(f"{SOURCE}/data/model-en-de", model)
        config = (model / "config.yaml").read_text()
        huge = config.replace("heads: 6", "heads: 4611686018427387905", 1).replace("d_k: 32", "d_k: 4")
        (model / "config.yaml").write_text(huge)
        self.refused(TRANSLATE, "--model", model, parts=["config.yaml", "model.heads", "from 1 to 4096"])
        (model / "config.yaml").write_text(config)
        with open(model / "vocabulary.model", "ab") as vocabulary:
            vocabulary.write(b"x")
        self.refused(TRANSLATE, "--model", model, parts=["vocabulary.model", "is damaged"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
