"""program.py - runs the program of this tree (TESSERA, default build/tessera) and reads what it writes."""
import json
import os
import struct
import subprocess

import numpy as np

TESSERA = os.environ.get("TESSERA", "build/tessera")


def run(*args):
    """(exit code, stdout, stderr)."""
    p = subprocess.run([TESSERA, *map(str, args)], capture_output=True, text=True, timeout=300)
    return p.returncode, p.stdout, p.stderr


def must(*args):
    code, out, err = run(*args)
    if code != 0:
        raise SystemExit(f"tessera {' '.join(map(str, args))}: exit {code}: {err.strip()}")
    return out, err


def tensors(path):
    """A safetensors file of F32 and U8 tensors."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    kinds = {"F32": "<f4", "U8": "u1"}
    return {k: np.frombuffer(data[slice(*t["data_offsets"])], kinds[t["dtype"]]).reshape(t["shape"]) for k, t in header.items()}


def logits(model, ids, work, *options):
    """(logits, stderr) of a model."""
    out = os.path.join(work, "logits.st")
    _, err = must("logits", model, "--tokens", ",".join(map(str, ids)), "-o", out, "--threads", 2, *options)
    got = tensors(out)["logits"]
    os.remove(out)
    return got, err


def difference(got, want, most=False):
    """The largest difference over the range of what is wanted; NaN counts as infinite.  most: that of the better half of
    the tokens, for rounded inputs may lead a token to another expert."""
    d = np.abs(got.astype(np.float64) - want).max(1) / (want.max() - want.min())
    d = np.sort(d)[(len(d) - 1) // 2] if most else d.max()
    return float(d) if np.isfinite(d) else float("inf")
