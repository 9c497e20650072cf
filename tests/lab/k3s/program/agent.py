# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's part: joining, containerd, kubelet, kube-proxy, and the network between pods."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import time
import typing as t
import urllib.parse

import balancer
import network
from common import API_PORT, BIN, RUN, SUPERVISOR_NAME, Parts, kubeconfig, log, random_text, write
from network import AGENT

SOCKET = RUN / "containerd" / "containerd.sock"
_BOOTSTRAP = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}\Z")
_CONTAINERD = """version = 2
root = "{agent}/containerd"
state = "{run}/containerd"
[plugins."io.containerd.internal.v1.opt"]
  path = "{agent}/containerd"
[grpc]
  address = "{run}/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/muster-lab/pause:lab"
  restrict_oom_score_adj = true
  enable_cdi = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{agent}/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
# Which runtimes there are is looked up once, when it starts.
_NVIDIA = ("/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-container-runtime")
_NVIDIA_RUNTIME = """    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        BinaryName = "{path}"
        SystemdCgroup = false
"""
_KUBELET: dict[str, t.Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "imageGCHighThresholdPercent": 100,
    "evictionHard": {"memory.available": "100Mi"},
    "containerRuntimeEndpoint": f"unix://{SOCKET}",
    "authorization": {"mode": "Webhook"},
    "nodeStatusUpdateFrequency": "5s",
    "serializeImagePulls": False,
}


class Token(t.NamedTuple):
    """A token in parts; ``authority``: the digest of the server's CA, empty in the short form."""

    authority: str
    header: str

    @classmethod
    def parse(cls, text: str) -> Token:
        """Return the parts as pkg/clientaccess reads them; ValueError says what is wrong."""
        if not text:
            raise ValueError("token must not be empty")
        if not text.startswith("K10"):
            text = ("K10::" if _BOOTSTRAP.match(text) else "K10:::") + text
        digest, separator, rest = text[3:].partition("::")
        if not separator:
            digest, rest = "", text[3:]
        if digest and len(digest) != 64:
            raise ValueError("invalid token CA hash length")
        if _BOOTSTRAP.match(rest):
            return cls(digest, f"Bearer {rest}")
        _user, separator, password = rest.partition(":")
        if not separator or not password:
            raise ValueError("invalid token format")
        return cls(digest, f"Basic node:{password}")

    def as_server(self) -> str:
        """Return the header by which a server proves itself; a token for agents is no proof."""
        return self.header.replace("Basic node:", "Basic server:")


