"""program.py - integer programs of a planning problem, one for each option and order of stages, for HiGHS.

An order of stages is a sequence of kinds: what pools and a fixed order of devices allow is listed here, so the program has neither. Layer i is
at stage s with item q (z), layers up to i are on the stages up to s (v), and a codec goes with each border. Without the choice of
kinds the relaxed program is a good bound: in problems of 20 layers it rules out all but a few orders."""
import math

import highspy
import numpy as np

INF = math.inf


def orders(p):
    """Every sequence of kinds that the pools, and the order of devices if it is fixed, have room for."""
    found = []

    def follow(so_far, left, at):
        if so_far and (p.unused or not any(left)):
            found.append(tuple(so_far))
        if len(so_far) == p.L:
            return
        for k in range(p.K):
            g, t, then = p.pool[k], p.takes[k], at
            if left[g] < t:
                continue
            if p.order is not None:  # the first run of its pool after the stage before: what comes later is left to more stages
                then = next((i + t for i in range(at, len(p.order) - t + 1) if all(x == g for x in p.order[i:i + t])), None)
                if then is None:
                    continue
            follow(so_far + [k], [n - t * (i == g) for i, n in enumerate(left)], then)

    follow([], list(p.have), 0)
    return found


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

    def at_most(self, value):
        """Only points of at most this objective."""
        self.row([(c, x / value) for c, x in enumerate(self.cost) if x], -INF, 1 - self.offset / value)

    def worth(self, x):
        """(objective of a point, by how much it breaks a row or the range of a column; rows are in units of about 1, or of times)"""
        off = max(max(lo - v, v - up) for v, lo, up in zip(x, self.lower, self.upper))
        for r, (low, high) in enumerate(zip(self.low, self.high)):
            span = range(self.start[r], self.start[r + 1])
            v = sum(self.value[e] * x[self.index[e]] for e in span)
            size = max([1.0] + [abs(self.value[e] * x[self.index[e]]) for e in span])
            off = max(off, (low - v) / size, (v - high) / size)
        return self.offset + sum(c * v for c, v in zip(self.cost, x)), off

    def solve(self, gap, seconds, whole=True):
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.low)
        lp.col_cost_, lp.offset_ = np.array(self.cost), self.offset
        lp.col_lower_, lp.col_upper_ = np.array(self.lower), np.array(self.upper)
        lp.row_lower_, lp.row_upper_ = np.array(self.low), np.array(self.high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.start)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = np.array(self.index), np.array(self.value)
        if whole:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[w] for w in self.whole]
        return run(lp, gap, seconds, whole)


def run(lp, gap, seconds, whole):
    """(point or None, least objective that any point has); of the relaxed program where not whole"""
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    for name, v in (("mip_rel_gap", gap), ("time_limit", float(seconds)), ("threads", 1),
                    ("mip_feasibility_tolerance", 1e-9), ("primal_feasibility_tolerance", 1e-9)):
        h.setOptionValue(name, v)
    h.passModel(lp)
    h.run()
    state, info = h.getModelStatus(), h.getInfo()
    if state == highspy.HighsModelStatus.kInfeasible:
        return None, INF
    if not whole:
        done = state == highspy.HighsModelStatus.kOptimal
        return None, info.objective_function_value if done else -INF
    found = info.primal_solution_status == 2
    return (list(h.getSolution().col_value) if found else None), info.mip_dual_bound


class Exported:
    """A program that the solver `ilp` wrote as CPLEX-LP, as Program."""

    def __init__(self, path):
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        if h.readModel(path) != highspy.HighsStatus.kOk:
            raise OSError(f"{path}: HiGHS cannot read it")
        self.lp = h.getLp()
        self.offset, self.cost, self.limit = self.lp.offset_, list(self.lp.col_cost_), INF
        self.columns = [c for c, x in enumerate(self.cost) if x]

    def at_most(self, value):
        self.limit = value

    def value(self, x):
        return self.offset + sum(c * v for c, v in zip(self.cost, x))

    def solve(self, gap, seconds, whole=True):
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        h.passModel(self.lp)
        if self.limit < INF:
            terms = [self.cost[c] / self.limit for c in self.columns]
            h.addRow(-INF, 1 - self.offset / self.limit, len(terms), np.array(self.columns), np.array(terms))
        lp = h.getLp()
        if not whole:
            lp.integrality_ = []
        return run(lp, gap, seconds, whole)


