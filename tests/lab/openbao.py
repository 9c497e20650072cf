# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBao for the lab: a release as its project packs it, and an image, from the program of the test environment."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import ssl
import tarfile
import typing as t
import urllib.request

from ansible_collections.muster.training.tests.support.kube_lab import not_run

from .kube_registry import Registry

ARCHIVE = "openbao_2.7.2_linux_amd64.tar.gz"


def program() -> pathlib.Path:
    """Return OpenBao's program, of the environment that has services."""
    named = os.environ.get("MUSTER_SERVICES_PYTHON", "")
    if not named or not shutil.which(named):
        not_run("MUSTER_SERVICES_PYTHON names no interpreter with OpenBao")
    found = list(pathlib.Path(named).parent.parent.glob("lib/python*/site-packages/**/bin/bao"))
    return max([*found, pathlib.Path(named).parent / "bao"], key=lambda place: place.stat().st_size)


def release(folder: pathlib.Path) -> pathlib.Path:
    """Make a folder with the archive of the program."""
    place = folder / "openbao"
    place.mkdir()
    with tarfile.open(place / ARCHIVE, "w:gz", compresslevel=1) as target:
        target.add(program(), "bao")
    return place


def push_image(registry: Registry) -> str:
    """Put an image with the program into a registry of the lab; return its name."""
    return registry.push("openbao", {"usr/bin/bao": program().read_bytes()}, "amd64", False)


class Client:
    """What its administrator does with a service that was deployed, by the file of its credentials."""

    def __init__(self, state: pathlib.Path, name: str = "bao") -> None:
        self.binding = json.loads((state / "bindings" / f"{name}.json").read_text())
        lines = (state / "services" / f"{name}.credentials").read_text().splitlines()
        self.credentials = dict(line.split(" = ", 1) for line in lines if " = " in line)

    def ask(self, method: str, path: str, body: t.Any = None, token: str = "") -> t.Any:
        """Return the answer of its API, None for one without a body."""
        headers = {"X-Vault-Token": token or self.credentials["ADMIN_TOKEN"], "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.binding['endpoint']}/v1/{path}", data, headers, method=method)
        trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=self.binding["ca"]))
        with urllib.request.build_opener(trusted).open(request, timeout=20) as answer:
            return json.loads(answer.read() or b"null")

    def secrets(self) -> list[str]:
        """Return what must be in no output: all that was made but the certificate and where it is for."""
        return [value for name, value in self.credentials.items() if name not in ("TLS_CERTIFICATE", "TLS_PLACES")]
