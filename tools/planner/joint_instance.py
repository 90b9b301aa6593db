#!/usr/bin/env python3
"""joint_instance.py [--layers N] [--items N] [--variants N] [--links N] [--bpw X] [--ends N] [--first X] [--kinds N] [--seed N] - a
planning problem of the size of a 70B model as tessera.instance/2 on stdout, without model or device profiles.

Two pools of four devices, 24 GB with 600 GB/s and 16 GB with 300 GB/s.  A variant of a pool is a width
of tensor parallelism (1, 2, 4) or, from the fourth on, a width with a lossy codec for its sums.  An item
is a scheme, a type of KV cache and a number of compensated channels.  Omega is 4^-bits with a factor of each
layer; its limit is that of X bits per weight everywhere.  With --ends 2 and 3 each option is there again with
narrower ends.  All prompts are done within --first times what they take in one stage on the first kind; 0: no limit.
With --kinds N there are no pools but N devices of each kind, of one width: what the solver `ilp` takes, too."""
import argparse
import json
import random


def items_of(n):
    schemes = [3, 4, 5, 6, 8, 2.5, 3.5, 4.5]
    kv = [(16, 0), (8, 0.001)]
    compensated = [(0, 1), (16, 0.62)]
    every = [(b, c, w, k, f) for k, f in compensated for c, w in kv for b in schemes]
    return every[:n]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--layers", type=int, default=80)
    a.add_argument("--items", type=int, default=32)
    a.add_argument("--variants", type=int, default=4)
    a.add_argument("--links", type=int, default=4)
    a.add_argument("--bpw", type=float, default=4.2)
    a.add_argument("--ends", type=int, default=1)
    a.add_argument("--first", type=float, default=0)
    a.add_argument("--kinds", type=int, default=0)
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    if not 1 <= o.items <= 32 or not 1 <= o.variants <= 6 or not 1 <= o.links <= 4:
        a.error("at most 32 items, 6 variants and 4 codecs for links are possible, at least 1 of each")
    if o.kinds and o.variants > 1:
        a.error("--kinds goes with --variants 1")
    r = random.Random(o.seed)
    batch, prompt, tokens, weights, hidden = 32, 1024, 256, 855e6, 8192
    items = items_of(o.items)
    pools = [dict(memory=24e9, rate=600e9, flops=120e12), dict(memory=16e9, rate=300e9, flops=60e12)]
    widths = [(1, 0), (2, 0), (4, 0), (2, 1), (4, 1), (4, 2)][: o.variants]
    kinds, meshes = [], []
    for g, p in enumerate(pools):
        for t, codec in widths:
            meshes.append((p, t, codec))
            kinds.append(dict(name=f"p{g} x{t} c{codec}", **(dict(count=o.kinds) if o.kinds else dict(pool=g, takes=t)),
                              capacity_bytes=int(t * p["memory"] * 0.92)))
    layer_bytes = [[int(weights * b / 8 + batch * (prompt + tokens) * 2048 * c / 8 + 5e5 * k)
                    for b, c, _, k, _ in items]]
    factor = [(3 if l < 3 else 1) * r.uniform(0.5, 1.5) for l in range(o.layers)]
    noise = [[r.uniform(0.95, 1.05) for _ in items] for _ in range(o.layers)]
    omega = [[factor[l] * (4 ** -b * f + w / 8) * noise[l][i] for i, (b, _, w, _, f) in enumerate(items)]
             for l in range(o.layers)]

    def table(tokens_of, context, rows):
        out = []
        for p, t, codec in meshes:
            sums = 0 if t == 1 else 2 * (0.012 + rows * hidden * 2 / (1 if codec == 0 else 3) / 12e9 * 1e3)
            row = []
            for b, c, _, k, _ in items:
                read = (weights * b / 8 + rows * context * 2048 * c / 8) / (p["rate"] * t) * 1e3
                work = 2 * weights * tokens_of * rows / (p["flops"] * t) * 1e3 * (1 + 0.02 * (b != 8))
                fetch = 0 if k == 0 else 0.002 * k * min(rows, 8) ** 0.5
                row.append(round(max(read, work) + fetch + sums, 6))
            out.append([row])
        return out

    def comm(rows, width):
        return [[round(0.03 + rows * hidden * width / 3e9 * 1e3, 6) for _ in kinds] for _ in kinds]

    link = [("bf16", 2, 0), ("int8", 1, 2e-5), ("mx4", 0.53, 3e-4), ("mx3", 0.4, 2e-3)][: o.links]
    options = []
    for eta, xi in [(1, 32), (2, 16), (1, 8), (1, 4)]:
        options.append(dict(
            prefill_mb=eta, decode_mb=xi,
            pre_ms=[[row] for (row,) in table(prompt, 0, eta)],
            dec_ms=[[row] for (row,) in table(1, prompt + tokens / 2, xi)],
            comm_pre_ms=[comm(eta * prompt, w) for _, w, _ in link],
            comm_dec_ms=[comm(xi, w) for _, w, _ in link],
            embed_pre_ms=[0.1 * eta] * len(kinds), embed_dec_ms=[0.01] * len(kinds),
            head_pre_ms=[0.2 * eta] * len(kinds), head_dec_ms=[1.2] * len(kinds),
            workspace_bytes=[int(3e8)] * len(kinds)))
    limit = sum(f * 4 ** -o.bpw for f in factor)
    first = None
    if o.first > 0:
        one = options[0]
        first = o.first * batch * o.layers * one["pre_ms"][0][0][0]
    plain = options
    for size, w in [(0.5, 1e-4), (0.3, 2e-3)][: o.ends - 1]:
        options = options + [dict(p, omega=w, head_dec_ms=[h * size for h in p["head_dec_ms"]]) for p in plain]
    if o.ends > 1:  # what the widest ends take more than the narrowest
        for i, p in enumerate(options):
            p["embed_bytes"] = p["head_bytes"] = int(3e8 * (1, 0.5, 0.3)[i // len(plain)])
    print(json.dumps(dict(
        format="tessera.instance/2", name=f"joint-{o.layers}-{o.items}-{o.variants}-{o.links}-{o.seed}",
        **({"max_first_ms": first} if first else {}), objective="steady", layers=o.layers, bits=[f"{b}/{c}/{k}" for b, c, _, k, _ in items],
        layer_bytes=layer_bytes, omega=omega, theta=0, max_omega=limit, batch=batch, tokens=tokens,
        **({} if o.kinds else {"pools": [4, 4]}), kinds=kinds, embed_bytes=int(5e8), head_bytes=int(5e8),
        kind_omega=[[0 if c == 0 else 2e-5 * c * f for f in factor] for _, _, c in meshes],
        links=[n for n, _, _ in link], link_omega=[[w * f for f in factor] for _, _, w in link],
        options=options)))


main()
