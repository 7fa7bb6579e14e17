"""Keyed hashes, and hashes of folders."""

import hashlib
import hmac
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tacit.common.files import KEY_BYTES, Keyed, digest, keyed, new_key

PARTS = st.lists(st.text(max_size=4), max_size=4).map(tuple)


@given(first=PARTS, second=PARTS)
def test_parts_with_other_borders_have_another_hash(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    """Catches parts that are joined without their lengths: ("ab", "c") and ("a", "bc")."""
    assert (keyed(b"key", *first) == keyed(b"key", *second)) == (first == second)


def test_it_is_the_hmac_of_the_standard_library() -> None:
    message = (2).to_bytes(8) + b"ab" + (2).to_bytes(8) + "ü".encode()
    assert keyed(b"key", "ab", "ü") == hmac.new(b"key", message, hashlib.sha256).hexdigest()


def test_another_key_gives_another_hash_and_a_stream_the_same() -> None:
    assert keyed(new_key(), "Ann") != keyed(new_key(), "Ann")
    assert len(new_key()) == KEY_BYTES
    state = Keyed(b"key")
    state.add("Ann")
    state.add(b"Lee")
    assert state.hexdigest() == keyed(b"key", "Ann", "Lee")


def test_files_behind_a_link_to_a_folder_count(tmp_path: Path) -> None:
    """Catches a model whose weights are in a linked folder: other weights, same hash."""
    weights, model = tmp_path / "weights", tmp_path / "model"
    weights.mkdir()
    model.mkdir()
    (weights / "w.bin").write_bytes(b"1")
    (model / "ner").symlink_to(weights)
    (weights / "circle").symlink_to(model)
    before = digest(model)
    (weights / "w.bin").write_bytes(b"2")
    assert digest(model) != before
