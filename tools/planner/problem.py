"""problem.py - planning problems (tessera.instance/1 and /2) for checks by other programs: tables with their defaults, the price of a
plan with bytes as integers, apart from Tessera, and random problems with all parts."""
import math

INF = math.inf


class Instance:
    """The tables of a file, with the defaults of docs/formats/instance.md."""

    def __init__(self, j):
        self.j, self.L, self.Q, self.K = j, j["layers"], len(j["bits"]), len(j["kinds"])
        self.cls = j.get("layer_class", [0] * self.L)
        self.V = len(j.get("links", ["one"]))
        self.theta, self.B, self.n = j.get("theta", 0), j["batch"], j["tokens"]
        self.limit = j.get("max_omega")
        self.first = j.get("max_first_ms") or None
        self.kind_omega = j.get("kind_omega", [[0] * self.L] * self.K)
        self.link_omega = j.get("link_omega", [[0] * self.L] * self.V)
        self.host = j.get("host_bytes")
        self.pools = j.get("pools")
        kinds = j["kinds"]
        self.pool = [k["pool"] if self.pools else i for i, k in enumerate(kinds)]
        self.takes = [k["takes"] if self.pools else 1 for k in kinds]
        self.have = self.pools or [k["count"] for k in kinds]
        self.order = None if j.get("order", "free") == "free" else j["order"]
        self.unused = j.get("allow_unused", True)
        self.paper = j["objective"] == "paper"

    def option(self, o):
        K, V = self.K, self.V
        zero, square = [0] * K, [[[0] * K] * K] * V
        f = {n: o.get(n, zero) for n in ("embed_pre_ms", "embed_dec_ms", "head_pre_ms", "head_dec_ms", "workspace_bytes")}
        f["pre"], f["dec"] = o["pre_ms"], o["dec_ms"]
        for n in ("comm_pre_ms", "comm_dec_ms"):
            c = o.get(n)
            f[n] = square if c is None else c if "links" in self.j else [c]
        f["embed"] = self.j.get("embed_bytes", 0) + o.get("embed_bytes", 0)
        f["head"] = self.j.get("head_bytes", 0) + o.get("head_bytes", 0)
        f["omega"] = o.get("omega", 0)
        f["jobs"] = o.get("prefill_jobs") or math.ceil(self.B / o["prefill_mb"])
        f["mu"] = math.ceil(self.B / o["decode_mb"])
        return f

    def room(self, f, k):
        return self.j["kinds"][k]["capacity_bytes"] - f["workspace_bytes"][k]


def price(p, f, stages, items, codecs):
    """The objective of a plan [(kind, first, count)], or None where a rule forbids it."""
    pre, dec, links, w = [], [], [], f["omega"]
    for s, (k, first, count) in enumerate(stages):
        last = s + 1 == len(stages)
        a = (f["embed_pre_ms"][k] if s == 0 else 0) + (f["head_pre_ms"][k] if last else 0)
        d = (f["embed_dec_ms"][k] if s == 0 else 0) + (f["head_dec_ms"][k] if last else 0)
        size, host = (f["embed"] if s == 0 else 0) + (f["head"] if last else 0), 0
        for i in range(first, first + count):
            c, q = p.cls[i], items[i]
            if f["pre"][k][c][q] is None or f["dec"][k][c][q] is None:
                return None
            a, d = a + f["pre"][k][c][q], d + f["dec"][k][c][q]
            size += p.j["layer_bytes"][c][q]
            host += p.host[c][q] if p.host else 0
            w += p.j["omega"][i][q] + p.kind_omega[k][i]
        if size > p.room(f, k) or host > p.j["kinds"][k].get("host_capacity_bytes", 0):
            return None
        pre.append(a)
        dec.append(d)
        if not last:
            v, to = codecs[s], stages[s + 1][0]
            links.append((f["comm_pre_ms"][v][k][to], f["comm_dec_ms"][v][k][to]))
            w += p.link_omega[v][first + count - 1]
    P, D = max(pre + [a for a, _ in links]), max(dec + [d for _, d in links])
    F = sum(pre) + sum(a for a, _ in links) + (f["jobs"] - 1) * P
    if p.limit is not None and w > p.limit + 1e-9 * max(1, p.limit):
        return None
    if p.first and F > p.first + 1e-9 * max(1, p.first):
        return None
    if p.paper:
        return (f["jobs"] - 1) * P + (f["mu"] - 1) * (p.n - 1) * D + sum(pre) + sum(dec) + p.theta * w
    R = sum(dec) + sum(d for _, d in links)
    decode = 0 if p.n == 1 else max((p.n - 1) * R + (f["mu"] - 1) * D, R + ((p.n - 1) * f["mu"] - 1) * D)
    return F + decode + p.theta * w


