# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How programs lay out their checkpoints: names and steps, what makes one whole, and what comes along with it.

Each layout is one entry of ``LAYOUTS``. What a program writes last, such as a card, a tool or an event file, is none.
A folder without a known layout is read by names alone (``checkpoints.py``).

Sources: the saving code of transformers (``Trainer._save_checkpoint``), accelerate (``save_state``), DeepSpeed
(``save_checkpoint``), Megatron-LM (``checkpointing.py``), Lightning (``ModelCheckpoint``), torchtune
(``FullModelHFCheckpointer``), Orbax and torch.distributed.checkpoint.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import json
import os
import pathlib
import re
import typing as t

UNFINISHED = (".tmp", ".part", ".partial", ".incomplete")
# Lightning's is the deepest: lightning_logs/version_0/checkpoints/NAME.ckpt, in a folder of the program.
_DEPTH = 5
# What Orbax has not finished has this in its name.
_TEMPORARY = ".orbax-checkpoint-tmp"
# Endings of checkpoints that are files.
_FILES = (".ckpt", ".pth")
_SMALL = 64 << 10
_ZIP = b"PK\x03\x04"
_ZIP_TAIL = 66_000
# Of safetensors (MAX_HEADER_SIZE in its source).
_MOST_HEADER = 100_000_000
# Logs, cards, tools and settings that programs write beside checkpoints.
_BESIDE = re.compile(
    r"tfevents|\.(?:md|py|ya?ml|csv|log|jsonl|out|err|html|png|lock)$"
    r"|^(?:latest\w*(?:\.txt)?|last_checkpoint|log\.txt|hparams\.\w+|(?:config|metrics)\.json)$"
)
# Where a file of the first name is, its library writes the second one last, into the same folder.
_MARKS: t.Final = (
    (re.compile(r"\.distcp$"), ".metadata"),
    (re.compile(r"^(?:optimizer|scheduler)\.pt$"), "trainer_state.json"),
    (re.compile(r"^(?:optimizer|scheduler)\.bin$"), "random_states_0.pkl"),
)
# Checkpoints that were whole: with which layout, and the times of their folder and of what is written last.
_MOST = 4096
_whole: dict[str, tuple[str, int, int | None]] = {}
# Small files that name the newest checkpoint beside them, of programs without a layout here.
_TRACKERS: t.Final = re.compile(r"^(?:latest\w*|last_checkpoint)(?:\.txt)?$")
_MOST_SAID = 4096
# What is said of a checkpoint without its mark or tracker.
_LAST: t.Final = "which is written last"
_UNNAMED: t.Final = "is not whole:"
Sizes = t.Mapping[str, int]


class Saved(t.NamedTuple):
    """A checkpoint: its path in the folder, and when it became complete (nanoseconds).

    :ivar problem: what it lacks, empty for a whole one. :ivar is_current: a tracker of the program names it.
    """

    name: str
    saved_at: int
    layout: str = "files"
    step: int | None = None
    problem: str = ""
    is_current: bool = False


class Layout(t.NamedTuple):
    """How one kind of program saves.

    :ivar is_one: whether a folder or a file is a checkpoint of this layout, by its name and the names in it.
    :ivar step: the first group of this is the step, in its name. The number of an epoch is none.
    :ivar mark: the file in it that is written last, empty where another sign says that it is whole.
    :ivar each: of the files of ranks that are written last of all on a node; one of them has to be there.
    :ivar tracker: the file beside it that names the newest whole one; it is written last.
    :ivar tools: what else comes along.
    :ivar by_name: the program takes the newest name when it resumes, whole or not.
    :ivar known_by: by what a checkpoint was recognised, for people.
    """

    is_one: t.Callable[[str, t.Collection[str]], bool]
    known_by: str
    step: re.Pattern[str] = re.compile(r"(?<![0-9])(?<!epoch)(?<!epoch[-_=])([0-9]+)(?!.*[0-9])", re.IGNORECASE)
    mark: str = ""
    each: str = ""
    tracker: str = ""
    tools: tuple[str, ...] = ()
    by_name: bool = False


def _match_name(pattern: str) -> t.Callable[[str, t.Collection[str]], bool]:
    expression = re.compile(pattern)
    return lambda name, _inside: bool(expression.search(name))


def _match_content(*patterns: str) -> t.Callable[[str, t.Collection[str]], bool]:
    expression = re.compile("|".join(patterns))
    return lambda _name, inside: any(expression.search(item) for item in inside)


