# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notices that a machine will be taken away: the answers of three clouds, as their documentation shows them, over HTTP."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_agent, host_notice

ACTION = json.dumps({"action": "terminate", "time": "2026-11-23T12:00:00Z"})
EVENTS = {"Events": [{"EventType": "Preempt", "Resources": ["vm_1"], "NotBefore": "Mon, 23 Nov 2026 12:00:00 GMT"}]}
NAME = "/metadata/instance/compute/name"
EC2 = {"PUT /latest/api/token": ("X-aws-ec2-metadata-token-ttl-seconds", "secret")}
INSTANCE = "GET /latest/meta-data/spot/instance-action"
GCE = "GET /computeMetadata/v1/instance/preempted"
AZURE = {f"GET {NAME}": ("Metadata", "vm_1")}
SCHEDULED = "GET /metadata/scheduledevents"


@contextlib.contextmanager
def metadata(answers: t.Mapping[str, tuple[str, str]]) -> t.Iterator[str]:
    """Serve texts by method and path, each only with the header that its cloud asks for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            header, text = answers.get(f"{self.command} {self.path.partition('?')[0]}", ("", ""))
            allowed = header and self.headers.get(header)
            self.send_response(200 if allowed else 404)
            self.end_headers()
            self.wfile.write(text.encode() if allowed else b"no")

        do_PUT = do_GET

        def log_message(self, *_args: t.Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def ask(root: pathlib.Path, service: str) -> str | None:
    answer = host_agent.answer_request({"op": "notice", "node": "n", "root": str(root), "service": service})
    return t.cast("str | None", answer["notice"])


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, None),
        (EC2, None),
        ({**EC2, INSTANCE: ("X-aws-ec2-metadata-token", ACTION)}, "EC2 will terminate it at 2026-11-23T12:00:00Z"),
        ({**EC2, INSTANCE: ("X-aws-ec2-metadata-token", "not JSON")}, None),
        ({GCE: ("Metadata-Flavor", "FALSE")}, None),
        ({GCE: ("Metadata-Flavor", "TRUE\n")}, "Compute Engine preempts it"),
        ({**AZURE, SCHEDULED: ("Metadata", json.dumps({"Events": []}))}, None),
        (
            {**AZURE, SCHEDULED: ("Metadata", json.dumps(EVENTS))},
            "Azure will take it away (Preempt, Mon, 23 Nov 2026 12:00:00 GMT)",
        ),
        ({f"GET {NAME}": ("Metadata", "vm_2"), SCHEDULED: ("Metadata", json.dumps(EVENTS))}, None),
        ({**AZURE, SCHEDULED: ("Metadata", json.dumps({"Events": ["x"]}))}, None),
    ],
)
def test_each_cloud_is_asked_in_its_own_way(
    tmp_path: pathlib.Path, answers: dict[str, tuple[str, str]], said: str | None
) -> None:
    with metadata(answers) as service:
        assert ask(tmp_path, service) == said


def test_without_a_metadata_service_there_is_no_notice(tmp_path: pathlib.Path) -> None:
    assert ask(tmp_path, "http://127.0.0.1:1") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("USEC=1795435200000000\nWARN_WALL=1\nMODE=poweroff\n", "it shuts down at 12:00:00 UTC"),
        ("USEC=1795435200000000\nMODE=reboot\n", None),
        ("MODE=poweroff\n", None),
        ("USEC=soon\nMODE=poweroff\n", None),
    ],
)
def test_a_shutdown_of_its_own_is_a_notice(tmp_path: pathlib.Path, text: str, said: str | None) -> None:
    place = tmp_path / host_notice._SHUTDOWN
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert ask(tmp_path, "http://127.0.0.1:1") == said
