"""The corpora of the fuzz targets are archives that pack and unpack without a difference."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fuzz"))
import corpus  # noqa: E402


@pytest.mark.parametrize("target", ["record", "index", "zones", "config", "pool"])
def test_an_archive_is_the_same_when_it_is_packed_again(target, tmp_path, monkeypatch):
    whole = (corpus.CORPUS / f"{target}.tar").read_bytes()
    corpus.unpack(target, tmp_path / "inputs")
    assert len(corpus.sizes(target)) == len(list((tmp_path / "inputs").iterdir())) >= 50
    assert any(path.name.startswith("seed") for path in (tmp_path / "inputs").iterdir())
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "archives")
    corpus.pack(target, tmp_path / "inputs")
    assert (tmp_path / "archives" / f"{target}.tar").read_bytes() == whole
