"""The bill of materials of the binary, as CycloneDX 1.5, and the licenses of what it contains.

    sbom.py MACHINE --sbom FILE --licenses FILE     MACHINE as uname -m has it, such as x86_64

Lists what the binary links: the normal dependencies of nuncio-cli for that machine, without build scripts, procedural
macros and what only tests need, and the C libraries that two of them compile in. Needs cargo, and no network once the
crates have been downloaded.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
ROOT = "nuncio-cli"

# C libraries inside of crates, whose own versions a scanner has to see: by crate, the library, its header below the
# crate's folder, the macro with the version, the license. mimalloc is v3 unless the crate's feature v2 is on.
BUNDLED = {
    "libsqlite3-sys": ("sqlite", "sqlite3/sqlite3.h", "SQLITE_VERSION", "blessing"),
    "libmimalloc-sys": ("mimalloc", "c_src/mimalloc/v3/include/mimalloc.h", "MI_MALLOC_VERSION", "MIT"),
}


def cargo(*arguments: str) -> str:
    command = ["cargo", *arguments, "--locked", "--quiet"]
    return subprocess.run(command, cwd=REPO, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target: str) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Name and version of each linked crate, with those that it uses itself.

    From `cargo tree` and not from `cargo metadata`: the latter counts features that only tests switch on.
    """
    edges = ["--edges", "normal,no-proc-macro", "--target", target]
    tree = cargo("tree", "--package", ROOT, *edges, "--prefix", "depth", "--format", " {p}")
    uses, path = {}, []
    for line in tree.splitlines():
        depth, name, version = re.match(r"(\d+) (\S+) v(\S+)", line).groups()
        crate = (name, version)
        path[int(depth) :] = [crate]
        uses.setdefault(crate, set())
        if len(path) > 1:
            uses[path[-2]].add(crate)
    return uses


def package_url(name: str, version: str) -> str:
    return f"pkg:cargo/{name}@{version}"


def component(package: dict, checksum: str | None) -> dict:
    """One crate. A checksum is missing for the crates of this workspace alone."""
    url = package_url(package["name"], package["version"])
    made = {"type": "library", "bom-ref": url, "name": package["name"], "version": package["version"], "purl": url}
    # Older crates write `MIT/Apache-2.0`, which SPDX no longer knows.
    made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return made


def bundled(package: dict) -> dict | None:
    """The C library that a crate compiles in, with the version that its header names."""
    if package["name"] not in BUNDLED:
        return None
    name, header, macro, license_id = BUNDLED[package["name"]]
    text = (Path(package["manifest_path"]).parent / header).read_text()
    version = re.search(rf'#define\s+{macro}\s+"?([\d.]+)', text)[1]
    if "." not in version:
        # Such as 30302 for 3.3.2: two digits for each part but the first.
        version = f"{int(version[:-4])}.{int(version[-4:-2])}.{int(version[-2:])}"
    url = f"pkg:generic/{name}@{version}"
    licenses = [{"license": {"id": license_id}}]
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url, "licenses": licenses}


def bill(uses: dict, packages: dict, machine: str) -> dict:
    lock = tomllib.loads((REPO / "Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    components, dependencies = [], []
    for crate, used in sorted(uses.items()):
        refs = [package_url(*other) for other in sorted(used)]
        if library := bundled(packages[crate]):
            components.append(library)
            dependencies.append({"ref": library["bom-ref"], "dependsOn": []})
            refs.append(library["bom-ref"])
        if crate[0] != ROOT:
            components.append(component(packages[crate], checksums[crate]))
        dependencies.append({"ref": package_url(*crate), "dependsOn": refs})
    root = next(crate for crate in uses if crate[0] == ROOT)
    program = {**component(packages[root], None), "type": "application", "name": "nuncio"}
    program["purl"] = f"pkg:generic/nuncio@{root[1]}?arch={machine}"
    built = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": built.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": program},
        "components": components,
        "dependencies": dependencies,
    }
    # From the content, so that a second build gives the same bytes.
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).digest()
    return {**made, "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"}


def license_texts(package: dict) -> list[str]:
    folder = Path(package["manifest_path"]).parent
    named = re.compile(r"(licen[sc]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
    files = (file for file in sorted(folder.iterdir()) if file.is_file() and named.match(file.name))
    return [file.read_text(errors="replace").strip() for file in files]


def licenses(uses: dict, packages: dict) -> str:
    """Most licenses demand that their text comes with the program. The same text is written once."""
    owners = {}
    for crate in sorted(uses):
        if packages[crate]["source"]:
            name = f"{crate[0]} {crate[1]} ({packages[crate]['license']})"
            for text in license_texts(packages[crate]) or ["The package has no file with its license."]:
                owners.setdefault(text, []).append(name)
    parts = (f"{', '.join(names)}\n\n{text}\n" for text, names in owners.items())
    return f"\n{'-' * 80}\n\n".join(["What the program nuncio contains, and its licenses.\n", *parts])


def main() -> None:
    parser = argparse.ArgumentParser(description="The bill of materials of the binary.")
    parser.add_argument("machine")
    parser.add_argument("--sbom", type=Path, required=True)
    parser.add_argument("--licenses", type=Path, required=True)
    given = parser.parse_args()
    target = f"{given.machine}-unknown-linux-gnu"
    uses = linked(target)
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", target))
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    given.sbom.write_text(json.dumps(bill(uses, packages, given.machine), indent=1) + "\n")
    given.licenses.write_text(licenses(uses, packages))


if __name__ == "__main__":
    main()
