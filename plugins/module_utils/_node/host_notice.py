# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this machine will be taken away soon: what the metadata service of its cloud says, or its own shutdown.

The addresses and answers are those of the clouds' documentation: EC2 "Spot Instance interruption notices", Compute
Engine "Spot VMs, detect preemption", Azure "Scheduled Events".
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import http.client
import json
import pathlib
import socket
import time
import typing as t
import urllib.parse
import urllib.request

_SERVICE = "http://169.254.169.254"
# Where there is no such service, nothing answers at its address.
_REACH_S, _ANSWER_S = 0.5, 2.0
_SHUTDOWN = "run/systemd/shutdown/scheduled"


def answer(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{notice}``: what says that this machine will be gone, None where nothing does.

    ``service`` and ``root`` of the request are another metadata service and another root, in tests.
    """
    service = str(request.get("service") or _SERVICE)
    notice = _read_shutdown(pathlib.Path(request.get("root", "/"), _SHUTDOWN))
    if notice is None and _is_there(service):
        notice = next((found for ask in (_ask_ec2, _ask_gce, _ask_azure) if (found := ask(service))), None)
    return {"notice": notice}


def _read_shutdown(place: pathlib.Path) -> str | None:
    """Return when systemd will shut the machine down (org.freedesktop.login1(5), ScheduledShutdown)."""
    try:
        found = dict(line.partition("=")[::2] for line in place.read_text().splitlines())
        moment = int(found["USEC"]) / 1e6
    except (OSError, KeyError, ValueError):
        return None
    if found.get("MODE") not in ("poweroff", "halt"):
        return None
    return f"it shuts down at {time.strftime('%H:%M:%S', time.gmtime(moment))} UTC"


def _is_there(service: str) -> bool:
    address = urllib.parse.urlsplit(service)
    try:
        socket.create_connection((str(address.hostname), address.port or 80), timeout=_REACH_S).close()
    except OSError:
        return False
    return True


def _ask_ec2(service: str) -> str | None:
    token = _ask(f"{service}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    if token is None:
        return None
    text = _ask(f"{service}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    found = _read_object(text)
    if not found.get("action"):
        return None
    return f"EC2 will {found['action']} it at {found.get('time', 'an unknown time')}"


def _ask_gce(service: str) -> str | None:
    text = _ask(f"{service}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return "Compute Engine preempts it" if text is not None and text.strip() == "TRUE" else None


def _ask_azure(service: str) -> str | None:
    # The events are those of all machines of a scale set.
    name = _ask(f"{service}/metadata/instance/compute/name?api-version=2021-02-01&format=text", {"Metadata": "true"})
    text = _ask(f"{service}/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"}) if name else None
    events = _read_object(text).get("Events")
    for event in events if isinstance(events, list) else []:
        known = isinstance(event, dict) and event.get("EventType") in ("Preempt", "Terminate")
        if known and name in (event.get("Resources") or []):
            return f"Azure will take it away ({event['EventType']}, {event.get('NotBefore') or 'now'})"
    return None


def _ask(url: str, headers: dict[str, str], method: str = "GET") -> str | None:
    """Return the text of a short answer, None for any other."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers, method=method), timeout=_ANSWER_S) as reply:
            return str(reply.read(1 << 16).decode(errors="replace"))
    except (OSError, http.client.HTTPException):
        return None


def _read_object(text: str | None) -> dict[str, t.Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
