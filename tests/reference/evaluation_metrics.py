"""Makes odd sentences and scores them with sacreBLEU: evaluation_metrics.py SECTION OUTPUT.json."""

import json
import random
import re
import sys
import unicodedata

import numpy as np
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest, estimate_ci

FRAGMENTS = [
    "der", "die", "Haus", "Straße", "ÜBER", "naïve", "e\u0301te\u0301", "1,000.50", "3.14", "1-2", "2020-", "-5", "a-b-c",
    "high-quality", "x--y", "-", "--", "...", ".", ",", ",.", "U.S.", "don't", "l'eau", "\"Zitat\"", "„Zitat“", "(hi)",
    "[x]", "{y}", "50%", "$5", "#1", "A&B", "&quot;", "&amp;", "&lt;b&gt;", "&amp;lt;", "<skipped>", "@-@", "##AT##-##AT##",
    "٣٫١٤", "१२३.", "日本語。", "，", "😀", "👩‍💻!", "…", "–", "a–b", "ß", "İstanbul", "ΟΔΟΣ", "ΣΑΣ.", "ǅ", "\u00a0", "x\u00a0y",
    "\u2003", "\u200b", "\u3000z", "tab\tted", "_", "a_b", "~", "`x`", "\\n", "/usr/bin", "http://a.b/c?d=e,f", "!?", "?.",
    "a.b", "a,b", "1.b", "a.1", "1,", ".5", "5.", "x-", "-x", "9-x", "Ⅷ-x", "½", "²",
]
PUNCTUATED = [" ", " ", " ", " ", "", "  "]


def sentence(rng, longest=14):
    return "".join(rng.choice(FRAGMENTS) + rng.choice(PUNCTUATED) for _ in range(rng.randrange(longest)))


def variant(rng, text):
    words = [w for w in text.split(" ") if rng.random() > 0.15]
    return " ".join(rng.choice(FRAGMENTS) if rng.random() < 0.15 else w for w in words)


def corpora(rng):
    yield ["the cat sat on the mat ."], [["the cat sat on the mat ."]]
    yield ["one"], [["one"]]
    yield ["one"], [["two"]]
    yield ["one"], [["one two three"]]
    yield [""], [["a b c"]]
    yield ["a b c"], [[""]]
    yield [""], [[""]]
    yield ["   "], [["\u3000"]]
    yield ["", "a b c d e", ""], [["x", "a b c d e", ""]]
    yield ["a b c d  \t", "trailing \u00a0 "], [["a b c d", "trailing"]]
    yield ["a b a b a b a b"], [["a b a b", "b a b a b"][:1]]
    yield ["a b c d", "e f g h"], [["a b", "e f g h i j"], ["a b c d e f", "e f"]]
    yield ["a a a a a"], [["a a"], ["a a a"], ["b"]]
    yield ["The Cat SAT"], [["the cat sat"]]
    # Two words that are one without the space, and each ASCII character at a word's end and beginning.
    yield ["ab c"], [["a bc"]]
    for character in map(chr, range(33, 127)):
        yield [f"x{character} y"], [[f"x {character} y"]]
        yield [f"x {character}y"], [[f"x {character} y"]]
    for size in [1] * 200 + [2, 3, 5, 20] * 25:
        references = [[sentence(rng) for _ in range(size)] for _ in range(rng.choice([1, 1, 2, 3]))]
        yield [variant(rng, rng.choice(references)[i]) for i in range(size)], references


def bleu_case(hypotheses, references, **options):
    metric = BLEU(force=True, **options)
    result = metric.corpus_score(hypotheses, references)
    return {
        "tokenize": options.get("tokenize", "13a"), "smooth": options.get("smooth_method", "exp"),
        "value": options.get("smooth_value"), "lowercase": options.get("lowercase", False),
        "effective": options.get("effective_order", False), "score": result.score, "precisions": list(result.precisions),
        "bp": result.bp, "hyp_len": result.sys_len, "ref_len": result.ref_len, "text": str(result),
        "signature": str(metric.get_signature()).replace("version:" + sacrebleu.__version__, ""),
    }


def chrf_case(hypotheses, references, **options):
    metric = CHRF(**options)
    result = metric.corpus_score(hypotheses, references)
    return {
        "word_order": options.get("word_order", 0), "lowercase": options.get("lowercase", False), "score": result.score,
        "name": result.name, "signature": str(metric.get_signature()).replace("version:" + sacrebleu.__version__, ""),
    }


def split_compounds(text):
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", text)


def splitmix_indices(seed, samples, sentences):
    mask, state, rows = (1 << 64) - 1, seed, []
    for _ in range(samples):
        row = []
        for _ in range(sentences):
            state = (state + 0x9E3779B97F4A7C15) & mask
            z = state
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            z ^= z >> 31
            row.append(((z >> 32) * sentences) >> 32)
        rows.append(row)
    return np.array(rows)


