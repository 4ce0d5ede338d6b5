"""Whose files are whose: ownership_test.py TRAIN AVERAGE EXPORT SWEEP TREEBANK SOURCE_DIR. What a program did not make it neither
writes to nor deletes, and what it replaces can be had back. Standard library only."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from programs import ENVIRONMENT, ProgramTest
from toy import write_corpus, write_recipe

TRAIN, AVERAGE, EXPORT, SWEEP, TREEBANK, SOURCE = sys.argv[1:7]


def contents(folder):
    """Every file, link and folder below `folder`, but for locks."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == ".lock" or path.name.endswith(".lock"):
            continue
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


class OwnershipTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_recipe(cls.root, 400, 10,
                     "steps: 8, batch_tokens: 100, warmup_steps: 4, log_every: 2, validate_every: 4, "
                     "validate_bleu: false, checkpoint_every: 2, threads: 1, average_checkpoints: 2")
        cls.finished = cls.root / "finished"
        cls.run_train(cls, "--output", cls.finished)

    def run_program(self, *command, status=0, **keywords):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=ENVIRONMENT, timeout=300,
                              cwd=self.root, **keywords)
        assert done.returncode == status, f"{done.returncode}, not {status}: {done.stdout}{done.stderr}"
        return done.stdout, done.stderr

    def run_train(self, *arguments, **keywords):
        return OwnershipTest.run_program(self, TRAIN, self.root / "tiny.yaml", *arguments, **keywords)

    def copy(self, name):
        """A finished run of its own for a test."""
        output = self.root / name
        shutil.copytree(self.finished, output, symlinks=True)
        return output

    def refused(self, *command, parts, folder=None, status=2):
        before = contents(folder) if folder else None
        _, errors = self.run_program(*command, status=status)
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(str(part), errors)
        if folder:
            self.assertEqual(contents(folder), before)
        return errors

    def train_refused(self, output, *arguments, parts, **keywords):
        return self.refused(TRAIN, self.root / "tiny.yaml", "--output", output, *arguments, parts=parts, folder=output,
                            **keywords)

    def steps(self, output):
        return sorted(int(path.name[-8:]) for path in (output / "checkpoints").glob("step-????????"))

    def record(self, output):
        return json.loads((output / "run.json").read_text())

    # --- what is the user's ---

    def test_a_users_project_is_no_runs_folder(self):
        project = self.root / "project"
        (project / "corpus").mkdir(parents=True)
        write_corpus(project / "corpus", "train", 50, 3)
        write_corpus(project / "corpus", "valid", 5, 4)
        text = (self.root / "tiny.yaml").read_text().replace(f"{self.root}/", f"{project}/corpus/")
        (project / "config.yaml").write_text(text)
        for arguments in ((), ("--restart",), ("--dry-run",), ("--from", "last")):
            before = contents(project)
            _, errors = self.run_program(TRAIN, project / "config.yaml", "--output", project, *arguments, status=2)
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertIn("training.output", errors)
            self.assertEqual(contents(project), before)
            self.assertFalse((project / ".lock").exists())

    def test_every_name_that_a_run_writes_to_is_looked_at(self):
        for name in ("config.yaml", "model.safetensors", "checksums.xxh128", "metrics.jsonl", "summary.json", "run.json", "events.out.tfevents.0.transformer", "checkpoints/mine.txt",
                     "validation/mine.txt", "corpus/mine.txt", "checkpoints", "corpus", "validation"):
            with self.subTest(name=name):
                output = self.root / "strange" / name.replace("/", "-")
                (output / name).parent.mkdir(parents=True)
                (output / name).write_text("format: 1\nmine, not yours\n")
                for arguments in ((), ("--restart",)):
                    self.train_refused(output, *arguments, parts=[output])
                self.assertFalse((output / ".lock").exists())
        # A trace is written where one is asked for.
        output = self.root / "strange" / "trace"
        output.mkdir()
        (output / "trace.json").write_text("mine")
        self.train_refused(output, "--profile", 2, parts=["trace.json"])
        self.run_train("--output", output)
        self.run_train("--output", output, "--restart")
        self.assertEqual((output / "trace.json").read_text(), "mine")
        # A link that leads nowhere is something, too.
        output = self.root / "strange" / "link"
        output.mkdir()
        (output / "metrics.jsonl").symlink_to(self.root / "nowhere")
        self.train_refused(output, parts=["metrics.jsonl"])
        self.assertFalse((self.root / "nowhere").exists())

    def test_a_users_vocabulary_and_other_files_stay(self):
        output = self.root / "guest"
        for folder in ("checkpoints", "validation", "notes"):
            (output / folder).mkdir(parents=True)
        shutil.copy(self.finished / "vocabulary.model", output)
        self.run_train("--output", output)
        mine = {}
        for name in ("notes/a.txt", "checkpoints/best.txt", "checkpoints/step-best/model.bin", "validation/notes.txt",
                     "corpus/notes.txt", "checkpoints/step-1", "checkpoints/damaged-by-me", ".writing-1"):
            (output / name).parent.mkdir(exist_ok=True)
            (output / name).write_text(name)
            mine[name] = name.encode()
        mine["vocabulary.model"] = (self.finished / "vocabulary.model").read_bytes()
        self.run_train("--output", output, "--restart", "--set", "model.d_ff=48")
        self.run_train("--output", output, "--set", "model.d_ff=48", "--set", "training.steps=30")
        after = contents(output)
        self.assertEqual({name: after.get(name) for name in mine}, mine)
        self.assertEqual(self.steps(output)[-1], 30)

    def test_what_a_user_keeps_within_a_run_stays(self):
        output = self.copy("keeper")
        oldest = min((output / "checkpoints").glob("step-*"))
        (oldest / "notes.txt").write_text("mine")
        (output / "checkpoints/step-00000998").mkdir()
        (output / "checkpoints/step-00000998/mine.txt").write_text("mine")
        self.train_refused(output, "--restart", parts=["notes.txt", "in the way"])
        self.run_train("--output", output, "--set", "training.steps=12", "--set", "training.keep_checkpoints=2")
        self.assertEqual((oldest / "notes.txt").read_text(), "mine")
        self.assertFalse((oldest / "progress.json").exists())
        self.train_refused(output, "--restart", parts=[oldest, "in the way"])  # it would write a checkpoint there
        (oldest / "notes.txt").unlink()
        oldest.rmdir()
        self.run_train("--output", output, "--restart")
        self.assertEqual((output / "checkpoints/step-00000998/mine.txt").read_text(), "mine")

    def test_a_vocabulary_put_where_a_run_failed_is_the_users(self):
        output = self.root / "failed"
        self.run_train("--output", output, "--set", "model.vocabulary_size=60000", status=2)
        shutil.copy(self.finished / "vocabulary.model", output)
        self.run_train("--output", output)
        self.assertEqual((output / "vocabulary.model").read_bytes(), (self.finished / "vocabulary.model").read_bytes())
        self.run_train("--output", output, "--restart")
        self.assertEqual((output / "vocabulary.model").read_bytes(), (self.finished / "vocabulary.model").read_bytes())

    def test_what_came_to_nothing_is_learned_anew_for_other_settings_and_text(self):
        """As in a fresh folder, whenever it was given up."""
        each = ("vocabulary.joint=false", "vocabulary.algorithm=unigram", "model.shared_embeddings=target",
                "model.source_vocabulary_size=290")
        failing = [part for setting in (*each, "model.target_vocabulary_size=261") for part in ("--set", setting)]
        other = ("vocabulary.algorithm=bpe", "model.target_vocabulary_size=290")
        working = [part for setting in (*each, *other) for part in ("--set", setting)]
        fresh = self.root / "fresh-each"
        self.run_train("--output", fresh, *working)
        for arguments in ((), ("--restart",)):
            output = self.root / f"given-up{len(arguments)}"
            self.run_train("--output", output, *failing, status=2)
            unigram = (output / "source.model").read_bytes()  # the second was not learned
            self.assertIn("source.model", self.record(output)["vocabularies"])
            self.assertFalse((output / "target.model").exists())
            self.run_train("--output", output, *working, *arguments)
            for name in ("source.model", "target.model"):
                self.assertEqual((output / name).read_bytes(), (fresh / name).read_bytes())
            self.assertNotEqual((output / "source.model").read_bytes(), unigram)
        # The same settings, and a text that was put right.
        text = self.root / "changing"
        text.mkdir()
        write_corpus(text, "train", 300, 3)
        own = ("--set", f"data.train_source={text}/train.en", "--set", f"data.train_target={text}/train.de")
        output = self.root / "of-changed-text"
        for language in ("en", "de"):
            file = text / f"train.{language}"
            file.write_text(file.read_text() + " ".join(str(i * 7919) for i in range(30)) + "\n")
        self.run_train("--output", output, *own, status=2)  # longer than a batch
        before = (output / "vocabulary.model").read_bytes()
        _, errors = self.run_program(TRAIN, self.root / "tiny.yaml", "--output", output, *own, status=2)
        self.assertNotIn("learning a vocabulary", errors)  # nothing has changed
        for language in ("en", "de"):
            file = text / f"train.{language}"
            file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
        _, errors = self.run_program(TRAIN, self.root / "tiny.yaml", "--output", output, *own)
        self.run_train("--output", self.root / "fresh-text", *own)
        self.assertEqual((output / "vocabulary.model").read_bytes(), (self.root / "fresh-text/vocabulary.model").read_bytes())
        self.assertNotEqual((output / "vocabulary.model").read_bytes(), before)

    # --- restart ---

    def test_a_restart_that_cannot_be_changes_nothing(self):
        output = self.copy("restarted")
        (self.root / "short.en").write_text("one line\n")
        (output / "input").mkdir()
        write_corpus(output / "input", "other", 10, 1)
        for arguments, parts in (
                ((f"data.train_source={self.root}/typo.en",), ["typo.en"]),
                ((f"data.train_source={self.root}/short.en",), ["short.en", "400"]),
                ((f"data.validation_source={self.root}/short.en",), ["short.en"]),
                (("decoding.n_best=9",), ["decoding.n_best"]),
                (("training.warmup_steps=0",), ["training.warmup_steps"]),
                ((f"training.init_from={output}",), ["training.init_from", "replaced"]),
                ((f"training.init_from={output}/checkpoints/step-00000008",), ["training.init_from", "replaced"]),
                ((f"training.init_from={self.root}/none",), ["none"]),
                (("training.keep_checkpoints=100000", "training.steps=100000", "training.checkpoint_every=1",
                  "model.d_ff=8192"), ["MB are free"]),
                ((f"data.validation_source={output}/metrics.jsonl",), ["data.validation_source", "replaced"])):
            with self.subTest(arguments=arguments):
                overrides = [part for setting in arguments for part in ("--set", setting)]
                self.train_refused(output, "--restart", *overrides, parts=parts)
                self.train_refused(output, "--restart", "--dry-run", *overrides, parts=parts)
        self.train_refused(output, "--restart", "--from", "last", parts=["--from", "--restart"])

    def test_what_is_undone_is_undone_alone(self):
        output = self.copy("alone")
        for option in (["--dry-run"], ["--restart"], ["--from", "last"], ["--processes", 2], ["--profile", 2]):
            self.train_refused(output, "--undo", *option, parts=["--undo", option[0]])

    def test_a_failed_restart_is_undone(self):
        output = self.copy("undone")
        before = contents(output)
        # It fails after all checks: a vocabulary cannot be learned of a text this small.
        _, errors = self.run_train("--output", output, "--restart", "--set", "model.vocabulary_size=30000", status=2)
        self.assertIn("30000", errors)
        self.assertTrue((output / ".replaced" / "model.safetensors").exists())
        text, _ = self.run_train("--output", output, "--undo")
        self.assertEqual({**contents(output), "run.json": None}, {**before, "run.json": None})
        self.train_refused(output, "--undo", parts=["nothing is set aside"])
        self.assertIn("finished", self.run_train("--output", output)[0])

    def test_a_killed_restart_loses_nothing(self):
        output = self.copy("killed")
        before = contents(output)
        more = ("--set", "training.checkpoint_every=100000", "--set", "training.steps=100000")
        process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, "--restart", *more],
                                   env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        while not (output / "metrics.jsonl").exists() or (output / "checkpoints" / "step-00000008").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.kill()
        text = process.communicate()[0]
        self.assertIn("--undo", text)
        # The old settings are not the new run's; nothing happens before it is said what is meant.
        self.train_refused(output, "--set", "model.d_ff=48", parts=["--undo", "--restart"])
        # The same command goes on with the new run, and still keeps the old one.
        process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, *more], env=ENVIRONMENT,
                                   stdout=subprocess.PIPE, text=True)
        while "loss" not in process.stdout.readline():
            self.assertIsNone(process.poll())
        process.kill()
        process.communicate()
        self.run_train("--output", output, "--undo")
        self.assertEqual({**contents(output), "run.json": None}, {**before, "run.json": None})
        # With a checkpoint of the new run, what it replaced is gone.
        self.run_train("--output", output, "--restart", "--set", "training.steps=2")
        self.assertEqual(self.steps(output), [2])
        self.assertFalse(list(output.rglob(".replaced")))
        self.assertNotIn("set_aside", self.record(output))

    # --- what cannot be read ---

    def test_checkpoints_that_cannot_be_read_are_not_none(self):
        for name in ("dangling", "loop", "file"):
            for recorded in (True, False):
                with self.subTest(name=name, recorded=recorded):
                    output = self.copy(f"unread-{name}-{recorded}")
                    shutil.rmtree(output / "checkpoints")
                    if name == "file":
                        (output / "checkpoints").write_text("")
                    else:
                        (output / "checkpoints").symlink_to("checkpoints" if name == "loop" else "/unmounted/disk")
                    if not recorded:
                        (output / "run.json").unlink()
                    before = contents(output)
                    for arguments in ((), ("--set", "training.steps=20"), ("--restart",)):
                        done = subprocess.run([TRAIN, self.root / "tiny.yaml", "--output", output, *arguments],
                                              capture_output=True, text=True, env=ENVIRONMENT)
                        self.assertIn(done.returncode, (1, 2))
                        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                        self.assertIn("checkpoints", done.stderr)
                        self.assertEqual(contents(output), before)
        output = self.copy("moved")
        (output / "checkpoints").rename(self.root / "disk")
        (output / "checkpoints").symlink_to(self.root / "disk")
        self.run_train("--output", output, "--set", "training.steps=10")
        self.run_train("--output", output, "--restart")
        self.assertEqual(self.steps(output), [2, 4, 6, 8])
        self.assertTrue((output / "checkpoints").is_symlink())

    def test_runs_without_a_record(self):
        output = self.copy("old")
        (output / "run.json").unlink()
        before = contents(output)
        self.assertIn("finished", self.run_train("--output", output)[0])
        self.assertEqual(contents(output), before)
        text, _ = self.run_train("--output", output, "--set", "training.steps=10")
        self.assertIn("going on from", text)
        self.assertIn("checkpoints", self.record(output)["files"])
        # Without a checkpoint nobody can tell whose it is.
        shutil.rmtree(output / "checkpoints")
        (output / "run.json").unlink()
        for arguments in ((), ("--restart",)):
            self.train_refused(output, *arguments, parts=["without the checkpoints"])

    def test_a_record_that_is_none(self):
        output = self.copy("crafted")
        (self.root / "precious").write_text("mine")
        record = self.record(output)
        for change in ({"files": ["../precious"]}, {"files": ["/etc/passwd"]}, {"kind": "other"}, {"files": 3},
                       {"set_aside": {"stage": "purging", "from": -1, "items": ["../precious", "checkpoints/../x"],
                                      "moving": [], "before": {"files": [], "corpus": "", "changes": []}}}):
            (output / "run.json").write_text(json.dumps({**record, **change}))
            self.train_refused(output, "--restart", parts=["run.json"])
        (output / "run.json").write_text("[" * 100000)
        self.train_refused(output, parts=["run.json"])
        self.assertEqual((self.root / "precious").read_text(), "mine")

    # --- settings ---

    def test_free_settings_go_on_silently(self):
        output = self.copy("free")
        text, _ = self.run_train("--output", output, "--set", "training.steps=10", "--set", "training.recompute=true",
                                 "--set", "training.threads=2", "--set", "training.log_every=1", "--set",
                                 "decoding.beam=2", "--set", "training.keep_best=1")
        self.assertIn("going on from", text)
        self.assertIn("threads: 2", (output / "config.yaml").read_text())
        self.assertEqual(self.record(output)["changes"], [])

    def test_changeable_settings_need_a_word(self):
        output = self.copy("changed")
        clip = ("--set", "training.clip_norm=1")
        errors = self.train_refused(output, *clip, parts=["training.clip_norm: 0.0 there, 1.0 now"])
        command = errors.split("to go on with the new ones: ")[1].split(" (or")[0]
        self.assertEqual(command, f"{TRAIN} {self.root}/tiny.yaml --output {output} --set training.clip_norm=1 --from last")
        self.train_refused(output, *clip, "--from", "5", parts=["there are: 2, 4, 6, 8"])
        self.train_refused(output, *clip, "--from", "five", parts=["'five'"])
        self.train_refused(output, *clip, "--from", "4", "--set", "model.d_ff=48", parts=["model.d_ff", "--restart"])
        metrics = (output / "metrics.jsonl").read_text().splitlines()
        whole = contents(output)
        # Killed before its next checkpoint: what was set aside can be had back.
        process = subprocess.Popen([TRAIN, self.root / "tiny.yaml", "--output", output, *clip, "--from", "4", "--set",
                                    "training.checkpoint_every=100000", "--set", "training.steps=1000000"],
                                   env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        while "loss" not in process.stdout.readline():
            self.assertIsNone(process.poll())
        process.kill()
        process.communicate()
        self.assertEqual(self.steps(output), [2, 4])
        self.assertTrue((output / "checkpoints" / ".replaced" / "step-00000008").is_dir())
        self.run_train("--output", output, "--undo")
        event = "events.out.tfevents.0.transformer"  # which is only ever appended to
        after = contents(output)
        different = {name for name in {**after, **whole} if after.get(name) != whole.get(name)}
        self.assertEqual(different - {"run.json", event, "corpus/texts.json"}, set())  # a cache of its own
        text, _ = self.run_train("--output", output, *clip, "--from", "4")
        self.assertIn("step-00000004", text.split("going on from")[1].split("\n")[0])
        self.assertEqual(self.steps(output), [2, 4, 6, 8])
        self.assertFalse(list(output.rglob(".replaced")))
        change = {"step": 4, "setting": "training.clip_norm", "before": "0.0", "after": "1.0"}
        self.assertEqual(self.record(output)["changes"], [change])
        self.assertIn("clip_norm: 1.0", (output / "config.yaml").read_text())
        self.assertIn("clip_norm: 1.0", (output / "checkpoints" / "step-00000006" / "config.yaml").read_text())
        lines = (output / "metrics.jsonl").read_text().splitlines()
        self.assertEqual(len(lines), len(metrics))
        same = sum(a == b for a, b in zip(lines, metrics))
        self.assertLess(same, len(lines))
        self.assertGreater(same, 2)
        # The same again goes on, or is finished, without any word.
        self.assertIn("finished", self.run_train("--output", output, *clip)[0])
        # At its end there is nothing more to train, and nothing stays aside.
        text, _ = self.run_train("--output", output, "--set", "training.clip_norm=2", "--from", "last")
        self.assertIn("--undo", text)
        self.assertTrue((output / "model.safetensors").is_file())
        self.assertFalse(list(output.rglob(".replaced")))
        self.train_refused(output, "--set", "training.clip_norm=2", "--undo", parts=["nothing is set aside"])

    def test_the_end_of_a_linear_schedule_is_no_free_setting(self):
        output = self.root / "linear"
        linear = ("--output", output, "--set", "training.schedule=linear", "--set", "training.rate=1e-3")
        self.run_train(*linear)
        self.refused(TRAIN, self.root / "tiny.yaml", *linear, "--set", "training.steps=12",
                     parts=["training.steps: 8 there, 12 now", "--from last"], folder=output)
        self.run_train(*linear, "--set", "training.steps=12", "--from", "last")
        self.assertEqual([change["setting"] for change in self.record(output)["changes"]], ["training.steps"])

    def test_another_text_is_noticed(self):
        output = self.root / "text"
        write_corpus(self.root, "own", 400, 9)
        files = ("--set", f"data.train_source={self.root}/own.en", "--set", f"data.train_target={self.root}/own.de")
        self.run_train("--output", output, *files)
        whole = (self.root / "own.en").read_text(), (self.root / "own.de").read_text()
        before = contents(output / "checkpoints"), (output / "metrics.jsonl").read_bytes()
        for edit in (lambda lines: lines[:200], lambda lines: lines[1:] + lines[:1]):  # cut; in another order
            for name, text in zip(("own.en", "own.de"), whole):
                (self.root / name).write_text("".join(edit(text.splitlines(keepends=True))))
            _, errors = self.run_train("--output", output, *files, "--set", "training.steps=10", status=2)
            self.assertEqual(errors.count("\n"), 1)
            self.assertIn("data.train_source: the text is not what", errors)
            self.assertEqual((contents(output / "checkpoints"), (output / "metrics.jsonl").read_bytes()), before)
            self.assertTrue((output / "summary.json").exists())
        for name, text in zip(("own.en", "own.de"), whole):
            (self.root / name).write_text(text)
        self.run_train("--output", output, *files, "--set", "training.steps=10")

    def test_every_section_is_checked(self):
        for setting, part in (("decoding.n_best=9", "decoding.n_best"), ("model.heads=5", "does not divide"),
                              ("training.warmup_steps=0", "training.warmup_steps"),
                              ("data.train_weights=[1, 2]", "data.train_weights"),
                              ("data.train_tags=[a b]", "data.train_tags"),
                              ("vocabulary.joint=false", "shared_embeddings"),
                              ("data.validation_source=[]", "validation"),
                              ("data.max_length_ratio=0.5", "data.max_length_ratio")):
            for arguments in ((), ("--dry-run",)):
                with self.subTest(setting=setting, arguments=arguments):
                    output = self.root / "unchecked"
                    self.refused(TRAIN, self.root / "tiny.yaml", "--output", output, "--set", setting, *arguments,
                                 parts=[part])
                    self.assertFalse(output.exists())

    # --- the other programs ---

    def test_an_average_replaces_nothing(self):
        checkpoints = sorted(self.finished.glob("checkpoints/step-*"))
        for name in ("config.yaml", "vocabulary.model", "model.safetensors", "checksums.xxh128", "run.json"):
            output = self.root / "averages" / name
            output.mkdir(parents=True)
            (output / name).write_text("mine")
            self.refused(AVERAGE, "--output", output, *checkpoints, parts=[output], folder=output)
        for output in (checkpoints[0], self.finished):
            self.refused(AVERAGE, "--output", output, *checkpoints, parts=[output], folder=self.finished)
        begun = self.copy("begun")
        for name in ("model.safetensors", "checksums.xxh128", "summary.json"):
            (begun / name).unlink()
        self.refused(AVERAGE, "--output", begun, *checkpoints, parts=[begun], folder=begun)
        (self.root / "a-file").write_text("mine")
        self.refused(AVERAGE, "--output", self.root / "a-file", *checkpoints, parts=["a-file"])

    def test_an_average_that_found_no_room_can_be_made_again(self):
        checkpoints = sorted(self.finished.glob("checkpoints/step-*"))
        for there in ("", "notes", "private", "link"):
            output = self.root / f"cramped-{there}"
            if there:
                output.mkdir(mode=0o700)
            if there == "notes":
                (output / "notes.txt").write_text("mine")
            if there == "link":
                elsewhere = output.rename(self.root / "elsewhere")
                output.symlink_to(elsewhere)

            def limited():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

            before = contents(output)
            self.run_program(AVERAGE, "--output", output, *checkpoints, status=1, preexec_fn=limited)
            self.assertEqual(contents(output), before)
            self.assertEqual(output.exists(), bool(there))
            # It is the folder that it was, too.
            self.assertEqual(output.is_symlink(), there == "link")
            if there:
                self.assertEqual(output.stat().st_mode & 0o777, 0o700)
            self.run_program(AVERAGE, "--output", output, *checkpoints)

    def test_an_export_replaces_exported_models_alone(self):
        average = self.root / "full-precision"
        self.run_program(AVERAGE, "--output", average, *sorted(self.finished.glob("checkpoints/step-*")))
        (self.root / "average").symlink_to(average)
        for to, file in (("ctranslate2", "shared_vocabulary.json"), ("hugging-face", "vocab.json"),
                         ("packed", "vocabulary.model")):
            with self.subTest(to=to):
                output = self.root / f"exported-{to}"
                command = (EXPORT, "--to", to, "--model", average, "--output")
                self.run_program(*command, output)
                (output / "notes.txt").write_text("mine")
                self.refused(*command, output, "--force", parts=["notes.txt"], folder=output)
                (output / "notes.txt").unlink()
                (output / file).unlink()
                (output / file).mkdir()
                self.refused(*command, output, "--force", parts=[file], folder=output)
                (output / file).rmdir()
                self.run_program(*command, output, "--force")
                self.assertTrue((output / file).is_file())
                (output / "README.md").write_text("mine: what the model can do\n")
                self.refused(*command, output, "--force", parts=["README.md"], folder=output)
                (output / "README.md").unlink()
                # Models at full precision are no exports, whatever their files are called, least of all the one that is read.
                for folder in (self.finished, self.root, average, self.root / "average", f"{average}/../full-precision/"):
                    self.refused(*command, folder, "--force", parts=["not replaced"], folder=average)
                for force in ([], ["--force"]):
                    self.refused(*command, average, *force, parts=["is read"], folder=average)
                self.refused(EXPORT, "--to", to, "--model", self.finished, "--output", average, "--force",
                             parts=["not replaced"], folder=average)

    def test_what_others_wrote_is_no_export(self):
        """The same files without a word of their writer's: what transformers and CTranslate2's converters leave."""
        def rewritten(to, name, change):
            output = self.root / f"others-{to}"
            command = (EXPORT, "--to", to, "--model", self.finished, "--output", output)
            self.run_program(*command)
            content = (output / name).read_bytes()
            (output / name).write_bytes(change(content))
            self.refused(*command, "--force", parts=["not replaced", "by hand"], folder=output)
            (output / name).write_bytes(content)
            self.run_program(*command, "--force")

        def tensors(without):
            def change(content):
                size = int.from_bytes(content[:8], "little")
                header = json.loads(content[8:8 + size])
                del header["__metadata__"][without]
                text = json.dumps(header).encode()
                text += b" " * (-len(text) % 8)
                return len(text).to_bytes(8, "little") + text + content[8 + size:]
            return change

        def config(content):
            settings = json.loads(content)
            del settings["exported_by"]
            return json.dumps(settings).encode()

        rewritten("hugging-face", "model.safetensors", tensors("exported_by"))
        rewritten("packed", "model.safetensors", tensors("packed"))
        rewritten("ctranslate2", "config.json", config)

    def test_a_signal_leaves_no_half_of_a_folder(self):
        model, output = f"{SOURCE}/data/model-en-de", self.root / "signalled" / "model"
        output.parent.mkdir()
        whole = self.root / "whole-export"
        subprocess.run([EXPORT, "--to", "hugging-face", "--model", model, "--output", whole], check=True,
                       env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        killed = 0
        for number in range(60):
            process = subprocess.Popen([EXPORT, "--to", "hugging-face", "--model", model, "--output", output],
                                       env=ENVIRONMENT, stdout=subprocess.DEVNULL)
            while process.poll() is None and not any(output.parent.iterdir()):
                pass
            process.send_signal((signal.SIGINT, signal.SIGTERM)[number % 2])
            killed += process.wait() < 0
            self.assertIn(list(output.parent.iterdir()), ([], [output]))
            if output.exists():
                self.assertEqual(contents(output), contents(whole))
                shutil.rmtree(output)
            if killed == 2:
                break
        self.assertEqual(killed, 2)

    def test_a_sweep_writes_over_nothing(self):
        (self.root / "grid.yaml").write_text("title: T\nbase: tiny.yaml\nseeds: [1]\nbase_row: base\n"
                                             "rows:\n  - {name: base}\n")
        for name in ("report.md", "report.html", "results.json", "sweep.json", "base/seed-1.log"):
            output = self.root / "sweeps" / name.replace("/", "-")
            (output / name).parent.mkdir(parents=True)
            (output / name).write_text("mine")
            self.refused(SWEEP, self.root / "grid.yaml", "--output", output, "--train", TRAIN, parts=[name],
                         folder=output)
        output = self.root / "sweeps" / "run"
        (output / "base" / "seed-1").mkdir(parents=True)
        (output / "base" / "seed-1" / "config.yaml").write_text("mine: 1\n")
        text, _ = self.run_program(SWEEP, self.root / "grid.yaml", "--output", output, "--train", TRAIN, status=1)
        self.assertIn("config.yaml: is in the way", text)
        self.assertEqual((output / "base" / "seed-1" / "config.yaml").read_text(), "mine: 1\n")

    def test_output_that_is_no_new_file(self):
        tree = self.root / "trees.mrg"
        tree.write_text("( (S (NP (NN dog)) (VP (VBZ barks))) )\n")
        self.refused(TREEBANK, "words", "--output", tree, tree, parts=["--output", "trees.mrg"])
        self.refused(TREEBANK, "words", "--output", self.root, tree, parts=["--output", "is a folder"])
        log = self.root / "appended.log"
        log.write_text("before\n")
        with open(log, "a") as opened:
            subprocess.run([TREEBANK, "words", "--output", "/dev/stdout", tree], stdout=opened, check=True)
            subprocess.run([TREEBANK, "words", "--output", "/dev/null", tree], stdout=opened, check=True)
        self.assertEqual(log.read_text(), "before\ndog barks\n")
        self.assertTrue(tree.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
