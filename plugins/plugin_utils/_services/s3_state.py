# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's state in a bucket: objects with conditional writes (If-None-Match, If-Match)."""

from __future__ import annotations

import os
import tempfile
import typing as t

from ...module_utils._model.errors import MusterError, RefusedError, TransportError, one_line
from ...module_utils._model.state_store import S3Setting, StateConflictError, StoredItem
from ...module_utils._secrets.scrubber import scrub
from .s3_addresses import ObjectPlace, S3Keys

_TIMEOUT_S: t.Final = 20
_ATTEMPTS: t.Final = 3
# S3 answers 409 to conditional writes that met each other, and 404 to If-Match of what was deleted.
_CONFLICTS: t.Final = (404, 409, 412)
_DEFAULT_REGION: t.Final = "us-east-1"


class S3State:
    """Items of one cluster below ``BUCKET/PREFIX/CLUSTER/``. Opening it proves that the store keeps conditions."""

    def __init__(self, setting: S3Setting, keys: S3Keys, cluster: str) -> None:
        self._place = ObjectPlace.from_ref(setting.bucket, cluster)
        self._client, self._refusal = _open_client(setting, keys)
        self.title = f"bucket {setting.bucket} at {setting.endpoint}"
        self._is_proved = False

    def read(self, name: str) -> StoredItem | None:
        """Return an object, None when it does not exist."""
        try:
            answer = self._client.get_object(Bucket=self._place.bucket, Key=self._place.key(name))
            data = answer["Body"].read()
        except Exception as exc:
            if _status(exc) == 404 and _code(exc) != "NoSuchBucket":
                return None
            raise self._problem(f"read {name}", exc) from None
        return StoredItem(data, str(answer["ETag"]), _age(answer))

    def write(self, name: str, data: bytes, version: str | None) -> str:
        """Write an object under a condition, and return its ETag; see the protocol."""
        self._prove_conditions()
        return self._put(name, data, version)

    def delete(self, name: str, version: str) -> None:
        """Delete an object; a store that knows no condition for it is asked for the version first."""
        found = self.read(name)
        if found is None or found.version != version:
            return
        try:
            self._client.delete_object(Bucket=self._place.bucket, Key=self._place.key(name))
        except Exception as exc:
            raise self._problem(f"delete {name}", exc) from None

    def _put(self, name: str, data: bytes, version: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        for _attempt in range(_ATTEMPTS):
            try:
                answer = self._client.put_object(
                    Bucket=self._place.bucket, Key=self._place.key(name), Body=data, **condition
                )
                return str(answer["ETag"])
            except Exception as exc:
                if _status(exc) not in _CONFLICTS or _code(exc) == "NoSuchBucket":
                    raise self._problem(f"write {name}", exc) from None
            # An answer that was lost is asked for again by botocore: what is refused then may be our own writing.
            found = self.read(name)
            if found is not None and found.data == data:
                return found.version
            if (found.version if found else None) != version:
                raise StateConflictError(f"{name} in {self.title} was written by another controller")
            # It is as it was: S3 answers 409 to requests that met each other, and asks for the same one again.
        raise TransportError(f"muster_state.s3: {self.title} refuses to write {name}, which is as it was")

    def _prove_conditions(self) -> None:
        """Refuse a store that overwrites where it should refuse: on it, no lock holds.

        :raises RefusedError: with what to use instead.
        """
        if self._is_proved:
            return
        probe = f"probe-{os.urandom(8).hex()}"
        version = self._put(probe, b"1", None)
        try:
            self._put(probe, b"2", None)
        except StateConflictError:
            self._is_proved = True
        finally:
            found = self.read(probe)
            self.delete(probe, found.version if found else version)
        if not self._is_proved:
            raise RefusedError(
                f"muster_state.s3: {self.title} ignores conditional writes (If-None-Match), so no lock holds on it",
                "Use a store that has them (AWS S3, SeaweedFS, MinIO, Ceph), or muster_state.store: kubernetes",
            )

    def _problem(self, what: str, exc: Exception) -> MusterError:
        if not isinstance(exc, self._refusal):
            said = f"{type(exc).__name__}: {one_line(scrub(str(exc)))[:200]}"
            return TransportError(
                f"muster_state.s3: {self.title} does not answer ({said})",
                "Check the endpoint, its certificate and the network",
            )
        fix = _FIXES.get(_code(exc), "Check the bucket's policy and the key's rights")
        return RefusedError(f"muster_state.s3: cannot {what} in {self.title}: {_code(exc)} ({_status(exc)})", fix)


_FIXES: t.Final = {
    "NoSuchBucket": "Create the bucket, or correct its name; it is never created here",
    "InvalidAccessKeyId": "Check AWS_ACCESS_KEY_ID, or secret_ref",
    "SignatureDoesNotMatch": "Check AWS_SECRET_ACCESS_KEY, or secret_ref, and the region",
    "RequestTimeTooSkewed": "Set this machine's clock",
    "AccessDenied": "Give the key the right to read, write and delete objects of this bucket",
}


def _open_client(setting: S3Setting, keys: S3Keys) -> tuple[t.Any, type[Exception]]:
    """Return botocore's client, and its class of a server's refusal."""
    try:
        import botocore.config
        import botocore.exceptions
        import botocore.session
    except ImportError as exc:
        raise RefusedError(
            "muster_state.s3 needs botocore on the controller",
            "Install it for the Python of ansible-playbook: pip install botocore",
        ) from exc
    config = botocore.config.Config(
        connect_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
        retries={"max_attempts": 3, "mode": "standard"},
        s3={"addressing_style": setting.addressing},
        # Stores other than AWS' own do not all know its newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = botocore.session.Session().create_client(
        "s3",
        endpoint_url=setting.endpoint,
        region_name=setting.region or _DEFAULT_REGION,
        aws_access_key_id=keys.access_key.reveal(),
        aws_secret_access_key=keys.secret_key.reveal(),
        aws_session_token=keys.session_token.reveal() if keys.session_token else None,
        verify=_ca_file(setting.ca),
        config=config,
    )
    return client, botocore.exceptions.ClientError


def _ca_file(ca: str | None) -> str | None:
    """Return a file with the certificates, which botocore wants; certificates are public."""
    if ca is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False, encoding="utf-8") as handle:
        handle.write(ca)
    return handle.name


def _status(exc: Exception) -> int:
    return int(getattr(exc, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(exc: Exception) -> str:
    return str(getattr(exc, "response", {}).get("Error", {}).get("Code", ""))


def _age(answer: t.Mapping[str, t.Any]) -> float:
    """Return the seconds between the writing and the answer, both by the server's clock."""
    import email.utils

    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = email.utils.parsedate_to_datetime(date) if date else None
    return max(0.0, (now - answer["LastModified"]).total_seconds()) if now else 0.0
