"""Models' quality and speed in one table: speed_test.py EVALUATE TRANSLATE MAKE_MODEL SOURCE_DIR.

Nothing here depends on how fast the machine is.
"""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from programs import ENVIRONMENT, ProgramTest

EVALUATE, TRANSLATE, MAKE_MODEL = sys.argv[1:4]
SOURCE_DIR = pathlib.Path(sys.argv[4])
MODEL = SOURCE_DIR / "data/model-en-de"


class SpeedTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lines = {}
        for language in ("en", "de"):
            with gzip.open(SOURCE_DIR / f"data/tatoeba-en-de/valid.{language}.gz", "rt", encoding="utf-8") as file:
                cls.lines[language] = [next(file) for _ in range(30)]
            (cls.root / f"text.{language}").write_text("".join(cls.lines[language]))
        cls.source, cls.reference = cls.root / "text.en", cls.root / "text.de"
        cls.tiny = cls.root / "tiny & <small>"
        subprocess.run([MAKE_MODEL, cls.tiny], check=True, env=ENVIRONMENT)

    def evaluate(self, *arguments, status=0, text=None):
        done = subprocess.run([EVALUATE, *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT,
                              timeout=300, input=text or "")
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def speed(self, *arguments, **keywords):
        return self.evaluate("speed", "--source", self.source, "--reference", self.reference, "--rounds", 2, *arguments,
                             **keywords)

    def test_what_is_timed_both_ways_is_no_option(self):
        for option in ("--batch-sentences", "--proposals"):
            self.assertIn(option, self.speed(self.tiny, option, 3, status=2))

    def test_figures_are_those_of_the_other_programs(self):
        picture = self.root / "speed.svg"
        found = json.loads(self.speed(MODEL, self.tiny, "--precision", "float32,int8", "--timed", 5,
                                      "--picture", picture, "--format", "json"))
        rows = found["models"]
        self.assertEqual([(row["model"], row["precision"]) for row in rows],
                         [(str(model), precision) for model in (MODEL, self.tiny) for precision in ("float32", "int8")])
        self.assertEqual((found["sentences"], found["timed_sentences"], found["threads"]), (30, 5, 1))
        self.assertEqual(found["timed_words"], sum(len(line.split()) for line in self.lines["en"][:5]))
        for row in rows:
            translated = subprocess.run([TRANSLATE, "--model", row["model"], "--precision", row["precision"]],
                                        input="".join(self.lines["en"]), capture_output=True, text=True, check=True,
                                        env=ENVIRONMENT).stdout
            for metric in ("bleu", "chrf"):
                scored = json.loads(self.evaluate(metric, "--reference", self.reference, "--format", "json",
                                                  text=translated))
                self.assertEqual((row[metric], found[f"{metric}_signature"]), (scored["score"], scored["signature"]))
            described = json.loads(self.evaluate("describe", "--model", row["model"], "--format", "json"))
            for key in ("parameters", "encoder_layers", "decoder_layers", "d_model"):
                self.assertEqual(row[key], described[key])
            self.assertEqual(row["bytes"], sum((pathlib.Path(row["model"]) / name).stat().st_size
                                               for name in ("config.yaml", "model.safetensors", "vocabulary.model")))
            self.assertEqual([speed["sentences_at_once"] for speed in row["speed"]], [1, 32])
            for speed in row["speed"]:
                self.assertEqual((len(speed["seconds"]), len(speed["core_seconds"])), (2, 2))
                words = found["timed_words"]
                self.assertAlmostEqual(speed["words_per_second"], words / min(speed["seconds"]))
                self.assertAlmostEqual(speed["words_per_core_second"], words / min(speed["core_seconds"]))
        self.assertGreater(rows[0]["bleu"], rows[2]["bleu"] + 10)

        drawn = xml.etree.ElementTree.parse(picture).getroot()
        self.assertTrue(drawn.tag.endswith("}svg"))
        titles = [title.text for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
        for row in rows:
            for speed in row["speed"]:
                at_once = {1: "one sentence", 32: "32 sentences"}[speed["sentences_at_once"]]
                title = (f"{row['name']}, {row['precision']}, {at_once}: BLEU {row['bleu']:.2f}, "
                         f"{speed['words_per_second']:.0f} words/s")
                self.assertEqual(titles.count(title), 1, titles)
        self.assertEqual({row["name"] for row in rows}, {"model-en-de", "tiny & <small>"})
        named = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
        self.assertLessEqual({*(row["name"] for row in rows), *(row["precision"] for row in rows),
                              "filled: one sentence", "hollow: 32 sentences"}, named)

    def test_as_text_a_line_for_each_model(self):
        twin = self.root / "other" / "model-en-de"
        twin.parent.mkdir()
        twin.symlink_to(MODEL)
        table = self.speed(MODEL, twin, "--beam", 1, "--timed", 2, "--threads", 2).splitlines()
        self.assertRegex(table[0], r"model +precision +BLEU +chrF +MB +parameters +words/s, one sentence .*32 sent")
        self.assertEqual(len({len(line) for line in table[:3]}), 1)
        # Names that are alike are told apart; the model is the same.
        for line, model in zip(table[1:3], (MODEL, twin)):
            self.assertEqual(line.split()[:2], [str(model), "float32"])
        self.assertEqual(table[1].split()[2:6], table[2].split()[2:6])
        self.assertIn("2 of 30 sentences timed", table[3])

    def test_figures_that_were_kept_stand_beside_new_ones(self):
        kept, picture = self.root / "kept.json", self.root / "kept.svg"
        other = {"name": "theirs\x1b[1m", "precision": "other int8", "bleu": 12.5, "chrf": 30, "bytes": 1e6,
                 "parameters": 7, "note": "of another system",
                 "speed": [{"sentences_at_once": size, "words_per_second": 100.0 * size,
                            "words_per_core_second": 50.0} for size in (1, 32)]}
        kept.write_text(json.dumps({"models": [other]}))
        found = json.loads(self.speed(self.tiny, "--figures", kept, "--timed", 2, "--picture", picture, "--format", "json"))
        self.assertEqual([row["name"] for row in found["models"]], ["tiny & <small>", other["name"]])
        self.assertEqual(found["models"][1], other)
        titles = [title.text for title in xml.etree.ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}title")]
        self.assertIn("theirs\\x1b[1m, other int8, 32 sentences: BLEU 12.50, 3200 words/s", titles)
        # What is written can be read again, and alone.
        kept.write_text(json.dumps(found))
        table = self.evaluate("speed", "--figures", kept).splitlines()
        read, write = os.pipe()  # is read but once
        os.write(write, pathlib.Path(kept).read_bytes())
        os.close(write)
        piped = subprocess.run([EVALUATE, "speed", "--figures", f"/dev/fd/{read}"], capture_output=True, text=True,
                               pass_fds=[read], env=ENVIRONMENT, timeout=60)
        os.close(read)
        self.assertEqual((piped.returncode, piped.stdout.splitlines()), (0, table), piped.stderr)
        self.assertEqual(len(table), 3)
        self.assertIn("12.50", table[2])
        self.assertIn("--source", self.evaluate("speed", self.tiny, "--figures", kept, status=2))
        for change in ({"bleu": None}, {"bleu": "12"}, {"chrf": -1}, {"name": 3}, {"speed": []}, {"bytes": -5},
                       {"speed": other["speed"][::-1]}, {"speed": [other["speed"][0], "x"]},
                       {"speed": [{**one, "words_per_second": 0} for one in other["speed"]]}):
            kept.write_text(json.dumps({"models": [other, {**other, **change}]}))
            errors = self.evaluate("speed", "--figures", kept, status=2)
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertIn("kept.json, model 2", errors)
        for text in ("", "[]", "{}", '{"models": 3}', '{"models": [3]}', '{"models": [', "[" * 100000):
            kept.write_text(text)
            self.assertIn("kept.json", self.evaluate("speed", "--figures", kept, status=2))
        kept.write_text(json.dumps({"models": [other]}).replace("12.5", "1e999"))
        self.assertIn("kept.json", self.evaluate("speed", "--figures", kept, status=2))

    def test_figures_of_another_text_are_told_apart(self):
        files = {}
        for name, *arguments in (("first", "--timed", 2), ("same", "--timed", 2), ("more", "--timed", 2, "--threads", 2),
                                 ("other", "--timed", 2, "--source", self.root / "few.en", "--reference",
                                  self.root / "few.de")):
            for language in ("en", "de"):
                (self.root / f"few.{language}").write_text("".join(self.lines[language][:4]))
            text = [] if "--source" in arguments else ["--source", self.source, "--reference", self.reference]
            files[name] = self.root / f"{name}.json"
            files[name].write_text(self.evaluate("speed", self.tiny, "--rounds", 1, *text, *arguments, "--format", "json"))

        def beside(*names):
            command = [EVALUATE, "speed", "--format", "json"]
            for name in names:
                command += ["--figures", files[name]]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT, timeout=60)
            return done.stdout, done.stderr

        self.assertEqual(beside("first", "same")[1], "")
        joined, errors = beside("first", "more", "other")
        self.assertEqual(errors.count("evaluate: warning: tiny & <small>, float32 was measured otherwise than"), 2, errors)
        self.assertIn("with 2 threads, not 1", errors)
        self.assertIn("on another text (4 sentences)", errors)
        # What is written of them anew says it still.
        files["joined"] = self.root / "joined.json"
        files["joined"].write_text(joined)
        self.assertEqual(beside("joined"), (joined, errors))
        self.assertEqual([row["measured"]["threads"] for row in json.loads(joined)["models"]], [1, 2, 1])

    def test_what_only_measuring_uses_is_refused_without_models(self):
        kept = self.root / "kept.json"
        kept.write_text('{"models": []}')
        for option in ("--source", "--reference", "--precision", "--threads", "--rounds", "--timed", "--beam", "--alpha"):
            value = "int8" if option == "--precision" else "1"
            errors = self.evaluate("speed", "--figures", kept, option, value, status=2)
            self.assertIn(f"{option}: is for measuring, and no model is named", errors)

    def test_mistakes_are_named(self):
        empty, shorter = self.root / "empty", self.root / "shorter"
        empty.write_text("")
        shorter.write_text("x\n")
        for arguments, parts in (((self.root / "none",), ["none"]),
                                 ((MODEL, "--precision", "int4"), ["--precision", "int4"]),
                                 ((MODEL, "--reference", shorter), ["shorter", "1 line,", "30"]),
                                 ((MODEL, "--picture", self.source), ["--picture", "text.en"]),
                                 ((MODEL, "--picture", "-"), ["--picture", "a file"]),
                                 ((MODEL, "--beam", 0), ["--beam"]),
                                 ((), ["models"])):
            errors = self.speed(*arguments, status=2)
            self.assertEqual(errors.count("\n"), 1, errors)
            for part in parts:
                self.assertIn(part, errors)
        self.assertEqual(self.source.read_text(), "".join(self.lines["en"]))
        for text in (b"", b"\n \n", b"caf\xe9\n"):
            empty.write_bytes(text)
            errors = self.evaluate("speed", MODEL, "--source", empty, "--reference", empty, status=2)
            self.assertIn("empty", errors)
        self.speed(MODEL, "--timed", 1, "--picture", self.root / "no" / "where.svg", status=2)
        # What was measured is not lost with its picture.
        done = subprocess.run([EVALUATE, "speed", self.tiny, "--source", self.source, "--reference", self.reference,
                               "--rounds", "1", "--timed", "1", "--picture", "/dev/full"], capture_output=True, text=True,
                              env=ENVIRONMENT, timeout=300)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dev/full", done.stderr)
        self.assertIn("BLEU", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
