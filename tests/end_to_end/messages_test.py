"""What programs say of mistakes, and of strangers' files: messages_test.py TRANSLATE TRAIN SOURCE. The other programs lie
beside these. Standard library only."""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time
import unittest

from programs import ENVIRONMENT, ProgramTest

TRANSLATE, TRAIN, SOURCE = sys.argv[1:4]
MODEL = f"{SOURCE}/data/model-en-de"
# Of every program and command: what it is given besides, its inputs by their options, and where its output goes; an
# output that has to be given comes with "!".
GOOD = {
    "translate": (["--model", MODEL, "--beam", "1"], {"--input": "text.en"}, "--output"),
    "attend": (["--model", MODEL, "--beam", "1", "--format", "json"], {"--input": "text.en"}, "--output"),
    "distill": (["--model", MODEL, "--n-best", "2", "--bad-lines", "stop"], {"--source": "text.en", "--target": "text.de"},
                "--output!"),
    "shortlist": (["--model", MODEL], {"--source": "text.en", "--target": "text.de"}, "--output!"),
    "evaluate bleu": ([], {"--input": "text.de", "--reference": "text.de"}, ""),
    "evaluate chrf": ([], {"--input": "text.de", "--reference": "text.de"}, ""),
    "evaluate compare": (["--samples", "9"], {"--reference": "text.de", "--baseline": "text.de", "--system": "text.de"}, ""),
    "evaluate perplexity": (["--model", MODEL], {"--source": "text.en", "--target": "text.de"}, ""),
    "evaluate score": (["--model", MODEL], {"--source": "text.en", "--target": "text.de"}, ""),
    "evaluate rescore": (["--model", MODEL], {"--source": "text.en", "--input": "list"}, ""),
    "evaluate mbr": ([], {"--input": "list"}, ""),
    "evaluate brackets": ([], {"--input": "trees", "--reference": "trees"}, ""),
    "evaluate describe": ([], {"--model": MODEL}, ""),
    "treebank words": ([], {"": "trees"}, "--output"),
    "treebank linearize": ([], {"": "trees"}, "--output"),
    "treebank clean": ([], {"": "trees"}, "--output"),
    "export": (["--to", "packed"], {"--model": MODEL}, "--output!"),
    "import": (["--from", "marian"], {"": "list"}, "--output!"),
    "average": ([], {"": MODEL}, "--output!"),
    "train": (["--dry-run"], {"": "my.yaml"}, ""),
    "sweep": (["--dry-run"], {"": "grid.yaml"}, ""),
    "serve": (["--port", "0"], {"--model": MODEL}, ""),
}
TEXTS = ("text.en", "text.de", "list", "trees")


