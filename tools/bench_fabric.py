# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge real links with ``verify_fabric`` again and again, and count the right verdicts.

Two and four network namespaces joined by veth pairs, shaped with tbf; every verdict is a whole ``ansible-playbook``
run with torch and gloo in the namespaces. Needs root, iproute2 and MUSTER_TORCH_PYTHON. Then what judges files is
measured (``--only files`` for that alone). The figures mean something on an idle machine only. One line a figure,
ending in PASS or FAIL where it has a gate; exit status 1 when one fails.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile
import typing as t

from ansible_collections.muster.training.tests.lab.fabric.cases import CASES, SHARE_GATE, Case
from ansible_collections.muster.training.tests.lab.fabric.netns import Net, namespaces
from ansible_collections.muster.training.tests.lab.fabric.world import Seen, World, missing
from tools import bench_fabric_files as files
from tools.bench_fabric_files import Line

FILES = "files"


def judge(case: Case, runs: int, folder: pathlib.Path) -> list[Line]:
    """Run a case ``runs`` times; return its lines without their last word, and whether each gate holds."""
    seen: list[Seen] = []
    right = 0
    for number in range(runs):
        place = folder / f"{number}"
        one = World(place, case.setting).verify()
        shutil.rmtree(place)
        problems = case.problems(one)
        right += not problems
        seen.append(one)
        for problem in problems:
            print(f"  {case.name}, run {number + 1}: {problem}", flush=True)
    what = "passed, no false alarm" if case.healthy else "flagged as it must be"
    lines: list[Line] = [(f"{case.name}: {right} of {runs} {what} (gate {runs} of {runs})", right == runs)]
    if case.healthy:
        lines.append(_shares(case, seen))
    return [*lines, _seconds(case, seen)]


def _shares(case: Case, seen: t.Sequence[Seen]) -> Line:
    shares = [share for one in seen if (share := case.share(one)) is not None]
    least, most = min(shares, default=0.0), max(shares, default=0.0)
    good = len(shares) == len(seen) and least >= SHARE_GATE
    return f"{case.name}: measured {least:.3f} to {most:.3f} of the shaped rate (gate ≥ {SHARE_GATE})", good


def _seconds(case: Case, seen: t.Sequence[Seen]) -> Line:
    """Return the wall time of the playbook; the gate holds for the median, so that one slow run does not fail it."""
    times = [one.seconds for one in seen]
    middle = statistics.median(times)
    gate = f"gate ≤ {case.within_s:g} s" if case.within_s is not None else "no gate"
    text = f"{case.name}: verdict in {middle:.1f} s (median), {max(times):.1f} s at most ({gate})"
    return text, None if case.within_s is None else middle <= case.within_s


def chosen(words: t.Sequence[str]) -> list[Case]:
    """Return the cases whose name holds one of ``words``; all of them when no word is given."""
    found = [case for case in CASES if not words or any(word in case.name for word in words)]
    if not found and FILES not in words:
        raise SystemExit(f"bench: no case has such a name; there are: {'; '.join(case.name for case in CASES)}")
    return found


def main(argv: list[str]) -> int:
    """Print every figure with PASS or FAIL; return 1 when a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="repetitions of each case (the counts of the docs: 10)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases whose name holds one of these")
    options = parser.parse_args(argv)
    if options.runs < 1:
        parser.error("--runs must be 1 or more")
    cases = chosen(options.only)
    failed = links(cases, options.runs) if cases else False
    if not options.only or FILES in options.only:
        for text, good in [files.recorded(), *files.fifty(options.runs), *files.ranks_logs(), files.gpu()]:
            failed |= good is False
            show(text, good)
    return int(failed)


def show(text: str, good: bool | None) -> None:
    """Print a figure with its last word."""
    print(text if good is None else f"{text}: {'PASS' if good else 'FAIL'}", flush=True)


def links(cases: t.Sequence[Case], runs: int) -> bool:
    """Judge the cases on real links; return whether a gate failed."""
    reason = missing()
    if reason:
        raise SystemExit(f"bench: not run: {reason}")
    # A terminated bench must take its namespaces with it, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = False
    with tempfile.TemporaryDirectory(prefix="muster-fabric-") as folder:
        for number, case in enumerate(cases):
            for text, good in judge(case, runs, pathlib.Path(folder) / str(number)):
                failed |= good is False
                show(text, good)
    left = [name for name in namespaces() if name.startswith(tuple(Net.made))]
    show(f"namespaces left behind: {', '.join(left) or 'none'} (gate none)", not left)
    return failed or bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
