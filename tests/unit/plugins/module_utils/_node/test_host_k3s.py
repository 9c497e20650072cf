# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of K3s below a folder: reading, receiving files, placing them with a record. Units are the lab's."""

from __future__ import annotations

import errno
import functools
import hashlib
import http.server
import json
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, host_agent, host_k3s, placed_files
from ansible_collections.muster.training.tests.support.carried import carry

ABOUT = {"unit": "k3s.service", "role": "server", "cluster": "lab"}
UNIT = {**ABOUT, "start_with": "d1"}
PROGRAM = "/usr/local/bin/k3s"
CONTENT = b"a program" * 1000


def ask(root: pathlib.Path, step: str, **values: t.Any) -> dict[str, t.Any]:
    """Ask as the agent is asked."""
    return host_agent.answer_request({"op": "k3s", "step": step, "root": str(root), "node": "n", **values})


def piece(root: pathlib.Path, data: bytes, offset: int = 0, **more: t.Any) -> dict[str, t.Any]:
    return ask(root, "bring", **carry(PROGRAM, data, offset), **more)


def brought(root: pathlib.Path) -> int:
    return placed_files.part_of(PROGRAM, str(root)).stat().st_size


def test_a_bare_machine_has_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / "var/lib/rancher/k3s").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet").mkdir()
    found = ask(tmp_path, "look", paths=[PROGRAM])
    assert found["foreign"] == [] and found["record"] is None and found["joined"] is False
    assert found["files"] == {PROGRAM: None} and found["authority"] is None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("etc/systemd/system/k3s-agent.service", "K3s (/etc/systemd/system/k3s-agent.service)"),
        ("etc/rancher/rke2/config.yaml", "RKE2 (/etc/rancher/rke2)"),
        ("etc/kubernetes/kubelet.conf", "kubeadm (/etc/kubernetes/kubelet.conf)"),
        ("var/lib/kubelet/config.yaml", "a kubelet (/var/lib/kubelet)"),
    ],
)
def test_another_kubernetes_is_named(tmp_path: pathlib.Path, path: str, said: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()
    assert ask(tmp_path, "look")["foreign"] == [said]


@pytest.mark.parametrize("user", [0, 1000])
def test_a_machine_that_is_not_managed_as_root_says_so(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    """Of one with a cluster, files may be read by root alone."""

    def refuse(_request: t.Any) -> t.Any:
        raise PermissionError(errno.EACCES, "Permission denied", "/etc/rancher/k3s")

    monkeypatch.setitem(host_k3s._STEPS, "look", refuse)
    monkeypatch.setattr(host_k3s.os, "geteuid", lambda: user)
    if user == 0:
        with pytest.raises(PermissionError):
            host_k3s.answer({"step": "look"})
        return
    answer = host_k3s.answer({"step": "look"})
    assert answer["problem"] == "is not managed as root, which alone may use /etc/rancher/k3s"
    assert answer["fix"] == "Set ansible_become: true"


def test_files_are_placed_whole_with_their_modes_and_a_record(tmp_path: pathlib.Path) -> None:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    begin = {"paths": [PROGRAM, "/etc/rancher/k3s/x"], **ABOUT}
    piece(tmp_path, CONTENT[:100], begin=begin)
    assert brought(tmp_path) == 100
    record = files.read_json(tmp_path / host_k3s.RECORD)
    assert record["files"] == {PROGRAM: None, "/etc/rancher/k3s/x": None} and record["unit"] == "k3s.service"
    piece(tmp_path, CONTENT[100:], 100)
    assert brought(tmp_path) == len(CONTENT)
    wanted = [
        {"path": PROGRAM, "mode": 0o755, "sha256": sha256},
        {"path": "/etc/rancher/k3s/x", "mode": 0o600, "text": "x\n"},
    ]
    assert ask(tmp_path, "apply", files=wanted, **UNIT) == {"placed": [PROGRAM, "/etc/rancher/k3s/x"]}
    found = ask(tmp_path, "look", paths=[PROGRAM, "/etc/rancher/k3s/x"])
    assert found["files"][PROGRAM] == {"sha256": sha256, "mode": 0o755}
    assert found["files"]["/etc/rancher/k3s/x"]["mode"] == 0o600
    assert found["foreign"] == []


def test_a_piece_that_comes_again_is_not_added_twice(tmp_path: pathlib.Path) -> None:
    piece(tmp_path, CONTENT[:100])
    piece(tmp_path, CONTENT[100:200], 100)
    piece(tmp_path, CONTENT[100:200], 100)
    assert brought(tmp_path) == 200


def test_a_file_with_another_digest_is_not_placed(tmp_path: pathlib.Path) -> None:
    piece(tmp_path, CONTENT)
    item = {"path": PROGRAM, "mode": 0o755, "sha256": "0" * 64}
    assert "has the SHA-256" in ask(tmp_path, "apply", files=[item], **UNIT)["problem"]
    assert [place.name for place in (tmp_path / "usr/local/bin").iterdir()] == []


@pytest.mark.parametrize(("said", "refused"), [("v1.34.9+k3s1", True), ("v1.34.10+k3s1", False)])
def test_a_binary_of_another_version_than_its_name_is_not_placed(
    tmp_path: pathlib.Path, said: str, refused: bool
) -> None:
    data = f"#!/bin/sh\necho 'k3s version {said} (x)'\n".encode()
    part = placed_files.part_of(PROGRAM, str(tmp_path))
    part.parent.mkdir(parents=True)
    part.write_bytes(data)
    item = {"path": PROGRAM, "mode": 0o755, "sha256": hashlib.sha256(data).hexdigest()}
    answer = ask(tmp_path, "apply", files=[item], version="v1.34.10+k3s1", **UNIT)
    words = "the binary is of K3s v1.34.9+k3s1, and k3s_version is v1.34.10+k3s1"
    assert (answer.get("problem") == words, (tmp_path / PROGRAM.lstrip("/")).exists()) == (refused, not refused)


def test_a_file_that_was_changed_by_hand_is_seen(tmp_path: pathlib.Path) -> None:
    ask(tmp_path, "apply", files=[{"path": "/etc/x", "mode": 0o600, "text": "x"}], **UNIT)
    (tmp_path / "etc/x").write_text("y, longer")
    found = ask(tmp_path, "look", paths=["/etc/x"])["files"]["/etc/x"]
    assert found["sha256"] == hashlib.sha256(b"y, longer").hexdigest()


def test_a_download_is_placed_only_by_its_digest(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "release"
    source.mkdir()
    (source / "k3s").write_bytes(CONTENT)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(source))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        fetches = [{"path": PROGRAM, "url": f"{url}/k3s"}, {"path": "/usr/local/bin/other", "url": f"{url}/none"}]
        found = ask(tmp_path, "bring", fetches=fetches[:1])
        missing = ask(tmp_path, "bring", fetches=fetches)
        server.shutdown()
    assert found == {"digests": {PROGRAM: hashlib.sha256(CONTENT).hexdigest()}}
    assert "cannot be downloaded: HTTP Error 404" in missing["problem"]
    assert not (tmp_path / "usr/local/bin/k3s").exists()
    ask(tmp_path, "discard", paths=[PROGRAM])
    assert list((tmp_path / "usr/local/bin").iterdir()) == []


def test_a_unit_is_started_again_only_for_what_was_placed_since(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active, started = {"active": "inactive"}, []

    def start(unit: str, _wait_s: float) -> str | None:
        started.append(unit)
        active["active"] = "active"
        return None if len(started) < 3 else "it says why"

    monkeypatch.setattr(host_k3s, "read_unit", lambda _unit: active)
    monkeypatch.setattr(host_k3s, "_start", start)

    def restart() -> dict[str, t.Any]:
        return ask(tmp_path, "restart", unit="k3s.service", wait_s=1)

    ask(tmp_path, "apply", files=[], **UNIT)
    assert restart()["changed"] is True and restart()["changed"] is False
    assert files.read_json(tmp_path / host_k3s.RECORD)["started_with"] == "d1"
    ask(tmp_path, "apply", files=[], **{**UNIT, "start_with": "d2"})
    assert restart()["changed"] is True and len(started) == 2
    active["active"] = "failed"
    assert restart() == {"problem": "it says why"}
    assert files.read_json(tmp_path / host_k3s.RECORD)["started_with"] == "d2"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("abcdef.0123456789abcdef", "the token is not in K10 form"),
        (f"K10{'0' * 64}::abcdef.0123456789abcdef", "the token is for another cluster"),
        (f"K10{'a1' * 32}::abcdef.0123456789abcdef", "the token abcdef is expired or does not exist"),
        (f"K10{'a1' * 32}::server:wrong", "the server does not know the token"),
        (f"K10{'a1' * 32}::fedcba.0123456789abcdef", None),
    ],
)
def test_a_token_that_the_server_will_not_take_is_explained(
    monkeypatch: pytest.MonkeyPatch, given: str, said: str | None
) -> None:
    listed = [
        {"token": "abcdef.0123456789abcdef", "expires": "2020-01-01T00:00:00Z"},
        {"token": "fedcba.0123456789abcdef", "expires": "2999-01-01T00:00:00Z"},
    ]
    monkeypatch.setattr(host_k3s, "run", lambda *_words: json.dumps(listed))
    problem = host_k3s._token_problem(given, "a1" * 32, "/usr/local/bin/k3s")
    assert problem is None if said is None else problem is not None and problem.startswith(said)


def test_a_full_disk_is_told_in_one_line_and_the_record_has_what_there_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: t.Any) -> t.NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", "/usr/local/bin/.k3s.part")

    monkeypatch.setattr(placed_files, "store_part", fail)
    answer = piece(tmp_path, CONTENT, begin={"paths": [PROGRAM], **ABOUT})
    assert answer == {"problem": "/usr/local/bin/.k3s.part: No space left on device"}
    assert files.read_json(tmp_path / host_k3s.RECORD)["files"] == {PROGRAM: None}


