"""Says what an archive has of others: bundled.py STAGE [NAME VERSION]. Standard library only; on Debian and its like.

STAGE is where the libraries that are brought along have been installed, before they are packed. Beside them come

    share/doc/transformer/licences/PACKAGE      the copyright texts of the Debian packages they are from
    share/doc/transformer/licences/common/NAME  the licences that these texts refer to
    share/doc/transformer/NAME.spdx.json        the bill of materials: SPDX 2.3

and the same for libraries that are compiled in, because they are headers. Without NAME and VERSION come the licences of
these alone.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HEADERS = ("CLI/CLI.hpp", "boost/beast/core.hpp", "nlohmann/json.hpp")
LICENCES = {"boost": "BSL-1.0", "libboost": "BSL-1.0", "libcli11": "BSD-3-Clause", "libfmt": "MIT",
            "libprotobuf": "BSD-3-Clause", "libsentencepiece": "Apache-2.0", "libutf8proc": "MIT", "libxxhash": "BSD-2-Clause",
            "libyaml-cpp": "MIT", "nlohmann-json": "MIT", "zlib": "Zlib"}
# Boost's licence asks for no notice in what is compiled, and Debian's text of all of Boost has 2 MB.
WITHOUT_TEXT = "libboost"
DOCUMENTS = pathlib.Path("/usr/share/doc")
COMMON = pathlib.Path("/usr/share/common-licenses")


def query(*arguments):
    done = subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bundled.py: dpkg-query {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def package_of(path):
    """The Debian package that a file is from; `path` may be a pattern."""
    return query("--search", path).splitlines()[0].split(":")[0].split(",")[0]


def facts(package, linked):
    version, architecture, page = query("--show", "--showformat", "${Version}\t${Architecture}\t${Homepage}\n",
                                        package).splitlines()[0].split("\t")
    licence = next((name for begin, name in LICENCES.items() if package.startswith(begin)), "NOASSERTION")
    system = "debian"
    for line in pathlib.Path("/etc/os-release").read_text().splitlines():
        if line.startswith("ID="):
            system = line[3:].strip('"')
    return {"name": package, "SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', package)}", "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "homepage": page or "NOASSERTION",
            "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            "comment": "brought along" if linked else "headers, compiled in",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:deb/{system}/{package}@{version}?arch={architecture}"}]}


def compiled_in():
    """The packages of the headers."""
    return sorted({package_of(f"/usr/include/{header}") for header in HEADERS})


def copy_licences(stage, packages):
    texts = stage / "share/doc/transformer/licences"
    (texts / "common").mkdir(parents=True, exist_ok=True)
    for package in packages:
        if package.startswith(WITHOUT_TEXT):
            continue
        text = (DOCUMENTS / package / "copyright").read_text(encoding="utf-8", errors="replace")
        (texts / package).write_text(text, encoding="utf-8")
        for licence in set(re.findall(rf"{COMMON}/([A-Za-z0-9.+-]*[A-Za-z0-9])", text)):
            shutil.copyfile(COMMON / licence, texts / "common" / licence)


def main(stage, name, version):
    libraries = {}  # package -> files
    for file in sorted(stage.glob("lib*/**/*.so*")):
        if not file.is_symlink() and not file.name.startswith("libtransformer."):
            libraries.setdefault(package_of(f"*/{file.name}"), []).append(file)
    if not libraries:
        raise SystemExit(f"bundled.py: there are no libraries in {stage}")
    packages = {package: True for package in libraries}
    for package in compiled_in():
        packages.setdefault(package, False)
    copy_licences(stage, packages)

    own = {"name": "transformer", "SPDXID": "SPDXRef-transformer", "versionInfo": version,
           "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "MIT", "licenseDeclared": "MIT",
           "copyrightText": "NOASSERTION"}
    described = [facts(package, linked) for package, linked in sorted(packages.items())]
    files, relations = [], [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                             "relatedSpdxElement": own["SPDXID"]}]
    for package in described:
        relations.append({"spdxElementId": own["SPDXID"], "relationshipType": "CONTAINS",
                          "relatedSpdxElement": package["SPDXID"]})
        for file in libraries.get(package["name"], []):
            content = file.read_bytes()
            files.append({"fileName": f"./{file.relative_to(stage)}", "SPDXID": f"SPDXRef-File-{file.name.replace('_', '-')}",
                          "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(content).hexdigest()},
                                        {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}],
                          "licenseConcluded": package["licenseConcluded"], "copyrightText": "NOASSERTION"})
            relations.append({"spdxElementId": package["SPDXID"], "relationshipType": "CONTAINS",
                              "relatedSpdxElement": files[-1]["SPDXID"]})
    # The same sources on the same machine give the same archive where SOURCE_DATE_EPOCH says when they were made.
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    now = (datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc) if seconds
           else datetime.datetime.now(datetime.timezone.utc))
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
                "creationInfo": {"created": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": [f"Tool: transformer-{version}"]},
                "packages": [own, *described], "files": files, "relationships": relations}
    # A name that no other document has.
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["documentNamespace"] = f"urn:sha256:{digest}"
    (stage / "share/doc/transformer" / f"{name}.spdx.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        copy_licences(pathlib.Path(sys.argv[1]), compiled_in())
    else:
        main(pathlib.Path(sys.argv[1]), *sys.argv[2:4])
