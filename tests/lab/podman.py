# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman with a storage and a configuration of the lab's own, so that nobody's containers are seen or touched."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

from .host import LabError

_RUN = pathlib.Path("/run/muster-lab")
# runc and cgroupfs because crun refuses hosts that mix cgroup v1 and v2; the ulimits because podman's own defaults
# are above what a host without CAP_SYS_RESOURCE may grant.
_CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{run}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{home}/networks"
"""
_STORAGE_CONF = """[storage]
driver = "overlay"
graphroot = "{home}/storage"
runroot = "{run}/containers"
"""


def cache_home() -> pathlib.Path:
    """Return the folder that is kept between runs: ``$XDG_CACHE_HOME/muster-lab`` or ``~/.cache/muster-lab``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "muster-lab"


class Podman:
    """Runs podman commands; ``home`` holds its storage."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        values = {"home": str(home), "run": str(_RUN)}
        for name, text in (("containers.conf", _CONTAINERS_CONF), ("storage.conf", _STORAGE_CONF)):
            (home / name).write_text(text.format_map(values))
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": str(home / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(home / "storage.conf"),
        }

    def run(self, *words: str, limit_s: float = 120, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run ``podman words…`` and return how it ended.

        :raises LabError: when it does not end in time.
        """
        try:
            return subprocess.run(
                ["podman", *words],
                env=self.environment,
                input=data,
                stdin=subprocess.DEVNULL if data is None else None,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise LabError(f"podman {words[0]} did not end within {limit_s:.0f} s") from exc

    def __call__(self, *words: str, limit_s: float = 120) -> str:
        """Run ``podman words…`` and return its output without the last line feed.

        :raises LabError: with podman's last line when it fails.
        """
        done = self.run(*words, limit_s=limit_s)
        if done.returncode != 0:
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise LabError(f"podman {words[0]} failed: {last}")
        return done.stdout.decode(errors="replace").rstrip("\n")

    def json(self, *words: str) -> t.Any:
        """Run a podman command that prints JSON and return the value."""
        return json.loads(self(*words, "--format=json") or "null")
