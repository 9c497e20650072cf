# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies checkpoints between the nodes of a gang before its ranks begin, without a controller and without SSH keys.

Every supervisor serves the checkpoint folder of its node, at the node's address in the gang. Before a rank's program
starts, ``rank.py`` asks all nodes what they have and fetches what this one lacks (``checkpoint_copies.py``). Both sides
prove by HMAC that they have the run's key; each file is followed by its digest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import pathlib
import shutil
import socket
import threading
import time
import typing as t

from . import checkpoint_copies, files

# In the run's folder. With secrets: ``{key, node, folder, format, nodes {name: [host, port]}}``.
SPEC = "secrets/peers.json"
# What this node had when the ranks of a gang began here: ``{gang, entries}``.
_BEGUN = "begun.json"
_REACH_S = 20.0
_TIMEOUT_S = 20.0
_CHUNK = 1 << 20
_LONGEST_LINE = 256 << 20
_ROOM = 64 << 20
_MOST_AT_ONCE = 16
Row = dict[str, t.Any]


class PeerError(Exception):
    """A node that does not answer, or a file that is not what was listed."""


class UnreachablePeerError(PeerError):
    """A node to which there is no connection."""


def read_spec(run: pathlib.Path) -> Row | None:
    """Return how the nodes of a gang without a shared folder reach each other, None for any other run."""
    found = files.read_json(run / SPEC)
    return found if isinstance(found, dict) else None


def _folder_of(spec: Row) -> pathlib.Path:
    return pathlib.Path(spec["folder"]).expanduser()


