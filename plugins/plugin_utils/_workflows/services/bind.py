# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that are bound: read what the user asks for, check it from every node, leave the binding.

A service itself is never changed here.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
import typing as t

from ....module_utils._model import timestamps, validators
from ....module_utils._model.binding import Binding, Reachability, describe_matrix
from ....module_utils._model.cluster_id import is_other_cluster
from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.filesystem_mounts import MountPlan, plan_mount
from ....module_utils._model.juicefs_volume import PROVIDER as VOLUME
from ....module_utils._model.nfs_class import PROVIDER as CSI_NFS
from ....module_utils._model.service import MONITORING, Service, parse_services, refuse_rented
from ....module_utils._model.service_deploy import PodsSetting
from ....module_utils._model.shared_filesystem import source_of
from ..._hosts.node_client import NodeClient
from ..._kube.objects.apply_plan import run_parallel
from ..._services.component import certificate_of
from ..._services.components import find_component
from ..shared import bindings, credentials
from ..shared.deployed import point_at, read_credentials, read_deployed
from ..shared.kube_connection import open_client
from ..shared.pod_visits import PodVisits
from ..shared.progress import Progress
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome
from . import claim_check, store_check
from .deploy_filesystem import fill_volume
from .filesystem_check import FilesystemOrder
from .rented import list_rented

Result = dict[str, t.Any]
_NO_IMAGE: t.Final = "nothing says from which image they are made"
_PODS: t.Final = (
    "Set muster_services_pods: {namespace: NAME, image: IMAGE}, an image with Python such as that of the jobs"
)


@dataclasses.dataclass(frozen=True, slots=True)
class BindOrder:
    """What is bound: the cluster's state home, the nodes that must reach it, and whether anything may be written."""

    home: StateHome
    base: pathlib.Path
    check: bool
    require_all: bool
    progress: Progress
    pods: PodVisits | None = None
    open_cluster: credentials.OpenCluster | None = None


def run(request: RunRequest) -> Result:
    """Bring the bindings to the asked state and return the module's result."""
    options = request.options
    wanted = parse_services(options["services"])
    home = StateHome(options["state_home"], options["cluster"])
    order = BindOrder(home, request.base, request.check, bool(options["require_all"]), request.progress)
    open_cluster = functools.partial(open_client, options, request.base, request.progress.say)
    order = dataclasses.replace(order, pods=_open_pods(request), open_cluster=open_cluster)
    rented = list_rented(request)
    for service in wanted:
        if service.state == "present" and service.mode == "bind":
            refuse_rented(service, rented)
    found = _build_bindings(order, [service for service in wanted if service.state == "present"])
    # A controller that runs no job need not reach what pods do.
    hosts = request.hosts if order.pods is None or request.surroundings.machines else []
    systems = {binding.name: _order_filesystem(order, binding) for binding in found if binding.filesystem}
    try:
        results = _check(order, found, request.connect(hosts), systems)
        _require_usable(order, results)
    except MusterError:
        for system in systems.values():
            system.undo()
        raise
    found = [systems[binding.name].complete() if binding.name in systems else binding for binding in found]
    kept = [_keep(order, binding, results[binding.name]) for binding in found]
    gone = [_remove(order, service) for service in wanted if service.state == "absent"]
    # A service that is deployed later has no binding yet in check mode.
    is_new = len(found) + len(gone) < len(wanted)
    changed = is_new or any(gone) or any(new for _current, new in kept)
    return {"changed": changed, "bindings": [current.to_dict() for current, _new in kept]}


def list_all(options: t.Mapping[str, t.Any]) -> Result:
    """Return the result of ``service_binding_info``."""
    home = StateHome(options["state_home"], options["cluster"])
    name = options.get("name")
    found = [bindings.load_binding(home, str(name), "name")] if name else bindings.list_bindings(home)
    mounts, unmounted = plan_mounts(options.get("services"), found, home)
    return {
        "changed": False,
        "bindings": [binding.to_dict() for binding in found],
        "matrix": {binding.name: describe_matrix(binding.reachable_from, limit=1000) for binding in found},
        "mounts": [dataclasses.asdict(item) for item in mounts],
        "unmounted": unmounted,
    }