# mp_rank_00_model_states.pt, bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt, layer_00-model_00-model_states.pt
_DEEPSPEED_PART: t.Final = re.compile(
    r"(?:mp_rank_[0-9]+|layer_[0-9]+-model_[0-9]+|(?:[a-z0-9]+_)?zero_pp_rank_[0-9]+_mp_rank_[0-9]+)[-_](?:model|optim)"
    r"_states\.pt$"
)
# In this order: the first that fits.
LAYOUTS: t.Final[dict[str, Layout]] = {
    # Its folders are renamed when they are whole.
    "orbax": Layout(
        lambda name, inside: (
            _TEMPORARY in name or not {"_CHECKPOINT_METADATA", "commit_success.txt"}.isdisjoint(inside)
        ),
        "_CHECKPOINT_METADATA or commit_success.txt in it",
    ),
    # A program may name its folders (tags) as it likes; Accelerate's own is within a checkpoint of Accelerate.
    "deepspeed": Layout(
        lambda name, inside: (
            bool(re.match("global_step[0-9]+$", name))
            or (name != "pytorch_model" and any(map(_DEEPSPEED_PART.match, inside)))
        ),
        "its name, global_stepN, or *_model_states.pt in it",
        re.compile(r"(?:^|step|iter|iteration)[-_=]?([0-9]+)$"),
        tracker="latest",
        tools=("zero_to_fp32.py",),
    ),
    "megatron": Layout(
        _match_name(r"^iter_[0-9]{7,}$"), "its name, iter_N", tracker="latest_checkpointed_iteration.txt"
    ),
    # Its tracker holds the path of the file.
    "mmengine": Layout(
        _match_name(r"^(?:iter|epoch)_[0-9]+\.pth$"),
        "its name, iter_N.pth or epoch_N.pth",
        re.compile(r"^iter_([0-9]+)"),
        tracker="last_checkpoint",
    ),
    "lightning": Layout(_match_name(r"\.ckpt$"), "its name, *.ckpt", re.compile("step[=_-]([0-9]+)"), by_name=True),
    "dcp": Layout(
        _match_content(r"^\.metadata$", r"\.distcp$"), ".metadata or *.distcp in it", mark=".metadata", by_name=True
    ),
    "accelerate": Layout(
        _match_content(r"^random_states_[0-9]+\.pkl$", r"^optimizer\.bin$"),
        "random_states_N.pkl or optimizer.bin in it",
        # With ``automatic_checkpoint_naming`` they are counted: checkpoint_N.
        re.compile(r"(?:(?:^|step|iter|iteration)[-_=]?|checkpoint-)([0-9]+)$"),
        mark="random_states_0.pkl",
        each="random_states_*.pkl",
        by_name=True,
    ),
    "transformers": Layout(
        _match_name(r"^checkpoint-[0-9]+$"), "its name, checkpoint-N", mark="trainer_state.json", by_name=True
    ),
    # Its recipes write the weights, copy the model's other files beside them, then save the state; after the last step
    # they save none.
    "torchtune": Layout(
        lambda name, inside: (
            bool(re.match(r"(?:epoch|step)_[0-9]+$", name))
            and ("recipe_state.pt" in inside or {"model.safetensors", "config.json"} <= set(inside))
        ),
        "its name, step_N or epoch_N, and recipe_state.pt or model.safetensors with config.json in it",
        re.compile(r"^step_([0-9]+)"),
        by_name=True,
    ),
    "safetensors": Layout(_match_content(r"\.(?:safetensors|bin)\.index\.json$"), "*.index.json in it"),
}


def find(folder: pathlib.Path, only: str = "") -> list[Saved]:
    """Return the checkpoints of known layouts in a folder, whole or not, the newest first.

    The one that a tracker names comes first: from it the program resumes.

    :param only: the name of the one layout that is looked for.
    """
    found = _walk(folder, pathlib.PurePosixPath(), only)
    return sorted(found, key=lambda saved: (saved.is_current, saved.saved_at, saved.name), reverse=True)


def recognise(place: pathlib.Path, only: str = "") -> str:
    """Return the name of the layout of which a path is a checkpoint, empty for none."""
    inside: list[str] = []
    with contextlib.suppress(OSError):
        if place.is_dir():
            inside = os.listdir(place)
        elif not place.name.endswith(_FILES):
            # All others are folders.
            return ""
    names = (only,) if only else tuple(LAYOUTS)
    return next((name for name in names if LAYOUTS[name].is_one(place.name, inside)), "")


