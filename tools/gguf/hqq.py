"""hqq.py FOLDER [SEED]: the plugin hqq beside half-quadratic quantization as it was published (Badri and Shaji, 2023), in numpy and
F64: p 0.7, beta 10, kappa 1.01, 20 steps, one end of the steps for the matrix.  28 random matrices for each width and group."""
import os
import shutil
import sys

import numpy as np

import models
import program

P, BETA, KAPPA, STEPS = 0.7, 10.0, 1.01, 20
# the most that the error may be of the published one: the p-norm, which is minimised, and the mean |e|, which decides when to stop,
# may be 1 % more, for minimums are rounded to F16; squares are no aim of the method, and ends of groups differ
WORSE = {P: 1.01, 1: 1.01, 2: 1.03}
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def shrink(x, beta):
    a = np.abs(x)
    with np.errstate(divide="ignore"):
        return np.sign(x) * np.maximum(a - np.where(a > 0, a, np.inf) ** (P - 1) / beta, 0)


def published(w, bits, group):
    """The values that the codes stand for."""
    rows, cols = w.shape
    g = w.reshape(-1, group).astype(np.float64)
    low, high, top = g.min(1, keepdims=True), g.max(1, keepdims=True), 2**bits - 1
    scale = top / np.maximum(high - low, 1e-30)
    zero, beta, best, best_zero = -low * scale, BETA, np.inf, -low * scale
    for _ in range(STEPS):
        codes = np.clip(np.round(g * scale + zero), 0, top)
        left = g - (codes - zero) / scale
        error = np.abs(left).mean()
        if error >= best:
            break
        best, best_zero = error, zero
        zero = (codes - (g - shrink(left, beta)) * scale).mean(1, keepdims=True)
        beta *= KAPPA
    codes = np.clip(np.round(g * scale + best_zero), 0, top)
    return ((codes - best_zero) / scale).reshape(rows, cols)


def decoded(codes, meta, cols, bits, group, dtype):
    """tessera.int/2 with stored scales and minimums: docs/formats/int2.md."""
    stream = np.unpackbits(codes, axis=1, bitorder="little")[:, : cols * bits].reshape(len(codes), cols, bits)
    q = (stream * (1 << np.arange(bits))).sum(2).astype(np.float32)
    n = cols // group
    numbers = np.ascontiguousarray(meta[:, : 2 * n * np.dtype(dtype).itemsize]).view(dtype).astype(np.float32)
    return q * np.repeat(numbers[:, :n], group, 1) + np.repeat(numbers[:, n:], group, 1)


def weights(random):
    """A model whose matrices have weights of five distributions."""
    m = models.Model(lambda name, cols: "F32", random)
    for i, (name, (kind, _, w)) in enumerate(m.tensors.items()):
        if w.ndim < 2:
            continue
        w = (random.standard_normal(w.shape), random.laplace(size=w.shape), random.standard_t(3, w.shape),
             random.standard_normal(w.shape) + 0.7, random.standard_normal(w.shape) * np.exp(random.standard_normal(w.shape[1])),
             )[i % 5]
        w = (w / 16).astype(np.float32)
        m.tensors[name] = kind, w, w
    return m


def halves(w, heads):
    """Rows of the file, adjacent pairs, in the order of the model."""
    return w.reshape(heads, models.DIM // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def main():
    work, seed = sys.argv[1], int((sys.argv[2:] or [0])[0])
    os.makedirs(work, exist_ok=True)
    random, problems, n = np.random.default_rng(seed), [], 0
    path, out = os.path.join(work, "w.gguf"), os.path.join(work, "packed")
    for scale in ("f16", "f32"):
        sources = [weights(random), weights(random)]
        for bits in (2, 3, 4, 8):
            for group in (32, 64, 128):
                ratios = []
                for m in sources:
                    m.write(path)
                    shutil.rmtree(out, ignore_errors=True)
                    program.must("quantize", path, "-o", out, "-q", "--use", "hqq", "--bits", bits, "--group", group, "--scale",
                                 scale)
                    for layer in range(models.LAYERS):
                        held = program.tensors(os.path.join(out, f"layer-{layer:05}.safetensors"))
                        for short, long in NAMES.items():
                            w = m.tensors[f"blk.{layer}.{short}.weight"][2]
                            if short in ("attn_q", "attn_k"):
                                w = halves(w, w.shape[0] // models.DIM)
                            name = f"model.layers.{layer}.{long}"
                            got = decoded(held[name + ".codes"], held[name + ".meta"], w.shape[1], bits, group,
                                          "<f2" if scale == "f16" else "<f4")
                            want = published(w, bits, group)
                            ratios.append([(np.abs(w - got) ** p).mean() / (np.abs(w - want) ** p).mean() for p in WORSE])
                worst = np.max(ratios, 0)
                n += len(ratios)
                print(f"{bits} bits, group {group}, {scale}: {len(ratios)} matrices, error by the published one's at most "
                      + ", ".join(f"{v:.4f} (p {p})" for v, p in zip(worst, WORSE)), flush=True)
                if not (worst <= list(WORSE.values())).all():
                    problems.append(f"{bits} bits, group {group}, {scale}: {worst}")
    for p in problems:
        print("WRONG", p)
    print(f"{n} matrices, {len(problems)} problems")
    sys.exit(1 if problems or not n else 0)


main()
