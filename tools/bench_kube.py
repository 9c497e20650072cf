# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the Kubernetes apply engine with their gates, against kubernetes.core and kubectl on one API server.

A real kube-apiserver and etcd on this machine, no nodes: on the machine's own loopback, and behind a relay that keeps
everything back for a round trip of 1 ms, as to a server in the same building, and of 10 ms, as to a cluster that is
rented. The contestants take turns; times are medians of whole commands, net of an empty playbook for those that are
playbooks. A wall-clock figure is judged only when the machine was quiet before it; requests, writes and processor time
always are. ``kubernetes.core`` is taken from the collections of this machine, else from the package ``ansible``
(fetched by pip into the cache).

On loopback contestants and server share the processors: most of a first apply is the server's own work there, which no
client makes less, and of a second one what Ansible takes for any task.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import pathlib
import statistics
import sys
import tempfile
import threading
import time
import typing as t
from collections.abc import Mapping, Sequence

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.wait import WaitTarget, wait
from ansible_collections.muster.training.tests.support import kube_api
from tools import bench_kube_arena
from tools.bench_kube_arena import EMPTY, KINDS, LOOP, LOOP_ROUNDS, LOOPED, Arena, Cost
from tools.bench_world import Line, judge_when_quiet
from tools.quiet import wait_for_quiet

# The contestants that are playbooks, by the names of their figures; all but ours are kubernetes.core's.
PLAYBOOKS = {
    "ours": bench_kube_arena.OURS,
    "list": bench_kube_arena.SOURCE,
    "list, server-side": bench_kube_arena.SERVER_SIDE,
}

# A turn is taken again, at most so often, when its empty playbooks differ by more than a tenth.
_TURNS, _STEADY = 4, 1.1


def race(arena: Arena, count: int, rounds: int) -> list[Line]:
    """Apply ``count`` objects, and again, with each contestant in turn.

    From a playbook's time that of the empty playbooks before and after it is taken. The speed of a machine that is
    shared changes from second to second: a turn whose empty playbooks differ says nothing and is taken again. One round
    before the others is not counted; files are in memory and code is compiled after it.
    """
    is_quiet = wait_for_quiet()
    costs: dict[str, list[Cost]] = {}
    for number in range(-1, rounds):
        found = _round(arena, count, number)
        if number >= 0:
            for name, values in found.items():
                costs.setdefault(name, []).extend(values)
    for name, values in sorted(costs.items()):
        walls, work = ([f"{cost[part]:.2f}" for cost in values] for part in (0, 1))
        print(
            f"  {count} objects{arena.place}, {name}: {' '.join(walls)} s; of the processor {' '.join(work)} s",
            flush=True,
        )
    medians = [{name: statistics.median(c[part] for c in values) for name, values in costs.items()} for part in (0, 1)]
    what = f"apply {count}{arena.place}"
    timed = [*_judge(what, count, medians[0]), *_quietest(what, costs)]
    return [*judge_when_quiet(timed, is_quiet), *_work(what, medians[1])]


def _round(arena: Arena, count: int, number: int) -> dict[str, list[Cost]]:
    """Return what each contestant's whole commands take; playbooks net of the empty ones before and after each."""
    costs: dict[str, list[Cost]] = collections.defaultdict(list)
    # What is short is measured more often: an empty playbook varies by more than it takes.
    turns = ["ours", "kubectl", "ours", "writes alone", "ours", *(("list", "list, server-side") if arena.peer else ())]
    for name in turns if number % 2 else reversed(turns):
        if name == "writes alone":
            costs[name].append(arena.writes(count))
            continue
        if name == "kubectl":
            file = arena.manifest(count)
            costs["kubectl first"].append(arena.kubectl(file))
            costs["kubectl again"].append(arena.kubectl(file))
            continue
        whole, empty = _turn(arena, PLAYBOOKS[name], count)
        for at, turn in enumerate(("first", "again")):
            costs[f"{name} {turn}"].append(whole[at].net_of(_mean(empty[at : at + 2])))
        costs["empty"] += empty
    if arena.peer and 0 <= number < LOOP_ROUNDS:
        looped = arena.play(LOOP, arena.manifest(LOOPED))
        costs["loop"].append(looped.net_of(arena.play(EMPTY)))
    return costs


