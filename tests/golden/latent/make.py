"""make.py: writes the golden folders that README.md lists: random weights, logits of transformers in float32, and how
far latent.py in double precision is from them.  Needs torch, transformers and numpy."""
import json
import os
import shutil
import sys

import numpy as np
import torch
import transformers

import latent

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
STEPS = 24
REFERENCE = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention"

LATENT = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_act": "silu", "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
    "first_k_dense_replace": 1, "n_shared_experts": 2, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "routed_scaling_factor": 2.0,
}
YARN = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 64,
        "mscale": 0.707, "mscale_all_dim": 0.707}
# the full model: groups by their largest expert, of a softmax
V2 = {**LATENT, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "n_group": 4, "topk_group": 2,
      "topk_method": "group_limited_greedy", "scoring_func": "softmax", "norm_topk_prob": False, "rope_theta": 10000.0,
      "rope_scaling": YARN, "torch_dtype": "bfloat16"}
# halves rotate together; the newer style of a config
V3 = {**LATENT, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "n_group": 2, "topk_group": 1,
      "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": False, "n_shared_experts": 1,
      "rope_interleave": False, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
      "num_nextn_predict_layers": 0, "dtype": "float32"}
# as the models are published: FP8 with a scale for each block; no size is a multiple of the block
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
V3_FP8 = {**V3, "hidden_size": 192, "intermediate_size": 160, "moe_intermediate_size": 144, "q_lora_rank": 136,
          "kv_lora_rank": 160, "num_hidden_layers": 2, "n_routed_experts": 4, "num_experts_per_tok": 2,
          "n_shared_experts": 1, "rope_interleave": True, "norm_topk_prob": True, "vocab_size": 192,
          "torch_dtype": "bfloat16", "quantization_config": FP8}
QWEN3_FP8 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 192, "hidden_size": 192,
             "intermediate_size": 320, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 48, "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
             "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16",
             "bos_token_id": 1, "eos_token_id": 2,
             "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head"]}}
QWEN3_POWERS = {**QWEN3_FP8, "quantization_config": {**QWEN3_FP8["quantization_config"], "scale_fmt": "ue8m0"}}