def plan_mounts(services: object, found: t.Sequence[Binding], home: StateHome) -> tuple[list[MountPlan], list[str]]:
    """Return what nodes are to mount, of the services that are given, else of the bindings, and what not any more.

    One that is to be deployed and is not yet is left out.
    """
    listed = parse_services(services) if services is not None else ()
    wanted = [item for item in (_find_server(home, service) for service in listed) if item is not None]
    gone = [service.name for service in wanted if service.state == "absent"]
    present = [service.to_binding(None) for service in wanted if service.state == "present" and service.filesystem]
    systems = present if services is not None else found
    mounts = [
        plan_mount(item, source_of(str(item.provider), item.endpoint, item.name))
        for item in systems
        if item.filesystem and item.filesystem.mount
    ]
    return mounts, gone


def is_bound(home: StateHome, base: pathlib.Path, service: Service) -> bool:
    """Return whether the binding of a service is what is asked for, whatever checks saw."""
    before = bindings.find_binding(home, service.name)
    known = read_deployed(home, service.name) if service.mode == "deploy" else None
    if before is None or (service.mode == "deploy" and known is None):
        return False
    wanted = build_binding(home, base, fill_deployed(home, service, known) if known else service)
    if before.filesystem is not None and wanted.filesystem is not None:
        # The first check has found it.
        marked = dataclasses.replace(wanted.filesystem, marker=before.filesystem.marker)
        wanted = dataclasses.replace(wanted, filesystem=marked)
    return before.is_same_service(wanted)


def _find_server(home: StateHome, service: Service) -> Service | None:
    if service.mode != "deploy" or service.filesystem is None or service.state == "absent":
        return service
    known = read_deployed(home, service.name)
    return fill_deployed(home, service, known) if known is not None else None


def _build_bindings(order: BindOrder, wanted: t.Sequence[Service]) -> list[Binding]:
    found = []
    for service in wanted:
        if service.mode == "deploy":
            known = read_deployed(order.home, service.name)
            if known is None and order.check:
                # Nothing is there yet that could be asked.
                continue
            service = fill_deployed(order.home, service, known)
        found.append(build_binding(order.home, order.base, service))
    return found


def build_binding(home: StateHome, base: pathlib.Path, service: Service) -> Binding:
    """Return what a service leaves for its users; nothing is checked yet.

    :raises InputError: when its CA cannot be read.
    :raises RefusedError: when a binding of another kind has its name.
    """
    before = bindings.find_binding(home, service.name)
    if before is not None and before.component != service.kind:
        raise RefusedError(
            f"muster_services.{service.name}: a binding of {before.component} has this name",
            "Name the new one otherwise, or remove the old one (state: absent)",
        )
    return service.to_binding(_read_ca(base, service))


def fill_deployed(home: StateHome, service: Service, known: t.Mapping[str, t.Any] | None) -> Service:
    """Return a service of mode deploy with the address and the place of its credentials.

    :raises RefusedError: when it was not deployed from here.
    """
    if known is None:
        fix = "Run the services playbook, which deploys it first"
        raise RefusedError(f"muster_services.{service.name}: it is not deployed for {home.folder.name}", fix)
    if service.filesystem is not None:
        # Nodes mount it, which is what it was deployed for.
        if known["provider"] == CSI_NFS:
            return dataclasses.replace(service, provider="storage_class")
        mounted = dataclasses.replace(service.filesystem, mount=True)
        if known["provider"] == VOLUME:
            return fill_volume(service, mounted, known)
        return dataclasses.replace(service, provider="nfs", endpoint=str(known["endpoint"]), filesystem=mounted)
    component = find_component(service.kind, service.provider, f"muster_services.{service.name}.provider")
    asks = not component.login_by_choice or bool(service.deploy and service.deploy.login)
    pointer = point_at(home, service.name, component.secret_keys) if asks else None
    address = str(known["endpoint"])
    credentials = read_credentials(home, service.name) or {}
    ca = certificate_of(credentials) if address.startswith("https:") else None
    return dataclasses.replace(service, provider=component.provider, endpoint=address, secret_ref=pointer, ca=ca)


def _open_pods(request: RunRequest) -> PodVisits | None:
    """Return where services are checked from the network of pods, None where that is not asked for.

    :raises InputError: naming the key that is missing.
    """
    given = request.options.get("pods")
    if not given:
        return None
    chosen = validators.section(PodsSetting)(given, "pods")
    client = open_client(request.options, request.base, request.progress.say)
    return PodVisits(client, chosen.namespace, chosen.image, chosen.python, chosen.pull_secrets, request.progress.say)


