# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWS Secrets Manager through a stand-in of botocore; moto gives AWS' own answers in tests/e2e."""

from __future__ import annotations

import sys
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services import aws_secrets
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys

VALUE = "canary-value-0001"


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(f"{code} {VALUE}")
        self.response = {"Error": {"Code": code}}


class BotoCoreError(Exception):
    pass


class NoCredentialsError(BotoCoreError):
    pass


class Client:
    """What a session makes; ``answer`` is returned, or raised."""

    def __init__(self, answer: t.Any) -> None:
        self.answer, self.asked = answer, {}  # type: t.Any, dict[str, t.Any]

    def get_secret_value(self, **asked: t.Any) -> t.Any:
        self.asked |= asked
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def list_secrets(self, **asked: t.Any) -> t.Any:
        return self.get_secret_value(**asked)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[t.Any], Client]:
    """Have botocore answer with a value."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    def use(answer: t.Any) -> Client:
        client = Client(answer)

        class Session:
            def get_config_variable(self, _name: str) -> None:
                return None

            def create_client(self, service: str, **given: t.Any) -> Client:
                client.asked |= {"service": service, **given}
                return client

        modules = {
            "botocore": types.ModuleType("botocore"),
            "botocore.config": types.SimpleNamespace(Config=dict),
            "botocore.exceptions": types.SimpleNamespace(
                ClientError=ClientError, BotoCoreError=BotoCoreError, NoCredentialsError=NoCredentialsError
            ),
            "botocore.session": types.SimpleNamespace(Session=Session),
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, t.cast(types.ModuleType, module))
            if "." in name:
                setattr(modules["botocore"], name.partition(".")[2], module)
        return client

    return use


def test_an_object_has_keys_and_anything_else_is_one_value(aws: t.Callable[[t.Any], Client]) -> None:
    access = aws_secrets.AwsAccess(keys=S3Keys(Secret("AKcanary-1", "x"), Secret("SKcanary-secret-1", "x")))
    client = aws({"SecretString": '{"KEY": "v", "PORT": 5432}'})
    assert aws_secrets.read_values(access, "team/x", "job.x") == {"KEY": b"v", "PORT": b"5432"}
    assert client.asked["region_name"] == "eu-west-1" and client.asked["SecretId"] == "team/x"
    assert client.asked["aws_secret_access_key"] == "SKcanary-secret-1"
    aws({"SecretString": "[1, 2]"})
    assert aws_secrets.read_values(access, "team/x", "job.x") == b"[1, 2]"
    client = aws({"SecretBinary": b"\x00\xff"})
    arn = "arn:aws:secretsmanager:us-east-2:123456789012:secret:team/x-AbCdEf"
    assert aws_secrets.read_values(access, arn, "job.x") == b"\x00\xff"
    assert client.asked["region_name"] == "us-east-2", "an ARN says where it is"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ClientError("ResourceNotFoundException"), "refuses team/x: ResourceNotFoundException.*Check the name"),
        (ClientError("AccessDeniedException"), "Allow secretsmanager:GetSecretValue"),
        (ClientError("Unheard"), "Unheard.*Check the policy"),
        (NoCredentialsError(), "there are no credentials"),
        (BotoCoreError(VALUE), "AWS Secrets Manager .eu-west-1.: BotoCoreError"),
    ],
)
def test_a_refusal_is_explained_without_what_was_sent(
    aws: t.Callable[[t.Any], Client], answer: Exception, words: str
) -> None:
    aws(answer)
    with pytest.raises(MusterError, match=words) as caught:
        aws_secrets.read_values(aws_secrets.AwsAccess(), "team/x", "job.x")
    assert VALUE not in str(caught.value) and "job.x" in str(caught.value)


def test_a_check_needs_no_right_to_list(aws: t.Callable[[t.Any], Client], monkeypatch: pytest.MonkeyPatch) -> None:
    aws(ClientError("AccessDeniedException"))
    aws_secrets.check_access(aws_secrets.AwsAccess(), "x")
    aws(ClientError("UnrecognizedClientException"))
    with pytest.raises(InputError, match="AWS does not know it"):
        aws_secrets.check_access(aws_secrets.AwsAccess(), "x")
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(InputError, match="AWS has no region"):
        aws_secrets.check_access(aws_secrets.AwsAccess(), "x")
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(RefusedError, match="pip install botocore"):
        aws_secrets.check_access(aws_secrets.AwsAccess(), "x")
