# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each sample inventory as Ansible's own commands read it: its hosts, and the hosts of every playbook that fits it.

Only the address of each provider's API and the credentials are added; other collections' plugins list recorded hosts.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import plan as hosts_plan
from ansible_collections.muster.training.tests.support.foreign_inventory import write_collections
from ansible_collections.muster.training.tests.support.listings import APIS, listing
from ansible_collections.muster.training.tests.support.run_inventory import VARIABLES, environment

ROOT = pathlib.Path(__file__).parents[3]
BIN = pathlib.Path(sys.executable).parent
ON_NODES = (
    "bootstrap",
    "preflight",
    "verify_fabric",
    "train",
    "status",
    "logs",
    "cancel",
    "drill",
    "accept",
    "diagnose",
)
ON_RENTED = ("rent", "heal", "remove_nodes", "teardown", "reap")
# Sample: the hosts of muster_nodes.
SAMPLES = {
    "local": {"node-1", "node-2"},
    "homelab": {"spark-01", "spark-02"},
    "spark_pair": {"spark-1", "spark-2"},
    "mixed": {
        *("aws-ec2-0", "gcp-0", "droplets-0", "spark-01", "node", "demo-0", "lab-4090-0-0a1b2c3d"),
        *("lab-h100-0-1f2e3d4c", "pair-0", "pair-1", "lab-4090-0-11223344", "lab-vm-0-55667788", "lab-a100-0-99aabbcc"),
    },
    "rented_only": {"lab-h100-0-1f2e3d4c", "lab-4090-0-0a1b2c3d"},
}


def plain(value: t.Any) -> t.Any:
    """Return what ``ansible-inventory`` printed, without its marks of text that is no template."""
    if isinstance(value, dict):
        return (
            value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else {k: plain(v) for k, v in value.items()}
        )
    return [plain(item) for item in value] if isinstance(value, list) else value


class Bench:
    """Copies of the samples, and the APIs that they ask."""

    def __init__(self, root: pathlib.Path, urls: dict[str, str]) -> None:
        self.root = root
        shutil.copytree(ROOT / "inventories", root / "inventories")
        status = root / "tailscale"
        status.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(listing('tailscale_status'))}\nEND\n")
        status.chmod(0o755)
        for place in (root / "inventories").glob("*/*.yml"):
            source = yaml.safe_load(place.read_text())
            plugin = str(source.get("plugin", "")).removeprefix("muster.training.")
            if plugin == "tailscale" and source.get("source") == "local":
                place.write_text(f"{place.read_text()}tailscale_binary: {status}\n")
            elif plugin in urls:
                place.write_text(f"{place.read_text()}api_url: {urls[plugin]}\n")
        self.env = environment(
            root,
            **dict.fromkeys(VARIABLES, "tok-canary-31c4ab97"),
            ANSIBLE_COLLECTIONS_PATH=os.fspath(write_collections(root / "others")),
            ANSIBLE_CONFIG=os.fspath(root / "ansible.cfg"),
        )
        (root / "ansible.cfg").write_text("[inventory]\nany_unparsed_is_failed = true\n")

    def run(self, command: str, sample: str, *args: str) -> str:
        argv = [str(BIN / command), "-i", str(self.root / "inventories" / sample), *args]
        done = subprocess.run(
            argv, capture_output=True, text=True, env=self.env, cwd=self.root, check=False, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        unmatched = re.findall(r"Could not match supplied host pattern, ignoring: (\S+)", done.stderr)
        # The machines that heal rents, and those whose driver is changed, have these groups only then.
        assert set(unmatched) <= {"muster_healed", "muster_driver_waves"}, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with contextlib.ExitStack() as stack:
        urls = {name: stack.enter_context(make()).url + path for name, (make, _ending, path) in APIS.items()}
        yield Bench(tmp_path_factory.mktemp("samples"), urls)


@pytest.fixture(scope="module")
def listed(bench: Bench) -> dict[str, dict[str, t.Any]]:
    return {sample: plain(json.loads(bench.run("ansible-inventory", sample, "--list"))) for sample in SAMPLES}


def hosts_of(listed: dict[str, t.Any], group: str) -> set[str]:
    entry = listed.get(group, {})
    return set(entry.get("hosts", [])).union(*(hosts_of(listed, child) for child in entry.get("children", [])))


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_sample_names_the_machines_on_which_jobs_run(listed: dict[str, dict[str, t.Any]], sample: str) -> None:
    assert hosts_of(listed[sample], "muster_nodes") == SAMPLES[sample]
    hostvars = listed[sample]["_meta"]["hostvars"]
    names = sorted(SAMPLES[sample])
    job = parse_job({"name": "x", "nodes": len(names), "script": "/t.py"})
    for host in hosts_plan.select_hosts(names, {name: hostvars.get(name, {}) for name in names}, job):
        assert host.record.state in ("running", "unknown")
        # A host that only a file of the user names is reached by its name.
        assert host.address == host.name or ipaddress.ip_address(host.address)


def plays(text: str) -> list[set[str]]:
    """Return the hosts of each play in the output of ``--list-hosts``."""
    parts = re.split(r"^  play #\d+", text, flags=re.MULTILINE)[1:]
    return [set(re.findall(r"^      (\S+)$", part.partition("hosts (")[2], re.MULTILINE)) for part in parts]


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_playbook_for_nodes_finds_them(bench: Bench, sample: str) -> None:
    text = bench.run("ansible-playbook", sample, "--list-hosts", *(f"muster.training.{name}" for name in ON_NODES))
    sections = text.split("\nplaybook: ")[1:]
    assert len(sections) == len(ON_NODES)
    for section in sections:
        assert SAMPLES[sample] in plays(section), section


@pytest.mark.parametrize("sample", ["mixed", "rented_only"])
def test_every_playbook_for_rented_machines_finds_them(bench: Bench, sample: str) -> None:
    text = bench.run("ansible-playbook", sample, "--list-hosts", *(f"muster.training.{name}" for name in ON_RENTED))
    for section in text.split("\nplaybook: ")[1:]:
        if not section.partition("\n")[0].endswith("reap.yml"):
            assert any("lab-h100-0-1f2e3d4c" in hosts for hosts in plays(section)), section