def _read_ca(base: pathlib.Path, service: Service) -> str | None:
    if service.ca is None or "-----BEGIN" in service.ca:
        return service.ca
    place = pathlib.Path(base, service.ca).expanduser()
    try:
        return place.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "not text"
        raise InputError(f"muster_services.{service.name}.ca", f"cannot read {place}: {reason}") from None


def _order_filesystem(order: BindOrder, binding: Binding) -> FilesystemOrder:
    """Return the check of a shared file system, which is known by its marker where it is bound already."""
    before = bindings.find_binding(order.home, binding.name)
    known = before.filesystem.marker if before and before.filesystem and before.endpoint == binding.endpoint else None
    return FilesystemOrder(binding, not order.check, known)


def _check(
    order: BindOrder,
    wanted: t.Sequence[Binding],
    remotes: t.Sequence[NodeClient],
    systems: t.Mapping[str, FilesystemOrder],
) -> dict[str, store_check.StoreResult]:
    """Return by service what hosts and pods saw, and the buckets that were made of a store that is deployed.

    All stores are checked at once, by one request to each host and one pod on each Node.

    :raises RefusedError: when one is deployed in a cluster and nothing says how it is asked there.
    """
    results = {binding.name: store_check.StoreResult() for binding in wanted}
    hosts: list[store_check.ServiceOrder] = []
    pods: list[store_check.ServiceOrder] = []
    for binding in wanted:
        option = f"muster_services.{binding.name}"
        if binding.component == "secrets":
            continue
        if binding.provider == "storage_class":
            pods += _order_class(order, systems[binding.name], option)
            continue
        if binding.component in store_check.SERVERS or binding.name in systems:
            hosts.append(systems.get(binding.name) or store_check.ServerOrder(binding))
            pods += [hosts[-1]] if order.pods is not None and not order.check else []
            continue
        is_deployed = binding.mode == "deploy"
        store = store_check.StoreOrder(
            binding,
            credentials.open_signer(binding, option, order.open_cluster),
            not order.check,
            is_deployed and not order.check,
        )
        known = read_deployed(order.home, binding.name) if is_deployed else None
        in_cluster = bool(known and known["backend"] == "kubernetes")
        if in_cluster and order.pods is None:
            raise RefusedError(f"{option}: it is in a cluster, where only pods reach it, and {_NO_IMAGE}", _PODS)
        # In check mode the buckets of a store that is deployed may be among what is made, and pods are not made.
        hosts += [store] if not in_cluster and not (is_deployed and order.check) else []
        pods += [store] if order.pods is not None and not order.check else []
    found = store_check.check_from_hosts(hosts, remotes) if hosts else []
    found += store_check.check_from_pods(pods, order.pods) if pods and order.pods is not None else []
    for service, result in zip([*hosts, *pods], found, strict=True):
        results[service.binding.name].add(result)
    _try_all(order, wanted, results)
    return results


def _try_all(order: BindOrder, wanted: t.Sequence[Binding], results: t.Mapping[str, store_check.StoreResult]) -> None:
    """Try the credentials of all services at once, of those that nodes reach where nodes reach them at all."""
    tried = [
        binding
        for binding in wanted
        if binding.component in _TRIES
        and (binding.component == "secrets" or any(row.ok for row in results[binding.name].rows))
    ]

    def attempt(binding: Binding) -> str:
        return _TRIES[binding.component](order, binding, f"muster_services.{binding.name}")

    for binding, untried in zip(tried, run_parallel(attempt, tried), strict=True):
        if untried:
            order.progress.say(f"service {binding.name}: its credentials were not tried, {untried}")


def _order_class(order: BindOrder, system: FilesystemOrder, option: str) -> list[store_check.ServiceOrder]:
    """Return what pods are to check of a StorageClass; in check mode it is only looked up.

    :raises RefusedError: when nothing says how pods are made, or the cluster has no such class.
    """
    if order.pods is None:
        raise RefusedError(f"{option}: only pods have the volumes of a StorageClass, and {_NO_IMAGE}", _PODS)
    known = claim_check.ClassCheck(system.binding, order.pods)
    known.require_class()
    known.find_pvc()
    return [] if order.check else [system]