def program(p, f, order):
    """The program of an option and an order of stages; what reads (stages, items, codecs) from a point, and what makes it a point."""
    m, S, L, Q, V = Program(), len(order), p.L, p.Q, p.V
    z = {(i, s, q): m.column() for i in range(L) for s in range(max(0, S - L + i), min(S, i + 1)) for q in range(Q)
         if f["pre"][order[s]][p.cls[i]][q] is not None and f["dec"][order[s]][p.cls[i]][q] is not None}
    v = [[m.column() for _ in range(S - 1)] for _ in range(L)]
    codec = [[[m.column() for _ in range(V)] for _ in range(L - 1)] for _ in range(S - 1)]
    for s in range(S):
        m.row([(c, 1) for (_, at, _), c in z.items() if at == s], 1, INF)
        for i in range(L):
            here = [(z[i, s, q], 1) for q in range(Q) if (i, s, q) in z]
            here += [(v[i][s], -1)] if s < S - 1 else []
            m.row(here + ([(v[i][s - 1], 1)] if s else []), s == S - 1, s == S - 1)
    for s in range(S - 1):
        for i in range(L - 1):  # a border is after layer i
            m.row([(v[i][s], 1), (v[i + 1][s], -1)] + [(c, -1) for c in codec[s][i]], 0, 0)
        m.row([(c, 1) for after in codec[s] for c in after], 1, 1)

    def stage(s, dec):
        t, e, h = f["dec" if dec else "pre"], f["embed_dec_ms" if dec else "embed_pre_ms"], f["head_dec_ms" if dec else "head_pre_ms"]
        k = order[s]
        return [(c, t[k][p.cls[i]][q] + (e[k] if i == 0 else 0) + (h[k] if i == L - 1 else 0))
                for (i, at, q), c in z.items() if at == s]

    def link(s, dec):
        t = f["comm_dec_ms" if dec else "comm_pre_ms"]
        return [(c, t[w][order[s]][order[s + 1]]) for after in codec[s] for w, c in enumerate(after)]

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
                for (i, at, q), c in z.items() if at == s]
        host = [(c, p.host[p.cls[i]][q]) for (i, at, q), c in z.items() if at == s] if p.host else []
        for terms, room in ((size, p.room(f, order[s])), (host, p.j["kinds"][order[s]].get("host_capacity_bytes", 0))):
            m.row([(c, b / max(1, room)) for c, b in terms], -INF, room / max(1, room))
    omega = [(c, p.j["omega"][i][q] + p.kind_omega[order[s]][i]) for (i, s, q), c in z.items()]
    omega += [(c, p.link_omega[w][i]) for border in codec for i, after in enumerate(border) for w, c in enumerate(after)]
    if p.limit is not None:
        left = p.limit + 1e-9 * max(1, p.limit) - f["omega"]
        m.row([(c, x / max(abs(left), 1e-30)) for c, x in omega], -INF, 1 if left >= 0 else -1)
    prompts = sums[0] + sent[0] + [(top[0], f["jobs"] - 1)]
    if p.first:
        m.row([(c, x / p.first) for c, x in prompts], -INF, 1 + 1e-9 * max(1, p.first) / p.first)
    m.offset = p.theta * f["omega"]
    goal, later = [(c, p.theta * x) for c, x in omega], []
    if p.paper:
        goal += sums[0] + sums[1] + [(top[0], f["jobs"] - 1), (top[1], (f["mu"] - 1) * (p.n - 1))]
    else:
        goal += prompts
        if p.n > 1:
            T, step = m.column(INF, False), p.n - 1
            goal.append((T, 1))
            for r, d in ((step, f["mu"] - 1), (1, step * f["mu"] - 1)):
                later.append([(top[1], d)] + [(c, r * x) for c, x in sums[1] + sent[1]])
                m.row([(T, 1)] + [(c, -x) for c, x in later[-1]], 0, INF)
    for c, x in goal:
        m.cost[c] += x

    def read(x):
        at = {i: (s, q) for (i, s, q), c in z.items() if x[c] > 0.5}
        of = [at[i][0] for i in range(L)]
        border = [max((x[c], w) for after in codec[s] for w, c in enumerate(after))[1] for s in range(S - 1)]
        return [(k, of.index(s), of.count(s)) for s, k in enumerate(order)], [at[i][1] for i in range(L)], border

    def point(plan, items, codecs):
        x = [0.0] * len(m.cost)
        for s, (_, first, count) in enumerate(plan):
            for i in range(first, first + count):
                if (i, s, items[i]) not in z:
                    return None
                x[z[i, s, items[i]]] = 1.0
            for i in range(first + count if s < S - 1 else 0):
                x[v[i][s]] = 1.0
            if s < S - 1:
                x[codec[s][first + count - 1][codecs[s]]] = 1.0
        total = lambda terms: sum(t * x[c] for c, t in terms)
        for dec in (0, 1):
            x[top[dec]] = max(total(terms) for terms in stages[dec] + ways[dec])
        if later:
            x[T] = max(total(terms) for terms in later)
        return x

    return m, read, point
