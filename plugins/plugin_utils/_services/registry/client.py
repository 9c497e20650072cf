# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One repository of a registry (OCI Distribution Specification 1.1), with and without credentials.

A credential is sent to the registry itself and to the token service that it names, never to where it redirects.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import http.client
import json
import re
import ssl
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from ....module_utils._model.errors import ApiError, RefusedError, TransportError
from ....module_utils._secrets.secret import Secret

INDEXES: t.Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS: t.Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPT: t.Final = ", ".join((*INDEXES, *MANIFESTS))
_HUB: t.Final = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
_LIMIT_S = 120
_CHUNK = 1 << 20
_LARGEST_MANIFEST = 4 << 20
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_FIXES: t.Final = {
    400: "Check the endpoint: http or https",
    401: "Check the credentials: secret_ref of the registry's binding",
    403: "Check that the credentials may do this in that repository",
    404: "Check repository and tag, and that the credentials may see it",
    413: "Raise the largest body that the proxy before the registry takes",
    429: "Wait, bind the registry with credentials, or pull through a mirror of your own",
}
# What a registry says by a code of its own.
_FIXES_OF_CODES: t.Final = {
    "MANIFEST_INVALID": "The registry takes no image of this kind: push an archive, or let it take Docker's kind (zot: "
    "compat: [docker2s2])",
}
_OTHERWISE: t.Final = "Write an archive of the image by hand and name it"


@dataclasses.dataclass(frozen=True, slots=True)
class ImageName:
    """A full name of an image in its parts: ``docker.io/library/python:3.13``."""

    registry: str
    repository: str
    reference: str

    @classmethod
    def from_text(cls, name: str) -> ImageName:
        """Return the parts of a full name."""
        registry, _separator, rest = name.partition("/")
        repository, separator, digest = rest.partition("@")
        head, colon, tag = repository.rpartition(":")
        named = colon and "/" not in tag
        return cls(registry, head if named else repository, digest if separator else tag if named else "latest")

    @property
    def endpoint(self) -> str:
        """The address of the registry; one of this machine speaks HTTP."""
        host = _HUB.get(self.registry, self.registry)
        local = host.partition(":")[0] in ("localhost", "127.0.0.1")
        return f"{'http' if local else 'https'}://{host}"

    @property
    def url(self) -> str:
        """The URL of the repository's API where no binding says another."""
        return f"{self.endpoint}/v2/{self.repository}"

    def at(self, digest: str) -> str:
        """Return the name of the image with a digest."""
        return f"{self.registry}/{self.repository}@{digest}"


