"""compare.py KIND EXPORT WANT IDS TOLERANCE [PROGRAM]: logits of an export by the program that owns
the format, beside ours (WANT, of `tessera logits` on the source).  Largest difference on stdout;
exit 1 if it exceeds the tolerance."""
import os
import subprocess
import sys

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file


def llama(path, ids, program):
    out = path + ".logits"
    subprocess.run([program, path, out, *map(str, ids)], check=True, stdout=subprocess.DEVNULL)
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


def forward(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def hf(path, ids, _):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                 attn_implementation="eager")
    return forward(model, ids)


def ct(path, ids, _):
    """transformers loads the folder; compressed-tensors decompresses each module in float32."""
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager",
        quantization_config=CompressedTensorsConfig(run_compressed=False))
    return forward(model.float(), ids)


def gptq(path, ids, _):
    """gptqmodel's TorchLinear dequantizes every module; transformers runs the result."""
    import gptq_reference

    return forward(gptq_reference.model(path), ids)


def main():
    kind, path, want_path, ids, tolerance = sys.argv[1:6]
    ids = [int(i) for i in ids.split(",")]
    sys.path.insert(0, os.path.dirname(__file__))
    want = load_file(want_path)["logits"].numpy()
    run = {"llama": llama, "hf": hf, "ct": ct, "gptq": gptq}[kind]
    got = run(path, ids, sys.argv[6] if len(sys.argv) > 6 else None)
    if got.shape != want.shape:
        sys.exit(f"shape {got.shape}, not {want.shape}")
    difference = float(np.abs(got - want).max())
    same = float((got.argmax(1) == want.argmax(1)).mean())
    print(f"largest difference {difference:.3g} (allowed {tolerance}), same top-1 {100 * same:.0f} %")
    if not difference <= float(tolerance):
        sys.exit(1)


main()
