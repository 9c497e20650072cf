# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a service that was deployed: 0600, credentials once, removed only when they are of no use."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import credentials, deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome

KEYS = {"AWS_ACCESS_KEY_ID": "AK0123456789ABCDEF", "AWS_SECRET_ACCESS_KEY": "a=b-0123456789_x"}


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "c")


def test_credentials_are_private_and_a_binding_reads_them(home: StateHome) -> None:
    assert deployed.read_credentials(home, "store") is None
    deployed.write_credentials(home, "store", KEYS)
    assert deployed.read_credentials(home, "store") == KEYS
    place = deployed.credentials_file(home, "store")
    assert place.stat().st_mode & 0o777 == 0o600 and place.parent.stat().st_mode & 0o777 == 0o700
    pointer = deployed.point_at(home, "store", {"access_key": "AWS_ACCESS_KEY_ID"})
    assert credentials.read_s3_keys(pointer, "x").secret_key.reveal() == KEYS["AWS_SECRET_ACCESS_KEY"]


def test_a_record_changes_once_and_credentials_stay_with_the_data(home: StateHome) -> None:
    assert deployed.read_deployed(home, "store") is None
    assert deployed.write_deployed(home, "store", {"endpoint": "e"})
    assert not deployed.write_deployed(home, "store", {"endpoint": "e"})
    deployed.write_credentials(home, "store", KEYS)
    deployed.remove_deployed(home, "store", forget=False)
    assert deployed.read_deployed(home, "store") is None and deployed.read_credentials(home, "store") == KEYS
    deployed.remove_deployed(home, "store", forget=False)
    assert deployed.read_removed(home, "store") == {"endpoint": "e"}
    deployed.write_deployed(home, "store", {"endpoint": "f"})
    assert deployed.read_removed(home, "store") is None
    deployed.remove_deployed(home, "store", forget=False)
    deployed.remove_deployed(home, "store", forget=True)
    assert not list((home.folder / "services").iterdir())


def test_a_damaged_record_is_refused(home: StateHome) -> None:
    deployed.write_deployed(home, "store", {"endpoint": "e"})
    (home.folder / "services" / "store.json").write_text("{")
    with pytest.raises(RefusedError, match="is damaged"):
        deployed.read_deployed(home, "store")
