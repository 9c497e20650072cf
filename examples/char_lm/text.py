# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A text as numbers: one token per character, the alphabet taken from the text itself.

Standard library only, Python 3.10 or newer.
"""

from __future__ import annotations

import array
import dataclasses
import hashlib
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """``tokens[i]`` is the place of character ``i`` in ``alphabet`` (sorted, each once); ``digest`` is of the file."""

    alphabet: str
    tokens: array.array[int]
    digest: str

    def windows(self, context: int) -> int:
        """Return how many different samples of ``context`` tokens plus the next one the text holds."""
        return len(self.tokens) - context


def read_text(path: Path, context: int) -> Text:
    """Read a UTF-8 text; bytes that are not UTF-8 become the replacement character.

    :raises OSError: the file cannot be read.
    :raises ValueError: it is too short for one sample.
    """
    content = path.read_bytes()
    characters = content.decode("utf-8", errors="replace")
    if len(characters) <= context:
        raise ValueError(f"{path} has {len(characters)} characters, a sample needs {context + 1}")
    alphabet = "".join(sorted(set(characters)))
    places = {character: place for place, character in enumerate(alphabet)}
    return Text(alphabet, array.array("i", map(places.__getitem__, characters)), hashlib.sha256(content).hexdigest())
