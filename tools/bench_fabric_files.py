# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of judging files: the recorded logs against their index, fifty files by the diagnose playbook, a GPU's bench.

Each is a line of text with its gate, ending in PASS or FAIL; what cannot run here is listed as not run, with why.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.file import (
    FileDiagnosis,
    diagnose_stream,
)

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "fixtures" / "fabric"
FILES, GATE_S = 50, 3.0
LIMIT_S = 300
# A figure, and whether its gate holds; None where it has none.
Line = tuple[str, bool | None]


def recorded() -> Line:
    """Compare transport, GPUDirect and cause of each recorded log with the index beside them."""
    with (RECORDED / "index.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    right = sum(_agrees(row) for row in rows)
    text = f"recorded logs: {right} of {len(rows)} judged as their index says (gate {len(rows)} of {len(rows)})"
    return text, right == len(rows)


def _agrees(row: t.Mapping[str, str]) -> bool:
    with (RECORDED / row["file"]).open("rb") as stream:
        found: FileDiagnosis = diagnose_stream(stream, row["file"])
    told = row["inter_node_transport"]
    # A statement in the source's prose, or a start-up line alone, proves nothing.
    unproven = told.startswith(("unproven", "none", "na")) or "(stated)" in told
    transport = None if unproven else re.sub(r" \(.*\)$", "", told)
    gdr = row["gdr_seen"] if row["gdr_seen"] in ("yes", "no") else "unknown"
    codes = [cause.code for cause in found.causes]
    wanted = [row["cause_code"]] if row["cause_code"] else []
    return (found.transport, found.gdr, codes) == (transport, gdr, wanted)


def fifty(runs: int) -> list[Line]:
    """Judge fifty recorded files by the playbook, as a user does; the median of the wall times has the gate."""
    sources = sorted(path for path in RECORDED.iterdir() if path.suffix in (".log", ".txt"))
    times, used = [], []
    with tempfile.TemporaryDirectory(prefix="muster-diagnose-") as name:
        folder = pathlib.Path(name)
        (folder / "logs").mkdir()
        for number in range(FILES):
            source = sources[number % len(sources)]
            shutil.copyfile(source, folder / "logs" / f"{number:02d}-{source.name}")
        for _ in range(runs):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            count = _diagnose(folder)
            times.append(time.monotonic() - began)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            if count != FILES:
                return [(f"diagnose {FILES} files: {count} entries (gate {FILES})", False)]
    middle = statistics.median(times)
    text = (
        f"diagnose {FILES} files: {middle:.2f} s (median of {runs}), {statistics.median(used):.2f} s of processor time"
    )
    return [(f"{text} (gate ≤ {GATE_S:g} s)", middle <= GATE_S)]


def _diagnose(folder: pathlib.Path) -> int:
    """Run the playbook and return the number of entries in its file."""
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "muster.training.diagnose", "-e", f"diagnose_logs={folder / 'logs'}", "-e", f"diagnose_out={out}"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MUSTER_"))}
    environment = {**kept, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(folder / "ansible")}
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return len(json.loads(out.read_text())) if done.returncode == 0 and out.exists() else 0


def ranks_logs() -> list[Line]:
    """Judge 64 ranks' INFO logs of 200 MB together in a process of its own."""
    argv = [sys.executable, "-m", "tools.bench_fabric_parse"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    lines: list[Line] = []
    for line in done.stdout.splitlines():
        text, _, word = line.rpartition(": ")
        lines.append((text, word == "PASS") if word in ("PASS", "FAIL") else (line, None))
    return lines if any(good is not None for _, good in lines) else [("64 ranks' INFO logs: not judged", False)]


def gpu() -> Line:
    """Say whether there is a GPU; its bench is verify_fabric itself, on the one host that has it."""
    if shutil.which("nvidia-smi") is None:
        return "bench inside a node with GPUs: not run: this machine has no GPU", None
    return "bench inside a node with GPUs: run verify_fabric with that host", None
