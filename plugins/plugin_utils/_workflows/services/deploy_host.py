# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A component on a plain host: its program from the release, a systemd unit of its own, files with secrets for it.

systemd gives the service a user that exists while it runs, a folder below /var/lib, and the files with secrets, which
only root can read on the disk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import typing as t
import urllib.parse

from ....module_utils._model.cluster_checks import ARCHITECTURES
from ....module_utils._model.errors import InputError, NodeError, RefusedError
from ..._hosts import downloads
from ..._hosts.node_client import NodeClient
from ..._services.component import Site, certificate_of, fingerprint
from ..shared import deployed
from ..shared.release_files import ReleaseFile, find_file, push_files, send_files
from .deploy import DeployOrder, Result, describe, refuse_small_disk, refuse_taken_port

# LoadCredential= came with it.
_SYSTEMD: t.Final = 247
_NETWORK_TYPES: t.Final = ("nfs", "nfs4", "cifs", "smb3", "fuse", "lustre", "gpfs", "wekafs", "ceph", "9p")
# Variables with secrets.
_HIDDEN: t.Final = "environment"
# A release of another kind is the program itself.
_ARCHIVES: t.Final = (".tar.gz", ".tgz", ".zip")
_UNIT = """# Written by muster.training; changes are overwritten.
[Unit]
Description=Service {name} ({provider})
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
DynamicUser=yes
StateDirectory={unit}
StateDirectoryMode=0700
WorkingDirectory=/var/lib/{unit}
UMask=0077
{settings}
Restart=on-failure
RestartSec=2
TimeoutStopSec=60
LimitNOFILE=1048576
NoNewPrivileges=yes
ProtectHome=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
"""


@dataclasses.dataclass(frozen=True, slots=True)
class HostParts:
    """The files of a service on its host: ``texts`` by path, with their modes."""

    site: Site
    unit: str
    unit_file: str
    program: str
    archive: str
    ready: dict[str, t.Any]
    # The folder of an environment of Python that is made for its program, empty for one of a release.
    environment: str = ""
    more_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, order: DeployOrder, address: str) -> HostParts:
        """Return where the parts of a service are. It listens at the address that nodes use, where that is one."""
        name = order.service.name
        unit = f"muster-{name}"
        shown, listen = _read_address(address)
        site = Site(
            name=name,
            endpoint=f"{order.scheme}://{shown}:{order.port}",
            listen=listen,
            port=order.port,
            data=f"/var/lib/{unit}",
            files=f"/run/credentials/{unit}.service",
        )
        site = order.describe_site(site, (shown.strip("[]"), order.place.host or ""))
        here = "127.0.0.1" if listen == "0.0.0.0" else f"[{listen}]" if ":" in listen else listen
        url = f"{order.scheme}://{here}:{order.port}{order.component.ready}"
        ready = {"url": url, "statuses": order.component.statuses}
        folder = f"/usr/local/lib/muster/{name}"
        own = f"{folder}/environment" if order.component.packages and not order.place.python else ""
        programs = f"{own}/bin" if own else (order.place.python or f"{folder}/").rpartition("/")[0]
        return cls(
            site,
            f"{unit}.service",
            f"/etc/systemd/system/{unit}.service",
            f"{programs}/{order.component.member}",
            f"/var/lib/muster/{name}.tgz",
            ready,
            own,
            order.more_names,
        )

    @property
    def places(self) -> list[str]:
        """The addresses and names at which the service is reached: by its users, and on the host itself."""
        shown = str(urllib.parse.urlsplit(self.site.endpoint).hostname)
        here = str(urllib.parse.urlsplit(self.ready["url"]).hostname)
        return list(dict.fromkeys((shown, here, "127.0.0.1", *self.more_names)))

    def trust(self, credentials: t.Mapping[str, str]) -> None:
        """Have the host trust the certificate of the service when it looks whether it is ready."""
        self.ready["ca"] = certificate_of(credentials)

    def texts(self, order: DeployOrder, credentials: t.Mapping[str, str]) -> list[dict[str, t.Any]]:
        """Return the unit and the files with secrets, as the node places them."""
        secret = order.component.write_files(self.site, credentials)
        folder = f"/etc/muster/services/{self.site.name}"
        command = [self.program, *order.component.command(self.site)]
        variables = order.component.environment(self.site)
        hidden = order.component.hidden(self.site, credentials)
        if hidden:
            # systemd itself reads it, as root.
            secret = {**secret, _HIDDEN: "".join(f"{name}={value}\n" for name, value in sorted(hidden.items()))}
        unit = _UNIT.format(
            name=self.site.name,
            provider=order.component.provider,
            command=" ".join(word.replace("%", "%%").replace("$", "$$") for word in command),
            unit=self.unit.removesuffix(".service"),
            settings="\n".join(
                [
                    *(f'Environment="{name}={value}"' for name, value in sorted(variables.items())),
                    *([f"EnvironmentFile={folder}/{_HIDDEN}"] if hidden else []),
                    *(f"LoadCredential={name}:{folder}/{name}" for name in sorted(secret) if name != _HIDDEN),
                ]
            ),
        )
        files = [{"path": f"{folder}/{name}", "mode": 0o600, "text": text} for name, text in sorted(secret.items())]
        return [*files, {"path": self.unit_file, "mode": 0o644, "text": unit}]


