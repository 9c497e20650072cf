# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server for tests: kube-apiserver and etcd as plain processes on this machine, without nodes.

``ApiServer.start()`` takes about five seconds; ``stop_api()`` and ``start_api()`` are an outage that keeps the data.
With ``MUSTER_REQUIRE_LAB=1`` a missing program fails a test instead of skipping it.
"""

from __future__ import annotations

import base64
import concurrent.futures
import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import typing as t
import urllib.error
import urllib.request

import pytest

from ansible_collections.muster.training.tests.lab import host, podman
from ansible_collections.muster.training.tests.lab.kube import binaries
from ansible_collections.muster.training.tests.support import debian

NAME = "labk8s"
_PR_SET_PDEATHSIG = 1
_STARTER = concurrent.futures.ThreadPoolExecutor(1)
TOKENS = {
    "reader-token-0123456789": ("reader", ()),
    "nobody-token-0123456789": ("nobody", ()),
}


def program() -> pathlib.Path | None:
    """Return the program that is all of Kubernetes in one; None when it is not to be had.

    It comes from MUSTER_LAB_BIN or the lab's cache. Only a session that must run everything builds it, for minutes.
    """
    lab = binaries.Binaries(podman.cache_home())
    packed = lab.given is not None and (lab.given / f"{NAME}.xz").exists()
    if not packed and not (lab.folder / NAME).exists() and os.environ.get("MUSTER_REQUIRE_LAB") != "1":
        return None
    return lab.get(NAME)


def missing() -> str:
    """Return why no API server can be started here, empty when one can."""
    lacking = [debian.obtain("etcd", "etcd-server"), debian.obtain("openssl", "openssl")]
    try:
        there = program()
    except host.LabError as error:
        return str(error)
    return next(
        filter(None, lacking), "" if there else "no labk8s (set MUSTER_LAB_BIN, or run python -m tools.lab images)"
    )


def require() -> None:
    """Skip the test, or fail it where the lab is required, when no API server can be started here."""
    reason = missing()
    if reason and os.environ.get("MUSTER_REQUIRE_LAB") == "1":
        pytest.fail(f"the lab is required: {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


def _end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends: a killed test leaves nothing behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """Return a TCP port of this machine that nobody uses now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def lower_priority() -> list[str]:
    """Return how a program is started so that it leaves the machine to others."""
    return ["nice", "-n", "19"] if os.environ.get("MUSTER_LAB_NICE") else []


