# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What MLflow is started with: secrets in files alone, names that its users have, its files in a bucket or here."""

from __future__ import annotations

import configparser
import dataclasses

from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ACCESS,
    SECRET,
    ArtifactStore,
    Site,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.tracking import mlflow

KEYS = {ACCESS: "AKcanary-access-01", SECRET: "SKcanary/secret%9f2+x"}
STORE = ArtifactStore("artifacts/mlflow", "https://s3.example", "eu-west-1", "-----BEGIN", KEYS)
PLAIN = Site("t", "http://10.0.0.5:5000", "10.0.0.5", 5000, "/data", "/files", ("10.0.0.5", "mlflow.mesh"))


def options(site: Site) -> dict[str, str]:
    words = mlflow.command(site)
    assert words[0] == "server"
    return dict(word.removeprefix("--").partition("=")[::2] for word in words[1:])


def test_a_server_of_its_own_disk_without_a_login() -> None:
    credentials = mlflow.make_credentials()
    found = options(PLAIN)
    assert found["artifacts-destination"] == "/data/artifacts" and found["workers"] == "1"
    assert found["backend-store-uri"] == "sqlite:////data/mlflow.db"
    hosts = found["allowed-hosts"].split(",")
    assert {"mlflow.mesh", "mlflow.mesh:*", "10.0.0.5:*", "localhost:*"} <= set(hosts) and "*" not in hosts
    assert "app-name" not in found and "uvicorn-opts" not in found
    assert mlflow.write_files(PLAIN, credentials) == {} and mlflow.list_hidden(PLAIN, credentials) == {}
    assert mlflow.environment(PLAIN)["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"


def test_secrets_of_a_login_and_of_a_bucket_are_in_files_alone() -> None:
    credentials = mlflow.make_credentials()
    site = dataclasses.replace(PLAIN, login=True, artifacts=STORE)
    files = mlflow.write_files(site, credentials)
    accounts = configparser.ConfigParser()
    accounts.read_string(files["accounts.ini"])
    assert accounts["mlflow"]["admin_password"] == credentials[mlflow.PASSWORD]
    # As botocore reads them, which knows no interpolation.
    keys = configparser.RawConfigParser()
    keys.read_string(files["store-keys"])
    assert keys["default"]["aws_secret_access_key"] == KEYS[SECRET] and files["store-ca.pem"] == "-----BEGIN"
    variables = mlflow.environment(site)
    assert variables["MLFLOW_S3_ENDPOINT_URL"] == "https://s3.example"
    assert variables["AWS_CA_BUNDLE"] == "/files/store-ca.pem"
    found = options(site)
    assert found["app-name"] == "basic-auth" and found["artifacts-destination"] == "s3://artifacts/mlflow"
    shown = f"{found}{variables}{site!r}"
    assert not [
        value for value in (*credentials.values(), *KEYS.values()) if value != "mlflow-admin" and value in shown
    ]
    assert list(mlflow.list_hidden(site, credentials)) == ["MLFLOW_FLASK_SERVER_SECRET_KEY"]


def test_the_address_of_a_database_is_hidden() -> None:
    address = "postgresql://mlflow:pw-canary-0001@db.example/mlflow"
    site = dataclasses.replace(PLAIN, database=address)
    told = {"MLFLOW_BACKEND_STORE_URI": address.replace("postgresql:", "postgresql+psycopg2:")}
    assert mlflow.list_hidden(site, mlflow.make_credentials()) == told
    site = dataclasses.replace(site, database=told["MLFLOW_BACKEND_STORE_URI"])
    assert mlflow.list_hidden(site, mlflow.make_credentials()) == told
    assert "backend-store-uri" not in options(site)
    assert "canary" not in f"{mlflow.command(site)}{mlflow.environment(site)}{mlflow.write_files(site, {})}{site!r}"
    assert "psycopg2-binary" in mlflow.list_packages("3.17.2")


def test_what_pip_installs_is_pinned() -> None:
    assert mlflow.list_packages("3.17.2")[0] == "mlflow[auth]==3.17.2"