def ensure_present(order: DeployOrder, remote: NodeClient, address: str) -> Result:
    """Install what differs, start the service with it, and wait until it is ready; a second run only looks."""
    parts = HostParts.of(order, address)
    refuse_taken_port(order, parts.site.endpoint)
    found = deployed.read_credentials(order.home, order.service.name)
    if found is not None:
        found = order.require_credentials(dict, parts.places)
        parts.trust(found)
    texts = parts.texts(order, found) if found is not None else []
    facts = read_host(remote, parts, [item["path"] for item in texts])
    refuse_host(order, remote.name, facts)
    _refuse_shared_disk(order, remote.name, facts)
    if facts["record"] is None and not facts["data"]:
        refuse_small_disk(order, parts.site, f"the disk of {parts.site.data} on {remote.name}", facts["free_bytes"])
    if found is not None:
        _refuse_other_keys(order, remote.name, facts, fingerprint(found))
    # Before new credentials are kept: those of a program that cannot be had would stand in the way of another one.
    item = _find_release(order, parts, facts)
    credentials = order.require_credentials(lambda: _refuse_unknown(order, remote.name, facts), parts.places)
    parts.trust(credentials)
    texts = parts.texts(order, credentials)
    record = facts["record"] or {}
    is_installed = _has_program(facts, parts, record, order, item)
    changed = [item for item in texts if not _same(facts["files"].get(item["path"]), item)]
    start_with = _digest([order.version, *(str(item) for item in texts)])
    is_running = facts["unit"]["active"] == "active" and record.get("started_with") == start_with
    is_ready = facts["problem_of_service"] is None
    obsolete = sorted(set(record.get("files", {})) - {parts.program, *(item["path"] for item in texts)})
    result: Result = {
        "changed": not (is_installed and is_running and is_ready and facts["unit"]["enabled"])
        or bool(changed or obsolete),
        "endpoint": parts.site.endpoint,
        "place": remote.name,
    }
    if order.check or not result["changed"]:
        return _keep(order, result)
    common = _common(parts)
    placed = list(texts)
    release = record.get("release")
    if not is_installed:
        begin = {"paths": [item["path"] for item in texts], "unit": parts.unit, "service": order.service.name,
                 "cluster": order.home.folder.name, "data": common["data"]}  # fmt: skip
        if item is None:
            release = _install_packages(order, remote, parts, begin)
        else:
            # With its archive: a run that is cut off leaves it beside this path, for the next one to remove.
            begin["paths"] = [parts.program, parts.archive, *begin["paths"]]
            (archive,) = send_files(remote, "service", order.lock, [item], begin)
            release = {"version": order.version, "sha256": archive["sha256"]}
            packed = {"member": order.component.member} if item.download.file.endswith(_ARCHIVES) else {}
            placed.append({"path": parts.program, "mode": 0o755, "sha256": archive["sha256"],
                           "archive": parts.archive, **packed})  # fmt: skip
    try:
        remote.call("service", step="apply", files=placed, obsolete=obsolete, cluster=order.home.folder.name,
                    start_with=start_with, release=release, wait_s=order.wait_s, keys=fingerprint(credentials),
                    **common)  # fmt: skip
    except NodeError as error:
        _refuse_other_schema(order, error)
        raise
    return _keep(order, result)


