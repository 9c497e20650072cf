# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader types the shell blocks about services: a real object store, and a real OpenBao as a deployment has it."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.e2e.bao_world import Deployed, deployed_openbao
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import INVENTORY
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, ServiceWorld, seaweedfs, services_python
from ansible_collections.muster.training.tests.support.shell_blocks import (
    Reader,
    read_blocks,
    read_example,
    split_commands,
)

BLOCKS = ("guide_services-0", "guide_secrets-0", "guide_catalogue-2")
PARTS = ("datasets", "checkpoints", "artifacts")
TYPED = "a-token-of-a-hub"


class Office(t.NamedTuple):
    """The reader and the administrator's OpenBao."""

    reader: Reader
    bao: Deployed


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Office]:
    if not services_python():
        lacking("MUSTER_SERVICES_PYTHON names no interpreter with botocore, OpenBao and SeaweedFS")
    root = tmp_path_factory.mktemp("reader")
    world, example = ServiceWorld(root), read_example("guide_services", 0)["muster_services"]
    store_entry, bao_entry = example
    bucket = store_entry["resources"][0]["ref"].partition("/")[0]
    with seaweedfs(root / "store", bucket) as store, deployed_openbao(root / "bao") as bao:
        # Where a deployment leaves them.
        home = StateHome({"path": str(world.home / ".local" / "state" / "muster")}, "default")
        deployed.write_credentials(home, "bao", bao.credentials)
        environment = world.environment({**KEYS, "BAO_TOKEN": bao.credentials["VAULT_TOKEN"]})
        programs = pathlib.Path(services_python()).parent
        fills = {"address of OpenBao": bao.url.removeprefix("https://"), "store": store.endpoint}
        reader = Reader(root, environment, fills, programs)
        reader.write(f"inventory/{INVENTORY.name}", INVENTORY.read_text())
        reader.write("inventory/group_vars/all.yml", {"muster_cluster": "default"})
        (root / "inventory.yml").symlink_to("inventory")
        own = [{**store_entry, "endpoint": store.endpoint}, {**bao_entry, "endpoint": bao.url, "ca": bao.ca}]
        reader.write("services.yml", {"muster_services": own})
        yield Office(reader, bao)
    world.close()


def test_both_services_are_bound_and_a_secret_is_written(office: Office) -> None:
    bound, checked = office.reader.run(BLOCKS[0])
    assert "changed=1" in bound, bound
    assert "changed=1" not in checked, checked
    last = len(split_commands(read_blocks()[BLOCKS[1]])) - 1
    written = office.reader.run(BLOCKS[1], stdin={last: TYPED})[last]
    assert "secret/data/team/train" in written and TYPED not in written, written
    assert office.bao.ask("GET", "secret/data/team/train")["data"]["data"] == {"hf": TYPED}
    places = [pathlib.Path(office.reader.environment["HOME"]) / ".local" / "state" / "muster" / "default" / "bindings"]
    assert sorted(place.stem for place in places[0].glob("*.json")) == ["bao", "store"]


def test_a_template_of_the_catalogue_binds_the_store(office: Office) -> None:
    """The store stands for a MinIO: its API is the same."""
    (bound,) = office.reader.run(BLOCKS[2])
    assert "changed=1" in bound, bound
    home = pathlib.Path(office.reader.environment["HOME"]) / ".local" / "state" / "muster" / "default" / "bindings"
    binding = json.loads((home / "minio.json").read_text())
    assert (binding["provider"], binding["mode"]) == ("minio", "bind")
    assert [row["ok"] for row in binding["reachable_from"]] == [True, True]
    assert {item["ref"] for item in binding["resources"]} == {f"training/{name}" for name in PARTS}
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in bound + json.dumps(binding)