@dataclasses.dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How a registry is reached: its address, its own CA, and who asks."""

    endpoint: str
    ca: str | None = None
    user: str = ""
    password: Secret | None = None

    @property
    def basic(self) -> str:
        """The header of the user, empty without one."""
        if self.password is None:
            return ""
        packed = base64.b64encode(f"{self.user}:{self.password.reveal()}".encode()).decode()
        return "Basic " + Secret(packed, "the registry's credential").reveal()


class Registry:
    """One repository; a token is fetched where the registry asks for one. Not for threads."""

    def __init__(self, name: ImageName, access: RegistryAccess | None = None) -> None:
        self.name = name
        self.access = access or RegistryAccess(name.endpoint)
        self.base = f"{self.access.endpoint.rstrip('/')}/v2/{name.repository}"
        self._authorization = ""
        self._opener: urllib.request.OpenerDirector | None = None

    def manifest(self, reference: str) -> tuple[bytes, str]:
        """Return a manifest or an index, and its type.

        :raises RefusedError: when it is not what its digest says.
        """
        with self.send("GET", f"manifests/{reference}", accept=ACCEPT) as source:
            content = source.read(_LARGEST_MANIFEST + 1)
            kind = source.headers.get_content_type()
        if len(content) > _LARGEST_MANIFEST:
            raise TransportError(f"{self.base}: the manifest {reference} is too large")
        if reference.startswith("sha256:") and reference != digest_of(content):
            raise RefusedError(f"{self.base}: {reference} arrived as {digest_of(content)}", "Run again")
        try:
            parsed = json.loads(content)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise TransportError(f"{self.base}: the manifest {reference} is not JSON", "Check the endpoint")
        return content, str(parsed.get("mediaType") or kind)

    def blob(self, digest: str, target: t.IO[bytes]) -> None:
        """Write a blob to a file.

        :raises RefusedError: when it is not what its digest says.
        """
        found = hashlib.sha256()
        with self.send("GET", f"blobs/{digest}") as source:
            while data := source.read(_CHUNK):
                target.write(data)
                found.update(data)
        if digest != f"sha256:{found.hexdigest()}":
            raise RefusedError(f"{self.base}: the blob {digest} arrived as sha256:{found.hexdigest()}", "Run again")

    def send(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        *,
        accept: str = "*/*",
        headers: t.Mapping[str, str] | None = None,
    ) -> t.Any:
        """Return the open answer to a request below the repository, or to a URL that the registry named.

        :raises ApiError: for an error status; its message names the URL and holds no credential.
        :raises TransportError: when there was no answer.
        """
        url = path if "://" in path else f"{self.base}/{path}" if path else self.base
        for attempt in (1, 2):
            try:
                return self._request(url, method, data, {"Accept": accept, **(headers or {})})
            except urllib.error.HTTPError as exc:
                with exc:
                    if exc.code != 401 or attempt == 2:
                        raise _explain(url, method, exc) from exc
                    self._log_in(exc.headers.get("WWW-Authenticate", ""), url, method, exc)
            except (OSError, ValueError, http.client.HTTPException) as exc:
                raise _explain_transport(url, exc) from exc
        raise AssertionError("the second attempt raises or returns")

    def _request(
        self, url: str, method: str, data: bytes | None, headers: t.Mapping[str, str], authorization: str = ""
    ) -> t.Any:
        request = urllib.request.Request(url, data=data, headers=dict(headers), method=method)
        own = urllib.parse.urlsplit(url).netloc == urllib.parse.urlsplit(self.access.endpoint).netloc
        shown = authorization or (self._authorization if own else "")
        if shown:
            # Blobs are redirected to another host, which must not get it.
            request.add_unredirected_header("Authorization", shown)
        if self._opener is None:
            context = ssl.create_default_context(cadata=self.access.ca)
            self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
        return self._opener.open(request, timeout=_LIMIT_S)

    def _log_in(self, challenge: str, url: str, method: str, refused: urllib.error.HTTPError) -> None:
        """Answer the challenge of a registry: with the user itself, or with a token that is fetched for it."""
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic" and self.access.basic:
            self._authorization = self.access.basic
        elif scheme == "bearer":
            self._authorization = f"Bearer {self._fetch_token(dict(_CHALLENGE.findall(challenge)))}"
        else:
            raise _explain(url, method, refused)

    def _fetch_token(self, challenge: t.Mapping[str, str]) -> str:
        realm = challenge.get("realm", "")
        parts = urllib.parse.urlsplit(realm)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TransportError(f"{self.base}: its challenge names no token service (realm)", "Check the endpoint")
        basic = self.access.basic
        if basic and self.access.endpoint.startswith("https:") and parts.scheme != "https":
            raise RefusedError(
                f"{self.base}: its token service {parts.hostname} speaks HTTP, where a password is not sent to",
                "Give the registry a realm with https",
            )
        asked = {key: challenge[key] for key in ("service", "scope") if key in challenge}
        url = f"{realm}{'&' if parts.query else '?'}{urllib.parse.urlencode(asked)}"
        try:
            with self._request(url, "GET", None, {"Accept": "application/json"}, basic) as source:
                answer = json.loads(source.read(_LARGEST_MANIFEST))
            token = str(answer.get("token") or answer.get("access_token") or "")
        except urllib.error.HTTPError as exc:
            with exc:
                raise _explain(realm, "GET", exc) from exc
        except (OSError, http.client.HTTPException) as exc:
            raise _explain_transport(realm, exc) from exc
        except (ValueError, AttributeError):
            raise TransportError(f"{realm} gave no token", "Check the registry's token service") from None
        # A token of a session is a secret, and need not look like one that a user would choose.
        return Secret(token, "the registry's token").reveal() if len(token) >= 8 else token


def digest_of(content: bytes) -> str:
    """Return the digest of a manifest as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _explain(url: str, method: str, exc: urllib.error.HTTPError) -> ApiError:
    """Return the error of a refusal. It shows the code that the registry gives, and never the whole body."""
    try:
        listed = json.loads(exc.read(1 << 16)).get("errors") or [{}]
        code = re.sub(r"[^A-Z_]", "", str(listed[0].get("code", "")).upper())[:40]
    except (OSError, ValueError, AttributeError, TypeError, LookupError):
        code = ""
    wait = exc.headers.get("Retry-After", "")
    late = f", again after {wait} s" if exc.code == 429 and wait.isdigit() else ""
    otherwise = _OTHERWISE if method in ("GET", "HEAD") else "Check the registry's log, and the space on its disk"
    error = ApiError(method, url, exc.code, fix=_FIXES_OF_CODES.get(code) or _FIXES.get(exc.code, otherwise))
    verb = "read" if method in ("GET", "HEAD") else "written"
    said = f"HTTP Error {exc.code}: {code or exc.reason}{late}"
    error.message = f"{url.partition('?')[0]} cannot be {verb}: {said}"
    return error


def _explain_transport(url: str, exc: Exception) -> TransportError:
    reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
    fix = "Check the network and the name of the image"
    if isinstance(reason, ssl.SSLCertVerificationError):
        fix = "Set ca of the registry's binding to its own CA"
    elif isinstance(reason, ssl.SSLError):
        fix = "Check the endpoint: http or https"
    return TransportError(f"{url.partition('?')[0]} cannot be read: {reason}", fix)
