#!/usr/bin/env python3
"""highs.py TESSERA [--gap X] [--seconds N] [--below X] [--random N] [--seed N] [FILE...] - planning problems (tessera.instance/1 and /2) by HiGHS
and by the solver `exact`.

The program of an option has places in the pipeline instead of orders of devices: place s has kind k, layer i is at place s with
item q, and a codec goes with each place but the last.  So pools, links, codecs and fixed orders are one program.  What HiGHS finds
is priced here, with bytes as integers, apart from Tessera.  Fails where `exact` is worse than that plan, or better than what HiGHS
proved. With --below HiGHS is asked for plans that are better than that of `exact` by this part, which is sooner proved."""
import argparse
import json
import math
import random
import subprocess
import sys
import tempfile

import highspy
import numpy as np

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


class Program:
    def __init__(self):
        self.cost, self.lower, self.upper, self.whole = [], [], [], []
        self.start, self.index, self.value, self.low, self.high = [0], [], [], [], []
        self.offset = 0

    def column(self, upper=1.0, whole=True):
        self.cost.append(0.0)
        self.lower.append(0.0)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, terms, low, high):
        sums = {}
        for col, v in terms:
            sums[col] = sums.get(col, 0) + v
        for col, v in sums.items():
            if v:
                self.index.append(col)
                self.value.append(v)
        self.start.append(len(self.index))
        self.low.append(low)
        self.high.append(high)

    def solve(self, gap, seconds):
        h, lp = highspy.Highs(), highspy.HighsLp()
        h.setOptionValue("output_flag", False)
        for name, v in (("mip_rel_gap", gap), ("time_limit", float(seconds)), ("threads", 1),
                        ("mip_feasibility_tolerance", 1e-9), ("primal_feasibility_tolerance", 1e-9)):
            h.setOptionValue(name, v)
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.low)
        lp.col_cost_, lp.offset_ = np.array(self.cost), self.offset
        lp.col_lower_, lp.col_upper_ = np.array(self.lower), np.array(self.upper)
        lp.row_lower_, lp.row_upper_ = np.array(self.low), np.array(self.high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.start)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = np.array(self.index), np.array(self.value)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[w] for w in self.whole]
        h.passModel(lp)
        h.run()
        state, info = h.getModelStatus(), h.getInfo()
        if state == highspy.HighsModelStatus.kInfeasible:
            return None, INF
        found = info.primal_solution_status == 2
        return (list(h.getSolution().col_value) if found else None), info.mip_dual_bound


def places(p):
    """Most stages of a plan: the smallest widths first."""
    n = 0
    for g, have in enumerate(p.have):
        widths = [p.takes[k] for k in range(p.K) if p.pool[k] == g]
        n += have // min(widths) if widths else 0
    return min(n, p.L)


def devices(p, m, y, a, S):
    """Devices of pools, and a fixed order: each stage takes the next run of its pool."""
    for g, have in enumerate(p.have):
        m.row([(y[s][k], p.takes[k]) for s in range(S) for k in range(p.K) if p.pool[k] == g], -INF if p.unused else have, have)
    if p.order is None:
        return
    at = []
    for s in range(S):
        runs = []
        for k in range(p.K):
            mine = [i for i in range(len(p.order) - p.takes[k] + 1)
                    if all(g == p.pool[k] for g in p.order[i:i + p.takes[k]])]
            cols = [m.column() for _ in mine]
            m.row([(c, 1) for c in cols] + [(y[s][k], -1)], 0, 0)
            runs += [(c, i, i + p.takes[k]) for c, i in zip(cols, mine)]
        at.append(runs)
    for s in range(S - 1):  # a place that is empty begins after all
        m.row([(c, i) for c, i, _ in at[s + 1]] + [(c, -e) for c, _, e in at[s]] + [(a[s + 1], -len(p.order))],
              -len(p.order), INF)


