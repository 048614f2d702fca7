"""The prepared folder of packaging/stage, for the scripts in Python."""

import os
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


def staged(binary: str, scratch: str) -> tuple[Path, dict[str, str]]:
    """The folder and its facts: the one that packaging/release has made, or one below `scratch`."""
    made = os.environ.get("PACKAGING_STAGE")
    folder = Path(made or Path(scratch) / "stage")
    if not made:
        subprocess.run([REPO / "packaging" / "stage", binary, folder], check=True)
    lines = (folder / "facts").read_text().splitlines()
    return folder, dict(line.split("=", 1) for line in lines)
