"""make_blocks.py - adds IQ4_XS, TQ1_0, TQ2_0 and the types of vectors to blocks.safetensors: random blocks with scales of all sizes, and
what the Python package gguf (0.19.0) makes of them.  The other tensors of the file stay as they are.

    pip install gguf; python make_blocks.py
"""
import json
import os
import struct

import gguf
import numpy as np

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "blocks.safetensors")
TYPES = {"IQ4_XS": 0, "TQ1_0": 52, "TQ2_0": 64}  # where a block has its F16 scale
VECTORS = {"IQ2_XXS": 0, "IQ2_XS": 0, "IQ2_S": 0, "IQ3_XXS": 0, "IQ3_S": 0, "IQ1_S": 0, "IQ1_M": None}
BLOCKS = 6


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    meta = header.pop("__metadata__")
    return meta, {
        name: (t["dtype"], t["shape"], data[t["data_offsets"][0] : t["data_offsets"][1]])
        for name, t in header.items()
    }


def write(path, meta, tensors):
    header, data = {"__metadata__": meta}, b""
    for name, (dtype, shape, raw) in sorted(tensors.items(), key=lambda t: (t[1][0] != "F32", t[0])):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    meta, tensors = read(PATH)
    random = np.random.default_rng(24)
    for name, at in {**TYPES, **VECTORS}.items():
        kind = gguf.GGMLQuantizationType[name]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        scales = (random.standard_normal(BLOCKS) * 2.0 ** random.integers(-12, 3, BLOCKS)).astype(np.float16)
        scales[:2] = np.frombuffer(struct.pack("<HH", 0, 1), np.float16)  # 0 and the smallest denormal
        if at is None:  # a nibble in each of the last four words
            words = blocks[:, 48:].copy().view("<u2")
            words = words & 0x0FFF | (scales.view("<u2")[:, None] >> np.array([0, 4, 8, 12]) & 15) << 12
            blocks[:, 48:] = words.astype("<u2").view(np.uint8)
        else:
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
        values = gguf.dequantize(blocks, kind).astype(np.float32)
        tensors[name + ".blocks"] = ("U8", [blocks.size], blocks.tobytes())
        tensors[name + ".values"] = ("F32", [values.size], values.tobytes())
    write(PATH, meta, tensors)


main()
