"""Logits of recorded models under other configurations.

usage: make.py MODELS OUT   (MODELS: tests/golden/models; OUT: this folder)

Each variant is a model of MODELS whose config.json is changed: `set` and `drop` of its keys.  transformers, in F32 with eager
attention, loads the changed folder and gives the logits."""
import json
import os
import random
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

TOKENS = 12
ROPE = ["rope_parameters", "rope_scaling", "rope_theta"]


def rope(kind, factor, **more):
    return {"rope_theta": 10000.0, "rope_scaling": dict(rope_type=kind, factor=factor, **more)}


def long_rope(pairs, original, **more):
    return {"rope_theta": 10000.0, "max_position_embeddings": 256, "rope_scaling": dict(
        type="longrope", original_max_position_embeddings=original, short_factor=[1 + i / 8 for i in range(pairs)],
        long_factor=[2 + i / 4 for i in range(pairs)], **more)}


YARN = dict(original_max_position_embeddings=8)
VARIANTS = {
    # rope that config.json does not state
    "gpt_oss-unstated": ("gpt_oss", {}, ROPE),
    "gpt_oss-null": ("gpt_oss", {"rope_scaling": None, "rope_theta": 5000.0}, ROPE[:1]),
    "gpt_oss-default": ("gpt_oss", {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}, ROPE[1:]),
    # a flag whose default is true
    "glm4-bias-unstated": ("glm4", {}, ["attention_bias"]),
    # a stored head wins over the flag
    "llama2-own-head": ("llama2", {"tie_word_embeddings": True}, []),
    # factors of cosine and sine in place of the computed one
    "phimoe-mscale": ("phimoe", long_rope(8, 64, short_mscale=1.25, long_mscale=1.4), ROPE[:1]),
    # 0 and null count as absent
    "qwen3-yarn-zeros": ("qwen3", rope("yarn", 8.0, beta_fast=0, beta_slow=0, attention_factor=None, **YARN), ROPE[:1]),
    # laws that the model's own folder does not have
    "mistral-longrope": ("mistral", long_rope(16, 8), ROPE[:1]),
    "starcoder2-linear": ("starcoder2", rope("linear", 3.0), ROPE[:1]),
    "qwen3_moe-llama3": ("qwen3_moe", rope("llama3", 8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                           original_max_position_embeddings=32), ROPE[:1]),
    "olmo2-dynamic": ("olmo2", dict(rope("dynamic", 4.0), max_position_embeddings=8), ROPE[:1]),
}


def logits(models, variant, ids):
    base, changes, drop = variant
    with tempfile.TemporaryDirectory() as folder:
        for f in os.listdir(f"{models}/{base}"):
            shutil.copy(f"{models}/{base}/{f}", folder)
        with open(f"{folder}/config.json") as f:
            config = json.load(f)
        for key in drop:
            config.pop(key, None)
        config.update(changes)
        with open(f"{folder}/config.json", "w") as f:
            json.dump(config, f)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        with torch.no_grad():
            return model.eval()(torch.tensor([ids]), use_cache=False).logits[0].contiguous().clone()


def main():
    models, out = sys.argv[1:]
    cases, tensors = [], {}
    for name, (base, changes, drop) in VARIANTS.items():
        r = random.Random(name)
        with open(f"{models}/{base}/cases.json") as f:
            vocab = json.load(f)["vocab_size"]
        ids = [r.randrange(3, vocab) for _ in range(TOKENS)]
        tensors[f"{name}.logits"] = logits(models, VARIANTS[name], ids)
        varies = "longrope" in name or "dynamic" in name
        cases.append(dict(name=name, base=base, set=changes, drop=drop, prompt=ids, whole_prompt_only=varies))
    save_file(tensors, f"{out}/expected.safetensors")
    with open(f"{out}/cases.json", "w") as f:
        json.dump({"reference": f"transformers {transformers.__version__}, float32, eager attention", "cases": cases}, f, indent=1)
        f.write("\n")


main()
