"""damaged.py FOLDER [SEED]: 30 damaged variants of a GGUF file of each type, and what is not read: files in parts, other versions."""
import os
import sys

import numpy as np

import blocks
import damage
import models
import program


def refusals(work, random, problems):
    m, path = models.Model(lambda name, cols: "Q4_K", random), os.path.join(work, "model-00001-of-00003.gguf")
    m.extra = ()
    m.write(path)
    with open(path, "rb") as f:
        data = bytearray(f.read())
    cases = {"version 2": (4, b"\x02"), "big-endian": (4, b"\x00\x00\x00\x03")}
    for what, (at, new) in cases.items():
        bad = bytearray(data)
        bad[at : at + len(new)] = new
        with open(path, "wb") as f:
            f.write(bad)
        code, _, err = program.run("inspect", path)
        if code != 2 or err.count("tessera: error") != 1:
            problems.append(f"{what}: exit {code}: {err.strip()}")
        print(f"{what}: {err.strip()}", flush=True)
    import gguf

    for part in range(3):  # as llama-gguf-split writes them
        w = gguf.GGUFWriter(path.replace("00001", f"0000{part + 1}"), "llama")
        w.add_uint16("split.no", part)
        w.add_uint16("split.count", 3)
        w.add_int32("split.tensors.count", len(m.tensors))
        for name, (_, _, values) in list(m.tensors.items())[part::3]:
            w.add_tensor(name, values)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
    code, _, err = program.run("inspect", path)
    if code != 2 or "split" not in err or err.count("tessera: error") != 1:
        problems.append(f"a file in parts: exit {code}: {err.strip()}")
    print(f"in parts: {err.strip()}", flush=True)


def main():
    work, seed = sys.argv[1], int((sys.argv[2:] or [0])[0])
    os.makedirs(work, exist_ok=True)
    random, problems = np.random.default_rng(seed), []
    refusals(work, random, problems)
    for kind in blocks.TYPES:
        path = os.path.join(work, f"{kind}.gguf")
        models.Model(lambda name, cols, kind=kind: kind, random, experts=4 * (kind == "MXFP4")).write(path)
        damage.try_all(path, os.path.join(work, "bad.gguf"), random, problems,
                       lambda p: ("logits", p, "--tokens", "1,2,3", "-o", os.path.join(work, "l.st")))
        os.remove(path)
    for p in problems:
        print("WRONG", p)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
