"""compare.py KIND EXPORT WANT IDS TOLERANCE [PROGRAM [OPTION...]]: logits of an export by the program that owns
the format, beside ours (WANT, of `tessera logits` on the source).  Largest difference on stdout;
exit 1 if it exceeds the tolerance.  TOLERANCE "rounding:FILE": as much as that program's logits of EXPORT differ
from its own of FILE, the same weights widened to F32, and WIDENED more."""
import glob
import os
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file


WIDENED = 1e-4  # of the sums of F32 in another order, as in the comparison of FILE itself


def llama(path, ids, program):
    out = path + ".logits"
    subprocess.run([*program, path, out, *map(str, ids)], check=True, stdout=subprocess.DEVNULL)
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


def forward(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def hf(path, ids, _):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                 attn_implementation="eager")
    return forward(model, ids)


def mxfp4(path, ids, _):
    """transformers decodes the experts itself."""
    import torch
    from transformers import AutoModelForCausalLM, Mxfp4Config

    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager",
        quantization_config=Mxfp4Config(dequantize=True))
    return forward(model.float(), ids)


def ct(path, ids, _):
    """compressed-tensors decompresses every module that its matcher finds, scales widened to
    float32; transformers runs the weights."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.utils import is_match
    from safetensors.torch import load_file as load_torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(path)
    quantization = QuantizationConfig.model_validate(config.quantization_config)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    stored = {}
    for file in glob.glob(os.path.join(path, "*.safetensors")):
        stored.update(load_torch(file))
    state = {}
    for name, module in model.named_modules():
        for scheme in quantization.config_groups.values():
            if not isinstance(module, torch.nn.Linear) or not is_match(
                    name, module, scheme.targets, quantization.ignore):
                continue
            own = {k[len(name) + 1:]: stored.pop(k) for k in list(stored)
                   if k.rsplit(".", 1)[0] == name}
            if own["weight_scale"].is_floating_point():
                own["weight_scale"] = own["weight_scale"].float()
            kind = BaseCompressor.get_value_from_registry(scheme.format or quantization.format)
            state[name + ".weight"] = kind.decompress(own, scheme)["weight"].float()
            if "bias" in own:
                state[name + ".bias"] = own["bias"].float()
    if not state:
        sys.exit("compressed-tensors found no quantized module")
    state.update({k: v.float() for k, v in stored.items()})
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [m for m in missing if m != "lm_head.weight"]:
        sys.exit(f"missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return forward(model, ids)


def ct_load(path, ids, _):
    """The folder through transformers alone, which multiplies in the dtype of the scales."""
    import torch
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager",
        quantization_config=CompressedTensorsConfig(dequantize=True))
    return forward(model.float(), ids)


def gptq(path, ids, _):
    """gptqmodel's TorchLinear dequantizes every module; transformers runs the result."""
    import gptq_reference

    return forward(gptq_reference.model(path), ids)


def awq(path, ids, _):
    """The same for AutoAWQ's GEMM layout."""
    import gptq_reference

    return forward(gptq_reference.model(path, "AWQ_TORCH"), ids)


def main():
    kind, path, want_path, ids, tolerance = sys.argv[1:6]
    ids = [int(i) for i in ids.split(",")]
    sys.path.insert(0, os.path.dirname(__file__))
    want = load_file(want_path)["logits"]
    run = {"llama": llama, "hf": hf, "mxfp4": mxfp4, "ct": ct, "ct-load": ct_load,
           "gptq": gptq, "awq": awq}[kind]
    got = run(path, ids, sys.argv[6:])
    if got.shape != want.shape:
        sys.exit(f"shape {got.shape}, not {want.shape}")
    difference = float(np.abs(got - want).max())
    if tolerance.startswith("rounding:"):
        widened = run(tolerance.split(":", 1)[1], ids, sys.argv[6:])
        tolerance = f"{np.abs(got - widened).max() + WIDENED:.4g}"
    same = float((got.argmax(1) == want.argmax(1)).mean())
    print(f"largest difference {difference:.3g} (allowed {tolerance}), same top-1 {100 * same:.0f} %")
    if not difference <= float(tolerance):
        sys.exit(1)


main()
