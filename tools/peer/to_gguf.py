#!/usr/bin/env python3
"""to_gguf.py MODEL_FOLDER OUT.gguf - the weights of a Llama-shaped Hugging Face folder as GGUF.

For speed comparisons only: the file has no tokenizer, so that random checkpoints, which have none
either, can be measured.  Needs numpy and the `gguf` package of the llama.cpp tree at hand
(PYTHONPATH=.../gguf-py).  BF16 stays BF16; rows of q and k are reordered as llama.cpp wants them.
"""
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

DTYPES = {
    "BF16": (np.uint8, 2, gguf.GGMLQuantizationType.BF16),
    "F16": (np.float16, 2, None),
    "F32": (np.float32, 4, None),
}
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
       "lm_head.weight": "output.weight"}


def tensors(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
    data = np.memmap(path, np.uint8, "r", offset=8 + n)
    for name, t in header.items():
        if name != "__metadata__":
            yield name, t["dtype"], t["shape"], data[slice(*t["data_offsets"])]


def target(name):
    if name in TOP:
        return TOP[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def main():
    folder, out = Path(sys.argv[1]), sys.argv[2]
    c = json.loads((folder / "config.json").read_text())
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    w = gguf.GGUFWriter(out, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_dimension_count(c["hidden_size"] // heads)
    w.add_rope_freq_base(c.get("rope_theta", 10000.0))
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("none")
    for path in sorted(folder.glob("*.safetensors")):
        for name, dtype, shape, raw in tensors(path):
            np_type, size, ggml = DTYPES[dtype]
            if len(shape) == 2:
                rows = np.asarray(raw).reshape(shape[0], shape[1] * size)
                n = heads if name.endswith("q_proj.weight") else kv if name.endswith("k_proj.weight") else 0
                if n:
                    rows = rows.reshape(n, 2, shape[0] // n // 2, -1).swapaxes(1, 2).reshape(shape[0], -1)
                a = np.ascontiguousarray(rows)
                a = a if ggml else a.view(np_type)
            else:
                a = np.asarray(raw).view(np.uint16 if dtype == "BF16" else np_type)
                if dtype == "BF16":
                    a, ggml = (a.astype(np.uint32) << 16).view(np.float32), None
            w.add_tensor(target(name), a, raw_dtype=ggml)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
