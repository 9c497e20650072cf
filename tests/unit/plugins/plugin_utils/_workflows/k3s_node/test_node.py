# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine from nothing to K3s and back, by the agent's own code below a folder; only systemd is stood in for."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, NodeError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import facts_cluster, files, host_agent, host_k3s
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._hosts import bundle, k3s_files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node import node
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import digest_lock
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.carried import as_stream

KUBECONFIG = '{"clusters": [{"name": "default", "cluster": {"server": "https://127.0.0.1:6443"}}]}'
TOKEN = f"K10{'a1' * 32}::abc123.0123456789abcdef"
SERVERS = f"K10{'a1' * 32}::server:0123456789abcdef"
ABLE = {"systemd": "1", "cap_eff": "000001ffffffffff", "kmsg": "1", "tun": "1", "cgroup_rw": "1"}


class Machine:
    """A machine below ``root``; its units are started by writing down that they are."""

    def __init__(self, name: str, root: pathlib.Path) -> None:
        self.name, self.root = name, root
        self.active = False
        self.starts = 0
        self.steps: list[str] = []

    def ask(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        self.steps.append(values["step"])
        if values["step"] == "restart":
            return self.start()
        if values["step"] == "token" and values.get("server"):
            return {"token": SERVERS}
        if values["step"] == "token":
            return {"token": TOKEN, "absent": True, "deleted": True, "problem": None}
        answer = host_agent.answer_request({"op": op, "root": str(self.root), "node": self.name, **as_stream(values)})
        if values["step"] == "look":
            unit = {"active": "active" if self.active else "inactive", "enabled": self.active, "restarts": 0}
            answer |= {"unit": unit, "ability": ABLE, "root": True, "architecture": "x86_64"}
        return answer

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        answer = self.ask(op, **values)
        if answer.get("problem"):
            raise NodeError(self.name, answer["problem"])
        return answer

    def start(self) -> dict[str, t.Any]:
        record = files.read_json(self.root / host_k3s.RECORD)
        if self.active and record.get("started_with") == record["start_with"]:
            return {"changed": False, "kubeconfig": KUBECONFIG}
        files.write_json(self.root / host_k3s.RECORD, {**record, "started_with": record["start_with"]})
        self.active = True
        self.starts += 1
        config = yaml.safe_load((self.root / k3s_files.CONFIG.lstrip("/")).read_text())
        if record["role"] == "server":
            has_etcd = "cluster-init" in config or "server" in config
            kept = f"{host_k3s.DATA}/server/db/{'etcd/member' if has_etcd else 'state.db'}"
            (self.root / kept).mkdir(parents=True, exist_ok=True)
        for path in ("etc/rancher/k3s/k3s.yaml", f"{host_k3s.DATA}/agent/client-kubelet.crt"):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(KUBECONFIG)
        return {"changed": True, "kubeconfig": KUBECONFIG}


@pytest.fixture
def release(tmp_path: pathlib.Path) -> pathlib.Path:
    place = tmp_path / "release"
    place.mkdir()
    (place / "k3s").write_bytes(b"program" * 100)
    (place / "pause.tar").write_bytes(b"image")
    return place


@pytest.fixture
def order(tmp_path: pathlib.Path, release: pathlib.Path) -> node.NodeOrder:
    return node.NodeOrder(
        settings=k3s_files.K3sSettings("server", "lab-1", pods="10.42.0.0/16", services="10.43.0.0/16"),
        home=StateHome({"path": str(tmp_path / "state")}, "lab"),
        lock=digest_lock.DigestLock(tmp_path / "lock.json"),
        base=tmp_path,
        version="v1.34.10+k3s1",
        source=str(release),
        images=("pause.tar",),
        api_address="192.0.2.1",
    )


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> t.Any:
    root = tmp_path / "machine"
    (root / "usr/local/bin").mkdir(parents=True)
    return Machine("lab-1", root)


def agent_of(order: node.NodeOrder) -> node.NodeOrder:
    settings = k3s_files.K3sSettings("agent", "lab-2", server="https://192.0.2.1:6443")
    return dataclasses.replace(order, settings=settings)


def server_of(order: node.NodeOrder, joins: str = "", **changes: t.Any) -> node.NodeOrder:
    """Return the order for one of several servers; ``joins``: the address of the one that it joins."""
    url = f"https://{joins}:6443" if joins else ""
    settings = dataclasses.replace(order.settings, server=url, init=not joins)
    return dataclasses.replace(order, settings=settings, **changes)


def config_of(machine: t.Any) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", yaml.safe_load((machine.root / k3s_files.CONFIG.lstrip("/")).read_text()))


def bring_up(machine: t.Any, order: node.NodeOrder, server: t.Any = None) -> list[bool]:
    """Do what the role does: the handler runs when something has changed."""
    changed = node.ensure_present(machine, order, server, check=False)["changed"]
    if changed:
        node.ensure_running(machine, order, server, check=False)
    return [changed, node.ensure_present(machine, order, server, check=False)["changed"]]


def test_a_check_predicts_and_writes_nothing(machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = node.ensure_present(machine, order, None, check=True)
    assert result["changed"] and "/usr/local/bin/k3s" in result["files"] and k3s_files.CONFIG in result["files"]
    assert node.ensure_running(machine, order, None, check=True) == {"changed": True}
    assert sorted(tmp_path.rglob("*")) == before


def test_a_server_comes_up_once(machine: t.Any, order: node.NodeOrder) -> None:
    assert bring_up(machine, order) == [True, False]
    assert machine.steps == ["look", "bring", "apply", "restart", "look"]
    assert (machine.root / "usr/local/bin/k3s").read_bytes() == b"program" * 100
    assert (order.home.folder / "kubeconfig").exists()
    machine.steps.clear()
    node.ensure_present(machine, order, None, check=False)
    assert machine.steps == ["look"]


def test_the_archives_of_a_bundle_are_placed_for_the_machines_architecture(
    machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "bundle"
    entries = []
    for name, architecture, path, use in (
        ("k3s", "amd64", f"k3s/{order.version}/k3s", "file"),
        ("pause", "amd64", "images/pause-amd64.tar", "cluster"),
        ("pause", "arm64", "images/pause-arm64.tar", "cluster"),
        ("train", "amd64", "images/train-amd64.tar", "job"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
        entries.append(
            bundle.BundleEntry(name, "", architecture, path, files.sha256_of(folder / path), t.cast(t.Any, use))
        )
    bundle.write_index(folder, entries)
    bundled = dataclasses.replace(order, source=str(folder), images=())
    assert bring_up(machine, bundled) == [True, False]
    placed = machine.root / k3s_files.IMAGES.lstrip("/")
    assert [item.name for item in placed.iterdir()] == ["pause-amd64.tar"]
    (folder / "images/pause-amd64.tar").write_text("damaged")
    (tmp_path / "lock.json").unlink()
    with pytest.raises(RefusedError, match=r"which bundle\.json has"):
        node.ensure_present(machine, bundled, None, check=False)


def test_what_was_stopped_between_writing_and_starting_is_started_by_the_next_run(
    machine: t.Any, order: node.NodeOrder
) -> None:
    assert node.ensure_present(machine, order, None, check=False)["changed"]
    again = node.ensure_present(machine, order, None, check=False)
    assert again["changed"] and again["files"] == []


def test_the_kubeconfig_is_written_again_where_it_was_lost(machine: t.Any, order: node.NodeOrder) -> None:
    bring_up(machine, order)
    (order.home.folder / "kubeconfig").unlink()
    assert node.ensure_present(machine, order, None, check=False)["changed"] is True
    assert (order.home.folder / "kubeconfig").exists()


def test_a_file_that_is_not_wanted_any_more_goes(machine: t.Any, order: node.NodeOrder) -> None:
    bring_up(machine, order)
    drop = "/etc/systemd/system/k3s.service.d/50-memlock.conf"
    changed = dataclasses.replace(order, settings=dataclasses.replace(order.settings, memlock=False))
    assert node.ensure_present(machine, changed, None, check=False)["files"] == [f"-{drop}"]
    assert not (machine.root / drop.lstrip("/")).exists()


def test_another_binary_under_the_same_version_is_refused(
    machine: t.Any, order: node.NodeOrder, release: pathlib.Path
) -> None:
    bring_up(machine, order)
    (release / "k3s").write_bytes(b"another")
    with pytest.raises(RefusedError, match=r"k3s v1\.34\.10\+k3s1 \(k3s\) has the SHA-256"):
        node.ensure_present(machine, order, None, check=False)


def test_an_agent_joins_with_a_token_that_is_over_afterwards(
    machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path
) -> None:
    server = Machine("lab-1", tmp_path / "other")
    agent = agent_of(order)
    assert bring_up(machine, agent, server) == [True, False]
    place = machine.root / k3s_files.TOKEN.lstrip("/")
    assert place.read_text() == TOKEN + "\n" and place.stat().st_mode & 0o777 == 0o600
    assert server.steps == ["token", "token"]
    assert not (order.home.folder / "kubeconfig").exists()
    with pytest.raises(InputError, match="server: lab-1 is an agent"):
        node.ensure_present(t.cast(t.Any, Machine("lab-1", tmp_path / "third")), agent, None, check=False)


def test_a_token_that_a_killed_run_has_left_is_ended_by_the_next(
    machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path
) -> None:
    server, agent = Machine("lab-1", tmp_path / "other"), agent_of(order)
    node.ensure_present(machine, agent, t.cast(t.Any, server), check=False)
    machine.start()
    assert node.ensure_present(machine, agent, t.cast(t.Any, server), check=True)["changed"] is False
    assert server.steps == ["token"]
    assert node.ensure_present(machine, agent, t.cast(t.Any, server), check=False)["changed"] is True
    assert server.steps == ["token", "token"]
    assert node.ensure_present(machine, agent, t.cast(t.Any, server), check=False)["changed"] is False
    assert server.steps == ["token", "token"]


def test_a_token_that_the_server_refuses_changes_nothing(
    machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: t.Any = Machine("lab-1", tmp_path / "other")
    monkeypatch.setattr(server, "ask", lambda *_args, **_values: {"problem": "the token is for another cluster"})
    agent = dataclasses.replace(agent_of(order), token=Secret(TOKEN, "k3s_token"))
    before = sorted(machine.root.rglob("*"))
    with pytest.raises(RefusedError, match="k3s_token: the token is for another cluster"):
        node.ensure_present(machine, agent, server, check=False)
    assert sorted(machine.root.rglob("*")) == before


def test_a_node_password_of_another_machine_is_explained(
    machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: t.Any = Machine("lab-1", tmp_path / "other")
    node.ensure_present(machine, agent_of(order), server, check=False)
    said = {"problem": "k3s-agent.service is stopped again: Node password rejected, duplicate hostname"}
    monkeypatch.setattr(machine, "start", lambda: said)
    with pytest.raises(NodeError, match=r"Node password rejected.*\. Delete the Node lab-2 \(kube_node"):
        node.ensure_running(machine, agent_of(order), server, check=False)
    # Its token is over all the same.
    assert server.steps == ["token", "token"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"foreign": ["K3s (/etc/rancher/k3s)"]}, "a: has K3s"),
        ({"architecture": "riscv64"}, "a: is a riscv64 machine"),
        ({"ability": {**ABLE, "systemd": "0"}}, "a: cannot run K3s: systemd is not running"),
        ({"root": False}, "a: is not managed as root"),
    ],
)
def test_a_machine_that_cannot_run_it_is_refused(order: node.NodeOrder, facts: dict[str, t.Any], said: str) -> None:
    whole = {"foreign": [], "architecture": "x86_64", "ability": ABLE, "root": True, "addresses": []}
    whole |= {"machine_id": "m", "record": None, "authority": None}
    node.refuse_machine("a", whole, order)
    with pytest.raises(RefusedError, match=said):
        node.refuse_machine("a", {**whole, **facts}, order)


def test_absent_leaves_the_machine_and_the_state_home_without_it(machine: t.Any, order: node.NodeOrder) -> None:
    before = sorted(machine.root.rglob("*"))
    bring_up(machine, order)
    assert node.ensure_absent(machine, order, check=True) == {"changed": True}
    assert node.ensure_absent(machine, order, check=False) == {"changed": True}
    left = {"etc", "etc/systemd", "etc/systemd/system", "var", "var/lib"}
    found = {str(place.relative_to(machine.root)) for place in machine.root.rglob("*") if place not in before}
    assert found <= left
    assert node.ensure_absent(machine, order, check=False) == {"changed": False}


@pytest.mark.parametrize(
    ("runtime", "driver", "expected"),
    [
        ("auto", {"module": "580.2", "gpus": 1, "runtime": True}, "nvidia"),
        ("auto", {"module": None, "gpus": 1, "runtime": True}, "nvidia"),
        ("auto", {"module": "580.2", "gpus": 1, "runtime": False}, None),
        ("auto", {"module": None, "gpus": 0, "runtime": True}, None),
        ("nvidia", {"module": None, "gpus": 0, "runtime": True}, "nvidia"),
        ("crun", {"module": "580.2", "gpus": 1, "runtime": True}, "crun"),
    ],
)
def test_the_default_runtime_is_nvidias_where_gpus_are(
    machine: t.Any,
    order: node.NodeOrder,
    monkeypatch: pytest.MonkeyPatch,
    runtime: str,
    driver: dict[str, t.Any],
    expected: str | None,
) -> None:
    monkeypatch.setattr(facts_cluster, "read_driver", lambda _source: driver)
    bring_up(machine, dataclasses.replace(order, runtime=runtime))
    text = (machine.root / k3s_files.CONFIG.lstrip("/")).read_text()
    assert yaml.safe_load(text).get("default-runtime") == expected


def test_a_runtime_that_is_not_there_is_refused(machine: t.Any, order: node.NodeOrder) -> None:
    with pytest.raises(
        NodeError, match="lab-1: nvidia-container-runtime is not installed. Install the NVIDIA container"
    ):
        node.ensure_present(machine, dataclasses.replace(order, runtime="nvidia"), None, check=False)
    assert not machine.root.joinpath("etc").exists()


def test_taints_are_a_file_of_their_own_and_start_nothing_again(machine: t.Any, order: node.NodeOrder) -> None:
    tainted = dataclasses.replace(order, settings=dataclasses.replace(order.settings, taints=("k:NoSchedule",)))
    assert bring_up(machine, tainted) == [True, False]
    place = machine.root / k3s_files.TAINTS.lstrip("/")
    assert yaml.safe_load(place.read_text()) == {"node-taint": ["k:NoSchedule"]}
    machine.steps.clear()
    assert bring_up(machine, order) == [True, False]
    assert not place.exists() and machine.starts == 1


def test_one_server_becomes_the_first_of_several_and_stays_it(machine: t.Any, order: node.NodeOrder) -> None:
    assert bring_up(machine, order) == [True, False]
    assert "cluster-init" not in config_of(machine)
    assert bring_up(machine, server_of(order)) == [True, False] and machine.starts == 2
    assert config_of(machine)["cluster-init"] is True
    # Another server that is asked first later, or the last of them, does not start it again.
    for later in (server_of(order, "192.0.2.9"), order):
        assert node.ensure_present(machine, later, t.cast("t.Any", machine), check=False)["changed"] is False
    assert machine.starts == 2


def test_a_further_server_joins_with_the_servers_token_and_keeps_it(
    machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path
) -> None:
    first: t.Any = Machine("lab-0", tmp_path / "other")
    further = server_of(order, "192.0.2.9")
    assert bring_up(machine, further, first) == [True, False]
    place = machine.root / k3s_files.TOKEN.lstrip("/")
    assert place.read_text() == SERVERS + "\n" and place.stat().st_mode & 0o777 == 0o600
    assert (
        config_of(machine)["server"] == "https://192.0.2.9:6443" and config_of(machine)["token-file"] == k3s_files.TOKEN
    )
    # Nothing more is asked of the first one, and another one that is asked first later changes nothing.
    for later in (further, server_of(order, "192.0.2.8"), server_of(order)):
        assert node.ensure_present(machine, later, first, check=False)["changed"] is False
    assert first.steps == ["token"] and machine.starts == 1
    lines = [json.loads(line) for line in (order.home.folder / "ledger.jsonl").read_text().splitlines()]
    assert [(line["event"], line["pool"]) for line in lines] == [("intent", "servers"), ("created", "servers")]
    leaves = dataclasses.replace(further, stays=True)
    assert node.ensure_absent(machine, leaves, check=False) == {"changed": True}
    assert (order.home.folder / "kubeconfig").exists() and "verified" in (
        order.home.folder / "ledger.jsonl"
    ).read_text()


def test_an_agent_stays_with_the_server_that_it_joined_while_that_is_one(
    machine: t.Any, order: node.NodeOrder, tmp_path: pathlib.Path
) -> None:
    server: t.Any = Machine("lab-1", tmp_path / "other")
    agent = agent_of(order)
    bring_up(machine, agent, server)
    other = dataclasses.replace(agent.settings, server="https://192.0.2.2:6443")
    for addresses, changed in (((), False), (("192.0.2.2", "192.0.2.1"), False), (("192.0.2.2", "192.0.2.3"), True)):
        later = dataclasses.replace(agent, settings=other, addresses=addresses)
        assert node.ensure_present(machine, later, server, check=True)["changed"] is changed, addresses
