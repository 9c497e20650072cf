# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBao as a service of secrets: one process that unseals itself, and sets itself up when it first starts.

OpenBao revokes its root token after the set-up, unseen. Two tokens that were made here remain: that of the controller,
which reads secrets and makes tokens for jobs, and that of the administrator, who may do everything.
"""

from __future__ import annotations

import json
import secrets
import typing as t

from .component import Component, Credentials, Site, make_token, tls_files, write_listen

TOKEN: t.Final = "VAULT_TOKEN"
ADMIN: t.Final = "ADMIN_TOKEN"
_SEAL: t.Final = "SEAL_KEY"
# AES-256.
_KEY_BYTES: t.Final = 32
MOUNT: t.Final = "secret"
# The tokens made here last as long as the service; one made for a job lasts for a day, or longer while it is renewed.
LONGEST: t.Final = "175200h"
JOB: t.Final = {"allowed_policies": "muster-job", "token_period": "24h", "renewable": True, "orphan": True}
_READS: t.Final = f'path "{MOUNT}/*" {{ capabilities = ["read", "list"] }}\n'
POLICIES: t.Final = {
    "muster-job": _READS,
    "muster-controller": _READS
    + 'path "auth/token/create/job" { capabilities = ["update"] }\n'
    + 'path "auth/token/renew-accessor" { capabilities = ["update"] }\n'
    + 'path "auth/token/revoke-accessor" { capabilities = ["update"] }\n'
    + 'path "sys/leases/revoke" { capabilities = ["update"] }\n',
    "muster-admin": 'path "*" { capabilities = ["create", "read", "update", "patch", "delete", "list", "sudo"] }\n',
}


def make_credentials() -> dict[str, str]:
    """Return the key that seals the store, and two tokens."""
    return {TOKEN: make_token(), ADMIN: make_token(), _SEAL: secrets.token_hex(_KEY_BYTES)}


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return OpenBao's settings with its set-up, the key of its seal, and its certificate."""
    settings = [
        write_settings(site),
        _block("seal", "static", {"current_key_id": "1", "current_key": f"file://{site.files}/seal.key"}),
        _set_up(credentials),
    ]
    return {
        "openbao.hcl": "\n".join(settings),
        "seal.key": credentials[_SEAL],
        **tls_files(site, credentials, "tls.key", "tls.crt"),
    }


def write_settings(site: Site) -> str:
    """Return the settings that OpenBao and Vault have in common: where it stores, and where it listens."""
    blocks = [
        "ui = false\ndisable_mlock = true\n",
        f'max_lease_ttl = "{LONGEST}"\ndefault_lease_ttl = "768h"\n',
        f"api_addr = {json.dumps(site.endpoint)}\ncluster_addr = {json.dumps(f'https://127.0.0.1:{site.port + 1}')}\n",
        _block("storage", "raft", {"path": site.data, "node_id": site.name}),
        _block(
            "listener",
            "tcp",
            {
                "address": write_listen(site),
                "cluster_address": f"127.0.0.1:{site.port + 1}",
                "tls_cert_file": f"{site.files}/tls.crt",
                "tls_key_file": f"{site.files}/tls.key",
            },
        ),
    ]
    return "\n".join(blocks)


def list_set_up(credentials: Credentials) -> list[tuple[str, str, dict[str, t.Any]]]:
    """Return what is asked of a new store, in this order: a name, the path, and what is written there."""
    asked: list[tuple[str, str, dict[str, t.Any]]] = [
        ("mount", f"sys/mounts/{MOUNT}", {"type": "kv", "options": {"version": "2"}}),
        *((name, f"sys/policies/acl/{name}", {"policy": rules}) for name, rules in POLICIES.items()),
        ("job", "auth/token/roles/job", JOB),
    ]
    for name, key in (("muster-controller", TOKEN), ("muster-admin", ADMIN)):
        about = {"id": credentials[key], "policies": [name], "no_parent": True, "ttl": LONGEST, "display_name": name}
        asked.append((f"{name}-token", "auth/token/create", about))
    return asked


def command(site: Site) -> list[str]:
    """Return the words behind ``bao``."""
    return ["server", f"-config={site.files}/openbao.hcl"]


def _set_up(credentials: Credentials) -> str:
    """Return the set-up as settings: the store carries it out when it starts for the first time."""
    requests = "".join(
        f'  request "{name}" {{\n    operation = "update"\n    path = {json.dumps(path)}\n'
        f"    data = {_object(data)}\n  }}\n"
        for name, path, data in list_set_up(credentials)
    )
    return f'initialize "muster" {{\n{requests}}}\n'


def _object(values: t.Mapping[str, t.Any]) -> str:
    """Return a mapping as OpenBao's settings write it: JSON's values, and no colons."""
    pairs = (
        f"{json.dumps(key)} = {_object(value) if isinstance(value, dict) else json.dumps(value)}"
        for key, value in values.items()
    )
    return f"{{ {', '.join(pairs)} }}"


def _block(kind: str, label: str, values: t.Mapping[str, str]) -> str:
    lines = "".join(f"  {key} = {json.dumps(value)}\n" for key, value in values.items())
    return f'{kind} "{label}" {{\n{lines}}}\n'


COMPONENT: t.Final = Component(
    kind="secrets",
    provider="openbao",
    member="bao",
    image="quay.io/openbao/openbao",
    port=8200,
    ready="/v1/sys/health",
    statuses=(200,),
    make_credentials=make_credentials,
    write_files=write_files,
    command=command,
    secret_keys={"token": TOKEN},
    size="10Gi",
    secure=True,
    on_node=True,
)
