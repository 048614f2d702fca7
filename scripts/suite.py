"""Reads what cargo says about its artifacts, and prints the program of one crate's integration tests.

    suite.py CRATE <messages
"""

import json
import sys


def main():
    manifest = f"/crates/{sys.argv[1]}/Cargo.toml"
    for line in sys.stdin:
        said = json.loads(line)
        if said["reason"] == "compiler-artifact" and said["manifest_path"].endswith(manifest) and said["executable"]:
            if said["target"]["name"] == "it":
                print(said["executable"])
                return
    sys.exit(f"cargo has built no integration tests of {sys.argv[1]}")


if __name__ == "__main__":
    main()
