"""libtransformer.so exports what its header declares, and nothing else: exports_test.py LIBRARY HEADER. Standard library
only."""

import pathlib
import re
import subprocess
import sys
import unittest

LIBRARY, HEADER = sys.argv[1:3]


class ExportsTest(unittest.TestCase):
    def test_only_declared_functions_are_exported(self):
        declared = set(re.findall(r"\b(transformer_\w+)\(", re.sub("//.*", "", pathlib.Path(HEADER).read_text())))
        self.assertGreater(len(declared), 10)
        symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True)
        exported = {}
        for line in symbols.stdout.splitlines():
            _, kind, name = line.split()
            exported[name.split("@")[0]] = (kind, name)
        exported.pop("TRANSFORMER_1", None)
        self.assertEqual(set(exported), declared)
        for kind, name in exported.values():
            self.assertEqual(kind, "T", name)
            self.assertTrue(name.endswith("@@TRANSFORMER_1"), name)

    def test_it_is_called_by_its_abi(self):
        dynamic = subprocess.run(["readelf", "-d", LIBRARY], check=True, capture_output=True, text=True).stdout
        number = re.search(r"#define TRANSFORMER_ABI (\d+)", pathlib.Path(HEADER).read_text()).group(1)
        self.assertIn(f"[libtransformer.so.{number}]", dynamic)
        self.assertNotRegex(dynamic, "torch|libc10")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
