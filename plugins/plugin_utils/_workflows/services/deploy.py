# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that are deployed: a component on a host or in a cluster, with credentials that are made once and kept.

A second run changes nothing. ``state: absent`` removes what was made; what the service stores stays unless that is to
be deleted.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import ipaddress
import pathlib
import typing as t
import urllib.parse

from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.juicefs_volume import PROVIDER as VOLUME
from ....module_utils._model.nfs_class import PROVIDER as CSI_NFS
from ....module_utils._model.quantity import parse_quantity
from ....module_utils._model.service import Service, parse_services
from ....module_utils._model.service_deploy import Deploy, Retention, check_deploy
from ..._hosts import downloads
from ..._services import own_certificate
from ..._services.component import (
    ACCESS,
    DISK_SHARE,
    SECRET,
    TLS_CERTIFICATE,
    TLS_KEY,
    TLS_PLACES,
    ArtifactStore,
    BringUp,
    Component,
    Site,
)
from ..._services.components import require_deployable
from ..shared import bindings, credentials, deployed
from ..shared.digest_lock import DigestLock, find_lock
from ..shared.kube_connection import open_client
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome
from .alert_parts import Alerts, find_alerts
from .rented import list_rented

Result = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class DeployOrder:
    """One service that is deployed. ``rented``: address or name -> the machine that is not the user's own."""

    service: Service
    place: Deploy
    component: Component
    home: StateHome
    base: pathlib.Path
    lock: DigestLock
    source: str
    check: bool
    wait_s: int
    rented: t.Mapping[str, str]
    artifacts: ArtifactStore | None = None
    database: str = dataclasses.field(default="", repr=False)
    alerts: Alerts = Alerts()

    @property
    def option(self) -> str:
        """What errors call the place."""
        return f"muster_services.{self.service.name}.deploy"

    @property
    def port(self) -> int:
        """The port at which users reach the service."""
        return self.place.port or self.component.port

    @property
    def secure(self) -> bool:
        """Whether it serves HTTPS."""
        return self.component.secure or self.place.tls

    @property
    def scheme(self) -> str:
        """How it is reached."""
        return "https" if self.secure else "http"

    def describe_site(self, site: Site, names: t.Iterable[str]) -> Site:
        """Return where its program runs with what the service's entry says of it, and the names of its address."""
        found = tuple(dict.fromkeys((*names, *self.more_names)))
        return dataclasses.replace(
            site,
            names=found,
            login=self.place.login,
            artifacts=self.artifacts,
            database=self.database,
            proxy=self.place.proxy,
            peer=self.alerts.peer,
            webhook=self.alerts.webhook,
            webhook_token=self.alerts.webhook_token,
            config=self.alerts.config,
            in_cluster=self.place.namespace is not None,
            volume_bytes=self.volume_bytes,
            retention=self.place.retention or Retention(),
        )

    @property
    def volume_size(self) -> str:
        """How large the claim of its data is, as Kubernetes takes it."""
        return self.place.size or self.component.size

    @property
    def volume_bytes(self) -> int | None:
        """What the claim holds that is made for it, None on a host and for a claim of the user's."""
        if self.place.namespace is None or self.place.claim is not None:
            return None
        size = parse_quantity(self.volume_size)
        return None if size is None else int(size)

    @property
    def more_names(self) -> tuple[str, ...]:
        """Return the names of a tracker besides that of its address; those of a registry are mirrors of nodes."""
        return self.service.hosts if self.component.kind == "tracking" else ()

    @property
    def version(self) -> str:
        """The version that is deployed."""
        return self.place.version or downloads.default_version(self.component.provider)

    def require_credentials(
        self, there: t.Callable[[], dict[str, str] | None], places: t.Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the credentials: those that were kept, else those of the service, else new ones.

        :param there: returns the credentials of a service that runs already; raises RefusedError where it has them and
            does not tell.
        :param places: the addresses and names at which it is reached, for its certificate.
        """
        name = self.service.name
        kept = deployed.read_credentials(self.home, name)
        made = self.component.make_credentials()
        if kept is not None and not made.keys() <= kept.keys():
            place, missing = deployed.credentials_file(self.home, name), ", ".join(sorted(made.keys() - kept.keys()))
            raise RefusedError(
                f"{self.option}: {place} has no {missing}: it is of another program",
                "Give the new service another name: the data of the old one is kept by this name",
            )
        found = kept or there() or made
        if self.secure and found.get(TLS_PLACES) != ",".join(places):
            found = {**found, **self._certify(places)}
        if found != kept and not self.check:
            deployed.write_credentials(self.home, name, found)
        return found

    def _certify(self, places: t.Sequence[str]) -> dict[str, str]:
        """Return a new certificate for these addresses and names; one for others would be refused by clients."""
        addresses = [place for place in places if _is_address(place)]
        names = [place for place in places if place not in addresses]
        made = own_certificate.make(self.component.provider, addresses, names)
        key, certificate = (base64.b64encode(text.encode()).decode() for text in made)
        return {TLS_KEY: key, TLS_CERTIFICATE: certificate, TLS_PLACES: ",".join(places)}


def run(
    request: RunRequest, sources: t.Sequence[str], *, source: str = "", lock_file: str | None = None, wait_s: int = 120
) -> Result:
    """Bring one service to the asked state and return the module's result."""
    (service,) = parse_services([request.options["service"]]) or (None,)
    if service is None or service.mode != "deploy":
        raise InputError("service.mode", "must be deploy", "Services of other modes are not deployed")
    if service.kind == "shared_filesystem":
        return _export_filesystem(request, service)
    order = _plan(request, service, find_lock(sources, request.base, lock_file), source, wait_s)
    result = _bring_up(order, _bring(order, request))
    warnings = [order.component.warning] if order.component.warning and service.state == "present" else []
    return {**result, "warnings": warnings} if warnings else result


def is_settled(request: RunRequest, service: Service, sources: t.Sequence[str]) -> bool:
    """Return whether a service is in its cluster as it is asked for, runs, and is recorded; nothing is changed.

    Of one on a host, one that nodes mount and one that is to be removed that is not known: their roles look.
    """
    place = check_deploy(service.deploy, f"muster_services.{service.name}.deploy", service.kind)
    home = StateHome(request.options["state_home"], request.options["cluster"])
    is_known = deployed.read_deployed(home, service.name) is not None
    if place.host or service.kind == "shared_filesystem" or service.state == "absent" or not is_known:
        return False
    from . import deploy_cluster

    asked = dataclasses.replace(request, check=True)
    order = _plan(asked, service, find_lock(sources, request.base, None))
    cluster = deploy_cluster.open_cluster(order, request.options, request.progress.say)
    result = cluster.ensure_present()
    return not _bring_up(order, result)["changed"] and cluster.is_running(str(result["endpoint"]))


def _plan(request: RunRequest, service: Service, lock: DigestLock, source: str = "", wait_s: int = 120) -> DeployOrder:
    """Return what is to be deployed, or removed.

    :raises InputError: naming what is not to be done so.
    :raises RefusedError: naming what is there that must not be changed so.
    """
    option = f"muster_services.{service.name}"
    place = check_deploy(service.deploy, f"{option}.deploy", service.kind)
    home = StateHome(request.options["state_home"], request.options["cluster"])
    refuse_rented_place(service, place, list_rented(request))
    component = require_deployable(service, option)
    about = (request.base, lock, source, request.check, wait_s, list_rented(request))
    found = (
        _find_artifacts(request, home, service),
        _find_database(request, service),
        find_alerts(request, home, service),
    )
    order = DeployOrder(service, place, component, home, *about, *found)
    before = deployed.read_deployed(home, service.name)
    if before is not None:
        refuse_move(service, place, component.provider, before)
        _refuse_other_database(order, before)
    elif service.state == "present" or place.delete_data:
        refuse_other_data(order, deployed.read_removed(home, service.name))
    return order


def _find_artifacts(request: RunRequest, home: StateHome, service: Service) -> ArtifactStore | None:
    """Return the bucket that a tracker is to keep its files in, None for its own disk."""
    place, option = t.cast(Deploy, service.deploy), f"muster_services.{service.name}.deploy.artifacts"
    return find_bucket(request, home, service, place.artifacts, "artifacts", option)


def find_bucket(
    request: RunRequest, home: StateHome, service: Service, name: str | None, purpose: str, option: str
) -> ArtifactStore | None:
    """Return the bucket for a purpose of a bound object store, None where none is named, or it is not needed.

    In check mode the store may be among what would be bound first.

    :raises InputError: when that is not an object store with such a bucket, or its keys end.
    """
    if not name or service.state == "absent":
        return None
    if request.check and bindings.find_binding(home, name) is None:
        return None
    binding = bindings.load_binding(home, name, option)
    found = binding.find_resource(purpose)
    if binding.component != "object_store" or found is None:
        problem = f"'{binding.name}' has no bucket for {purpose}"
        raise InputError(option, problem, f"Name an object store whose resources have {{purpose: {purpose}}}")
    open_cluster = functools.partial(open_client, request.options, request.base, request.progress.say)
    keys = credentials.read_s3_keys(binding.secret_ref, option, open_cluster)
    if keys.session_token is not None:
        raise InputError(option, f"'{binding.name}' has the keys of a session, which ends", "Bind it with lasting keys")
    values = {ACCESS: keys.access_key.reveal(), SECRET: keys.secret_key.reveal()}
    region = binding.region or "us-east-1"
    return ArtifactStore(found.ref, binding.endpoint, region, binding.ca, values, binding.addressing)


def _find_database(request: RunRequest, service: Service) -> str:
    """Return the address of a tracker's database, empty for a file of its own."""
    pointer = t.cast(Deploy, service.deploy).database
    if pointer is None or service.state == "absent":
        return ""
    open_cluster = functools.partial(open_client, request.options, request.base, request.progress.say)
    option = f"muster_services.{service.name}.deploy.database"
    return credentials.read_database(pointer, option, open_cluster).reveal()


def _refuse_other_database(order: DeployOrder, before: t.Mapping[str, t.Any]) -> None:
    """Refuse a database in place of a file, and a file in place of it: runs would not come along.

    :raises RefusedError: naming both.
    """
    had, wanted = (
        ("PostgreSQL" if value else "a file of its own") for value in (before.get("database"), order.database)
    )
    if had != wanted and order.service.state == "present":
        raise RefusedError(
            f"{order.option}.database: {order.service.name} has its runs in {had}, and they would not come along to "
            f"{wanted}",
            "Give the new one another name, or remove the old one first (state: absent)",
        )


def _bring(order: DeployOrder, request: RunRequest) -> Result:
    """Do it on the host, or in the cluster, that the service names."""
    from . import deploy_cluster, deploy_host

    place, is_absent = order.place, order.service.state == "absent"
    if place.host:
        (remote,) = request.connect([place.host])
        work = deploy_host.ensure_absent if is_absent else deploy_host.ensure_present
        return work(order, remote, find_address(request, place))
    cluster = deploy_cluster.open_cluster(order, request.options, request.progress.say)
    return cluster.ensure_absent() if is_absent else cluster.ensure_present()


def find_address(request: RunRequest, place: Deploy) -> str:
    """Return the address by which nodes reach the host of a service.

    :raises InputError: when the inventory has no such host.
    """
    # Ansible's own mapping returns something else than None for a host that is not there.
    if str(place.host) not in request.hostvars:
        raise InputError("deploy.host", f"the inventory has no host {place.host}", "Name one of its hosts")
    host = request.hostvars[str(place.host)]
    return str(place.address or host.get("muster_address") or host.get("ansible_host") or place.host)


def _export_filesystem(request: RunRequest, service: Service) -> Result:
    from . import deploy_class, deploy_filesystem, deploy_volume

    place = check_deploy(service.deploy, f"muster_services.{service.name}.deploy", service.kind)
    home = StateHome(request.options["state_home"], request.options["cluster"])
    refuse_rented_place(service, place, list_rented(request))
    if service.provider == VOLUME:
        return deploy_volume.run(request, service, place, home)
    if service.provider == CSI_NFS:
        return deploy_class.run(request, service, place, home)
    address = find_address(request, place)
    before = deployed.read_deployed(home, service.name)
    if before is not None:
        refuse_move(service, place, "nfs", before)
    return deploy_filesystem.run(request, service, place, home, address)


def _bring_up(order: DeployOrder, result: Result) -> Result:
    """Have a program that runs serve, where it does not do so by itself. One that is new in check mode does not run."""
    component, home, name = order.component, order.home, order.service.name
    if component.bring_up is None or order.service.state == "absent" or (order.check and result["changed"]):
        return result
    asked = BringUp(
        option=order.option,
        endpoint=str(result["endpoint"]),
        place=str(deployed.credentials_file(home, name)),
        credentials=lambda: deployed.read_credentials(home, name) or {},
        keep=lambda values: deployed.write_credentials(home, name, values),
        check=order.check,
        wait_s=order.wait_s,
    )
    return {**result, "changed": component.bring_up(asked) or result["changed"]}


def _is_address(place: str) -> bool:
    try:
        ipaddress.ip_address(place)
    except ValueError:
        return False
    return True


def refuse_rented_place(service: Service, place: Deploy, rented: t.Mapping[str, str]) -> None:
    """Refuse a machine that will be terminated.

    :raises RefusedError: naming it.
    """
    for key in ("host", "node", "address"):
        name = getattr(place, key)
        if name and name in rented and service.state == "present":
            raise RefusedError(
                f"muster_services.{service.name}.deploy.{key}: {name} is rented ({rented[name]}): what a service "
                "stores there is gone when it is terminated",
                "Name a machine that you own",
            )


def refuse_move(service: Service, place: Deploy, provider: str, before: t.Mapping[str, t.Any]) -> None:
    """Refuse another place or program than the service has: its data would not come along, nor would it be removed.

    :raises RefusedError: naming both.
    """
    option = f"muster_services.{service.name}.deploy"
    if before["provider"] != provider:
        raise RefusedError(
            f"{option}: {service.name} is deployed as {before['provider']}, whose data {provider} cannot read",
            "Give the new one another name, or remove the old one with its data first (deploy.delete_data)",
        )
    wanted = {"host": place.host, "namespace": place.namespace}
    if before["place"] != wanted:
        was, now = ((item["host"] or f"namespace {item['namespace']}") for item in (before["place"], wanted))
        raise RefusedError(
            f"{option}: {service.name} is deployed at {was}, and its data would not come along to {now}",
            "Remove it there first (state: absent), or give the new one another name",
        )


def refuse_taken_port(order: DeployOrder, endpoint: str) -> None:
    """Refuse the address and port at which another service that was deployed from here is reached.

    :raises RefusedError: naming that one.
    """
    asked = urllib.parse.urlsplit(endpoint).netloc
    for name, about in deployed.list_deployed(order.home).items():
        if name != order.service.name and urllib.parse.urlsplit(about["endpoint"]).netloc == asked:
            raise RefusedError(
                f"{order.option}.port: {name} is reached at {asked} already",
                f"Give {order.service.name} another port (deploy.port), or another machine",
            )


def refuse_small_disk(order: DeployOrder, site: Site, where: str, has: int) -> None:
    """Refuse data that would fill their disk: the program stops there, and so may its machine.

    :param has: the bytes of the claim, or those that are free on the disk before anything is stored.
    :raises RefusedError: with the bound that fits.
    """
    stored, room = order.component.size_limit(site), int(has * DISK_SHARE)
    if stored is not None and stored > room:
        fits = room // 10**9
        lower = f"Write deploy.retention: {{gb: {fits}}} or less, or give it more room" if fits else "Give it more room"
        raise RefusedError(
            f"{order.option}: {order.component.provider} keeps up to {stored / 1e9:.1f} GB, and {where} has room for "
            f"{room / 1e9:.1f} GB",
            lower,
        )


def refuse_other_data(order: DeployOrder, gone: t.Mapping[str, t.Any] | None) -> None:
    """Refuse the data of another program, which stayed when that one was removed.

    :raises RefusedError: naming both.
    """
    if gone is not None and gone["provider"] != order.component.provider:
        raise RefusedError(
            f"{order.option}: {order.service.name} was deployed as {gone['provider']} and removed without its data, "
            f"which {order.component.provider} cannot read",
            f"Give the new one another name, or delete that data first (provider: {gone['provider']}, state: absent, "
            "deploy.delete_data)",
        )


def describe(order: DeployOrder, endpoint: str, **more: t.Any) -> dict[str, t.Any]:
    """Return what is kept of a service that was deployed."""
    return {
        "schema": 1,
        "kind": order.service.kind,
        "provider": order.component.provider,
        "place": {"host": order.place.host, "namespace": order.place.namespace},
        "endpoint": endpoint,
        **({"database": True} if order.database else {}),
        **more,
    }
