"""gguf_case.py FOLDER OUT=FILE.gguf...: golden checkpoints of GGUF files that llama.cpp's converter wrote as Q8_0 of models of
tests/golden/models (FOLDER/NAME): the logits that transformers computes from what gguf-py dequantizes.  OUT is
checkpoints/gguf-NAME-q8_0.  Only families whose rows GGUF does not reorder.  Needs gguf, torch, transformers, yaml."""
import json
import os
import shutil
import sys
import tempfile

import gguf
import torch
import yaml
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, __version__

# docs/formats/family.md, "Tensors" of "gguf"
PARTS = {
    "embed": "token_embd", "final_norm": "output_norm", "head": "output", "attn_in": "attn_norm",
    "attn_out": "post_attention_norm", "ffn_in": "ffn_norm", "ffn_out": "post_ffw_norm", "q": "attn_q", "k": "attn_k",
    "v": "attn_v", "o": "attn_output", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "gate": "ffn_gate",
    "up": "ffn_up", "down": "ffn_down", "gate_up": "ffn_up",
}


def names(root, family):
    """GGUF name without a suffix -> Hugging Face name, with # for the layer."""
    with open(os.path.join(root, "configs", "families", family + ".yaml"), encoding="utf-8") as f:
        y = yaml.safe_load(f)
    out = {}
    for part, v in y["tensors"].items():
        v = v if isinstance(v, dict) else {"name": v}
        at = "blk.#." if "#" in v["name"] else ""
        out[at + PARTS[part]] = ("" if v.get("bare") else "model.") + v["name"]
    return out


def case(root, folder, out, path):
    name = os.path.basename(out)[len("gguf-"):].rsplit("-", 1)[0]
    table, state = names(root, name), {}
    for t in gguf.GGUFReader(path).tensors:
        stem, suffix = t.name.rsplit(".", 1)
        words = stem.split(".")
        layer = words[1] if words[0] == "blk" else ""
        to = table[".".join(["blk", "#"] + words[2:]) if layer else stem].replace("#", layer)
        v = gguf.quants.dequantize(t.data, t.tensor_type)
        state[f"{to}.{suffix}"] = torch.from_numpy(v).float().reshape(tuple(int(n) for n in t.shape[::-1])).contiguous()
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(folder, name, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        config["torch_dtype"] = "float32"
        with open(os.path.join(work, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        save_file(state, os.path.join(work, "model.safetensors"), {"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(work, dtype=torch.float32, attn_implementation="eager").eval()
    with open(os.path.join(folder, name, "cases.json"), encoding="utf-8") as f:
        ids = json.load(f)["cases"][-1]["prompt"][:10]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].contiguous()
    os.makedirs(out, exist_ok=True)
    shutil.copy(path, os.path.join(out, "model.gguf"))
    rows = table["blk.#.attn_q"].replace("#", "1") + ".weight"
    save_file({"logits": logits, f"dequant_rows_0_to_7.{rows}": state[rows][:8].clone()},
              os.path.join(out, "expected.safetensors"))
    with open(os.path.join(out, "case.json"), "w", encoding="utf-8") as f:
        json.dump({"prompt": ids, "written_by": "llama.cpp 0.6.0-dev, convert_hf_to_gguf.py", "dequantized_by": "gguf 0.19.0",
                   "logits_by": f"transformers {__version__}, float32, eager attention, torch {torch.__version__}",
                   "tolerance": 2e-4}, f, indent=1)
        f.write("\n")


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for pair in sys.argv[2:]:
        case(root, sys.argv[1], *pair.split("=", 1))


main()
