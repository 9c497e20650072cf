# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make drill``: faults on the lab's cluster while a job trains, and what became of it.

``python -m tools.drill kubernetes [--repetitions N] [--only NAME …] [--add]``. What each drill showed goes to
build/drills.json (``--add`` keeps what is there), the table of all that is in it to docs/docsite/rst/drills.rst. Drills
are repeated in rounds, so that an interrupted call has as many of each.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import math
import pathlib
import signal
import sys
import tempfile
import textwrap
import typing as t

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "build" / "drills.json"
PAGE = ROOT / "docs" / "docsite" / "rst" / "drills.rst"
Dict = dict[str, t.Any]


def main(arguments: list[str]) -> int:
    """Do the drills; return 1 when one of them did not pass."""
    from ansible_collections.muster.training.tests.lab import kube_drill_proof, kube_drills
    from ansible_collections.muster.training.tests.lab.host import LabError, unmet
    from ansible_collections.muster.training.tests.support.kube_lab import borrowed

    parser = argparse.ArgumentParser(prog="python -m tools.drill", description=__doc__)
    parser.add_argument("backend", choices=["kubernetes"], nargs="?", default="kubernetes")
    parser.add_argument(
        "--repetitions", type=int, default=5, help="default: %(default)s; 0: only write the table of what is kept"
    )
    parser.add_argument("--only", nargs="+", choices=list(kube_drills.KINDS), help="these drills only")
    parser.add_argument("--add", action="store_true", help="keep the results that are there")
    parser.add_argument("--no-page", action="store_true", help="do not write the documentation's table")
    asked = parser.parse_args(arguments)
    names = asked.only or list(kube_drills.KINDS)
    known = read() if asked.add or asked.repetitions < 1 else [item for item in read() if item["kind"] not in names]
    if asked.repetitions < 1:
        PAGE.write_text(page(known, titles(kube_drills.KINDS)), encoding="utf-8")
        return 0
    reason = unmet()
    if reason:
        print(f"drill: {reason}", file=sys.stderr)
        return 1
    # A SIGTERM leaves the cluster in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    passed = True
    try:
        with borrowed() as lab, tempfile.TemporaryDirectory(prefix="muster-drill-") as folder:
            if not lab.torch:
                raise LabError("the cluster has no torch (MUSTER_TORCH_PYTHON)")
            for number in range(asked.repetitions):
                for name in names:
                    place = pathlib.Path(folder) / f"{name}-{number}"
                    known.append(dataclasses.asdict(kube_drill_proof.perform(lab, name, place)))
                    passed = passed and known[-1]["passed"]
                    print(said(known[-1]), flush=True)
                    keep(known)
                    if not asked.no_page:
                        PAGE.write_text(page(known, titles(kube_drills.KINDS)), encoding="utf-8")
    except LabError as exc:
        print(f"drill: {exc}", file=sys.stderr)
        return 1
    return 0 if passed else 1


def titles(kinds: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return name -> title of the drills in their order."""
    return {name: kind.title for name, kind in kinds.items()}


def said(result: Dict) -> str:
    """Return one line on a drill."""
    parts = [f"{result['kind']}: {'PASS' if result['passed'] else 'FAIL'}", f"{result['attempts']} attempts"]
    for key, unit in (("steps_lost", "steps lost"), ("seconds_lost", "s lost")):
        if result[key] is not None:
            parts.append(f"{result[key]:g} {unit}")
    parts.append(f"{result['duration_s']:.0f} s in all")
    return " · ".join([*parts, *result["notes"], *([result["problem"]] if result["problem"] else [])])


def read() -> list[Dict]:
    """Return the results that are kept."""
    try:
        return t.cast("list[Dict]", json.loads(RESULTS.read_text())["drills"])
    except (OSError, ValueError, KeyError):
        return []


def keep(results: t.Sequence[Dict]) -> None:
    """Write the results."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"schema": 1, "drills": list(results)}, indent=1) + "\n")


def share(values: t.Iterable[float | None], part: float) -> float | None:
    """Return the smallest value that at least ``part`` of the values do not exceed (nearest rank)."""
    known = sorted(value for value in values if value is not None)
    return known[max(0, math.ceil(part * len(known)) - 1)] if known else None


def page(results: t.Sequence[Dict], names: t.Mapping[str, str]) -> str:
    """Return the documentation's page on what the drills showed."""
    groups: dict[str, list[Dict]] = collections.defaultdict(list)
    for item in results:
        groups[item["kind"]].append(item)
    rows = [_row(title, groups[name]) for name, title in names.items() if groups[name]]
    counts = sorted({len(groups[name]) for name in names if groups[name]})
    times = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0] if counts else 0)
    failed = [item for item in results if not item["passed"]]
    undone = [title for name, title in names.items() if not groups[name]]
    day = max((item["at"][:10] for item in results), default="no day")
    done = f"Repetitions of each drill: {times}; {len(results) - len(failed)} of {len(results)} passed; last on {day}."
    done += f" Not done this time: {'; '.join(undone)}." if undone else ""
    done += " A drill that is done again takes the place of what it showed before, passed or not."
    done += " With one repetition p50, p95 and max are the same figure." if 1 in counts else ""
    text = HEAD.format(done=textwrap.fill(done, 120))
    text += _table(rows)
    if failed:
        text += "\nWhat did not pass:\n\n"
        text += "".join(f"- {names[item['kind']]}: {_plain(item['problem'])}\n" for item in failed)
    return text + TAIL


