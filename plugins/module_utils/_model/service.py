# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supporting services that a user asks for (``muster_services``), and the rules on them."""

from __future__ import annotations

import dataclasses
import re
import typing as t
import urllib.parse

from . import validators as f
from .binding import COMPONENTS, MODES, NAME_LIMIT, SECRET_PROVIDERS, Binding, BindingResource, SecretPointer
from .errors import InputError, RefusedError
from .filesystem_server import check_deployed
from .job_tracking import PROVIDERS as TRACKERS
from .nfs_class import PROVIDER as CSI_NFS
from .service_deploy import Deploy, check_deploy, is_address
from .service_registry import check_registry
from .shared_filesystem import Filesystem, check_path
from .shared_filesystem import check_service as check_filesystem

# Keys of ``deploy`` that some kinds have.
_DEPLOY_KEYS: t.Final[dict[str, str | tuple[str, ...]]] = {
    "login": "tracking",
    "artifacts": "tracking",
    "python": "tracking",
    "database": ("tracking", "shared_filesystem"),
    "store": "shared_filesystem",
    "export": "shared_filesystem",
    "clients": "shared_filesystem",
    "proxy": "registry",
    "collect": "registry",
    "alertmanager": "monitoring",
    "prometheus": "monitoring",
    "webhook": "monitoring",
    "config": "monitoring",
    "retention": "monitoring",
}
# Those that one program of monitoring has.
_MONITORING_KEYS: t.Final = {
    "alertmanager": "prometheus",
    "retention": "prometheus",
    "prometheus": "grafana",
    "webhook": "alertmanager",
    "config": "alertmanager",
}
# The programs of monitoring; metrics of jobs are sent to the first.
MONITORING: t.Final = ("prometheus", "alertmanager", "grafana")
# A name of a machine, as it is in an address.
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
# Amazon S3, "Bucket naming rules".
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_SECRET_KEYS: t.Final = {
    "object_store": ("access_key", "secret_key", "session_token"),
    "secrets": ("token", "client_id", "client_secret", "access_key", "secret_key", "session_token"),
    "tracking": ("token", "username", "password", "api_key"),
    "registry": ("username", "password"),
    "monitoring": ("token", "username", "password"),
}


def _read_authority(value: t.Any, path: str) -> str:
    """Return the name of a file, or the certificates themselves."""
    read = f.pem if isinstance(value, str) and "-----BEGIN" in value else f.text
    return read(value, path)


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """One entry of ``muster_services``."""

    name: str = f.field(f.name(NAME_LIMIT))
    kind: str = f.field(f.choice(*COMPONENTS))
    mode: str = f.field(f.choice(*MODES))
    state: str = f.field(f.choice("present", "absent"), "present")
    provider: str | None = f.field(f.text, None)
    endpoint: str | None = f.field(f.text, None)
    site: str | None = f.field(f.text, None)
    resources: tuple[BindingResource, ...] = f.field(f.list_of(f.section(BindingResource)), ())
    access_modes: tuple[str, ...] = f.field(f.list_of(f.choice("read", "write")), ("read", "write"))
    addressing: str = f.field(f.choice("path", "virtual"), "path")
    region: str | None = f.field(f.text, None)
    ca: str | None = f.field(_read_authority, None)
    secret_ref: SecretPointer | None = f.field(f.section(SecretPointer), None)
    env: dict[str, str] = f.field(f.environment, {})
    hosts: tuple[str, ...] = f.field(f.list_of(f.text), ())
    deploy: Deploy | None = f.field(f.section(Deploy), None)
    filesystem: Filesystem | None = f.field(f.section(Filesystem), None)

    @property
    def address(self) -> str:
        """The address of the service; that of AWS Secrets Manager follows from its region, of a path it is the path."""
        if self.kind == "shared_filesystem" and not self.endpoint and self.filesystem:
            of_class = self.filesystem.storage_class
            return f"storageclass/{of_class}" if of_class else self.filesystem.path or ""
        if self.endpoint or self.provider != "aws_secrets_manager" or not self.region:
            return self.endpoint or ""
        return f"https://secretsmanager.{self.region}.amazonaws.com"

    def _find_filesystem(self) -> Filesystem | None:
        """Return the file system; jobs have a claim of the service's name where no other one is named."""
        found = self.filesystem
        if found is None or found.storage_class is None:
            return found
        return dataclasses.replace(found, claim=found.claim or self.name)

    def to_binding(self, ca: str | None) -> Binding:
        """Return what this service leaves for its users; ``ca`` are the certificates that its ``ca`` names."""
        return Binding(
            name=self.name,
            component=self.kind,
            mode=self.mode,
            endpoint=self.address.rstrip("/"),
            provider=self.provider,
            site=self.site,
            resources=self.resources,
            access_modes=self.access_modes,
            addressing=self.addressing,
            region=self.region,
            ca=ca,
            secret_ref=self.secret_ref,
            env=self.env,
            hosts=self.hosts,
            filesystem=self._find_filesystem(),
        )


