# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed addresses of objects in an S3 store: what nodes get in place of a key.

botocore signs them (AWS Signature Version 4, query form); it is on the controller alone.
"""

from __future__ import annotations

import dataclasses
import typing as t
import urllib.parse

from ...module_utils._model.binding import Binding
from ...module_utils._model.errors import RefusedError
from ...module_utils._secrets.secret import Secret

# The longest that Signature Version 4 allows.
LONGEST_S: t.Final = 7 * 24 * 3600
_DEFAULT_REGION: t.Final = "us-east-1"
Query = t.Sequence[tuple[str, str]]
Sign = t.Callable[[str, str, int, t.Mapping[str, str]], str]


@dataclasses.dataclass(frozen=True, slots=True)
class S3Keys:
    """What signs requests."""

    access_key: Secret
    secret_key: Secret
    session_token: Secret | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket with what all keys below it begin with; ``prefix`` is empty or ends with a slash."""

    bucket: str
    prefix: str

    @classmethod
    def from_ref(cls, ref: str, *below: str) -> ObjectPlace:
        """Return the place of ``BUCKET/PREFIX``, and of folders below it."""
        bucket, _slash, prefix = ref.partition("/")
        parts = [part for part in (prefix.strip("/"), *below) if part]
        return cls(bucket, "".join(f"{part}/" for part in parts))

    def key(self, name: str) -> str:
        """Return the key of an object."""
        return f"{self.prefix}{name}"


class S3Signer:
    """Signs addresses of one store."""

    def __init__(self, binding: Binding, keys: S3Keys) -> None:
        self._sign = _load_botocore(keys, binding.region or _DEFAULT_REGION)
        self._parts = urllib.parse.urlsplit(binding.endpoint)
        self._virtual = binding.addressing == "virtual"
        self.longest_s = LONGEST_S

    def sign(
        self,
        method: str,
        bucket: str,
        key: str = "",
        query: Query = (),
        expires_s: int = 3600,
        headers: t.Mapping[str, str] | None = None,
    ) -> str:
        """Return an address that carries out ``method`` on one object (or on the bucket) for ``expires_s`` seconds.

        :param headers: what has to be sent with it.
        """
        return self._sign(method, self.address(bucket, key, query), min(expires_s, self.longest_s), headers or {})

    def sign_list(self, place: ObjectPlace, expires_s: int = 3600, limit: int = 1, after: str = "") -> str:
        """Return an address that lists objects of a place (ListObjectsV2)."""
        query = [("list-type", "2"), ("max-keys", str(limit)), ("prefix", place.prefix)]
        more = [("continuation-token", after)] if after else []
        return self.sign("GET", place.bucket, "", [*query, *more], expires_s)

    def address(self, bucket: str, key: str = "", query: Query = ()) -> str:
        """Return the address of an object, unsigned."""
        path = urllib.parse.quote(key, safe="/~")
        base = self._parts.path.rstrip("/")
        if self._virtual:
            host = f"{bucket}.{self._parts.netloc}"
            path = f"{base}/{path}"
        else:
            host = self._parts.netloc
            path = f"{base}/{bucket}/{path}" if key else f"{base}/{bucket}"
        text = urllib.parse.urlencode(list(query), quote_via=urllib.parse.quote, safe="~")
        return urllib.parse.urlunsplit((self._parts.scheme, host, path, text, ""))


def _load_botocore(keys: S3Keys, region: str) -> Sign:
    """Return a function (method, address, seconds, headers that must be sent) -> signed address.

    :raises RefusedError: when botocore is not installed.
    """
    try:
        from botocore.auth import S3SigV4QueryAuth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    except ImportError as exc:
        raise RefusedError(
            "object stores need botocore on the controller, which signs their requests",
            "Install it for the Python of ansible-playbook: pip install botocore",
        ) from exc
    token = keys.session_token.reveal() if keys.session_token else None
    credentials = Credentials(keys.access_key.reveal(), keys.secret_key.reveal(), token)

    def sign(method: str, url: str, expires_s: int, headers: t.Mapping[str, str]) -> str:
        request = AWSRequest(method=method, url=url, headers=dict(headers))
        S3SigV4QueryAuth(credentials, "s3", region, expires=expires_s).add_auth(request)
        return str(request.prepare().url)

    return sign
