# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network test of a gang: pod names resolve, and every pod reaches a random port of the others.

Collective libraries listen at ports that the kernel chooses, so each pod listens at one of those; the first pod sends
all the list of addresses, each connects to the others, and the first prints which pods could not reach which.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import socket
import threading
import time
import typing as t

from . import pod_discovery, pod_preflight
from .pod_log import Output

EXIT_UNREACHED = 69
_CONNECT_S = 5.0
# Each node's network policy engine learns of new pods from the API server: for a moment it may still refuse them.
_PATIENCE_S = 10.0
_AGAIN_S = 0.25
# Every pair up to here; in a larger gang each pod tries its next neighbours, which crosses every node and connection.
_ALL_PAIRS = 16
_NEIGHBOURS = 8
Message = dict[str, t.Any]


def main(spec: Message, program: pathlib.Path) -> int:
    """Take part in the test; return 0 when this pod reached all that it tried (the first pod: when all pods did)."""
    try:
        pod = pod_preflight.identify_pod(spec, os.environ)
    except pod_preflight.PodRefusal as exc:
        print(f"muster: {exc}", flush=True)
        return exc.code
    output = Output(pod.about())
    until = time.monotonic() + float(spec["wait_s"])
    listener = socket.create_server((_any_address(pod.address), 0), family=_family(pod.address), backlog=1024)
    threading.Thread(target=_serve_rank, args=(listener, pod.rank), daemon=True).start()
    me = {
        "rank": pod.rank,
        "node": pod.node,
        "name": pod.pod,
        "address": pod.address,
        "port": listener.getsockname()[1],
    }
    try:
        if pod.rank == 0:
            return _run_first_pod(spec, me, output, until)
        return _run_other_pod(spec, me, output, until)
    except OSError as exc:
        output.mark("probe", {**me, "ok": False, "problems": [str(exc.strerror or exc)]})
        output.say(f"node rank {pod.rank} ({pod.node}): {exc.strerror or exc}")
        return EXIT_UNREACHED


def _run_first_pod(spec: Message, me: Message, output: Output, until: float) -> int:
    """Collect the addresses of the pods, send them to all, and collect the results."""
    own = str(me["address"])
    server = socket.create_server((_any_address(own), int(spec["port"])), family=_family(own), backlog=1024)
    table, streams = _collect_pods(server, spec, me, until)
    missing = [rank for rank in range(int(spec["nodes"])) if rank not in table]
    for stream in streams.values():
        _write_message(stream, {"table": list(table.values())})
    results = [_try_all(spec, me, list(table.values()))]
    results += [
        _read_message(stream) or {**table[rank], "problems": ["did not answer"]} for rank, stream in streams.items()
    ]
    problems = [f"node rank {rank} did not connect within {spec['wait_s']} s" for rank in missing]
    problems += [problem for result in sorted(results, key=lambda item: item["rank"]) for problem in result["problems"]]
    for result in results:
        output.mark("probe", {**result, "ok": not result["problems"]})
    output.mark("probe", {"verdict": True, "ok": not problems, "nodes": len(table), "problems": problems})
    for problem in problems:
        output.say(problem)
    for stream in streams.values():
        _write_message(stream, {"done": True})
    return EXIT_UNREACHED if problems else 0


def _collect_pods(
    server: socket.socket, spec: Message, me: Message, until: float
) -> tuple[dict[int, Message], dict[int, t.Any]]:
    """Return the pods that connected in time and their streams, by rank."""
    streams: dict[int, t.Any] = {}
    table = {0: me}
    while len(table) < int(spec["nodes"]) and time.monotonic() < until:
        server.settimeout(max(0.1, until - time.monotonic()))
        try:
            client, _unused = server.accept()
        except TimeoutError:
            break
        client.settimeout(_CONNECT_S)
        stream = client.makefile("rwb")
        hello = _read_message(stream)
        if hello.get("run_id") == spec["run_id"] and isinstance(hello.get("rank"), int):
            client.settimeout(max(_CONNECT_S, until - time.monotonic()) + 60)
            table[hello["rank"]], streams[hello["rank"]] = hello, stream
    return table, streams


def _run_other_pod(spec: Message, me: Message, output: Output, until: float) -> int:
    problem = ""
    time.sleep(pod_discovery.SETTLE_S)
    while True:
        try:
            address = pod_discovery.resolve_name(str(spec["coordinator"]))
            connection = socket.create_connection((address, int(spec["port"])), timeout=_CONNECT_S)
            break
        except OSError as exc:
            problem = f"{spec['coordinator']}:{spec['port']}: {exc.strerror or exc}"
        if time.monotonic() > until:
            raise OSError(problem)
        time.sleep(_AGAIN_S)
    with connection:
        connection.settimeout(max(_CONNECT_S, until - time.monotonic()) + 60)
        stream = connection.makefile("rwb")
        _write_message(stream, {**me, "run_id": spec["run_id"]})
        result = _try_all(spec, me, _read_message(stream).get("table", []))
        _write_message(stream, result)
        # The others may still test this pod until the first one has all results.
        _read_message(stream)
    for item in result["problems"]:
        output.say(item)
    return EXIT_UNREACHED if result["problems"] else 0


def _try_all(spec: Message, me: Message, table: list[Message]) -> Message:
    others = sorted((item for item in table if item["rank"] != me["rank"]), key=lambda item: int(item["rank"]))
    if len(table) > _ALL_PAIRS:
        start = next((index for index, item in enumerate(others) if item["rank"] > me["rank"]), 0)
        others = (others[start:] + others[:start])[:_NEIGHBOURS]
    return {**me, "tried": len(others), "problems": _find_unreachable(me, others)}


def _find_unreachable(me: Message, others: list[Message]) -> list[str]:
    """Return a problem for each of ``others`` that this pod could not reach within some seconds."""
    unreached = list(others)
    until = time.monotonic() + _PATIENCE_S
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(unreached))) as pool:
        while True:
            results = list(zip(unreached, pool.map(lambda other: _try_one(me, other), unreached), strict=True))
            problems = [problem for _unused, problem in results if problem]
            unreached = [other for other, problem in results if problem]
            if not unreached or time.monotonic() > until:
                return problems
            time.sleep(_AGAIN_S)


def _try_one(me: Message, other: Message) -> str:
    path = f"node rank {me['rank']} ({me['node']}) → {other['rank']} ({other['node']})"
    try:
        with socket.create_connection((other["address"], other["port"]), timeout=_CONNECT_S) as connection:
            connection.settimeout(_CONNECT_S)
            answer = connection.makefile("rb").readline(32).strip()
    except OSError as exc:
        return f"{path} at {other['address']}:{other['port']}: {exc.strerror or exc}"
    return "" if answer == str(other["rank"]).encode() else f"{path}: another program answers at its address"


def _serve_rank(listener: socket.socket, rank: int) -> None:
    while True:
        client, _unused = listener.accept()
        with client:
            try:
                client.sendall(f"{rank}\n".encode())
            except OSError:
                continue


def _read_message(stream: t.Any) -> Message:
    try:
        value = json.loads(stream.readline(1 << 20))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_message(stream: t.Any, value: Message) -> None:
    try:
        stream.write(json.dumps(value).encode() + b"\n")
        stream.flush()
    except OSError:
        return


def _any_address(address: str) -> str:
    return "::" if ":" in address else "0.0.0.0"


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