def test_a_line_of_the_log_is_shown_without_its_frame() -> None:
    line = 'time="2026-01-01T00:00:00Z" level=error msg="Failed to \\"x\\""'
    assert host_k3s._words([line]) == 'Failed to "x"'
    assert host_k3s._words([]) == "it said nothing"


@pytest.mark.parametrize(
    ("path", "found"),
    [("server/db/etcd/member", "etcd"), ("server/db/state.db", "sqlite"), ("server/db/etcd", ""), ("agent", "")],
)
def test_where_a_server_keeps_the_cluster_is_seen(tmp_path: pathlib.Path, path: str, found: str) -> None:
    (tmp_path / host_k3s.DATA / path).mkdir(parents=True)
    assert ask(tmp_path, "look")["datastore"] == found


def test_the_server_that_a_machine_joins_is_read_from_its_configuration(tmp_path: pathlib.Path) -> None:
    assert ask(tmp_path, "look")["joins_at"] == ""
    place = tmp_path / host_k3s.CONFIG
    place.parent.mkdir(parents=True)
    place.write_text("# ours\nnode-name: a\nserver: https://192.0.2.1:6443\ntoken-file: /x\n")
    assert ask(tmp_path, "look")["joins_at"] == "https://192.0.2.1:6443"


def test_a_server_that_leaves_is_not_started_again_until_it_stays(tmp_path: pathlib.Path) -> None:
    place = tmp_path / host_k3s.LEAVES
    assert ask(tmp_path, "leave") == {"changed": False} and not place.exists()
    ask(tmp_path, "apply", files=[], **UNIT)
    assert ask(tmp_path, "leave") == {"changed": True} and "Restart=no" in place.read_text()
    assert ask(tmp_path, "leave") == {"changed": False}
    host_k3s.stay(str(tmp_path))
    assert not place.parent.exists()
    host_k3s.stay(str(tmp_path))


