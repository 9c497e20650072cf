# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alphabet and the tokens of a text."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.examples.char_lm.text import read_text


@given(content=st.binary(min_size=3, max_size=100))
def test_the_tokens_spell_the_text(content: bytes) -> None:
    expected = content.decode("utf-8", errors="replace")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "text")
        path.write_bytes(content)
        if len(expected) <= 2:
            with pytest.raises(ValueError, match="a sample needs 3"):
                read_text(path, 2)
            return
        text = read_text(path, 2)
    assert "".join(text.alphabet[token] for token in text.tokens) == expected
    assert text.alphabet == "".join(sorted(set(expected)))
    assert text.windows(2) == len(expected) - 2


def test_the_digest_tells_two_texts_with_one_alphabet_apart(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("abcabc")
    second.write_text("cbacba")
    assert read_text(first, 2).digest != read_text(second, 2).digest
    assert read_text(first, 2).alphabet == read_text(second, 2).alphabet
