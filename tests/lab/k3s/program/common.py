# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What server and agent share: paths, parts that run as children, keys, the API, and words to systemd."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import typing as t

# What the real binary has within itself, and the lab's machines have as files.
BIN = "/opt/lab/bin/labk8s"
DATA = pathlib.Path("/var/lib/rancher/k3s")
RUN = pathlib.Path("/run/k3s")
SUPERVISOR_NAME = "k3s-supervisor"
API_PORT = 6444
_READY_S = 120


def log(level: str, text: str) -> None:
    """Write a line as K3s does."""
    quoted = text.replace('"', '\\"')
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f'time="{at}" level={level} msg="{quoted}"', file=sys.stderr, flush=True)


def tell_systemd(text: str) -> None:
    """Tell systemd, where it listens."""
    place = os.environ.get("NOTIFY_SOCKET")
    if place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.connect("\0" + place[1:] if place.startswith("@") else place)
            out.send(text.encode())


class Parts:
    """Children of this process; the first one that ends takes all others with it, as goroutines of one process."""

    def __init__(self) -> None:
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.at_end: list[t.Callable[[], None]] = []
        signal.signal(signal.SIGTERM, lambda *_: self.stop(0))
        signal.signal(signal.SIGINT, lambda *_: self.stop(0))

    def start(self, name: str, argv: t.Sequence[str], **environment: str) -> None:
        """Start a part; what it says goes where this process's words go."""
        quiet = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"}
        self.children[name] = subprocess.Popen(argv, env={**quiet, **environment}, stdin=subprocess.DEVNULL)

    def wait(self) -> t.NoReturn:
        """Wait until a part ends, then end all."""
        while True:
            self._look()
            time.sleep(0.5)

    def until(self, ready: t.Callable[[], object], what: str) -> None:
        """Wait until something is there; what takes too long, or a part that ends meanwhile, ends all."""
        end = time.monotonic() + _READY_S
        while not ready():
            self._look()
            if time.monotonic() > end:
                log("fatal", f"{what} did not become ready")
                self.stop(1)
            time.sleep(0.2)

    def _look(self) -> None:
        for name, child in self.children.items():
            if child.poll() is not None:
                log("fatal", f"{name} exited: {child.returncode}")
                self.stop(1)

    def stop(self, code: int) -> t.NoReturn:
        """End all parts; pods live on, as with K3s."""
        for child in reversed(self.children.values()):
            child.terminate()
        for child in self.children.values():
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
        for work in self.at_end:
            work()
        os._exit(code)


def write(place: pathlib.Path, data: str | bytes, mode: int = 0o600) -> pathlib.Path:
    """Write a file with a mode, making its folder."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.touch(mode=mode)
    place.chmod(mode)
    place.write_bytes(data.encode() if isinstance(data, str) else data)
    return place


def openssl(*words: str) -> bytes:
    """Run openssl and return its output."""
    environment = {"PATH": os.defpath, "OPENSSL_CONF": os.devnull}
    return subprocess.run(["openssl", *words], env=environment, check=True, capture_output=True).stdout


def issue(folder: pathlib.Path, name: str, subject: str, signer: str = "", names: str = "") -> tuple[str, str]:
    """Return certificate and key of a name, made once; without ``signer`` an authority."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    if not certificate.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        usage = "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
        added = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", usage]
        if signer:
            added = ["-CA", f"{folder}/{signer}.crt", "-CAkey", f"{folder}/{signer}.key"]
            added += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=critical,digitalSignature"]
            added += ["-addext", "extendedKeyUsage=clientAuth,serverAuth"]
            added += ["-addext", f"subjectAltName={names}"] if names else []
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "365"]
        openssl("req", "-x509", *new, "-subj", subject, "-keyout", str(key), "-out", f"{certificate}.new", *added)
        key.chmod(0o600)
        os.replace(f"{certificate}.new", certificate)
    return str(certificate), str(key)


def kubeconfig(server: str, authority: str, certificate: str, key: str) -> str:
    """Return a kubeconfig that has everything in it, as K3s writes it: JSON is YAML."""
    import base64

    def data(place: str) -> str:
        return base64.b64encode(pathlib.Path(place).read_bytes()).decode()

    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    cluster = {"server": server, "certificate-authority-data": data(authority)}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "default",
        "clusters": [{"name": "default", "cluster": cluster}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "users": [{"name": "default", "user": user}],
    }
    return json.dumps(value, indent=1) + "\n"


def ask_api(address: str, method: str, path: str, body: t.Any = None, **files: str) -> tuple[int, t.Any]:
    """Return status and answer of the API server; ``files``: ca, certificate, key."""
    context = ssl.create_default_context(cafile=files["ca"])
    context.check_hostname = False
    context.load_cert_chain(files["certificate"], files["key"])
    connection = http.client.HTTPSConnection(address, API_PORT, context=context, timeout=10)
    try:
        text = None if body is None else json.dumps(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection.request(method, path, text, {"Content-Type": kind})
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data.startswith(b"{") else data.decode()
    finally:
        connection.close()


def random_text(length: int, letters: str = "0123456789abcdefghijklmnopqrstuvwxyz") -> str:
    """Return letters that nobody can guess."""
    return "".join(secrets.choice(letters) for _ in range(length))


def own_address(towards: str = "192.0.2.1") -> str:
    """Return the address that this machine uses towards another one, as K3s finds its default node-ip."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))
        return str(probe.getsockname()[0])
