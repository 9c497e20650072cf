# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for objects: reads the options of ``kube_wait`` and builds its result."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Callable, Mapping

from ....module_utils._model.errors import InputError
from ..._kube.api.client import Client
from ..._kube.objects import status
from ..._kube.objects.status import State
from ..._kube.objects.wait import WaitOutcome, WaitTarget, wait
from ..shared.kube_connection import open_client


def run(
    options: Mapping[str, t.Any], base: pathlib.Path, check: bool, tell: Callable[[str], None]
) -> dict[str, object]:
    """Return the result of ``kube_wait``, a failed one when the targets were not reached."""
    if check:
        # The objects may not exist in check mode.
        return {"changed": False, "states": [], "requests": 0, "duration_s": 0.0, "outages": 0}
    client = open_client(options, base, tell)
    # The result of kube_apply may be given as it is.
    entries = [entry for entry in options["objects"] if entry.get("action") != "pruned"]
    targets = [_parse_target(client, entry, number) for number, entry in enumerate(entries)]
    rule = None
    if options.get("condition"):
        rule = status.condition_rule(str(options["condition"]["type"]), str(options["condition"]["status"]))

    def report(name: str, state: State) -> None:
        if state.phase != "waiting":
            tell(f"{name}: {state.phase}{f' ({state.reason})' if state.reason else ''}")

    timeout_s = float(options["timeout_s"])
    outcome = wait(client, targets, until=options["until"], rule=rule, timeout_s=timeout_s, report=report)
    return _build_result(outcome, timeout_s)


def _parse_target(client: Client, entry: Mapping[str, t.Any], number: int) -> WaitTarget:
    kind = str(entry["kind"])
    if entry.get("apiVersion"):
        kind = f"{entry['apiVersion']}/{kind}"
    resource = client.resource(kind)
    if not entry.get("name") and entry.get("labels") is None:
        raise InputError(f"objects[{number}]", "needs name or labels")
    labels = ",".join(f"{key}={value}" for key, value in sorted((entry.get("labels") or {}).items()))
    named = str(entry.get("name") or "")
    namespace = (entry.get("namespace") or client.namespace) if resource.namespaced else None
    return WaitTarget(resource, namespace, named, "" if named else labels, int(entry.get("count") or 1))


def _build_result(outcome: WaitOutcome, timeout_s: float) -> dict[str, object]:
    result: dict[str, object] = {
        "changed": False,
        "states": [{"object": name, "state": state.phase, "reason": state.reason} for name, state in outcome.states],
        "requests": outcome.requests,
        "duration_s": round(outcome.duration_s, 3),
        "outages": outcome.outages,
    }
    if outcome.end == "done":
        return result
    done = sum(state.phase == "done" for _unused, state in outcome.states)
    head = "failed" if outcome.end == "failed" else f"not done within {timeout_s:g} s"
    return {**result, "failed": True, "msg": f"{head} ({done} of {len(outcome.states)} done): {outcome.summary()}"}
