# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accept a fleet (``fleet_acceptance``): one test after another through the workflows of fabric and training.

A test that fails gives its reason and the others still run, so that one report has all results.
"""

from __future__ import annotations

import pathlib
import secrets
import time
import typing as t

from ....module_utils._model import acceptance
from ....module_utils._model.acceptance import AcceptancePart
from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._node import files
from ..._report.pages.acceptance import render_acceptance
from ..._report.pages.files import to_json_text, write_text
from ..shared import run_record
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome
from . import parts as fleet_acceptance_parts
from .parts import FleetUnderTest

ORDER = ("gpus", "fabric", "scaling", "queue", "user", "resume")
_TESTS: t.Mapping[str, t.Callable[[FleetUnderTest], AcceptancePart]] = {
    "gpus": fleet_acceptance_parts.verify_gpus,
    "fabric": fleet_acceptance_parts.verify_fabric,
    "scaling": fleet_acceptance_parts.measure_scaling,
    "queue": fleet_acceptance_parts.check_queue,
    "user": fleet_acceptance_parts.check_user_rights,
    "resume": fleet_acceptance_parts.check_resume,
}


def accept_fleet(request: RunRequest) -> dict[str, t.Any]:
    """Accept the fleet or give the reasons against it; return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    names = [name for name in ORDER if name in request.options["tests"]]
    if not names:
        raise InputError("tests", "does not name a test", f"Known are: {', '.join(ORDER)}")
    fleet = fleet_acceptance_parts.build_fleet(request, home, f"accept-{secrets.token_hex(3)}")
    folder = pathlib.Path(request.options["dest"]).expanduser() if request.options.get("dest") else home.folder
    result: dict[str, t.Any] = {
        "changed": False,
        "file": str(folder / "accept.json"),
        "html": str(folder / "accept.html"),
    }
    if request.check:
        would = f"would test {', '.join(names)} on {fleet.nodes} nodes and write {folder / 'accept.html'}"
        request.progress.say(f"{would}; nothing was started")
        return {**result, "nodes": fleet.nodes, "sizes": fleet.sizes, "tests": names}
    home.owner(create=True)
    files.private_dir(folder)
    started_at, clock = time.time(), time.monotonic()
    parts: list[AcceptancePart] = []
    for name in names:
        request.progress.say(f"acceptance of {fleet.nodes} nodes: {name}")
        parts.append(_run_part(name, fleet))
        request.progress.say(f"  {parts[-1].outcome.upper()}: {parts[-1].summary}")
    document = acceptance.build_document(
        parts,
        accept_id=fleet.identity,
        cluster=home.folder.name,
        backend=fleet.backend,
        nodes=fleet.nodes,
        loopback=fleet.loopback,
        started_at=run_record.format_time(started_at),
        duration_s=round(time.monotonic() - clock, 3),
    )
    write_text(folder / "accept.json", to_json_text(document))
    write_text(folder / "accept.html", render_acceptance(document))
    return {**result, "changed": fleet.changed, **_build_result(request, document, parts)}


def _run_part(name: str, fleet: FleetUnderTest) -> AcceptancePart:
    try:
        return _TESTS[name](fleet)
    except MusterError as exc:
        return AcceptancePart(name, "fail", "the test could not run", (str(exc),))


def _build_result(
    request: RunRequest, document: dict[str, t.Any], parts: t.Sequence[AcceptancePart]
) -> dict[str, t.Any]:
    result: dict[str, t.Any] = {"acceptance": document, "exit_code": document["exit_code"]}
    result["table"] = [f"{part.name}: {part.outcome.upper()} · {part.summary}" for part in parts]
    is_allowed = document["outcome"] == "unproven" and request.options["allow_unproven"]
    if document["exit_code"] and not is_allowed:
        lines = [f"{part.name} {part.outcome}: {': '.join((part.summary, *part.reasons[:1]))}" for part in parts]
        failures = [line for line, part in zip(lines, parts, strict=True) if part.outcome in ("fail", "unproven")]
        result.update(failed=True, acceptance=None, msg=f"not accepted: {'; '.join(failures)}")
    return result
