# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``fleet_acceptance``: one part after another through the runners of fabric and training.

A part that fails says why and the others still run: who accepts a fleet wants to know all of it.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import pathlib
import secrets
import time
import typing as t

from ....module_utils._model import acceptance
from ....module_utils._model.acceptance import Part
from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._node import files
from ..._report.pages.acceptance import render_acceptance
from ..._report.pages.files import to_json_text, write_text
from ..shared import run_record
from ..shared.state_dir import StateHome
from ..training_job.hosts.state import Dict, Request
from . import parts as fleet_acceptance_parts
from .parts import Fleet

ORDER = ("fabric", "scaling", "queue", "user", "resume")
_TESTS: t.Mapping[str, t.Callable[[Fleet], Part]] = {
    "fabric": fleet_acceptance_parts.fabric,
    "scaling": fleet_acceptance_parts.scaling,
    "queue": fleet_acceptance_parts.queue,
    "user": fleet_acceptance_parts.user,
    "resume": fleet_acceptance_parts.resume,
}


def run(request: Request) -> Dict:
    """Accept the fleet, or say why not; return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    wanted = [name for name in ORDER if name in request.options["tests"]]
    if not wanted:
        raise InputError("tests", "names none", f"Known are: {', '.join(ORDER)}")
    fleet = fleet_acceptance_parts.fleet(request, home, f"accept-{secrets.token_hex(3)}")
    place = pathlib.Path(request.options["dest"]).expanduser() if request.options.get("dest") else home.folder
    result: Dict = {"changed": False, "file": str(place / "accept.json"), "html": str(place / "accept.html")}
    if request.check:
        return {**result, "nodes": fleet.nodes, "sizes": fleet.sizes, "tests": wanted}
    home.owner(create=True)
    files.private_dir(place)
    began, clock = time.time(), time.monotonic()
    parts: list[Part] = []
    for name in wanted:
        request.progress.say(f"acceptance of {fleet.nodes} nodes: {name}")
        parts.append(_one(name, fleet))
        request.progress.say(f"  {parts[-1].outcome.upper()}: {parts[-1].summary}")
    document = acceptance.document(
        parts,
        accept_id=fleet.identity,
        cluster=home.folder.name,
        backend=fleet.backend,
        nodes=fleet.nodes,
        loopback=fleet.loopback,
        started_at=run_record.iso(began),
        duration_s=round(time.monotonic() - clock, 3),
    )
    write_text(place / "accept.json", to_json_text(document))
    write_text(place / "accept.html", render_acceptance(document))
    return {**result, "changed": fleet.changed, **_judged(request, document, parts)}


def _one(name: str, fleet: Fleet) -> Part:
    try:
        return _TESTS[name](fleet)
    except MusterError as exc:
        return Part(name, "fail", "the test could not run", (str(exc),))


def _judged(request: Request, document: Dict, parts: t.Sequence[Part]) -> Dict:
    result: Dict = {"acceptance": document, "exit_code": document["exit_code"]}
    result["table"] = [f"{part.name}: {part.outcome.upper()} · {part.summary}" for part in parts]
    waved = document["outcome"] == "unproven" and request.options["allow_unproven"]
    if document["exit_code"] and not waved:
        short = [f"{part.name} {part.outcome}: {' '.join((part.summary, *part.reasons[:1]))}" for part in parts]
        open_ = [line for line, part in zip(short, parts, strict=True) if part.outcome in ("fail", "unproven")]
        result.update(failed=True, acceptance=None, msg=f"not accepted: {'; '.join(open_)}")
    return result