def program(p, f):
    """The program of one option, and what reads a plan from its columns."""
    m, S, L, K, Q, V = Program(), places(p), p.L, p.K, p.Q, p.V
    a = [m.column() for _ in range(S)]
    y = [[m.column() for _ in range(K)] for _ in range(S)]
    z = {}
    for i in range(L):
        for s in range(min(S, i + 1)):
            for k in range(K):
                for q in range(Q):
                    c = p.cls[i]
                    if f["pre"][k][c][q] is not None and f["dec"][k][c][q] is not None and p.room(f, k) >= 0:
                        z[i, s, k, q] = m.column()
    on = {(i, s): [z[i, s, k, q] for k in range(K) for q in range(Q) if (i, s, k, q) in z] for i in range(L) for s in range(S)}
    for s in range(S):
        m.row([(c, 1) for c in y[s]] + [(a[s], -1)], 0, 0)
        if s:
            m.row([(a[s - 1], 1), (a[s], -1)], 0, INF)
        m.row([(c, 1) for i in range(L) for c in on[i, s]] + [(a[s], -1)], 0, INF)
        m.row([(c, 1) for c in on[L - 1, s]] + [(a[s], -1)] + ([(a[s + 1], 1)] if s + 1 < S else []), 0, 0)
        for i in range(L):
            for k in range(K):
                m.row([(z[i, s, k, q], 1) for q in range(Q) if (i, s, k, q) in z] + [(y[s][k], -1)], -INF, 0)
    for i in range(L):
        m.row([(c, 1) for s in range(S) for c in on[i, s]], 1, 1)

    def crossed(i, s):  # layer i is at place s or before, and the next one is not
        return [(c, 1) for t in range(s + 1) for c in on[i, t]] + [(c, -1) for t in range(s + 1) for c in on[i + 1, t]]

    for i in range(L - 1):
        for s in range(S):
            m.row(crossed(i, s), 0, INF)
    devices(p, m, y, a, S)
    w = {(s, k, j, v): m.column() for s in range(S - 1) for k in range(K) for j in range(K) for v in range(V)}
    codec = {(s, i, v): m.column() for s in range(S - 1) for i in range(L - 1) for v in range(V)}
    for s in range(S - 1):
        m.row([(w[s, k, j, v], 1) for k in range(K) for j in range(K) for v in range(V)] + [(a[s + 1], -1)], 0, 0)
        for k in range(K):
            m.row([(w[s, k, j, v], 1) for j in range(K) for v in range(V)] + [(y[s][k], -1)], -INF, 0)
            m.row([(w[s, j, k, v], 1) for j in range(K) for v in range(V)] + [(y[s + 1][k], -1)], -INF, 0)
        for i in range(L - 1):
            m.row([(codec[s, i, v], 1) for v in range(V)] + [(c, -x) for c, x in crossed(i, s)], 0, 0)
        for v in range(V):
            m.row([(codec[s, i, v], 1) for i in range(L - 1)] + [(w[s, k, j, v], -1) for k in range(K) for j in range(K)], 0, 0)

    def stage(s, dec):
        t, e, h = f["dec" if dec else "pre"], f["embed_dec_ms" if dec else "embed_pre_ms"], f["head_dec_ms" if dec else "head_pre_ms"]
        return [(c, t[k][p.cls[i]][q] + (e[k] if i == 0 else 0) + (h[k] if i == L - 1 else 0))
                for (i, at, k, q), c in z.items() if at == s]

    def link(s, dec):
        t = f["comm_dec_ms" if dec else "comm_pre_ms"]
        return [(w[s, k, j, v], t[v][k][j]) for k in range(K) for j in range(K) for v in range(V)]

    stages = [[stage(s, dec) for s in range(S)] for dec in (0, 1)]
    ways = [[link(s, dec) for s in range(S - 1)] for dec in (0, 1)]
    top = [m.column(INF, False), m.column(INF, False)]
    for dec in (0, 1):
        for terms in stages[dec] + ways[dec]:
            m.row([(top[dec], 1)] + [(c, -t) for c, t in terms], 0, INF)
    sums = [[x for terms in stages[d] for x in terms] for d in (0, 1)]
    sent = [[x for terms in ways[d] for x in terms] for d in (0, 1)]
    for s in range(S):
        size = [(c, p.j["layer_bytes"][p.cls[i]][q] + (f["embed"] if i == 0 else 0) + (f["head"] if i == L - 1 else 0))
                for (i, at, k, q), c in z.items() if at == s]
        rooms = [(y[s][k], -max(0, p.room(f, k))) for k in range(K)]
        unit = max([1] + [-r for _, r in rooms])
        m.row([(c, b / unit) for c, b in size + rooms], -INF, 0)
        if p.host:
            have = [(y[s][k], -p.j["kinds"][k].get("host_capacity_bytes", 0)) for k in range(K)]
            unit = max([1] + [-r for _, r in have])
            m.row([(c, p.host[p.cls[i]][q] / unit) for (i, at, k, q), c in z.items() if at == s] + [(c, b / unit) for c, b in have], -INF, 0)
    omega = [(c, p.j["omega"][i][q] + p.kind_omega[k][i]) for (i, s, k, q), c in z.items()]
    omega += [(c, p.link_omega[v][i]) for (s, i, v), c in codec.items()]
    if p.limit is not None:
        left = p.limit + 1e-9 * max(1, p.limit) - f["omega"]
        m.row([(c, x / max(abs(left), 1e-30)) for c, x in omega], -INF, 1 if left >= 0 else -1)
    prompts = sums[0] + sent[0] + [(top[0], f["jobs"] - 1)]
    if p.first:
        m.row([(c, x / p.first) for c, x in prompts], -INF, 1 + 1e-9 * max(1, p.first) / p.first)
    m.offset = p.theta * f["omega"]
    goal = [(c, p.theta * x) for c, x in omega]
    if p.paper:
        goal += sums[0] + sums[1] + [(top[0], f["jobs"] - 1), (top[1], (f["mu"] - 1) * (p.n - 1))]
    else:
        goal += prompts
        if p.n > 1:
            T, step = m.column(INF, False), p.n - 1
            goal.append((T, 1))
            for r, d in ((step, f["mu"] - 1), (1, step * f["mu"] - 1)):
                m.row([(T, 1), (top[1], -d)] + [(c, -r * x) for c, x in sums[1] + sent[1]], 0, INF)
    for c, x in goal:
        m.cost[c] += x

    def read(x):
        plan, items, codecs = [], [0] * L, []
        for (i, s, k, q), c in sorted(z.items()):
            if x[c] > 0.5:
                items[i] = q
                if s < len(plan):
                    plan[s] = (k, plan[s][1], plan[s][2] + 1)
                else:
                    plan.append((k, i, 1))
        for s in range(len(plan) - 1):
            codecs.append(max((x[w[s, k, j, v]], v) for k in range(K) for j in range(K) for v in range(V))[1])
        return plan, items, codecs

    return m, read


