#!/usr/bin/env python3
"""highs.py TESSERA [--gap X] [--seconds N] [--below X] [--glpk N] [--random N] [--seed N] [FILE...] - planning problems (tessera.instance/1
and /2) by HiGHS and by the solver `exact`.

There is a program for each option and order of stages (program.py). The relaxed ones come first; those that stay below the best plan are solved
in whole numbers, the lowest first, for at most --seconds each. The plan of `exact` must be a point of its program with the objective
that Tessera states, and what HiGHS finds is priced apart from both (problem.py).  Fails where `exact` is worse than that plan,
or better than what HiGHS proved. With --below HiGHS is asked for plans that are better than that of `exact` by this part.

With --glpk the programs are those that `ilp` exports, one for each option and order of devices. Its own answer by GLPK, in at most N
seconds, is compared, too."""
import argparse
import glob
import json
import math
import random
import subprocess
import sys
import tempfile
import time

from problem import INF, Instance, draw, price
from program import Exported, orders, program


class Ours:
    """The programs of program.py."""

    def __init__(self, p):
        self.p = p
        self.all = [(p.option(o), order) for o in p.j["options"] for order in orders(p)]

    def open(self, i):
        m, self.read, _ = program(self.p, *self.all[i])
        return m

    def value(self, i, m, x):
        return price(self.p, self.all[i][0], *self.read(x))


class Exports:
    """Those that `ilp` exports, in a folder."""

    def __init__(self, folder):
        self.all = sorted(glob.glob(f"{folder}/*.lp"))

    def open(self, i):
        return Exported(self.all[i])

    def value(self, i, m, x):
        return m.value(x)


def by_highs(programs, gap, seconds, below):
    """(value of the best plan, proved bound, whether all plans keep to the rules, programs in whole numbers); only plans of at
    most `below`"""
    best, bound, exact, whole = INF, INF, True, 0
    relaxed = [(programs.open(i).solve(gap, seconds, False)[1], i) for i in range(len(programs.all))]
    for least, i in sorted(relaxed):
        most = min(below, best * (1 - gap))
        if least < most:
            m = programs.open(i)
            if most < INF:
                m.at_most(most)
            whole += 1
            x, proved = m.solve(gap, seconds)
            least = max(least, min(proved, most) if x is None else proved)
            if x is not None:
                v = programs.value(i, m, x)
                exact = exact and v is not None
                best = min(best, INF if v is None else v)
        bound = min(bound, least)
    return best, bound, exact, whole


def stated(p, said):
    """What is wrong with the plan of `exact`, or None: it is a point of its program, and worth what Tessera says."""
    stages = [(s["kind"], s["first"], s["count"]) for s in said["stages"]]
    f, order = p.option(p.j["options"][said["option"]]), tuple(k for k, _, _ in stages)
    codecs, mine = said.get("links") or [0] * len(stages), said["objective"]
    v = price(p, f, stages, said["bits"], codecs)
    if v is None or not abs(v - mine) <= 1e-6 * mine + 1e-6:
        return f"its plan is worth {v}"
    if order not in orders(p):
        return "its order of stages is not possible"
    m, _, point = program(p, f, order)
    x = point(stages, said["bits"], codecs)
    if x is None:
        return "its plan is no point of its program"
    v, off = m.worth(x)
    if not abs(v - mine) <= 1e-6 * mine + 1e-6 or not off <= 1e-8:  # limits have tolerances of 1e-9
        return f"its plan is a point of {v}, off by {off}"
    return None


def by_exact(tessera, path, gap):
    run = subprocess.run([tessera, "plan", "--instance", path, "--solver", "exact", "--gap", str(gap), "--json"],
                         capture_output=True, text=True, timeout=600)
    if run.returncode not in (0, 3):
        sys.exit(f"highs.py: {tessera} ended with {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


def by_glpk(tessera, p, path, folder, gap, seconds):
    """(value, bound) of `ilp`; all its programs are then in the folder."""
    run = subprocess.run([tessera, "plan", "--instance", path, "--solver", f"ilp:time=0,export={folder}/p.lp", "--gap", str(gap),
                          "--time-limit", str(seconds), "--json"], capture_output=True, text=True, timeout=600 + seconds)
    if run.returncode not in (0, 3):
        sys.exit(f"highs.py: {tessera} ended with {run.returncode}: {run.stderr}")
    left, sequences = p.have if p.order is None else [], 1
    for at, n in enumerate(left):
        sequences *= math.comb(sum(left[: at + 1]), n)
    if len(glob.glob(f"{folder}/*.lp")) != sequences * len(p.j["options"]):
        sys.exit(f"highs.py: {path}: ilp did not export all programs")
    said = json.loads(run.stdout)
    value = INF if said["objective"] is None else said["objective"]
    if said["status"] == "optimal":  # to the gap
        return value, value * (1 - gap)
    return value, INF if said["status"] == "infeasible" else said["bound"] or -INF


def compare(tessera, name, path, gap, seconds, below, glpk):
    with open(path) as f:
        p = Instance(json.load(f))
    said = by_exact(tessera, path, gap)
    mine, began = INF if said["objective"] is None else said["objective"], time.monotonic()
    slack = gap + 1e-6
    wrong = stated(p, said) if mine < INF else None
    if wrong:
        return False, False, True, f"{name}: exact {mine:.9g}, {wrong}"
    limit = mine * (1 - below) if below and mine < INF else INF
    text = f"{name}: exact {mine:.9g}, "
    with tempfile.TemporaryDirectory() as folder:
        if glpk:
            value, least = by_glpk(tessera, p, path, folder, gap, glpk)
            if value < mine * (1 - slack) or least > mine * (1 + slack):
                return False, False, True, text + f"GLPK {value:.9g} of at least {least:.9g}"
            text += f"GLPK {value:.9g} of at least {least:.9g}, "
        programs = Exports(folder) if glpk else Ours(p)
        best, bound, exact, whole = by_highs(programs, gap, seconds, limit)
    how = f"; {len(programs.all)} programs, {whole} of them in whole numbers, {time.monotonic() - began:.0f} s"
    if limit < INF:
        if best < limit * (1 + 1e-6):
            return False, False, exact, text + f"HiGHS {best:.9g}" + how
        done = bound >= limit * (1 - 1e-6)
        return True, done, exact, text + (f"no plan is {below:.4%} better" if done else f"HiGHS proves {bound:.9g}") + how
    ok = not mine > best * (1 + slack) and not (mine < bound * (1 - slack)) and (mine < INF or bound == INF or not exact)
    proved = best - bound <= slack * best if best < INF else bound == INF
    return ok, proved, exact, text + f"HiGHS {best:.9g} of at least {bound:.9g}" + how


def main():
    a = argparse.ArgumentParser()
    a.add_argument("tessera")
    a.add_argument("files", nargs="*")
    a.add_argument("--gap", type=float, default=1e-6)
    a.add_argument("--seconds", type=float, default=60)
    a.add_argument("--below", type=float, default=0)
    a.add_argument("--glpk", type=float, default=0)
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
            ok, p, exact, text = compare(o.tessera, name, path or t.name, o.gap, o.seconds, o.below, o.glpk)
        bad += not ok
        proved += p
        loose += not exact
        plans += "exact inf" not in text
        if path or not ok:
            print(("" if ok else "WRONG ") + text)
    print(f"{len(cases)} problems, {plans} with a plan: HiGHS proved {proved}, {loose} with a plan by its tolerance only; {bad} wrong")
    sys.exit(bad > 0 or not cases)


main()