def draw(r):
    """A random problem with all parts, of at most 6 layers."""
    L, G, V, C = r.randint(2, 6), r.randint(1, 2), r.randint(1, 3), r.randint(1, 2)
    ms = lambda most: r.randint(1, 8 * most) / 8
    pools = [r.randint(1, 3) for _ in range(G)]
    kinds = [(g, t, c) for g in range(G) for t in range(1, pools[g] + 1) for c in range(r.randint(1, 2) if t > 1 else 1)]
    memory = [L * r.randint(10, 70) for _ in range(G)]
    items = [(b, kv, k) for b in range(r.randint(2, 3)) for kv in range(r.randint(1, 2)) for k in range(r.randint(1, 2))]
    items = sorted(set(items))
    K, Q = len(kinds), len(items)
    B = r.randint(4, 8)
    options = []
    for _ in range(r.randint(1, 2)):
        eta = r.randint(1, 2)
        entry = lambda: ms(6) if r.random() < 0.9 else None
        options.append(dict(
            prefill_mb=eta, decode_mb=eta * r.randint(1, 2),
            pre_ms=[[[entry() for _ in range(Q)] for _ in range(C)] for _ in range(K)],
            dec_ms=[[[ms(6) for _ in range(Q)] for _ in range(C)] for _ in range(K)],
            comm_pre_ms=[[[ms(4) for _ in range(K)] for _ in range(K)] for _ in range(V)],
            comm_dec_ms=[[[ms(4) for _ in range(K)] for _ in range(K)] for _ in range(V)],
            embed_pre_ms=[ms(2) for _ in range(K)], embed_dec_ms=[ms(2) for _ in range(K)],
            head_pre_ms=[ms(2) for _ in range(K)], head_dec_ms=[ms(2) for _ in range(K)],
            workspace_bytes=[r.randint(0, 30) for _ in range(K)],
            embed_bytes=r.randint(0, 20), head_bytes=r.randint(0, 20), omega=r.randint(0, 16) / 8))
    j = dict(format="tessera.instance/2", objective="paper" if r.random() < 0.25 else "steady", layers=L,
             layer_class=[r.randrange(C) for _ in range(L)], bits=[str(x) for x in items],
             layer_bytes=[[20 * (b + 1) + 12 * (2 - kv) + 3 * k + 4 * c for b, kv, k in items] for c in range(C)],
             host_bytes=[[6 * k for _, _, k in items] for _ in range(C)],
             omega=[[(3 - b + r.randint(0, 12) / 8) / (1 + k) + kv * r.randint(0, 6) / 8 for b, kv, k in items] for _ in range(L)],
             theta=r.choice([0, 0, r.randint(0, 16) / 8]), batch=B, tokens=r.randint(1, 6), pools=pools,
             kinds=[dict(name="k", pool=g, takes=t, capacity_bytes=memory[g] * t, host_capacity_bytes=r.randint(0, 8 * L)) for g, t, _ in kinds],
             kind_omega=[[c * r.randint(1, 8) / 8 for _ in range(L)] for _, _, c in kinds],
             links=[str(v) for v in range(V)], link_omega=[[v * r.randint(1, 8) / 8 for _ in range(L)] for v in range(V)],
             allow_unused=r.random() < 0.85, embed_bytes=r.randint(0, 20), head_bytes=r.randint(0, 20), options=options)
    if r.random() < 0.7:
        j["max_omega"] = L * r.randint(8, 32) / 8
    if r.random() < 0.5:
        j["max_first_ms"] = L * r.randint(40, 340) / 8
    if r.random() < 0.3:
        order = [g for g, n in enumerate(pools) for _ in range(n)]
        r.shuffle(order)
        j["order"] = order
    return j