def parse_services(value: t.Any) -> tuple[Service, ...]:
    """Return the services of ``muster_services``; those of mode none are left out.

    :raises InputError: naming the entry and what is wrong with it.
    """
    found = f.list_of(f.section(Service))(value or [], "muster_services")
    names = [service.name for service in found]
    for service in found:
        if names.count(service.name) > 1:
            raise InputError("muster_services", f"'{service.name}' is listed twice", "Give each service its own name")
        if service.mode != "none":
            _check_service(service, f"muster_services.{service.name}")
    return tuple(service for service in found if service.mode != "none")


def refuse_rented(service: Service, rented: t.Mapping[str, str]) -> None:
    """Refuse a service on a machine that will be terminated.

    :param rented: address or name -> the node of the inventory that is not the user's own.
    :raises RefusedError: naming the node.
    """
    host = urllib.parse.urlsplit(service.address).hostname or ""
    if host in rented:
        raise RefusedError(
            f"muster_services.{service.name}.endpoint: {host} is the node {rented[host]}, which is rented: what it "
            "stores is gone when it is terminated",
            "Use a service on a machine that you own, or one of your provider",
        )


def _check_service(service: Service, where: str) -> None:
    if service.mode == "deploy":
        _check_deployed(service, where)
        return
    if service.deploy is not None:
        raise InputError(f"{where}.deploy", "is for mode: deploy")
    if service.kind == "shared_filesystem":
        check_filesystem(service, where)
        return
    if service.filesystem is not None:
        raise InputError(f"{where}.filesystem", "is for kind: shared_filesystem", "Leave it out")
    if not service.address:
        raise InputError(f"{where}.endpoint", "is required to bind a service", "Write its address, https://HOST:PORT")
    check_endpoint(service.address, f"{where}.endpoint")
    if service.hosts and service.kind != "registry":
        raise InputError(f"{where}.hosts", "is for kind: registry")
    _CHECKS[service.kind](service, where)
    _check_secret_keys(service, where)


def _check_deployed(service: Service, where: str) -> None:
    """Refuse what a service that is deployed says by itself: its address and its credentials."""
    place = check_deploy(service.deploy, f"{where}.deploy", service.kind)
    for key, kinds in _DEPLOY_KEYS.items():
        known = (kinds,) if isinstance(kinds, str) else kinds
        if getattr(place, key) and service.kind not in known:
            raise InputError(f"{where}.deploy.{key}", f"is for kind: {' and '.join(known)}", "Leave it out")
    for key in ("endpoint", "secret_ref", "ca", "region"):
        if getattr(service, key) is not None:
            raise InputError(f"{where}.{key}", "is for mode: bind: one that is deployed makes its own", "Leave it out")
    if service.addressing != "path":
        raise InputError(f"{where}.addressing", "must be path for a service that is deployed")
    if service.filesystem is not None and service.kind != "shared_filesystem":
        raise InputError(f"{where}.filesystem", "is for kind: shared_filesystem", "Leave it out")
    if service.hosts and service.kind not in ("registry", "tracking"):
        raise InputError(f"{where}.hosts", "is for kind: registry, and for a tracker that is deployed")
    if service.kind in _DEPLOY_CHECKS:
        _DEPLOY_CHECKS[service.kind](service, where)


def _check_deployed_registry(service: Service, where: str) -> None:
    check_registry(service, where)
    proxy = t.cast(Deploy, service.deploy).proxy
    if proxy is None:
        return
    check_endpoint(proxy, f"{where}.deploy.proxy")
    if service.resources:
        fix = "Leave it out, or deploy another one for images of your own"
        raise InputError(f"{where}.resources", "is not for a registry that pulls through: it takes no image", fix)


def _check_deployed_tracker(service: Service, where: str) -> None:
    if service.provider == "wandb":
        raise InputError(f"{where}.provider", "wandb is not deployed from here", "Use mode: bind, or provider: mlflow")
    _check_tracker(service, where)
    for name in service.hosts:
        if not _HOST_NAME.match(name):
            raise InputError(f"{where}.hosts", f"'{name}' is not the name of a machine", "Write it without a port")


def _check_deployed_filesystem(service: Service, where: str) -> None:
    check_deployed(service, t.cast(Deploy, service.deploy), where)
    if service.provider == CSI_NFS:
        return
    if service.state == "present":
        check_path(service.filesystem.path if service.filesystem else None, f"{where}.filesystem.path")


