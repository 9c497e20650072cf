# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SeaweedFS on a host whose files are below a folder and whose systemd is told: what is sent once, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import tarfile
import typing as t
import zipfile

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, NodeError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import (
    host_agent,
    host_blobs,
    host_service,
    placed_files,
)
from ansible_collections.muster.training.plugins.plugin_utils._hosts import downloads
from ansible_collections.muster.training.plugins.plugin_utils._services import components, hashicorp_vault
from ansible_collections.muster.training.plugins.plugin_utils._services.component import BringUp
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.carried import as_stream
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]


class Host:
    """A node that is asked as over SSH; systemd is what the test says."""

    name = "a"

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.asked = root, t.cast("list[str]", [])
        self.installed: list[str] = []

    def call(self, op: str, **values: t.Any) -> Dict:
        self.asked.append(str(values.get("step") or op))
        if op == "environment":
            # What pip does.
            program = self.root / values["folder"].lstrip("/") / "bin" / "mlflow"
            program.parent.mkdir(parents=True)
            program.write_text("program")
            self.installed = values["requirements"]
            return {"python": "x", "made": True, "folder": values["folder"]}
        answer = host_agent.answer_request({"op": op, "root": str(self.root), **as_stream(values)})
        assert not answer.get("problem"), answer
        if values["step"] == "apply":
            # Below a folder nothing is started: what the agent notes when it has.
            recorder = host_service._recorder({"service": values["service"], "root": str(self.root)})
            recorder.write({**(recorder.read() or {}), "started_with": values["start_with"]})
        return answer


