"""latent.py: DeepSeek-V2 and V3 in double precision, from their equations; numpy alone.  It shares no line with the
program under test.  Tensors are by their Hugging Face names, linears [out, in]."""
import json
import math
import os
import struct

import numpy as np

KINDS = {"F32": ("<f4", 4), "F16": ("<f2", 2), "BF16": ("<u2", 2), "F8_E4M3": ("u1", 1)}


def e4m3():
    """Values of the 256 codes of FP8 E4M3 (fn): no infinity, NaN where all seven bits are set."""
    out = np.zeros(256)
    for code in range(256):
        s, e, m = code >> 7, code >> 3 & 15, code & 7
        v = m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
        out[code] = np.nan if code & 127 == 127 else -v if s else v
    return out


def read_folder(folder):
    """Every tensor as float64; FP8 ones as codes."""
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if not name.startswith("model") or not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        for key, t in json.loads(data[8 : 8 + n]).items():
            if key == "__metadata__":
                continue
            a, b = t["data_offsets"]
            raw = np.frombuffer(data[8 + n + a : 8 + n + b], KINDS[t["dtype"]][0])
            if t["dtype"] == "BF16":
                raw = (raw.astype(np.uint32) << 16).view(np.float32)
            tensors[key] = raw.reshape(t["shape"])
            if t["dtype"] != "F8_E4M3":
                tensors[key] = tensors[key].astype(np.float64)
    return tensors


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, array as stored)."""
    head, at = {}, 0
    for key in sorted(tensors):
        kind, a = tensors[key]
        head[key] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for key in sorted(tensors):
            f.write(tensors[key][1].tobytes())


def to_bf16(x):
    u = np.asarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def rms(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def ms(factor, a):
    return 1.0 if factor <= 1 else 0.1 * a * math.log(factor) + 1


def frequencies(c):
    """Angles per position of each pair, and the factor of cosine and sine."""
    r, theta = c["qk_rope_head_dim"], c["rope_theta"]
    f = theta ** (-2.0 * np.arange(r // 2) / r)
    y = c.get("rope_scaling")
    if not y:
        return f, 1.0
    old, factor = y["original_max_position_embeddings"], y["factor"]
    at = lambda n: r * math.log(old / (2 * math.pi * n)) / (2 * math.log(theta))
    low = max(math.floor(at(y.get("beta_fast", 32))), 0)
    high = min(math.ceil(at(y.get("beta_slow", 1))), r - 1)
    ramp = np.clip((np.arange(r // 2) - low) / (high - low or 0.001), 0, 1)
    att = ms(factor, y["mscale"]) / ms(factor, y["mscale_all_dim"]) if y.get("mscale") else ms(factor, 1)
    return f / factor * ramp + f * (1 - ramp), att


def rotate(x, c):
    """x [..., T, r], positions along T: pairs (2m, 2m+1), or (m, m + r/2) if rope_interleave is false."""
    f, att = frequencies(c)
    r = x.shape[-1]
    angle = np.arange(x.shape[-2])[:, None] * f
    cos, sin = np.cos(angle) * att, np.sin(angle) * att
    out = np.empty_like(x)
    if c.get("rope_interleave", True):
        a, b = x[..., 0::2], x[..., 1::2]
        out[..., 0::2], out[..., 1::2] = a * cos - b * sin, b * cos + a * sin
    else:
        a, b = x[..., : r // 2], x[..., r // 2 :]
        out[..., : r // 2], out[..., r // 2 :] = a * cos - b * sin, b * cos + a * sin
    return out


def attention(x, w, p, c):
    n, dn, dr, dv = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    t, rank, p = len(x), c["kv_lora_rank"], p + "self_attn."
    if c.get("q_lora_rank"):
        q = rms(x @ w[p + "q_a_proj.weight"].T, w[p + "q_a_layernorm.weight"], 1e-6) @ w[p + "q_b_proj.weight"].T
    else:
        q = x @ w[p + "q_proj.weight"].T
    q = q.reshape(t, n, dn + dr).transpose(1, 0, 2)
    kv = x @ w[p + "kv_a_proj_with_mqa.weight"].T
    row = rms(kv[:, :rank], w[p + "kv_a_layernorm.weight"], 1e-6)
    kb = (row @ w[p + "kv_b_proj.weight"].T).reshape(t, n, dn + dv).transpose(1, 0, 2)
    k_rope = rotate(kv[:, rank:], c)
    s = q[..., :dn] @ kb[..., :dn].transpose(0, 2, 1) + rotate(q[..., dn:], c) @ k_rope.T
    y = c.get("rope_scaling") or {}
    s *= (dn + dr) ** -0.5 * ms(y.get("factor", 1), y.get("mscale_all_dim", 0)) ** 2
    s = np.where(np.tril(np.ones((t, t), bool)), s, -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    o = s / s.sum(-1, keepdims=True) @ kb[..., dn:]
    return o.transpose(1, 0, 2).reshape(t, n * dv) @ w[p + "o_proj.weight"].T


def mlp(x, w, p):
    g = x @ w[p + "gate_proj.weight"].T
    return (g / (1 + np.exp(-g)) * (x @ w[p + "up_proj.weight"].T)) @ w[p + "down_proj.weight"].T


def route(x, w, p, c, gaps):
    """Experts of each token and their weights.  gaps gets how far each choice is from another one."""
    score = x @ w[p + "gate.weight"].T
    e, k = c["n_routed_experts"], c["num_experts_per_tok"]
    v3 = c["model_type"] == "deepseek_v3"
    if v3:
        prob = 1 / (1 + np.exp(-score))
        choice = prob + w[p + "gate.e_score_correction_bias"]
    else:
        prob = np.exp(score - score.max(-1, keepdims=True))
        prob /= prob.sum(-1, keepdims=True)
        choice = prob.copy()
    if v3 or c["topk_method"] == "group_limited_greedy":
        g, used = c["n_group"], c["topk_group"]
        part = np.sort(choice.reshape(len(x), g, e // g), -1)
        group = part[..., -2:].sum(-1) if v3 else part[..., -1]
        order = np.argsort(-group, -1, kind="stable")
        if used < g:
            rank = -np.sort(-group, -1)
            gaps.append((rank[:, used - 1] - rank[:, used]).min())
        out = np.ones((len(x), g), bool)
        np.put_along_axis(out, order[:, :used], False, -1)
        choice[np.repeat(out, e // g, -1)] = -np.inf if v3 else 0
    rank = -np.sort(-choice, -1)
    gaps.append((rank[:, k - 1] - rank[:, k]).min())
    chosen = np.argsort(-choice, -1, kind="stable")[:, :k]
    weight = np.take_along_axis(prob, chosen, -1)
    if v3 and c["norm_topk_prob"]:
        weight /= weight.sum(-1, keepdims=True) + 1e-20
    return chosen, weight * c["routed_scaling_factor"]


def experts(x, w, p, c, gaps):
    chosen, weight = route(x, w, p, c, gaps)
    out = mlp(x, w, p + "shared_experts.") if c.get("n_shared_experts") else np.zeros_like(x)
    for t in range(len(x)):
        for e, v in zip(chosen[t], weight[t]):
            out[t] += v * mlp(x[t : t + 1], w, f"{p}experts.{e}.")[0]
    return out


def logits(folder, ids, gaps=None):
    """Logits [len(ids), vocabulary] of a folder."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    w, gaps = widen(read_folder(folder), c), [] if gaps is None else gaps
    c.setdefault("rope_theta", (c.get("rope_parameters") or {}).get("rope_theta", 10000.0))
    x = w["model.embed_tokens.weight"][np.asarray(ids)]
    for layer in range(c["num_hidden_layers"]):
        p, eps = f"model.layers.{layer}.", c["rms_norm_eps"]
        x = x + attention(rms(x, w[p + "input_layernorm.weight"], eps), w, p, c)
        y = rms(x, w[p + "post_attention_layernorm.weight"], eps)
        if layer < c["first_k_dense_replace"]:
            x = x + mlp(y, w, p + "mlp.")
        else:
            x = x + experts(y, w, p + "mlp.", c, gaps)
    return rms(x, w["model.norm.weight"], c["rms_norm_eps"]) @ w["lm_head.weight"].T


def widen(w, c):
    """FP8 matrices times the scales of their blocks, each product rounded to F32 once."""
    block = (c.get("quantization_config") or {}).get("weight_block_size")
    for key in [k for k in w if k.endswith(".weight_scale_inv")]:
        name, scale = key[: -len("_scale_inv")], w.pop(key)
        rows, cols = w[name].shape
        full = np.repeat(np.repeat(scale, block[0], 0)[:rows], block[1], 1)[:, :cols]
        w[name] = (e4m3()[w[name]].astype(np.float32) * full.astype(np.float32)).astype(np.float64)
    return w


def greedy(folder, ids, n):
    """The next n tokens, and the smallest gap between the two best on the way."""
    ids, gap = list(ids), np.inf
    for _ in range(n):
        last = logits(folder, ids)[-1]
        two = np.sort(last)[-2:]
        gap = min(gap, two[1] - two[0])
        ids.append(int(last.argmax()))
    return ids[-n:], float(gap)