def _check_deployed_monitoring(service: Service, where: str) -> None:
    _check_monitoring(service, where)
    place, provider = t.cast(Deploy, service.deploy), service.provider or MONITORING[0]
    for key, owner in _MONITORING_KEYS.items():
        if getattr(place, key) and provider != owner:
            raise InputError(f"{where}.deploy.{key}", f"is for provider: {owner}", "Leave it out")
    for key in ("alertmanager", "prometheus"):
        named = getattr(place, key)
        if named and is_address(named):
            check_endpoint(named, f"{where}.deploy.{key}")
        elif named:
            f.name(NAME_LIMIT)(named, f"{where}.deploy.{key}")
    if provider == "grafana" and not place.prometheus and service.state == "present":
        fix = "Name a service of the kind monitoring, or an address: deploy: {namespace: NAME, prometheus: metrics}"
        raise InputError(f"{where}.deploy.prometheus", "is required: Grafana's dashboards read a Prometheus", fix)
    if place.webhook and place.config:
        raise InputError(f"{where}.deploy.config", "has receivers of its own", "Leave webhook out, or config")


def _check_secrets(service: Service, where: str) -> None:
    if service.provider not in (None, *SECRET_PROVIDERS):
        known = ", ".join(SECRET_PROVIDERS)
        raise InputError(f"{where}.provider", f"'{service.provider}' holds no secrets that are read from here", known)


def _check_tracker(service: Service, where: str) -> None:
    if service.provider not in (None, *TRACKERS):
        known = " or ".join(TRACKERS)
        raise InputError(f"{where}.provider", f"'{service.provider}' is not a tracker that is known", f"Use {known}")
    if service.resources:
        raise InputError(f"{where}.resources", "has no effect for a tracker", "Leave it out")
    if service.provider == "wandb" and service.ca:
        fix = "Add it to the certificates that the nodes and images trust"
        raise InputError(f"{where}.ca", "is not read by the W&B client", fix)
    if service.provider == "wandb" and service.secret_ref is None:
        raise InputError(f"{where}.secret_ref", "is required for wandb", "Name where api_key is: {from: env}")


def _check_monitoring(service: Service, where: str) -> None:
    if service.provider not in (None, *MONITORING):
        raise InputError(
            f"{where}.provider", f"'{service.provider}' is not known", f"Known are: {', '.join(MONITORING)}"
        )
    if service.resources:
        raise InputError(f"{where}.resources", "has no effect for monitoring", "Leave it out")


def _check_buckets(service: Service, where: str) -> None:
    if service.state == "present" and not service.resources:
        raise InputError(f"{where}.resources", "is required", "Name a bucket: [{purpose: checkpoints, ref: BUCKET}]")
    purposes = [item.purpose for item in service.resources]
    for item in service.resources:
        if not _BUCKET.match(item.ref.partition("/")[0]):
            raise InputError(
                f"{where}.resources.ref", f"'{item.ref}' does not begin with the name of a bucket",
                "Names have 3 to 63 lower-case letters, digits, dots and hyphens"
            )  # fmt: skip
        if ".." in item.ref.split("/"):
            raise InputError(f"{where}.resources.ref", "must not contain '..'")
        if purposes.count(item.purpose) > 1:
            raise InputError(f"{where}.resources", f"has two buckets for {item.purpose}")


_CHECKS: t.Final[dict[str, t.Callable[[Service, str], None]]] = {
    "object_store": _check_buckets,
    "secrets": _check_secrets,
    "tracking": _check_tracker,
    "registry": check_registry,
    "monitoring": _check_monitoring,
}


_DEPLOY_CHECKS: t.Final[dict[str, t.Callable[[Service, str], None]]] = {
    "object_store": _check_buckets,
    "registry": _check_deployed_registry,
    "tracking": _check_deployed_tracker,
    "shared_filesystem": _check_deployed_filesystem,
    "monitoring": _check_deployed_monitoring,
}


def _check_secret_keys(service: Service, where: str) -> None:
    for key in service.secret_ref.keys if service.secret_ref else ():
        known = _SECRET_KEYS[service.kind]
        if key not in known:
            raise InputError(f"{where}.secret_ref.keys.{key}", "is not a credential", f"Known are: {', '.join(known)}")
    if service.secret_ref and service.secret_ref.source != "env" and not service.secret_ref.path:
        raise InputError(f"{where}.secret_ref.path", f"is required with from: {service.secret_ref.source}")


def check_endpoint(value: str, option: str) -> None:
    """Refuse an address that is not one of a server, or that holds a credential.

    :raises InputError: never showing the address, which may hold a password.
    """
    try:
        parts = urllib.parse.urlsplit(value)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urllib.parse.SplitResult("", "", "", "", "")
    if parts.username or parts.password:
        raise InputError(option, "must not contain a user or a password", "Use secret_ref")
    if parts.scheme not in ("https", "http") or not host or parts.query or parts.fragment:
        raise InputError(option, "is not the address of a server", "Write https://HOST:PORT")
