# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's part: keys, etcd, the control plane, port 6443 with the server's own calls beside the API, tokens."""

from __future__ import annotations

import base64
import hashlib
import http.server
import ipaddress
import json
import pathlib
import secrets
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import typing as t

import balancer
import etcd
import network
import tokens
from common import API_PORT, BIN, DATA, SUPERVISOR_NAME, Parts, ask_api, issue, kubeconfig, log, random_text, write

SERVER = DATA / "server"
TLS = SERVER / "tls"
KUBECONFIG = "/etc/rancher/k3s/k3s.yaml"
REJECTED = (
    "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server"
    " node-passwd entry, try enabling a unique node name with the --with-node-id flag"
)
# Manifests that the real binary has within itself; the lab's machines have them as files.
PACKAGED = pathlib.Path("/opt/lab/k3s")
# What further servers have from the first one, and the options that have to be the same on all of them.
_SHARED = ("server-ca", "client-ca", "request-header-ca", "service", "etcd/server-ca", "etcd/peer-ca")
_ALIKE = [
    "cluster-cidr",
    "service-cidr",
    "cluster-dns",
    "cluster-domain",
    "disable-helm-controller",
    "disable-network-policy",
    "disable-cloud-controller",
    "egress-selector-mode",
    "embedded-registry",
    "flannel-backend",
    "flannel-external-ip",
    "flannel-ipv6-masq",
    "secrets-encryption",
]
_DISABLE = ("coredns", "servicelb", "traefik", "local-storage", "metrics-server", "runtimes")