class World(RunWorld):
    """A host, and a folder with the archive of the release."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.host = Host(root / "host")
        self.host.root.mkdir()
        self.release = root / "release"
        self.release.mkdir()
        (root / "weed").write_text("program")
        with tarfile.open(self.release / "linux_amd64_large_disk.tar.gz", "w:gz") as packed:
            packed.add(root / "weed", "weed")
        self.records: dict[str, Dict] = {}
        self.index = ""

    def deploy(
        self,
        state: str = "present",
        check: bool = False,
        home: str = "home",
        cluster: str = "default",
        **changes: t.Any,
    ) -> Dict:
        place = {"host": "a", **changes.pop("deploy", {})}
        resources = [{"purpose": "checkpoints", "ref": "ckpt"}]
        about: Dict = {"name": "store", "kind": "object_store", "mode": "deploy", "state": state, "deploy": place}
        service = {**about, "resources": resources, **changes}
        request = self.request(None, check=check, service=service, cluster=cluster,
                               state_home={"path": str(self.root / home)})  # fmt: skip
        known = {name: {**dict(request.hostvars[name]), **self.records.get(name, {})} for name in "ab"}
        host: t.Any = self.host
        asked = dataclasses.replace(request, hostvars=known, connect=lambda _names: [host])
        source = str(self.release) if service["kind"] != "tracking" else self.index
        return deploy.run(asked, [str(self.root / "inventory.yml")], source=source, wait_s=1)

    @property
    def secret(self) -> str:
        text = (self.root / "home" / "default" / "services" / "store.credentials").read_text()
        return text.partition("AWS_SECRET_ACCESS_KEY = ")[2].splitlines()[0]


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[World]:
    monkeypatch.setattr(host_service, "_systemd_version", lambda: 252)
    monkeypatch.setattr(host_service, "read_unit", lambda _unit: {"active": "active", "enabled": True, "restarts": 0})
    monkeypatch.setattr(host_service, "_find_problem", lambda _ready: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "uname", lambda: type("U", (), {"machine": "x86_64"}))
    found = World(tmp_path)
    yield found
    found.close()


def test_a_program_that_cannot_be_had_leaves_no_credentials(world: World) -> None:
    """They would be those of another program for the one that is deployed instead, by the same name."""
    with pytest.raises(InputError, match="does not exist. Place rustfs"):
        world.deploy(provider="rustfs")
    assert not list((world.root / "home").rglob("*.credentials")) and world.host.asked == ["look"]
    assert world.deploy()["changed"]


def test_it_is_deployed_once_and_then_only_looked_at(world: World) -> None:
    assert world.deploy(check=True)["changed"] and not (world.root / "home").exists()
    world.host.asked.clear()
    first = world.deploy()
    assert first["changed"] and first["endpoint"].endswith(":8333") and "apply" in world.host.asked
    world.host.asked.clear()
    assert not world.deploy()["changed"] and world.host.asked == ["look"]
    unit = (world.host.root / "etc/systemd/system/muster-store.service").read_text()
    assert "DynamicUser=yes" in unit and "LoadCredential=s3.json:/etc/muster/services/store/s3.json" in unit
    assert world.secret not in unit
    assert world.secret in (world.host.root / "etc/muster/services/store/s3.json").read_text()


def test_a_disk_that_metrics_would_fill_is_refused_before_anything_is_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = downloads.default_version("prometheus")
    with tarfile.open(world.release / f"prometheus-{version}.linux-amd64.tar.gz", "w:gz") as packed:
        packed.add(world.root / "weed", f"prometheus-{version}.linux-amd64/prometheus")
    monitoring: Dict = {"kind": "monitoring", "resources": []}
    monkeypatch.setattr(host_blobs, "free_bytes", lambda _place: 6_000_000_000)
    with pytest.raises(RefusedError, match=r"keeps up to 10.0 GB, and the disk of .* on a has room for 4.8 GB") as told:
        world.deploy(**monitoring)
    assert told.value.fix == "Write deploy.retention: {gb: 4} or less, or give it more room"
    assert world.host.asked == ["look"] and not list((world.root / "home").rglob("*.credentials"))
    fits: Dict = {**monitoring, "deploy": {"retention": {"gb": 4}}}
    assert world.deploy(**fits)["changed"]
    unit = (world.host.root / "etc/systemd/system/muster-store.service").read_text()
    assert "--storage.tsdb.retention.size=4GB" in unit
    # What it has stored since is a part of the bound.
    monkeypatch.setattr(host_blobs, "free_bytes", lambda _place: 2_000_000_000)
    assert not world.deploy(**fits)["changed"]


def test_a_change_of_the_port_is_sent_without_the_program(world: World) -> None:
    world.deploy()
    world.host.asked.clear()
    assert world.deploy(deploy={"port": 9333})["endpoint"].endswith(":9333")
    assert world.host.asked == ["look", "apply"]
    (world.host.root / "usr/local/lib/muster/store/weed").write_text("other")
    world.host.asked.clear()
    assert world.deploy(deploy={"port": 9333})["changed"] and "bring" in world.host.asked


def test_it_is_removed_with_or_without_its_data(world: World) -> None:
    world.deploy()
    key = world.secret
    data = world.host.root / "var/lib/private/muster-store"
    data.mkdir(parents=True)
    (data / "x").touch()
    assert world.deploy("absent", check=True)["changed"]
    assert world.deploy("absent")["kept"] == "/var/lib/private/muster-store" and data.exists()
    assert not world.deploy("absent")["changed"]
    assert world.deploy()["changed"] and world.secret == key
    assert world.deploy("absent", deploy={"delete_data": True})["kept"] is None and not data.exists()
    assert not (world.root / "home" / "default" / "services" / "store.credentials").exists()


def test_the_data_of_another_program_is_told_by_what_was_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """RustFS and MinIO have keys of the same names; only the record of what was there tells them apart."""
    use_bring_up(monkeypatch)
    (world.release / "minio.RELEASE.2025-09-07T16-13-09Z").write_text("program")
    with zipfile.ZipFile(world.release / "rustfs-linux-x86_64-musl-v1.0.0.zip", "w") as packed:
        packed.writestr("rustfs", "program")
    world.deploy(provider="minio")
    key = world.secret
    data = world.host.root / "var/lib/private/muster-store"
    data.mkdir(parents=True)
    world.deploy("absent", provider="minio")
    for check in (True, False):
        with pytest.raises(RefusedError, match="was deployed as minio and removed .* which rustfs cannot read") as told:
            world.deploy(provider="rustfs", check=check)
        assert "provider: minio, state: absent" in told.value.fix
    with pytest.raises(RefusedError, match="which rustfs cannot read"):
        world.deploy("absent", provider="rustfs", deploy={"delete_data": True})
    assert not world.deploy("absent", provider="rustfs")["changed"] and data.exists()
    assert world.deploy(provider="minio")["changed"] and world.secret == key
    world.deploy("absent", provider="minio", deploy={"delete_data": True})
    assert world.deploy(provider="rustfs")["changed"] and world.secret != key


def test_what_was_kept_is_deleted_by_a_later_removal(world: World) -> None:
    world.deploy()
    data = world.host.root / "var/lib/private/muster-store"
    data.mkdir(parents=True)
    (data / "x").touch()
    assert world.deploy("absent")["kept"]
    assert world.deploy("absent", deploy={"delete_data": True}, check=True)["changed"] and data.exists()
    assert world.deploy("absent", deploy={"delete_data": True})["kept"] is None and not data.exists()
    assert not (world.root / "home" / "default" / "services" / "store.credentials").exists()
    assert not world.deploy("absent", deploy={"delete_data": True})["changed"]


def test_a_service_of_another_cluster_or_place_is_not_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deploy()
    with pytest.raises(RefusedError, match="it is there already for the cluster default"):
        world.deploy("absent", cluster="other", deploy={"delete_data": True})
    with pytest.raises(RefusedError, match="is deployed at a"):
        world.deploy("absent", deploy={"host": "b"})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RefusedError, match="the user is not root"):
        world.deploy("absent")
    assert (world.host.root / "etc/systemd/system/muster-store.service").exists() and world.secret


def test_an_installation_that_was_cut_off_is_done_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has no release before its program is there."""

    def cut_off(*_words: t.Any) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as cut:
        cut.setattr(placed_files, "_unpack", cut_off)
        with pytest.raises(AssertionError, match="No space left"):
            world.deploy()
    record = json.loads((world.host.root / "var/lib/muster/service-store.json").read_text())
    assert record["release"] is None
    world.host.asked.clear()
    assert world.deploy()["changed"] and "bring" in world.host.asked
    assert not world.deploy()["changed"]


