# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage keys and devices of a tailnet: short-lived keys with a ledger line, devices by id, the policy on request."""

from __future__ import annotations

import dataclasses
import pathlib

from ...module_utils._model import validators
from ...module_utils._model.errors import InputError, RefusedError
from ...module_utils._model.lease import parse_cluster_name
from ...module_utils._model.timestamps import format_time
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
from .._provision.ledger.ledger_store import read_ledger
from .node_pool.accounts import ModuleResult, Options, open_tailnet
from .node_pool.present import Context
from .shared.open_ledger import await_ledger
from .shared.state_dir import StateHome

KEY_POOL = "key"
_MAX_EXPIRY_S = 90 * 86400


def ensure_key_present(options: Options, context: Context) -> ModuleResult:
    """Return the result of ``tailscale_key`` with state present: a new key in a file, never in the result."""
    scheduler = context.scheduler
    if scheduler is None:
        with ThreadScheduler() as real:
            return ensure_key_present(options, dataclasses.replace(context, scheduler=real))
    tags = _parse_tags(options["tags"])
    expiry = validators.integer(60, _MAX_EXPIRY_S)(options["expiry_s"], "expiry_s")
    dest = context.base / pathlib.Path(str(options["dest"])).expanduser()
    if not dest.parent.is_dir():
        raise InputError("dest", f"{dest.parent} is not a folder")
    home = StateHome(options["state_home"], parse_cluster_name(options["cluster"]))
    tailnet = open_tailnet(options, context.externals)
    if context.check:
        return {"changed": True, "key_id": None, "expires": None, "dest": str(dest)}
    order = KeyOrder("", tags, expiry, *(options[name] is True for name in ("reusable", "ephemeral", "preauthorized")))
    deadline = format_time(scheduler.now() + expiry)
    run_id = str(options["run_id"]) if options.get("run_id") else None
    request = KeyRequest(home.folder.name, KEY_POOL, "auth_key", run_id, deadline)
    with await_ledger(home) as writer:
        session = LedgerSession(read_ledger(home.folder).events, writer)
        created = create_key(
            request,
            tailnet,
            lambda name: tailnet.create_key(dataclasses.replace(order, name=name)),
            session,
            scheduler,
            generate_token,
        )
    write_atomic(dest, created.key.reveal().encode() + b"\n")
    return {"changed": True, "key_id": created.id, "expires": created.expires, "dest": str(dest)}


def ensure_key_absent(options: Options, context: Context) -> ModuleResult:
    """Return the result with state absent: the named keys, or every one of this cluster, deleted with proof."""
    scheduler = context.scheduler
    if scheduler is None:
        with ThreadScheduler() as real:
            return ensure_key_absent(options, dataclasses.replace(context, scheduler=real))
    home = StateHome(options["state_home"], parse_cluster_name(options["cluster"]))
    key_id = options.get("key_id")
    asked = options.get("key_ids") if key_id is None else [key_id]
    named = None if asked is None else set(_parse_texts(asked, "key_ids"))
    leases = read_ledger(home.folder).leases.values()
    open_keys = [lease for lease in leases if lease.resource == "auth_key" and lease.open]
    tokens = {lease.token for lease in open_keys if named is None or named & set(lease.ids)}
    if context.check or not tokens:
        return {"changed": bool(tokens), "key_id": key_id}
    tailnet = open_tailnet(options, context.externals)
    request = DeleteRequest(home.folder.name, scheduler.now() + validators.integer(10)(options["wait_s"], "wait_s"))
    with await_ledger(home) as writer:
        session = LedgerSession(read_ledger(home.folder).events, writer)
        proof = delete_leases(
            request,
            lambda lease: lease.resource == "auth_key" and lease.token in tokens,
            {tailnet.name: tailnet},
            session,
            scheduler,
        )
    result: ModuleResult = {"changed": True, "key_id": key_id, "revoked": [lease.id for lease in proof.leases]}
    if proof.billing:
        remaining = "; ".join(f"{item.get('name')}: {item['problem']}" for item in proof.billing)
        result |= {"failed": True, "msg": f"not every key is proved to be deleted: {remaining}"}
    return result


def _parse_texts(value: object, option: str) -> tuple[str, ...]:
    return validators.list_of(validators.text)(value, option)


def _parse_tags(value: object) -> tuple[str, ...]:
    return parse_tags(_parse_texts(value, "tags"))


def ensure_device(options: Options, context: Context) -> ModuleResult:
    """Return the result of ``tailscale_device``: one device by id or by name, changed where it differs, or deleted."""
    api = DeviceApi(open_tailnet(options, context.externals).client)
    device = _find_device(api, options)
    if options["state"] == "absent":
        return _ensure_device_absent(api, device, context.check)
    if device is None:
        raise InputError("device_id" if options.get("device_id") else "name", "does not name a device of this tailnet")
    changes = Changes.between(
        device,
        tags=None if options.get("tags") is None else _parse_tags(options["tags"]),
        routes=None if options.get("routes") is None else _parse_texts(options["routes"], "routes"),
        authorized=None if options.get("authorized") is None else options["authorized"] is True,
    )
    _check_routes(device, changes)
    if not changes.is_empty and not context.check:
        api.apply(device.id, changes)
    after = changes.apply_to(device)
    return {
        "changed": not changes.is_empty,
        "device": after.to_dict(),
        "diff": {"before": device.to_dict(), "after": after.to_dict()},
    }


def _find_device(api: DeviceApi, options: Options) -> Device | None:
    """Return the device of the options. Of several devices with one name, the one that is online is meant."""
    devices = api.list_devices()
    ident = options.get("device_id")
    if ident:
        return next((item for item in devices if item.id == ident), None)
    name = str(options["name"])
    named = [item for item in devices if name in (item.name, item.hostname, item.name.split(".")[0])]
    if len(named) > 1:
        online = [item for item in named if item.online]
        if len(online) != 1 or options["state"] == "absent":
            ids = ", ".join(item.id for item in named)
            raise RefusedError(f"{name} is the name of {len(named)} devices ({ids})", "Name one by device_id")
        return online[0]
    return named[0] if named else None


def _ensure_device_absent(api: DeviceApi, device: Device | None, check: bool) -> ModuleResult:
    if device is None:
        return {"changed": False, "device": None, "diff": {"before": {}, "after": {}}}
    if not check:
        api.delete(device.id)
        if any(item.id == device.id for item in api.list_devices()):
            raise RefusedError(f"{device.name} ({device.id}) is still listed after it was deleted", "Run it again")
    return {"changed": True, "device": None, "diff": {"before": device.to_dict(), "after": {}}}


def _check_routes(device: Device, changes: Changes) -> None:
    missing = sorted(set(changes.routes or ()) - set(device.advertised_routes))
    if missing:
        raise RefusedError(
            f"{device.name} does not advertise {', '.join(missing)}",
            "Let the node advertise them first, then enable them",
        )


def ensure_policy(options: Options, context: Context) -> ModuleResult:
    """Replace the tailnet's policy by a file's text: validated first, and only if it has not changed meanwhile."""
    path = context.base / pathlib.Path(str(options["policy_file"])).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("policy_file", f"cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from None
    api = PolicyApi(open_tailnet(options, context.externals).client)
    before, etag = api.get()
    api.validate(text)
    changed = before.strip() != text.strip()
    if changed and not context.check:
        api.put(text, etag)
    return {"changed": changed, "device": None, "diff": {"before": before, "after": text}}