def find_reported(folder: pathlib.Path, path: str) -> str:
    """Return the checkpoint of a known layout to which a path below ``folder`` belongs, else the path's first part."""
    parts = pathlib.PurePosixPath(path).parts
    tops = (pathlib.PurePosixPath(*parts[:count]) for count in range(1, min(len(parts), _DEPTH) + 1))
    return next((str(top) for top in tops if recognise(folder / top)), parts[0] if parts else "")


def list_beside(folder: pathlib.Path, saved: Saved) -> list[str]:
    """Return the paths in the folder that come along with a checkpoint, such as the tracker that names it."""
    layout = LAYOUTS.get(saved.layout)
    if layout is None:
        return [tracker.name for tracker in _list_trackers(folder)] if saved.is_current else []
    place = pathlib.PurePosixPath(saved.name).parent
    names = [*([layout.tracker] if saved.is_current else []), *layout.tools]
    return [str(place / name) for name in names if (folder / place / name).is_file()]


def is_unmarked(saved: Saved) -> bool:
    """Return whether a checkpoint lacks its mark or tracker: one rank writes it, and nodes of others have none."""
    return saved.problem.endswith((_LAST, f"{_LAST}, is not there"))


def is_unnamed(saved: Saved) -> bool:
    """Return whether a checkpoint lacks nothing but that a tracker names it."""
    return saved.problem.startswith(_UNNAMED)


def is_beside(name: str) -> bool:
    """Return whether a name is that of a log, a card, a tool or a setting: no checkpoint."""
    return bool(_BESIDE.search(name))


def hide_half_saved(folder: pathlib.Path) -> list[str]:
    """Rename half-saved checkpoints that a program would take for its newest one; return what each of them lacks."""
    told = []
    for saved in find(folder):
        if saved.problem and LAYOUTS[saved.layout].by_name:
            place = folder / saved.name
            with contextlib.suppress(OSError):
                place.rename(place.with_name(f".{place.name}.half-saved"))
                told.append(f"{saved.name} {saved.problem}")
    return told


def _walk(folder: pathlib.Path, below: pathlib.PurePosixPath, only: str) -> t.Iterator[Saved]:
    with contextlib.suppress(OSError), os.scandir(folder / below) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            path = below / entry.name
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            name = recognise(folder / path, only)
            if name:
                with contextlib.suppress(OSError):
                    yield _judge(folder, str(path), name)
            elif entry.is_dir() and len(path.parts) < _DEPTH:
                yield from _walk(folder, path, only)


def _judge(folder: pathlib.Path, path: str, name: str) -> Saved:
    layout, place = LAYOUTS[name], folder / path
    number = layout.step.search(place.name)
    step = int(number[1]) if number else None
    changed_at = place.stat().st_mtime_ns
    marked_at = _read_time(place / layout.mark) if layout.mark else None
    if _whole.get(str(place)) == (name, changed_at, marked_at):
        # Looked at every few seconds, on file systems whose every answer takes a while.
        return Saved(path, t.cast(int, marked_at), name, step)
    listed = list_files(place)
    at = marked_at or max((place.joinpath(item).stat().st_mtime_ns for item in listed), default=changed_at)
    problem, is_current = find_problem(place, listed, name), False
    if marked_at and not problem:
        if len(_whole) > _MOST:
            _whole.clear()
        _whole[str(place)] = name, changed_at, marked_at
    if layout.tracker:
        missing, is_current = _follow_tracker(place.with_name(layout.tracker), place, step, at)
        problem = problem or missing
    return Saved(path, at, name, step, problem, is_current and not problem)


def _read_time(place: pathlib.Path) -> int | None:
    with contextlib.suppress(OSError):
        return place.stat().st_mtime_ns
    return None


def _follow_tracker(tracker: pathlib.Path, place: pathlib.Path, step: int | None, at: int) -> tuple[str, bool]:
    """Return why a tracker does not say that a checkpoint is whole, empty where it does, and whether it names this one.

    What is older than the tracker was whole when a later one was named.
    """
    try:
        said = tracker.read_text(errors="replace").strip()
        written_at = tracker.stat().st_mtime_ns
    except OSError:
        return f"{_UNNAMED} {tracker.name}, {_LAST}, is not there", False
    if os.path.basename(said) == place.name or (said.isdecimal() and int(said) == step):
        return "", True
    number = re.search("[0-9]+", said)
    if at <= written_at or (number and step is not None and step < int(number[0])):
        return "", False
    return f"{_UNNAMED} {tracker.name} names {said[:60] or 'nothing'}", False


