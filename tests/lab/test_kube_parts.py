# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the cluster's lab that need no cluster: plan, images, programs, manifests, and errors in one line."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import lzma
import pathlib
import subprocess
import tarfile
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import host, podman
from ansible_collections.muster.training.tests.lab.kube import (
    binaries,
    cli,
    cluster,
    config,
    images,
    kwok,
    manifests,
    oci,
    pki,
    plan,
    record,
    torch,
    units,
)
from ansible_collections.muster.training.tests.support.kube_lab import queue_objects

SUBNET = "10.89.7.0/24"


def test_every_place_of_the_plan_has_its_own_addresses() -> None:
    machines = [plan.machine("lab", SUBNET, f"n{index}", index) for index in range(plan.SIZE_MAX + 1)]
    assert len({item.address for item in machines}) == len({item.pods for item in machines}) == len(machines)
    assert all(ipaddress.IPv4Network(item.pods).subnet_of(plan.PODS) for item in machines)
    assert all(ipaddress.IPv4Address(item.address) in ipaddress.IPv4Network(SUBNET) for item in machines)
    for machine in machines:
        others = {(item.pods, item.address) for item in machines if item is not machine}
        assert set(plan.routes(SUBNET, machine.index)) == others


def test_a_freed_place_is_taken_again_and_places_end() -> None:
    assert plan.free_index([1, 3]) == 2
    with pytest.raises(ValueError, match="at most 32"):
        plan.free_index(range(1, plan.SIZE_MAX + 1))


