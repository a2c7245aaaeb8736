"""No file of the repository spells the host of a package registry: packages come by name, from wherever pip is told."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Written so that this file is not among what it finds.
FORBIDDEN = re.compile(r"py[p]i\.org|files\.python[h]osted|registry\.npm[j]s|deb\.debia[n]\.org")


def found(text):
    return [match[0] for match in FORBIDDEN.finditer(text)]


def test_no_file_spells_a_registry():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: which files are the repository's is not known")
    wrong = {}
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and (words := found(path.read_text(encoding="utf-8", errors="ignore"))):
            wrong[name] = words
    assert not wrong


@pytest.mark.parametrize("host", [("py", "pi.org"), ("files.python", "hosted.org"), ("registry.npm", "js.org")])
def test_what_is_spelled_is_found(host):
    assert found(f"see https://{''.join(host)}/project")
