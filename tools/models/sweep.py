"""Random models of each family: our logits against those of transformers in double precision.

usage: sweep.py TESSERA FOLDER NAMES FIRST COUNT BOUND   (NAMES: all, or a list with commas)

A model is random weights under a random configuration (configs.py), stored by save_pretrained: in one file or several, in
F32 or BF16, and with the configuration as transformers 5 writes it or as version 4 did.  BOUND is a share of the range of the
logits; where F32 of transformers is further off than half of it (a delta rule with slow decay), twice that holds.  A model
that differs stays in FOLDER.  Exit status 1: one did."""
import glob
import json
import math
import os
import random
import shutil
import subprocess
import sys

import numpy
import torch
import transformers
from safetensors.numpy import load_file
from safetensors.torch import load_file as torch_load
from safetensors.torch import save_file as torch_save

import configs

CLASSES = {  # those that AutoModelForCausalLM does not make from the configuration
    "gemma3": "Gemma3ForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
    "gemma3_wrapped": "Gemma3ForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_5_wrapped": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe_wrapped": "Qwen3_5MoeForConditionalGeneration",
}


def make(name, config):
    config._attn_implementation = "eager"
    config.get_text_config()._experts_implementation = "eager"  # the others do not take double precision
    if name in CLASSES:
        return getattr(transformers, CLASSES[name])(config).float().eval()
    return transformers.AutoModelForCausalLM.from_config(config).float().eval()


def spread(name, p, r):
    """Random values with which every part of a block changes the logits."""
    if "A_log" in name:
        p.uniform_(-1, 1.5)
    elif "conv1d" in name:
        p.normal_(0, 0.5)
    elif p.dim() >= 2:
        p.normal_(0, 0.7 if "embed" in name else r.choice([1.0, 1.4]) / math.sqrt(p.shape[-1]))
    else:
        p.add_(0.3 * torch.randn_like(p))


def fill(model, r):
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread(name, p, r)
        for name, b in model.named_buffers():
            if "correction" in name:
                b.uniform_(-0.3, 0.3)


def old_form(path):
    """The keys of rope as version 4 wrote them."""
    with open(path) as f:
        c = json.load(f)
    rope = c.get("rope_parameters")
    if not rope or "full_attention" in rope:
        return
    del c["rope_parameters"]
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            c[key] = rope.pop(key)
    if rope.get("rope_type", "default") != "default":
        c["rope_scaling"] = rope
    with open(path, "w") as f:
        json.dump(c, f)


def flat(folder):
    """A model with vision as version 4 stored it: the text model's keys at the top, and shorter names."""
    def short(names):
        return {n.replace("model.language_model.", "model.").replace("model.visual.", "visual."): v for n, v in names.items()}

    for path in glob.glob(f"{folder}/*.safetensors"):
        torch_save(short(torch_load(path)), path, metadata={"format": "pt"})
    for path in glob.glob(f"{folder}/*.index.json"):
        with open(path) as f:
            index = json.load(f)
        index["weight_map"] = short(index["weight_map"])
        with open(path, "w") as f:
            json.dump(index, f)
    with open(f"{folder}/config.json") as f:
        c = json.load(f)
    text = c.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("model_type")
    c.update(text, rope_theta=rope["rope_theta"], rope_scaling={"type": "mrope", "mrope_section": rope["mrope_section"]})
    with open(f"{folder}/config.json", "w") as f:
        json.dump(c, f)


def store(model, folder, r):
    if r.random() < 0.3:  # not model.bfloat16(), which also rounds the frequencies of rope
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.bfloat16())
        state = {k: v.bfloat16() if v.dim() >= 2 else v for k, v in model.state_dict().items()}
    else:
        state = model.state_dict()
    model.save_pretrained(folder, state_dict=state, max_shard_size=r.choice(["50KB", "1GB"]))
    older = r.random() < 0.4
    if older and model.config.model_type == "qwen2_5_vl":
        flat(folder)
    elif older:
        old_form(f"{folder}/config.json")


def reference(model, ids):
    """In double precision, and the largest error of F32 there."""
    with torch.no_grad():
        single = model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()
        double = model.double()(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    return double, largest(single - double)


def largest(d):
    return float(numpy.max(numpy.abs(d)))  # not a number if one is none


def ours(tessera, folder, ids, *more):
    out = f"{folder}.safetensors"
    done = subprocess.run([tessera, "logits", folder, "--tokens", ",".join(map(str, ids)), "-o", out, *more],
                          capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    logits = load_file(out)["logits"].astype(numpy.float64)
    os.remove(out)
    return logits


def difference(tessera, folder, name, seed):
    """The largest difference of a random model and that of transformers in F32, as shares of the range.  Long rope depends on
    how far a text has come, so that only the whole text is compared there."""
    r = random.Random(f"{name} {seed}")
    torch.manual_seed(seed)
    config = configs.family(name, r)
    model = make(name, config)
    fill(model, r)
    store(model, folder, r)
    text = config.get_text_config()
    ids = [r.randrange(3, text.vocab_size) for _ in range(r.randint(9, 40))]
    want, single = reference(model, ids)
    rope = getattr(text, "rope_parameters", None) or {}
    ways = [()] if rope.get("rope_type") == "longrope" else [(), ("--step",)]
    span = numpy.ptp(want)
    return max(largest(ours(tessera, folder, ids, *w) - want) for w in ways) / span, single / span


def sweep(tessera, where, name, first, count, bound):
    worst, right, open_ = 0.0, 0, 0
    for seed in range(first, first + count):
        folder = f"{where}/{name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            d, single = difference(tessera, folder, name, seed)
            said = f"{d:.1e} of the range, transformers in F32 {single:.1e}"
        except RuntimeError as e:
            d, single, said = math.inf, 0.0, str(e)
        if not d <= max(bound, 2 * single):  # also where it is not a number
            print(f"WRONG  {name} {seed}: {said}", flush=True)
            continue
        right += 1
        shutil.rmtree(folder)
        if single > 10 * bound:  # transformers itself chooses other experts in F32: nothing is shown
            open_ += 1
            continue
        worst = max(worst, d)
    fine = right == count and open_ < count
    said = f", {open_} left open: transformers in F32 is far from itself in F64" if open_ else ""
    print(f"{'ok   ' if fine else 'WRONG'}  {name:12} {right} of {count}, at most {worst:.1e}{said}", flush=True)
    return fine


def main():
    tessera, where, names, first, count, bound = sys.argv[1:]
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    names = list(configs.FAMILIES) if names == "all" else names.split(",")
    unknown = [n for n in names if n not in configs.FAMILIES]
    if unknown:
        sys.exit(f"sweep: no family {unknown[0]}; there are {', '.join(configs.FAMILIES)}")
    right = [sweep(tessera, where, n, int(first), int(count), float(bound)) for n in names]
    print(f"{sum(right)} of {len(right)} families")
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
