# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH keys of one run, made by ssh-keygen on the controller."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import tempfile

from ...module_utils._model.errors import RefusedError


@dataclasses.dataclass(frozen=True, slots=True)
class KeyPair:
    """A user key and a host key. The private parts are secrets: they travel only in a request's standard input."""

    private: bytes
    public: bytes
    host_private: bytes
    host_public: str


def generate_keys(near: pathlib.Path) -> KeyPair:
    """Return new ed25519 keys; none of them stays on the controller's disk.

    :param near: a private folder; the keys pass through a folder beside it that is removed again.
    """
    with tempfile.TemporaryDirectory(prefix=".keys-", dir=near.parent) as name:
        folder = pathlib.Path(name)
        for key in ("user", "host"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "muster.training", "-f", str(folder / key)]
            try:
                subprocess.run(argv, check=True, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)
            except (OSError, subprocess.SubprocessError) as exc:
                raise RefusedError(
                    "ssh-keygen could not create a key", "Install OpenSSH's client on the controller"
                ) from exc
        public = (folder / "host.pub").read_text().split()
        return KeyPair(
            private=(folder / "user").read_bytes(),
            public=(folder / "user.pub").read_bytes(),
            host_private=(folder / "host").read_bytes(),
            host_public=" ".join(public[:2]),
        )