def significance(rng):
    """The same draws as ours through sacreBLEU's estimates and numpy's p, and sacreBLEU's own draws."""
    metrics = {"bleu": BLEU(), "chrf": CHRF(word_order=2)}
    words = ["w%d" % i for i in range(40)]
    reference = [" ".join(rng.choice(words) for _ in range(rng.randrange(4, 12))) for _ in range(60)]

    def noisy(rate):
        return [" ".join(rng.choice(words) if rng.random() < rate else w for w in line.split()) for line in reference]

    cases = []
    for rates in [(0.3, 0.3), (0.32, 0.25), (0.5, 0.2)]:
        baseline, system = noisy(rates[0]), noisy(rates[1])
        case = {"reference": reference, "baseline": baseline, "system": system, "metrics": {}}
        for name, metric in metrics.items():
            stats = [np.array(metric._extract_corpus_statistics(o, [reference]), dtype="float64") for o in (baseline, system)]
            real = [metric._compute_score_from_stats(list(s.sum(0))).score for s in stats]
            draws = splitmix_indices(7, 200, len(reference))
            scores = [np.array([metric._compute_score_from_stats(list(s[d].sum(0))).score for d in draws]) for s in stats]
            differences = scores[1] - scores[0]
            # Not sacreBLEU's, which takes the mean of the absolute differences away.
            p = (1 + np.sum(np.abs(differences - differences.mean()) >= abs(real[1] - real[0]))) / (1 + len(draws))
            estimates = [estimate_ci(s) for s in scores]
            ordered = np.sort(differences)
            tested = list(PairedTest([("b", baseline), ("s", system)], {name: metric}, [reference], "bs", 1000)()[1].values())[1]
            case["metrics"][name] = {
                "scores": real, "means": [e[0] for e in estimates], "half_widths": [e[1] for e in estimates], "p": p,
                "difference": [ordered.mean(), ordered[5], ordered[194]],
                "paired_test": {"means": [t.mean for t in tested], "half_widths": [t.ci for t in tested]},
            }
        cases.append(case)
    return cases


def cases(rng):
    made = []
    for hypotheses, references in corpora(rng):
        bleu = [bleu_case(hypotheses, references, **options) for options in [
            {}, {"tokenize": "none"}, {"lowercase": True}, {"effective_order": True}, {"smooth_method": "none"},
            {"smooth_method": "floor"}, {"smooth_method": "add-k"}, {"smooth_method": "floor", "smooth_value": 0.25},
            {"smooth_method": "add-k", "smooth_value": 2.0}, {"smooth_method": "floor", "smooth_value": 0.0}]]
        chrf = [chrf_case(hypotheses, references, **options) for options in [
            {}, {"word_order": 1}, {"word_order": 2}, {"lowercase": True}]]
        # The ATAT format, scored on white-space tokens without smoothing.
        tokenizer = BLEU().tokenizer
        compound = {
            tokenize: bleu_case([split_compounds(prepare(h)) for h in hypotheses],
                                [[split_compounds(prepare(r)) for r in lines] for lines in references],
                                tokenize="none", smooth_method="none")
            for tokenize, prepare in [("13a", lambda line: tokenizer(line.rstrip())), ("none", str.rstrip)]}
        made.append({"hypotheses": hypotheses, "references": references, "bleu": bleu, "chrf": chrf,
                     "compounds": compound})
    return made


def compounds(rng):
    texts = ["a-b-c", "a--b", "a-b--c", "-a-b", "a-b-", "a - b", "a- b", "ab-cd-ef", "---", "----", "a-\u00a0b",
             "ä-ö-ü-x", "😀-😀-😀", "", "-", "a-b a-b-c-d-e-f"]
    texts += ["".join(rng.choice("a-- ß\u00a0b") for _ in range(rng.randrange(12))) for _ in range(300)]
    return [[text, split_compounds(text)] for text in texts]


def tokenized(rng):
    tokenizer = BLEU().tokenizer
    lines = [sentence(rng) for _ in range(500)]
    lines += ["".join(rng.choice("a1.,-&;/'\"é٣ \n(") for _ in range(rng.randrange(14))) for _ in range(1500)]
    return [[line, tokenizer(line)] for line in lines]


def characters(rng):
    points = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    changing = [c for c in points if chr(c).lower() != chr(c) or chr(c).isspace()]
    sample = [chr(c) for c in sorted(set(changing + list(range(1, 0x600)) + rng.sample(points, 3000)))]
    words = ["ΟΔΟΣ", "ΣΑΣ.", "Σ", "ΑΣ ΣΑ", "ΑΣ'Α", "Α\u0301Σ", "ΑΣ\u0301Α", "ΑΣ1", "1Σ", "ὈΔΥΣΣΕΎΣ,", "İI", "ΑΣ-Α"]
    # Before and behind a sigma: what is a letter of its word, what is passed over, and what parts it from others. A
    # library of a later version of Unicode knows characters that this Python does not.
    assigned = [chr(c) for c in points if c < 0x20000 and unicodedata.category(chr(c)) != "Cn"]
    beside = [text for c in assigned for text in (c + "Σ", "αΣ" + c, "αΣ" + c + "α")]
    return {"lowercase": [[text, text.lower()] for text in sample + words],
            "beside_sigma": [beside, [text.lower() for text in beside]],
            "spaces": [[text, text.split()] for text in ["x%sy" % c for c in sample]]}


SECTIONS = {"cases": cases, "compounds": compounds, "tokenized": tokenized, "characters": characters,
            "significance": significance}

if __name__ == "__main__":
    section, output = sys.argv[1:]
    with open(output, "w") as file:
        json.dump(SECTIONS[section](random.Random(20170612)), file, default=float)
