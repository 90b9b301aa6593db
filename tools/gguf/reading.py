"""reading.py FOLDER [ROUNDS [SEED]]: GGUF files of random blocks and mixes, read by the program and by llama.cpp's Python
package.  Logits agree with numpy in F64 or with the same model in F32; bytes in memory with those of the file."""
import json
import os
import sys

import numpy as np

import blocks
import models
import program

SUMS = 5e-6  # of the range of logits: sums of F32 in another order, through two layers of rows of at most 1536
A8 = 0.06  # activations rounded to 8 bits; about 0.01 in most models here
A16 = 0.012  # activations rounded to BF16; about 0.003
MORE = 1.03
# more than the file by what docs/formats/gguf.md says; TQ1_0 unpacked, vectors expanded
EXPECTED = {"TQ1_0": 1.26, "IQ3_S": 1.25, "IQ3_XXS": 1.4, "IQ2_S": 1.37, "IQ2_XS": 1.52, "IQ2_XXS": 1.6,
            "IQ1_S": 2.1, "IQ1_M": 2}
SIZES = ((256, 512), (512, 768), (768, 1280), (1280, 256), (256, 1536))


def allowed_bytes(m):
    """The most that the matrices may take; vectors stay as they are."""
    return sum(raw.nbytes * (EXPECTED.get(kind, MORE) if w.ndim > 1 else 1) for kind, raw, w in m.tensors.values())


def check(name, m, work, random, problems):
    path, twin = os.path.join(work, "case.gguf"), os.path.join(work, "twin.gguf")
    m.write(path)
    m.write(twin, widened=True)
    ids = [int(i) for i in random.integers(0, models.VOCAB, int(random.integers(2, 40)))]
    worst = {}
    for tokens in (ids, ids[:1]):
        exact, err = program.logits(path, tokens, work)
        want = models.logits(m, tokens) if m.arch == "llama" else program.logits(twin, tokens, work)[0]
        if "widened" in err:
            problems.append(f"{name}: {err.strip()}")
        got = {"f32": (exact, SUMS), "F32 file": (program.logits(twin, tokens, work)[0], SUMS)}
        for act, bound in (("a8", A8), ("a16", A16)):
            got[act] = program.logits(path, tokens, work, "--act", act)[0], bound
        for what, (value, bound) in got.items():
            d = program.difference(value, want, m.experts and what in ("a8", "a16"))
            worst[what] = max(d, worst.get(what, 0))
            if not d <= bound:
                problems.append(f"{name}: {what}, {len(tokens)} tokens: {d:.3g} of the range, allowed {bound:g}")
        for option in ("--by-layers", "--step"):
            if not np.array_equal(program.logits(path, tokens, work, option)[0], exact):
                problems.append(f"{name}: {option} gives other logits")
    resident = json.loads(program.must("inspect", path, "--json")[0])["resident_bytes"]
    if not resident <= allowed_bytes(m):
        problems.append(f"{name}: {resident} bytes in memory, at most {allowed_bytes(m):.0f} are expected")
    os.remove(path)
    os.remove(twin)
    print(f"{name}: " + ", ".join(f"{k} {v:.2g}" for k, v in worst.items()), flush=True)


def one_type(random):
    for kind in blocks.TYPES:
        yield f"{kind} alone", models.Model(lambda name, cols, kind=kind: kind, random, tied=kind in ("Q6_K", "IQ1_S"))


def mixes(random):
    hidden, ffn = SIZES[random.integers(len(SIZES))]
    tied = bool(random.integers(2))
    size = {"hidden": hidden, "ffn": ffn, "heads": hidden // 64, "kv": (1, hidden // 128)[random.integers(2)]}
    by_layer = [str(random.choice(blocks.TYPES)) for _ in range(models.LAYERS + 1)]

    def layer(name, cols):
        return by_layer[int(name.split(".")[1]) if name.startswith("blk") else -1]

    def each(name, cols):
        return str(random.choice(blocks.TYPES))

    extra = [("test.strings", ["a", "", "long " * 40]), ("test.numbers", list(range(300))),
             ("test.reals", [0.5, 1.5]), ("test.text", "x" * 5000)]
    yield f"each tensor its type, {hidden} x {ffn}, tied {tied}", models.Model(each, random, tied=tied, **size)
    yield f"a type per layer {by_layer}", models.Model(layer, random, tied=not tied, alignment=4096, extra=extra, **size)
    yield "experts of llama", models.Model(each, random, experts=4)
    for arch in ("phi3", "qwen2", "qwen3"):
        yield f"each tensor its type, {arch}", models.Model(each, random, arch, hidden, ffn, hidden // 64, hidden // 128)
    yield "experts of qwen3moe", models.Model(each, random, "qwen3moe", experts=4)


def main():
    work, rounds, seed = sys.argv[1], int((sys.argv[2:] or [3])[0]), int((sys.argv[3:] or [0])[0])
    os.makedirs(work, exist_ok=True)
    problems, n = [], 0
    random = np.random.default_rng(seed)
    for name, m in one_type(random):
        check(name, m, work, random, problems)
        n += 1
    for _ in range(rounds):
        for name, m in mixes(random):
            check(name, m, work, random, problems)
            n += 1
    for p in problems:
        print("WRONG", p)
    print(f"{n} models, {len(problems)} problems")
    sys.exit(1 if problems or not n else 0)


main()