def test_pause_waits_and_ends(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(images.PAUSE)
    program.chmod(0o755)
    process = subprocess.Popen([program])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.kill()
    assert process.wait(5) == -9


def test_archive_is_an_image_whose_digests_are_right(tmp_path: pathlib.Path) -> None:
    layer, archive = tmp_path / "layer", tmp_path / "image.tar"
    oci.layer_of({"/manager": b"program"}, layer)
    oci.write(archive, "localhost/x:lab", layer, oci.Settings(("/manager",), user="1:1"))
    with tarfile.open(archive) as opened:
        content = {item.name: opened.extractfile(item).read() for item in opened}  # type: ignore[union-attr]
    blobs = {name.rpartition("/")[2]: data for name, data in content.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())
    (entry,) = json.loads(content["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/x:lab"
    manifest = json.loads(blobs[entry["digest"].partition(":")[2]])
    described = json.loads(blobs[manifest["config"]["digest"].partition(":")[2]])
    assert described["config"]["Entrypoint"] == ["/manager"] and described["config"]["User"] == "1:1"
    assert described["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    with tarfile.open(layer) as opened:
        assert {item.name: item.mode for item in opened} == {"tmp": 0o1777, "manager": 0o755}


def test_given_program_is_unpacked_once_and_again_when_it_changes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.setenv(binaries.VARIABLE, str(given))
    (given / "kwok.xz").write_bytes(lzma.compress(b"first"))
    found = binaries.Binaries(tmp_path).get("kwok")
    assert found.read_bytes() == b"first" and found.stat().st_mode & 0o111
    before = found.stat().st_mtime_ns
    assert binaries.Binaries(tmp_path).get("kwok").stat().st_mtime_ns == before
    (given / "kwok.xz").write_bytes(lzma.compress(b"second one"))
    assert binaries.Binaries(tmp_path).get("kwok").read_bytes() == b"second one"


def test_broken_archive_and_missing_go_are_one_line(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binaries.VARIABLE, str(tmp_path))
    (tmp_path / "kwok.xz").write_bytes(lzma.compress(b"x" * 1000)[:-20])
    with pytest.raises(host.LabError, match=r"^\S+kwok\.xz of MUSTER_LAB_BIN cannot be unpacked: .+$"):
        binaries.Binaries(tmp_path).get("kwok")
    assert list((tmp_path / "bin").iterdir()) == []
    monkeypatch.setenv("PATH", "")
    with pytest.raises(host.LabError, match=r"^go is not installed, and MUSTER_LAB_BIN names no folder .+$"):
        binaries.Binaries(tmp_path).get("coredns")


def test_authority_signs_for_servers_and_clients(tmp_path: pathlib.Path) -> None:
    authority = pki.Authority(tmp_path / "pki", "ca")
    server = authority.issue("apiserver", "/CN=kube-apiserver", pki.api_names("10.0.0.1"))
    node = authority.issue("n", "/O=system:nodes/CN=system:node:node-1")
    other = pki.Authority(tmp_path / "other", "ca")
    for pair, purpose in ((server, "sslserver"), (node, "sslclient")):
        argv = ["openssl", "verify", "-purpose", purpose, "-CAfile"]
        for signer, works in ((authority, True), (other, False)):
            done = subprocess.run([*argv, signer.pair.certificate, pair.certificate], capture_output=True, check=False)
            assert (done.returncode == 0) is works, done.stderr
        assert pair.key.stat().st_mode & 0o077 == 0
    shown = subprocess.run(
        ["openssl", "x509", "-in", server.certificate, "-noout", "-text"], capture_output=True, check=True
    )
    assert b"IP Address:10.43.0.1" in shown.stdout and b"IP Address:10.0.0.1" in shown.stdout
    text = config.kubeconfig("10.0.0.1", "admin", authority.pair, node)
    assert "server: https://10.0.0.1:6443" in text


def test_control_plane_and_nodes_differ_where_they_must() -> None:
    control = plan.machine("lab", SUBNET, plan.CONTROL, 0)
    node = plan.machine("lab", SUBNET, "node-1", 1)
    assert set(units.worker(node)) < set({**units.control(control), **units.worker(control)})
    assert "control.conf" not in "".join(units.worker(node).values())
    assert json.loads(config.kubelet(node))["registerWithTaints"] == []
    assert json.loads(config.kubelet(control))["registerWithTaints"][0]["effect"] == "NoSchedule"
    assert json.loads(config.cni(node))["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.42.1.0/24"}]]


def test_no_image_of_the_lab_can_be_pulled_from_elsewhere() -> None:
    names = [manifests.image_name(name) for name in (*manifests.COMPONENTS, "coredns", images.TRAINING)]
    assert all(name.startswith("localhost/") for name in names)
    (container,) = manifests.dns()[-1]["spec"]["template"]["spec"]["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent" and container["image"] in names


def test_simulated_node_has_gpus_and_a_taint() -> None:
    made = kwok.node(7, 8)
    assert made["metadata"]["name"] == "kwok-007"
    assert made["status"]["allocatable"][kwok.GPU] == "8"
    assert made["spec"]["taints"] == [kwok.TAINT]


def test_team_covers_what_it_has_quota_for() -> None:
    objects = queue_objects("t-1", {"cpu": "2", kwok.GPU: "16"}, topology=True, simulated=True)
    kinds = [item["kind"] for item in objects]
    assert kinds == ["Namespace", "Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue"]
    group = objects[3]["spec"]["resourceGroups"][0]
    assert group["coveredResources"] == ["cpu", kwok.GPU]
    assert {item["name"]: item["nominalQuota"] for item in group["flavors"][0]["resources"]} == {
        "cpu": "2",
        kwok.GPU: "16",
    }


def test_record_comes_back_and_a_foreign_one_is_none(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "lab.json"
    made = record.Record("lab", SUBNET, "image", {"node-1": 1}, ("kueue",), stages=(("boot", 1.5),), complete=True)
    record.write(place, made)
    assert record.read(place) == made
    assert made.machine("node-1") == plan.machine("lab", SUBNET, "node-1", 1) and made.machine("x") is None
    place.write_text('{"id": "lab", "stages": []}')
    assert record.read(place) is None
    assert record.read(tmp_path / "none.json") is None


def test_torch_of_another_python_is_not_taken(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    (tmp_path / "packages" / "torch").mkdir(parents=True)
    monkeypatch.setenv("MUSTER_TORCH_PYTHON", str(python))
    for version, found in ((torch.PYTHON, tmp_path / "packages"), ("3.12", None)):
        python.write_text(f'#!/bin/sh\necho \'["{version}", "{tmp_path}/packages"]\'\n')
        python.chmod(0o755)
        assert torch.find(tmp_path) == found


@pytest.mark.parametrize(
    ("root", "words", "said"),
    [
        (1000, ["status"], "the lab needs root"),
        (0, ["--name", "none-such", "status"], "the cluster none-such is not up: python -m tools.lab up"),
        (0, ["--name", "none-such", "node", "kill", "node-1"], "the cluster none-such is not up"),
        (0, ["--name", "none-such", "up", "--nodes", "33"], "a cluster has 1 to 32 nodes, not 33"),
    ],
)
def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], root: int, words: list[str], said: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: root)
    if root == 0 and (host.unmet() or "podman" in host.missing()):
        pytest.skip("this machine cannot run the lab")
    assert cli.main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"lab: {said}")


def test_missing_podman_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if host.unmet():
        pytest.skip(host.unmet())
    monkeypatch.setattr(host.shutil, "which", lambda name, path=None: None if name == "podman" else f"/usr/bin/{name}")
    assert cli.main(["status"]) == 1
    assert capsys.readouterr().err == "lab: podman is not installed (python -m tools.lab up installs it)\n"


def test_programs_are_there_before_podman_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """With podman and without its runtime not even a question to podman is answered."""
    order: list[str] = []

    def no_more(*_words: str) -> t.NoReturn:
        order.append("podman")
        raise host.LabError("enough")

    monkeypatch.setattr(host, "ensure_programs", lambda: order.append("programs"))
    monkeypatch.setattr(podman.Podman, "run", no_more)
    monkeypatch.setattr(podman.Podman, "__call__", no_more)
    with pytest.raises(host.LabError, match="enough"):
        cluster.Cluster(podman.Podman(tmp_path), "none-such", order.append).up(1)
    assert [item for item in order if item in ("programs", "podman")][:2] == ["programs", "podman"]