HEAD = """..
  Copyright (c) 2026, muster.training contributors
  GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
  SPDX-License-Identifier: GPL-3.0-or-later

.. _ansible_collections.muster.training.docsite.drills:

Faults that a job on Kubernetes survives
========================================

``make drill`` (root, podman, Linux) does the following to a job while it trains, and writes this page. The job is the
collection's own from end to end: the ``train`` playbook, a JobSet with a queue of Kueue, two pods that train a small
model with PyTorch, DDP over gloo, and write a checkpoint every 20 steps to a folder that all nodes share.

{done}

This is a laboratory of two nodes in containers on one machine with two busy cores and no GPU: the steps lost and what
survives carry over to other clusters, the seconds do not. A dead node is noticed there after 24 s (50 s with
Kubernetes' defaults), and its pods are deleted 60 s later.

A drill passes when the run succeeds with all ranks seen and no step missing, resumed from a checkpoint at most one
interval back, when the logs of the failed attempt are on the controller and beside the checkpoints, and when
afterwards no pod is running, no Lease is held, no quota is used and no process is left on any node. Whether it
resumed is judged as the report of a run judges it; a drill that did nothing to the run has failed. ``seconds lost`` is
the longest pause between two steps from the fault on.

"""
TAIL = """
Release of the pods of a lost node
----------------------------------

Kubernetes taints a node that stops answering, and after 60 s marks its pods for deletion. Without a kubelet that
confirms it, Kubernetes would keep such a pod for ever: its gang would not restart, and its quota and devices would not
be released. The controller that follows the run force-deletes the pod as soon as its node no longer exists or the
node's condition ``Ready`` is ``Unknown``. A kubelet that reports ``False`` is running and may end the pod itself. A
user without permission to read nodes waits until 30 s after the pod's grace period. The gang then restarts on the
remaining nodes, or waits for room.

A node that only lost its network or its kubelet still runs the job's ranks. Where checkpoints are on a mount, attempts
share the file ``.muster/RUN_ID/newest`` there: a pod that finds a newer attempt than its own in it kills its ranks,
which then save no further checkpoint. When an attempt ran without a controller that followed it, a short pod reads its
steps and logs from ``.muster/RUN_ID/logs`` the next time that the run is followed.
"""


def _row(title: str, items: t.Sequence[Dict]) -> list[str]:
    steps, seconds = ([item[key] for item in items] for key in ("steps_lost", "seconds_lost"))
    kept = [item["logs_kept"] for item in items if item["logs_kept"] is not None]
    passed = sum(item["passed"] for item in items)
    return [
        title,
        f"{passed} of {len(items)}",
        *(_figure(share(steps, part)) for part in (0.5, 0.95, 1.0)),
        *(_figure(share(seconds, part)) for part in (0.5, 0.95, 1.0)),
        f"{sum(kept)} of {len(kept)}" if kept else "–",
        "nothing" if not any(item["left"] for item in items) else "see below",
    ]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _table(rows: t.Sequence[t.Sequence[str]]) -> str:
    columns = ("drill", "passed", "p50", "p95", "max", "p50", "p95", "max", "logs kept", "left behind")
    heads = [f"steps lost {name}" if 2 <= at <= 4 else name for at, name in enumerate(columns)]
    heads = [f"seconds lost {name}" if 5 <= at <= 7 else name for at, name in enumerate(heads)]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [heads, *rows]:
        lines += [f"   {'* -' if at == 0 else '  -'} {cell}" for at, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return text without what reStructuredText would take for its own, in one line."""
    return " ".join("".join(" " if letter in "`*_|\\" else letter for letter in text).split())[:300]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
