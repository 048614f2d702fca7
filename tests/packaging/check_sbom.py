"""Checks a bill of materials: against the schema, Cargo.lock and the binary itself.

    check_sbom.py SBOM BINARY

The binary has the paths of its sources in its messages, so it says itself which crates it has.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

# What only tests use, and what only builds do.
ABSENT = ["proptest", "insta", "nuncio-testkit", "cc", "syn", "serde_derive"]

sbom, binary = Path(sys.argv[1]), Path(sys.argv[2])
text = sbom.read_text()
if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
    sys.exit(f"not CycloneDX: {error}")
bill = json.loads(text)
components = {component["purl"]: component for component in bill["components"]}
names = {component["name"] for component in bill["components"]}

problems = [f"{name} is listed" for name in ABSENT if name in names]
problems += [f"{name} is not listed" for name in ("sqlite", "mimalloc", "tokio", "rustls") if name not in names]

sources = set(re.findall(rb"/registry/src/[^/]+/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[A-Za-z0-9.+-]*)/", binary.read_bytes()))
if len(sources) < 50:
    problems.append(f"the binary names only {len(sources)} crates: are its messages there?")
for name, version in sources:
    purl = f"pkg:cargo/{name.decode()}@{version.decode()}"
    if purl not in components:
        problems.append(f"{purl} is in the binary, and not listed")

lock = tomllib.loads((Path(__file__).resolve().parent.parent.parent / "Cargo.lock").read_text())
locked = {f"pkg:cargo/{entry['name']}@{entry['version']}": entry.get("checksum") for entry in lock["package"]}
for purl, component in components.items():
    if not component.get("licenses"):
        problems.append(f"{purl} has no license")
    if purl.startswith("pkg:cargo/"):
        hashes = [entry["content"] for entry in component.get("hashes", [])]
        if hashes != [checksum for checksum in [locked.get(purl, "not locked")] if checksum]:
            problems.append(f"{purl} has another hash than in Cargo.lock")

if problems:
    sys.exit("\n".join(problems))
print(f"{len(components)} components, {len(sources)} of them named by the binary")
