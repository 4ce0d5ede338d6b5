"""Checks saved settings with Python's yaml: settings_check.py CONFIG TEXTS, TEXTS being the expected list in hex."""
import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    config = yaml.safe_load(file)
with open(sys.argv[2], encoding="ascii") as file:
    texts = [bytes.fromhex(line.rstrip("\n")).decode("utf-8") for line in file]
run = config["run"]
assert config["format"] == 1
assert run["train_source"] == texts, [pair for pair in zip(run["train_source"], texts) if pair[0] != pair[1]]
assert run["name"] == 'line\nbreak: "x"', run["name"]
assert run["seed"] == 2**64 - 1
assert run["offset"] == -(2**63)
assert run["any"] == -5e-324, run["any"]
assert run["epsilon"] == 0.1 + 0.2
assert config["net"]["bias"] is True
assert config["net"]["dropout"] == 0.1
