"""models.py - GGUF files of random models, written by llama.cpp's Python package, and the logits of the llama ones in F64."""
import gguf
import numpy as np

import blocks

EPS, BASE = 1e-5, 10000.0
VOCAB, LAYERS, DIM = 288, 2, 64  # DIM: of a head
CONTEXT = 256


def shapes(arch, hidden, ffn, heads, kv, experts=0):
    """(name, rows, columns, experts) of every matrix, in the order of the file."""
    yield "token_embd.weight", VOCAB, hidden, 0
    for i in range(LAYERS):
        at = f"blk.{i}."
        if arch == "phi3":  # one tensor of three, and one of two
            yield at + "attn_qkv.weight", (heads + 2 * kv) * DIM, hidden, 0
        else:
            yield at + "attn_q.weight", heads * DIM, hidden, 0
            yield at + "attn_k.weight", kv * DIM, hidden, 0
            yield at + "attn_v.weight", kv * DIM, hidden, 0
        yield at + "attn_output.weight", hidden, heads * DIM, 0
        if experts:
            yield at + "ffn_gate_inp.weight", experts, hidden, 0
            yield at + "ffn_gate_exps.weight", ffn, hidden, experts
            yield at + "ffn_up_exps.weight", ffn, hidden, experts
            yield at + "ffn_down_exps.weight", hidden, ffn, experts
        elif arch == "phi3":
            yield at + "ffn_up.weight", 2 * ffn, hidden, 0
            yield at + "ffn_down.weight", hidden, ffn, 0
        else:
            yield at + "ffn_gate.weight", ffn, hidden, 0
            yield at + "ffn_up.weight", ffn, hidden, 0
            yield at + "ffn_down.weight", hidden, ffn, 0
    yield "output.weight", VOCAB, hidden, 0


def vectors(arch, hidden, heads, kv):
    """(name, length, mean) of what is F32 in every file."""
    for i in range(LAYERS):
        at = f"blk.{i}."
        yield at + "attn_norm.weight", hidden, 1
        yield at + "ffn_norm.weight", hidden, 1
        if arch == "qwen2":
            yield at + "attn_q.bias", heads * DIM, 0
            yield at + "attn_k.bias", kv * DIM, 0
            yield at + "attn_v.bias", kv * DIM, 0
        if arch in ("qwen3", "qwen3moe"):
            yield at + "attn_q_norm.weight", DIM, 1
            yield at + "attn_k_norm.weight", DIM, 1
    yield "output_norm.weight", hidden, 1