def ensure_absent(order: DeployOrder, remote: NodeClient, address: str) -> Result:
    """Stop the service and remove what was installed; its data stays unless that is to be deleted."""
    parts, home, name = HostParts.of(order, address), order.home, order.service.name
    facts = read_host(remote, parts, [])
    record = facts["record"]
    if not facts["root"] or (record or {}).get("cluster", home.folder.name) != home.folder.name:
        refuse_host(order, remote.name, facts)
    # Data of a service that was removed before, and whose keys are kept here.
    is_known = deployed.read_credentials(home, name) is not None
    left = order.place.delete_data and record is None and facts["data"] and not facts["foreign"] and is_known
    result: Result = {"changed": record is not None or left, "endpoint": None, "place": remote.name, "kept": None}
    if order.check:
        return result
    if result["changed"]:
        words = {"delete_data": order.place.delete_data, "left": left}
        result["kept"] = remote.call("service", step="remove", **words, **_common(parts))["kept"]
    deployed.remove_deployed(home, name, forget=order.place.delete_data and result["kept"] is None)
    return result


def read_host(remote: NodeClient, parts: HostParts, paths: t.Sequence[str]) -> dict[str, t.Any]:
    """Return what is on the host; reads only."""
    return remote.call("service", step="look", paths=[parts.program, *paths], **_common(parts))


def refuse_host(order: DeployOrder, name: str, facts: t.Mapping[str, t.Any]) -> None:
    """Refuse a host that cannot run the service, or on which another one has its name.

    :raises RefusedError: saying why.
    """
    record = facts["record"] or {}
    owner = record.get("cluster", order.home.folder.name)
    refusals = (
        (not facts["root"], "the user is not root", "Let the user become root (ansible_become)"),
        (
            facts["systemd"] < _SYSTEMD,
            f"systemd {_SYSTEMD} or newer does not run there",
            "Name another host, or deploy it in a cluster",
        ),
        (facts["architecture"] not in ARCHITECTURES, f"there is no program for {facts['architecture']}", ""),
        (facts["foreign"], f"a unit muster-{order.service.name} is there that this collection did not make", "Rename"),
        (owner != order.home.folder.name, f"it is there already for the cluster {owner}", "Name it otherwise"),
    )
    for is_refused, problem, fix in refusals:
        if is_refused:
            raise RefusedError(f"{order.option}.host: {name}: {problem}", fix)


def _refuse_shared_disk(order: DeployOrder, name: str, facts: t.Mapping[str, t.Any]) -> None:
    """Refuse SQLite on a disk of the network, whose locks do not hold: runs are lost there.

    :raises RefusedError: naming the type of the disk.
    """
    kind = str(facts.get("data_type") or "")
    if order.component.kind == "tracking" and not order.database and kind.partition(".")[0] in _NETWORK_TYPES:
        raise RefusedError(
            f"{order.option}.host: {name}: the data of {order.service.name} would be on {kind}, where SQLite loses "
            "runs",
            "Mount a disk of the machine's own there, or use PostgreSQL (deploy.database)",
        )


def _refuse_other_schema(order: DeployOrder, error: NodeError) -> None:
    """Say of a database that a newer version has changed which version it needs.

    :raises RefusedError: when that is why the service does not start.
    """
    if "Can't locate revision" in error.message or "out-of-date database schema" in error.message:
        raise RefusedError(
            f"{order.option}.version: {error.message}: {order.component.provider} {order.version} does not know the "
            "tables of its database",
            "A newer version has changed them: name that version, or put the copy of before back",
        ) from None


def _refuse_unknown(order: DeployOrder, name: str, facts: t.Mapping[str, t.Any]) -> None:
    """Refuse a service whose credentials another controller has; they are not read from the host."""
    if facts["record"] is None and not facts["data"]:
        return
    place = deployed.credentials_file(order.home, order.service.name)
    raise RefusedError(
        f"{order.option}: {order.service.name} is on {name}, or its data is, and its credentials are not in {place}",
        "Copy that file from the controller that deployed it, or remove the service there with its data",
    )


