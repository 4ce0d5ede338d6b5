"""What people rely on who use a model of many languages: multilingual_test.py IMPORT TRANSLATE EVALUATE TRAIN SERVE
ATTEND SOURCE_DIR. Models of random weights are imported, translate and judge as `transformers` does with the same languages,
and are tuned from the same loss."""

import gzip
import json
import math
import pathlib
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import libretranslatepy
import torch
import transformers

from programs import ENVIRONMENT, ProgramTest, damage

IMPORT, TRANSLATE, EVALUATE, TRAIN, SERVE, ATTEND, SOURCE = *sys.argv[1:7], pathlib.Path(sys.argv[7])
LINES = 60
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


def corpus(language, count):
    with gzip.open(SOURCE / "data" / "tatoeba-en-de" / f"valid.{language}.gz", "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n") for _, line in zip(range(count), lines)]


class MultilingualTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.models = cls.root / "models"
        cls.models.mkdir()
        subprocess.run([sys.executable, SOURCE / "tests" / "reference" / "multilingual.py",
                        SOURCE / "data" / "tatoeba-en-de", cls.models, "nllb", "mbart"], check=True, env=ENVIRONMENT,
                       timeout=600)
        for name in ("nllb", "mbart"):
            cls.run_program(IMPORT, "--from", "hugging-face", cls.models / name, "--output", cls.root / name)

    @staticmethod
    def run_program(program, *arguments, status=0, text=None):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, input=text,
                              env=ENVIRONMENT, timeout=300)
        assert done.returncode == status, f"ended with {done.returncode}: {done.stderr}"
        return done.stdout, done.stderr

    def translated(self, name, *arguments, text):
        output, _ = self.run_program(TRANSLATE, "--model", self.root / name, "--beam", "1", "--max-extra-length", "5",
                                     *arguments, text="".join(line + "\n" for line in text))
        return output.splitlines()

    def by_transformers(self, name, source, target, text):
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.models / name, src_lang=source)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(self.models / name).eval()
        found = []
        for line in text:
            inputs = tokenizer(line, return_tensors="pt")
            length = inputs.input_ids.shape[1] - 2 + 5 + 1 + 1  # pieces and what may follow; the language, the end
            with torch.inference_mode():
                tokens = model.generate(**inputs, num_beams=1, max_length=None, max_new_tokens=length - 1,
                                        forced_bos_token_id=tokenizer.convert_tokens_to_ids(target))
            found.append(tokenizer.decode(tokens[0], skip_special_tokens=True).strip())
        return found

    def test_languages_are_told(self):
        english = corpus("en", LINES)
        into_french = self.translated("nllb", "--from", "eng_Latn", "--to", "fra_Latn", text=english)
        into_german = self.translated("nllb", "--from", "eng_Latn", "--to", "deu_Latn", text=english)
        self.assertEqual(into_french, self.by_transformers("nllb", "eng_Latn", "fra_Latn", english))
        self.assertEqual(into_german, self.by_transformers("nllb", "eng_Latn", "deu_Latn", english))
        self.assertNotEqual(into_french, into_german)
        self.assertNotIn("fra_Latn", "".join(into_french))
        # What the folder says is the default, here the source's language, there both.
        self.assertEqual(self.translated("nllb", "--target-language", "fra_Latn", text=english), into_french)
        self.assertEqual(self.translated("mbart", text=english), self.by_transformers("mbart", "en_XX", "fr_XX", english))
        self.assertNotEqual(self.translated("mbart", "--from", "de_DE", text=english), self.translated("mbart", text=english))
        output, _ = self.run_program(EVALUATE, "describe", "--model", self.root / "nllb", "--format", "json")
        described = json.loads(output)
        self.assertEqual((described["languages"], described["origin"]), ("5 languages", "Hugging Face, M2M100"))

    def test_lengths_are_of_what_is_written(self):
        for lengths in (("--min-length", "3", "--max-length", "3"), ("--max-length", "1", "--min-length", "1")):
            lines = self.translated("nllb", "--from", "eng_Latn", "--to", "fra_Latn", *lengths, "--output-format", "jsonl",
                                    text=corpus("en", 8))
            self.assertEqual({len(json.loads(line)["tokens"]) for line in lines}, {int(lengths[1])})

    def test_attention_is_shown_of_the_pass_that_is_made(self):
        text, output = "Good morning.", "Bonjour."
        for name, source, target in (("nllb", "eng_Latn", "fra_Latn"), ("mbart", "en_XX", "fr_XX")):
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(self.models / name,
                                                                       attn_implementation="eager").eval()
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.models / name, src_lang=source, tgt_lang=target)
            batch = tokenizer(text, text_target=output, return_tensors="pt")
            read = torch.cat([torch.tensor([[tokenizer.eos_token_id]]), batch["labels"][:, :-1]], 1)
            with torch.inference_mode():
                expected = model(input_ids=batch["input_ids"], decoder_input_ids=read, output_attentions=True)
            languages = ("--from", source, "--to", target)
            shown, _ = self.run_program(ATTEND, "--model", self.root / name, *languages, text, output, "--format", "json")
            for kind, weights in (("encoder", expected.encoder_attentions), ("decoder", expected.decoder_attentions),
                                  ("cross", expected.cross_attentions)):
                found = json.loads(shown)["attention"][kind]
                self.assertLess((torch.tensor(found["weights"]) - torch.cat(weights)).abs().max().item(), 1e-4)
                # The decoder reads its begin first.
                self.assertEqual(found["keys"][kind == "decoder"], target if kind == "decoder" else source)
            own, _ = self.run_program(ATTEND, "--model", self.root / name, *languages, text, "--format", "json")
            self.assertEqual(json.loads(own)["attention"]["cross"]["queries"][0], target)
            if name == "nllb":
                _, message = self.run_program(ATTEND, "--model", self.root / name, text, output, status=2)
                self.assertIn("has to be said", message)

    def test_given_translations_are_judged_in_their_languages(self):
        # Random weights write on and on, and what they write is to fit into the model once more.
        english, german = [[line for line in corpus(language, 40) if len(line) < 30][:12] for language in ("en", "de")]
        files = [self.root / "judged.en", self.root / "judged.de"]
        for file, lines in zip(files, (english, german)):
            file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        for name, source, target in (("nllb", "eng_Latn", "deu_Latn"), ("nllb", "deu_Latn", "fra_Latn"),
                                     ("mbart", "en_XX", "de_DE")):
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(self.models / name).eval()
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.models / name, src_lang=source, tgt_lang=target)
            expected = []
            for text, translation in zip(english, german):
                batch = tokenizer(text, text_target=translation, return_tensors="pt")
                labels = batch["labels"]
                read = torch.cat([torch.tensor([[tokenizer.eos_token_id]]), labels[:, :-1]], 1)
                with torch.inference_mode():
                    scores = model(input_ids=batch["input_ids"], decoder_input_ids=read).logits[0].log_softmax(-1)
                # What the model is told, the language, is none of what it writes.
                expected.append(scores[range(1, labels.numel()), labels[0, 1:]].sum().item())
            output, _ = self.run_program(EVALUATE, "score", "--model", self.root / name, "--from", source, "--to", target,
                                         "--source", files[0], "--target", files[1])
            for found, wanted in zip(map(float, output.split()), expected, strict=True):
                self.assertAlmostEqual(found, wanted, delta=1e-3)
        # A translation is as probable as translate says.
        languages = ["--from", "eng_Latn", "--to", "deu_Latn"]
        output, _ = self.run_program(TRANSLATE, "--model", self.root / "nllb", *languages, "--output-format", "jsonl",
                                     "--max-extra-length", "5", text="".join(line + "\n" for line in english))
        translations = list(map(json.loads, output.splitlines()))
        files[1].write_text("".join(found["text"] + "\n" for found in translations), encoding="utf-8")
        output, _ = self.run_program(EVALUATE, "score", "--model", self.root / "nllb", *languages, "--source", files[0],
                                     "--target", files[1], "--format", "jsonl")
        compared = 0
        for found, judged in zip(translations, map(json.loads, output.splitlines()), strict=True):
            # Up to where it is written in other pieces than its text is split into.
            for index, token in enumerate(found["tokens"]):
                if judged["tokens"][index] != token:
                    break
                compared += 1
                self.assertAlmostEqual(found["token_log_probabilities"][index], judged["token_log_probabilities"][index],
                                       delta=1e-4)
        self.assertGreater(compared, 20)
        for file in files:
            file.unlink()

    def test_a_server_is_told_languages_by_each_request(self):
        nllb = ["--model", self.root / "nllb"]
        server = subprocess.Popen([SERVE, *nllb, "--port", "0", "--threads", "1"], stderr=subprocess.PIPE, text=True,
                                  env=ENVIRONMENT)
        try:
            for line in server.stderr:
                event = json.loads(line)
                if event["event"] == "listening":
                    address = event["address"] if "//" in event["address"] else "http://" + event["address"]
                if event["event"] == "ready":
                    break

            def ask(path, **fields):
                body = json.dumps(fields).encode() if fields else None
                request = urllib.request.Request(address + path, body, {"Content-Type": "application/json"})
                try:
                    with urllib.request.urlopen(request, timeout=60) as response:
                        return response.status, json.load(response)
                except urllib.error.HTTPError as error:
                    return error.code, json.load(error)

            client = libretranslatepy.LibreTranslateAPI(address)
            languages = client.languages()
            names = {language["code"]: language["name"] for language in languages}
            self.assertEqual(names, {"ace-Arab": "Acehnese (Arabic)", "de": "German", "en": "English", "fr": "French",
                                     "zh": "Chinese"})
            self.assertEqual(languages[0]["targets"], [*names][1:])
            served = ask("/v1/models")[1]["models"][0]
            self.assertEqual(served["languages"], ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"])
            self.assertEqual(served["language_codes"], [*names])
            self.assertEqual(ask("/frontend/settings")[1]["language"]["source"], {"code": "en", "name": "English"})
            # What is listed means what the model calls otherwise, for each pair that is listed.
            own = dict(zip(names, served["languages"]))
            for language in languages:
                for target in language["targets"]:
                    found = ask("/v1/translate", text="Hello.", source=language["code"], target=target,
                                decoding={"max_extra_length": 5})[1]
                    self.assertEqual((found["source"], found["target"]), (own[language["code"]], own[target]))
            english = corpus("en", 8)
            for target in ("fra_Latn", "deu_Latn"):
                output, _ = self.run_program(TRANSLATE, *nllb, "--from", "eng_Latn", "--to", target, "--output-format",
                                             "jsonl", text="".join(line + "\n" for line in english))
                expected = list(map(json.loads, output.splitlines()))
                status, answer = ask("/translate", q=english, source="eng_Latn", target=target)
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["translatedText"], [line["text"] for line in expected])
                # The folder says which language a text is in where the request does not.
                self.assertEqual(ask("/translate", q=english, source="auto", target=target), (status, answer))
                # Clients of this interface speak ISO 639-1.
                two = {"fra_Latn": "fr", "deu_Latn": "de"}[target]
                self.assertEqual(client.translate(english[0], "en", two), expected[0]["text"])
                self.assertEqual(ask("/translate", q=english, source="en", target=two), (status, answer))
                self.assertEqual(ask("/translate", q=english, source="auto", target=two), (status, answer))
                own = ask("/v1/translate", text=english[0], source="eng_Latn", target=target, alignments=True)[1]
                self.assertEqual((own["source"], own["target"]), ("eng_Latn", target))
                found = own["translations"][0]["lines"][0]["hypotheses"][0]
                self.assertEqual((found["text"], found["alignment"]), (expected[0]["text"], expected[0]["alignment"]))
            scores = {target: ask("/v1/score", text=english[0], translation="Guten Morgen.", source="eng_Latn", target=target)
                      for target in ("fra_Latn", "deu_Latn")}
            self.assertEqual(scores["fra_Latn"][1]["target"], "fra_Latn")
            self.assertNotEqual(scores["fra_Latn"][1]["scores"], scores["deu_Latn"][1]["scores"])
            # Languages are said in one place.
            status, answer = ask("/v1/translate", text="Hello.", source="eng_Latn", target="deu_Latn",
                                 decoding={"target_language": "fra_Latn"})
            self.assertEqual(status, 400, answer)
            self.assertIn("follow from source and target", answer["error"])
            for hostile in ("", "deu_Latn\t", "\x00\x1b[31m", "x" * 100000, "\u202e"):
                status, answer = ask("/translate", q="Hello.", source="eng_Latn", target=hostile)
                self.assertEqual(status, 400)
                self.assertTrue(answer["error"].isprintable())
                self.assertLess(len(answer["error"]), 1000)
            status, answer = ask("/v1/translate", text="Hello.", model="nllb")
            self.assertEqual((status, answer["error"].split(":")[0]), (400, "target is missing"))
            for source, target in (("eng_Latn", "xx"), ("xx", "deu_Latn"), ("eng_Latn", "eng_Latn"), ("en", "eng_Latn"),
                                   ("en", "zh-Hant"), ("en", "nl")):
                status, answer = ask("/translate", q="Hello.", source=source, target=target)
                self.assertEqual(status, 400)
                self.assertIn("5 languages to each other: ace-Arab, de, en, fr, zh", answer["error"])
            # Into the language that texts are in where a request does not say, it has to.
            for fields in ({"target": "en"}, {"target": "eng_Latn"}, {"target": "en", "source": "auto"}):
                for path, own in (("/translate", {"q": "Hello."}), ("/v1/translate", {"text": "Hello."}),
                                  ("/v1/translate", {"text": "Hello.", "model": "nllb"})):
                    status, answer = ask(path, **own, **fields)
                    self.assertEqual(status, 400)
                    self.assertIn("languages are not detected here: name the source; there are: each of 5", answer["error"])
            self.assertEqual(ask("/v1/score", text="Hello.", translation="Bonjour.", source="en", target="fr")[1]["scores"],
                             ask("/v1/score", text="Hello.", translation="Bonjour.", source="eng_Latn",
                                 target="fra_Latn")[1]["scores"])
        finally:
            server.terminate()
            server.communicate(timeout=60)
        for pair, parts in (("nl:de", ("'nl'", "5 languages")), ("en:eng_Latn", ("'en:eng_Latn'", "one language"))):
            self.refused("serving.languages", *parts, arguments=[SERVE, *nllb, "--languages", pair, "--port", "0"])

    def test_models_that_call_a_language_otherwise_are_served_together(self):
        models = [SOURCE / "data" / "model-en-de", self.root / "mbart", self.root / "nllb"]
        server = subprocess.Popen([SERVE, *[part for model in models for part in ("--model", model)], "--port", "0",
                                   "--threads", "1"], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        try:
            events = map(json.loads, server.stderr)
            address = next(event["address"] for event in events if event["event"] == "listening")
            next(event for event in events if event["event"] == "ready")
            client = libretranslatepy.LibreTranslateAPI("http://" + address)
            targets = {language["code"]: language["targets"] for language in client.languages()}
            self.assertEqual(len(targets), len({*targets, *(target for listed in targets.values() for target in listed)}))
            self.assertLessEqual({"ace-Arab", "ar", "cs", "de", "en", "fr", "zh"}, {*targets})
            line, = corpus("en", 1)
            for model, source, target, arguments in (
                    (models[0], "en", "de", []), (models[0], "auto", "de", []),
                    (models[1], "de", "en", ["--from", "de_DE", "--to", "en_XX"]),
                    (models[1], "de_DE", "en_XX", ["--from", "de_DE", "--to", "en_XX"]),
                    (models[2], "eng_Latn", "deu_Latn", ["--from", "eng_Latn", "--to", "deu_Latn"]),
                    (models[2], "en", "ace-Arab", ["--from", "eng_Latn", "--to", "ace_Arab"])):
                with self.subTest(source=source, target=target):
                    output, _ = self.run_program(TRANSLATE, "--model", model, *arguments, text=line + "\n")
                    self.assertEqual(client.translate(line, source, target), output.rstrip("\n"))
        finally:
            server.terminate()
            server.communicate(timeout=60)

    def test_a_server_may_be_held_to_one_pair_by_any_of_its_names(self):
        nllb = ["--model", self.root / "nllb"]
        server = subprocess.Popen([SERVE, *nllb, "--languages", "en:fra_Latn", "--port", "0", "--threads", "1"],
                                  stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        try:
            events = map(json.loads, server.stderr)
            address = next(event["address"] for event in events if event["event"] == "listening")
            next(event for event in events if event["event"] == "ready")
            client = libretranslatepy.LibreTranslateAPI(address if "//" in address else "http://" + address)
            self.assertEqual(client.languages(), [{"code": "en", "name": "English", "targets": ["fr"]},
                                                  {"code": "fr", "name": "French", "targets": []}])
            line, = corpus("en", 1)
            output, _ = self.run_program(TRANSLATE, *nllb, "--from", "eng_Latn", "--to", "fra_Latn", text=line + "\n")
            for source, target in (("en", "fr"), ("eng_Latn", "fra_Latn")):
                self.assertEqual(client.translate(line, source, target), output.rstrip("\n"))
            with self.assertRaises(urllib.error.HTTPError) as refused:
                client.translate(line, "en", "de")
            with refused.exception as answer:
                self.assertIn("en to fr", json.load(answer)["error"])
        finally:
            server.terminate()
            server.communicate(timeout=60)

    def refused(self, *parts, arguments):
        before = sorted(self.root.iterdir())
        output, errors = self.run_program(*arguments, status=2, text="Hello.\n")
        self.assertEqual(output, "")
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)
        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_unknown_languages_are_refused_with_the_nearest(self):
        nllb = [TRANSLATE, "--model", self.root / "nllb"]
        self.refused("target_language", "has to be said", "5 languages", arguments=nllb)
        self.refused("--to", "'fra_Lat'", "fra_Latn", arguments=[*nllb, "--to", "fra_Lat"])
        self.refused("--from", "'english'", "eng_Latn", arguments=[*nllb, "--to", "fra_Latn", "--from", "english"])
        self.refused("--from", arguments=[*nllb, "--to", "fra_Latn", "--from", "x" * 100000])
        self.refused("cannot be told a language",
                     arguments=[TRANSLATE, "--model", SOURCE / "data" / "model-en-de", "--to", "de"])
        self.refused("--to", "has to be said",
                     arguments=[EVALUATE, "perplexity", "--model", self.root / "nllb", "--from", "eng_Latn", "--source",
                                self.models / "nllb.json", "--target", self.models / "nllb.json"])

    def test_fine_tuning_starts_from_the_same_loss(self):
        english, german = corpus("en", 16), corpus("de", 16)
        files = {}
        for language, lines in (("en", english), ("de", german)):
            files[language] = self.root / f"few.{language}"
            files[language].write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(self.models / "mbart").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.models / "mbart", src_lang="en_XX", tgt_lang="de_DE")
        total, count = 0.0, 0
        for source, target in zip(english, german):
            batch = tokenizer(source, text_target=target, return_tensors="pt")
            labels = batch["labels"]
            read = torch.cat([torch.tensor([[tokenizer.eos_token_id]]), labels[:, :-1]], 1)
            with torch.inference_mode():
                logits = model(input_ids=batch["input_ids"], decoder_input_ids=read).logits
            total += torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum").item()
            count += labels.numel()
        expected = total / count
        output, _ = self.run_program(EVALUATE, "perplexity", "--model", self.root / "mbart", "--from", "en_XX", "--to", "de_DE",
                                     "--source", files["en"], "--target", files["de"], "--format", "json")
        found = json.loads(output)
        self.assertAlmostEqual(found["loss"], expected, delta=1e-4)
        self.assertAlmostEqual(math.log(found["perplexity"]), expected, delta=1e-4)
        self.assertEqual(found["tokens"], count)
        config = self.root / "tuned.yaml"
        config.write_text(f"""
extends: {self.root}/mbart/config.yaml
data: {{train_source: [{files["en"]}], train_target: [{files["de"]}], source_language: en_XX, target_language: de_DE,
       validation_source: [{files["en"]}], validation_target: [{files["de"]}]}}
model: {{dropout: 0}}
training: {{output: {self.root}/tuned, init_from: {self.root}/mbart, steps: 1, batch_tokens: 8000, label_smoothing: 0,
           log_every: 1, validate_bleu: false}}
""")
        self.run_program(TRAIN, config)
        metrics = [json.loads(line) for line in (self.root / "tuned" / "metrics.jsonl").read_text().splitlines()]
        losses = [entry["loss"] for entry in metrics if entry["kind"] == "train"]
        self.assertEqual(len(losses), 1)
        self.assertAlmostEqual(losses[0], expected, delta=1e-4)
        shutil.rmtree(self.root / "tuned")
        text = config.read_text().replace(", target_language: de_DE", "")
        config.write_text(text)
        for arguments in (("--dry-run",), ()):  # before anything is made
            _, errors = self.run_program(TRAIN, config, *arguments, status=2)
            self.assertIn("data.target_language", errors)
            self.assertFalse((self.root / "tuned").exists())
        for file in (config, *files.values()):
            file.unlink()

    def varied(self, name, change):
        """Refuses a copy of the model `name` that `change` has been at."""
        folder = self.root / "varied"
        shutil.copytree(self.models / name, folder)
        try:
            parts = change(folder)
            self.refused(*parts, arguments=[IMPORT, "--from", "hugging-face", folder, "--output", self.root / "refused"])
        finally:
            shutil.rmtree(folder)

    def test_what_cannot_be_represented_is_refused_by_its_key(self):
        cases = [("nllb", "config.json", key, value, "'" + key + "'") for key, value in [
            ("model_type", "bart"), ("max_position_embeddings", 0), ("max_position_embeddings", 10**12),
            ("decoder_start_token_id", 1), ("decoder_start_token_id", 503), ("activation_function", "tanh"),
            ("vocab_size", 505), ("eos_token_id", 9), ("pad_token_id", 9), ("d_model", 3), ("is_encoder_decoder", False)]]
        cases += [("nllb", "generation_config.json", "forced_bos_token_id", 7, "'forced_bos_token_id'"),
                  ("nllb", "tokenizer_config.json", "bos_token", "<begin>", "'bos_token'"),
                  ("nllb", "tokenizer_config.json", "legacy_behaviour", "yes", "'legacy_behaviour'"),
                  ("nllb", "tokenizer_config.json", "extra_special_tokens", ["<sep>"], "'extra_special_tokens'"),
                  ("nllb", "tokenizer_config.json", "extra_special_tokens", ["the"], "'extra_special_tokens'"),
                  ("nllb", "tokenizer.json", "added_tokens", [], "names no languages"),
                  ("nllb", "special_tokens_map.json", "cls_token", {"content": "the"}, "'cls_token' names a token ('the')"),
                  *[("nllb", "tokenizer_config.json", key, "the", f"'{key}' names a token ('the')")
                    for key in ("mask_token", "sep_token", "answer_token")],
                  ("mbart", "tokenizer_config.json", "mask_token", "en_XX", "'mask_token'"),
                  ("nllb", "tokenizer_config.json", "model_specific_special_tokens", {"answer": "the"},
                   "'model_specific_special_tokens'"),
                  ("nllb", "tokenizer_config.json", "tokenizer_class", "SMALL100Tokenizer",
                   "'tokenizer_class' is 'SMALL100Tokenizer'; M2M100Tokenizer or NllbTokenizer"),
                  ("nllb", "tokenizer_config.json", "auto_map", {"AutoTokenizer": [None, "own.Tokenizer"]}, "'auto_map'"),
                  ("mbart", "tokenizer_config.json", "tokenizer_class", "MBartTokenizer",
                   "'tokenizer_class' is 'MBartTokenizer'; MBart50Tokenizer is"),
                  ("nllb", "tokenizer_config.json", "extra_special_tokens", [f"aa_{n}" for n in range(1001)],
                   "more than 1000 languages"),
                  ("nllb", "tokenizer.json", "added_tokens", [{"id": 4, "content": "deu_Latn"}], "have one id"),
                  ("nllb", "tokenizer.json", "added_tokens", [{"id": 10**15, "content": "deu_Latn"}], "deu_Latn")]
        for name, file, key, value, part in cases:
            with self.subTest(name=name, key=key, value=value):
                def change(folder):
                    values = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
                    values[key] = value
                    (folder / file).write_text(json.dumps(values))
                    return [part]
                self.varied(name, change)

    def test_text_is_made_into_ids_as_the_tokenizer_that_is_named_does(self):
        for name in ("nllb", "mbart"):
            folder, output = self.root / "named", self.root / "of-named"
            shutil.copytree(self.models / name, folder)
            config = json.loads((folder / "tokenizer_config.json").read_text())
            config["tokenizer_class"] += "Fast"
            config["legacy_behaviour"] = name == "mbart"  # which NLLB's alone has
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            # M2M100's alone reads it.
            (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(("</s>", "<pad>", "<s>", "a"))}))
            self.run_program(IMPORT, "--from", "hugging-face", folder, "--output", output)
            self.assertEqual((output / "vocabulary.model").read_bytes(), (self.root / name / "vocabulary.model").read_bytes())
            shutil.rmtree(folder)
            shutil.rmtree(output)

    def test_damaged_folders_are_refused_in_one_line(self):
        for name in ("config.json", "sentencepiece.bpe.model", "model.safetensors", "tokenizer.json"):
            for how in ("missing", "cut", "noise"):
                with self.subTest(file=name, damage=how):
                    def change(folder):
                        damage(folder / name, how)
                        return [] if how == "missing" else [name]
                    self.varied("nllb", change)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
