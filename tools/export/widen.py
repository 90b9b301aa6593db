"""widen.py FOLDER OUT: the Hugging Face folder with its weights as F32, in one file."""
import glob
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file


def main():
    folder, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    state = {}
    for file in glob.glob(os.path.join(folder, "*.safetensors")):
        if os.path.basename(file).startswith("model"):
            state.update({k: v.float() for k, v in load_file(file).items()})
    save_file(state, os.path.join(out, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    for key in ("torch_dtype", "dtype"):
        if key in config:
            config[key] = "float32"
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


main()
