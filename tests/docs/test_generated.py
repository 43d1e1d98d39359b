"""What is generated in docs/ equals what the sources say now."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_pages_are_what_make_docs_makes():
    done = subprocess.run([sys.executable, ROOT / "tools/make_docs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
