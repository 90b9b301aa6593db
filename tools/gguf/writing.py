"""writing.py FOLDER [SEED]: GGUF files that `convert` writes, read by llama.cpp's Python package: every type and mix, packed weights
of every type that is written, and the metadata and names of every architecture."""
import glob
import os
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

import blocks
import models
import program

SUMS = 5e-6  # of the range of logits: sums of F32 in another order
# the largest error of weights of a normal distribution, as a share of their deviation, root of the mean square
ERRORS = {"f16": 4e-4, "q8_0": 0.008, "q4_0": 0.12, "mxfp4": 0.13, "q3_k_m": 0.18, "q4_k_m": 0.09, "q5_k_m": 0.045,
          "q6_k": 0.025, "mxfp4_moe": 0.13, "auto": 0}
FTYPES = {"f16": "MOSTLY_F16", "q8_0": "MOSTLY_Q8_0", "q4_0": "MOSTLY_Q4_0", "mxfp4": "MOSTLY_MXFP4_MOE",
          "q3_k_m": "MOSTLY_Q3_K_M", "q4_k_m": "MOSTLY_Q4_K_M", "q5_k_m": "MOSTLY_Q5_K_M", "q6_k": "MOSTLY_Q6_K",
          "mxfp4_moe": "MOSTLY_MXFP4_MOE"}
OF_KIND = {"F32": "ALL_F32", "F16": "MOSTLY_F16", "BF16": "MOSTLY_BF16", "MXFP4": "MOSTLY_MXFP4_MOE", "Q3_K": "MOSTLY_Q3_K_M",
           "Q4_K": "MOSTLY_Q4_K_M", "Q5_K": "MOSTLY_Q5_K_M"}  # others: MOSTLY_ and the name