def by_highs(p, gap, seconds, below):
    """(value of the best plan, proved bound, whether all plans keep to the rules); only plans of at most `below`"""
    best, bound, exact = INF, INF, True
    for o in p.j["options"]:
        f = p.option(o)
        m, read = program(p, f)
        if below < INF:
            m.row([(c, x / below) for c, x in enumerate(m.cost) if x], -INF, 1 - m.offset / below)
        x, least = m.solve(gap, seconds)
        if x is not None:
            v = price(p, f, *read(x))
            exact = exact and v is not None
            best = min(best, INF if v is None else v)
        bound = min(bound, least)
    return best, bound, exact


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


def by_exact(tessera, path, gap):
    run = subprocess.run([tessera, "plan", "--instance", path, "--solver", "exact", "--gap", str(gap), "--json"],
                         capture_output=True, text=True, timeout=600)
    if run.returncode not in (0, 3):
        sys.exit(f"highs.py: {tessera} ended with {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


def compare(tessera, name, path, gap, seconds, below):
    with open(path) as f:
        p = Instance(json.load(f))
    said = by_exact(tessera, path, gap)
    mine = INF if said["objective"] is None else said["objective"]
    slack = gap + 1e-6
    if mine < INF:
        stages = [(s["kind"], s["first"], s["count"]) for s in said["stages"]]
        v = price(p, p.option(p.j["options"][said["option"]]), stages, said["bits"], said.get("links") or [0] * len(stages))
        if v is None or abs(v - mine) > 1e-6 * mine + 1e-6:
            return False, False, True, f"{name}: exact {mine:.9g}, its plan is worth {v}"
    if below:
        best, bound, exact = by_highs(p, gap, seconds, mine * (1 - below))
        text = f"{name}: exact {mine:.9g}, "
        if best < mine * (1 - below) * (1 + 1e-6):
            return False, False, exact, text + f"HiGHS {best:.9g}"
        done = bound >= mine * (1 - below) * (1 - 1e-6)
        return True, done, exact, text + (f"no plan is {below:.2%} better" if done else f"HiGHS proves {bound:.9g}")
    best, bound, exact = by_highs(p, gap, seconds, INF)
    ok = not mine > best * (1 + slack) and not (mine < bound * (1 - slack)) and (mine < INF or bound == INF or not exact)
    proved = best - bound <= slack * best if best < INF else bound == INF
    return ok, proved, exact, f"{name}: exact {mine:.9g}, HiGHS {best:.9g} of at least {bound:.9g}"


def main():
    a = argparse.ArgumentParser()
    a.add_argument("tessera")
    a.add_argument("files", nargs="*")
    a.add_argument("--gap", type=float, default=1e-6)
    a.add_argument("--seconds", type=float, default=60)
    a.add_argument("--below", type=float, default=0)
    a.add_argument("--random", type=int, default=0)
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_intermixed_args()
    bad = proved = loose = plans = 0
    cases = [(f, f, None) for f in o.files] + [(f"random {i} of seed {o.seed}", None, i) for i in range(o.random)]
    for name, path, i in cases:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as t:
            if path is None:
                json.dump(draw(random.Random(o.seed * 1000003 + i)), t)
                t.flush()
            ok, p, exact, text = compare(o.tessera, name, path or t.name, o.gap, o.seconds, o.below)
        bad += not ok
        proved += p
        loose += not exact
        plans += "exact inf" not in text
        if path or not ok:
            print(("" if ok else "WRONG ") + text)
    print(f"{len(cases)} problems, {plans} with a plan: HiGHS proved {proved}, {loose} with a plan by its tolerance only; {bad} wrong")
    sys.exit(bad > 0 or not cases)


main()
