# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pods of a run print, line by line: what their ranks recorded, and the program's own words.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import typing as t

from ...module_utils._node.pod_output import MARK
from .._kube.logs import Place

# In this order: a metric belongs to the newest attempt, which events tell.
_STREAMS = ("events", "metrics", "usage", "log")


class PodLogs:
    """Takes lines, and writes those of one turn together: ``write(node, stream, text)``.

    ``nodes`` are the names of the pods' nodes by uid, ``read`` the places of the lines that were written last, and
    ``refused(node, line)`` is told of a pod that did not start its program.
    """

    def __init__(
        self,
        nodes: t.Mapping[str, str],
        read: dict[str, Place],
        write: t.Callable[[str, str, str], None],
        refused: t.Callable[[str, dict[str, t.Any]], None],
    ) -> None:
        self.nodes, self.read = nodes, read
        self._write, self._refused = write, refused
        self._taken: dict[str, Place] = {}
        # Lines by stream and node; only logs are kept apart by node.
        self._waiting: dict[tuple[str, str], list[str]] = {}

    def take(self, uid: str, place: Place, raw: bytes) -> None:
        """Take in one line of the pod ``uid``."""
        self._taken[uid] = place
        text = raw.decode(errors="replace")
        node = self.nodes.get(uid, uid)
        if not text.startswith(MARK):
            self._waiting.setdefault(("log", node), []).append(text)
            return
        try:
            line = json.loads(text[len(MARK) :])
            stream, data = line["stream"], line["data"]
        except (ValueError, LookupError, TypeError):
            return
        if stream in ("events", "metrics", "usage") and isinstance(data, dict):
            if data.get("kind") == "pod_refused":
                self._refused(node, data)
            self._waiting.setdefault((stream, ""), []).append(json.dumps(data, separators=(",", ":")))

    def flush(self) -> None:
        """Write what was taken in."""
        waiting, self._waiting = self._waiting, {}
        taken, self._taken = self._taken, {}
        for (stream, node), lines in sorted(waiting.items(), key=lambda item: _STREAMS.index(item[0][0])):
            self._write(node, stream, "\n".join([*lines, ""]))
        self.read.update(taken)
