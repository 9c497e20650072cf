# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HashiCorp Vault as a service of secrets: one process that the controller sets up, and unseals after each start.

Its community edition has no seal that opens itself with a key beside it, as OpenBao has. Vault makes its key when it is
set up: it is kept on the controller alone, so that a Vault which was started again stays sealed until the next run.
"""

from __future__ import annotations

import typing as t

from . import openbao
from .component import Component, Credentials, Site, make_token, tls_files
from .vault_set_up import bring_up


def make_credentials() -> dict[str, str]:
    """Return two tokens; the key comes from Vault itself."""
    return {openbao.TOKEN: make_token(), openbao.ADMIN: make_token()}


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return Vault's settings, which have no secret, and its certificate."""
    return {"vault.hcl": openbao.write_settings(site), **tls_files(site, credentials, "tls.key", "tls.crt")}


def command(site: Site) -> list[str]:
    """Return the words behind ``vault``."""
    return ["server", f"-config={site.files}/vault.hcl"]


COMPONENT: t.Final = Component(
    kind="secrets",
    provider="vault",
    member="vault",
    image="docker.io/hashicorp/vault",
    port=8200,
    # It serves, and may be sealed.
    ready="/v1/sys/health?uninitcode=200&sealedcode=200&standbyok=true",
    statuses=(200,),
    make_credentials=make_credentials,
    write_files=write_files,
    command=command,
    secret_keys={"token": openbao.TOKEN},
    size="10Gi",
    secure=True,
    on_node=True,
    bring_up=bring_up,
    warning="Vault is licensed by the Business Source License, which does not allow every use, and it is sealed after "
    "each start until the playbook services runs again. OpenBao has neither limit",
)
