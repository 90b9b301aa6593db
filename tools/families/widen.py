#!/usr/bin/env python3
"""widen.py MODEL OUT SEED - MODEL with 4, 8 or 16 times as many heads and columns, of random weights.

Ranks cut linears at segments of 32 columns, and formats of other programs hold groups of 32: recorded models are
narrower.  Layers, experts, vocabulary and all other keys stay.  Tensors that are no linear are repeated; those of vision and of
prediction layers stay as they are.
"""
import glob
import json
import math
import os
import random
import re
import shutil
import struct
import sys

KEYS = """hidden_size intermediate_size ffn_dim moe_intermediate_size shared_expert_intermediate_size word_embed_proj_dim
num_attention_heads n_head num_key_value_heads linear_num_key_heads linear_num_value_heads""".split()
# With latent attention heads grow, not their number, so that every linear has rows and columns in multiples of 32.
LATENT = """hidden_size intermediate_size moe_intermediate_size kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim
v_head_dim head_dim qk_head_dim""".split()
# names, and the dimensions that grow; the first that matches counts, else all grow
GROW = [(re.compile(pattern), grow) for pattern, grow in [
    (r"vision|visual|multi_modal|(^|\.)mtp\.|\.eh_proj\.|\.[eh]norm\.", ()),
    (r"(embed_tokens|word_embeddings|lm_head|embed_positions)\.weight$", (1,)),
    (r"lm_head\.bias$", ()),
    (r"(router\.layer|router|mlp\.gate|block_sparse_moe\.gate|shared_expert_gate)\.weight$", (1,)),
    (r"router\.bias$|e_score_correction_bias$|linear_attn\.norm\.", ()),
    (r"conv1d\.", (0,)),
    (r"experts\.(\w+_bias)$", (1,)),
    (r"_(blocks|scales)$", (1, 2)),
    (r"experts\.(gate_up_proj|down_proj)$|(input|output)_linear\.weight$", (1, 2)),
]]
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}


def grown(name, shape, kind):
    if re.search(r"\.[qk]_norm\.", name):
        return (0,) if len(shape) == 2 or kind.startswith(("olmo", "minimax")) else ()
    for pattern, grow in GROW:
        if pattern.search(name):
            return grow
    return tuple(range(len(shape)))


def repeated(data, shape, new):
    """data of `shape` as often as `new` has room for, along each dimension."""
    if len(shape) == 1:
        return data * (new[0] // shape[0])
    step = len(data) // shape[0]
    rows = [repeated(data[i * step:(i + 1) * step], shape[1:], new[1:]) for i in range(shape[0])]
    return b"".join(rows) * (new[0] // shape[0])


def magnitude(data, dtype):
    """The root mean square of the first numbers."""
    n = min(len(data) // SIZES[dtype], 4096)
    if dtype == "F32":
        v = struct.unpack("<%df" % n, data[:4 * n])
    elif dtype == "F16":
        v = struct.unpack("<%de" % n, data[:2 * n])
    else:
        v = struct.unpack("<%df" % n, b"".join(b"\0\0" + data[2 * i:2 * i + 2] for i in range(n)))
    return math.sqrt(sum(x * x for x in v) / n)


def drawn(n, dtype, rms, rng):
    """n numbers with random signs and mantissas, in the two octaves around rms."""
    if dtype == "U8":
        return rng.getrandbits(8 * n).to_bytes(n, "little")
    bits, mantissa, bias = {"F32": (32, 23, 127), "F16": (16, 10, 15), "BF16": (16, 7, 127)}[dtype]
    exponent = max(2, bias + math.floor(math.log2(rms)) - 1) & ~1
    keep = 1 << (bits - 1) | 1 << mantissa | (1 << mantissa) - 1
    size = bits // 8
    mask = int.from_bytes(keep.to_bytes(size, "little") * n, "little")
    base = int.from_bytes((exponent << mantissa).to_bytes(size, "little") * n, "little")
    return (rng.getrandbits(bits * n) & mask | base).to_bytes(size * n, "little")


def read(folder):
    for path in sorted(glob.glob(os.path.join(folder, "model*.safetensors"))):
        with open(path, "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            rest = f.read()
        for name, t in head.items():
            if name != "__metadata__":
                yield name, t["dtype"], t["shape"], rest[t["data_offsets"][0]:t["data_offsets"][1]]


def factor_of(text, tensors):
    """Two ranks share a linear from 160 columns on, and its heads where its columns are 8 equal segments."""
    narrow = min(text[k] for k in KEYS[1:5] + ["hidden_size"] if text.get(k))
    heads = [shape[-1] for name, _, shape, _ in tensors
             if re.search(r"(o_proj|out_proj|attention\.dense)\.weight$", name) and not re.search("vis", name)]
    factors = [f for f in (4, 8, 16) if f < 16 or text["hidden_size"] * f <= 768]
    return next((f for f in factors if narrow * f >= 160 and all(n * f % 256 == 0 for n in heads)), 8)


def main():
    source, out, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rng = random.Random(seed)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    text = config.get("text_config", config)
    tensors = list(read(source))
    factor = factor_of(text, tensors)
    if "num_attention_heads" not in text and "n_head" not in text:
        for name, _, shape, _ in tensors:
            if name.endswith("layers.0.self_attn.q_proj.weight") and "vision" not in name:
                text["num_attention_heads"] = shape[0] // text["head_dim"]
            if name.endswith("layers.0.self_attn.k_proj.weight") and "vision" not in name:
                text["num_key_value_heads"] = shape[0] // text["head_dim"]
    for key in LATENT if "kv_lora_rank" in text else KEYS:
        if isinstance(text.get(key), int):
            text[key] *= factor
    # what GGUF has no key for
    if "query_pre_attn_scalar" in text or "head_dim" in text and "gemma" in text.get("model_type", ""):
        text["query_pre_attn_scalar"] = text.get("head_dim", 256)
    if "norm_topk_prob" in text:
        text["norm_topk_prob"] = True
    if text.pop("no_rope_layers", None):
        text["no_rope_layer_interval"] = 4
    os.mkdir(out)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    if os.path.exists(os.path.join(source, "generation_config.json")):
        shutil.copy(os.path.join(source, "generation_config.json"), out)
    head, parts, at = {}, [], 0
    for name, dtype, shape, data in tensors:
        grow = grown(name, shape, text.get("model_type", ""))
        new = [d * factor if i in grow else d for i, d in enumerate(shape)]
        n = math.prod(new)
        linear = len(shape) > 1 and "norm" not in name and "conv1d" not in name and not name.endswith(("_bias", "_scales"))
        if linear and grow and (dtype == "U8" or magnitude(data, dtype) > 0):
            wide = 1 if re.search(r"embed|word_emb", name) or len(grow) == 1 and 0 in grow else factor
            data = drawn(n, dtype, dtype == "U8" or magnitude(data, dtype) / math.sqrt(wide), rng)
        else:
            data = repeated(data, shape, new)
        assert len(data) == n * SIZES[dtype], name
        head[name] = {"dtype": dtype, "shape": new, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text_of = json.dumps(head).encode()
    text_of += b" " * (-len(text_of) % 8)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text_of)) + text_of + b"".join(parts))


main()
