"""Judges what Doxygen has warned of: doxygen_warnings.py LOG MOST. Names without a remark may be MOST, and nothing else."""

import pathlib
import sys

lines = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
most = int(sys.argv[2])
bare = [line for line in lines if line.endswith(" is not documented.")]
others = [line for line in lines if "warning:" in line and line not in bare]
if others:
    raise SystemExit("\n".join(others))
if len(bare) > most:
    raise SystemExit("\n".join([*bare, f"docs: {len(bare)} names have no remark, {most} had none before: write one for yours"]))
print(f"docs: {len(bare)} names have no remark" + ("; lower TRANSFORMER_UNDOCUMENTED_NAMES to that" if len(bare) < most else ""))
