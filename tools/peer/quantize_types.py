#!/usr/bin/env python3
"""quantize_types.py IN.gguf FOLDER TYPE... - files of llama.cpp's types, made by llama.cpp.

Needs the package `cyllama`, which brings llama.cpp.  No importance matrix; token embedding and output stay
BF16, so that files differ in the linears of the decoder alone.  Prints for each file a line of JSON with its
name and the bits per weight that these linears take as stored.
"""
import json
import struct
import sys

from cyllama.llama.llama_cpp import LlamaModelQuantizeParams, model_quantize

# llama.h: enum llama_ftype; ggml.h: enum ggml_type with weights and bytes of a block
FTYPES = {"Q4_0": 2, "Q8_0": 7, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
          10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2)}
BF16 = 30
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def read(f, fmt):
    return struct.unpack("<" + fmt, f.read(struct.calcsize(fmt)))[0]


def text(f):
    return f.read(read(f, "Q")).decode()


def skip(f, kind):
    if kind == 8:
        text(f)
    elif kind == 9:
        item, n = read(f, "I"), read(f, "Q")
        for _ in range(n):
            skip(f, item)
    else:
        read(f, SCALARS[kind])


def bits_per_weight(path):
    weights = size = 0
    with open(path, "rb") as f:
        if f.read(4) != b"GGUF":
            sys.exit(f"{path}: no GGUF file")
        read(f, "I")
        tensors, keys = read(f, "Q"), read(f, "Q")
        for _ in range(keys):
            text(f)
            skip(f, read(f, "I"))
        for _ in range(tensors):
            name, dims = text(f), [read(f, "Q") for _ in range(read(f, "I"))]
            kind = read(f, "I")
            read(f, "Q")
            if name.startswith("blk.") and len(dims) == 2:
                weights += dims[0] * dims[1]
                size += dims[0] * dims[1] // BLOCKS[kind][0] * BLOCKS[kind][1]
    return 8 * size / weights


def main():
    source, folder, types = sys.argv[1], sys.argv[2], sys.argv[3:]
    for name in types:
        p = LlamaModelQuantizeParams()
        p.ftype, p.token_embedding_type, p.output_tensor_type = FTYPES[name], BF16, BF16
        path = f"{folder}/{name}.gguf"
        model_quantize(source, path, p)
        print(json.dumps({"name": name, "bits_per_weight": bits_per_weight(path)}))


main()
