#!/usr/bin/env python3
"""Writes a GGUF model with random weights: a shape to measure, not a model to talk to.

Usage: tests/bench/random_model.py FILE [--shape 1b] [--type Q4_K] [--vocab N] [--layers N] [--seed N]
Example: tests/bench/random_model.py /tmp/models/random-1b-q4_k.gguf --shape 1b --type Q4_K

Decoding reads every weight once a token, so a model larger than the processor's last-level cache
shows what the memory gives. Numbers are uniform, with a scale that keeps activations finite; every
block has the same scale, so the standard library writes gigabytes in seconds: a pool of random
blocks is made once and copied from changing offsets. The tokenizer has the 256 bytes and made-up
words. Llama.cpp and Strata load the file; it has Llama 3.2's shapes, its output head tied to the
embeddings as there.
"""
import argparse
import os
import pathlib
import random
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from performance_processes import Interrupted, stop_on_signals  # noqa: E402

ALIGNMENT = 32
POOL_BYTES = 8 << 20
WRITE_BYTES = 4 << 20

# Layers, width, feed-forward width, heads, key-value heads, head size; bytes that decoding reads a
# token in Q4_K with the full vocabulary.
SHAPES = {
    "tiny": (2, 256, 768, 4, 2, 64),
    "135m": (30, 768, 1536, 12, 4, 64),
    "1b": (16, 2048, 8192, 32, 8, 64),  # 0.7 GB
    "3b": (28, 3072, 8192, 24, 8, 128),  # 1.8 GB
}
FULL_VOCABULARY = 128256

F32 = 0
TYPES = {"Q8_0": 8, "Q4_K": 12}  # ggml's numbers
FILE_TYPES = {"Q8_0": 7, "Q4_K": 14}  # general.file_type


class ModelError(Exception):
    """One sentence: why there can be no such model."""


def half(value):
    return struct.pack("<e", value)


def q8_0_pool(source, width):
    """Blocks of 32: half d, 32 signed bytes; value = d * q."""
    blocks = POOL_BYTES // 34
    pool = bytearray(source.randbytes(blocks * 34))
    # A byte's standard deviation is 74.
    for i, byte in enumerate(half(1 / (74 * width ** 0.5))):
        pool[i::34] = bytes([byte]) * blocks
    return pool, 34, 32


def q4_k_pool(source, width):
    """Blocks of 256: half d, half dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles;
    value = d * scale * q - dmin * minimum, here with scale 32 and minimum 60 everywhere."""
    blocks = POOL_BYTES // 144
    pool = bytearray(source.randbytes(blocks * 144))
    d = 1 / (4.61 * 32 * width ** 0.5)  # a nibble's standard deviation is 4.61, its mean 7.5
    scale, minimum = 32, 60
    scales = bytes([scale | (scale >> 4) << 6] * 4 + [minimum | (minimum >> 4) << 6] * 4 +
                   [(scale & 15) | (minimum & 15) << 4] * 4)
    for i, byte in enumerate(half(d) + half(d * scale * 7.5 / minimum) + scales):
        pool[i::144] = bytes([byte]) * blocks
    return pool, 144, 256


POOLS = {"Q8_0": q8_0_pool, "Q4_K": q4_k_pool}


# --- GGUF's values -------------------------------------------------------------------------------


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key_u32(key, value):
    return text(key) + struct.pack("<II", 4, value)


def key_f32(key, value):
    return text(key) + struct.pack("<If", 6, value)


def key_bool(key, value):
    return text(key) + struct.pack("<IB", 7, value)


def key_text(key, value):
    return text(key) + struct.pack("<I", 8) + text(value)


def key_array(key, kind, count, data):
    return text(key) + struct.pack("<IIQ", 9, kind, count) + data