# They refuse credentials that a service does not take, or return why they were not tried. From here alone: nodes get
# them with a job, not for a check, and values of a secrets service are read on the controller.
def _try_secrets(_order: BindOrder, binding: Binding, option: str) -> str:
    credentials.check_secrets(binding, option)
    return ""


def _try_tracker(order: BindOrder, binding: Binding, option: str) -> str:
    # Late: it needs the HTTP client, for which every other run would wait.
    from ..._services.tracking import tracker_access

    keys = credentials.read_tracker_keys(binding, option, order.open_cluster)
    untried = tracker_access.check_access(binding, keys, option)
    if not untried and not order.check and binding.provider != "wandb":
        tracker_access.check_artifacts(binding, keys, option)
    return untried


def _try_registry(order: BindOrder, binding: Binding, option: str) -> str:
    from ..._services.registry.check import check_access

    return check_access(binding, credentials.open_registry(binding, option, order.open_cluster), option)


def _try_monitoring(order: BindOrder, binding: Binding, option: str) -> str:
    from ..._services.monitoring import prometheus

    keys = credentials.read_monitoring_keys(binding, option, order.open_cluster)
    untried = prometheus.check_access(binding, keys, option)
    takes_metrics = binding.provider in (None, MONITORING[0])
    warning = "" if untried or not takes_metrics else prometheus.describe_window(binding, keys)
    if warning:
        order.progress.say(f"warning: service {binding.name}: {warning}")
    return untried


_TRIES: t.Final = {
    "secrets": _try_secrets,
    "tracking": _try_tracker,
    "registry": _try_registry,
    "monitoring": _try_monitoring,
}


def _require_usable(order: BindOrder, results: t.Mapping[str, store_check.StoreResult]) -> None:
    """Refuse services that nodes cannot use, with their matrices, before anything is written.

    :raises RefusedError: naming all of them.
    """
    problems, fixes = [], []
    for name, result in results.items():
        failed = [row for row in result.rows if not row.ok]
        if failed and (order.require_all or len(failed) == len(result.rows)):
            problems.append(f"service {name} cannot be used from all nodes: {describe_matrix(result.rows)}")
            fixes.append(failed[0].fix)
    if problems:
        fix = fixes[0] or "Correct it, or set muster_services_require_all: false to bind it for the other nodes"
        raise RefusedError("; ".join(problems), fix)


def _keep(order: BindOrder, binding: Binding, result: store_check.StoreResult) -> tuple[Binding, bool]:
    """Write the binding with its matrix; return it, and whether that changes more than what the check saw."""
    before = bindings.find_binding(order.home, binding.name)
    rows = [*result.rows, *_other_rows(order, before, binding, result.rows)]
    current = dataclasses.replace(binding, reachable_from=tuple(rows), checked_at=timestamps.format_time(time.time()))
    if not order.check:
        bindings.write_binding(order.home, current)
    order.progress.say(f"service {binding.name} at {binding.endpoint}: {describe_matrix(result.rows) or 'bound'}")
    for note in result.notes:
        order.progress.say(f"service {binding.name}: {note}")
    return current, bool(result.made) or before is None or not before.is_same_service(binding)


def _other_rows(
    order: BindOrder, before: Binding | None, binding: Binding, rows: t.Sequence[Reachability]
) -> list[Reachability]:
    """Return what an earlier check saw from nodes that are not part of this play, of the same service.

    A Node that has left the cluster has no row: one that comes by its name is another machine.
    """
    if before is None or not before.is_same_service(binding):
        return []
    seen = {(row.node, row.vantage) for row in rows}
    here = next((row.cluster_id for row in rows if row.cluster_id), None)
    found = [
        row
        for row in before.reachable_from
        if (row.node, row.vantage) not in seen and not is_other_cluster(row.cluster_id, here)
    ]
    of_pods = {row.node for row in found if here is not None and row.cluster_id == here}
    gone = order.pods.find_gone(of_pods) if of_pods and order.pods is not None else frozenset()
    return [row for row in found if row.vantage != "pod" or row.node not in gone]


def _remove(order: BindOrder, service: Service) -> bool:
    if order.check:
        return bindings.find_binding(order.home, service.name) is not None
    return bindings.remove_binding(order.home, service.name)
