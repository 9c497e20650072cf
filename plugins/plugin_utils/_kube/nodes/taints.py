# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The taints of nodes: those that an inventory lists, changed and removed later, and others' left as they are.

An annotation of the Node remembers which taints are the inventory's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ....module_utils._model.errors import InputError, RefusedError
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject

Taint = dict[str, str]
ANNOTATION = "muster.training/taints"
_TAINT = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_./]*)(?:=([-A-Za-z0-9_.]*))?:(NoSchedule|PreferNoSchedule|NoExecute)\Z")
_TRIES = 5
_CONFLICT = 409


def parse_taint(text: str) -> Taint:
    """Return the taint that ``key=value:Effect`` or ``key:Effect`` names.

    :raises InputError: when it names none.
    """
    match = _TAINT.match(text)
    if not match:
        raise InputError("taints", f"'{text}' is not a taint", "Write for instance example.com/gpu=reserved:NoSchedule")
    return {"key": match[1], **({"value": match[2]} if match[2] else {}), "effect": match[3]}


def plan_taints(node: KubeObject, wanted: Sequence[str]) -> dict[str, dict[str, object]] | None:
    """Return the patch that gives a Node the wanted taints, None where it has them.

    Taints that this collection did not set, such as those of the node controller, stay.
    """
    current = list((node.get("spec") or {}).get("taints") or [])
    owned = str((node["metadata"].get("annotations") or {}).get(ANNOTATION) or "").split(",")
    taints = [parse_taint(text) for text in dict.fromkeys(wanted)]
    places = {(taint["key"], taint["effect"]) for taint in taints}
    kept = [taint for taint in current if _render(taint) not in owned and (taint["key"], taint["effect"]) not in places]
    note = ",".join(sorted(map(_render, taints)))
    others = [taint for taint in current if taint not in kept]
    same = sorted(map(_render, others)) == sorted(map(_render, taints))
    if same and note == ",".join(filter(None, owned)):
        return None
    patch: dict[str, dict[str, object]] = {"metadata": {"annotations": {ANNOTATION: note or None}}}
    return patch if same else {**patch, "spec": {"taints": [*kept, *taints]}}


def set_taints(client: Client, name: str, wanted: Sequence[str], check: bool = False) -> bool:
    """Give a node the wanted taints; return whether that changed something.

    :raises RefusedError: when there is no such node.
    """
    for attempt in range(_TRIES):
        node = client.get("v1/Node", name)
        if node is None:
            raise RefusedError(f"the cluster has no node {name}", "Let it join first")
        patch = plan_taints(node, wanted)
        if patch is None:
            return False
        # Others change taints, too: what was read must still be so.
        patch["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"]
        try:
            client.patch("v1/Node", name, patch, dry_run=check)
            return True
        except KubeError as error:
            if error.status != _CONFLICT or attempt == _TRIES - 1:
                raise
    return True


def _render(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"