def fetch_bootstrap(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what a further server takes from the one that it joins; ValueError with K3s' words when it is refused."""
    parts = urllib.parse.urlsplit(str(options["server"]))
    host, port = parts.hostname or "", parts.port or 6443
    failed = "preparing server: failed to bootstrap cluster data:"
    end = time.monotonic() + 60
    while True:
        try:
            token = Token.parse(token_of(options))
            authority = _authority(host, port, token)
            status, text = _call(host, port, "GET", "/v1-k3s/server-bootstrap", authority, "", token.as_server())
        except ValueError as exc:
            raise ValueError(f"{failed} failed to validate token: {exc}") from exc
        except (OSError, http.client.HTTPException) as exc:
            log("info", f"Waiting for the server {options['server']}: {exc}")
            if time.monotonic() > end:
                raise ValueError(f"{failed} {exc}") from exc
            time.sleep(2)
            continue
        if status != 200:
            raise ValueError(f"{failed} https://{host}:{port}/v1-k3s/server-bootstrap: {status} {text}")
        return t.cast("dict[str, t.Any]", json.loads(text))


def token_of(options: t.Mapping[str, t.Any]) -> str:
    """Return the token that the options name, empty when they name none."""
    if options.get("token"):
        return str(options["token"])
    if options.get("token-file"):
        return pathlib.Path(options["token-file"]).read_text().strip()
    return ""


def join(options: t.Mapping[str, t.Any], name: str, address: str) -> None:
    """Fetch this node's certificates from the server, for as long as that takes, with the errors that K3s has."""
    url = str(options["server"])
    host = urllib.parse.urlsplit(url).hostname or ""
    port = urllib.parse.urlsplit(url).port or 6443
    secret = pathlib.Path("/etc/rancher/node/password")
    if not secret.exists():
        write(secret, random_text(32, "0123456789abcdef"))
    asked = {"node": name, "password": secret.read_text().strip(), "address": address}
    first, turn = host, 0
    while True:
        # One that has been in the cluster knows its other servers.
        host = balancer.known(first)[turn % len(balancer.known(first))]
        turn += 1
        try:
            token = Token.parse(token_of(options))
            authority = _authority(host, port, token)
            break
        except (OSError, ValueError, http.client.HTTPException) as exc:
            log("error", f"Failed to validate connection to cluster at {url}: {exc}")
            time.sleep(2)
    while True:
        status, answer = _call(host, port, "POST", "/v1-k3s/join", authority, json.dumps(asked), token.header)
        if status == 200:
            break
        if status == 401 and (AGENT / "client-kubelet.key").exists():
            # The real one proves itself with its certificate once its token is over.
            return
        said = answer if status == 403 else f"https://127.0.0.1:6444/v1-k3s/serving-kubelet.crt: {status} {answer}"
        log("info", f"Waiting to retrieve agent configuration; server is not ready: {said}")
        time.sleep(2)
    for file, text in json.loads(answer).items():
        write(AGENT / file, text)


def run(options: t.Mapping[str, t.Any], parts: Parts, name: str, address: str, api: str) -> None:
    """Start the agent's parts and wait until the kubelet answers; ``api``: the server's address."""
    settings = json.loads((AGENT / "settings.json").read_text())
    _start_containerd(options, parts)
    keys = {"authority": f"{AGENT}/server-ca.crt"}
    for user in ("kubelet", "kube-proxy"):
        pair = {"certificate": f"{AGENT}/client-{user}.crt", "key": f"{AGENT}/client-{user}.key"}
        write(AGENT / f"{user}.kubeconfig", kubeconfig(f"https://{api}:{API_PORT}", **keys, **pair))
    kubelet = {
        **_KUBELET,
        "authentication": {"x509": {"clientCAFile": f"{AGENT}/client-ca.crt"}, "webhook": {"enabled": True}},
        "clusterDNS": [settings["dns"]],
        "clusterDomain": "cluster.local",
        "resolvConf": str(options.get("resolv-conf") or _find_resolv_conf()),
        "registerWithTaints": [_taint(text) for text in options.get("node-taint", [])],
    }
    write(AGENT / "etc/kubelet.json", json.dumps(kubelet))
    flags = {
        "config": AGENT / "etc/kubelet.json",
        "kubeconfig": AGENT / "kubelet.kubeconfig",
        "hostname-override": name,
        "node-ip": address,
        "cert-dir": AGENT,
        "v": 1,
    }
    # At registration only: an existing Node keeps the labels that it has.
    if options.get("node-label"):
        flags["node-labels"] = ",".join(options["node-label"])
    extra = [f"--{text}" for text in options.get("kubelet-arg", [])]
    parts.start("kubelet", [BIN, "kubelet", *(f"--{key}={value}" for key, value in flags.items()), *extra])
    proxy = ["--conntrack-max-per-core=0", f"--cluster-cidr={settings['pods']}", f"--hostname-override={name}"]
    parts.start("kube-proxy", [BIN, "kube-proxy", f"--kubeconfig={AGENT}/kube-proxy.kubeconfig", *proxy])
    made = network.start(name, api, settings, str(options.get("flannel-iface", "")), address)
    parts.at_end.append(made.remove)
    parts.until(_healthy, "kubelet")


def _start_containerd(options: t.Mapping[str, t.Any], parts: Parts) -> None:
    snapshotter = str(options.get("snapshotter", "overlayfs"))
    text = _CONTAINERD.format(agent=AGENT, run=RUN, snapshotter=snapshotter)
    text += "".join(_NVIDIA_RUNTIME.format(path=path) for path in _NVIDIA if os.path.exists(path))
    config = write(AGENT / "etc/containerd/config.toml", text)
    RUN.mkdir(exist_ok=True, mode=0o711)
    parts.start("containerd", ["/usr/bin/containerd", "--config", str(config), "--log-level", "warn"])
    ctr = ["ctr", f"--address={SOCKET}", "--namespace=k8s.io"]
    parts.until(lambda: subprocess.run([*ctr, "version"], capture_output=True).returncode == 0, "containerd")
    for archive in sorted((AGENT / "images").glob("*.tar")):
        began = time.monotonic()
        done = subprocess.run([*ctr, "images", "import", str(archive)], capture_output=True, text=True)
        if done.returncode:
            log("error", f"Failed to import images from {archive}: {done.stderr.strip()}")
        else:
            log("info", f"Imported images from {archive} in {time.monotonic() - began:.1f}s")


def _find_resolv_conf() -> str:
    """Return the file with name servers that pods get; as with K3s, one of its own where the machine's has none."""
    for place in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"):
        path = pathlib.Path(place)
        servers = re.findall(r"^nameserver\s+(\S+)", path.read_text(), re.MULTILINE) if path.exists() else []
        if any(ipaddress.ip_address(server.partition("%")[0]).is_loopback is False for server in servers):
            return place
    write(AGENT / "etc/resolv.conf", "nameserver 8.8.8.8\n")
    return str(AGENT / "etc/resolv.conf")


def _taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def _authority(host: str, port: int, token: Token) -> str:
    status, text = _call(host, port, "GET", "/cacerts", None)
    if status != 200:
        raise ValueError(f"failed to get CA certs: https://{host}:{port}/cacerts: {status}")
    found = hashlib.sha256(text.encode()).hexdigest()
    if token.authority and token.authority != found:
        raise ValueError(f"token CA hash does not match the Cluster CA certificate hash: {token.authority} != {found}")
    return text


def _call(
    host: str, port: int, method: str, path: str, authority: str | None, body: str = "", token: str = ""
) -> tuple[int, str]:
    """Call the server's own part of port 6443."""
    context = ssl.create_default_context(cadata=authority)
    if authority is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.check_hostname = False
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=10)
    raw = socket.create_connection((host, port), timeout=10)
    connection.sock = context.wrap_socket(raw, server_hostname=SUPERVISOR_NAME)
    try:
        connection.request(method, path, body, {"Authorization": token} if token else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, text if answer.status in (200, 403) else str(answer.reason)
    finally:
        connection.close()


def _healthy() -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", 10248, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
