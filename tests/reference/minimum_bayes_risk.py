"""Makes n-best lists and what sacreBLEU's sentence scores make of them: minimum_bayes_risk.py OUTPUT.json."""

import json
import random
import sys

from sacrebleu.metrics import BLEU, CHRF

WORDS = ["der", "die", "Haus", "Straße,", "e\u0301te\u0301", "1,000.50", "„Zitat“", "日本語。", "(hi)", "don't", "a-b", ".", "😀"]
random.seed(3)


def sentence():
    return " ".join(random.choices(WORDS, k=random.randint(0, 9)))


def variant(text):
    return " ".join(random.choice(WORDS) if random.random() < 0.3 else word for word in text.split(" "))


metrics = {
    "chrf": lambda h, r: CHRF().sentence_score(h, [r]).score,
    "chrf++": lambda h, r: CHRF(word_order=2).sentence_score(h, [r]).score,
    "bleu": lambda h, r: BLEU(effective_order=True).sentence_score(h, [r]).score,
}
cases = []
for size in [1, 2, 3, 5, 8, 8, 12]:
    first = sentence()
    hypotheses = [first] + [variant(first) for _ in range(size - 1)]
    hypotheses += random.sample(hypotheses, size // 3) + [""] * (size % 2)
    weights = [random.random() for _ in hypotheses]
    case = {"hypotheses": hypotheses, "weights": weights}
    for name, score in metrics.items():
        table = [[score(h, r) for r in hypotheses] for h in hypotheses]
        case[name] = [sum(row) / len(row) for row in table]
        case[name + " weighted"] = [sum(w * s for w, s in zip(weights, row)) / sum(weights) for row in table]
    cases.append(case)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(cases, file)