def find_tracker_problem(folder: pathlib.Path) -> str:
    """Return that a tracker names a checkpoint that is not there, empty where each names one."""
    for name, layout in LAYOUTS.items():
        place = folder / layout.tracker
        if layout.tracker and place.is_file() and not any(saved.is_current for saved in find(folder, name)):
            said = place.read_text(errors="replace").strip()[:60]
            if re.search("[0-9]", said) and not _names_another(place, said):
                return f"{layout.tracker} names {said}, which is not there or not whole"
    return ""


def mend_trackers(folder: pathlib.Path) -> None:
    """Have trackers that name a checkpoint which is not there name the newest whole one instead."""
    for name, layout in LAYOUTS.items():
        tracker = folder / layout.tracker
        found = find(folder, name) if layout.tracker and tracker.is_file() else []
        whole = [saved for saved in found if not saved.problem]
        if whole and not any(saved.is_current for saved in whole):
            newest = max(whole, key=lambda saved: saved.step or 0)
            said = tracker.read_text(errors="replace").strip()
            if not _names_another(tracker, said):
                tracker.write_text(_name_as(said, tracker, newest))


def follow_trackers(folder: pathlib.Path, saved: t.Sequence[Saved]) -> list[Saved]:
    """Return checkpoints without a known layout as what names the newest one says: which it is, and what is not whole.

    What was saved after it, and is named like it but for numbers, was not named yet.
    """
    found = list(saved)
    for tracker in _list_trackers(folder):
        said, written_at = _read_tracker(tracker)
        named = next((one for one in found if _is_named(said, one.name)), None)
        if named is None:
            continue
        kind, problem = _without_numbers(named.name), f"{_UNNAMED} {tracker.name} names {said[:60]}"
        for number, one in enumerate(found):
            if one is named:
                found[number] = one._replace(is_current=not one.problem)
            elif not one.problem and one.saved_at > written_at and _without_numbers(one.name) == kind:
                found[number] = one._replace(problem=problem)
    return found


