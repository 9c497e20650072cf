# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys that live as long as a run."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import ssh_keys


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_keys_fit_together_are_new_and_leave_nothing_behind(tmp_path: pathlib.Path) -> None:
    near = tmp_path / "run"
    first, second = ssh_keys.generate_keys(near), ssh_keys.generate_keys(near)
    assert list(tmp_path.iterdir()) == []
    assert len({first.private, second.private, first.host_private}) == 3
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(first.private)
    derived = subprocess.run(["ssh-keygen", "-y", "-f", str(key)], capture_output=True, check=True).stdout
    assert derived.split()[:2] == first.public.split()[:2]
    assert first.host_public.startswith("ssh-ed25519 ") and len(first.host_public.split()) == 2


def test_without_ssh_keygen_the_user_is_told_what_to_install(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RefusedError, match="^ssh-keygen could not create a key. Install OpenSSH's client on the controller$"
    ):
        ssh_keys.generate_keys(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
