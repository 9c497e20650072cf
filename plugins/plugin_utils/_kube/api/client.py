# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of one API server: read, list, create, apply, patch, delete, watch and follow logs."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping, Sequence

from ....module_utils._http.messages import HttpRequest, Method
from ....module_utils._http.version import USER_AGENT
from ....module_utils._model.cluster_id import build_cluster_id, is_same_cluster
from ....module_utils._model.errors import RefusedError, TransportError
from . import discovery, pages
from .errors import KubeError, refusal_error
from .kinds import JsonObject, KubeObject, ObjectList, Resource, identity, title
from .pages import ListPage
from .transport import ApiTransport

if t.TYPE_CHECKING:
    from .logs import LogStream
    from .watch import WatchStream

MANAGER = "muster"
Query = list[tuple[str, str]]
KindRef = str | Resource | KubeObject
_PAGE = 500
# One for all requests: json.dumps creates an encoder in each call.
_JSON = json.JSONEncoder(separators=(",", ":"), default=str)
_PATCHES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
# A resource, the object's title in errors, its namespace and its name.
_Address = tuple[Resource, str, str | None, str]
Propagation = t.Literal["Background", "Foreground", "Orphan"]


class Client:
    """One API server as one user; threads may share it.

    A kind is given as ``"apps/v1/Deployment"``, as ``"Pod"``, ``"pods"`` or ``"jobset"`` (looked up), as a
    :class:`Resource`, or as an object that has apiVersion and kind. ``namespace`` None means the whole cluster for
    lists and watches, and the kubeconfig's namespace for single objects.

    All calls raise :class:`KubeError` for an error status and ``TransportError`` when no answer came. A server that
    has answered before may be unreachable for ``patience_s`` seconds; requests that may be repeated wait for it. 429
    and Retry-After are honoured.
    """

    def __init__(
        self,
        transport: ApiTransport,
        *,
        namespace: str = "default",
        catalog: discovery.Catalog | None = None,
        authority: str = "",
    ) -> None:
        self.transport = transport
        self.namespace = namespace
        # SHA-256 of the CA that the kubeconfig has of this cluster, empty for one that has none of its own.
        self.authority = authority
        self.server = str(transport.server)
        self.catalog = catalog or discovery.Catalog(self.discover)

    @property
    def requests(self) -> int:
        """How many requests were sent, watches and repetitions included."""
        return self.transport.stats.requests

    @property
    def writes(self) -> int:
        """How many of them could change something (dry runs included)."""
        return self.transport.stats.writes

    def resource(self, kind: KindRef) -> Resource:
        """Return the resource of a kind."""
        if isinstance(kind, Resource):
            return kind
        if isinstance(kind, str):
            return self.catalog.find_by_name(kind)
        return self.catalog.find(str(kind.get("apiVersion")), str(kind.get("kind")))

    def get(
        self, kind: KindRef, name: str, namespace: str | None = None, *, subresource: str | None = None
    ) -> KubeObject | None:
        """Return one object, None when it does not exist."""
        resource = self.resource(kind)
        space = self._namespace(resource, namespace)
        request = self._request("GET", resource.path(space, name, subresource))
        response = self.transport.send(title(resource.kind, space, name), request, allow=(404,))
        return None if response.status == 404 else self._object(request, response.body)

    def list(
        self,
        kind: KindRef,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = _PAGE,
        whole: bool = True,
        patient: bool = True,
    ) -> ListPage:
        """Return the objects that match the selectors, page by page; with ``whole`` false the first page only.

        With ``patient`` false an outage is raised after seconds.
        """
        resource = self.resource(kind)
        what = f"listing {title(resource.kind, namespace, None)}"
        items: dict[str, KubeObject] = {}
        token, restarted = "", False
        tokens: set[str] = set()
        while True:
            query = [*_selectors(labels, fields), ("limit", str(limit)), *([("continue", token)] if token else [])]
            request = self._request("GET", resource.path(namespace), query)
            allow = (410,) if token and not restarted else ()
            response = self.transport.send(what, request, allow, patient=patient)
            if response.status == 410:
                # The page's version is gone from the server's memory: begin again, whole this time.
                items, token, restarted, limit, tokens = {}, "", True, 0, set()
                continue
            page = t.cast(ObjectList, self._object(request, response.body))
            meta = page.get("metadata") or {}
            items |= {_object_key(item): item for item in pages.list_items(page, resource)}
            next_token = str(meta.get("continue") or "")
            if not next_token or not whole:
                version = str(meta.get("resourceVersion") or "")
                return ListPage(list(items.values()), version, pages.remaining_count(meta))
            if next_token in tokens:
                fix = "Check which server answers at the API server's address"
                raise TransportError(f"{what}: {self.server} returns the same page again and again", fix)
            tokens.add(next_token)
            token = next_token

    def create(self, value: KubeObject, *, dry_run: bool = False) -> KubeObject:
        """Create an object; an existing one of this name is a :class:`KubeError` with status 409."""
        resource, what, space, _unused = self._target(value)
        request = self._request("POST", resource.path(space), _write_query(dry_run, MANAGER), value)
        return self._object(request, self.transport.send(what, request).body)

    def apply(
        self,
        value: KubeObject,
        manager: str = MANAGER,
        *,
        force: bool = False,
        dry_run: bool = False,
        subresource: str | None = None,
    ) -> KubeObject:
        """Create or update an object by server-side apply and return it as the server has it then.

        Fields that another manager owns with another value are a :class:`KubeError` with status 409 that names manager
        and fields, unless ``force``.
        """
        resource, what, space, name = self._target(value)
        # Server-side apply by itself refuses fields that a built-in kind does not have (tests/kube_api tests every
        # field); validating them a second time is a sixth of the server's work.
        query = [*_write_query(dry_run, manager, not resource.built_in), ("force", "true" if force else "false")]
        path = resource.path(space, name, subresource)
        request = self._request("PATCH", path, query, value, "application/apply-patch+yaml", repeatable=True)
        return self._object(request, self.transport.send(what, request).body)

    def patch(
        self,
        kind: KindRef,
        name: str,
        body: Mapping[str, object] | Sequence[JsonObject],
        namespace: str | None = None,
        *,
        how: t.Literal["merge", "json", "strategic"] = "merge",
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> KubeObject:
        """Change parts of an object; ``how`` is the kind of patch (RFC 7386, RFC 6902, strategic)."""
        resource = self.resource(kind)
        space = self._namespace(resource, namespace)
        path = resource.path(space, name, subresource)
        query = _write_query(dry_run, MANAGER)
        request = self._request("PATCH", path, query, body, _PATCHES[how], repeatable=how != "json")
        return self._object(request, self.transport.send(title(resource.kind, space, name), request).body)

    def delete(
        self,
        kind: KindRef,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "Background",
        uid: str = "",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Delete an object; false when it does not exist. With ``uid`` only the object that has it."""
        resource = self.resource(kind)
        space = self._namespace(resource, namespace)
        body: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        body |= {"preconditions": {"uid": uid}} if uid else {}
        body |= {"gracePeriodSeconds": grace_s} if grace_s is not None else {}
        body |= {"dryRun": ["All"]} if dry_run else {}
        request = self._request("DELETE", resource.path(space, name), [], body)
        # 409 to a uid: another object has the name by then.
        allow = (404, 409) if uid else (404,)
        return self.transport.send(title(resource.kind, space, name), request, allow=allow).status < 300

    def evict(self, pod: KubeObject, *, dry_run: bool = False) -> str:
        """Evict a pod as far as disruption budgets allow; return why it was refused, empty when the pod terminates.

        Only this very pod: another one of its name is not touched.
        """
        meta = pod["metadata"]
        options: JsonObject = {"preconditions": {"uid": meta["uid"]}, **({"dryRun": ["All"]} if dry_run else {})}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"]}}
        path = self.resource("v1/Pod").path(str(meta["namespace"]), str(meta["name"]), "eviction")
        request = self._request("POST", path, [], {**body, "deleteOptions": options}, repeatable=True)
        what = title("Pod", str(meta["namespace"]), str(meta["name"]))
        try:
            response = self.transport.send(what, request, allow=(404, 409, 429))
        except KubeError as refused:
            # In a terminating namespace nothing can be created, not even an eviction: its pods terminate with it.
            if "NamespaceTerminating" not in {reason for reason, *_rest in refused.causes}:
                raise
            return ""
        # A disruption budget that is used up answers 429.
        return refusal_error(what, response).detail if response.status == 429 else ""

    def watch(
        self,
        kind: KindRef,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        since: str | None = None,
        timeout_s: float | None = None,
    ) -> WatchStream:
        """Return an iterator of :class:`watch.WatchEvent`: first the existing objects, then each change.

        It continues after bookmarks, closed connections, an expired version (410: everything is listed again and an
        object that was deleted meanwhile comes as ``DELETED``) and an API server that is unreachable for less than the
        client's ``patience_s``. It ends after ``timeout_s``, or when another thread calls its ``close()``. With
        ``since`` (a resourceVersion) nothing is listed first.
        """
        # Ansible compiles what it loads in each run; most tasks neither watch nor read logs.
        from . import watch

        source = watch.WatchSource(self, self.resource(kind), namespace, tuple(_selectors(labels, fields)))
        return watch.WatchStream(source, since=since, timeout_s=timeout_s)

    def stream_log(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,
        *,
        follow: bool = True,
        previous: bool = False,
        timestamps: bool = False,
        since: str | None = None,
        tail: int | None = None,
        after: tuple[str, int] | None = None,
        uid: str | None = None,
        timeout_s: float | None = None,
    ) -> LogStream:
        """Return an iterator of a container's log lines (bytes, without the line's end).

        ``since`` is an RFC 3339 time, ``after`` the stream's ``position`` at a line that was read before, ``uid`` that
        of the pod where others may have its name. After a broken connection, and after an end that is not the
        container's, it continues behind the last line, none lost and none twice. It ends when the container has ended,
        after ``timeout_s``, or when another thread calls ``close()``.
        """
        from . import logs

        request = logs.LogRequest(namespace, pod, container, follow, previous, timestamps, since, tail, after, uid)
        return logs.LogStream(self.transport, request, timeout_s=timeout_s)

    def cluster_id(self) -> str:
        """Return the id of this cluster: the uid of its namespace kube-system, as far as it may be read, and its CA."""
        try:
            namespace = self.get("v1/Namespace", "kube-system") or {}
        except KubeError as error:
            if error.status != 403:
                raise
            namespace = {}
        return build_cluster_id(str((namespace.get("metadata") or {}).get("uid") or ""), self.authority)

    def expect_cluster(self, expected_id: str) -> None:
        """Raise :class:`RefusedError` when this cluster is not proven to be the one of :meth:`cluster_id`."""
        cluster_id = self.cluster_id()
        if expected_id and not is_same_cluster(expected_id, cluster_id):
            fix = "Choose the kubeconfig and context of the cluster that was recorded"
            message = f"{self.server} is another cluster ({cluster_id or 'no id'}) than expected ({expected_id})"
            raise RefusedError(message, fix)

    def discover(self, path: str, headers: Mapping[str, str]) -> Mapping[str, object]:
        """Return a discovery document of the server."""
        request = HttpRequest("GET", path, headers={"Accept": "application/json", **headers})
        return self._object(request, self.transport.send(f"discovery {path}", request).body)

    def _namespace(self, resource: Resource, namespace: str | None) -> str | None:
        return (namespace or self.namespace) if resource.namespaced else None

    def _target(self, value: KubeObject) -> _Address:
        api_version, kind, name = identity(value)
        resource = self.catalog.find(api_version, kind)
        space = self._namespace(resource, value["metadata"].get("namespace"))
        return resource, title(kind, space, name), space, name

    def _request(
        self,
        method: Method,
        path: str,
        query: Query | None = None,
        body: Mapping[str, object] | Sequence[JsonObject] | None = None,
        content: str = "application/json",
        *,
        repeatable: bool | None = None,
    ) -> HttpRequest:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        data: bytes | None = None
        if body is not None:
            headers["Content-Type"] = content
            data = _JSON.encode(body).encode()
        return HttpRequest(method, path, tuple(query or ()), headers, data, repeatable)

    def _object(self, request: HttpRequest, body: bytes) -> KubeObject:
        value = pages.decode_object(body)
        if value is None:
            fix = "Check the address of the API server, and whether a proxy or login page answers in its place"
            name = f"{request.method} {self.server}{request.path}"
            raise TransportError(f"{name}: unexpected answer ({len(body)} bytes)", fix, ambiguous=not request.safe)
        return value


def _write_query(dry_run: bool, manager: str, strict: bool = True) -> Query:
    query = [("fieldManager", manager), ("fieldValidation", "Strict" if strict else "Ignore")]
    return [*query, ("dryRun", "All")] if dry_run else query


def _selectors(labels: str, fields: str) -> Query:
    pairs = (("labelSelector", labels), ("fieldSelector", fields))
    return [(key, value) for key, value in pairs if value]


def _object_key(item: KubeObject) -> str:
    meta = item.get("metadata") or {}
    return str(meta.get("uid") or f"{meta.get('namespace')}/{meta.get('name')}")