def test_what_another_controller_deployed_is_not_given_other_keys(world: World) -> None:
    world.deploy()
    with pytest.raises(RefusedError, match="its credentials are not in"):
        world.deploy(home="other")
    assert hashlib.sha256(world.secret.encode()).hexdigest()


def test_a_controller_that_slept_does_not_replace_the_keys(world: World) -> None:
    """Another one removed the service with its data and made it anew; and where the data stayed, its keys do."""
    world.deploy()
    old = world.root / "home" / "default" / "services" / "store.credentials"
    stale = old.read_text()
    world.deploy("absent", deploy={"delete_data": True})
    assert not (world.host.root / "var/lib/muster").exists()
    world.deploy()
    data = world.host.root / "var/lib/private/muster-store"
    data.mkdir(parents=True)
    (data / "x").touch()
    for state in ("present", "absent"):
        if state == "absent":
            world.deploy("absent")
        kept, placed = old.read_text(), world.host.root / "etc/muster/services/store/s3.json"
        before = placed.read_text() if placed.exists() else ""
        old.write_text(stale)
        with pytest.raises(RefusedError, match="has other keys than .*store.credentials") as caught:
            world.deploy()
        assert world.secret not in str(caught.value) and (placed.read_text() if placed.exists() else "") == before
        old.write_text(kept)
        assert world.deploy()["changed"] is (state == "absent")


