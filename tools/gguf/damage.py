"""damage.py - damaged variants of a file: the program takes one or refuses it in one line of one error, and never crashes."""
import os

import program

EACH = 30


def variants(data, random):
    """(what was done, bytes): cuts, flipped bits, runs of bytes that are all ones, swapped halves."""
    head = min(len(data), 4096)
    for i in range(EACH):
        b, at = bytearray(data), int(random.integers(0, head if i % 2 else len(data)))
        kind = i % 6
        if kind == 0:
            b = b[:at]
            what = f"cut at byte {at}"
        elif kind in (1, 2):
            b[at] ^= 1 << int(random.integers(8))
            what = f"a bit of byte {at} is another"
        elif kind == 3:
            n = min(8, len(b) - at)
            b[at : at + n] = b"\xff" * n
            what = f"bytes {at} to {at + n} are 255"
        elif kind == 4:
            n = int(random.integers(1, 64))
            b[at:at] = bytes(random.integers(0, 256, n, dtype="u1"))
            what = f"{n} bytes more at {at}"
        else:
            del b[at : at + int(random.integers(1, 64))]
            what = f"bytes are missing at {at}"
        yield what, bytes(b)


def try_all(path, bad, random, problems, command):
    """command(file) is what runs; prints how many variants were refused."""
    with open(path, "rb") as f:
        data = f.read()
    refused = 0
    for what, changed in variants(data, random):
        with open(bad, "wb") as f:
            f.write(changed)
        code, _, err = program.run(*command(bad))
        lines = [line for line in err.strip().split("\n") if not line.startswith(("tessera: warning", "tessera: note"))]
        errors = [line for line in lines if line.startswith("tessera: error: ")]
        refused += code != 0
        infinite = code == 1 and "not finite" in err  # a weight that is NaN is a model whose logits are
        if not (code in (0, 2, 4) or infinite) or (code != 0 and (len(errors) != 1 or len(lines) != 1)):
            problems.append(f"{os.path.basename(path)}, {what}: exit {code}: {err.strip()[:600]}")
    print(f"{os.path.basename(path)}: {EACH} damaged variants, {refused} refused", flush=True)
    os.remove(bad)
