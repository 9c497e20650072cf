# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real registry on loopback: distribution, with TLS and a user, and with whatever else a test asks for."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import time
import typing as t
import urllib.error
import urllib.request

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services.registry.distribution import hash_password
from ansible_collections.muster.training.tests.support import choice_programs
from ansible_collections.muster.training.tests.support.certificates import make_certificate

USER, PASSWORD = "pusher", "canary-registry-password-0001"


class RealRegistry(t.NamedTuple):
    """A registry that runs. ``ca`` is the file of its certificate, empty where it speaks HTTP."""

    url: str
    ca: str
    folder: pathlib.Path
    log: pathlib.Path

    @property
    def host(self) -> str:
        """Its name in names of images."""
        return self.url.partition("://")[2]


@contextlib.contextmanager
def running(
    folder: pathlib.Path, port: int, *, tls: bool = True, login: bool = True, **more: t.Any
) -> t.Iterator[RealRegistry]:
    """Give a registry that runs while the context is open; ``more`` goes into its configuration."""
    folder.mkdir(exist_ok=True)
    http: dict[str, t.Any] = {"addr": f"127.0.0.1:{port}", "secret": "of-this-test"}
    ca = ""
    if tls:
        ca, key = make_certificate(folder, "127.0.0.1", -1, 30)
        http["tls"] = {"certificate": ca, "key": key}
    config: dict[str, t.Any] = {
        "version": 0.1,
        "log": {"accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": http,
        **more,
    }
    if login:
        (folder / "htpasswd").write_text(f"{USER}:{hash_password(PASSWORD)}\n")
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    # JSON is YAML.
    (folder / "config.yml").write_text(json.dumps(config))
    with serving(["serve", str(folder / "config.yml")], folder, port, ca) as found:
        yield found


@contextlib.contextmanager
def serving(words: list[str], folder: pathlib.Path, port: int, ca: str) -> t.Iterator[RealRegistry]:
    """Give a registry that runs with these words while the context is open."""
    program = choice_programs.find("registry")
    if program is None:
        pytest.skip("no registry in MUSTER_LAB_BIN or the lab's cache")
    log = folder / "registry.log"
    with log.open("ab") as out:
        process = subprocess.Popen([program, *words], stdout=out, stderr=out)
    try:
        found = RealRegistry(f"{'https' if ca else 'http'}://127.0.0.1:{port}", ca, folder, log)
        _wait(found)
        yield found
    finally:
        process.terminate()
        process.wait(20)


def _wait(found: RealRegistry) -> None:
    import ssl

    context = ssl.create_default_context(cafile=found.ca) if found.ca else None
    for _attempt in range(200):
        try:
            urllib.request.urlopen(f"{found.url}/v2/", timeout=5, context=context).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(found.log.read_text()[-2000:])
