"""imatrix.py FOLDER [SEED]: importance matrices.  Those that a calibration writes have the sums of squares of inputs that numpy
computes in F64; both of llama.cpp's forms are read as the same statistics; damaged ones are refused in one sentence."""
import os
import shutil
import struct
import sys

import gguf
import numpy as np

import damage
import models
import program

RELATIVE = 2e-5  # of the largest sum of a matrix: activations in F32
TOKENS = 64


def alphabet():
    """The token of each byte in byte-level BPE, and one merge: # and $, which no text here has."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    odd = iter(range(256, 512))
    of = {b: chr(b) if b in plain else chr(next(odd)) for b in range(256)}
    tokens = [of[b] for b in range(256)] + ["#$"]
    return tokens + [f"<unused{i}>" for i in range(models.VOCAB - len(tokens))]


def older(path, sums):
    """The older form: means times a number of calls, here 3, and what llama.cpp puts behind them."""
    with open(path, "wb") as f:
        f.write(struct.pack("<i", len(sums)))
        for name, (values, counts) in sums.items():
            mean = (values / counts[:, None]).astype(np.float32).ravel()
            f.write(struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 3, mean.size) + (mean * 3).astype("<f4").tobytes())
        f.write(struct.pack("<ii", 3, 4) + b"text")


def main():
    work, seed = sys.argv[1], int((sys.argv[2:] or [0])[0])
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    random, problems = np.random.default_rng(seed), []
    at = {n: os.path.join(work, n) for n in ("model.gguf", "text.txt", "job.yaml", "job", "old.dat", "p", "bad")}
    for experts in (0, 4):
        m = models.Model(lambda name, cols: "F32", random, experts=experts, tokens=alphabet())
        m.write(at["model.gguf"])
        text = bytes(random.integers(97, 123, TOKENS).astype(np.uint8))
        with open(at["text.txt"], "wb") as f:
            f.write(text)
        with open(at["job.yaml"], "w", encoding="utf-8") as f:
            f.write(f"version: 1\nmodel: {at['model.gguf']}\nseed: 1\npipeline:\n  - calibrate: {{text: {at['text.txt']}, samples: 1, "
                    f"seqlen: {TOKENS}}}\n  - export: {{format: imatrix, to: imatrix.gguf}}\n")
        shutil.rmtree(at["job"], ignore_errors=True)
        program.must("run", at["job.yaml"], "--out", at["job"], "-q")
        want = {}

        def seen(name, x, expert=None):
            mats = max(experts, 1) if expert is not None else 1
            sums, counts = want.setdefault(name, (np.zeros((mats, x.shape[1])), np.zeros(mats)))
            sums[expert or 0] += (x * x).sum(0)
            counts[expert or 0] += len(x)

        models.logits(m, list(text), seen)
        made = os.path.join(at["job"], "imatrix.gguf")
        reader, got, worst = gguf.GGUFReader(made), {}, 0
        for t in reader.tensors:
            got[t.name] = np.asarray(t.data, np.float64)
        for name, (sums, counts) in want.items():
            have, n = got.pop(name + ".in_sum2", None), got.pop(name + ".counts", None)
            if have is None or n is None or not np.array_equal(n.ravel(), counts):
                problems.append(f"{experts} experts: {name} is missing or has other counts")
                continue
            d = float(np.abs(have.reshape(sums.shape) - sums).max() / sums.max())
            worst = max(worst, d)
            if not d <= RELATIVE:
                problems.append(f"{experts} experts: {name} differs by {d:.3g} of its largest sum")
        extra = [n for n in got if "gate_inp" not in n]
        if extra or reader.get_field("general.type").contents() != "imatrix":
            problems.append(f"{experts} experts: tensors that are of no matrix: {extra}")
        print(f"{experts} experts: {len(want)} matrices, largest difference {worst:.2g}", flush=True)
        older(at["old.dat"], {k: (s, np.maximum(c, 1)) for k, (s, c) in want.items() if (c > 0).all()})
        errors = []
        for form in (made, at["old.dat"]):
            if experts and form != made:
                continue
            shutil.rmtree(at["p"], ignore_errors=True)
            program.must("quantize", at["model.gguf"], "-o", at["p"], "-q", "--use", "rtn", "--bits", 3, "--group", 64, "--minimum",
                         "--weighted", "--imatrix", form)
            with open(os.path.join(at["p"], "layer-00001.safetensors"), "rb") as f:
                errors.append(f.read())
        # means by F32 sums or F64 ones: nearly every code is the same
        if len(errors) == 2 and not np.mean(np.frombuffer(errors[0][-200000:], "u1") != np.frombuffer(errors[1][-200000:], "u1")) < 0.01:
            problems.append("the older form gives other weights")
        for form in () if experts else (made, at["old.dat"]):
            damage.try_all(form, at["bad"], random, problems,
                           lambda path: ("quantize", at["model.gguf"], "-o", at["p"] + "x", "-q", "--use", "rtn", "--weighted",
                                         "--imatrix", path, "--again"))
    for p in problems:
        print("WRONG", p)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
