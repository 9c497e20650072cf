# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How programs lay out their checkpoints: names and steps, what makes one whole, and what comes along with it.

Each layout is one entry of ``LAYOUTS``. What a program writes last, such as a card, a tool or an event file, is none.

Sources: the saving code of transformers (``Trainer._save_checkpoint``), accelerate (``save_state``), DeepSpeed
(``save_checkpoint``), Megatron-LM (``checkpointing.py``), Lightning (``ModelCheckpoint``), torchtune
(``FullModelHFCheckpointer``), Orbax, torch.distributed.checkpoint, fairseq
(``fairseq/checkpoint_utils.py``: ``save_checkpoint``), verl (``verl/trainer/ppo/ray_trainer.py``: ``_save_checkpoint``,
``verl/utils/checkpoint/checkpoint_manager.py``: ``find_latest_ckpt_path``) and TensorFlow
(``tensorflow/python/checkpoint/checkpoint_management.py``, ``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``:
``MergeBundles``, ``tensorflow/core/lib/io/format.h``); for the step that a file holds also Lightning
(``checkpoint_connector.py``: ``dump_checkpoint``), mmengine (``Runner.save_checkpoint``), fairseq
(``Trainer.state_dict``), DeepSpeed (``DeepSpeedEngine._save_checkpoint``), torchtune (``training/checkpointing``:
``STEPS_KEY``) and nanoGPT (``train.py``).
"""

from __future__ import annotations

import re
import typing as t

UNFINISHED = (".tmp", ".part", ".partial", ".incomplete")
# What is renamed when it is whole: tmp-checkpoint-N (transformers), tmp.pth.tar (timm), checkpoint_tmp (Flax) and
# NAME_temp (TensorFlow). Programs may give such names to what is whole, too: only of unknown layouts it is a sign.
STAGED: t.Final = re.compile(r"^tmp[-_.]|[-_]te?mp$")
# What Orbax has not finished has this in its name.
TEMPORARY = ".orbax-checkpoint-tmp"
# Logs, cards, tools and settings that programs write beside checkpoints.
BESIDE = re.compile(
    r"tfevents|\.(?:md|py|ya?ml|csv|log|jsonl|out|err|html|png|lock)$"
    r"|^(?:latest\w*(?:\.txt)?|last_checkpoint|log\.txt|hparams\.\w+|(?:config|metrics)\.json"
    # Of Ray Tune, and of open_clip.
    r"|(?:result|experiment_state[-\w]*)\.json|params\.(?:json|pkl|txt)|(?:trainer|tuner)\.pkl)$"
)
# Names that hold the number of a rank; those of model parallelism (``mp_rank_00``) are common to data-parallel ranks,
# and Orbax writes ``process_0`` into a checkpoint that one process alone saves.
RANKED: t.Final = re.compile(
    r"(?<!mp_)(?<!ocdbt\.)(?<!array_metadatas/)(?:rank|proc|process)[-_]?([0-9]+)", re.IGNORECASE
)
# What every rank writes beside a checkpoint of rank 0: the random state, by transformers and by accelerate.
OF_EVERY_RANK: t.Final = re.compile(r"(?:rng_state_[0-9]+\.pth|random_states_[0-9]+\.pkl)$")
# bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt, of DeepSpeed's ZeRO one of each rank.
ZERO_PART: t.Final = re.compile(r"(?:[a-z0-9]+_)?zero_pp_rank_[0-9]+_mp_rank_[0-9]+_optim_states\.pt")
# The keys to a step in the state that ``torch.save`` wrote; of a list on the way it is in the last item.
Key = tuple[str, ...]
# What programs without a layout call it, nanoGPT ``iter_num``: the first that is there.
HELD: t.Final[tuple[Key, ...]] = tuple(
    (name,) for name in ("global_step", "iter_num", "num_updates", "global_steps", "iteration", "step")
)
# Each of these is one of so many, as its name says; the index that names them all is written after them.
NUMBERED: t.Final = re.compile(
    r"(?P<all>(?:.*/)?(?:\w+_)?model)-[0-9]{5}-of-(?P<count>[0-9]{5})(?P<ending>\.(?:safetensors|bin))"
)
# Where a file of the first name is, its library writes the second one last, into the same folder.
MARKS: t.Final = (
    (re.compile(r"\.distcp$"), ".metadata"),
    (re.compile(r"^(?:optimizer|scheduler)\.pt$"), "trainer_state.json"),
    (re.compile(r"^(?:optimizer|scheduler)\.bin$"), "random_states_0.pkl"),
)


class Saved(t.NamedTuple):
    """A checkpoint: its path in the folder, and when it became complete (nanoseconds).

    :ivar problem: what it lacks, empty for a whole one. :ivar is_current: a tracker of the program names it,
        or it has the name that the program takes.
    """

    name: str
    saved_at: int
    layout: str = "files"
    step: int | None = None
    problem: str = ""
    is_current: bool = False


class Layout(t.NamedTuple):
    """How one kind of program saves.

    :ivar is_one: whether a folder or a file is a checkpoint of this layout, by its name and the names in it; of a file
        those are the names beside it.
    :ivar step: the first group of this is the step, in its name. The number of an epoch is none.
    :ivar ending: of the names of checkpoints that are files, empty where all are folders.
    :ivar parts: of a checkpoint that is several files beside each other: the others, after what the names have in
        common; a group ``count`` says how many there are. The one with ``ending`` is written last.
    :ivar end: the last bytes of a file that was written to its end. With them it is whole before a tracker names it.
    :ivar mark: the file in it that is written last, empty where another sign says that it is whole.
    :ivar rest: of what is none of the model's weights: where there is nothing else, it was removed in part.
    :ivar each: of the files of ranks that are written last of all on a node; one of them has to be there.
    :ivar tracker: the file beside it that names the newest whole one; it is written last.
    :ivar says: where it does: the first group of this is a name, a path or a step.
    :ivar taken: the name of a copy of the newest one, from which the program resumes, by the name of another one.
    :ivar tools: what else comes along.
    :ivar held: the keys to the step in its state, for names without one: the first that is there.
    :ivar state: of a folder: the file in it that has them.
    :ivar by_name: the program takes the newest name when it resumes, whole or not.
    :ivar known_by: by what a checkpoint was recognised, for people.
    """

    is_one: t.Callable[[str, t.Collection[str]], bool]
    known_by: str
    step: re.Pattern[str] = re.compile(r"(?<![0-9])(?<!epoch)(?<!epoch[-_=])([0-9]+)(?!.*[0-9])", re.IGNORECASE)
    ending: str = ""
    parts: re.Pattern[str] | None = None
    end: bytes = b""
    mark: str = ""
    rest: re.Pattern[str] | None = None
    each: str = ""
    tracker: str = ""
    says: re.Pattern[str] = re.compile(r"\s*(\S(?:.*\S)?)\s*", re.DOTALL)
    taken: t.Callable[[str], str] = lambda _name: ""
    tools: tuple[str, ...] = ()
    held: tuple[Key, ...] = ()
    state: str = ""
    by_name: bool = False

    def stem(self, name: str) -> str:
        """Return what the files of a checkpoint have in common in their names, and how its program names it."""
        return name.removesuffix(self.ending) if self.parts else name


def name_whole(name: str) -> str:
    """Return the name of the checkpoint of which a file is a part, by its name; any other name as it is."""
    for layout in LAYOUTS.values():
        found = layout.parts.search(name) if layout.parts else None
        if found:
            return f"{name[: found.start()]}{layout.ending}"
    return name


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
# checkpoint7.pt of an epoch, checkpoint_7_4200.pt, checkpoint_last.pt, with the suffix of a rank's part.
_FAIRSEQ: t.Final = re.compile(r"checkpoint(?:(_[0-9]+_[0-9]+)|[0-9]+|_last)((?:-[\w-]+)?)\.pt$")
# In this order: the first that fits.
LAYOUTS: t.Final[dict[str, Layout]] = {
    # Its folders are renamed when they are whole.
    "orbax": Layout(
        lambda name, inside: TEMPORARY in name or not {"_CHECKPOINT_METADATA", "commit_success.txt"}.isdisjoint(inside),
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
        held=(("global_steps",),),
        state="mp_rank_00_model_states.pt",
    ),
    "megatron": Layout(
        _match_name(r"^iter_[0-9]{7,}$"), "its name, iter_N", tracker="latest_checkpointed_iteration.txt"
    ),
    # Its tracker holds the path of the file.
    "mmengine": Layout(
        _match_name(r"^(?:iter|epoch)_[0-9]+\.pth$"),
        "its name, iter_N.pth or epoch_N.pth",
        re.compile(r"^iter_([0-9]+)"),
        ending=".pth",
        tracker="last_checkpoint",
        held=(("meta", "iter"),),
    ),
    # Other programs than Lightning save files of that name, too.
    "lightning": Layout(
        _match_name(r"\.ckpt$"),
        "its name, *.ckpt",
        re.compile("step[=_-]([0-9]+)"),
        ending=".ckpt",
        held=HELD,
        by_name=True,
    ),
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
        _match_name(r"^checkpoint-[0-9]+$"),
        "its name, checkpoint-N",
        mark="trainer_state.json",
        # With ``save_total_limit`` it removes old ones file by file.
        rest=re.compile(
            r"\.(?:json|txt|md|jinja|py)$|^(?:latest|training_args\.bin|(?:optimizer|scheduler|scaler)\.pt|"
            r"rng_state(?:_[0-9]+)?\.pth|(?:tokenizer|spiece)\.model)$"
        ),
        by_name=True,
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
        held=(("steps_run",),),
        state="recipe_state.pt",
        by_name=True,
    ),
    # One of them is written and then copied to the other names, checkpoint_last.pt after all. What is best may be old,
    # and nothing resumes from it.
    "fairseq": Layout(
        lambda name, beside: (
            (found := _FAIRSEQ.match(name)) is not None
            # The other names are those of many programs.
            and bool(found[1] or any(re.match("checkpoint_(?:last|best)", item) for item in beside if item != name))
        ),
        "its name, checkpoint_E_N.pt, or checkpoint_last.pt or checkpoint_best.pt beside it",
        re.compile(r"^checkpoint_[0-9]+_([0-9]+)"),
        ending=".pt",
        taken=lambda name: f"checkpoint_last{found[2]}.pt" if (found := _FAIRSEQ.match(name)) else "",
        held=(("optimizer_history", "num_updates"),),
        by_name=True,
    ),
    # Ranks write on their nodes; the tracker is written after the state of the data, on the node of the first.
    "verl": Layout(
        lambda name, inside: (
            bool(re.match("global_step_[0-9]+$", name)) and not {"actor", "critic", "data.pt"}.isdisjoint(inside)
        ),
        "its name, global_step_N, and actor, critic or data.pt in it",
        tracker="latest_checkpointed_iteration.txt",
    ),
    # The parts get their names when they are whole, then the index is written; the tracker names what the files have in
    # common. The number is that of a save, but for ``tf.compat.v1.train.Saver``. Until then they are in NAME_temp.
    "tensorflow": Layout(
        lambda name, beside: (
            not re.match(r"part-[0-9]{5}-of-[0-9]{5}\.", name)
            and any(item.startswith(name.removesuffix("index") + "data-") for item in beside)
        ),
        "NAME.index with NAME.data-N-of-M beside it",
        re.compile(r"^model\.ckpt-([0-9]+)\.index$"),
        ending=".index",
        parts=re.compile(r"\.data-[0-9]{5}-of-(?P<count>[0-9]{5})$"),
        # kTableMagicNumber, in its two halves of 32 bits.
        end=bytes.fromhex("57fb808b247547db"),
        tracker="checkpoint",
        says=re.compile(r'^model_checkpoint_path: "([^"]+)"', re.MULTILINE),
    ),
    "safetensors": Layout(_match_content(r"\.(?:safetensors|bin)\.index\.json$"), "*.index.json in it"),
}