def test_two_controllers_at_once_do_not_mix_their_keys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node compares by itself, after what the controller saw before."""
    real = world.host.call

    def between(op: str, **values: t.Any) -> Dict:
        if values["step"] == "apply":
            (world.host.root / "var/lib/muster/service-store.keys").write_text("of another")
        return real(op, **values)

    monkeypatch.setattr(world.host, "call", between)
    with pytest.raises(AssertionError, match="has other keys: another controller"):
        world.deploy()
    assert not (world.host.root / "etc/muster/services/store/s3.json").exists()


def test_a_store_serves_https_when_that_is_asked_for(world: World) -> None:
    first = world.deploy(deploy={"tls": True})
    assert first["endpoint"] == "https://127.0.0.1:8333" and not world.deploy(deploy={"tls": True})["changed"]
    placed = world.host.root / "etc/muster/services/store"
    assert "BEGIN CERTIFICATE" in (placed / "tls.crt").read_text() and (placed / "tls.key").stat().st_mode & 0o77 == 0
    unit = (world.host.root / "etc/systemd/system/muster-store.service").read_text()
    assert "-s3.cert.file=/run/credentials/muster-store.service/tls.crt" in unit
    assert world.deploy()["endpoint"] == "http://127.0.0.1:8333" and not (placed / "tls.key").exists()


def test_rented_machines_moves_and_unfit_hosts_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.records["a"] = {"muster_node": {"name": "a", "ownership": "rented"}}
    with pytest.raises(RefusedError, match=r"deploy\.host: a is rented"):
        world.deploy()
    world.records.clear()
    world.deploy()
    with pytest.raises(RefusedError, match="is deployed at a, and its data would not come along to b"):
        world.deploy(deploy={"host": "b"})
    monkeypatch.setattr(host_service, "_systemd_version", lambda: 0)
    with pytest.raises(RefusedError, match="systemd 247 or newer"):
        world.deploy()
    with pytest.raises(RefusedError, match="deployed as seaweedfs, whose data minio cannot read"):
        world.deploy(provider="minio")


def test_openbao_is_deployed_once_with_https(world: World) -> None:
    """Its material is in the files of the service and in the state home, and nowhere in what is returned or sent."""
    archive = world.release / "openbao_2.7.2_linux_amd64.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(world.root / "weed", "bao")
    bao: Dict = {"name": "bao", "kind": "secrets", "resources": []}
    first = world.deploy(**bao)
    assert first["changed"] and first["endpoint"] == "https://127.0.0.1:8200"
    world.host.asked.clear()
    assert not world.deploy(**bao)["changed"] and world.host.asked == ["look"]
    place = world.root / "home" / "default" / "services" / "bao.credentials"
    made = dict(line.split(" = ", 1) for line in place.read_text().splitlines() if " = " in line)
    placed = world.host.root / "etc" / "muster" / "services" / "bao"
    assert (placed / "seal.key").read_text() == made["SEAL_KEY"]
    assert {item.stat().st_mode & 0o777 for item in placed.iterdir()} == {0o600}
    unit = (world.host.root / "etc" / "systemd" / "system" / "muster-bao.service").read_text()
    others = [item for item in world.root.rglob("*") if item.is_file() and item.parent != placed and item != place]
    for name in ("VAULT_TOKEN", "ADMIN_TOKEN", "SEAL_KEY", "TLS_KEY"):
        assert made[name] not in unit + repr(first), name
        assert not [item for item in others if made[name].encode() in item.read_bytes()], name
    with pytest.raises(RefusedError, match="deployed as openbao, whose data vault cannot read"):
        world.deploy(**bao, provider="vault")
    # Without its record the keys tell: what is kept by the name is another program's.
    world.deploy(**bao, state="absent")
    place.write_text("VAULT_TOKEN = a-token-of-elsewhere\n")
    with pytest.raises(RefusedError, match=r"bao\.credentials has no ADMIN_TOKEN, SEAL_KEY: it is of another program"):
        world.deploy(**bao)


@pytest.mark.parametrize(
    ("provider", "kind", "release", "variables", "warning"),
    [
        ("rustfs", "object_store", "rustfs-linux-x86_64-musl-v1.0.0.zip", ["RUSTFS_CHECK_UPDATE=false"], ""),
        ("minio", "object_store", "minio.RELEASE.2025-09-07T16-13-09Z", ["MINIO_UPDATE=off"], "project has ended"),
        ("vault", "secrets", "vault_2.0.4_linux_amd64.zip", [], "Business Source License"),
    ],
)
def test_a_choice_is_installed_from_its_release(
    world: World, monkeypatch: t.Any, provider: str, kind: str, release: str, variables: list[str], warning: str
) -> None:
    """From a zip archive, or as the program itself; its unit has the variables, its keys are 0600, again nothing."""
    place = world.release / release
    if release.endswith(".zip"):
        with zipfile.ZipFile(place, "w") as packed:
            packed.writestr("LICENSE", "text")
            packed.writestr(f"bin/{provider}", "program")
    else:
        place.write_text("program")
    told = use_bring_up(monkeypatch)
    about: Dict = {
        "name": "own",
        "kind": kind,
        "provider": provider,
        **({"resources": []} if kind == "secrets" else {}),
    }
    planned = world.deploy(check=True, **about)
    assert planned["changed"] and not list(world.host.root.rglob(provider)) and not told
    result = world.deploy(**about)
    assert (
        result["changed"] and warning in "".join(result.get("warnings", [])) and bool(warning) == ("warnings" in result)
    )
    program = world.host.root / "usr/local/lib/muster/own" / provider
    assert program.read_text() == "program" and program.stat().st_mode & 0o777 == 0o755
    unit = (world.host.root / "etc/systemd/system/muster-own.service").read_text()
    assert [line for line in unit.splitlines() if line.startswith("Environment=")] or not variables
    assert not [item for item in variables if f'Environment="{item}"' not in unit] and "DynamicUser=yes" in unit
    kept = (world.root / "home/default/services/own.credentials").read_text()
    secrets = [line.partition(" = ")[2] for line in kept.splitlines() if " = " in line and not line.startswith("TLS_")]
    assert secrets and not [value for value in secrets if value in unit + repr(result)]
    placed = world.host.root / "etc/muster/services/own"
    assert {item.stat().st_mode & 0o777 for item in placed.iterdir()} == {0o600}
    world.host.asked.clear()
    again = world.deploy(**about)
    assert not again["changed"] and world.host.asked == ["look"]
    assert [item.endpoint for item in told] == ([result["endpoint"]] * 2 if provider == "vault" else [])
    gone = world.deploy(state="absent", **about)
    assert gone["changed"] and "warnings" not in gone and not program.exists() and not placed.exists()


def use_bring_up(monkeypatch: pytest.MonkeyPatch) -> list[BringUp]:
    """Have Vault brought up by a note of it alone: no Vault runs below a folder."""
    told: list[BringUp] = []
    noted = dataclasses.replace(hashicorp_vault.COMPONENT, bring_up=lambda order: bool(told.append(order)))
    known = (*components.COMPONENTS["secrets"][:1], noted)
    monkeypatch.setattr(components, "COMPONENTS", {**components.COMPONENTS, "secrets": known})
    return told


def test_an_archive_without_the_program_is_refused(world: World) -> None:
    with zipfile.ZipFile(world.release / "rustfs-linux-x86_64-musl-v1.0.0.zip", "w") as packed:
        packed.writestr("rustfs/readme", "text")
    with pytest.raises(AssertionError, match="has no file rustfs"):
        world.deploy(name="own", provider="rustfs")


TRACKER: t.Final[Dict] = {"kind": "tracking", "name": "mlflow", "resources": []}


def test_a_program_of_python_is_installed_by_pip_once_and_goes_with_its_environment(world: World) -> None:
    """Its accounts are where systemd hands them on; another version is installed into the environment that is there."""
    world.index = "https://index.example/simple"
    about: Dict = {**TRACKER, "deploy": {"login": True, "tls": True}, "hosts": ["mlflow.mesh"]}
    assert world.deploy(check=True, **about)["changed"] and world.host.asked == ["look"]
    world.host.asked.clear()
    assert world.deploy(**about)["endpoint"].endswith(":5000")
    assert world.host.asked == ["look", "bring", "environment", "apply"]
    assert world.host.installed[:2] == ["-i https://index.example/simple", "mlflow[auth]==3.17.2"]
    world.host.asked.clear()
    assert not world.deploy(**about)["changed"] and world.host.asked == ["look"]
    unit = (world.host.root / "etc/systemd/system/muster-mlflow.service").read_text()
    folder = "usr/local/lib/muster/mlflow/environment"
    assert f"ExecStart=/{folder}/bin/mlflow server --app-name=basic-auth" in unit and "mlflow.mesh:*" in unit
    assert "EnvironmentFile=/etc/muster/services/mlflow/environment" in unit
    assert "LoadCredential=environment" not in unit and "LoadCredential=accounts.ini:" in unit
    kept = (world.root / "home/default/services/mlflow.credentials").read_text()
    values = [line.partition(" = ")[2] for line in kept.splitlines() if " = " in line and "USERNAME" not in line]
    assert not [value for value in values if value in unit]
    assert (world.host.root / folder).stat().st_mode & 0o005 == 0o005
    gone = world.deploy("absent", **TRACKER)
    assert gone["changed"] and not (world.host.root / "usr/local/lib/muster").exists()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.juicefs"])
def test_sqlite_on_a_disk_of_the_network_is_refused(world: World, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    world.index = "https://index.example/simple"
    monkeypatch.setattr(host_service, "read_mount", lambda _path, _table: {"type": kind})
    with pytest.raises(RefusedError, match=f"the data of mlflow would be on {kind}, where SQLite loses runs"):
        world.deploy(**TRACKER)
    assert not (world.root / "home").exists() and "apply" not in world.host.asked
    monkeypatch.setenv("MLFLOW_DATABASE_URL", "postgresql://u:pw-canary-0001@db/x")
    assert world.deploy(**TRACKER, deploy={"database": {"from": "env"}})["changed"], "PostgreSQL is elsewhere"
    monkeypatch.setattr(host_service, "read_mount", lambda _path, _table: {"type": "ext4"})
    assert world.deploy(**{**TRACKER, "name": "other"}, deploy={"port": 5001})["changed"]


def test_a_database_of_a_newer_version_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of the program is another one than that which says why."""
    said = "alembic.util.exc.CommandError: Can't locate revision identified by 'f5a4f2784254'\nworker exited\n"
    monkeypatch.setattr(host_service, "run", lambda *_words, **_more: said)
    reason = f"muster-mlflow.service is stopped again, it does not start: {host_service._last_words('x')}"
    assert "f5a4f2784254" in reason and "worker exited" not in reason
    monkeypatch.undo()
    world.index = "https://index.example/simple"
    call = world.host.call

    def answer(op: str, **values: t.Any) -> Dict:
        if values.get("step") == "apply":
            raise NodeError("a", reason)
        return call(op, **values)

    monkeypatch.setattr(host_service, "_systemd_version", lambda: 252)
    monkeypatch.setattr(world.host, "call", answer)
    with pytest.raises(RefusedError, match=r"deploy\.version: .*f5a4f2784254.*does not know the tables") as caught:
        world.deploy(**TRACKER)
    assert "name that version" in caught.value.fix