def _turn(arena: Arena, text: str, count: int) -> tuple[list[Cost], list[Cost]]:
    """Return what a playbook takes at first and again, and the empty ones before, between and after, of a steady turn.

    It is the last one where none was steady.
    """
    for _number in range(_TURNS):
        file, whole, empty = arena.manifest(count), [], [arena.play(EMPTY)]
        for _again in range(2):
            whole.append(arena.play(text, file))
            empty.append(arena.play(EMPTY))
        walls = [cost.wall for cost in empty]
        if max(walls) <= _STEADY * min(walls):
            break
    return whole, empty


def _mean(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.fmean(cost[part] for cost in costs) for part in (0, 1)))


def _quietest(what: str, costs: Mapping[str, Sequence[Cost]]) -> list[Line]:
    """Return the ratios of each contestant's best round, for machines on which others work, too."""
    if "list first" not in costs:
        return []
    best = {name: min(cost.wall for cost in values) for name, values in costs.items()}
    shown = [f"{turn} {best[f'list {turn}'] / max(0.01, best[f'ours {turn}']):.1f} ×" for turn in ("first", "again")]
    return [Line(f"{what}: against kubernetes.core.k8s with one src, best rounds", ", ".join(shown), "–", None)]


def _work(what: str, medians: dict[str, float]) -> list[Line]:
    """Return the processor's time net of an empty playbook, which other load on the machine hardly changes."""
    names = ("ours first", "ours again", "list first", "list again", "kubectl first", "kubectl again", "loop")
    shown = [f"{name} {medians[name]:.2f} s" for name in names if name in medians]
    lines = [Line(f"{what}: processor time, net", ", ".join(shown), "–", None)]
    if "list first" not in medians:
        return lines
    return lines + [
        _faster(
            f"{what}, {turn}: processor time, against kubernetes.core.k8s with one src",
            medians[f"list {turn}"],
            max(0.01, medians[f"ours {turn}"]),
            gate,
        )
        for turn, gate in (("first", 8), ("again", 15))
    ]


def _judge(what: str, count: int, medians: dict[str, float]) -> list[Line]:
    # Noise must not make a cost vanish: nothing is taken for less than a hundredth of a second.
    first, again = (max(0.01, medians[f"ours {turn}"]) for turn in ("first", "again"))
    kubectl = medians["kubectl first"]
    lines = [
        Line(
            f"{what}, first: net of an empty playbook, against kubectl apply --server-side",
            f"{first:.2f} s against {kubectl:.2f} s: {first / kubectl:.2f} ×",
            "≤ 1.0 × at 200" if count >= 200 else "–",
            first <= kubectl if count >= 200 else None,
        ),
        # What no client can do without; on the server's machine it is bound by the processor, which the server fills.
        Line(f"{what}, first: of which the writes alone", f"{medians['writes alone']:.2f} s", "–", None),
    ]
    if "list first" not in medians:
        return lines
    theirs, theirs_again = (medians[f"list {turn}"] for turn in ("first", "again"))
    looped = medians["loop"] * count / LOOPED
    like = [medians[f"list, server-side {turn}"] / ours for turn, ours in (("first", first), ("again", again))]
    return [
        *lines,
        Line(
            f"{what}: against kubernetes.core.k8s with one src and server_side_apply, which is what we do",
            f"first {like[0]:.1f} × faster, again {like[1]:.1f} × faster",
            "–",
            None,
        ),
        _faster(f"{what}, first: against kubernetes.core.k8s with one src", theirs, first, 8),
        _faster(f"{what}, first: against its loop (from {LOOPED} objects)", looped, first, 100),
        _faster(f"{what}, again: against kubernetes.core.k8s with one src", theirs_again, again, 15),
    ]


def _faster(what: str, theirs: float, ours: float, gate: float) -> Line:
    ratio = theirs / ours
    return Line(what, f"{theirs:.2f} s against {ours:.2f} s: {ratio:.1f} × faster", f"≥ {gate:g} ×", ratio >= gate)