@pytest.mark.parametrize(("restarts", "seen"), [(0, "active"), (3, "activating")])
def test_a_unit_that_starts_after_a_boot_is_waited_for_and_one_that_crashes_is_not(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, restarts: int, seen: str
) -> None:
    states = [{"active": state, "restarts": restarts} for state in ("activating", "activating", "active")]
    monkeypatch.setattr(host_k3s, "read_unit", lambda _unit: states.pop(0))
    assert ask(tmp_path, "look", unit="k3s.service")["unit"]["active"] == seen


@pytest.mark.parametrize(
    ("said", "restarts", "starts"),
    [
        ('level=fatal msg="ETCD join failed: etcdserver: unhealthy cluster"', 3, True),
        ('level=fatal msg="ETCD join failed: etcdserver: unhealthy cluster"', 8, False),
        ('level=fatal msg="Error: no such option"', 2, False),
    ],
)
def test_a_server_is_given_time_while_etcd_takes_in_the_one_before(
    monkeypatch: pytest.MonkeyPatch, said: str, restarts: int, starts: bool
) -> None:
    """K3s ends and is started again ``restarts`` times before it would run."""
    stopped: list[tuple[str, ...]] = []
    states = [{"active": "activating", "restarts": count} for count in range(1, restarts + 1)]
    states.append({"active": "active", "restarts": restarts})
    monkeypatch.setattr(host_k3s, "read_unit", lambda _unit: states.pop(0))
    monkeypatch.setattr(host_k3s, "run", lambda *words, **_options: stopped.append(words) or "")
    monkeypatch.setattr(host_k3s, "_read_log", lambda _unit, _since: [said])
    monkeypatch.setattr(host_k3s.time, "sleep", lambda _seconds: None)
    problem = host_k3s._start("k3s.service", 60.0)
    assert (problem is None) is starts
    assert (("systemctl", "stop", "k3s.service") in stopped) is not starts


