# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of one API server: read, list, create, apply, patch, delete, watch and follow logs.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping, Sequence

from ....module_utils._http.messages import HttpRequest, HttpResponse, Method
from ....module_utils._http.version import USER_AGENT
from ....module_utils._model.errors import RefusedError, TransportError
from . import discovery, pages
from .errors import KubeError, refusal
from .kinds import Object, Resource, identity, title
from .pages import Listing, Question
from .transport import Line

if t.TYPE_CHECKING:
    from .logs import LogStream
    from .watch import Watch

MANAGER = "muster"
Query = list[tuple[str, str]]
Kind = str | Resource | Mapping[str, t.Any]
_PAGE = 500
# So many requests are sent on one connection before the first is answered. Each write may take its time: more of them
# behind a slow one would wait for it while other connections have nothing to do.
_READS_AHEAD = 16
_WRITES_AHEAD = 4
# Made once: json.dumps makes one for each object.
_JSON = json.JSONEncoder(separators=(",", ":"), default=str)
_PATCHES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
# A resource, what errors call the object, its namespace and its name.
_Place = tuple[Resource, str, str | None, str]
Propagation = t.Literal["Background", "Foreground", "Orphan"]


class Client:
    """One API server as one user; threads may share it.

    A kind is given as ``"apps/v1/Deployment"``, as ``"Pod"``, ``"pods"`` or ``"jobset"`` (looked up), as a
    :class:`Resource`, or as an object that has apiVersion and kind. ``namespace`` None means the whole cluster for
    lists and watches, and the kubeconfig's namespace for single objects.

    All calls raise :class:`KubeError` for refusals and ``TransportError`` when no answer came. A server that has
    answered before may be away for ``patience_s`` seconds; requests that may be repeated wait for it. 429 and
    Retry-After are honoured.
    """

    def __init__(self, line: Line, *, namespace: str = "default", catalog: discovery.Catalog | None = None) -> None:
        self.line = line
        self.namespace = namespace
        self.server = str(line.server)
        self.catalog = catalog or discovery.Catalog(self.discover)

    @property
    def requests(self) -> int:
        """How many requests were sent, watches and repetitions included."""
        return self.line.tally.requests

    @property
    def writes(self) -> int:
        """How many of them could change something (dry runs included)."""
        return self.line.tally.writes

    def resource(self, kind: Kind) -> Resource:
        """Return where a kind lives."""
        if isinstance(kind, Resource):
            return kind
        if isinstance(kind, str):
            return self.catalog.named(kind)
        return self.catalog.find(str(kind.get("apiVersion")), str(kind.get("kind")))

    def get(
        self, kind: Kind, name: str, namespace: str | None = None, *, subresource: str | None = None
    ) -> Object | None:
        """Return one object, None when there is none."""
        found = self.resource(kind)
        place = self._place(found, namespace)
        request = self._request("GET", found.path(place, name, subresource))
        response = self.line.send(title(found.kind, place, name), request, allow=(404,))
        return None if response.status == 404 else self._object(request, response.body)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = _PAGE,
        whole: bool = True,
        patient: bool = True,
    ) -> Listing:
        """Return the objects that match the selectors, page by page; with ``whole`` false the first page only.

        With ``patient`` false an outage is raised after seconds.
        """
        found = self.resource(kind)
        what = title(found.kind, namespace, None)
        items: dict[str, Object] = {}
        token, restarted = "", False
        seen: set[str] = set()
        while True:
            query = [*_selectors(labels, fields), ("limit", str(limit)), *([("continue", token)] if token else [])]
            request = self._request("GET", found.path(namespace), query)
            allow = (410,) if token and not restarted else ()
            response = self.line.send(f"listing {what}", request, allow, patient=patient)
            if response.status == 410:
                # The page's version is gone from the server's memory: begin again, whole this time.
                items, token, restarted, limit, seen = {}, "", True, 0, set()
                continue
            answer = self._object(request, response.body)
            meta = answer.get("metadata") or {}
            items |= {_key(item): item for item in pages.items(answer, found)}
            following = str(meta.get("continue") or "")
            if not following or not whole:
                return Listing(list(items.values()), str(meta.get("resourceVersion") or ""), pages.remaining(meta))
            if following in seen:
                fix = "Check what answers at the address of the API server"
                raise TransportError(f"listing {what}: {self.server} gives the same page again, without end", fix)
            seen.add(following)
            token = following

    def read_together(self, questions: Sequence[Question]) -> Sequence[Listing | KubeError | None]:
        """Return the first page of what each question asks for, all asked at once; none of an object that is not there.

        None where that is not known: that question is to be asked by itself (:meth:`get`, :meth:`list`).
        """
        whats = [
            title(asked.resource.kind, self._place(asked.resource, asked.namespace), asked.name)
            if asked.name
            else f"listing {title(asked.resource.kind, asked.namespace, None)}"
            for asked in questions
        ]

        def make(number: int) -> HttpRequest:
            asked = questions[number]
            if asked.name:
                place = self._place(asked.resource, asked.namespace)
                return self._request("GET", asked.resource.path(place, asked.name), packed=True)
            query = [*_selectors(asked.labels, ""), ("limit", str(_PAGE))]
            return self._request("GET", asked.resource.path(asked.namespace), query, packed=True)

        answers = self.line.send_together(whats, make, depth=_READS_AHEAD)
        return [pages.first_page(asked, answer) for asked, answer in zip(questions, answers, strict=True)]

    def create(self, value: Object, *, dry_run: bool = False) -> Object:
        """Create an object; one of this name that is there already is a :class:`KubeError` with status 409."""
        found, what, place, _unused = self._target(value)
        request = self._request("POST", found.path(place), _write(dry_run, MANAGER), value)
        return self._object(request, self.line.send(what, request).body)

    def apply(
        self,
        value: Object,
        manager: str = MANAGER,
        *,
        force: bool = False,
        dry_run: bool = False,
        subresource: str | None = None,
    ) -> Object:
        """Create or update an object by server-side apply and return it as it is then.

        Fields that another manager owns with another value are a :class:`KubeError` with status 409 that names manager
        and fields, unless ``force``.
        """
        target = self._target(value)
        request = self._applying(value, target, manager, force=force, dry_run=dry_run, subresource=subresource)
        return self._object(request, self.line.send(target[1], request).body)

    def apply_together(
        self, values: Sequence[Object], manager: str = MANAGER, *, force: bool = False, dry_run: bool = False
    ) -> Sequence[Object | KubeError | None]:
        """Apply many objects at once, in any order, and return what each :meth:`apply` would return or raise.

        None where that is not known, such as after an outage: that object is to be applied by itself.
        """
        # Before connections are taken: a kind that is not known yet is asked for over one of them.
        targets = [self._target(value) for value in values]

        def make(number: int) -> HttpRequest:
            return self._applying(values[number], targets[number], manager, force=force, dry_run=dry_run)

        answers = self.line.send_together([target[1] for target in targets], make, depth=_WRITES_AHEAD)
        return [
            _applied(value, answer) if isinstance(answer, HttpResponse) else answer
            for value, answer in zip(values, answers, strict=True)
        ]

    def _applying(
        self, value: Object, target: _Place, manager: str, *, force: bool, dry_run: bool, subresource: str | None = None
    ) -> HttpRequest:
        found, _what, place, name = target
        # Server-side apply by itself refuses what a built-in kind does not have (tests/kube_api asks this of every
        # field); to look for it a second time is a sixth of the server's work.
        query = [*_write(dry_run, manager, not found.built_in), ("force", "true" if force else "false")]
        path = found.path(place, name, subresource)
        return self._request("PATCH", path, query, value, "application/apply-patch+yaml", repeatable=True)

    def patch(
        self,
        kind: Kind,
        name: str,
        body: t.Any,
        namespace: str | None = None,
        *,
        how: t.Literal["merge", "json", "strategic"] = "merge",
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Change parts of an object; ``how`` says what ``body`` is (RFC 7386, RFC 6902, strategic)."""
        found = self.resource(kind)
        place = self._place(found, namespace)
        path = found.path(place, name, subresource)
        request = self._request("PATCH", path, _write(dry_run, MANAGER), body, _PATCHES[how], repeatable=how != "json")
        return self._object(request, self.line.send(title(found.kind, place, name), request).body)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "Background",
        uid: str = "",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Ask for an object's removal; false when it is gone already. With ``uid`` only that very object."""
        found = self.resource(kind)
        place = self._place(found, namespace)
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        body |= {"preconditions": {"uid": uid}} if uid else {}
        body |= {"gracePeriodSeconds": grace_s} if grace_s is not None else {}
        body |= {"dryRun": ["All"]} if dry_run else {}
        request = self._request("DELETE", found.path(place, name), [], body)
        # Another object of this name in place of the one with the uid: that one is gone.
        allow = (404, 409) if uid else (404,)
        return self.line.send(title(found.kind, place, name), request, allow=allow).status < 300

    def evict(self, pod: Object, *, dry_run: bool = False) -> str:
        """Ask for a pod's removal as far as disruption budgets allow; return why not now, empty when it is on its way.

        Only this very pod: another one of its name is not touched.
        """
        meta = pod["metadata"]
        body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"]}}
        body["deleteOptions"] = {"preconditions": {"uid": meta["uid"]}, **({"dryRun": ["All"]} if dry_run else {})}
        path = self.resource("v1/Pod").path(str(meta["namespace"]), str(meta["name"]), "eviction")
        request = self._request("POST", path, [], body, repeatable=True)
        what = title("Pod", str(meta["namespace"]), str(meta["name"]))
        try:
            response = self.line.send(what, request, allow=(404, 409, 429))
        except KubeError as refused:
            # Nothing can be made in a namespace that goes, not even an eviction: its pods go with it.
            if "NamespaceTerminating" not in {reason for reason, *_rest in refused.causes}:
                raise
            return ""
        # 429 is how a budget says that it is spent.
        return refusal(what, response).detail if response.status == 429 else ""

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        since: str | None = None,
        timeout_s: float | None = None,
    ) -> Watch:
        """Return an iterator of :class:`watch.Event`: first what is there, then each change, as it happens.

        It goes on after bookmarks, closed connections, a version that the server forgot (410: everything is listed
        again and what vanished meanwhile comes as ``DELETED``) and an API server that is away for less than the
        client's ``patience_s``. It ends after ``timeout_s``, or when another thread calls its ``close()``. With
        ``since`` (a resourceVersion) nothing is listed first.
        """
        # Ansible compiles what it loads anew in each run; most tasks neither watch nor read logs.
        from . import watch

        source = watch.Source(self, self.resource(kind), namespace, tuple(_selectors(labels, fields)))
        return watch.Watch(source, since=since, timeout_s=timeout_s)

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
        timeout_s: float | None = None,
    ) -> LogStream:
        """Return an iterator of a container's log lines (bytes, without the line's end).

        ``since`` is an RFC 3339 time, ``after`` the stream's ``place`` of a line that was read before. A connection
        that breaks is taken up after the last line seen, none lost and none twice. It ends when the container ends,
        after ``timeout_s``, or when another thread calls ``close()``.
        """
        from . import logs

        wish = logs.Wish(namespace, pod, container, follow, previous, timestamps, since, tail, after)
        return logs.LogStream(self.line, wish, timeout_s=timeout_s)

    def cluster_id(self) -> str:
        """Return what tells this cluster from every other: the uid of its namespace kube-system."""
        found = self.get("v1/Namespace", "kube-system")
        return str(((found or {}).get("metadata") or {}).get("uid") or "")

    def expect_cluster(self, wanted: str) -> None:
        """Refuse to go on when this is another cluster than ``wanted`` (a :meth:`cluster_id`)."""
        seen = self.cluster_id()
        if wanted and seen != wanted:
            fix = "Choose the kubeconfig and context of the cluster that was recorded"
            raise RefusedError(f"{self.server} is another cluster ({seen or 'no id'}) than expected ({wanted})", fix)

    def discover(self, path: str, headers: Mapping[str, str]) -> t.Any:
        """Return what the server says about itself at a path."""
        request = HttpRequest("GET", path, headers={"Accept": "application/json", **headers})
        return self._object(request, self.line.send(f"discovery {path}", request).body)

    def _place(self, found: Resource, namespace: str | None) -> str | None:
        return (namespace or self.namespace) if found.namespaced else None

    def _target(self, value: Object) -> _Place:
        api_version, kind, name = identity(value)
        found = self.catalog.find(api_version, kind)
        place = self._place(found, value["metadata"].get("namespace"))
        return found, title(kind, place, name), place, name

    def _request(
        self,
        method: Method,
        path: str,
        query: Query | None = None,
        body: t.Any = None,
        content: str = "application/json",
        *,
        repeatable: bool | None = None,
        packed: bool = False,
    ) -> HttpRequest:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        if packed:
            headers["Accept-Encoding"] = "gzip"
        data: bytes | None = None
        if body is not None:
            headers["Content-Type"] = content
            data = _JSON.encode(body).encode()
        return HttpRequest(method, path, tuple(query or ()), headers, data, repeatable)

    def _object(self, request: HttpRequest, body: bytes) -> Object:
        value = pages.decoded(body)
        if value is None:
            fix = "Check the address of the API server, and whether a proxy or login page answers in its place"
            name = f"{request.method} {self.server}{request.path}"
            raise TransportError(f"{name}: unexpected answer ({len(body)} bytes)", fix, ambiguous=not request.safe)
        return value


def _applied(value: Object, answer: HttpResponse) -> Object | None:
    found = pages.decoded(answer.body)
    meta = value["metadata"]
    return found if found and pages.is_of(found, value["kind"], meta["name"], meta.get("namespace")) else None


def _write(dry_run: bool, manager: str, strict: bool = True) -> Query:
    query = [("fieldManager", manager), ("fieldValidation", "Strict" if strict else "Ignore")]
    return [*query, ("dryRun", "All")] if dry_run else query


def _selectors(labels: str, fields: str) -> Query:
    pairs = (("labelSelector", labels), ("fieldSelector", fields))
    return [(key, value) for key, value in pairs if value]


def _key(item: Object) -> str:
    meta = item.get("metadata") or {}
    return str(meta.get("uid") or f"{meta.get('namespace')}/{meta.get('name')}")