class MessagesTest(ProgramTest):
    def refused(self, *command, parts, status=2, stdin=None, stdout=subprocess.PIPE):
        given = {"input": b"Hello.\n"} if stdin is None else {"stdin": stdin}
        done = subprocess.run([*map(str, command)], **given, stdout=stdout, stderr=subprocess.PIPE, env=ENVIRONMENT,
                              cwd=self.root, timeout=120)
        message = done.stderr.decode()
        self.assertIn(done.returncode, status if isinstance(status, tuple) else (status,), message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertTrue(message.rstrip("\n").isprintable(), repr(message))
        self.assertLess(len(message), 5000)
        for part in parts:
            self.assertIn(str(part), message)

    def files(self):
        for name, text in (("text.en", "Good morning.\nGood evening.\n"), ("text.de", "Guten Morgen.\nGuten Abend.\n"),
                           ("list", "0 ||| a ||| -1\n1 ||| b ||| -2\n"), ("trees", "(ROOT (S (NP (NN a)) (VP (VB b))))\n"),
                           ("grid.yaml", "base: my.yaml\noutput: swept\nrows: [{name: a}]\n"),
                           ("my.yaml", "data: {train_source: [text.en], train_target: [text.de]}\n"
                                       "model: {vocabulary_size: 300}\n")):
            (self.root / name).write_text(text)
        (self.root / "bad").write_bytes(b"Good morning.\nb\xff\xfed\n")
        (self.root / "folder").mkdir(exist_ok=True)

    def each(self):
        """Every program's command without its inputs and its output, these, and the output's option."""
        for name, (arguments, inputs, output) in GOOD.items():
            program, *command = name.split()
            path = pathlib.Path(TRANSLATE).parent / program
            if path.exists():  # some need LibTorch
                yield [path, *command, *arguments], inputs, output

    @staticmethod
    def given(inputs, *output):
        return [word for pair in inputs.items() for word in pair if word] + list(output)

    def test_every_program_names_an_option_that_there_is_not(self):
        self.files()
        for command, inputs, output in self.each():
            with self.subTest(command=command[:2]):
                out = [output[:-1], "out"] if output.endswith("!") else []
                self.refused(*command, *self.given(inputs, *out), "--unknwon", parts=["unknown option '--unknwon'"])

    def test_every_program_names_inputs_that_cannot_be_used(self):
        self.files()
        before = sorted(self.root.iterdir())
        for command, inputs, output in self.each():
            out = [output[:-1], "out"] if output.endswith("!") else []
            for option, file in inputs.items():
                for bad in ("missing", "folder", *(["bad"] if file in TEXTS else [])):
                    if bad == "folder" and (file.startswith(SOURCE) or command[0].name == "import"):
                        continue  # another kind of folder
                    with self.subTest(command=command[:2], option=option, file=bad):
                        keeps = (command[0].name, bad) == ("distill", "bad")  # what is done before that line
                        named = "not UTF-8" if (bad, option) == ("bad", "--target") else bad
                        self.refused(*command, *self.given({**inputs, option: bad}, *out), parts=[named])
                        if keeps:
                            shutil.rmtree(self.root / "out")
                        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_every_program_says_what_cannot_be_written(self):
        self.files()
        (self.root / "circle").symlink_to("circle")
        before = sorted(self.root.iterdir())
        for command, inputs, output in self.each():
            for place in ("text.en/out", "/proc/self/nothing/out") if output and command[0].name != "import" else ():
                with self.subTest(command=command[:2], output=place):
                    self.refused(*command, *self.given(inputs, output.rstrip("!"), place), parts=[place], status=(1, 2))
            for place in ("x" * 256, "circle") if output and command[0].name != "import" else ():
                with self.subTest(command=command[:2], output=place):
                    self.refused(*command, *self.given(inputs, output.rstrip("!"), place), parts=[place])
            if not output.endswith("!") and command[0].name != "serve":
                for words in (self.given(inputs), ["--help"]):
                    with self.subTest(command=command[:2], words=words), open("/dev/full", "wb") as full:
                        self.refused(*command, *words, parts=["standard output"], status=1, stdin=subprocess.DEVNULL,
                                     stdout=full)
            self.assertEqual(sorted(self.root.iterdir()), before)
            self.assertEqual((self.root / "text.en").read_text(), "Good morning.\nGood evening.\n")

    def test_no_output_replaces_what_is_read(self):
        self.files()
        model = self.root / "copied"
        shutil.copytree(MODEL, model)
        (self.root / "wishes").write_text("gut\n" * 2)
        # What an output is called meanwhile is its own.
        unfinished = ["new.partial", "new.partial.journal"]
        for name in unfinished:
            shutil.copy(self.root / "text.en", self.root / name)
        before = {file: file.read_bytes() for file in self.root.rglob("*") if file.is_file()}
        wishes = [(["translate", "--model", model, "--input", "text.en", option, "wishes"], "--output", "wishes")
                  for option in ("--prefix", "--require", "--forbid", "--bias", "--glossary", "--shortlist")]
        wishes += [(["translate", "--model", model, "--input", name], "--output", "new") for name in unfinished]
        models = [(command, option, model / name)
                  for name in ("config.yaml", "model.safetensors", "vocabulary.model", "checksums.xxh128")
                  for command, option in ((["translate", "--model", model, "--input", "text.en"], "--output"),
                                          (["translate", "--model", model, "--input", "text.en"], "--alignments"),
                                          (["attend", "--model", model, "--format", "json", "Hi."], "--output"),
                                          (["parse", "--model", model, "--input", "text.en"], "--output"),
                                          (["shortlist", "--model", model, "--source", "text.en", "--target", "text.de"],
                                           "--output"),
                                          (["evaluate", "speed", model, "--source", "text.en", "--reference", "text.de"],
                                           "--picture"))]
        programs = pathlib.Path(TRANSLATE).parent
        for (program, *command), option, place in wishes + models:
            with self.subTest(command=[program, *command], option=option, place=place):
                self.refused(programs / program, *command, option, place, parts=[pathlib.Path(place).name, "read as well"])
                self.assertEqual({file: file.read_bytes() for file in self.root.rglob("*") if file.is_file()}, before)
        # A page of settings stands alone: whatever else is named may read it, or name files that do.
        for program, *given in (["train", "my.yaml"], ["serve", "my.yaml"], ["serve", "--api-keys", "my.yaml"],
                                ["train", "--init-from", "folder"], ["serve", "--model", model]):
            with self.subTest(program=program, given=given):
                self.refused(programs / program, *given, "--settings-reference", "my.yaml",
                             parts=["--settings-reference", "stands alone", *given[-2:-1]])
                self.assertEqual({file: file.read_bytes() for file in self.root.rglob("*") if file.is_file()}, before)
        # A folder's other files may be replaced.
        for _ in range(2):
            subprocess.run([programs / "translate", "--model", model, "--beam", "1", "--input", "text.en", "--output",
                            model / "mine.de"], check=True, cwd=self.root, env=ENVIRONMENT, timeout=120)
        # Nor one that a shell gives as standard input, or opens as standard output.
        for command, file, options in (([TRANSLATE, "--model", MODEL], "text.en", ([], ["--input", "-"])),
                                       ([programs / "attend", "--model", MODEL, "--format", "json"], "text.en", ([],)),
                                       ([programs / "parse", "--model", MODEL], "text.en", ([],)),
                                       ([programs / "treebank", "words", "-"], "trees", ([],))):
            for option in options:
                with self.subTest(command=command, option=option), open(self.root / file) as given:
                    self.refused(*command, *option, "--output", file, parts=[file, "read as well"], stdin=given)
            with self.subTest(command=command), open(self.root / file) as given, open(self.root / file, "a") as appended:
                self.refused(*command, parts=["read as well"], stdin=given, stdout=appended)
        with open(self.root / "text.en", "a") as appended:
            self.refused(TRANSLATE, "--model", MODEL, "--input", "text.en", parts=["read as well"], stdout=appended)
        for command, file in (("score --source text.en --target text.de", "text.de"),
                              ("rescore --source text.en --input list", "list")):
            with self.subTest(command=command), open(self.root / file, "a") as appended:
                self.refused(programs / "evaluate", *command.split(), "--model", MODEL, parts=["read as well"],
                             stdout=appended)
        with open(self.root / "list", "a") as appended:
            self.refused(programs / "evaluate", "mbr", "--input", "list", parts=["read as well"], stdout=appended)
        self.assertEqual({file: file.read_bytes() for file in before}, before)
        self.refused(programs / "translate", "--model", MODEL, "--output", "nowhere/out", parts=["nowhere", "no folder"])
        self.refused(programs / "translate", "--model", MODEL, "--output", "folder", parts=["folder", "name a file"])

    def test_a_file_without_a_name_is_no_standard_stream(self):
        self.files()
        for (program, *command), option in (((TRANSLATE, "--model", MODEL), "--input"), ((TRANSLATE, "--model", MODEL), "--output"),
                                            ((TRANSLATE,), "--model"), ((TRAIN, "my.yaml"), "--output"),
                                            ((TRAIN, "my.yaml"), "--from"), ((TRAIN, "my.yaml"), "--device"),
                                            ((TRAIN, "my.yaml"), "--threads")):
            with self.subTest(option=option):
                self.refused(program, *command, option, "", parts=[option, "is empty"])

    def test_arguments_that_are_nothing_are_no_others(self):
        programs = pathlib.Path(TRANSLATE).parent
        for program, *arguments in (("treebank", "words", ""), ("treebank", "words", "a", ""), ("import", "--from", "marian", ""),
                                    ("attend", "--model", MODEL, "", "Gut."), ("attend", "--model", MODEL, "Good.", ""),
                                    ("train", ""), ("report", "")):
            with self.subTest(program=program, arguments=arguments):
                self.refused(programs / program, *arguments, parts=["is empty"])

    def test_a_folder_is_no_standard_stream(self):
        self.files()
        programs = pathlib.Path(TRANSLATE).parent
        before = sorted(self.root.iterdir())
        for program, *arguments in (("average", "--output", "-", MODEL), ("train", "my.yaml", "--output", "-"),
                                    ("export", "--model", MODEL, "--to", "packed", "--output", "-"),
                                    ("distill", "--model", MODEL, "--source", "text.en", "--output", "-"),
                                    ("translate", "--model", "-")):
            with self.subTest(program=program):
                self.refused(programs / program, *arguments, parts=["is a folder", "./-"])
        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_an_option_with_nothing_behind_its_sign_takes_no_other_word(self):
        for program, option in ((TRANSLATE, "--beam"), (TRANSLATE, "--input"), (TRAIN, "--set")):
            with self.subTest(option=option):
                self.refused(program, "--model" if program == TRANSLATE else "my.yaml", MODEL, f"{option}=", "--threads", "1",
                             parts=[f"{option}: is empty"])

    def test_standard_streams_that_are_closed_stay_closed(self):
        for stream, name in ((0, "standard input"), (1, "standard output")):
            with self.subTest(stream=name):
                done = subprocess.run([TRANSLATE, "--model", MODEL, "--beam", "1"], input=b"Good morning.\n",
                                      stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=120,
                                      preexec_fn=lambda: os.close(stream))
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{name}: cannot be".encode(), done.stderr)
        # What a program opens lies elsewhere: this one waits for its input.
        process = subprocess.Popen([TRANSLATE, "--model", MODEL, "--beam", "1", "--output", "out"], stdin=subprocess.PIPE,
                                   env=ENVIRONMENT, cwd=self.root, preexec_fn=lambda: (os.close(1), os.close(2)))
        self.addCleanup(process.communicate, timeout=120)
        until = time.monotonic() + 60
        while not list(self.root.glob("out.*")) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual({os.readlink(f"/proc/{process.pid}/fd/{stream}") for stream in (1, 2)}, {"/dev/null"})

    def test_numbers_are_spelled_as_in_settings(self):
        programs = pathlib.Path(TRANSLATE).parent
        (self.root / "one").write_text("Good morning.\n")
        for beam in ("010", "1e1"):
            done = subprocess.run([TRANSLATE, "--model", MODEL, "--beam", beam, "--n-best", beam, "--threads", "01", "--input",
                                   "one"], cwd=self.root, env=ENVIRONMENT, capture_output=True, timeout=120)
            self.assertEqual((done.returncode, done.stdout.count(b"\n")), (0, 10), done.stderr)
        for option, value in (("--beam", "0x10"), ("--beam", "2.5"), ("--beam", "nan"), ("--threads", "0x1"), ("--threads", ""),
                              ("--threads", "2000"), ("--alpha", "nan"), ("--alpha", "0x1p3"), ("--seed", "-1")):
            with self.subTest(option=option, value=value):
                self.refused(TRANSLATE, "--model", MODEL, option, value, parts=[option, "takes"])
        self.refused(programs / "shortlist", "--least", "nan", parts=["--least takes", "from 0 to 1"])

    def test_a_file_that_may_not_grow_is_told_of(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        done = subprocess.run([pathlib.Path(TRANSLATE).with_name("treebank"), "words", "--output", "out", "-"], cwd=self.root,
                              input=b"(ROOT (X a))\n" * 10000, env=ENVIRONMENT, capture_output=True, timeout=120, preexec_fn=limited)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"cannot write out: File too large", done.stderr)
        self.assertFalse((self.root / "out").exists())

    @unittest.skipIf("ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ, "takes more addresses than a limit allows")
    def test_threads_that_cannot_be_started_are_told_of(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))

        done = subprocess.run([TRANSLATE, "--model", MODEL, "--threads", "1000"], cwd=self.root, input=b"Good morning.\n",
                              env=ENVIRONMENT, capture_output=True, timeout=120, preexec_fn=limited)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, rb"^translate: error: threads: \d+ of 1000 could be started: ")
        self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_mistakes_of_commands_lead_to_their_own_help(self):
        evaluate = pathlib.Path(TRANSLATE).with_name("evaluate")
        self.refused(evaluate, "bleu", parts=["--reference", "see evaluate bleu --help"])
        self.refused(evaluate, parts=["see evaluate --help"])

    def test_a_text_without_lines_has_no_perplexity(self):
        (self.root / "empty").write_text("")
        self.refused(pathlib.Path(TRANSLATE).with_name("evaluate"), "perplexity", "--model", MODEL, "--source", "empty",
                     "--target", "empty", parts=["--source", "no line"])

    def test_short_options_of_train_are_settings(self):
        self.files()
        for option, value in (("--threads", "many"), ("--precision", "bf61"), ("--device", "gpu")):
            self.refused(TRAIN, "my.yaml", "--dry-run", option, value,
                         parts=[option[2:], f"'{value}'"])

    def test_options(self):
        self.refused(TRANSLATE, "--modle", "x", parts=["'--modle'", "did you mean --model?"])
        self.refused(TRANSLATE, "--model", "x", "--bema=3", parts=["'--bema'", "did you mean --beam?"])
        self.refused(TRANSLATE, "--model", "x", "--beam", "wide",
                     parts=["--beam takes an integer, from 1 to 10000, found 'wide'"])
        self.refused(TRANSLATE, "--model", "x", "--threads", "9" * 25, parts=["--threads takes an integer, from 1 to 1024"])
        self.refused(TRANSLATE, "--model", "x", "--precision", "bf61", parts=["--precision takes one of", "'bf61'"])
        for truth in ("", "7", "on", "-"):
            self.refused(TRANSLATE, "--model", "x", "--write-unknown", truth,
                         parts=[f"--write-unknown takes true or false, found '{truth}'"])
        self.refused(TRANSLATE, "--model", parts=["--model needs a value"])
        self.refused(TRANSLATE, parts=["--model is required"])
        self.refused(TRAIN, "my.yaml", "--steps", "20", parts=["--steps", "write --set training.steps=VALUE"])
        self.refused(TRAIN, "--d-model=3", "my.yaml", parts=["write --set model.d_model=VALUE"])
        self.refused(pathlib.Path(TRANSLATE).parent / "sweep", "grid.yaml", "--beam", "3",
                     parts=["write --set decoding.beam=VALUE"])
        self.refused(pathlib.Path(TRANSLATE).parent / "evaluate", "bleu", "--ref", "x",
                     parts=["'--ref'", "did you mean --reference?"])
        self.refused(TRANSLATE, "--completion", "zsh", parts=["--completion takes one of: bash, found 'zsh'"])
        self.refused(TRAIN, "a.yaml", "b.yaml", parts=["one argument too many; see train --help"])
        self.refused(pathlib.Path(TRANSLATE).parent / "average", "--last", "5", "--output", "mean", "missing",
                     parts=["missing: is not a folder; name a run"])
        for program in ("translate", "parse"):
            self.refused(pathlib.Path(TRANSLATE).parent / program, "--model", MODEL, "in.en",
                         parts=["'in.en' is one argument too many; a file to read is named with --input"])
        self.refused(TRAIN, "a.yaml", "--", "--steps", "20", parts=["'--steps' is one argument too many; see train --help"])

    def test_the_shipped_weights_are_refused_with_other_settings(self):
        other = self.root / "other"
        shutil.copytree(MODEL, other)
        config = (other / "config.yaml").read_text()
        for before, after in (("activation: relu", "activation: gelu"), ("heads: 6", "heads: 3"),
                              ("attention_window: 0", "attention_window: 4")):
            self.assertIn(before, config)
            (other / "config.yaml").write_text(config.replace(before, after))
            self.refused(TRANSLATE, "--model", other, parts=["is not what these weights were trained with"])
        for part, changes in (("decoding.n_best: 3 best", (("  beam: 4", "  beam: 1"), ("  n_best: 1", "  n_best: 3"))),
                              ("model.d_k: heads (5)", (("  d_k: 32", "  d_k: 0"), ("  heads: 6", "  heads: 5")))):
            changed = config
            for before, after in changes:
                self.assertIn(before, changed)
                changed = changed.replace(before, after)
            (other / "config.yaml").write_text(changed)
            self.refused(TRANSLATE, "--model", other, parts=[f"{other}/config.yaml: {part}"])

    def test_a_damaged_vocabulary_is_called_damaged_and_not_another(self):
        self.files()
        damaged = self.root / "damaged"
        shutil.copytree(MODEL, damaged)
        file = damaged / "vocabulary.model"
        data = bytearray(file.read_bytes())
        place = data.index("\u2581the".encode()) + 3
        data[place] ^= 1
        file.write_bytes(data)
        said = [f"{file}: is damaged: its checksum is not the one in {damaged}/checksums.xxh128"]
        programs = pathlib.Path(TRANSLATE).parent
        for command in ((TRANSLATE, "--model", damaged), (TRANSLATE, "--model", MODEL, "--model", damaged),
                        (TRANSLATE, "--model", damaged, "--model", MODEL),
                        (TRANSLATE, "--model", MODEL, "--beam", 1, "--draft", damaged),
                        (programs / "average", "--output", "mean", MODEL, damaged),
                        (programs / "average", "--output", "mean", damaged, MODEL),
                        (programs / "shortlist", "--model", damaged, "--source", "text.en", "--target", "text.de",
                         "--output", "list.safetensors")):
            self.refused(*command, parts=said)
        self.assertFalse((self.root / "mean").exists() or (self.root / "list.safetensors").exists())

    def test_commands(self):
        def refused(program, *arguments, part):
            self.refused(pathlib.Path(TRANSLATE).parent / program, *arguments, parts=[part])

        refused("evaluate", part="a command is missing: bleu, ")
        refused("evaluate", "bleuu", "--reference", "x", part="unknown command 'bleuu'; did you mean bleu?")
        refused("treebank", "wrds", "x.gz", part="unknown command 'wrds'; did you mean words?")
        refused("evaluate", "--reference", "in.en", "bleu",
                part="--reference belongs behind the command: evaluate bleu --reference ...")
        refused("evaluate", "--reference=in.en", part="--reference belongs behind the command: evaluate COMMAND --reference ...")
        refused("evaluate", "--hlep", "bleu", part="unknown option '--hlep'")
        refused("evaluate", "bleu", "--reference", "x", "y", "z", part="'y' is one argument too many")
        refused("evaluate", "bleu", "--", "--reference", "x", part="--reference is required; see evaluate bleu --help")
        refused("evaluate", "bleu", "--reference", "a", "--", "--foo", part="'--foo' is one argument too many")
        refused("evaluate", "bleu", "--foo", "--", "--reference", "a", part="unknown option '--foo'")

    def test_nothing_reaches_a_terminal_raw(self):
        (self.root / "bad.yaml").write_text(f"model:\n  {'x' * 900000}: 3\n")
        self.refused(TRAIN, "bad.yaml", parts=["bad.yaml"])
        for text in ("\x1b[2J\x1b]0;owned\x07", "a\nb", "\u202etxt.exe", "x" * 120000, "é" * 60000):
            self.refused(TRANSLATE, "--model", text,
                         parts=["there is no such folder" if len(text) < 100 else "File name too long"])
            self.refused(TRANSLATE, f"--{text}", parts=["unknown option"])
            self.refused(TRAIN, f"{SOURCE}/configs/base.yaml", "--set", f"model.d_model={text}", parts=["model.d_model"])

    def test_a_dry_run_finds_folders_that_cannot_be_made(self):
        self.files()
        for setting in ("training.output=text.en/run", "data.cache=text.en", "data.cache=/dev/null/cache"):
            for arguments in ((), ("--dry-run",)):
                with self.subTest(setting=setting, arguments=arguments):
                    self.refused(TRAIN, "my.yaml", "--set", "training.output=made", "--set", setting, *arguments,
                                 parts=[setting.split("=")[0], "cannot be made", "is no folder"])
                    self.assertFalse((self.root / "made").exists())

    def test_numbers(self):
        for setting in ("model.d_model=1000000", "model.d_k=9e18", "model.encoder_layers=1e9", "training.bucket_mb=1e300",
                        "training.timeout_seconds=1e18", "training.keep_checkpoints=9e18"):
            self.refused(TRAIN, f"{SOURCE}/configs/base.yaml", "--dry-run", "--set", setting,
                         parts=[setting.split("=")[0], "out of range", "at most" if "bucket" in setting else "from"])

    def test_a_run_that_is_not_finished_leads_to_its_checkpoints(self):
        run = self.root / "unfinished"
        for step in (4, 12):
            (run / "checkpoints" / f"step-{step:08}").mkdir(parents=True)
            (run / "checkpoints" / f"step-{step:08}" / "model.safetensors").touch()
        newest = run / "checkpoints" / "step-00000012"
        self.refused(TRANSLATE, "--model", run, parts=[newest, "not finished"])
        self.refused(TRANSLATE, "--model", run / "checkpoints", parts=[newest, "each of its checkpoints is one"])

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