def shapes(c):
    """Names and shapes of every tensor."""
    h, n, dense = c["hidden_size"], c["num_attention_heads"], c.get("first_k_dense_replace", c["num_hidden_layers"])
    out = {"model.embed_tokens.weight": (c["vocab_size"], h), "lm_head.weight": (c["vocab_size"], h),
           "model.norm.weight": (h,)}

    def mlp(p, width):
        out.update({p + "gate_proj.weight": (width, h), p + "up_proj.weight": (width, h),
                    p + "down_proj.weight": (h, width)})

    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        a, m = p + "self_attn.", p + "mlp."
        out.update({p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,)})
        if c["model_type"] == "qwen3":
            d, k = c["head_dim"], c["num_key_value_heads"]
            out.update({a + "q_proj.weight": (n * d, h), a + "k_proj.weight": (k * d, h),
                        a + "v_proj.weight": (k * d, h), a + "o_proj.weight": (h, n * d),
                        a + "q_norm.weight": (d,), a + "k_norm.weight": (d,)})
        else:
            dn, dr, dv = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
            q, kv = c["q_lora_rank"], c["kv_lora_rank"]
            out.update({a + "q_a_proj.weight": (q, h), a + "q_a_layernorm.weight": (q,),
                        a + "q_b_proj.weight": (n * (dn + dr), q), a + "kv_a_proj_with_mqa.weight": (kv + dr, h),
                        a + "kv_a_layernorm.weight": (kv,), a + "kv_b_proj.weight": (n * (dn + dv), kv),
                        a + "o_proj.weight": (h, n * dv)})
        if layer < dense:
            mlp(m, c["intermediate_size"])
            continue
        out[m + "gate.weight"] = (c["n_routed_experts"], h)
        if c["model_type"] == "deepseek_v3":
            out[m + "gate.e_score_correction_bias"] = (c["n_routed_experts"],)
        for e in range(c["n_routed_experts"]):
            mlp(f"{m}experts.{e}.", c["moe_intermediate_size"])
        mlp(m + "shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
    return out


def weights(c, seed):
    """Random float32 values that the dtype of the config holds."""
    rng, out = np.random.default_rng(seed), {}
    for name, shape in shapes(c).items():
        if len(shape) == 1:
            x = rng.normal(0, 0.1, shape) + (0 if name.endswith("bias") else 1)
        else:
            x = rng.normal(0, (1.0 if "embed" in name else 1.6 / np.sqrt(shape[-1])), shape)
        x = x.astype(np.float32)
        if c.get("torch_dtype") == "bfloat16" and not name.endswith("bias"):
            x = (latent.to_bf16(x).astype(np.uint32) << 16).view(np.float32)
        out[name] = x
    return out


def is_fp8(c, name):
    return "quantization_config" in c and name.endswith(("_proj.weight", "_with_mqa.weight"))


def blocks(x, power):
    """Codes and scales of 128 x 128 blocks: the largest of a block becomes 448, or at most that with scales that are
    powers of two; codes are nearest, even of two."""
    table = latent.e4m3()[:127]
    rows, cols = x.shape
    scale = np.zeros((-(-rows // 128), -(-cols // 128)), np.float32)
    codes = np.zeros(x.shape, np.uint8)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            at = np.s_[i * 128 : i * 128 + 128, j * 128 : j * 128 + 128]
            scale[i, j] = np.float32(np.abs(x[at]).max() / 448)
            scale[i, j] = 2.0 ** np.ceil(np.log2(scale[i, j])) if power else scale[i, j]
            v = np.abs(x[at]).astype(np.float64) / scale[i, j]
            up = np.clip(np.searchsorted(table, v), 1, 126)
            low = up - 1
            near = np.where(v - table[low] < table[up] - v, low, up)
            near = np.where(v - table[low] == table[up] - v, np.where(low % 2 == 0, low, up), near)
            codes[at] = near | (np.signbit(x[at]).astype(np.uint8) << 7)
    return codes, scale


def stored(c, w):
    """As safetensors: kind and array by name."""
    out = {}
    for name, x in w.items():
        if is_fp8(c, name):
            codes, scale = blocks(x, c["quantization_config"].get("scale_fmt") == "ue8m0")
            out[name] = ("F8_E4M3", codes)
            out[name + "_scale_inv"] = ("F32", scale)
        elif c.get("torch_dtype") == "bfloat16" and not name.endswith("bias"):
            out[name] = ("BF16", latent.to_bf16(x))
        else:
            out[name] = ("F32", x)
    return out


def reference(folder, work):
    """transformers on the same numbers in float32: FP8 is widened first, one product each."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    w = latent.widen(latent.read_folder(folder), c)
    c.pop("quantization_config", None)
    c.pop("dtype", None)
    c["torch_dtype"] = "float32"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    with open(os.path.join(work, "config.json"), "w") as f:
        json.dump(c, f)
    latent.write_safetensors(os.path.join(work, "model.safetensors"),
                             {k: ("F32", v.astype(np.float32)) for k, v in w.items()})
    model = transformers.AutoModelForCausalLM.from_pretrained(work, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def run(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def make(folder, c, seed, prompts):
    """The folder without its cases; what transformers computes."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(c, f, indent=2)
        f.write("\n")
    latent.write_safetensors(os.path.join(folder, "model.safetensors"), stored(c, weights(c, seed)))
    model = reference(folder, folder + ".work")
    shutil.rmtree(folder + ".work")
    out = []
    for ids in prompts:
        want = run(model, ids)
        gaps, far = [np.inf], 0.0
        if c["model_type"] != "qwen3":
            mine = latent.logits(folder, ids, gaps)
            far = np.abs(mine - want).max() / (want.max() - want.min())
        out.append((ids, want, min(gaps), far))
    return model, out


def prompts(c, seed, lengths):
    rng = np.random.default_rng(seed)
    return [[int(v) for v in rng.integers(3, c["vocab_size"], n)] for n in lengths]


def make_model(name, c, seed):
    folder = os.path.join(GOLDEN, "models", name)
    model, out = make(folder, c, seed, prompts(c, seed, (1, 7, 23, 40)))
    cases, tensors, worst, gap = [], {}, 0.0, np.inf
    for i, (ids, want, g, far) in enumerate(out):
        more, margin = list(ids), np.inf
        for _ in range(STEPS):
            last = run(model, more)[-1]
            two = np.sort(last)[-2:]
            margin = min(margin, float(two[1] - two[0]))
            more.append(int(last.argmax()))
        cases.append({"name": f"case{i}", "prompt": ids, "greedy": more[len(ids):],
                      "smallest_top2_margin": round(margin, 5)})
        tensors[f"case{i}.logits"] = ("F32", want)
        worst, gap = max(worst, far), min(gap, g)
    print(f"{name} seed {seed}: double precision {worst:.1e}, smallest gap of a choice {gap:.1e}, "
          f"margin {min(k['smallest_top2_margin'] for k in cases)}")
    latent.write_safetensors(os.path.join(folder, "expected.safetensors"), tensors)
    with open(os.path.join(folder, "cases.json"), "w") as f:
        json.dump({"reference": REFERENCE, "vocab_size": c["vocab_size"], "cases": cases}, f)
        f.write("\n")


def make_checkpoint(name, c, seed, rows):
    folder = os.path.join(GOLDEN, "checkpoints", name)
    _, out = make(folder, c, seed, prompts(c, seed, (24,)))
    ids, want, gap, far = out[0]
    w = latent.widen(latent.read_folder(folder), c)
    latent.write_safetensors(os.path.join(folder, "expected.safetensors"), {
        "logits": ("F32", want),
        f"dequant_rows_0_to_7.{rows}.weight": ("F32", w[rows + ".weight"][:8].astype(np.float32))})
    with open(os.path.join(folder, "case.json"), "w") as f:
        json.dump({"prompt": ids, "written_by": "make.py", "dequantized_by": "latent.py, numpy",
                   "logits_by": REFERENCE, "tolerance": 2e-4,
                   "check": f"double precision {far:.1e} of the range" if far else "none"}, f, indent=1)
        f.write("\n")
    print(f"{name} seed {seed}: double precision {far:.1e}, smallest gap of a choice {gap:.1e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    which = sys.argv[1:]
    if not which or "groups" in which:
        make_model("deepseek_v2-groups", V2, 10)
    if not which or "halves" in which:
        make_model("deepseek_v3-halves", V3, 8)
    if not which or "fp8" in which:
        make_checkpoint("fp8-deepseek_v3", V3_FP8, 1, "model.layers.1.mlp.experts.1.gate_proj")
        make_checkpoint("fp8-qwen3", QWEN3_FP8, 1, "model.layers.1.mlp.down_proj")
        make_checkpoint("fp8-qwen3-ue8m0", QWEN3_POWERS, 1, "model.layers.1.mlp.down_proj")
