"""A GPTQ or AWQ folder as gptqmodel reads it: its loader and its own unpacking dequantize every module, with
scales widened to float32; transformers runs the weights."""
import glob
import os
import sys

import torch
from safetensors.torch import load_file


def widened(module):
    """The weight [out, in] of a module, whose scales are float32."""
    if hasattr(module, "dequantize_weight"):
        return module.dequantize_weight().T
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

    return dequantize_gemm(module.qweight, module.qzeros, module.scales, module.bits,
                           module.group_size).T


def model(path, backend="TORCH"):
    if os.environ.get("GPTQMODEL"):
        sys.path.insert(0, os.environ["GPTQMODEL"])
    from gptqmodel import BACKEND, GPTQModel
    from gptqmodel.nn_modules.qlinear import BaseQuantLinear
    from transformers import AutoConfig, AutoModelForCausalLM

    loaded = GPTQModel.load(path, backend=BACKEND[backend], device="cpu",
                            dtype=torch.float16)  # that of the scales: another would round them
    state = {}
    for file in glob.glob(os.path.join(path, "*.safetensors")):
        for name, t in load_file(file).items():
            if name.rsplit(".", 1)[1] in ("weight", "bias"):
                state[name] = t.float()
    quantized = 0
    for name, module in loaded.model.named_modules():
        if isinstance(module, BaseQuantLinear):
            module.scales = module.scales.float()
            state[name + ".weight"] = widened(module).float().contiguous()
            quantized += 1
    if quantized == 0:
        raise SystemExit("gptqmodel found no quantized module")
    config = AutoConfig.from_pretrained(path)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    reference = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    missing, unexpected = reference.load_state_dict(state, strict=False)
    if unexpected or [m for m in missing if m != "lm_head.weight"]:
        raise SystemExit(f"missing {missing}, unexpected {unexpected}")
    reference.tie_weights()
    return reference