class Server:
    """A server with its options."""

    def __init__(self, options: t.Mapping[str, t.Any], name: str, address: str) -> None:
        self.options = options
        self.name = name
        self.address = address
        self.pods = (options.get("cluster-cidr") or ["10.42.0.0/16"])[0]
        self.services = ipaddress.ip_network((options.get("service-cidr") or ["10.43.0.0/16"])[0])
        self.port = int(options.get("https-listen-port", 6443))
        unknown = set(options.get("disable", [])) - set(_DISABLE)
        if unknown:
            raise ValueError(f"invalid disable item: {', '.join(sorted(unknown))}")
        # The real one has VXLAN unless it is told otherwise.
        self.backend = str(options.get("flannel-backend") or ("vxlan" if options.get("flannel-iface") else "host-gw"))
        if self.backend not in network.BACKENDS:
            raise ValueError(f"the stand-in has no flannel-backend {self.backend}")
        self.store: etcd.Single | etcd.Member = etcd.Single()

    @property
    def digest(self) -> str:
        """The digest of the CA in tokens."""
        return hashlib.sha256((TLS / "server-ca.crt").read_bytes()).hexdigest()

    def settings_alike(self) -> dict[str, t.Any]:
        """Return the options that have to be the same on all servers."""
        return {name: self.options.get(name) for name in _ALIKE}

    def bootstrap(self) -> str:
        """Return what a further server takes from this one, and the members of etcd, as JSON.

        ValueError where the datastore is no etcd of several members.
        """
        if not isinstance(self.store, etcd.Member):
            raise ValueError("etcd datastore disabled")
        places = [TLS / f"{name}.{kind}" for name in _SHARED for kind in ("crt", "key")]
        places += [SERVER / "cred" / "encryption-config.json"]
        files = {str(place.relative_to(SERVER)): place.read_text() for place in places if place.exists()}
        hosts = [item["peerURLs"][0].removeprefix("https://").rpartition(":")[0] for item in self.store.list_members()]
        return json.dumps({"files": files, "members": hosts, "settings": self.settings_alike()})

    def take(self, answer: t.Mapping[str, t.Any]) -> None:
        """Take over the files of the server that this one joins; ValueError where the options are not the same."""
        if answer["settings"] != json.loads(json.dumps(self.settings_alike())):
            differs = [name for name, value in self.settings_alike().items() if answer["settings"][name] != value]
            raise ValueError(f"critical configuration value mismatch between servers: {', '.join(differs)}")
        for path, text in answer["files"].items():
            if not (SERVER / path).exists():
                write(SERVER / path, text)

    def keys(self, token: str) -> str:
        """Make all keys and the token once; return the password in the token."""
        for name in ("server-ca", "client-ca", "request-header-ca"):
            issue(TLS, name, f"/CN=k3s-{name}")
        places = ["127.0.0.1", self.address, str(self.services[1]), *self.options.get("tls-san", [])]
        service = [f"kubernetes{rest}" for rest in ("", ".default", ".default.svc", ".default.svc.cluster.local")]
        names = ",".join(dict.fromkeys([*(_san(place) for place in places), *(f"DNS:{item}" for item in service)]))
        stamp = TLS / "serving.names"
        if not stamp.exists() or stamp.read_text() != names:
            for place in TLS.glob("serving-kube-apiserver.*"):
                place.unlink()
            write(stamp, names)
        issue(TLS, "serving-kube-apiserver", "/CN=kube-apiserver", "server-ca", names)
        issue(TLS, "supervisor", "/CN=k3s", "server-ca", f"DNS:{SUPERVISOR_NAME}")
        users = {"admin": "/O=system:masters/CN=system:admin", "scheduler": "/CN=system:kube-scheduler"}
        users["controller"] = "/CN=system:kube-controller-manager"
        for name, subject in users.items():
            issue(TLS, f"client-{name}", subject, "client-ca")
        issue(TLS, "client-auth-proxy", "/CN=system:auth-proxy", "request-header-ca")
        if not (TLS / "service.key").exists():
            issue(TLS, "service", "/CN=service")
        place = SERVER / "token"
        if not place.exists():
            password = token.rpartition(":")[2] or random_text(32, "0123456789abcdef")
            write(place, f"K10{self.digest}::server:{password}\n")
            (SERVER / "node-token").symlink_to(place)
        return place.read_text().strip().rpartition(":")[2]

    def start(self, parts: Parts) -> None:
        """Start the control plane and wait until it serves."""
        self.store.start(parts)
        more = [f"--{text}" for text in self.options.get("kube-apiserver-arg", [])]
        parts.start("kube-apiserver", [BIN, "kube-apiserver", *_words(self._api_server()), *more])
        parts.until(lambda: _ready(self), "kube-apiserver")
        access = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        for name, more in (("scheduler", {}), ("controller", self._controllers())):
            place = self._credential(name)
            several = str(isinstance(self.store, etcd.Member)).lower()
            flags = {**dict.fromkeys(access, place), "leader-elect": several, **more}
            part = "kube-scheduler" if name == "scheduler" else "kube-controller-manager"
            parts.start(part, [BIN, part, *_words(flags)])
        mode = int(str(self.options.get("write-kubeconfig-mode", "600")), 8)
        admin = {"certificate": f"{TLS}/client-admin.crt", "key": f"{TLS}/client-admin.key"}
        local = kubeconfig(f"https://127.0.0.1:{self.port}", f"{TLS}/server-ca.crt", **admin)
        write(pathlib.Path(self.options.get("write-kubeconfig", KUBECONFIG)), local, mode)

    def apply_manifests(self) -> None:
        """Deploy what is packaged and what lies in the folder of manifests."""
        folder = SERVER / "manifests"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for place in PACKAGED.glob("*.json"):
            if place.stem not in self.options.get("disable", []):
                shutil.copy(place, folder)
        for place in sorted(folder.iterdir()):
            argv = [BIN, "kubectl", f"--kubeconfig={KUBECONFIG}", "apply", "--server-side", "--force-conflicts"]
            done = subprocess.run([*argv, "-f", str(place)], capture_output=True, text=True, env={"HOME": "/run/k3s"})
            log("info" if done.returncode == 0 else "error", f"ApplyManifest {place}: {done.stderr.strip()[-300:]}")

    def ask(self, method: str, path: str, body: t.Any = None) -> tuple[int, t.Any]:
        """Ask the API as administrator."""
        files = {"ca": f"{TLS}/server-ca.crt", "certificate": f"{TLS}/client-admin.crt"}
        return ask_api("127.0.0.1", method, path, body, key=f"{TLS}/client-admin.key", **files)

    def settings(self, name: str) -> dict[str, str]:
        """Return the files of an agent of this name."""
        folder = TLS / "nodes"
        for kind in ("crt", "key"):
            folder.mkdir(exist_ok=True, mode=0o700)
            shutil.copy(TLS / f"client-ca.{kind}", folder / f"client-ca.{kind}")
        kubelet = issue(folder, f"kubelet-{name}", f"/O=system:nodes/CN=system:node:{name}", "client-ca")
        proxy = issue(folder, f"kube-proxy-{name}", "/CN=system:kube-proxy", "client-ca")
        settings = {"pods": str(self.pods), "dns": str(self.services[10]), "backend": self.backend}
        return {
            "server-ca.crt": (TLS / "server-ca.crt").read_text(),
            "client-ca.crt": (TLS / "client-ca.crt").read_text(),
            "client-kubelet.crt": pathlib.Path(kubelet[0]).read_text(),
            "client-kubelet.key": pathlib.Path(kubelet[1]).read_text(),
            "client-kube-proxy.crt": pathlib.Path(proxy[0]).read_text(),
            "client-kube-proxy.key": pathlib.Path(proxy[1]).read_text(),
            "settings.json": json.dumps(settings),
        }

    def _credential(self, name: str) -> str:
        pair = {"certificate": f"{TLS}/client-{name}.crt", "key": f"{TLS}/client-{name}.key"}
        text = kubeconfig(f"https://127.0.0.1:{API_PORT}", f"{TLS}/server-ca.crt", **pair)
        return str(write(SERVER / "cred" / f"{name}.kubeconfig", text))

    def _controllers(self) -> dict[str, t.Any]:
        return {
            "use-service-account-credentials": "true",
            "service-account-private-key-file": TLS / "service.key",
            "root-ca-file": TLS / "server-ca.crt",
            "cluster-signing-cert-file": TLS / "client-ca.crt",
            "cluster-signing-key-file": TLS / "client-ca.key",
            "allocate-node-cidrs": "true",
            "cluster-cidr": self.pods,
            "controllers": "*,tokencleaner",
            "kube-api-qps": 200,
            "kube-api-burst": 400,
        }

    def _api_server(self) -> dict[str, t.Any]:
        header = "requestheader"
        flags = {
            "advertise-address": self.address,
            "secure-port": API_PORT,
            **self.store.flags(),
            "service-cluster-ip-range": self.services,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "client-ca-file": TLS / "client-ca.crt",
            "tls-cert-file": TLS / "serving-kube-apiserver.crt",
            "tls-private-key-file": TLS / "serving-kube-apiserver.key",
            "kubelet-client-certificate": TLS / "client-admin.crt",
            "kubelet-client-key": TLS / "client-admin.key",
            "kubelet-preferred-address-types": "InternalIP",
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": TLS / "service.crt",
            "service-account-signing-key-file": TLS / "service.key",
            f"{header}-client-ca-file": TLS / "request-header-ca.crt",
            f"{header}-allowed-names": "system:auth-proxy",
            f"{header}-extra-headers-prefix": "X-Remote-Extra-",
            f"{header}-group-headers": "X-Remote-Group",
            f"{header}-username-headers": "X-Remote-User",
            "proxy-client-cert-file": TLS / "client-auth-proxy.crt",
            "proxy-client-key-file": TLS / "client-auth-proxy.key",
        }
        if self.options.get("secrets-encryption"):
            flags["encryption-provider-config"] = _encryption()
        return flags


class Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_words: object) -> None:
        pass


def serve(server: Server, password: str) -> None:
    """Listen on the server's port: calls that name the supervisor are answered here, all others go to the API."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{TLS}/supervisor.crt", f"{TLS}/supervisor.key")

    class Front(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(30)
            hello = self.request.recv(4096, socket.MSG_PEEK)
            if SUPERVISOR_NAME.encode() in hello:
                with context.wrap_socket(self.request, server_side=True) as secure:
                    Calls(secure, self.client_address, self.server)
            else:
                self.request.settimeout(None)
                _splice(self.request)

    class Calls(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*_tell(server, self.path, self.headers.get("Authorization", ""), password))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/v1-k3s/join":
                return self._answer(404, "")
            if not tokens.may_join(self.headers.get("Authorization", ""), password):
                return self._answer(401, "")
            asked = json.loads(body)
            if not _node_password(server, asked["node"], asked["password"]):
                return self._answer(403, REJECTED)
            self._answer(200, json.dumps(server.settings(asked["node"])))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_words: object) -> None:
            pass

    listener = Listener(("0.0.0.0", server.port), Front)
    threading.Thread(target=listener.serve_forever, daemon=True).start()


def _tell(server: Server, path: str, proof: str, password: str) -> tuple[int, str]:
    """Return the answer to a question: the CA for everybody, and the keys for who has the server's own token."""
    if path == "/cacerts":
        return 200, (TLS / "server-ca.crt").read_text()
    if path != "/v1-k3s/server-bootstrap":
        return 404, ""
    if not secrets.compare_digest(proof, f"Basic server:{password}"):
        return 401, ""
    try:
        return 200, server.bootstrap()
    except ValueError as exc:
        return 403, str(exc)


def _splice(client: socket.socket) -> None:
    with socket.create_connection(("127.0.0.1", API_PORT)) as behind:
        balancer.join(client, behind)


def _node_password(server: Server, node: str, password: str) -> bool:
    """Return whether a node gave the password of its first time, which is noted as a Secret."""
    path = "/api/v1/namespaces/kube-system/secrets"
    name = f"{node}.node-password.k3s"
    status, found = server.ask("GET", f"{path}/{name}")
    if status == 200:
        salt, _, wanted = base64.b64decode(found["data"]["hash"]).decode().partition(":")
        return secrets.compare_digest(_hash(password, salt), wanted)
    salt = secrets.token_hex(8)
    body = {"apiVersion": "v1", "kind": "Secret", "immutable": True, "metadata": {"name": name}}
    status, _answer = server.ask("POST", path, {**body, "stringData": {"hash": f"{salt}:{_hash(password, salt)}"}})
    return status == 201


def _hash(password: str, salt: str) -> str:
    return hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), n=2**12, r=8, p=1).hex()


def _encryption() -> str:
    place = SERVER / "cred" / "encryption-config.json"
    if not place.exists():
        key = {"name": "aescbckey", "secret": base64.b64encode(secrets.token_bytes(32)).decode()}
        providers = [{"aescbc": {"keys": [key]}}, {"identity": {}}]
        value = {"kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1"}
        write(place, json.dumps({**value, "resources": [{"resources": ["secrets"], "providers": providers}]}))
    return str(place)


def _ready(server: Server) -> bool:
    try:
        return server.ask("GET", "/readyz")[0] == 200
    except OSError:
        return False


def _words(flags: t.Mapping[str, t.Any]) -> list[str]:
    return [f"--{key}={value}" for key, value in flags.items()]


def _san(place: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(place)}"
    except ValueError:
        return f"DNS:{place}"
