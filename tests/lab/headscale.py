# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A headscale of the tests on one of the lab's machines, and a release of tailscale as its vendor packs it.

Everything of the server lies in /run, so that the machine is as it was when it is off.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import tarfile
import time
import typing as t

from .k3s.machines import BareLab
from .kube import plan
from .kube.binaries import Binaries

VERSION = "1.102.0"
PORT = 8080
_FOLDER = "/run/lab-headscale"
_UNIT = "lab-headscale"
_CONFIG = """
server_url: {url}
listen_addr: 0.0.0.0:{port}
metrics_listen_addr: 127.0.0.1:9090
grpc_listen_addr: 127.0.0.1:50443
noise: {{private_key_path: {folder}/noise.key}}
prefixes: {{v4: 100.64.0.0/10, v6: "fd7a:115c:a1e0::/48", allocation: sequential}}
derp:
  server:
    enabled: true
    region_id: 999
    region_code: lab
    region_name: lab
    stun_listen_addr: 0.0.0.0:3478
    private_key_path: {folder}/derp.key
    automatically_add_embedded_derp_region: true
    ipv4: {address}
  urls: []
  paths: []
  auto_update_enabled: false
disable_check_updates: true
database: {{type: sqlite, sqlite: {{path: {folder}/db.sqlite}}}}
log: {{level: info, format: text}}
policy: {{mode: database}}
dns: {{magic_dns: false, override_local_dns: false, base_domain: mesh.internal, nameservers: {{global: []}}}}
{tls}
unix_socket: {folder}/socket
unix_socket_permission: "0770"
"""


class Headscale:
    """A control server on the machine ``node``, which is the relay, too; without a certificate nobody can use it as that."""

    def __init__(self, lab: BareLab, node: str, secure: bool = False) -> None:
        self.lab, self.node = lab, node
        Binaries(lab.podman.home).get("headscale")
        address = lab.node(node).address
        self.url = f"{'https' if secure else 'http'}://{address}:{PORT}"
        tls = f"tls_cert_path: {_FOLDER}/tls.crt\ntls_key_path: {_FOLDER}/tls.key" if secure else ""
        text = render(self.url, address, _FOLDER, tls)
        lab.ask(node, "sh", "-c", f"mkdir -m 700 {_FOLDER} && cat > {_FOLDER}/config.yaml <<'END'\n{text}\nEND")
        if secure:
            self._certify(address)
        program = f"{plan.BIN}/headscale"
        lab.ask(node, "systemd-run", f"--unit={_UNIT}", "--collect", program, "-c", f"{_FOLDER}/config.yaml", "serve")
        end = time.monotonic() + 30
        while self.lab.run(node, program, "-c", f"{_FOLDER}/config.yaml", "users", "list").returncode:
            assert time.monotonic() < end, "headscale did not start"
            time.sleep(0.2)
        self.user = str(self.ask("users", "create", "lab")["id"])

    def _certify(self, address: str) -> None:
        """Make a certificate for the server, which all machines trust."""
        files = ("-keyout", f"{_FOLDER}/tls.key", "-out", f"{_FOLDER}/tls.crt")
        kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
        named = ("-subj", "/CN=lab-headscale", "-addext", f"subjectAltName=IP:{address}")
        self.lab.ask(self.node, "openssl", "req", *kind, *named, *files)
        text = self.lab.ask(self.node, "cat", f"{_FOLDER}/tls.crt")
        for node in self.lab.nodes:
            self.lab.ask(node.name, "sh", "-c", f"cat >> /etc/ssl/certs/ca-certificates.crt <<'END'\n{text}\nEND")

    def ask(self, *words: str) -> t.Any:
        """Run a command of headscale; return its JSON."""
        program = (f"{plan.BIN}/headscale", "-c", f"{_FOLDER}/config.yaml")
        return json.loads(self.lab.ask(self.node, *program, *words, "-o", "json"))

    def create_key(self) -> str:
        """Return a key for one machine."""
        words = ("preauthkeys", "create", "--user", self.user, "--expiration", "1h", "--tags", "tag:muster")
        return str(self.ask(*words)["key"])

    def names(self) -> list[str]:
        """Return the names of the machines in the tailnet."""
        return sorted(str(item["given_name"]) for item in self.ask("nodes", "list") or [])

    def online(self) -> list[str]:
        """Return the names of the machines that are connected."""
        return sorted(str(item["given_name"]) for item in self.ask("nodes", "list") or [] if item.get("online"))

    def down(self) -> None:
        """Stop it, with all that it has."""
        self.lab.run(self.node, "systemctl", "stop", _UNIT)
        self.lab.run(self.node, "rm", "-rf", _FOLDER)


def render(url: str, address: str, folder: str, tls: str = "") -> str:
    """Return the configuration of a server with a relay at ``address``, which keeps what it has in ``folder``."""
    return _CONFIG.format(url=url, port=PORT, folder=folder, address=address, tls=tls)


def release(lab: BareLab, folder: pathlib.Path) -> pathlib.Path:
    """Make a folder with the archive of the programs, as the vendor packs them."""
    return pack_release(Binaries(lab.podman.home), folder)


def pack_release(binaries: Binaries, folder: pathlib.Path) -> pathlib.Path:
    """Make that folder of the programs that there are."""
    place = folder / "tailscale"
    place.mkdir()
    with tarfile.open(place / f"tailscale_{VERSION}_amd64.tgz", "w:gz", compresslevel=1) as target:
        for name in ("tailscale", "tailscaled"):
            target.add(os.fspath(binaries.get(name)), f"tailscale_{VERSION}_amd64/{name}")
        unit = tarfile.TarInfo(f"tailscale_{VERSION}_amd64/systemd/tailscaled.service")
        target.addfile(unit, io.BytesIO())
    return place