def _sign(key: str, *parts: str) -> str:
    return hmac.new(key.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


class PeerServer:
    """Serves the checkpoint folder of a node to the other nodes of its gang, in threads of the supervisor."""

    def __init__(self, run: pathlib.Path) -> None:
        self._run = run
        self._asked: set[tuple[str, str]] = set()
        self._listener: socket.socket | None = None

    def start(self) -> None:
        """Listen at this node's address, and serve in the background.

        :raises OSError: when the port cannot be opened.
        """
        spec = read_spec(self._run)
        if spec is None or self._listener is not None:
            return
        host, port = spec["nodes"][spec["node"]]
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((host, port), family=family, backlog=1024)
        threading.Thread(target=self._serve, name="peers", daemon=True).start()

    def linger(self, beat: t.Callable[[], None], within_s: float = 10.0) -> None:
        """Wait until all nodes have asked what this one had when its ranks began: its program may end at once."""
        begun, spec = files.read_json(self._run / _BEGUN), read_spec(self._run)
        end = time.monotonic() + within_s
        if self._listener is None or not begun or not spec:
            return
        others = {(begun["gang"], node) for node in spec["nodes"] if node != spec["node"]}
        while not others <= self._asked and time.monotonic() < end:
            beat()
            time.sleep(0.02)

    def _serve(self) -> None:
        listener = t.cast(socket.socket, self._listener)
        while True:
            with contextlib.suppress(OSError):
                link = listener.accept()[0]
                threading.Thread(target=self._answer, args=(link,), name="peer", daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError), link:
            spec, nonce = read_spec(self._run), os.urandom(16).hex()
            link.settimeout(_TIMEOUT_S)
            link.sendall(f"{nonce}\n".encode())
            with link.makefile("rb") as stream:
                asked = json.loads(stream.readline(_CHUNK))
            key = str((spec or {}).get("key") or "")
            proof = _sign(key, nonce, asked["nonce"], asked["request"])
            if spec is None or not key or not hmac.compare_digest(proof, asked["mac"]):
                return
            request = json.loads(asked["request"])
            if request["op"] == "list":
                _send(link, key, asked["nonce"], self._list(spec, request))
                self._asked.add((request["gang"], request["node"]))
            else:
                _send_file(link, key, asked["nonce"], spec, request)

    def _list(self, spec: Row, request: Row) -> Row:
        """Return what this node has, or had when the ranks of the same gang began here."""
        begun = files.read_json(self._run / _BEGUN) or {}
        if begun.get("gang") == request["gang"]:
            return {"entries": begun["entries"], "begun": True}
        return {"entries": checkpoint_copies.list_entries(_folder_of(spec), spec["format"]), "begun": False}


def _send(link: socket.socket, key: str, nonce: str, value: Row) -> None:
    text = json.dumps(value)
    link.sendall((json.dumps({"answer": text, "mac": _sign(key, nonce, text)}) + "\n").encode())


def _send_file(link: socket.socket, key: str, nonce: str, spec: Row, request: Row) -> None:
    """Send a file of the listing, and after it its digest."""
    folder = _folder_of(spec)
    entries = checkpoint_copies.list_entries(folder, spec["format"])
    entry = next((item for item in entries if item.name == request["name"]), None)
    if entry is None or entry.files.get(request["path"]) != request["about"]:
        return _send(link, key, nonce, {"problem": f"{request['name']} has changed"})
    digest, size = hashlib.sha256(), request["about"][0]
    with open(folder / entry.name / request["path"] if request["path"] else folder / entry.name, "rb") as handle:
        before = os.fstat(handle.fileno())
        if before.st_size != size:
            return _send(link, key, nonce, {"problem": f"{request['name']} has changed"})
        _send(link, key, nonce, {"size": size, "mode": before.st_mode & 0o777})
        while size and (data := handle.read(min(_CHUNK, size))):
            size -= len(data)
            digest.update(data)
            link.sendall(data)
        after = os.fstat(handle.fileno())
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            # Written to while it was read; one whose name another file has taken meanwhile is whole.
            return _send(link, key, nonce, {"problem": f"{request['name']} has changed"})
    return _send(link, key, nonce, {"sha256": digest.hexdigest()})


class _Peer:
    """Another node of the gang, as this one asks it."""

    def __init__(self, spec: Row, node: str) -> None:
        self._spec, self.node = spec, node
        self.host, self.port = spec["nodes"][node]

    def ask(self, request: Row) -> Row:
        """Return the answer to a request.

        :raises PeerError: when there is none.
        """
        with self._open(request) as (stream, nonce):
            return self._read(stream, nonce)

    def fetch(self, request: Row, place: pathlib.Path) -> None:
        """Write a file of the other node to ``place``.

        :raises PeerError: when it does not come whole.
        """
        with self._open(request) as (stream, nonce), place.open("wb") as handle:
            head, digest = self._read(stream, nonce), hashlib.sha256()
            left = head["size"]
            while left:
                data = stream.read(min(_CHUNK, left))
                if not data:
                    raise PeerError(f"{self.node} sent a part of {request['name']} only")
                left -= len(data)
                digest.update(data)
                handle.write(data)
            if self._read(stream, nonce)["sha256"] != digest.hexdigest():
                raise PeerError(f"{request['name']} of {self.node} did not arrive as it was sent")
            handle.flush()
            os.fsync(handle.fileno())
            os.fchmod(handle.fileno(), head["mode"] | 0o600)

    @contextlib.contextmanager
    def _open(self, request: Row) -> t.Iterator[tuple[t.BinaryIO, str]]:
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as link, link.makefile("rb") as stream:
                link.settimeout(_TIMEOUT_S)
                theirs, ours = stream.readline(_CHUNK).decode().strip(), os.urandom(16).hex()
                text = json.dumps({"node": self._spec["node"], **request})
                proof = _sign(self._spec["key"], theirs, ours, text)
                link.sendall((json.dumps({"request": text, "nonce": ours, "mac": proof}) + "\n").encode())
                yield stream, ours
        except OSError as exc:
            raise UnreachablePeerError(f"{self.node} at {self.host}:{self.port}: {exc.strerror or exc}") from exc

    def _read(self, stream: t.BinaryIO, nonce: str) -> Row:
        line = stream.readline(_LONGEST_LINE)
        try:
            told = json.loads(line)
            if not hmac.compare_digest(_sign(self._spec["key"], nonce, told["answer"]), told["mac"]):
                raise PeerError(f"{self.node} at {self.host}:{self.port} has another key")
            answer: Row = json.loads(told["answer"])
        except (ValueError, KeyError, TypeError):
            raise PeerError(f"{self.node} at {self.host}:{self.port} ended the connection") from None
        if answer.get("problem"):
            raise PeerError(f"{self.node}: {answer['problem']}")
        return answer


class NodeCopies:
    """What one node copies from the others of its gang."""

    def __init__(self, run: pathlib.Path, spec: Row) -> None:
        self.run, self.spec = run, spec
        self.folder = _folder_of(spec)

    def list_own(self) -> list[checkpoint_copies.Entry]:
        """Return what lies in this node's checkpoint folder."""
        return checkpoint_copies.list_entries(self.folder, self.spec["format"])

    def list_of(self, node: str, gang: str) -> list[checkpoint_copies.Entry]:
        """Return what another node has, or had when the ranks of ``gang`` began there.

        :raises PeerError: when it does not answer.
        """
        answer = _Peer(self.spec, node).ask({"op": "list", "gang": gang})
        return [checkpoint_copies.Entry(*row) for row in answer["entries"]]

    def copy(self, wanted: t.Sequence[checkpoint_copies.Copy], kind: str) -> None:
        """Copy what is missing here, and record an event of ``kind`` for each entry.

        :raises PeerError: when there is no room, or no node has it.
        """
        needed = sum(size for copy in wanted for size, _at in copy.missing.values())
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < needed + _ROOM:
            raise PeerError(f"copying checkpoints needs {needed:,} bytes, and {self.folder} has {free:,} free")
        for copy in wanted:
            began = time.monotonic()
            source = self._copy_entry(copy)
            size = sum(size for size, _at in copy.missing.values())
            seconds = round(time.monotonic() - began, 3)
            self.note(kind, detail=copy.entry.name, source=source, bytes=size, seconds=seconds)

    def remove(self, names: t.Sequence[str]) -> None:
        """Remove former copies that a newer checkpoint has replaced."""
        _remove_copies(self.folder, names)

    def _copy_entry(self, copy: checkpoint_copies.Copy) -> str:
        """Fetch what is missing of one entry, put it in its place when all is there, and return from where it came."""
        name, problem = copy.entry.name, PeerError(f"no node has {copy.entry.name}")
        staged = self.folder / f".{name}.copying"
        for node in copy.sources:
            shutil.rmtree(staged, ignore_errors=True)
            try:
                for path, about in copy.missing.items():
                    place = staged / (path or name)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    request = {"op": "read", "name": name, "path": path, "about": about}
                    _Peer(self.spec, node).fetch(request, place)
                    os.utime(place, ns=(about[1], about[1]))
                _put_in_place(self.folder, staged, copy)
                return node
            except PeerError as exc:
                problem = exc
            finally:
                shutil.rmtree(staged, ignore_errors=True)
        raise problem

    def note(self, kind: str, **values: t.Any) -> None:
        line = {"at": time.time(), "kind": kind, "node": self.spec["node"], **values}
        with contextlib.suppress(OSError):
            files.append_json(self.run / "events.jsonl", line)


class _Gate(NodeCopies):
    """What one node does before the ranks of a gang begin on it."""

    def __init__(self, run: pathlib.Path, spec: Row, gang: str) -> None:
        super().__init__(run, spec)
        self.gang = gang
        self.peers = [_Peer(spec, node) for node in spec["nodes"] if node != spec["node"]]
        self.in_parts = False

    def copy_missing(self, first: bool) -> str:
        """Copy until every node has what it needs; return the problem, empty when there is none."""
        end, complete = time.monotonic() + _REACH_S, False
        while True:
            own = self.list_own()
            answers, problems = self._ask_all()
            if problems:
                if complete and time.monotonic() > end:
                    # It copied, and its program has ended since; one that was lost is the follower's to say.
                    return ""
                known = [*own, *(entry for answer in answers.values() for entry in answer["entries"])]
                if time.monotonic() > end:
                    return self._without(sorted(problems.items())[0][1], first and not known)
                time.sleep(0.1)
                self.spec = read_spec(self.run) or self.spec
                self.peers = [_Peer(self.spec, peer.node) for peer in self.peers]
                continue
            nodes = {node: [checkpoint_copies.Entry(*row) for row in answers[node]["entries"]] for node in answers}
            # In one order on all nodes.
            nodes = {node: nodes.get(node, own) for node in self.spec["nodes"]}
            plan = checkpoint_copies.plan_copies(nodes)
            mine = plan.copies.pop(self.spec["node"], [])
            if mine:
                self.copy(mine, "checkpoint_copied")
                end = time.monotonic() + _REACH_S
                continue
            self.remove(plan.stale.get(self.spec["node"], []))
            self.in_parts, complete = plan.in_parts, True
            if all(answers[node]["begun"] for node in plan.copies):
                return ""
            # The others' ranks would wait for those here, within limits of their own.
            end = time.monotonic() + _REACH_S
            time.sleep(0.2)

    def _without(self, problem: str, harmless: bool) -> str:
        if not harmless:
            return f"the checkpoints of the nodes cannot be compared: {problem}"
        self.note("checkpoints_not_compared", detail=problem)
        return ""

    def _ask_all(self) -> tuple[dict[str, Row], dict[str, str]]:
        answers: dict[str, Row] = {}
        problems: dict[str, str] = {}

        def ask(peers: t.Sequence[_Peer]) -> None:
            for peer in peers:
                try:
                    answers[peer.node] = peer.ask({"op": "list", "gang": self.gang})
                except PeerError as exc:
                    problems[peer.node] = str(exc)

        parts = [self.peers[number::_MOST_AT_ONCE] for number in range(min(_MOST_AT_ONCE, len(self.peers)))]
        threads = [threading.Thread(target=ask, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers, problems


def _put_in_place(folder: pathlib.Path, staged: pathlib.Path, copy: checkpoint_copies.Copy) -> None:
    """Move what was fetched to where programs look for it. The ledger is first: what was copied is never taken as own.

    A folder is new as a whole, or gets its missing files.
    """
    name, ledger = copy.entry.name, checkpoint_copies.read_ledger(folder)
    kept = ledger.get(name, {}).get("files", {})
    placed = {path: (staged / (path or name)).stat().st_mtime_ns for path in copy.missing}
    about = {**kept, **{path: [*copy.missing[path], at] for path, at in placed.items()}}
    files.write_json(folder / checkpoint_copies.LEDGER, {**ledger, name: {"whole": False, "files": about}}, 0o644)
    target = folder / name
    if "" not in copy.missing and not target.exists():
        staged.rename(target)
    else:
        for path in copy.missing:
            place = target / path if path else target
            place.parent.mkdir(parents=True, exist_ok=True)
            (staged / (path or name)).replace(place)
    files.write_json(folder / checkpoint_copies.LEDGER, {**ledger, name: {"whole": True, "files": about}}, 0o644)


def _remove_copies(folder: pathlib.Path, names: t.Sequence[str]) -> None:
    """Remove former copies that a newer checkpoint has replaced; what a program wrote beside them stays."""
    ledger = checkpoint_copies.read_ledger(folder)
    for name in names:
        for path, (size, _origin, at) in ledger.pop(name, {}).get("files", {}).items():
            place = folder / name / path if path else folder / name
            with contextlib.suppress(OSError):
                state = place.stat()
                if (state.st_size, state.st_mtime_ns) == (size, at):
                    place.unlink()
        for top, _folders, _files in os.walk(folder / name, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(top)
    if names:
        files.write_json(folder / checkpoint_copies.LEDGER, ledger, 0o644)


def pass_gate(run: pathlib.Path, gang: str, *, first: bool) -> str:
    """Have the checkpoints that the ranks of a gang need on this node; return why that failed, empty when it did not.

    :param first: the run begins: where nothing was saved yet, a node that cannot be reached is only noted.
    """
    spec = read_spec(run)
    if spec is None:
        return ""
    with open(run / "gate.lock", "w", encoding="utf-8") as lock:
        # Of the ranks of this node the first one does it; the others wait here.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (files.read_json(run / _BEGUN) or {}).get("gang") == gang:
            return ""
        gate = _Gate(run, spec, gang)
        try:
            problem = gate.copy_missing(first)
        except (PeerError, OSError) as exc:
            problem = f"checkpoints cannot be copied: {exc}"
        if problem:
            return problem
        entries = gate.list_own()
        files.write_json(run / _BEGUN, {"gang": gang, "entries": entries})
        newest = next((entry.name for entry in entries if entry.whole), None)
        gate.note("checkpoints_seen", gang=gang, detail=newest, folder=str(gate.folder), in_parts=gate.in_parts)
    return ""
