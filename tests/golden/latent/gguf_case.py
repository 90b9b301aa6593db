"""gguf_case.py FILE.gguf CONFIG.json FOLDER: a golden checkpoint of a GGUF file of latent attention: the logits that
transformers computes from what gguf-py dequantizes.  Needs gguf, torch, transformers and numpy."""
import json
import os
import shutil
import sys

import gguf
import numpy as np
import torch

import latent
import make

NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate", "exp_probs_b": "mlp.gate.e_score_correction_bias",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}


def tensors(path):
    """Hugging Face names and float32 values."""
    file = {t.name.rsplit(".", 1)[0]: gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1])
            for t in gguf.GGUFReader(path).tensors}
    out = {}
    for name, x in file.items():
        p, part = "", name
        if name.startswith("blk."):
            layer, part = name.split(".")[1:]
            p = f"model.layers.{layer}."
        if part.endswith("_exps"):
            for e in range(len(x)):
                out[f"{p}mlp.experts.{e}.{part[4:-5]}_proj.weight"] = x[e]
        elif part == "attn_k_b":
            v = file[name.replace("k_b", "v_b")]
            kv = np.concatenate([x.transpose(0, 2, 1), v], 1)
            out[p + "self_attn.kv_b_proj.weight"] = kv.reshape(-1, kv.shape[-1])
        elif part != "attn_v_b":
            out[p + NAMES[part] + ("" if part == "exp_probs_b" else ".weight")] = x
    return out


def main(path, config, folder):
    work = folder + ".work"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    os.makedirs(folder, exist_ok=True)
    with open(config) as f:
        c = json.load(f)
    c["torch_dtype"] = "float32"
    with open(os.path.join(work, "config.json"), "w") as f:
        json.dump(c, f)
    w = tensors(path)
    latent.write_safetensors(os.path.join(work, "model.safetensors"),
                             {k: ("F32", np.ascontiguousarray(v, np.float32)) for k, v in w.items()})
    ids = make.prompts(c, 3, (24,))[0]
    want, gaps = make.run(make.reference(work, work + ".reference"), ids), []
    far = np.abs(latent.logits(work, ids, gaps) - want).max() / (want.max() - want.min())
    shutil.rmtree(work)
    shutil.rmtree(work + ".reference")
    shutil.copy(path, os.path.join(folder, "model.gguf"))
    rows = "model.layers.1.self_attn.kv_b_proj"
    latent.write_safetensors(os.path.join(folder, "expected.safetensors"), {
        "logits": ("F32", want), f"dequant_rows_0_to_7.{rows}.weight": ("F32", np.ascontiguousarray(w[rows + ".weight"][:8]))})
    with open(os.path.join(folder, "case.json"), "w") as f:
        json.dump({"prompt": ids, "written_by": "llama.cpp b11434, convert_hf_to_gguf.py",
                   "dequantized_by": "gguf 0.19.0", "logits_by": make.REFERENCE, "tolerance": 2e-4,
                   "check": f"double precision {far:.1e} of the range"}, f, indent=1)
        f.write("\n")
    print(f"{folder}: double precision {far:.1e}, smallest gap of a choice {min(gaps):.1e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
