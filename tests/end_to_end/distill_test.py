"""A teacher's translations as training text: distill_test.py DISTILL TRANSLATE SOURCE_DIR."""

import gzip
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import sacrebleu

from programs import ENVIRONMENT, ProgramTest, as_permitted

DISTILL, TRANSLATE = sys.argv[1:3]
SOURCE_DIR = pathlib.Path(sys.argv[3])
MODEL = SOURCE_DIR / "data/model-en-de"
FILES = ("target.txt", "source.txt", "scores.txt", "distill.json")


def lines_of(language, count):
    with gzip.open(SOURCE_DIR / f"data/tatoeba-en-de/valid.{language}.gz", "rt", encoding="utf-8") as file:
        return [next(file).rstrip("\n") for _ in range(count)]


class DistillTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sources, cls.references = lines_of("en", 60), lines_of("de", 60)
        cls.source, cls.target = cls.write("few.en", cls.sources), cls.write("few.de", cls.references)

    @classmethod
    def write(cls, name, lines):
        file = cls.root / name
        file.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
        return file

    def run_program(self, output, *arguments, status=0, by=(), **options):
        done = subprocess.run([*by, DISTILL, "--model", MODEL, "--output", self.root / output, *map(str, arguments)],
                              capture_output=True, env=ENVIRONMENT, timeout=300, stdin=subprocess.DEVNULL, **options)
        errors = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (status, b""), errors)
        if status != 0:
            # Slow machines are told how far it is before.
            self.assertEqual(len([line for line in errors.splitlines() if " lines/s" not in line]), 1, errors)
        return errors

    def corpus(self, name):
        """The lines of target, source and scores."""
        return [(self.root / name / file).read_text().split("\n")[:-1] for file in FILES[:3]]

    def bytes_of(self, name):
        return {path.name: path.read_bytes() for path in (self.root / name).iterdir()}

    def translated(self, lines, *arguments):
        done = subprocess.run([TRANSLATE, "--model", MODEL, *map(str, arguments)], capture_output=True, check=True,
                              input="".join(line + "\n" for line in lines).encode(), env=ENVIRONMENT, timeout=300)
        return done.stdout.decode().split("\n")[:-1]

    def n_best(self, lines, *arguments):
        """Of each line its translations with their scores."""
        lists = [[] for _ in lines]
        for line in self.translated(lines, *arguments):
            index, text, score = line.split(" ||| ")
            lists[int(index)].append((text, score))
        return lists

    def test_the_best_translations_are_those_of_translate(self):
        errors = self.run_program("best", "--source", self.source)
        self.assertIn("translations of 60 of 60 lines", errors)
        target, source, scores = self.corpus("best")
        self.assertEqual(source, self.sources)
        self.assertEqual([f"{score}\t{text}" for score, text in zip(scores, target, strict=True)],
                         self.translated(self.sources, "--scores"))
        # Compressed, by other threads, in other batches: the same to the byte.
        packed = self.root / "few.en.gz"
        packed.write_bytes(gzip.compress(self.source.read_bytes()))
        self.run_program("packed", "--source", packed, "--threads", 3)
        self.assertEqual(self.corpus("packed"), [target, source, scores])
        record = json.loads((self.root / "best" / "distill.json").read_text())
        self.assertEqual((record["format"], record["source"]["file"]), (1, str(self.source)))
        self.assertNotIn("target", record)

    def test_of_several_the_one_is_picked_that_is_most_like_the_reference(self):
        lists = self.n_best(self.sources, "--n-best", 4)
        bleu, chrf = sacrebleu.BLEU(effective_order=True), sacrebleu.CHRF()
        for name, metric in (("bleu", bleu), ("chrf", chrf)):
            self.run_program(name, "--source", self.source, "--target", self.target, "--n-best", 4, "--pick", name)
            target, source, scores = self.corpus(name)
            self.assertEqual(source, self.sources)
            changed = 0
            for i, (candidates, reference) in enumerate(zip(lists, self.references)):
                judged = [metric.sentence_score(text, [reference]).score for text, _ in candidates]
                best = judged.index(max(judged))
                changed += best > 0
                self.assertEqual(target[i], candidates[best][0])
                score, closeness = scores[i].split("\t")
                self.assertEqual(score, candidates[best][1])
                self.assertAlmostEqual(float(closeness), judged[best], delta=0.0051)
            self.assertGreater(changed, 5, "the choice makes a difference")
        self.run_program("default", "--source", self.source, "--target", self.target, "--n-best", 4)
        self.assertEqual(self.corpus("default"), self.corpus("bleu"))

    def test_every_sample_can_be_learned_from(self):
        sampling = ("--search", "sampling", "--n-best", 3, "--seed", 5, "--temperature", 0.7)
        self.run_program("samples", "--source", self.source, "--pick", "all", *sampling, "--threads", 2)
        target, source, scores = self.corpus("samples")
        lists = self.n_best(self.sources, *sampling)
        self.assertEqual(list(zip(target, scores)), [sample for samples in lists for sample in samples])
        self.assertEqual(source, [line for line in self.sources for _ in range(3)])
        self.assertGreater(len(set(target)), 100)

    def test_pairs_that_cannot_be_used_are_left_out_on_both_sides(self):
        sources, references = list(self.sources[:12]), list(self.references[:12])
        sources[1] = b"caf\xe9"
        sources[3] = " \t"
        sources[5] = "long " * 3000
        references[7] = b"\xff\xfe"
        references[9] = ""
        bad = (1, 3, 5, 7, 9)
        source, target = self.write("bad.en", sources), self.write("bad.de", references)
        errors = self.run_program("bad", "--source", source, "--target", target, "--n-best", 4)
        self.assertIn("warning: 5 lines could not be used and were left out: line 2 is not UTF-8", errors)
        for part in ("line 4 has no text", "line 8 has a translation that is not UTF-8",
                     "line 10 has a translation without text", "translations of 7 of 12 lines"):
            self.assertIn(part, errors)
        good = [i for i in range(12) if i not in bad]
        self.run_program("good", "--source", self.write("good.en", [sources[i] for i in good]),
                         "--target", self.write("good.de", [references[i] for i in good]), "--n-best", 4)
        self.assertEqual(self.corpus("bad"), self.corpus("good"))
        errors = self.run_program("bad2", "--source", source, "--target", target, "--n-best", 4, "--bad-lines", "stop",
                                  status=2)
        self.assertIn("bad.en:2: is not UTF-8", errors)
        # Outputs that were cut at the longest length go round in circles, often; nobody learns from them.
        errors = self.run_program("cut", "--source", self.source, "--max-length", 8)
        found = [json.loads(line) for line in self.translated(self.sources, "--max-length", 8,
                                                              "--output-format", "jsonl")]
        kept = [line["text"] for line in found if line["finished"]]
        self.assertTrue(0 < len(kept) < 60, len(kept))
        self.assertEqual(self.corpus("cut")[0], kept)
        self.assertIn(f"translations of {len(kept)} of 60 lines", errors)
        self.assertIn("has no translation with text and an end", errors)

    def test_files_of_different_lengths_are_named(self):
        shorter = self.write("shorter.de", self.references[:59])
        for source, target, longer in ((self.source, shorter, "few.en"), (shorter, self.target, "few.de")):
            errors = self.run_program("uneven", "--source", source, "--target", target, "--n-best", 2, status=2)
            for part in ("shorter.de: ends after 59 lines, but", f"{longer} has more"):
                self.assertIn(part, errors)
            self.assertFalse((self.root / "uneven" / "target.txt").exists())

    def test_killed_anywhere_it_goes_on_to_the_same_bytes(self):
        pairs = sorted(zip(lines_of("en", 1500), lines_of("de", 1500)), key=lambda pair: len(pair[0]))[:700] * 10
        source = self.write("many.en", [source for source, _ in pairs])
        target = self.write("many.de", [target for _, target in pairs])
        arguments = ("--source", source, "--target", target, "--n-best", 2, "--beam", 2)
        self.run_program("whole", *arguments)
        partial = self.root / "killed" / "target.txt.partial"
        size = 0
        for number, status in ((signal.SIGKILL, -9), (signal.SIGTERM, 143)):
            # Whoever waits for the moment comes first, also on a busy machine, and several windows are left then.
            process = subprocess.Popen(["nice", DISTILL, "--model", MODEL, "--output", self.root / "killed", "--threads", "1",
                                        *map(str, arguments)], env=ENVIRONMENT, stderr=subprocess.PIPE)
            deadline = time.monotonic() + 240
            while not partial.exists() or partial.stat().st_size <= size:
                self.assertIsNone(process.poll(), "it ended before it could be stopped")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.002)
            process.send_signal(number)
            errors = process.communicate(timeout=60)[1].decode()
            self.assertEqual(process.returncode, status, errors)
            self.assertFalse(any((self.root / "killed" / name).exists() for name in FILES))
            size = partial.stat().st_size
        errors = self.run_program("killed", *arguments, "--threads", 1)
        self.assertGreaterEqual(int(re.search(r"goes on behind line (\d+),", errors).group(1)), 1024)
        self.assertEqual(self.bytes_of("killed"), self.bytes_of("whole"))
        self.assertEqual(set(self.bytes_of("killed")), set(FILES))
        # Finished, it is left as it is; other work gets another folder.
        before = {path: path.stat().st_mtime_ns for path in (self.root / "killed").iterdir()}
        self.assertIn("holds this corpus already", self.run_program("killed", *arguments))
        errors = self.run_program("killed", *arguments, "--pick", "chrf", status=2)
        self.assertIn("holds a corpus already, of another way of making it", errors)
        errors = self.run_program("killed", "--source", self.source, "--target", target, *arguments[4:], status=2)
        self.assertIn("of another source", errors)
        self.assertEqual({path: path.stat().st_mtime_ns for path in (self.root / "killed").iterdir()}, before)

    def short_lines(self, count):
        return sorted(lines_of("en", 1500), key=len)[:count // 2] * 2

    def test_text_that_was_mended_goes_on_and_is_what_the_record_says(self):
        lines = self.short_lines(1040)
        lines[1024] = b"caf\xe9"
        source = self.write("mended.en", lines)
        arguments = ("--source", source, "--beam", 1)
        self.run_program("skipped", *arguments)
        stop = ("--bad-lines", "stop")
        for name in ("mended", "chosen", "ended"):
            errors = self.run_program(name, *arguments, *stop, status=2)
            self.assertIn("mended.en:1025: is not UTF-8", errors)
            self.assertIn("1024 lines are kept", errors)
        # A command that would make it in another way takes nothing away.
        before = self.bytes_of("chosen")
        errors = self.run_program("chosen", "--source", source, "--beam", 2, status=2)
        self.assertIn("target.txt.partial: is unfinished, and was made with another search", errors)
        self.assertEqual(self.bytes_of("chosen"), before)
        # All lines so far could be used, whatever was to become of others.
        self.assertIn("goes on behind line 1024", self.run_program("chosen", *arguments))
        self.assertEqual(self.bytes_of("chosen"), self.bytes_of("skipped"))
        # As a process leaves it that dies when some files have their names already, and others not yet.
        folder = self.root / "ended"
        for name in ("scores.txt", "source.txt"):
            (folder / f"{name}.partial").rename(folder / name)
        (folder / "distill.json.partial").unlink()
        record = json.loads((self.root / "skipped" / "distill.json").read_text())
        del record["written"]  # it is of other texts
        (folder / "distill.json").write_text(json.dumps(record))
        self.assertIn("goes on behind line 1024", self.run_program("ended", *arguments))
        self.assertEqual(self.bytes_of("ended"), self.bytes_of("skipped"))
        lines[1024] = "Coffee."
        self.write("mended.en", lines)
        self.assertIn("goes on behind line 1024", self.run_program("mended", *arguments, *stop))
        self.run_program("anew", *arguments, *stop)
        self.assertEqual(self.bytes_of("mended"), self.bytes_of("anew"))
        self.assertIn("holds this corpus already", self.run_program("mended", *arguments, *stop))

    def test_text_that_changes_meanwhile_is_noticed(self):
        source = self.write("changing.en", self.short_lines(680) * 5)
        arguments = ("--source", source, "--beam", 1, "--threads", 1)
        process = subprocess.Popen([DISTILL, "--model", MODEL, "--output", self.root / "changing", *map(str, arguments)],
                                   env=ENVIRONMENT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        partial = self.root / "changing" / "target.txt.partial"
        deadline = time.monotonic() + 240
        while not partial.exists():
            self.assertIsNone(process.poll(), "it ended before it could be stopped")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)
        self.assertTrue(partial.exists())
        with source.open("a") as file:
            file.write("Good morning.\n")
        process.send_signal(signal.SIGCONT)
        errors = process.communicate(timeout=240)[1].decode()
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("changing.en: changed while it was translated", errors)
        self.assertIn("the same command goes on", errors)
        self.run_program("changing", *arguments)
        self.assertEqual(self.corpus("changing")[1][-1], "Good morning.")
        self.assertIn("holds this corpus already", self.run_program("changing", *arguments))

    def test_a_corpus_of_which_a_part_was_taken_is_mended_and_never_replaced_by_another(self):
        self.run_program("parted", "--source", self.source)
        whole = self.bytes_of("parted")
        for name in FILES[:3]:
            (self.root / "parted" / name).unlink()
            errors = self.run_program("parted", "--source", self.target, status=2)
            self.assertIn("of another source", errors)
            self.assertEqual(self.bytes_of("parted"), {file: data for file, data in whole.items() if file != name})
            self.run_program("parted", "--source", self.source)
            self.assertEqual(self.bytes_of("parted"), whole)

    def test_a_corpus_that_somebody_edited_is_never_made_again(self):
        self.run_program("edited", "--source", self.source)
        folder = self.root / "edited"
        with (folder / "target.txt").open("a") as file:
            file.write("Und noch etwas.\n")
        edited = self.bytes_of("edited")
        self.assertIn("holds this corpus already", self.run_program("edited", "--source", self.source))
        (folder / "scores.txt").unlink()
        del edited["scores.txt"]
        for _ in range(2):
            errors = self.run_program("edited", "--source", self.source, status=2)
            self.assertIn("target.txt: is not as this program wrote it", errors)
            self.assertEqual({name: (folder / name).read_bytes() for name in edited}, edited)
            # A process that was killed when all was done but this leaves its journal.
            (folder / "target.txt.partial.journal").write_text("\n")

    def test_a_corpus_that_cannot_be_read_is_no_other_one(self):
        self.run_program("unread", "--source", self.source)
        folder = self.root / "unread"
        aside = self.root / "aside"
        for name, missing in (("distill.json", None), ("source.txt", "target.txt")):
            if missing:
                (folder / missing).rename(aside)
            (folder / name).chmod(0)
            errors = self.run_program("unread", "--source", self.source, status=1, by=as_permitted())
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertRegex(errors, f"{name}: cannot be (read|opened): Permission denied")
            self.assertEqual({file.name for file in folder.iterdir()}, set(FILES) - {missing})
            (folder / name).chmod(0o644)
            if missing:
                aside.rename(folder / missing)
        self.assertIn("holds this corpus already", self.run_program("unread", "--source", self.source))

    def test_files_of_others_are_never_touched(self):
        for name in FILES + ("target.txt.partial", "target.txt.partial.journal", "scores.txt.partial"):
            folder = self.root / "others"
            folder.mkdir()
            (folder / name).write_text("a thesis")
            self.assertIn(name, self.run_program("others", "--source", self.source, status=2))
            self.assertEqual(self.bytes_of("others"), {name: b"a thesis"})
            (folder / name).unlink()
            folder.rmdir()
        folder = self.root / "mine"
        folder.mkdir()
        (folder / "source.txt").write_bytes(self.source.read_bytes())
        self.run_program("mine", "--source", folder / "source.txt", status=2)
        self.assertEqual(self.bytes_of("mine"), {"source.txt": self.source.read_bytes()})
        shutil.copytree(MODEL, self.root / "model")
        model = self.bytes_of("model")
        self.assertIn("holds a model", self.run_program("model", "--source", self.source, status=2))
        self.assertEqual(self.bytes_of("model"), model)
        (self.root / "dangling").symlink_to("nowhere")
        self.assertIn("leads nowhere", self.run_program("dangling", "--source", self.source, status=2))

    def test_mistakes_are_named(self):
        target = ("--target", self.target)
        for arguments, parts in ((("--source", self.root / "none"), ["none", "no such file"]),
                                 (("--source", "-"), ["--source", "- is no file"]),
                                 (("--source", "/dev/null"), ["--source", "/dev/null", "write it to a file"]),
                                 (("--source", self.write("empty.en", [])), ["empty.en", "has no line of text"]),
                                 (("--source", self.write("blank.en", ["", " "])), ["blank.en", "no line of which"]),
                                 (("--source", self.source, "--pick", "bleu"), ["--pick", "--target"]),
                                 (("--source", self.source, *target, "--n-best", 1), ["--pick", "--n-best"]),
                                 (("--source", self.source, *target, "--pick", "meteor"), ["--pick", "chrf"]),
                                 (("--source", self.source, "--n-best", 9), ["n_best"])):
            errors = self.run_program("mistake", *arguments, status=2)
            for part in parts:
                self.assertIn(part, errors)
            self.assertFalse((self.root / "mistake").exists())
        self.write("a-file", ["x"])
        self.assertIn("a-file", self.run_program("a-file", "--source", self.source, status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