def test_a_server_has_joined_when_its_member_has_a_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(status: str) -> str:
        return json.dumps({"status": {"conditions": [{"type": "EtcdIsVoter", "status": status}]}})

    answers = ["The connection to the server was refused", node("False"), node("True")]
    asked: list[tuple[str, ...]] = []

    def run(*words: str, **_options: object) -> str:
        asked.append(words)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(host_k3s, "run", run)
    monkeypatch.setattr(host_k3s.time, "sleep", lambda _seconds: None)
    end = host_k3s.time.monotonic() + 60
    assert host_k3s._await_vote("k3s.service", "lab-2", end) is None
    # Without a look at all kinds, which kubectl would keep below root's home.
    assert {words[1:] for words in asked} == {("kubectl", "get", "--raw", "/api/v1/nodes/lab-2")}
    assert "has no vote yet" in str(host_k3s._await_vote("k3s.service", "lab-2", end - 120))


def test_an_upgrade_that_was_begun_and_the_bytes_that_it_keeps_are_read(tmp_path: pathlib.Path) -> None:
    assert ask(tmp_path, "look", machine="server")["upgrade"] == {"begun": False, "bytes": 0}
    for path, size in ((host_k3s.PROGRAM, 70), (f"{host_k3s.DATA}/server/db/etcd/member/wal", 5)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x" * size)
    for note in host_k3s.UPGRADE:
        (tmp_path / note).parent.mkdir(exist_ok=True)
        (tmp_path / note).touch()
        assert ask(tmp_path, "look", machine="agent")["upgrade"] == {"begun": True, "bytes": 75}
        (tmp_path / note).unlink()