class Model:
    """tensors: {name: (type, bytes, F32 values)}; kinds(name, columns) gives the type of a matrix."""

    def __init__(self, kinds, random, arch="llama", hidden=256, ffn=512, heads=4, kv=2, tied=False, experts=0,
                 alignment=0, extra=(), tokens=None):
        self.arch, self.hidden, self.ffn, self.heads, self.kv = arch, hidden, ffn, heads, kv
        self.experts, self.alignment, self.extra, self.tokens, self.tensors = experts, alignment, extra, tokens, {}
        for name, rows, cols, stack in shapes(arch, hidden, ffn, heads, kv, experts):
            if name == "output.weight" and tied:
                continue
            kind = "F32" if "gate_inp" in name else kinds(name, cols)
            deviation = 0.5 if name == "token_embd.weight" else 1 / np.sqrt(cols)
            raw, w = blocks.matrix(kind, rows * max(stack, 1), cols, deviation, random)
            shape = (stack, rows, cols) if stack else (rows, cols)
            self.tensors[name] = kind, raw.reshape(*shape[:-1], -1), w.reshape(shape)
        for name, n, mean in vectors(arch, hidden, heads, kv):
            w = (mean + 0.2 * random.standard_normal(n)).astype(np.float32)
            self.tensors[name] = "F32", w, w

    def bytes_of_matrices(self):
        return sum(raw.nbytes for _, raw, w in self.tensors.values() if w.ndim > 1)

    def write(self, path, widened=False):
        w = gguf.GGUFWriter(path, self.arch)
        if self.alignment:
            w.add_custom_alignment(self.alignment)
        w.add_block_count(LAYERS)
        w.add_context_length(CONTEXT)
        w.add_embedding_length(self.hidden)
        w.add_feed_forward_length(self.ffn)
        w.add_head_count(self.heads)
        w.add_head_count_kv(self.kv)
        if self.arch != "phi3" or self.heads * DIM != self.hidden:
            w.add_key_length(DIM)
            w.add_value_length(DIM)
        w.add_rope_dimension_count(DIM)
        w.add_rope_freq_base(BASE)
        w.add_layer_norm_rms_eps(EPS)
        w.add_vocab_size(VOCAB)
        if self.experts:
            w.add_expert_count(self.experts)
            w.add_expert_used_count(2)
            if self.arch == "qwen3moe":
                w.add_expert_feed_forward_length(self.ffn)
        if self.tokens:
            w.add_tokenizer_model("gpt2")
            w.add_tokenizer_pre("gpt-2")
            w.add_token_list(self.tokens)
            w.add_token_types([1] * len(self.tokens))
            w.add_token_merges([f"{self.tokens[35]} {self.tokens[36]}"])
            w.add_add_bos_token(False)
        else:
            w.add_tokenizer_model("none")
        for key, value in self.extra:
            w.add_array(key, value) if isinstance(value, list) else w.add_string(key, value)
        for name, (kind, raw, values) in self.tensors.items():
            if widened or kind == "F32":
                w.add_tensor(name, values)
            else:
                w.add_tensor(name, np.ascontiguousarray(raw).view(np.uint8), raw_dtype=blocks.Q[kind])
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def rotate(x):
    """[tokens, heads, DIM], adjacent columns are a pair, as in files of the architecture llama."""
    angle = np.arange(x.shape[0])[:, None] * BASE ** (-np.arange(0, DIM, 2) / DIM)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
    out[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
    return out


def attention(m, q, k, v):
    n, group = q.shape[0], m.heads // m.kv
    q, k = rotate(q.reshape(n, m.heads, DIM)), rotate(k.reshape(n, m.kv, DIM))
    k, v = np.repeat(k, group, 1), np.repeat(v.reshape(n, m.kv, DIM), group, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(DIM)
    scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    return np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(n, -1)


def feed_forward(m, t, at, x, seen):
    if not m.experts:
        seen(at + "ffn_gate.weight", x), seen(at + "ffn_up.weight", x)
        h = silu(x @ t(at + "ffn_gate.weight").T) * (x @ t(at + "ffn_up.weight").T)
        seen(at + "ffn_down.weight", h)
        return h @ t(at + "ffn_down.weight").T
    share = softmax(x @ t(at + "ffn_gate_inp.weight").T)
    out = np.zeros_like(x)
    for i, row in enumerate(share):
        best = np.argsort(-row)[:2]
        for e in best:
            seen(at + "ffn_gate_exps.weight", x[i : i + 1], e), seen(at + "ffn_up_exps.weight", x[i : i + 1], e)
            h = silu(t(at + "ffn_gate_exps.weight")[e] @ x[i]) * (t(at + "ffn_up_exps.weight")[e] @ x[i])
            seen(at + "ffn_down_exps.weight", h[None], e)
            out[i] += row[e] / row[best].sum() * (t(at + "ffn_down_exps.weight")[e] @ h)
    return out


def logits(m, ids, seen=lambda name, x, expert=None: None):
    """F64 [tokens, VOCAB] of an architecture llama; seen() gets the inputs of each matrix."""
    def t(name):
        return m.tensors[name][2].astype(np.float64)

    x = t("token_embd.weight")[ids]
    for i in range(LAYERS):
        at = f"blk.{i}."
        h = norm(x, t(at + "attn_norm.weight"))
        for part in "qkv":
            seen(f"{at}attn_{part}.weight", h)
        h = attention(m, *(h @ t(f"{at}attn_{part}.weight").T for part in "qkv"))
        seen(at + "attn_output.weight", h)
        x = x + h @ t(at + "attn_output.weight").T
        x = x + feed_forward(m, t, at, norm(x, t(at + "ffn_norm.weight")), seen)
    head = "output.weight" if "output.weight" in m.tensors else "token_embd.weight"
    return norm(x, t("output_norm.weight")) @ t(head).T