HELD = ("Q8_0", "Q5_0", "Q4_0", "Q4_1", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")
NEEDED = ("general.architecture", "general.file_type", "general.quantization_version", "general.name", "general.type",
          "{a}.block_count", "{a}.context_length", "{a}.embedding_length", "{a}.feed_forward_length",
          "{a}.attention.head_count", "{a}.attention.head_count_kv", "tokenizer.ggml.model")
NEWER = "attention.recurrent_layers"  # llama.cpp reads it, the package 0.19.0 has no name for it
OF_TOKENS = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.add_bos_token")


def read(path, like=None):
    """The file, and a model for models.logits()."""
    reader = gguf.GGUFReader(path)
    m = None
    if like:
        m = object.__new__(models.Model)
        m.heads, m.kv, m.experts = like.heads, like.kv, like.experts
        m.tensors = {t.name: (t.tensor_type.name, t.data, dequantize(t.data, t.tensor_type).astype(np.float32))
                     for t in reader.tensors}
    return reader, m


def file_type(reader):
    return gguf.LlamaFileType(reader.get_field("general.file_type").contents()).name


def compare(what, path, m, source, work, problems):
    """The program's logits on the file and numpy's on what the package dequantizes."""
    ids = list(range(7, 287, 31))
    d = program.difference(program.logits(path, ids, work)[0], models.logits(m, ids))
    if not d <= SUMS:
        problems.append(f"{what}: logits differ by {d:.3g} of the range")
    if set(m.tensors) != set(source.tensors):
        problems.append(f"{what}: tensors {set(m.tensors) ^ set(source.tensors)}")
    return d


def error(kind, name, m, source):
    w, got = (x.tensors[name][2].astype(np.float64) for x in (source, m))
    return float(np.sqrt(((w - got) ** 2).mean()) / w.std())


def types(work, random, problems):
    for hidden, ffn, experts in ((256, 512, 0), (320, 96, 0), (256, 512, 4)):
        source = models.Model(lambda name, cols: "F32", random, hidden=hidden, ffn=ffn, heads=hidden // 64, kv=1, experts=experts)
        made = os.path.join(work, "source.gguf")
        source.write(made)
        for kind, largest in ERRORS.items():
            out, what = os.path.join(work, "out.gguf"), f"{kind}, {hidden} x {ffn}, {experts} experts"
            program.must("convert", made, "-o", out, "--to", "gguf", "--type", kind)
            reader, m = read(out, source)
            d = compare(what, out, m, source, work, problems)
            ratios = {n: error(kind, n, m, source) for n in source.tensors}
            worst = max(ratios, key=ratios.get)
            if not ratios[worst] <= largest:
                problems.append(f"{what}: {worst} has an error of {ratios[worst]:.3g}, expected {largest}")
            if kind in ("q8_0", "q4_0", "mxfp4"):  # rounded as the reference does
                for name, (stored, raw, _) in m.tensors.items():
                    if stored == kind.upper() and not np.array_equal(
                            gguf.quantize(source.tensors[name][2], blocks.Q[stored]).reshape(raw.shape), raw):
                        problems.append(f"{what}: {name} has other bytes than the package gives")
            if file_type(reader) != FTYPES.get(kind, "ALL_F32"):
                problems.append(f"{what}: general.file_type is {file_type(reader)}")
            print(f"{what}: logits {d:.2g}, error {ratios[worst]:.3g}", flush=True)
            os.remove(out)
        os.remove(made)


def held(work, random, problems):
    """Packed weights of a type keep their bytes."""
    for kind in HELD:
        source = models.Model(lambda name, cols, kind=kind: kind, random)
        made, out = os.path.join(work, "source.gguf"), os.path.join(work, "out.gguf")
        source.write(made)
        program.must("convert", made, "-o", out, "--to", "gguf")
        reader, m = read(out, source)
        d = compare(f"held {kind}", out, m, source, work, problems)
        for name, (stored, _, values) in m.tensors.items():
            if not np.array_equal(values, source.tensors[name][2]):
                problems.append(f"held {kind}: {name}, {stored}: other values")
            if name.startswith("blk") and values.ndim > 1 and stored != kind:
                problems.append(f"held {kind}: {name} became {stored}")
        want = OF_KIND.get(kind, "MOSTLY_" + kind)
        if file_type(reader) != want:
            problems.append(f"held {kind}: general.file_type is {file_type(reader)}, not {want}")
        print(f"held {kind}: logits {d:.2g}", flush=True)
        os.remove(made)
        os.remove(out)


def known_keys(arch):
    """Every key that the package knows, for this architecture."""
    keys = set()
    for group in vars(gguf.Keys).values():
        if isinstance(group, type):
            keys |= {v.replace("{arch}", arch) for v in vars(group).values() if isinstance(v, str)}
    return keys


def architectures(work, problems):
    n = 0
    for folder in sorted(glob.glob("tests/golden/models/*/config.json")) + ["@demo"]:
        folder = folder if folder == "@demo" else os.path.dirname(folder)
        out = os.path.join(work, "out.gguf")
        code, _, err = program.run("convert", folder, "-o", out, "--to", "gguf")
        if code != 0:
            print(f"{os.path.basename(folder)}: refused: {err.strip()}", flush=True)
            continue
        reader = gguf.GGUFReader(out)
        arch = reader.get_field("general.architecture").contents()
        enum = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}.get(arch)
        names = {gguf.TENSOR_NAMES[t] for t in gguf.MODEL_TENSORS[enum]} if enum else set()
        for t in reader.tensors:
            whole = ".".join("{bid}" if p.isdigit() else p for p in t.name.split("."))
            if not {whole, whole.rsplit(".", 1)[0]} & names:
                problems.append(f"{folder}: the package has no tensor {t.name} for {arch}")
        keys = {k for k in reader.fields if not k.startswith("GGUF.")}
        for key in keys - known_keys(arch) - {arch + "." + NEWER}:
            problems.append(f"{folder}: the package has no key {key}")
        wanted = [k.format(a=arch) for k in NEEDED]
        if "tokenizer.ggml.tokens" in keys:
            wanted += OF_TOKENS
        for key in set(wanted) - keys:
            problems.append(f"{folder}: {key} is missing")
        weights = {}
        for t in reader.tensors:
            if len(t.shape) > 1:
                weights[t.tensor_type.name] = weights.get(t.tensor_type.name, 0) + int(t.n_elements)
        most = max(weights, key=weights.get)
        if file_type(reader) != OF_KIND.get(most, "MOSTLY_" + most):
            problems.append(f"{folder}: general.file_type is {file_type(reader)}, most weights are {most}")
        print(f"{os.path.basename(folder)}: {arch}, {len(keys)} keys, {len(reader.tensors)} tensors", flush=True)
        os.remove(out)
        n += 1
    if n < 30:
        problems.append(f"only {n} models were written")


def main():
    work, seed = sys.argv[1], int((sys.argv[2:] or [0])[0])
    os.makedirs(work, exist_ok=True)
    problems, random = [], np.random.default_rng(seed)
    types(work, random, problems)
    held(work, random, problems)
    architectures(work, problems)
    for p in problems:
        print("WRONG", p)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
