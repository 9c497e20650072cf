# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and devices of a tailnet: short-lived keys with a ledger line, devices by id, the policy only when asked.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
from collections.abc import Mapping

from ...module_utils._model import validators
from ...module_utils._model.errors import InputError, RefusedError
from ...module_utils._model.lease import cluster_name
from ...module_utils._model.ledger import iso
from ...module_utils._node.files import write_atomic
from .._providers.tailscale.devices import Changes, Device, DeviceApi
from .._providers.tailscale.policy import PolicyApi
from .._providers.tailscale.provision import KeyOrder, parse_tags
from .._provision.api import ThreadScheduler
from .._provision.create import generate_token
from .._provision.create_key import KeyRequest, create_key
from .._provision.delete import delete_leases
from .._provision.delete_state import DeleteRequest
from .._provision.ledger.ledger_session import LedgerSession
from .._provision.ledger.ledger_store import LedgerWriter, read_ledger
from .node_pool.accounts import open_tailnet
from .node_pool.present import Context, Dict
from .shared.state_dir import StateHome

KEY_POOL = "key"
_MAX_EXPIRY_S = 90 * 86400


def ensure_key_present(options: Mapping[str, t.Any], context: Context) -> Dict:
    """Return the result of ``tailscale_key`` with state present: a new key in a file, never in the result."""
    scheduler = context.scheduler
    if scheduler is None:
        with ThreadScheduler() as real:
            return ensure_key_present(options, dataclasses.replace(context, scheduler=real))
    wanted = parse_tags(tuple(options["tags"]))
    expiry = validators.integer(60, _MAX_EXPIRY_S)(options["expiry_s"], "expiry_s")
    dest = context.base / pathlib.Path(options["dest"]).expanduser()
    if not dest.parent.is_dir():
        raise InputError("dest", f"{dest.parent} is not a folder")
    home = StateHome(options["state_home"], cluster_name(options["cluster"]))
    account = open_tailnet(options, context.externals)
    if context.check:
        return {"changed": True, "key_id": None, "expires": None, "dest": str(dest)}
    order = KeyOrder("", wanted, expiry, options["reusable"], options["ephemeral"], options["preauthorized"])
    deadline = iso(scheduler.now() + expiry)
    request = KeyRequest(home.folder.name, KEY_POOL, "auth_key", options.get("run_id"), deadline)
    with LedgerWriter(home.folder) as writer:
        session = LedgerSession(read_ledger(home.folder).events, writer)
        made = create_key(
            request,
            account,
            lambda name: account.mint(dataclasses.replace(order, name=name)),
            session,
            scheduler,
            generate_token,
        )
    write_atomic(dest, made.key.reveal().encode() + b"\n")
    return {"changed": True, "key_id": made.id, "expires": made.expires, "dest": str(dest)}


def ensure_key_absent(options: Mapping[str, t.Any], context: Context) -> Dict:
    """Return the result with state absent: one key, or every key that this cluster made, ended with proof."""
    scheduler = context.scheduler
    if scheduler is None:
        with ThreadScheduler() as real:
            return ensure_key_absent(options, dataclasses.replace(context, scheduler=real))
    home = StateHome(options["state_home"], cluster_name(options["cluster"]))
    wanted = options.get("key_id")
    leases = read_ledger(home.folder).leases.values()
    ours = [lease for lease in leases if lease.resource == "auth_key" and lease.open]
    meant = {lease.token for lease in ours if wanted is None or wanted in lease.ids}
    if context.check or not meant:
        return {"changed": bool(meant), "key_id": wanted}
    account = open_tailnet(options, context.externals)
    request = DeleteRequest(home.folder.name, scheduler.now() + validators.integer(10)(options["wait_s"], "wait_s"))
    with LedgerWriter(home.folder) as writer:
        session = LedgerSession(read_ledger(home.folder).events, writer)
        proof = delete_leases(
            request,
            lambda lease: lease.resource == "auth_key" and lease.token in meant,
            {account.name: account},
            session,
            scheduler,
        )
    result: Dict = {"changed": True, "key_id": wanted, "revoked": [lease.id for lease in proof.leases]}
    if proof.billing:
        words = "; ".join(f"{item.get('name')}: {item['problem']}" for item in proof.billing)
        result |= {"failed": True, "msg": f"not every key is proved gone: {words}"}
    return result


def ensure_device(options: Mapping[str, t.Any], context: Context) -> Dict:
    """Return the result of ``tailscale_device``: one device by id or by name, changed where it differs, or deleted."""
    account = open_tailnet(options, context.externals)
    api = DeviceApi(account.client)
    found = _find_device(api, options)
    if options["state"] == "absent":
        return _ensure_device_absent(api, found, context.check)
    if found is None:
        raise InputError("device_id" if options.get("device_id") else "name", "is no device of this tailnet")
    changes = Changes.between(
        found,
        tags=None if options.get("tags") is None else parse_tags(tuple(options["tags"])),
        routes=None if options.get("routes") is None else tuple(options["routes"]),
        authorized=options.get("authorized"),
    )
    _check_routes(found, changes)
    if changes.any and not context.check:
        api.apply(found.id, changes)
    after = changes.applied(found)
    return {
        "changed": changes.any,
        "device": after.to_dict(),
        "diff": {"before": found.to_dict(), "after": after.to_dict()},
    }


def _find_device(api: DeviceApi, options: Mapping[str, t.Any]) -> Device | None:
    """Return the device that is meant. A dead and a live device may share a name: then the one online is meant."""
    devices = api.all()
    wanted = options.get("device_id")
    if wanted:
        return next((item for item in devices if item.id == wanted), None)
    name = str(options["name"])
    named = [item for item in devices if name in (item.name, item.hostname, item.name.split(".")[0])]
    if len(named) > 1:
        online = [item for item in named if item.online]
        if len(online) != 1 or options["state"] == "absent":
            ids = ", ".join(item.id for item in named)
            raise RefusedError(f"{name} is the name of {len(named)} devices ({ids})", "Name one by device_id")
        return online[0]
    return named[0] if named else None


def _ensure_device_absent(api: DeviceApi, found: Device | None, check: bool) -> Dict:
    if found is None:
        return {"changed": False, "device": None, "diff": {"before": {}, "after": {}}}
    if not check:
        api.delete(found.id)
        if any(item.id == found.id for item in api.all()):
            raise RefusedError(f"{found.name} ({found.id}) is still listed after it was deleted", "Run it again")
    return {"changed": True, "device": None, "diff": {"before": found.to_dict(), "after": {}}}


def _check_routes(found: Device, changes: Changes) -> None:
    missing = sorted(set(changes.routes or ()) - set(found.advertised_routes))
    if missing:
        raise RefusedError(
            f"{found.name} does not advertise {', '.join(missing)}",
            "Let the node advertise them first, then enable them",
        )


def ensure_policy(options: Mapping[str, t.Any], context: Context) -> Dict:
    """Replace the tailnet's policy by a file's text, when asked to: validated first, and only if nobody changed it."""
    place = context.base / pathlib.Path(options["policy_file"]).expanduser()
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("policy_file", f"cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from None
    api = PolicyApi(open_tailnet(options, context.externals).client)
    before, etag = api.get()
    api.validate(text)
    changed = before.strip() != text.strip()
    if changed and not context.check:
        api.put(text, etag)
    return {"changed": changed, "device": None, "diff": {"before": before, "after": text}}