def counts(arena: Arena, count: int) -> list[Line]:
    """Count the requests of the first and the second apply."""
    wanted = arena.manifest(count).read_text()
    first = apply(connect({"kubeconfig": str(arena.kubeconfig)}), wanted)
    again = apply(connect({"kubeconfig": str(arena.kubeconfig)}), wanted)
    return [
        Line(
            f"apply {count}{arena.place}, first: requests",
            str(first.requests),
            f"≤ {count + KINDS + 3}",
            first.requests <= count + KINDS + 3,
        ),
        Line(
            f"apply {count}{arena.place}, again: requests, writes",
            f"{again.requests}, {again.writes}",
            f"≤ {KINDS + 2}, 0",
            again.requests <= KINDS + 2 and again.writes == 0,
        ),
    ]


def requests(arena: Arena) -> list[Line]:
    """Tell what a single request takes, for the record: what is short cannot be kept back exactly."""
    seconds = statistics.median(arena.read() for _number in range(50))
    return [Line(f"a request{arena.place}", f"{1000 * seconds:.1f} ms", "–", None)]


def waiting(arena: Arena, count: int, rounds: int) -> list[Line]:
    """Wait for ``count`` objects of two kinds; measure how long after an event the wait is over."""
    delays, requests = [], 0
    for _ in range(rounds):
        file = arena.manifest(count)
        values = [item for item in yaml.safe_load_all(file.read_text()) if item["kind"] in ("ConfigMap", "Deployment")]
        *there, last = values
        apply(arena.client, there)
        waiter = connect({"kubeconfig": str(arena.kubeconfig)})
        wishes = [
            WaitTarget(waiter.resource(item), item["metadata"]["namespace"], item["metadata"]["name"])
            for item in values
        ]
        ended: list[float] = []

        def follow(client: Client = waiter, wishes: list[WaitTarget] = wishes, ended: list[float] = ended) -> None:
            wait(client, wishes, until="present", timeout_s=60)
            ended.append(time.monotonic())

        worker = threading.Thread(target=follow)
        worker.start()
        time.sleep(1.0)
        arena.client.create(last)
        began = time.monotonic()
        worker.join(60)
        delays.append(max(0.0, ended[0] - began))
        requests = max(requests, waiter.requests)
    seen = statistics.median(delays)
    return [
        Line(f"wait on {len(wishes)} objects of 2 kinds: requests", str(requests), "≤ 4", requests <= 4),
        Line("event seen, median", f"{1000 * seen:.0f} ms (max {1000 * max(delays):.0f})", "≤ 200 ms", seen <= 0.2),
    ]


def main(argv: list[str]) -> int:
    """Print every figure with PASS or FAIL; return 1 when a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="50,200", help="numbers of objects")
    parser.add_argument("--distances", default="0,1,10", help="round trips to the server in ms; 0: loopback")
    parser.add_argument("--only", choices=["counts", "wait", "race"])
    options = parser.parse_args(argv)
    if kube_api.missing():
        raise SystemExit(f"bench: no API server can be started here: {kube_api.missing()}")
    peer, origin = bench_kube_arena.find_peer()
    print(f"kubernetes.core: {origin}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as folder:
        root = pathlib.Path(folder)
        with kube_api.ApiServer(root / "api", durable=True) as api, contextlib.ExitStack() as arenas:
            sizes = [int(part) for part in options.sizes.split(",")]
            parts: list[tuple[str, t.Callable[[], list[Line]]]] = []
            for distance_ms in map(float, options.distances.split(",")):
                arena = arenas.enter_context(bench_kube_arena.place(api, root, peer, distance_ms))
                if not parts:
                    parts.append(("wait", functools.partial(waiting, arena, 3 * max(sizes), options.rounds)))
                parts.append(("race", functools.partial(requests, arena)))
                for size in sizes:
                    parts.append(("counts", functools.partial(counts, arena, size)))
                    parts.append(("race", functools.partial(race, arena, size, options.rounds)))
            for name, part in parts:
                for line in part() if options.only in (None, name) else []:
                    verdict = "" if line.ok is None else ("PASS" if line.ok else "FAIL")
                    failed += line.ok is False
                    print(f"{line.what}: {line.value} (gate {line.gate}) {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
