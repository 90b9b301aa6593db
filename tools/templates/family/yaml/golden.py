#!/usr/bin/env python3
"""golden.py - the golden of a model family: what transformers computes for a small model of it.

  golden.py make CONFIG.json FOLDER      writes a model with random weights of that configuration
  golden.py run FOLDER [TOKENS...]       prints @NAME@.golden.json for the model in FOLDER

    python3 golden.py run . > @NAME@.golden.json

Needs torch and transformers. CONFIG.json is the model's own with small sizes: a vocabulary of 32 to 512, two or
three layers, and a window that is shorter than the longest case. If transformers does not know the model, set
CLASS below to the class of your reference code, which takes the configuration and returns logits. The architecture
in config.json stays the one of your family file.
"""
import json
import os
import sys

import torch
import transformers

CLASS = transformers.LlamaForCausalLM  # None: the class that config.json names
TOLERANCE = 5e-6
REASON = "binary32 on both sides; sums are in another order"
LENGTHS = (1, 12, 24)  # tokens of a case; the longest is longer than a window


def config_of(folder):
    if CLASS is None:
        return transformers.AutoConfig.from_pretrained(folder)
    return CLASS.config_class.from_pretrained(folder)


def make(config, folder):
    """Every tensor is random, norms and biases too: gains of 1 would hide a norm at the wrong place."""
    os.makedirs(folder, exist_ok=True)
    with open(config, encoding="utf-8") as f:
        said = json.load(f)
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(said, f, indent=2)
        f.write("\n")
    torch.manual_seed(1)
    c = config_of(folder)
    model = (CLASS or transformers.AutoModelForCausalLM.from_config)(c).to(torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_((0 if name.endswith("bias") else 1) + 0.3 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * 1.5 / p.shape[-1] ** 0.5)
    model.to(torch.bfloat16).save_pretrained(folder)
    with open(path, "w", encoding="utf-8") as f:  # as it was said, not as transformers names it
        json.dump(said, f, indent=2)
        f.write("\n")


def run(folder, given):
    c = config_of(folder)
    load = (CLASS or transformers.AutoModelForCausalLM).from_pretrained
    model = load(folder, config=c, dtype=torch.float32, attn_implementation="eager").eval()
    torch.manual_seed(2)
    prompts = [given] if given else [torch.randint(0, c.vocab_size, (n,)).tolist() for n in LENGTHS]
    cases = []
    for tokens in prompts:
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0].float()
        cases.append({"tokens": tokens, "logits": [[float(f"{x:.9g}") for x in row] for row in logits.tolist()]})
    json.dump({
        "format": "tessera.family-golden/1",
        "by": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention",
        "model": folder,
        "tolerance": TOLERANCE,
        "reason": REASON,
        "cases": cases,
    }, sys.stdout)
    print()


if len(sys.argv) == 4 and sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
elif len(sys.argv) >= 3 and sys.argv[1] == "run":
    run(sys.argv[2], [int(x) for x in sys.argv[3:]])
else:
    sys.exit(__doc__)
