# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which services are not yet deployed or bound as they are asked for, read of all of them at once."""

from __future__ import annotations

import typing as t

from ....module_utils._model.service import Service, parse_services
from ..._kube.objects.apply_plan import run_parallel
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome
from . import bind, deploy

Result = dict[str, t.Any]


def run(request: RunRequest, sources: t.Sequence[str]) -> Result:
    """Return the module's result; nothing is changed."""
    wanted = parse_services(request.options["services"])
    home = StateHome(request.options["state_home"], request.options["cluster"])
    asked = [service for service in wanted if service.mode == "deploy"]

    def is_pending(service: Service) -> bool:
        return not deploy.is_settled(request, service, sources)

    pending = zip(asked, run_parallel(is_pending, asked), strict=True)
    present = [service for service in wanted if service.state == "present"]
    return {
        "changed": False,
        "pending": [service.name for service, is_so in pending if is_so],
        "unbound": [service.name for service in present if not bind.is_bound(home, request.base, service)],
    }
