# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data and small models for real programs: ``make_data.py KIND FOLDER``, run with the programs' interpreter.

Everything is drawn at random from a fixed seed; nothing is downloaded.
"""

from __future__ import annotations

import array
import json
import pathlib
import pickle
import random
import shutil
import sys

WORDS = ("gang", "rank", "step", "loss", "node", "shard", "batch", "epoch", "layer", "token", "image", "clock")


def images(folder: pathlib.Path, size: int = 64) -> None:
    """Write 64 pictures of two classes for training, and 16 for validation."""
    from PIL import Image

    draw = random.Random(0)
    for part, count in (("train", 64), ("val", 16)):
        for number in range(count):
            kind = number % 2
            place = folder / part / f"class{kind}" / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            dots = bytes(min(255, draw.randrange(128) + 127 * kind) for _ in range(size * size * 3))
            Image.frombytes("RGB", (size, size), dots).save(place)


def texts(folder: pathlib.Path) -> None:
    """Write sentences as JSON lines: ``text``, and preferences, and opinions."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=24))

    (folder / "text").mkdir()
    (folder / "preference").mkdir()
    plain = [json.dumps({"text": sentence()}) for _ in range(400)]
    (folder / "text" / "train.jsonl").write_text("\n".join(plain))
    pairs = [json.dumps({"prompt": sentence(), "chosen": sentence(), "rejected": sentence()}) for _ in range(400)]
    (folder / "preference" / "train.jsonl").write_text("\n".join(pairs))
    (folder / "opinion").mkdir()
    said = [
        json.dumps({"prompt": sentence(), "completion": sentence(), "label": number % 2 == 0}) for number in range(400)
    ]
    (folder / "opinion" / "train.jsonl").write_text("\n".join(said))
    (folder / "plain.txt").write_text("\n".join(sentence() for _ in range(400)))


def language_model(folder: pathlib.Path) -> None:
    """Write a small causal language model with a tokenizer of its own."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    own = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    own.train_from_iterator(WORDS * 4, tokenizers.trainers.BpeTrainer(vocab_size=200, special_tokens=special))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    fast.save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=3,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def sentence_pieces(folder: pathlib.Path) -> None:
    """Write a tokenizer of SentencePiece, ``tokenizer.model``."""
    import sentencepiece

    folder.mkdir(parents=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS * 4),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=48,
        hard_vocab_limit=False,
        pad_id=3,
        minloglevel=2,
    )


def diffusion_model(folder: pathlib.Path) -> None:
    """Write the configuration of a small UNet."""
    import diffusers

    diffusers.UNet2DModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).save_config(folder)


def stable_diffusion(folder: pathlib.Path) -> None:
    """Write a small pipeline of Stable Diffusion."""
    import diffusers
    import torch
    import transformers

    torch.manual_seed(0)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = folder / "letters"
    tokenizer.mkdir(parents=True)
    (tokenizer / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (tokenizer / "merges.txt").write_text("#version: 0.2\n")
    text = transformers.CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
        projection_dim=16,
        bos_token_id=len(words) - 2,
        eos_token_id=len(words) - 1,
        pad_token_id=len(words) - 1,
    )
    unet = diffusers.UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        attention_head_dim=4,
        cross_attention_dim=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(16, 16),
        norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=transformers.CLIPTextModel(text),
        tokenizer=transformers.CLIPTokenizer(
            str(tokenizer / "vocab.json"), str(tokenizer / "merges.txt"), model_max_length=16
        ),
        unet=unet,
        scheduler=diffusers.DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    shutil.rmtree(tokenizer)


def captions(folder: pathlib.Path) -> None:
    """Write 64 pictures with a caption each, as a folder of datasets."""
    images(folder / "all", 32)
    (folder / "train").mkdir()
    lines = []
    for number, place in enumerate(sorted((folder / "all").rglob("*.png"))):
        name = f"{number}.png"
        place.rename(folder / "train" / name)
        lines.append(json.dumps({"file_name": name, "text": f"a picture of {WORDS[number % len(WORDS)]}"}))
    (folder / "train" / "metadata.jsonl").write_text("\n".join(lines))
    shutil.rmtree(folder / "all")


def tokens(folder: pathlib.Path) -> None:
    """Write tokens as nanoGPT reads them: two bytes each."""
    draw = random.Random(0)
    folder.mkdir(parents=True)
    for part, count in (("train", 20_000), ("val", 4_000)):
        data = array.array("H", (draw.randrange(64) if number % 2 else number % 7 for number in range(count)))
        (folder / f"{part}.bin").write_bytes(data.tobytes())
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 64}))


def main(argv: list[str]) -> None:
    """Write what was asked for."""
    known = (images, texts, language_model, sentence_pieces, diffusion_model, stable_diffusion, captions, tokens)
    {kind.__name__.replace("_", "-"): kind for kind in known}[argv[1]](pathlib.Path(argv[2]))


if __name__ == "__main__":
    main(sys.argv)
