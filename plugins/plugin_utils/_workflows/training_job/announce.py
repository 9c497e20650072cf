# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a run before it starts: its size and figures, the variables of its network, warnings."""

from __future__ import annotations

import typing as t

from ....module_utils._model import advice
from ....module_utils._model.network_plan import NetworkPlan
from ..shared.progress import Progress
from ..shared.request import RunRequest


def announce(
    progress: Progress,
    parts: t.Sequence[str],
    derived: t.Mapping[str, t.Any],
    network: NetworkPlan,
    *,
    running: bool,
    ended: bool = False,
) -> None:
    """Say what a run is, in one line, and which variables of NCCL and gloo each class of nodes gets.

    :param parts: the run's name and size, then what else is known of it; the figures come between them.
    :param running: it runs already and is followed: its variables are those of its start.
    :param ended: it has run already, and how it ended is read now.
    """
    line = " · ".join([parts[0], *advice.describe(derived), *parts[1:]])
    what = "has ended while it was not followed, reading how" if ended else "already running, following it"
    progress.say(f"{line} · {what}" if running else line)
    if not running:
        for text in network.describe():
            progress.say(text)


def build_sender(request: RunRequest, run_id: str) -> t.Callable[[str], None]:
    """Return what sends word of a run that continues to those whom the task names (``notify``)."""
    if not request.options.get("notify"):
        return lambda _text: None
    # Late: most runs notify no one.
    from . import notify

    return notify.build_sender(request.options["notify"], run_id, request.progress.say)
