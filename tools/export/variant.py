"""variant.py rotated|scaled FOLDER OUT: a Llama folder with other weights and the same function, as F32.

rotated: the hidden states are turned by a Hadamard matrix with random signs; norm gains go into the weights
before, so weights have no outlying channels.  The LM head is a tensor of its own then.
scaled: channels between two linears, or a norm and a linear, are multiplied by factors of a log-normal
distribution (sigma 0.7) on one side and divided on the other, so weights have outlying columns and rows.

Quantizers see other distributions; in F32 the logits stay, to rounding.
"""
import json
import os
import shutil
import struct
import sys

import numpy as np


def load(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    state = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*t["data_offsets"])]
        if t["dtype"] == "BF16":
            v = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            v = np.frombuffer(raw, "<f4")
        state[name] = v.reshape(t["shape"]).astype(np.float64)
    return state


def save(state, path):
    header, at = {}, 0
    for name, v in state.items():
        header[name] = {"dtype": "F32", "shape": v.shape, "data_offsets": [at, at + 4 * v.size]}
        at += 4 * v.size
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for v in state.values():
            f.write(v.astype("<f4").tobytes())


# What reads the output of each norm of a layer.
READERS = {
    "input_layernorm": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "post_attention_layernorm": ["mlp.gate_proj", "mlp.up_proj"],
}


def rotated(w, config, rng):
    n = config["hidden_size"]
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    assert len(h) == n, "the hidden size is a power of two"
    q = rng.choice([-1.0, 1.0], n)[:, None] * h / np.sqrt(n)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for norm, readers in READERS.items():
            for linear in readers:
                w[f"{at}{linear}.weight"] = w[f"{at}{linear}.weight"] * w[f"{at}{norm}.weight"] @ q
            w[f"{at}{norm}.weight"] = np.ones(n)
        for linear in ("self_attn.o_proj", "mlp.down_proj"):
            w[f"{at}{linear}.weight"] = q.T @ w[f"{at}{linear}.weight"]
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    w["lm_head.weight"] = head * w["model.norm.weight"] @ q
    w["model.norm.weight"] = np.ones(n)
    w["model.embed_tokens.weight"] = w["model.embed_tokens.weight"] @ q
    config["tie_word_embeddings"] = False


def scaled(w, config, rng):
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for norm, readers in READERS.items():
            s = np.exp(0.7 * rng.standard_normal(config["hidden_size"]))
            w[f"{at}{norm}.weight"] = w[f"{at}{norm}.weight"] / s
            for linear in readers:
                w[f"{at}{linear}.weight"] = w[f"{at}{linear}.weight"] * s
        v, up = w[f"{at}self_attn.v_proj.weight"], w[f"{at}mlp.up_proj.weight"]
        s = np.exp(0.7 * rng.standard_normal(len(v)))
        w[f"{at}self_attn.v_proj.weight"] = v / s[:, None]
        s = np.repeat(s.reshape(kv, -1), heads // kv, axis=0).ravel()  # each query head reads its group's values
        w[f"{at}self_attn.o_proj.weight"] = w[f"{at}self_attn.o_proj.weight"] * s
        s = np.exp(0.7 * rng.standard_normal(len(up)))
        w[f"{at}mlp.up_proj.weight"] = up / s[:, None]
        w[f"{at}mlp.down_proj.weight"] = w[f"{at}mlp.down_proj.weight"] * s


def main():
    kind, folder, out = sys.argv[1:]
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    w = load(os.path.join(folder, "model.safetensors"))
    {"rotated": rotated, "scaled": scaled}[kind](w, config, np.random.default_rng(7))
    os.makedirs(out, exist_ok=True)
    config["torch_dtype"] = "float32"
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(folder, name), out)
    save(w, os.path.join(out, "model.safetensors"))


main()
