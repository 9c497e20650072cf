# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MinIO and Vault as they are deployed, by the real programs: bound by the playbook's own module after every node's use.

A Vault of its own is where one was built; the same files and the same set-up are given to a real OpenBao, whose API and
language of settings are Vault's.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services import (
    hashicorp_vault,
    minio,
    own_certificate,
    vault,
    vault_set_up,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ROOT_TOKEN,
    TLS_CERTIFICATE,
    TLS_KEY,
    UNSEAL_KEY,
    BringUp,
    Site,
)
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.service_world import (
    ServiceWorld,
    deployed_store,
    free_port,
    services_python,
    wait_for,
)
from ansible_collections.muster.training.tests.support import choice_programs


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_minio_gets_its_buckets_and_is_bound(services: ServiceWorld, scheme: str) -> None:
    program = choice_programs.find("minio")
    if program is None:
        pytest.skip("there is no MinIO among the lab's programs: it is built by hand, for ten minutes")
    with deployed_store(services, minio.COMPONENT, program, scheme) as secrets:
        resources = [{"purpose": "datasets", "ref": "data"}, {"purpose": "checkpoints", "ref": "ckpt/team"}]
        service = {"name": "own", "kind": "object_store", "provider": "minio", "mode": "deploy",
                   "deploy": {"host": "node-1"}, "resources": resources}  # fmt: skip
        results = [services.bind_deployed(service, *words) for words in (("--check",), (), ())]
        assert [result.code for result in results] == [0, 0, 0], "\n".join(result.output for result in results)
        assert [result.changed for result in results] == [1, 1, 0]
        binding = services.binding("own")
        assert binding["provider"] == "minio" and bool(binding["ca"]) is (scheme == "https")
        assert [(row["node"], row["ok"]) for row in binding["reachable_from"]] == [("node-1", True), ("node-2", True)]
        public = base64.b64encode((binding["ca"] or "").encode()).decode()
        shown = "".join(result.output for result in results) + str(binding)
        assert not [value for value in secrets if value in shown and value != public]


class Deployed:
    """Vault's files and its program; ``kept`` is its credentials file."""

    def __init__(self, root: pathlib.Path, program: pathlib.Path) -> None:
        self.root, self.program = root, program
        port, files, data = free_port(), root / "files", root / "data"
        for folder in (files, data):
            folder.mkdir(parents=True)
        key, self.ca = own_certificate.make("vault", ["127.0.0.1"], ["localhost"])
        tls = zip((TLS_KEY, TLS_CERTIFICATE), (key, self.ca), strict=True)
        made = {name: base64.b64encode(text.encode()).decode() for name, text in tls}
        self.kept: dict[str, str] = {**hashicorp_vault.make_credentials(), **made}
        self.site = Site("kv", f"https://127.0.0.1:{port}", "127.0.0.1", port, str(data), str(files))
        for name, text in hashicorp_vault.write_files(self.site, self.kept).items():
            (files / name).write_text(text)

    @contextlib.contextmanager
    def running(self) -> t.Iterator[None]:
        """Run it, as its unit does, until the end."""
        log = self.root / "vault.log"
        argv = [str(self.program), *hashicorp_vault.command(self.site)]
        with log.open("wb") as handle:
            process = subprocess.Popen(argv, env={"PATH": os.environ["PATH"]}, stdout=handle, stderr=handle)
        try:
            wait_for(f"{self.site.endpoint}{hashicorp_vault.COMPONENT.ready}", process, log, ca=[self.ca])
            yield
        finally:
            process.terminate()
            process.wait(30)

    def bring_up(self, check: bool = False) -> bool:
        def keep(values: t.Any) -> None:
            self.kept = dict(values)

        order = BringUp("x", self.site.endpoint, "kv.credentials", lambda: self.kept, keep, check, 60)
        return vault_set_up.bring_up(order)

    def access(self, name: str) -> vault.VaultAccess:
        return vault.VaultAccess(self.site.endpoint, Secret(self.kept[name], name), self.ca)


@pytest.mark.parametrize("program", ["bao", "vault"])
def test_vault_is_set_up_once_and_unsealed_after_each_start(tmp_path: pathlib.Path, program: str) -> None:
    """Its key never leaves the controller; the controller's token makes tokens of the role, and no others."""
    pytest.importorskip("hvac")
    found = choice_programs.find("vault") if program == "vault" else None
    if program == "bao" and services_python():
        found = pathlib.Path(services_python()).parent / "bao"
    if found is None and program == "vault":
        pytest.skip("there is no Vault among the lab's programs: it is built by hand, for half an hour")
    if found is None:
        lacking("MUSTER_SERVICES_PYTHON names no interpreter with OpenBao")
    kv = Deployed(tmp_path, found)
    with kv.running():
        assert kv.bring_up(check=True) is True and UNSEAL_KEY not in kv.kept
        assert kv.bring_up() is True and ROOT_TOKEN not in kv.kept and kv.bring_up() is False
        made, lease = vault.issue(kv.access("VAULT_TOKEN"), "auth/token/create/job", "x", {"muster_run": "r"})
        assert made["token"] and lease.kind == "token" and lease.renewable
        vault.revoke(kv.access("VAULT_TOKEN"), lease, "x")
        assert vault.find_engine(kv.access("VAULT_TOKEN"), "secret/team", "x") == "kv2"
    with kv.running():
        with pytest.raises(RefusedError, match="is sealed"):
            vault.check_access(kv.access("VAULT_TOKEN"), "x")
        assert kv.bring_up() is True and kv.bring_up() is False
        vault.check_access(kv.access("ADMIN_TOKEN"), "x")
    with kv.running():
        key = kv.kept.pop(UNSEAL_KEY)
        with pytest.raises(RefusedError, match="has no UNSEAL_KEY"):
            kv.bring_up()
    places = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert places and not [path for path in places if key.encode() in path.read_bytes()]
