"""Records a random model of a family and what transformers computes for it, as tests/golden/families has them.

usage: record.py NAME SEED FOLDER

F32, eager attention.  Of qwen2_5_vl the folder is as version 4 stored it; experts of qwen3_vl_moe stand as in published
folders, [experts, in, out]."""
import glob
import json
import random
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

import configs
import sweep

GREEDY = 8


def case(model, number, ids):
    """Logits of a prompt, and the tokens that follow it."""
    text, margin = list(ids), float("inf")
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        for _ in range(GREEDY):
            best = torch.topk(model(torch.tensor([text]), use_cache=False).logits[0, -1], 2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            text.append(int(best.indices[0]))
    told = {"name": f"case{number}", "prompt": ids, "greedy": text[len(ids):], "smallest_top2_margin": round(margin, 5)}
    return told, logits.contiguous()


def main():
    name, seed, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    r = random.Random(f"{name} {seed}")
    torch.manual_seed(seed)
    config = configs.family(name, r)
    text = config.get_text_config()
    text.max_position_embeddings = max(256, text.max_position_embeddings)
    text.vocab_size = 320
    model = sweep.make(name, config)
    sweep.fill(model, r)
    with torch.no_grad():  # stored in half the bytes, without loss
        for p in model.parameters():
            p.copy_(p.bfloat16())
    state = {k: v.bfloat16() if torch.equal(v.bfloat16().float(), v) else v for k, v in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=state)
    if name == "qwen2_5_vl":
        sweep.flat(folder)
    tied = config.tie_word_embeddings
    for path in glob.glob(f"{folder}/*.safetensors"):
        turned = {k: v.transpose(1, 2).contiguous() if name == "qwen3_vl_moe" and ".experts." in k else v
                  for k, v in load_file(path).items() if "visual" not in k and (k != "lm_head.weight" or not tied)}
        save_file(turned, path, metadata={"format": "pt"})
    vocab = config.get_text_config().vocab_size
    cases, logits = [], {}
    for i, n in enumerate((1, 6, 21)):
        told, logits[f"case{i}.logits"] = case(model, i, [r.randrange(3, vocab) for _ in range(n)])
        cases.append(told)
    save_file(logits, f"{folder}/expected.safetensors")
    says = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention"
    with open(f"{folder}/cases.json", "w") as f:
        json.dump({"reference": says, "vocab_size": vocab, "cases": cases}, f)


main()
