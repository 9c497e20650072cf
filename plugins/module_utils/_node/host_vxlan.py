# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether datagrams of VXLAN pass between machines before K3s is on them: all send to each other at once and listen.

A datagram names its sender and those from which that has received, so that none stops before the others have it.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import json
import select
import socket
import time
import typing as t

PORT = 8472
_INTERVAL_S = 0.1
# After the last datagram has come, for peers that still miss this machine's.
_LINGER_S = 0.5


def answer(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{heard, busy}``: from which peers datagrams came, and whether another program has the port.

    :param request: ``own`` (this machine's name), ``peers`` (name -> address), ``run`` (what tells this exchange from
        another), ``wait_s``; for tests ``port`` and ``ports`` (name -> port).
    """
    peers: dict[str, str] = dict(request["peers"])
    with socket.socket(_family(peers), socket.SOCK_DGRAM) as channel:
        try:
            channel.bind(("", int(request.get("port", PORT))))
        except OSError:
            # A VXLAN link has it already: K3s or another program runs.
            return {"heard": [], "busy": True}
        heard = _exchange(channel, request, peers)
    return {"heard": sorted(heard), "busy": False}


def _family(peers: t.Mapping[str, str]) -> socket.AddressFamily:
    return socket.AF_INET6 if any(":" in address for address in peers.values()) else socket.AF_INET


def _exchange(channel: socket.socket, request: t.Mapping[str, t.Any], peers: t.Mapping[str, str]) -> set[str]:
    """Send to all peers and receive, until all have received from each other or time is over; return the senders."""
    ports = request.get("ports", {})
    heard: set[str] = set()
    heard_by: set[str] = set()
    end = time.monotonic() + float(request["wait_s"])
    while (now := time.monotonic()) < end:
        if heard >= set(peers) and heard_by >= set(peers):
            end = min(end, now + _LINGER_S)
        words = json.dumps({"run": request["run"], "from": request["own"], "heard": sorted(heard)}).encode()
        for name, address in peers.items():
            try:
                channel.sendto(words, (address, int(ports.get(name, PORT))))
            except OSError:
                # A firewall of this machine refuses; the peer will miss it.
                continue
        turn = now + _INTERVAL_S
        while (left := turn - time.monotonic()) > 0:
            if not select.select([channel], [], [], left)[0]:
                break
            sender, others = _read(channel, request["run"])
            if sender in peers:
                heard.add(sender)
                heard_by |= {sender} if request["own"] in others else set()
    return heard


def _read(channel: socket.socket, run: str) -> tuple[str, list[str]]:
    """Return who sent a datagram and whom that one has heard; of other programs' datagrams nothing."""
    try:
        value = json.loads(channel.recvfrom(65535)[0])
        return (str(value["from"]), list(value["heard"])) if value["run"] == run else ("", [])
    except (OSError, ValueError, KeyError, TypeError):
        return "", []
