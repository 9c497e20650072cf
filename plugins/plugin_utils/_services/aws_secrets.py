# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets in AWS Secrets Manager, read with botocore."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import typing as t

from ...module_utils._model.errors import InputError, RefusedError
from .s3_addresses import S3Keys

_LIMIT_S: t.Final = 20
_FIXES: t.Final = {
    "ResourceNotFoundException": "Check the name of the secret and the region",
    "AccessDeniedException": "Allow secretsmanager:GetSecretValue on it, and kms:Decrypt with its key",
    "DecryptionFailure": "Allow kms:Decrypt with the secret's key",
    "UnrecognizedClientException": "Check the access key: AWS does not know it",
    "InvalidSignatureException": "Check the secret key, and this machine's clock",
    "ExpiredTokenException": "Get new credentials: the session has ended",
    "InvalidRequestException": "The secret is marked for deletion, or has no value yet",
}


@dataclasses.dataclass(frozen=True, slots=True)
class AwsAccess:
    """How Secrets Manager is asked. ``keys`` None: by botocore's own rules (variables, profile, the machine's role)."""

    region: str | None = None
    endpoint: str | None = None
    ca: str | None = None
    keys: S3Keys | None = None


def read_values(access: AwsAccess, name: str, option: str) -> dict[str, bytes] | bytes:
    """Return the newest values of a secret by key, where it is a JSON object; else its whole value.

    :param name: the name of a secret, or its ARN.
    :raises InputError: naming the secret, when it is not there or may not be read.
    :raises RefusedError: when botocore is not installed, or AWS cannot be reached.
    """
    region = name.split(":")[3] if name.startswith("arn:") and name.count(":") >= 6 else access.region
    with _open_client(dataclasses.replace(access, region=region), name, option) as client:
        answer = client.get_secret_value(SecretId=name)
    if "SecretString" not in answer:
        return bytes(answer["SecretBinary"])
    text = str(answer["SecretString"])
    with contextlib.suppress(ValueError):
        values = json.loads(text)
        if isinstance(values, dict):
            return {str(key): _to_bytes(value) for key, value in values.items()}
    return text.encode()


def check_access(access: AwsAccess, option: str) -> None:
    """Refuse credentials that AWS refuses, but not for lack of the right to list. Raises as `read_values`."""
    with _open_client(access, "", option) as client:
        try:
            client.list_secrets(MaxResults=1)
        except Exception as exc:
            if _code(exc) != "AccessDeniedException":
                raise


def _to_bytes(value: t.Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


@contextlib.contextmanager
def _open_client(access: AwsAccess, name: str, option: str) -> t.Iterator[t.Any]:
    try:
        import botocore.config
        import botocore.exceptions
        import botocore.session
    except ImportError as exc:
        raise RefusedError(
            "AWS Secrets Manager needs botocore on the controller",
            "Install it for the Python of ansible-playbook: pip install botocore",
        ) from exc
    session = botocore.session.Session()
    region = access.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region:
        raise InputError(option, "AWS has no region", "Set AWS_REGION, or region in muster_services")
    limits = botocore.config.Config(
        connect_timeout=_LIMIT_S, read_timeout=_LIMIT_S, retries={"max_attempts": 3, "mode": "standard"}
    )
    keys = access.keys
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as authority:
        authority.write(access.ca or "")
        authority.flush()
        try:
            yield session.create_client(
                "secretsmanager",
                region_name=region,
                endpoint_url=access.endpoint,
                aws_access_key_id=keys.access_key.reveal() if keys else None,
                aws_secret_access_key=keys.secret_key.reveal() if keys else None,
                aws_session_token=keys.session_token.reveal() if keys and keys.session_token else None,
                verify=authority.name if access.ca else None,
                config=limits,
            )
        except botocore.exceptions.NoCredentialsError:
            raise InputError(
                option, "there are no credentials for AWS", "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from None
        except botocore.exceptions.ClientError as exc:
            # AWS' own text may repeat what was sent, so only its code is read.
            code, what = _code(exc), f"AWS Secrets Manager in {region} refuses {name or 'the credentials'}"
            raise InputError(option, f"{what}: {code}", _FIXES.get(code, "Check the policy")) from None
        except botocore.exceptions.BotoCoreError as exc:
            where = access.endpoint or region
            fix = "Check the region, the endpoint, its CA and routes"
            raise RefusedError(f"{option}: AWS Secrets Manager ({where}): {type(exc).__name__}", fix) from None


def _code(exc: Exception) -> str:
    return str(getattr(exc, "response", {}).get("Error", {}).get("Code", ""))