def test_a_program_that_is_there_already_is_used_and_left(world: World) -> None:
    about: Dict = {**TRACKER, "deploy": {"python": "/opt/mlflow/bin/python"}}
    with pytest.raises(InputError, match=r"deploy\.python: there is no /opt/mlflow/bin/mlflow.*Install mlflow.auth."):
        world.deploy(**about)
    assert not (world.root / "home").exists()
    program = world.host.root / "opt/mlflow/bin/mlflow"
    program.parent.mkdir(parents=True)
    program.touch()
    assert world.deploy(**about)["changed"] and "environment" not in world.host.asked
    assert not world.deploy(**about)["changed"]
    assert world.deploy("absent", **about)["changed"] and program.exists()


def test_runs_are_in_a_database_whose_address_root_alone_can_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_DATABASE_URL", raising=False)
    world.index = "https://index.example/simple"
    about: Dict = {**TRACKER, "deploy": {"database": {"from": "env"}}}
    with pytest.raises(InputError, match=r"deploy\.database: MLFLOW_DATABASE_URL is not in the environment"):
        world.deploy(**about)
    for wrong in ("mysql://u:pw-canary-0001@db/x", "postgresql://u:pw canary@db/x", "pw-canary-0001"):
        monkeypatch.setenv("MLFLOW_DATABASE_URL", wrong)
        with pytest.raises(InputError, match="is not the address of a PostgreSQL") as caught:
            world.deploy(**about)
        assert "canary" not in str(caught.value)
    assert not (world.root / "home").exists() and "apply" not in world.host.asked
    monkeypatch.setenv("MLFLOW_DATABASE_URL", "postgresql://u:pw-canary-0001@db/x")
    assert world.deploy(**about)["changed"] and not world.deploy(**about)["changed"]
    unit = (world.host.root / "etc/systemd/system/muster-mlflow.service").read_text()
    hidden = world.host.root / "etc/muster/services/mlflow/environment"
    assert "canary" not in unit and "backend-store-uri" not in unit and "EnvironmentFile=" in unit
    assert "MLFLOW_BACKEND_STORE_URI=postgresql+psycopg2://u:pw-canary-0001@db/x" in hidden.read_text()
    assert hidden.stat().st_mode & 0o777 == 0o600
    assert "canary" not in (world.root / "home/default/services/mlflow.json").read_text()
    with pytest.raises(RefusedError, match="has its runs in PostgreSQL, and they would not come along to a file"):
        world.deploy(**TRACKER)
    monkeypatch.delenv("MLFLOW_DATABASE_URL")
    assert world.deploy("absent", **about)["changed"], "it goes without the password"


