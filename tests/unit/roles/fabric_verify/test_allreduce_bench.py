# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The torch bench: what it reads of sockets and counters (no torch needed), and real runs of two ranks."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.result import BenchResult

FILES = pathlib.Path(__file__).parents[4] / "roles" / "fabric_verify" / "files"
BENCH = FILES / "allreduce_bench.py"


def _load() -> t.Any:
    spec = importlib.util.spec_from_file_location("bench_evidence", FILES / "bench_evidence.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_evidence"] = module
    spec.loader.exec_module(module)
    return module


evidence = _load()


@given(st.ip_addresses(), st.integers(0, 65535))
def test_addresses_of_proc_net_tcp(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    words = struct.unpack(f"={len(ip.packed) // 4}I", ip.packed)
    text = "".join(f"{word:08X}" for word in words) + f":{port:04X}"
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    shown = f"[{ip}]:{port}" if ip.version == 6 and not mapped else f"{mapped or ip}:{port}"
    assert evidence.decode_address(text) == shown


@pytest.fixture
def connection() -> t.Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            yield client, accepted


def test_own_sockets_are_found_with_their_bytes(connection: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = connection
    key = tuple("{}:{}".format(*name) for name in (client.getsockname(), client.getpeername()))
    before = evidence.own_sockets()[key]
    client.sendall(b"x" * 100_000)
    received = 0
    while received < 100_000:
        received += len(accepted.recv(65536))
    after = evidence.own_sockets()
    assert after[key[::-1]][1] - evidence.own_sockets()[key][1] == 100_000
    assert before[0] <= after[key][0]
    owners = evidence.interface_addresses()
    assert owners["127.0.0.1"] == "lo" and "lo" in evidence.netdev_bytes()


def test_evidence_names_interface_deltas_and_loopback(connection: tuple[socket.socket, socket.socket]) -> None:
    before = evidence.Snapshot.take()
    connection[0].sendall(b"y" * 1000)
    found = evidence.evidence(3, "node-4", before, evidence.Snapshot.take())
    local = "{}:{}".format(*connection[0].getsockname())
    entry = next(item for item in found["sockets"] if item["local"] == local)
    assert entry["interface"] == "lo" and entry["rx_bytes"][0] <= entry["rx_bytes"][1]
    assert found["rank"] == 3 and found["node"] == "node-4" and found["pid"] == os.getpid()
    low, high = found["netdev"]["lo"]["tx_bytes"]
    assert high - low >= 1000


def _ends(rank: int, *pairs: tuple[str, str]) -> dict[str, t.Any]:
    return {"rank": rank, "sockets": [{"local": local, "peer": peer, "interface": "eth0"} for local, peer in pairs]}


def test_only_sockets_that_end_at_another_rank_are_kept() -> None:
    ranks = [
        _ends(0, ("10.0.0.1:5000", "10.0.0.2:6000"), ("10.0.0.1:22", "10.0.0.9:40000"), ("10.0.0.1:7", "10.0.0.1:8"),
              ("10.0.0.1:8", "10.0.0.1:7"), ("10.0.0.1:29500", "10.0.0.2:41000")),
        _ends(1, ("10.0.0.2:6000", "10.0.0.1:5000"), ("10.0.0.2:41000", "10.0.0.1:29500")),
    ]  # fmt: skip
    kept = evidence.keep_peers(ranks, "29500")
    assert [[(entry["local"], entry["peer_rank"]) for entry in rank["sockets"]] for rank in kept] == [
        [("10.0.0.1:5000", 1)],
        [("10.0.0.2:6000", 0)],
    ]


# ---- with torch ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch_python() -> str:
    found = os.environ.get("MUSTER_TORCH_PYTHON")
    if not found:
        pytest.skip("MUSTER_TORCH_PYTHON names no interpreter with torch")
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _start(python: str, script: pathlib.Path, ranks: int, present: int, *args: str) -> list[subprocess.Popen[str]]:
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "LOCAL_RANK": "0"}
    environment = {
        **os.environ,
        **shared,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(FILES),
        "LOCAL_WORLD_SIZE": str(ranks),
    }
    return [
        subprocess.Popen(
            [python, str(script), "--iface", "lo", *args],
            env={**environment, "RANK": str(rank), "MUSTER_NODE": f"node-{rank + 1}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(present)
    ]


def _finish(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    results = []
    for process in processes:
        _, errors = process.communicate(timeout=60)
        results.append((process.returncode, errors))
    return results


@pytest.mark.torch
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_two_ranks_measure_and_prove_their_sockets(torch_python: str, collective: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.json"
    options = ("--collective", collective, "--sizes", "4096", "1048576", "--seconds", "0.05", "--out", str(out))
    assert [code for code, _ in _finish(_start(torch_python, BENCH, 2, 2, *options))] == [0, 0]
    found = BenchResult.from_text(out.read_text())
    assert (found.collective, found.ranks, found.nodes, found.wrong_values) == (collective, 2, 2, 0)
    assert [row.size_bytes for row in found.results] == [4096, 1048576]
    top = found.largest_row
    assert top is not None and top.busbw_gb_s > 0
    assert top.busbw_gb_s == pytest.approx(top.algbw_gb_s * (1 if collective == "all_reduce" else 0.5), rel=0.01)
    for rank, item in enumerate(found.evidence):
        assert item.node == f"node-{rank + 1}" and item.netdev["lo"].sent_bytes > 1048576
        assert [(end.peer_rank, end.interface) for end in item.sockets] == [(1 - rank, "lo")]
        assert (item.sockets[0].carried_bytes or 0) > 1048576


@pytest.mark.torch
def test_ranks_of_one_rail_stay_among_themselves(torch_python: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.json"
    options = ("--split-mod", "2", "--sizes", "1048576", "--seconds", "0.05", "--out", str(out))
    assert [code for code, _ in _finish(_start(torch_python, BENCH, 4, 4, *options))] == [0, 0, 0, 0]
    found = BenchResult.from_text(out.read_text())
    assert (found.ranks, found.split_mod, found.wrong_values) == (4, 2, 0)
    top = found.largest_row
    # Two ranks a rail: the factor of an all-reduce is that of two, not of four.
    assert top is not None and top.busbw_gb_s == pytest.approx(top.algbw_gb_s, rel=0.01)
    for item in found.evidence:
        moved = {end.peer_rank for end in item.sockets if (end.carried_bytes or 0) > 1048576}
        assert moved == {(item.rank + 2) % 4}


@pytest.mark.torch
def test_rails_that_do_not_divide_the_ranks_are_refused(torch_python: str, tmp_path: pathlib.Path) -> None:
    ((code, errors),) = _finish(_start(torch_python, BENCH, 4, 1, "--split-mod", "3"))
    assert code == 2 and "--split-mod must divide the 4 ranks" in errors and "Traceback" not in errors


@pytest.mark.torch
def test_wrong_values_are_counted_and_fail(torch_python: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "corrupt.py"
    script.write_text(
        "import sys, allreduce_bench as bench\n"
        "run = bench.Collective.run\n"
        "def corrupt(self):\n"
        "    run(self)\n"
        "    if self.rank == 1:\n"
        "        self.receive[:3] += 1\n"
        "bench.Collective.run = corrupt\n"
        "sys.exit(bench.main(sys.argv[1:]))\n"
    )
    out = tmp_path / "out.json"
    options = ("--sizes", "4096", "--seconds", "0.01", "--out", str(out))
    assert [code for code, _ in _finish(_start(torch_python, script, 2, 2, *options))] == [1, 1]
    # Three values in each of the two checks.
    assert json.loads(out.read_text())["results"][0]["wrong_values"] == 6


@pytest.mark.torch
def test_a_missing_rank_ends_in_time_and_leaves_no_old_result(torch_python: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("an earlier run's result")
    ((code, errors),) = _finish(_start(torch_python, BENCH, 2, 1, "--timeout", "1", "--out", str(out)))
    assert code == 3 and errors.count("\n") == 1 and "rank 0 timed out in phase init" in errors
    assert not out.exists()


@pytest.mark.torch
@pytest.mark.parametrize(("words", "tries"), [((), (1,)), (("--expected", "1000000"), (2, 3, 4))])
def test_what_is_judged_is_measured_until_two_tries_agree(
    torch_python: str, words: tuple[str, ...], tries: tuple[int, ...]
) -> None:
    size = 4 << 20
    options = ("--sizes", str(size), "--seconds", "0.05", *words, "--out", "-")
    processes = _start(torch_python, BENCH, 2, 2, *options)
    text, errors = processes[0].communicate(timeout=60)
    assert [processes[0].returncode, *[code for code, _ in _finish(processes[1:])]] == [0, 0], errors
    # The document comes as numbered lines, as a pod's log needs it.
    lines = [line.split(" ", 2)[2] for line in text.splitlines() if line.startswith("muster-bench ")]
    found = BenchResult.from_text("".join(lines))
    (row,) = found.results
    assert (row.size_bytes, found.wrong_values) == (size, 0) and row.tries in tries
    # Each iteration sends the size once; so do the two checks and the estimate.
    sent = (2 + 1 + row.tries * row.iterations) * size
    assert found.evidence[0].netdev["lo"].sent_bytes == pytest.approx(2 * sent, rel=0.05)


@pytest.mark.torch
def test_when_the_best_try_can_stand(torch_python: str) -> None:
    """When a second one says nearly the same, or when the network is far below and gave the same before."""
    cases = {((95,), 95, 92): False, ((95, 94), 95, 92): True, ((80, 95), 95, 92): False, ((80, 95, 94), 95, 92): True,
             ((50,), 90, 92): False, ((50,), None, 92): False, ((50,), 52, 92): True, ((20,), 19, 92): True,
             ((80, 81), 95, 92): True}  # fmt: skip
    code = f"import allreduce_bench as b; print([b.is_settled(*case) for case in {list(cases)}])"
    found = subprocess.run(
        [torch_python, "-c", code], cwd=BENCH.parent, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(found.stdout.lower()) == list(cases.values())
