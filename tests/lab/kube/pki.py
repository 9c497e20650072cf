# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of a cluster: one authority for all, one for the front proxy, keys for service accounts; by openssl."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess

from ..host import LabError
from . import plan

_DAYS = "365"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_LIMIT_S = 30


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key as files."""

    certificate: pathlib.Path
    key: pathlib.Path


class Authority:
    """A certificate authority with its files in ``folder``."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.folder = folder
        self.pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        if not self.pair.certificate.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            usage = "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
            _make(self.pair, f"/CN=muster-lab-{name}", [], ["basicConstraints=critical,CA:TRUE", usage])

    def issue(self, name: str, subject: str, names: tuple[str, ...] = ()) -> Pair:
        """Return a certificate for a client, and for a server where ``names`` (DNS:… or IP:…) are given."""
        made = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        usage = "extendedKeyUsage=clientAuth,serverAuth" if names else "extendedKeyUsage=clientAuth"
        extensions = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature", usage]
        if names:
            extensions.append(f"subjectAltName={','.join(names)}")
        signer = ["-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key)]
        _make(made, subject, signer, extensions)
        return made


def api_names(address: str) -> tuple[str, ...]:
    """Return the names by which the API server is reached."""
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{plan.DOMAIN}")
    names = tuple(f"DNS:{name}" for name in ("localhost", plan.CONTROL, *service))
    return (*names, "IP:127.0.0.1", f"IP:{address}", f"IP:{plan.API_SERVICE}")


def service_account_keys(folder: pathlib.Path) -> Pair:
    """Make the keys that sign the tokens of service accounts; the "certificate" is the public key."""
    pair = Pair(folder / "sa.pub", folder / "sa.key")
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", str(pair.key))
    _openssl("pkey", "-in", str(pair.key), "-pubout", "-out", str(pair.certificate))
    return pair


def _make(pair: Pair, subject: str, signer: list[str], extensions: list[str]) -> None:
    files = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    added = [word for extension in extensions for word in ("-addext", extension)]
    _openssl("req", "-x509", *signer, *_NEW_KEY, "-days", _DAYS, "-subj", subject, *files, *added)
    pair.key.chmod(0o600)


def _openssl(*words: str) -> None:
    if not shutil.which("openssl"):
        raise LabError("openssl is not installed: apt-get install openssl")
    argv = ["openssl", *words]
    # Without a configuration file of the machine's nothing is added to what is asked for here.
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "OPENSSL_CONF": "/dev/null"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise LabError(f"openssl {words[0]} failed: {lines[-1]}")
