# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook mesh where it makes the keys: three machines at once into a tailnet of a real headscale.

Machines are namespaces of networks and mounts, with a stand-in for systemctl that starts what the unit says. The API
that makes keys is a stand-in for Tailscale's, whose keys are headscale's: headscale before 0.30 has none.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Play, Result
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.lab import headscale
from ansible_collections.muster.training.tests.lab.tailnet import Minting, Tailnet, open_tailnet
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

SYSTEMCTL = """#!/bin/sh
lives() { test -e /run/daemon && kill -0 "$(cat /run/daemon)" 2>/dev/null; }
case "$*" in
  *try-restart*) ;;
  *enable*--now*)
    lives && exit 0
    mkdir -p /run/tailscale /var/lib/tailscale
    setsid $(sed -n 's/^ExecStart=//p' /etc/systemd/system/tailscaled.service) >/run/daemon.log 2>&1 </dev/null &
    echo $! >/run/daemon ;;
  *disable*--now*) lives && kill "$(cat /run/daemon)" ;;
  is-active*) lives && echo active || echo inactive ;;
esac
exit 0
"""
REACH = """
import json, sys
from ansible_collections.muster.training.plugins.module_utils._node import host_reachability
print(json.dumps(host_reachability.check_addresses(json.loads(sys.argv[1]), 10)))
"""
# A machine's own /var/lib, units, programs and /run, until the shell ends with its namespace.
OWN = """set -e
mount --make-rprivate /
mkdir "$0/layers" "$0/units" "$0/bin" "$0/sbin"
mount -t tmpfs none "$0/layers" && mkdir "$0/layers/up" "$0/layers/work"
mount -t overlay none -o "lowerdir=/var/lib,upperdir=$0/layers/up,workdir=$0/layers/work" /var/lib
mount --bind "$0/units" /etc/systemd/system
cp "$0/systemctl" "$0/bin/"
mount --bind "$0/bin" /usr/local/bin && mount --bind "$0/sbin" /usr/local/sbin
cp /etc/hosts "$0/hosts" && mount --bind "$0/hosts" /etc/hosts
mount -t tmpfs none /run && mkdir -p /run/systemd/system
touch "$0/ready"
exec sleep infinity
"""


class World(t.NamedTuple):
    """The tailnet, the API for its keys, a folder of the controller, and what all playbooks are given."""

    tailnet: Tailnet
    keys: Minting
    folder: pathlib.Path
    values: dict[str, t.Any]

    def mesh(self, *words: str, **values: t.Any) -> Result:
        """Run the playbook mesh."""
        return self.play("mesh", *words, **values)

    def play(self, playbook: str, *words: str, **values: t.Any) -> Result:
        """Run a playbook."""
        program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
        extra = json.dumps({**self.values, **values})
        argv = [program, "-i", str(self.folder / "inventory.json"), f"muster.training.{playbook}", "-e", extra, *words]
        ours = {"ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        return Play(argv, {**os.environ, **ours}, self.folder / "play.log", self.folder, 0o022).wait(120)


def make_machine(tailnet: Tailnet, name: str) -> dict[str, t.Any]:
    """Make the namespaces of a machine; return its variables in the inventory."""
    place = tailnet.folder / name
    place.mkdir()
    (place / "systemctl").write_text(SYSTEMCTL)
    (place / "systemctl").chmod(0o755)
    holder = tailnet.start(name, ["unshare", "--mount", "sh", "-c", OWN, str(place)])
    eventually(lambda: (place / "ready").exists(), f"the machine {name}")
    enter = f'exec nsenter --target {holder.pid} --mount --net {sys.executable} "$@"'
    trust = f"export SSL_CERT_FILE={tailnet.certificate} PATH=/usr/local/bin:$PATH"
    (place / "python").write_text(f"#!/bin/sh\n{trust}\n{enter}\n")
    (place / "python").chmod(0o755)
    address = tailnet.net.address(name)
    local = {"ansible_connection": "local", "ansible_become": False, "ansible_host": address}
    return {**local, "ansible_python_interpreter": str(place / "python")}


def run_on(world: World, name: str, program: str) -> str:
    """Run a program in the namespaces of a machine, and return what it prints."""
    argv = [str(world.tailnet.folder / name / "python"), "-c", program]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[World]:
    """Three machines that are in no tailnet yet."""
    with open_tailnet(tmp_path, 3) as tailnet:
        keys = Minting(tailnet.create_key)
        hosts = {name: make_machine(tailnet, name) for name in tailnet.machines}
        (tmp_path / "inventory.json").write_text(json.dumps({"muster_nodes": {"hosts": hosts}}))
        (tmp_path / "ansible.cfg").write_text("[defaults]\n")
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "token").chmod(0o600)
        release = headscale.pack_release(tailnet.programs, tmp_path)
        with keys.loopback() as url:
            values = {
                "mesh_tags": ["tag:muster"],
                "mesh_login_server": tailnet.url,
                "mesh_source": str(release),
                "mesh_version": headscale.VERSION,
                "mesh_api": {"api_url": url, "api_token_file": str(tmp_path / "token")},
                "muster_state": {"path": str(tmp_path / "state")},
                "muster_cluster": "lab",
            }
            yield World(tailnet, keys, tmp_path, values)


