#!/usr/bin/env python3
"""logits.py A[:TENSOR] B[:TENSOR] - the largest difference of two F32 tensors of safetensors files in parts of the range of A.

Prints it, and then the root mean square of the difference in parts of the range; `nan` where a number is none.
"""
import array
import json
import math
import struct
import sys


def read(place):
    path, _, name = place.partition(":")
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        t = head[name or "logits"]
        rest = f.read()
    assert t["dtype"] == "F32"
    return t["shape"], array.array("f", rest[t["data_offsets"][0]:t["data_offsets"][1]])


shape, a = read(sys.argv[1])
other, b = read(sys.argv[2])
if shape != other or not all(map(math.isfinite, a)) or not all(map(math.isfinite, b)):
    print("nan nan")
    sys.exit()
span = max(a) - min(a)
difference = [abs(x - y) for x, y in zip(a, b)]
print("%.3g %.3g" % (max(difference) / span, math.sqrt(sum(d * d for d in difference) / len(a)) / span))
