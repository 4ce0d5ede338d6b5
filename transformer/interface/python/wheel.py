"""Packs transformer_cpp with the libraries it needs: wheel.py LIBRARIES LICENCES VERSION LICENSE OUTPUT. Standard library
only.

LIBRARIES is a folder with libtransformer.so.N and what it needs beyond the C and C++ libraries, which it looks for
beside itself; LICENCES has the licences of these, as cmake/bundled.py collects them. The wheel is for any Python 3 on machines of this one's kind whose C library is no older; the same
files make the same wheel, byte for byte.
"""

import base64
import hashlib
import pathlib
import platform
import sys
import zipfile

PACKAGE = "transformer_cpp"


def platform_tag():
    machine = platform.machine()
    library, version = platform.libc_ver()
    return f"manylinux_{version.replace('.', '_')}_{machine}" if library == "glibc" else f"linux_{machine}"


def libraries(folder):
    """Each library by the name that it is loaded by, which is a link to the file or the file itself."""
    files = sorted(file for file in folder.iterdir() if ".so." in file.name)
    targets = {file.resolve() for file in files if file.is_symlink()}
    return {file.name: file.read_bytes() for file in files if file.is_symlink() or file.resolve() not in targets}


def main(folder, licences, version, license_file, output):
    here = pathlib.Path(__file__).parent
    tag = f"py3-none-{platform_tag()}"
    info = f"{PACKAGE}-{version}.dist-info"
    contents = {f"{PACKAGE}/{file.name}": file.read_bytes() for file in sorted((here / PACKAGE).iterdir())
                if file.suffix == ".py" or file.name == "py.typed"}
    contents.update((f"{PACKAGE}/lib/{name}", data) for name, data in libraries(pathlib.Path(folder)).items())
    contents[f"{info}/licenses/LICENSE"] = pathlib.Path(license_file).read_bytes()
    others = [file for file in sorted(pathlib.Path(licences).rglob("*")) if file.is_file()]
    of_others = [f"licences/{file.relative_to(licences)}" for file in others]
    contents.update((f"{info}/licenses/{name}", file.read_bytes()) for name, file in zip(of_others, others))
    contents[f"{info}/METADATA"] = "\n".join([
        "Metadata-Version: 2.4", f"Name: {PACKAGE.replace('_', '-')}", f"Version: {version}",
        "Summary: Translates text with trained models of the project transformer, on CPUs", "License: MIT; licences/ has those of libraries that come along",
        "License-File: LICENSE", *(f"License-File: {name}" for name in of_others), "Requires-Python: >=3.8", ""]).encode()
    contents[f"{info}/WHEEL"] = "\n".join([
        "Wheel-Version: 1.0", f"Generator: {pathlib.Path(__file__).name}", "Root-Is-Purelib: false", f"Tag: {tag}",
        ""]).encode()
    record = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
              for name, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()

    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob(f"{PACKAGE}-*.whl"):
        old.unlink()
    wheel = output / f"{PACKAGE}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name)  # of 1980, whenever it is packed
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            archive.writestr(entry, data)
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
