"""Scores random pairs of trees, by brute force: brackets.py OUTPUT.json.

Knows nothing of the program's code: a tree is a list of sets of words, and brackets are compared one by one. The rules are
EVALB's with COLLINS.prm, except that a parse over other words counts as one without brackets.
"""

import json
import random
import re
import sys

LABELS = ["S", "NP", "VP", "PP", "ADVP", "PRT", "SBAR"]
TAGS = ["NN", "DT", "VBZ", "-LRB-", "$", "HYPH", ",", ":", "``", "''", "."]
DELETED = {",", ":", "``", "''", "."}


def random_node(rng, words, depth):
    """A constituent over `words`, pairs of tag and word."""
    label = rng.choice(LABELS)
    if len(words) == 1 and (depth > 3 or rng.random() < 0.6):
        return words[0]
    if rng.random() < 0.15 and depth < 6:
        return [label, random_node(rng, words, depth + 1)]
    cuts = sorted(rng.sample(range(1, len(words)), min(len(words) - 1, rng.choice([1, 1, 1, 2, 3]))))
    return [label] + [random_node(rng, words[a:b], depth + 1) for a, b in zip([0] + cuts, cuts + [len(words)])]


def disturbed(rng, node):
    """Another tree over the same words that shares much with this one: labels change, constituents vanish."""
    if isinstance(node, tuple):
        return [node]
    children = [child for old in node[1:] for child in disturbed(rng, old)]
    if rng.random() < 0.2:
        return children
    if rng.random() < 0.15 and len(children) > 2:
        at = rng.randrange(1, len(children) - 1)
        children = children[:at] + [[rng.choice(LABELS)] + children[at:at + 2]] + children[at + 2:]
    return [[rng.choice(LABELS) if rng.random() < 0.15 else node[0]] + children]


def text(rng, node, decorated):
    if isinstance(node, tuple):
        return f"({node[0]} {node[1]})"
    label = node[0]
    if decorated and label:
        label += rng.choice(["", "", "-SBJ", "-TMP-2", "=1"])
    children = [text(rng, child, decorated) for child in node[1:]]
    if decorated and rng.random() < 0.2:
        children.insert(rng.randrange(len(children) + 1), rng.choice(["(-NONE- *)", "(NP-SBJ-3 (-NONE- *T*-1))"]))
    return f"({label} " + rng.choice([" ", "  ", "\n  "] if decorated else [" "]).join(children) + ")"


def words_of(node):
    return [node] if isinstance(node, tuple) else [word for child in node[1:] for word in words_of(child)]


def brackets(node, kept, counter):
    """Every constituent as (label, set of the kept words' numbers); `counter` holds the next word's number."""
    if isinstance(node, tuple):
        counter[0] += 1
        return [], {counter[0] - 1} & kept
    inside, span = [], set()
    for child in node[1:]:
        more, words = brackets(child, kept, counter)
        inside += more
        span |= words
    if span and node[0] not in ("TOP", "ROOT", ""):
        inside.append(("ADVP" if node[0] == "PRT" else node[0], span))
    return inside, span


def score(gold, parsed):
    words = words_of(gold)
    kept = {i for i, (tag, _) in enumerate(words) if tag not in DELETED}
    result = dict(sentences=1, unparsed=0, unscored=0, gold=0, parsed=0, matched=0, exact=0, crossing=0, no_crossing=0,
                  two_or_less_crossing=0, words=len(words))
    if not kept:
        result["unscored"] = 1
        return result
    expected = brackets(gold, kept, [0])[0]
    result["gold"] = len(expected)
    if parsed is None or [w for _, w in words_of(parsed)] != [w for _, w in words]:
        result["unparsed"] = 1
        return result
    found = brackets(parsed, kept, [0])[0]
    left = list(expected)
    for bracket in found:
        if bracket in left:
            left.remove(bracket)
            result["matched"] += 1
    result["parsed"] = len(found)
    result["exact"] = int(not left and len(found) == len(expected))
    for _, span in found:
        result["crossing"] += any(span & other and span - other and other - span for _, other in expected)
    result["no_crossing"] = int(result["crossing"] == 0)
    result["two_or_less_crossing"] = int(result["crossing"] <= 2)
    return result


def main():
    rng = random.Random(7)
    pairs = []
    for number in range(600):
        length = rng.choice([1, 2, 3, 5, 8, 13, 21, 39, 40, 41, 60])
        words = [(rng.choice(TAGS[6:] if number % 50 == 0 else TAGS), f"w{rng.randrange(50)}") for _ in range(length)]
        gold = [rng.choice(["ROOT", "TOP", ""]), random_node(rng, words, 0)]
        untagged = [("XX", word) for _, word in words]
        kind = rng.random()
        if kind < 0.05:
            parsed = None
        elif kind < 0.1:
            parsed = ["TOP", random_node(rng, untagged[:-1] or [("XX", "other")], 0)]
        elif kind < 0.3:
            parsed = ["TOP", random_node(rng, untagged, 0)]
        else:
            parsed = ["TOP"] + disturbed(rng, gold[1])
        parsed_text = "" if parsed is None else re.sub(r"\s+", " ", text(rng, parsed, False))
        pairs.append({"gold": text(rng, gold, True), "parsed": parsed_text, "counts": score(gold, parsed)})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(pairs, file)


main()