def test_a_folder_of_the_controller_is_no_index_for_pip_on_a_host(world: World) -> None:
    world.index = "wheels"
    with pytest.raises(InputError, match="wheels is a folder of the controller, and pip runs on the host"):
        world.deploy(**TRACKER)


def test_files_of_a_tracker_go_to_the_bucket_of_a_binding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKcanary-access-01")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SKcanary-secret-9f2")
    about: Dict = {**TRACKER, "deploy": {"artifacts": "own"}}
    home = StateHome({"path": str(world.root / "home")}, "default")
    assert world.deploy(check=True, **about)["changed"], "the store may be bound before it in the same play"
    with pytest.raises(InputError, match=r"deploy\.artifacts"):
        world.deploy(**about)
    store: Dict = {"name": "own", "component": "object_store", "mode": "bind", "endpoint": "https://s3.example"}
    store |= {"secret_ref": {"from": "env"}, "resources": [{"purpose": "checkpoints", "ref": "ckpt"}]}
    bindings.write_binding(home, Binding.from_dict(store))
    with pytest.raises(InputError, match="'own' has no bucket for artifacts"):
        world.deploy(**about)
    store["resources"] = [{"purpose": "artifacts", "ref": "files/mlflow"}]
    bindings.write_binding(home, Binding.from_dict(store))
    assert world.deploy(**about)["changed"] and not world.deploy(**about)["changed"]
    unit = (world.host.root / "etc/systemd/system/muster-mlflow.service").read_text()
    assert "--artifacts-destination=s3://files/mlflow" in unit and "SKcanary" not in unit
    keys = (world.host.root / "etc/muster/services/mlflow/store-keys").read_text()
    assert "SKcanary-secret-9f2" in keys
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SKcanary-another-111")
    assert world.deploy(**about)["changed"], "keys that were changed reach the service"
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-a-session")
    with pytest.raises(InputError, match="'own' has the keys of a session, which ends"):
        world.deploy(**about)