@dataclasses.dataclass
class ApiServer:
    """One etcd and one kube-apiserver below ``root``; as a context manager it is started and stopped.

    ``flags`` are further arguments of kube-apiserver. etcd keeps what it is told in memory, which tests are quicker by;
    with ``durable`` it waits for the disk, as that of every cluster does.
    """

    root: pathlib.Path
    flags: tuple[str, ...] = ()
    durable: bool = False
    port: int = 0
    etcd_port: int = 0
    _etcd: subprocess.Popen[bytes] | None = None
    _api: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ApiServer:
        self.start()
        return self

    def __exit__(self, *_args: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> pathlib.Path:
        """Return the administrator's kubeconfig: a client certificate in the group system:masters."""
        return self.root / "admin.kubeconfig"

    def start(self) -> None:
        """Start both programs and wait until the server is ready."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.port, self.etcd_port = free_port(), free_port()
        self._certificates()
        self._write_configs()
        try:
            self.start_etcd()
            self.start_api()
        except BaseException:
            self.stop()
            raise

    def start_etcd(self) -> None:
        """Start etcd on the data that is there."""
        peer = free_port()
        self._etcd = self._spawn(
            "etcd",
            ["etcd", "--data-dir", str(self.root / "etcd"), *([] if self.durable else ["--unsafe-no-fsync"])]
            + ["--listen-client-urls", f"http://127.0.0.1:{self.etcd_port}"]
            + ["--advertise-client-urls", f"http://127.0.0.1:{self.etcd_port}"]
            + ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
            + ["--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"]
            + ["--initial-cluster", f"default=http://127.0.0.1:{peer}"],
        )

    def start_api(self, wait_s: float = 90.0) -> None:
        """Start kube-apiserver on the data that is there and wait until it is ready."""
        binary = program()
        assert binary is not None
        pki = self.root
        self._api = self._spawn(
            "api",
            [str(binary), "kube-apiserver"]
            + ["--etcd-servers", f"http://127.0.0.1:{self.etcd_port}"]
            + ["--bind-address", "127.0.0.1", "--secure-port", str(self.port)]
            + ["--tls-cert-file", str(pki / "server.crt"), "--tls-private-key-file", str(pki / "server.key")]
            + ["--client-ca-file", str(pki / "ca.crt"), "--authorization-mode", "RBAC"]
            + ["--token-auth-file", str(pki / "tokens.csv"), "--service-cluster-ip-range", "10.43.0.0/16"]
            + ["--service-account-key-file", str(pki / "sa.key"), "--service-account-issuer", "https://lab"]
            + ["--service-account-signing-key-file", str(pki / "sa.key")]
            + ["--disable-admission-plugins", "ServiceAccount"]
            + list(self.flags),
        )
        end = time.monotonic() + wait_s
        while not self.ready():
            if self._api.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"kube-apiserver is not ready: {self.log('api')[-2000:]}")
            time.sleep(0.1)

    def ready(self) -> bool:
        """Return whether the server says that it is ready."""
        context = ssl.create_default_context(cafile=str(self.root / "ca.crt"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.load_cert_chain(str(self.root / "admin.crt"), str(self.root / "admin.key"))
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=3) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop_api(self, *, hard: bool = True) -> None:
        """End kube-apiserver: at once as a crash does, or in order."""
        self._end(self._api, signal.SIGKILL if hard else signal.SIGTERM)
        self._api = None

    def stop(self) -> None:
        """End both programs and remove what they stored."""
        self._end(self._api, signal.SIGKILL)
        self._end(self._etcd, signal.SIGKILL)
        self._api = self._etcd = None
        shutil.rmtree(self.root / "etcd", ignore_errors=True)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Return what kubectl prints as the administrator."""
        done = subprocess.run(
            [*self.kubectl_command(), *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def kubectl_command(self) -> list[str]:
        """Return the words that begin a kubectl command."""
        return [str(program()), "kubectl", "--kubeconfig", str(self.kubeconfig)]

    def log(self, name: str) -> str:
        """Return what a program printed: ``api`` or ``etcd``."""
        return (self.root / f"{name}.log").read_text(errors="replace")

    def kubeconfig_for(self, name: str, user: t.Mapping[str, t.Any], **cluster: t.Any) -> pathlib.Path:
        """Write a kubeconfig of another user and return its path."""
        path = self.root / f"{name}.kubeconfig"
        path.write_text(json.dumps(self.config(user, **cluster)))
        return path

    def config(self, user: t.Mapping[str, t.Any], **cluster: t.Any) -> dict[str, t.Any]:
        """Return a kubeconfig for this server as a value."""
        ca = base64.b64encode((self.root / "ca.crt").read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {"server": self.url, "certificate-authority-data": ca, **cluster}}],
            "users": [{"name": "lab-user", "user": dict(user)}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab-user"}}],
        }

    def _write_configs(self) -> None:
        encoded = {
            f"client-{key}-data": base64.b64encode((self.root / f"admin.{end}").read_bytes()).decode()
            for key, end in (("certificate", "crt"), ("key", "key"))
        }
        self.kubeconfig.write_text(json.dumps(self.config(encoded)))
        self.kubeconfig.chmod(0o600)
        rows = [f"{token},{user},{user},{','.join(groups)}" for token, (user, groups) in TOKENS.items()]
        (self.root / "tokens.csv").write_text("\n".join(rows) + "\n")

    def certificate(self, name: str, subject: str, *extra: str, days: int = 2) -> None:
        """Make ``name.key`` and ``name.crt`` signed by the CA, for ``subject`` such as ``/O=system:masters/CN=admin``."""
        self._openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                      f"{name}.key", "-out", f"{name}.csr", "-subj", subject)  # fmt: skip
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", str(days), "-out", f"{name}.crt", *extra)  # fmt: skip

    def old_certificate(self, name: str, subject: str) -> None:
        """Make a client certificate that ended on 2020-01-02."""
        self.certificate(name, subject)
        (self.root / "index.txt").write_text("")
        (self.root / "serial").write_text("1000\n")
        (self.root / "ca.cnf").write_text(
            "[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index.txt\nserial=serial\ncertificate=ca.crt\n"
            "private_key=ca.key\ndefault_md=sha256\npolicy=p\n[p]\norganizationName=optional\ncommonName=supplied\n"
        )
        span = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
        self._openssl(
            "ca", "-batch", "-config", "ca.cnf", *span, "-in", f"{name}.csr", "-out", f"{name}.crt", "-notext"
        )

    def _certificates(self) -> None:
        # The package kubernetes, which the bench and the parity tests run, insists on these extensions.
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key"]
        self._openssl("req", "-x509", *key, "-out", "ca.crt", "-days", "2", "-subj", "/CN=lab-ca", *usage)
        (self.root / "san").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kube.lab\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        self.certificate("server", "/CN=kube-apiserver", "-extfile", "san")
        self.certificate("admin", "/O=system:masters/CN=admin")
        self._openssl("genrsa", "-out", "sa.key", "2048")

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=self.root, capture_output=True, check=False)
        assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr.decode(errors='replace')}"

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with open(self.root / f"{name}.log", "ab") as log:
            # A child ends with the thread that started it: one that lives as long as this process starts them all.
            started = _STARTER.submit(
                subprocess.Popen,
                [*lower_priority(), *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.root,
                preexec_fn=_end_with_parent,
            )
            return started.result()

    @staticmethod
    def _end(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> None:
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def temporary() -> ApiServer:
    """Return a server below a new temporary folder; the caller starts it and removes the folder."""
    return ApiServer(pathlib.Path(tempfile.mkdtemp(prefix="kube-api-")))
