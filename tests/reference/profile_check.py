"""A Chrome trace of training steps has their operators inside the ranges named: profile_check.py TRACE.json STEPS."""

import json
import sys
from collections import Counter

with open(sys.argv[1]) as file:
    trace = json.load(file)
steps = int(sys.argv[2])
assert trace["schemaVersion"] == 1, trace["schemaVersion"]

complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
operators = [event for event in complete if event.get("cat") == "cpu_op"]
ranges = [event for event in complete if event.get("cat") == "user_annotation" and not event["name"].startswith("Profil")]
names = ["forward", "loss", "backward", "optimizer"]
assert Counter(event["name"] for event in ranges) == {name: steps for name in names}, ranges
assert [event["name"] for event in sorted(ranges, key=lambda event: event["ts"])] == names * steps


def inside(outer):
    """Names of the operators within a range, on its thread."""
    end = outer["ts"] + outer["dur"]
    return Counter(
        event["name"]
        for event in operators
        if event["tid"] == outer["tid"] and outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= end
    )


# One encoder layer and one decoder layer.
expected = {
    "forward": {"transformer::embedding": 2, "transformer::attention": 3, "transformer::feed_forward": 2},
    "loss": {"transformer::smoothed_loss": 1},
    "backward": {"transformer::attention_backward": 3, "transformer::feed_forward_backward": 2,
                 "transformer::embedding_backward": 2},
}
for event in ranges:
    found = inside(event)
    assert found, event
    for name, count in expected.get(event["name"], {}).items():
        matching = found[name]
        assert matching == count, (event["name"], name, matching, found)

everything = Counter(event["name"] for event in operators)
assert not {"aten::erfinv", "aten::digamma"} & set(everything), everything
assert all(event["dur"] >= 0 for event in operators)
with_shapes = [event for event in operators if event["name"] == "transformer::embedding"]
assert all(event["args"]["Input Dims"][0] == [23, 16] for event in with_shapes), with_shapes
