# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a result leaves the bench: a file, lines of a log, a table. Part of ``allreduce_bench.py``, copied beside it."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

# Characters of a result in one line of a log (pods cut at 16 KiB and at 64 KiB).
PIECE = 8192


def pieces(text: str) -> list[str]:
    """A document as numbered lines: a log cuts lines that are too long."""
    parts = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    return [f"muster-bench {number}/{len(parts)} {part}" for number, part in enumerate(parts, 1)]


def write_result(result: dict[str, t.Any], path: str | None) -> None:
    """Write at once or not at all; to standard output when no file is named, as numbered lines for ``-``."""
    text = json.dumps(result)
    if path is None or path == "-":
        print("\n".join(pieces(text)) if path else text, flush=True)
        return
    temporary = Path(f"{path}.tmp")
    temporary.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_text(text + "\n")
    temporary.replace(path)


def print_table(result: dict[str, t.Any]) -> None:
    print(f"# {result['collective']} {result['backend']} ranks {result['ranks']} nodes {result['nodes']}")
    print(f"#{'size B':>14}{'time us':>14}{'algbw GB/s':>12}{'busbw GB/s':>12}{'wrong':>8}")
    for row in result["results"]:
        bandwidth = f"{row['algbw_gb_s']:>12.4f}{row['busbw_gb_s']:>12.4f}"
        print(f"{row['size_bytes']:>15}{row['time_us']:>14.1f}{bandwidth}{row['wrong_values']:>8}")
    sys.stdout.flush()
