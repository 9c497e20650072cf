# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MLflow as a tracker: one server with one worker, a SQLite file or PostgreSQL, and artifacts that pass through it.

Its jobs are off: they cost eight processes and 1.3 GB (MLflow 3.17). What is a secret is in files that it reads.
"""

from __future__ import annotations

import configparser
import io
import typing as t

from ..component import ACCESS, SECRET, Component, Credentials, Site, make_token, tls_files

USER, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
# Where its runs are, with a password.
_DATABASE: t.Final = "MLFLOW_BACKEND_STORE_URI"
# Signs the forms of its pages; it is read from its environment alone.
_SIGNS: t.Final = "MLFLOW_FLASK_SERVER_SECRET_KEY"
_NAME: t.Final = "mlflow-admin"
# It reads its accounts from the first file, and the keys of the object store from the second.
_ACCOUNTS, _KEYS, _STORE_CA = "accounts.ini", "store-keys", "store-ca.pem"
_AUTHENTICATE: t.Final = "mlflow.server.auth:authenticate_request_basic_auth"


def make_credentials() -> dict[str, str]:
    """Return the administrator, whom only a server with a login knows, and what signs its forms."""
    return {USER: _NAME, PASSWORD: make_token(), _SIGNS: make_token()}


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the accounts, the keys of the store for artifacts with its CA, and the certificate."""
    files = tls_files(site, credentials, "tls.key", "tls.crt")
    if site.login:
        about = {
            # What others log can be read by all who have an account, and changed by who logged it.
            "default_permission": "READ",
            "database_uri": f"sqlite:///{site.data}/accounts.db",
            "admin_username": credentials[USER],
            "admin_password": credentials[PASSWORD],
            "authorization_function": _AUTHENTICATE,
        }
        files[_ACCOUNTS] = _write_ini("mlflow", about)
    if site.artifacts is not None:
        keys = {"aws_access_key_id": site.artifacts.keys[ACCESS], "aws_secret_access_key": site.artifacts.keys[SECRET]}
        files[_KEYS] = _write_ini("default", keys)
        if site.artifacts.ca:
            files[_STORE_CA] = site.artifacts.ca
    return files


def command(site: Site) -> list[str]:
    """Return the words behind ``mlflow``."""
    hosts = ["localhost", "127.0.0.1", *site.names]
    destination = f"s3://{site.artifacts.ref}" if site.artifacts else f"{site.data}/artifacts"
    options = {
        "host": site.listen,
        "port": str(site.port),
        "workers": "1",
        **({} if site.database else {"backend-store-uri": f"sqlite:///{site.data}/mlflow.db"}),
        "artifacts-destination": destination,
        # A name with any port: clients send the one that they connect to.
        "allowed-hosts": ",".join(text for name in dict.fromkeys(hosts) for text in (name, f"{name}:*")),
    }
    if site.is_secure:
        words = f"--ssl-keyfile {site.files}/tls.key --ssl-certfile {site.files}/tls.crt"
        options["uvicorn-opts"] = words
    login = ["--app-name=basic-auth"] if site.login else []
    return ["server", *login, *(f"--{name}={value}" for name, value in options.items())]


def environment(site: Site) -> dict[str, str]:
    """Return what the command cannot say; nothing is sent to MLflow's makers."""
    found = {
        "HOME": site.data,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GIT_PYTHON_REFRESH": "quiet",
    }
    if site.login:
        found["MLFLOW_AUTH_CONFIG_PATH"] = f"{site.files}/{_ACCOUNTS}"
    if site.artifacts is not None:
        found["MLFLOW_S3_ENDPOINT_URL"] = site.artifacts.endpoint
        found["AWS_SHARED_CREDENTIALS_FILE"] = f"{site.files}/{_KEYS}"
        found["AWS_DEFAULT_REGION"] = site.artifacts.region
        found |= {"AWS_CA_BUNDLE": f"{site.files}/{_STORE_CA}"} if site.artifacts.ca else {}
    return found


def list_hidden(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return what signs the forms of a server with a login, and the address of its database."""
    found = {_SIGNS: credentials[_SIGNS]} if site.login else {}
    # Without the driver's name, SQLAlchemy 2.1 takes another one than the image and the packages have.
    address = site.database.replace("postgresql://", "postgresql+psycopg2://", 1)
    return found | ({_DATABASE: address} if address else {})


def list_packages(version: str) -> tuple[str, ...]:
    """Return what pip installs on a host."""
    return (f"mlflow[auth]=={version}", "boto3", "psycopg2-binary")


def _write_ini(section: str, values: t.Mapping[str, str]) -> str:
    written = configparser.ConfigParser(interpolation=None)
    written[section] = values
    text = io.StringIO()
    written.write(text)
    return text.getvalue()


COMPONENT: t.Final = Component(
    kind="tracking",
    provider="mlflow",
    member="mlflow",
    # The smaller image of the project has no client of object stores.
    image="ghcr.io/mlflow/mlflow",
    tag="v{version}-full",
    port=5000,
    ready="/health",
    statuses=(200,),
    make_credentials=make_credentials,
    write_files=write_files,
    command=command,
    secret_keys={"username": USER, "password": PASSWORD},
    login_by_choice=True,
    # The controller logs steps and keeps models there, and people look at its pages.
    on_node=True,
    memory="768Mi",
    size="20Gi",
    environment=environment,
    packages=list_packages,
    hidden=list_hidden,
)
