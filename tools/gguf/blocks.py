"""blocks.py - random blocks of each GGUF type that is read, with scales that give weights of a wanted size."""
import gguf
import numpy as np
from gguf.quants import dequantize

Q = gguf.GGMLQuantizationType
# where a block has its F16 factors: the scale, then the minimum; MXFP4 has an exponent, IQ1_M nibbles
FACTORS = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "IQ3_S": (0,), "IQ3_XXS": (0,),
    "IQ2_S": (0,), "IQ2_XS": (0,), "IQ2_XXS": (0,), "IQ1_S": (0,), "TQ1_0": (52,), "TQ2_0": (64,),
}
PLAIN = ("F32", "F16", "BF16")
TYPES = (*FACTORS, "IQ1_M", "MXFP4", *PLAIN)
OF_32 = tuple(t for t in TYPES if gguf.GGML_QUANT_SIZES[Q[t]][0] <= 32)


def put_factor(blocks, kind, values):
    """F16 values, [blocks, 1 or 2], to where the type has them; IQ1_M has the nibbles of one in four words."""
    if kind == "IQ1_M":
        words = blocks[:, 48:].copy().view("<u2")
        bits = values[:, :1].astype(np.float16).view("<u2")
        blocks[:, 48:] = (words & 0x0FFF | (bits >> np.array([0, 4, 8, 12]) & 15) << 12).astype("<u2").view(np.uint8)
        return
    for i, at in enumerate(FACTORS[kind]):
        blocks[:, at : at + 2] = values[:, i : i + 1].astype("<f2").view(np.uint8)


def values_of(kind, blocks, rows, cols):
    return dequantize(blocks.reshape(rows, -1), Q[kind]).reshape(rows, cols).astype(np.float32)


def matrix(kind, rows, cols, deviation, random):
    """(bytes of the rows, their values): weights of about that standard deviation; scales of either sign."""
    if kind in PLAIN:
        w = (random.standard_normal((rows, cols)) * deviation).astype(np.float32)
        data = gguf.quantize(w, Q[kind])
        return data, dequantize(data, Q[kind]).astype(np.float32)
    elements, size = gguf.GGML_QUANT_SIZES[Q[kind]]
    n = rows * cols // elements
    blocks = random.integers(0, 256, (n, size), dtype=np.uint8)
    if kind == "MXFP4":  # powers of two around the wanted size over that of the codes
        blocks[:, 0] = 127 + round(float(np.log2(deviation / 2.5))) + random.integers(-1, 2, n)
        return blocks, values_of(kind, blocks, rows, cols)
    unit = np.ones((n, 2))
    put_factor(blocks, kind, unit * [1, 0])
    spread = float(values_of(kind, blocks, rows, cols).std())
    factors = deviation / spread * 2.0 ** random.uniform(-1, 1, (n, 2))
    factors[:, 0] *= random.choice([-1.0, 1.0], n)
    if len(FACTORS.get(kind, ())) == 2:
        put_factor(blocks, kind, factors * [1, 0])
        middle = values_of(kind, blocks, rows, cols).reshape(n, -1).mean(1)
        put_factor(blocks, kind, unit * [0, 1])  # what a minimum of 1 adds
        added = values_of(kind, blocks, rows, cols).reshape(n, -1).mean(1)
        factors[:, 1] = -middle / np.where(added == 0, 1, added) + random.standard_normal(n) * deviation / 8
    put_factor(blocks, kind, factors)
    factors *= deviation / float(values_of(kind, blocks, rows, cols).std())
    put_factor(blocks, kind, factors)
    return blocks, values_of(kind, blocks, rows, cols)