def _list_trackers(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return files that name a checkpoint beside them, as far as their names and sizes tell."""
    with contextlib.suppress(OSError):
        return sorted(
            place
            for place in folder.iterdir()
            if _TRACKERS.match(place.name) and not place.is_symlink() and place.is_file()
            if 0 < place.stat().st_size <= _MOST_SAID
        )
    return []


def _read_tracker(tracker: pathlib.Path) -> tuple[str, int]:
    """Return what it says, and when that was written (nanoseconds); nothing where it cannot be read."""
    with contextlib.suppress(OSError):
        return tracker.read_text(errors="replace").strip(), tracker.stat().st_mtime_ns
    return "", 0


def _is_named(said: str, name: str) -> bool:
    """Return whether a tracker names an entry: by its name or path, or by the last number in it."""
    if not said.isdecimal():
        return os.path.basename(said) == name
    numbers = re.findall("[0-9]+", name)
    return bool(numbers) and int(numbers[-1]) == int(said)


def _names_another(tracker: pathlib.Path, said: str) -> bool:
    """Return whether a tracker names an entry beside it that is of no known layout."""
    with contextlib.suppress(OSError):
        return any(
            place != tracker and _is_named(said, place.name) and not recognise(place)
            for place in tracker.parent.iterdir()
            if not place.name.startswith(".")
        )
    return False


def _without_numbers(name: str) -> str:
    return re.sub("[0-9]+", "#", name)


def _name_as(said: str, tracker: pathlib.Path, saved: Saved) -> str:
    """Return how a tracker names a checkpoint beside it: by its step, its path or its name, as it did before."""
    name = os.path.basename(saved.name)
    if said.isdecimal():
        return str(saved.step)
    return str(tracker.with_name(name)) if os.path.isabs(said) else name


def list_files(place: pathlib.Path) -> dict[str, int]:
    """Return the sizes of the files of a checkpoint by path in it, empty for a file itself; links are none."""
    if not place.is_dir():
        return {"": place.stat().st_size}
    found = {}
    for top, _folders, names in os.walk(place):
        for path in (pathlib.Path(top, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if not path.is_symlink():
                    found[path.relative_to(place).as_posix()] = path.stat().st_size
    return found


# bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt, one of each rank.
_ZERO_PART: t.Final = re.compile(r"(?:[a-z0-9]+_)?zero_pp_rank_[0-9]+_mp_rank_[0-9]+_optim_states\.pt")


def find_problem(place: pathlib.Path, listed: Sizes, layout: str = "") -> str:
    """Return why a checkpoint was not written to its end, as far as its layout tells; empty where it was."""
    names = [path or place.name for path in listed]
    open_name = next((name for name in (place.name, *names) if name.endswith(UNFINISHED) or _TEMPORARY in name), "")
    if open_name:
        return f"is being written ({open_name})"
    if not any(listed.values()):
        return "is empty"
    torn = next((path for path in listed if _is_torn(place / path)), None)
    if torn is not None:
        return f"is half saved: {torn or place.name} lacks its end"
    return _find_missing_shard(place, listed) or _find_missing_mark(listed, layout)


def _find_missing_mark(listed: Sizes, layout: str) -> str:
    """Return what is not there of that which is written last; on a node of other ranks that may be no problem."""
    own = LAYOUTS.get(layout)
    if own and own.each and not any(size and fnmatch.fnmatch(path, own.each) for path, size in listed.items()):
        return f"is half saved: it has no {own.each}, which each rank writes last"
    marks = [own.mark] if own and own.mark else []
    missing = next((mark for mark in (*marks, *_list_marks(listed)) if not listed.get(mark)), "")
    return f"is half saved: it has no {missing}, {_LAST}" if missing else ""


def _list_marks(listed: Sizes) -> list[str]:
    """Return the paths of the files that are written after those which are there."""
    found = (
        str(path.with_name(mark))
        for path in map(pathlib.PurePosixPath, filter(None, listed))
        for ending, mark in _MARKS
        if ending.search(path.name)
    )
    return list(dict.fromkeys(found))


def count_ranks(place: pathlib.Path) -> int | None:
    """Return how many ranks saved a part of DeepSpeed's ZeRO each, which as many have to load; None for others.

    DeepSpeed refuses another number (deepspeed/runtime/engine.py, ``_get_all_zero_checkpoint_names``); what
    ``ds_to_universal.py`` made has no such files.
    """
    try:
        names = [path.name for path in place.iterdir()]
    except OSError:
        return None
    return len(list(filter(_ZERO_PART.fullmatch, names))) or None


def _find_missing_shard(place: pathlib.Path, listed: Sizes) -> str:
    for index in (path for path in listed if path.endswith(".index.json")):
        shards = {str(item) for item in _read_index(str(place / index), place.joinpath(index).stat().st_mtime_ns)}
        lacking = sorted(
            shard for shard in shards if not listed.get(str(pathlib.PurePosixPath(index).with_name(shard)))
        )
        if lacking:
            return f"is half saved: {lacking[0]}, which {index} names, is not there"
    return ""


@functools.lru_cache(maxsize=64)
def _read_index(place: str, _at: int) -> tuple[str, ...]:
    try:
        return tuple(json.loads(pathlib.Path(place).read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def is_proven(place: pathlib.Path, listed: Sizes) -> bool:
    """Return whether the end of a checkpoint can be told: by its layout, or by the format of its largest file."""
    if recognise(place) or _list_marks(listed):
        return True
    largest = max(listed, key=lambda path: listed[path])
    with place.joinpath(largest).open("rb") as handle:
        return (largest or place.name).endswith((".safetensors", ".json")) or handle.read(4) == _ZIP


def _is_torn(place: pathlib.Path) -> bool:
    state = place.stat()
    return _lacks_end(str(place), state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _lacks_end(path: str, size: int, _at: int) -> bool:
    """Return whether a file lacks its end: an archive (torch.save) without its directory, safetensors, JSON."""
    place = pathlib.Path(path)
    with place.open("rb") as handle:
        head = handle.read(8)
        if head.startswith(_ZIP):
            handle.seek(max(0, size - _ZIP_TAIL))
            return b"PK\x05\x06" not in handle.read()
        if place.name.endswith(".safetensors"):
            return _lacks_tensors(head, handle, size)
    if place.name.endswith(".json") and size <= _SMALL:
        return not _is_json(place.read_bytes())
    return False


def _is_json(text: bytes) -> bool:
    """Return whether a text is JSON, or lines of JSON each."""
    for parts in ([text], text.splitlines()):
        with contextlib.suppress(ValueError):
            for part in parts:
                json.loads(part)
            return True
    return False


def _lacks_tensors(head: bytes, handle: t.BinaryIO, size: int) -> bool:
    length = int.from_bytes(head, "little")
    if len(head) == 8 and length > _MOST_HEADER:
        # A file that was cut has its first bytes: this one is of something else, whose end cannot be told.
        return False
    if len(head) < 8 or length > size:
        return True
    try:
        tensors = json.loads(handle.read(length))
        ends = [value["data_offsets"][1] for key, value in tensors.items() if key != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return True
    return size < 8 + length + max(ends, default=0)