def tokenizer_keys(vocabulary):
    """A sentence-piece vocabulary: three control tokens, the bytes, then words that stand for nothing."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [2, 3, 3] + [6] * 256
    tokens += [f"\u2581w{i}" for i in range(vocabulary - len(tokens))]
    types += [1] * (vocabulary - len(types))
    scores = [0.0] * 259 + [-float(i) for i in range(vocabulary - 259)]
    return [
        key_text("tokenizer.ggml.model", "llama"),
        key_array("tokenizer.ggml.tokens", 8, vocabulary, b"".join(text(token) for token in tokens)),
        key_array("tokenizer.ggml.scores", 6, vocabulary, struct.pack(f"<{vocabulary}f", *scores)),
        key_array("tokenizer.ggml.token_type", 5, vocabulary, struct.pack(f"<{vocabulary}i", *types)),
        key_u32("tokenizer.ggml.bos_token_id", 1),
        key_u32("tokenizer.ggml.eos_token_id", 2),
        key_u32("tokenizer.ggml.unknown_token_id", 0),
    ]


def model_keys(name, kind, shape, layers, vocabulary):
    _, width, ffn, heads, kv_heads, head = shape
    return [
        key_text("general.architecture", "llama"),
        key_text("general.name", f"random {name} {kind}"),
        key_u32("general.file_type", FILE_TYPES[kind]),
        key_u32("general.alignment", ALIGNMENT),
        key_u32("llama.block_count", layers),
        key_u32("llama.context_length", 131072),
        key_u32("llama.embedding_length", width),
        key_u32("llama.feed_forward_length", ffn),
        key_u32("llama.attention.head_count", heads),
        key_u32("llama.attention.head_count_kv", kv_heads),
        key_u32("llama.attention.key_length", head),
        key_u32("llama.attention.value_length", head),
        key_u32("llama.rope.dimension_count", head),
        key_f32("llama.rope.freq_base", 500000.0),
        key_f32("llama.attention.layer_norm_rms_epsilon", 1e-5),
        key_u32("llama.vocab_size", vocabulary),
    ] + tokenizer_keys(vocabulary)


def tensor_list(shape, layers, vocabulary):
    """Name and size of each tensor, innermost dimension first; norms have one dimension."""
    _, width, ffn, heads, kv_heads, head = shape
    tensors = [("token_embd.weight", (width, vocabulary)), ("output_norm.weight", (width,))]
    for layer in range(layers):
        tensors += [(f"blk.{layer}.{name}.weight", size) for name, size in (
            ("attn_norm", (width,)),
            ("attn_q", (width, heads * head)),
            ("attn_k", (width, kv_heads * head)),
            ("attn_v", (width, kv_heads * head)),
            ("attn_output", (heads * head, width)),
            ("ffn_norm", (width,)),
            ("ffn_gate", (width, ffn)),
            ("ffn_up", (width, ffn)),
            ("ffn_down", (ffn, width)),
        )]
    return tensors


def element_count(size):
    count = 1
    for extent in size:
        count *= extent
    return count


class Weights:
    """Random weights, block after block, from a pool for each width of a row."""

    def __init__(self, kind, seed):
        self.kind = kind
        self.source = random.Random(seed)
        self.pools = {}

    def of(self, size):
        """(bytes, block bytes, block elements) of a pool for such rows."""
        if size[0] not in self.pools:
            self.pools[size[0]] = POOLS[self.kind](self.source, size[0])
        return self.pools[size[0]]

    def size_bytes(self, size):
        if len(size) == 1:
            return element_count(size) * 4
        _, block_bytes, block_elements = self.of(size)
        if size[0] % block_elements != 0:
            raise ModelError(f"rows of {size[0]} are no multiple of {block_elements}, {self.kind}'s block")
        return element_count(size) // block_elements * block_bytes

    def write(self, out, size):
        if len(size) == 1:
            out.write(struct.pack("<f", 1.0) * size[0])
            return
        pool, block_bytes, _ = self.of(size)
        view = memoryview(pool)
        left = self.size_bytes(size)
        while left > 0:
            begin = self.source.randrange(len(pool) // block_bytes // 2) * block_bytes
            piece = view[begin:begin + min(left, WRITE_BYTES)]
            # A whole number of blocks, so that the next piece begins with one.
            piece = piece[:len(piece) - len(piece) % block_bytes]
            out.write(piece)
            left -= len(piece)


def pad(out):
    out.write(b"\0" * (-out.tell() % ALIGNMENT))


def write_model(path, name, kind, layers=None, vocabulary=FULL_VOCABULARY, seed=1):
    """Writes the file under another name first: one that stands there is whole, and whatever ends this leaves no part
    behind. Returns its size. Errors: ModelError, OSError."""
    path = pathlib.Path(path)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as out:
            write_parts(out, name, kind, layers or SHAPES[name][0], vocabulary, seed)
        os.replace(part, path)
    except BaseException:  # Ctrl-C, too
        part.unlink(missing_ok=True)
        raise
    return path.stat().st_size


def write_parts(out, name, kind, layers, vocabulary, seed):
    keys = model_keys(name, kind, SHAPES[name], layers, vocabulary)
    tensors = tensor_list(SHAPES[name], layers, vocabulary)
    weights = Weights(kind, seed)
    out.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys))
    offset = 0
    for tensor, size in tensors:
        type_number = F32 if len(size) == 1 else TYPES[kind]
        out.write(text(tensor) + struct.pack(f"<I{len(size)}QIQ", len(size), *size, type_number, offset))
        offset += weights.size_bytes(size)
        offset += -offset % ALIGNMENT
    pad(out)
    for tensor, size in tensors:
        weights.write(out, size)
        pad(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="the file to write")
    parser.add_argument("--shape", choices=SHAPES, default="1b", help="Llama 3.2's 1b or 3b, or smaller ones")
    parser.add_argument("--type", choices=TYPES, default="Q4_K", help="of all matrices")
    parser.add_argument("--vocab", type=int, default=FULL_VOCABULARY, metavar="N", help="tokens, at least 512")
    parser.add_argument("--layers", type=int, metavar="N", help="instead of the shape's")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the random weights")
    options = parser.parse_args()
    if options.vocab < 512:
        parser.error("--vocab: a vocabulary has at least 512 tokens")
    if options.layers is not None and options.layers < 1:
        parser.error("--layers: a model has at least one layer")
    stop_on_signals()
    begin = time.monotonic()
    try:
        size = write_model(options.file, options.shape, options.type, options.layers, options.vocab, options.seed)
    except Interrupted as interrupted:
        return interrupted.exit_code
    except (ModelError, OSError) as error:
        print(f"random_model.py: {options.file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    print(f"{options.file}: {size / 1e6:.0f} MB in {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
