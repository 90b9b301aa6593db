"""make.py: writes ../models/qwen3_5_moe, as README.md says: random weights under the published names, and the logits of
transformers in float32.  Needs torch, transformers and numpy."""
import json
import os
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")
STEPS = 24
LENGTHS = (1, 7, 23, 71)  # the last is longer than the chunks of 64 tokens of the reference
REFERENCE = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention"
TEXT = {
    "model_type": "qwen3_5_moe_text", "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "full_attention_interval": 2, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 3, "bos_token_id": 1,
    "eos_token_id": 2, "dtype": "bfloat16",
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25,
                        "mrope_section": [2, 1, 1], "mrope_interleaved": True},
}
VISION = {"model_type": "qwen3_5_moe_vision", "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
          "in_channels": 3, "patch_size": 2, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 64,
          "num_position_embeddings": 16}
CONFIG = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "dtype": "bfloat16",
          "text_config": TEXT, "vision_config": VISION, "image_token_id": 319, "video_token_id": 318,
          "vision_start_token_id": 317, "vision_end_token_id": 316, "tie_word_embeddings": False}


def shapes():
    """Names and shapes of the text model's tensors."""
    c, out = TEXT, {}
    h, n, k, d = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    heads, wide = c["linear_num_value_heads"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    e, w, shared = c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
    out["model.language_model.embed_tokens.weight"] = (c["vocab_size"], h)
    for layer, kind in enumerate(c["layer_types"]):
        p = f"model.language_model.layers.{layer}."
        out.update({p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,)})
        if kind == "full_attention":
            a = p + "self_attn."
            out.update({a + "q_proj.weight": (2 * n * d, h), a + "k_proj.weight": (k * d, h),
                        a + "v_proj.weight": (k * d, h), a + "o_proj.weight": (h, n * d), a + "q_norm.weight": (d,),
                        a + "k_norm.weight": (d,)})
        else:
            a = p + "linear_attn."
            out.update({a + "in_proj_qkv.weight": (2 * keys + wide, h), a + "in_proj_z.weight": (wide, h),
                        a + "in_proj_b.weight": (heads, h), a + "in_proj_a.weight": (heads, h),
                        a + "conv1d.weight": (2 * keys + wide, 1, c["linear_conv_kernel_dim"]), a + "A_log": (heads,),
                        a + "dt_bias": (heads,), a + "norm.weight": (c["linear_value_head_dim"],),
                        a + "out_proj.weight": (h, wide)})
        m = p + "mlp."
        out.update({m + "gate.weight": (e, h), m + "experts.gate_up_proj": (e, 2 * w, h),
                    m + "experts.down_proj": (e, h, w), m + "shared_expert.gate_proj.weight": (shared, h),
                    m + "shared_expert.up_proj.weight": (shared, h), m + "shared_expert.down_proj.weight": (h, shared),
                    m + "shared_expert_gate.weight": (1, h)})
    out["model.language_model.norm.weight"] = (h,)
    out["lm_head.weight"] = (c["vocab_size"], h)
    return out


def weights(seed):
    rng, out = np.random.default_rng(seed), {}
    for name, shape in shapes().items():
        if name.endswith("A_log"):
            x = np.log(rng.uniform(0.5, 8, shape))
        elif name.endswith("linear_attn.norm.weight"):
            x = rng.normal(1, 0.1, shape)
        elif len(shape) == 1:
            x = rng.normal(0, 0.1, shape)
        else:
            x = rng.normal(0, 1.0 if "embed" in name else 1.6 / np.sqrt(shape[-1]), shape)
        own = name.endswith(("A_log", "linear_attn.norm.weight"))  # as they are published
        out[name] = torch.tensor(x, dtype=torch.float32 if own else torch.bfloat16)
    return out


def run(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()


def gaps_of(model):
    """The smallest gap between the last expert that is chosen and the next one, of all that runs from now on."""
    gap = [np.inf]

    def see(_, __, out):
        top = torch.sort(torch.softmax(out[0].double(), -1), descending=True).values
        gap[0] = min(gap[0], float((top[:, TEXT["num_experts_per_tok"] - 1] - top[:, TEXT["num_experts_per_tok"]]).min()))

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(see)
    return gap


def make(folder, seed):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(CONFIG, f, indent=2)
        f.write("\n")
    w = weights(seed)
    load = os.path.join(folder, "work")
    os.makedirs(load)
    shutil.copy(os.path.join(folder, "config.json"), load)
    save_file(w, os.path.join(load, "model.safetensors"), {"format": "pt"})
    kind = transformers.Qwen3_5MoeForConditionalGeneration
    model, told = kind.from_pretrained(load, dtype=torch.float32, attn_implementation="eager",
                                       experts_implementation="eager", output_loading_info=True)
    shutil.rmtree(load)
    told = [k for k in told["missing_keys"] if "visual" not in k] + list(told["unexpected_keys"])
    assert not told, told
    w["model.visual.patch_embed.proj.weight"] = torch.zeros(16, 3, 2, 2, 2, dtype=torch.bfloat16)
    w["mtp.fc.weight"] = torch.zeros(64, 128, dtype=torch.bfloat16)
    save_file(w, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    model, rng = model.eval(), np.random.default_rng(seed)
    gap, cases, tensors = gaps_of(model), [], {}
    least = {"gap of a choice": np.inf, "margin": np.inf}
    while len(cases) < len(LENGTHS):  # a prompt is taken if nothing on the way is near a tie
        gap[0], margin = np.inf, np.inf
        ids = [int(v) for v in rng.integers(3, 316, LENGTHS[len(cases)])]
        want, more = run(model, ids), list(ids)
        while len(more) < len(ids) + STEPS and margin > 0.02 and gap[0] > 2e-4:
            last = run(model, more)[-1]
            two = np.sort(last)[-2:]
            margin = min(margin, float(two[1] - two[0]))
            more.append(int(last.argmax()))
        if margin <= 0.02 or gap[0] <= 2e-4:
            continue
        least = {"gap of a choice": min(least["gap of a choice"], gap[0]), "margin": min(least["margin"], margin)}
        tensors[f"case{len(cases)}.logits"] = torch.tensor(want)
        cases.append({"name": f"case{len(cases)}", "prompt": ids, "greedy": more[len(ids):],
                      "smallest_top2_margin": round(margin, 5)})
    model, far = model.double(), 0.0
    for k in cases:
        want = tensors[k["name"] + ".logits"].numpy()
        far = max(far, float(np.abs(run(model, k["prompt"]) - want).max() / (want.max() - want.min())))
    print(f"seed {seed}: smallest {least}, double precision {far:.1e}")
    save_file(tensors, os.path.join(folder, "expected.safetensors"))
    with open(os.path.join(folder, "cases.json"), "w") as f:
        json.dump({"reference": REFERENCE, "vocab_size": TEXT["vocab_size"], "cases": cases}, f)
        f.write("\n")
    return far < 1e-5


if __name__ == "__main__":
    torch.set_num_threads(1)
    seeds = [int(a) for a in sys.argv[1:]] or range(1, 100)
    next((s for s in seeds if make(os.path.join(MODELS, "qwen3_5_moe"), s)), None)