def _refuse_other_keys(order: DeployOrder, name: str, facts: t.Mapping[str, t.Any], keys: str) -> None:
    """Refuse to put other keys in the place of those that the service has: it could not read its data with them."""
    if facts["keys"] in (None, keys):
        return
    place = deployed.credentials_file(order.home, order.service.name)
    raise RefusedError(
        f"{order.option}: {order.service.name} on {name} has other keys than {place}",
        "Another controller has deployed it since: copy that file from there",
    )


def _find_release(order: DeployOrder, parts: HostParts, facts: t.Mapping[str, t.Any]) -> ReleaseFile | None:
    """Return the file of a release, None for a program that pip installs, or that is there already.

    :raises InputError: when there is no such program.
    """
    component, option = order.component, order.option
    if component.packages is None:
        download = downloads.find(component.provider, order.version, ARCHITECTURES[facts["architecture"]])
        return find_file(download, parts.archive, 0o600, order.source, order.base, order.lock, order.check)
    if order.place.python and not facts["files"].get(parts.program):
        fix = f"Install {' '.join(component.packages(order.version))} there, or leave it out"
        raise InputError(f"{option}.python", f"there is no {parts.program}", fix)
    return None


def _install_packages(
    order: DeployOrder, remote: NodeClient, parts: HostParts, begin: t.Mapping[str, t.Any]
) -> dict[str, str]:
    """Have pip make the environment of a program, which the record names first; return what was installed."""
    release = {"version": order.version, "python": order.place.python or ""}
    if parts.environment and order.component.packages is not None:
        push_files(remote, "service", [], begin={**begin, "environment": parts.environment})
        wanted = [*_pip_options(order), *order.component.packages(order.version)]
        remote.call("environment", python="python3", requirements=wanted, folder=parts.environment)
    return release


def _pip_options(order: DeployOrder) -> list[str]:
    """Return where pip looks for packages.

    :raises InputError: for a folder of the controller, which the host does not have.
    """
    if order.source and not order.source.startswith(("https://", "http://")):
        fix = "Name an index of packages by its URL, or the interpreter that has them (deploy.python)"
        raise InputError("source", f"{order.source} is a folder of the controller, and pip runs on the host", fix)
    return [f"-i {order.source}"] if order.source else []


def _has_program(
    facts: t.Mapping[str, t.Any],
    parts: HostParts,
    record: t.Mapping[str, t.Any],
    order: DeployOrder,
    item: ReleaseFile | None,
) -> bool:
    there, known = facts["files"].get(parts.program), (record.get("files") or {}).get(parts.program)
    release = record.get("release") or {}
    if item is None:
        same = release == {"version": order.version, "python": order.place.python or ""}
        return bool(there) and same
    is_same = release.get("version") == order.version and item.sha256 in ("", release.get("sha256"))
    return bool(is_same and there and known and there["sha256"] == known["sha256"])


def _common(parts: HostParts) -> dict[str, t.Any]:
    data = f"/var/lib/private/{parts.unit.removesuffix('.service')}"
    return {
        "service": parts.site.name,
        "unit": parts.unit,
        "unit_file": parts.unit_file,
        "ready": parts.ready,
        "data": data,
    }


def _keep(order: DeployOrder, result: Result) -> Result:
    if not order.check:
        deployed.write_deployed(order.home, order.service.name, describe(order, result["endpoint"], backend="hosts"))
    return result


def _read_address(address: str) -> tuple[str, str]:
    """Return an address as it is in a URL, and where to listen for it: a name is not an address of this host alone."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address, "0.0.0.0"
    return (f"[{found}]" if found.version == 6 else str(found)), str(found)


def _same(there: t.Mapping[str, t.Any] | None, wanted: t.Mapping[str, t.Any]) -> bool:
    digest = hashlib.sha256(str(wanted["text"]).encode()).hexdigest()
    return there is not None and there["sha256"] == digest and there["mode"] == wanted["mode"]


def _digest(values: t.Sequence[str]) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()