def test_three_machines_join_at_once_with_a_key_each_that_is_made_and_ended(world: World) -> None:
    predicted = world.mesh("--check")
    assert predicted.code == 0 and all(predicted.recap[name]["changed"] for name in world.tailnet.machines)
    cluster = world.play("cluster", "--check", k3s_flannel_iface="tailscale0", muster_k3s_role="server")
    assert cluster.code != 0 and all("is not in the mesh yet, which the cluster" in line for line in cluster.errors)
    assert world.keys.given == [] and world.tailnet.names() == []
    before = set(pathlib.Path(tempfile.gettempdir()).glob("muster-mesh-*"))

    joined = world.mesh("-vvv")
    assert joined.code == 0, joined.output
    # Under the names of their nodes, which are not those of their systems.
    assert world.tailnet.names() == sorted(world.tailnet.machines)
    assert len(set(world.keys.given)) == 3 and not [key for key in world.keys.given if key in joined.output]
    assert world.keys.alive() == [] and world.keys.violations == []
    assert set(pathlib.Path(tempfile.gettempdir()).glob("muster-mesh-*")) == before
    ledger = [json.loads(line) for line in (world.folder / "state" / "lab" / "ledger.jsonl").read_text().splitlines()]
    wanted = ["intent", "created", "draining", "deleted", "verified"]
    assert sorted(line["event"] for line in ledger) == sorted(wanted * 3)
    assert joined.output.count(", direct") == 3

    # Nothing listens there: that it is refused has come over the mesh.
    first, *others = world.tailnet.machines
    targets = [(world.tailnet.address_of(name), 9) for name in others]
    answers = json.loads(world.tailnet.run(first, sys.executable, "-c", REACH, json.dumps(targets)))
    assert [(item["address"], item["ok"]) for item in answers] == [(address, True) for address, _port in targets]

    again = world.mesh()
    assert again.code == 0 and again.changed == 0 and len(world.keys.given) == 3, again.output
    NOTES.append(f"mesh.yml, three machines with a key each: {joined.seconds:.1f} s, again {again.seconds:.1f} s")

    named = {"mesh_names": {"mlflow": others[0]}}
    predicted = world.mesh("--check", **named)
    assert predicted.code == 0 and predicted.changed == 3, predicted.output
    given = world.mesh(**named)
    assert given.code == 0 and given.changed == 3 and world.mesh(**named).changed == 0, given.output
    resolve = "import socket; print(socket.gethostbyname('mlflow.mesh'))"
    asked = [run_on(world, name, resolve) for name in world.tailnet.machines]
    assert asked == [world.tailnet.address_of(others[0])] * 3, asked

    # Names that are given no longer are taken away, and nothing is written again after that.
    taken = world.mesh()
    assert taken.code == 0 and taken.changed == 3 and world.mesh().changed == 0, taken.output
    assert {(world.tailnet.folder / name / "hosts").read_text() for name in world.tailnet.machines} == {
        pathlib.Path("/etc/hosts").read_text()
    }
    assert world.mesh(**named).changed == 3

    left = world.mesh(mesh_state="absent")
    assert left.code == 0 and all(left.recap[name]["changed"] == 2 for name in world.tailnet.machines), left.output
    hosts = {(world.tailnet.folder / name / "hosts").read_text() for name in world.tailnet.machines}
    assert hosts == {pathlib.Path("/etc/hosts").read_text()}
    assert not list(world.tailnet.folder.glob("node-*/bin/tailscale")), "the programs are still there"
    assert world.mesh(mesh_state="absent").changed == 0


def test_a_key_from_a_file_joins_one_machine_and_a_refused_one_is_told(world: World) -> None:
    (first, second, _third), place = world.tailnet.machines, world.folder / "key"
    without = world.mesh(mesh_tags=[])
    assert without.code != 0 and all("has no key to join with" in line for line in without.errors), without.output
    place.write_text(world.tailnet.create_key())
    ours: dict[str, t.Any] = {"mesh_tags": [], "mesh_auth_key_file": str(place)}
    joined = world.mesh("--limit", first, **ours)
    assert joined.code == 0 and joined.recap[first]["changed"] == 1, joined.output
    assert world.mesh("--limit", first, **ours).changed == 0
    place.write_text("hskey-auth-0123456789ab-" + "x" * 64)
    refused = world.mesh("--limit", second, **ours)
    assert refused.code != 0 and len(refused.errors) == 1, refused.output
    assert "the tailnet refused the key" in refused.errors[0] and "x" * 64 not in refused.output
    assert world.keys.given == [] and world.tailnet.names() == [first]


def test_a_machine_that_joined_for_a_cluster_that_refuses_it_leaves_the_mesh_again(world: World) -> None:
    first, second, third = world.tailnet.machines
    assert world.mesh("--limit", first).code == 0
    hosts = json.loads((world.folder / "inventory.json").read_text())["muster_nodes"]["hosts"]
    # Not one of them can run K3s: they are namespaces of one machine.
    for playbook, joins, values in (("cluster", second, {}), ("join", third, {"muster_join_hosts": third})):
        members = {
            first: {**hosts[first], "muster_k3s_role": "server"},
            joins: {**hosts[joins], "muster_k3s_role": "agent"},
        }
        (world.folder / "inventory.json").write_text(json.dumps({"muster_nodes": {"hosts": members}}))
        refused = world.play(playbook, **values)
        assert refused.code != 0 and len(refused.errors) == 1, refused.output
        assert "muster_nodes: " in refused.errors[0] or "K3s" in refused.errors[0], refused.output
        assert refused.recap[joins]["changed"] > 0, refused.output
        # Who was a member before stays one. The device of the other one is known to headscale, and logged out.
        eventually(lambda: world.tailnet.names(online=True) == [first], "the machine to be gone")
        assert not list((world.tailnet.folder / joins / "bin").glob("tailscale*")), refused.output
    assert world.keys.alive() == [] and len(world.keys.given) == 3
