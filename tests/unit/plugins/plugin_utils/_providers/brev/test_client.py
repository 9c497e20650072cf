# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Brev's client prints, and what is kept of it; through Ansible in ``inventory/test_brev.py``."""

from __future__ import annotations

import json
import pathlib
import typing as t
from collections.abc import Sequence

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers.brev import client


def printing(value: object, asked: list[Sequence[str]] | None = None) -> t.Callable[[Sequence[str]], str]:
    def run(arguments: Sequence[str]) -> str:
        if asked is not None:
            asked.append(arguments)
        return json.dumps(value)

    return run


def test_fields_that_are_not_known_are_not_kept_and_both_lists_are_read(tmp_path: pathlib.Path) -> None:
    asked: list[Sequence[str]] = []
    value = {
        "workspaces": [{"name": "a", "id": 7, "status": "RUNNING", "token": "x", "gpu": None}],
        "nodes": [{"name": "spark", "status": "Connected"}],
    }
    found = client.list_machines("lab", str(tmp_path / "none"), run=printing(value, asked))
    assert found == [
        {"kind": "workspaces", "name": "a", "id": "7", "status": "RUNNING", "ssh": None},
        {"kind": "nodes", "name": "spark", "status": "Connected", "ssh": None},
    ]
    assert asked == [["ls", "--json", "--org", "lab"]]


@pytest.mark.parametrize("value", [[], "text", {"workspaces": {"a": 1}}, {"nodes": [7]}, {"nodes": [{"name": ""}]}])
def test_another_shape_is_named(tmp_path: pathlib.Path, value: object) -> None:
    with pytest.raises(TransportError, match="brev ls --json: ") as caught:
        client.list_machines("", str(tmp_path / "none"), run=printing(value))
    assert "Look with brev ls --json" in str(caught.value)


def test_a_client_that_fails_says_why(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "brev"
    program.write_text("#!/bin/sh\necho first >&2; echo 'no session' >&2; exit 3\n")
    program.chmod(0o755)
    with pytest.raises(TransportError, match="brev ls: no session. Log in"):
        client.run_brev(str(program), ["ls"])
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(TransportError, match="exit code 3"):
        client.run_brev(str(program), ["ls"])
    with pytest.raises(TransportError, match="cannot be run"):
        client.run_brev(str(tmp_path), ["ls"])
