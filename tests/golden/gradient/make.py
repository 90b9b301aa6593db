"""make.py: writes the gradients of one decoder layer of golden models, by the autograd of torch in float64.

Each file has h [sequences, tokens, hidden], target and out of the same shape, mse, and for each linear of the layer the
derivative of mse = mean((out - target)^2) with respect to its weight, every STEP-th row.  Needs torch, transformers and
safetensors."""
import os

import torch
import transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ["llama3", "qwen2", "qwen3", "opt", "starcoder2", "granite"]
LAYER, SEQUENCES, TOKENS, STEP = 1, 2, 12, 5
NAMES = {"self_attn.q_proj": "q_proj", "self_attn.k_proj": "k_proj", "self_attn.v_proj": "v_proj",
         "self_attn.o_proj": "o_proj", "self_attn.out_proj": "o_proj", "mlp.gate_proj": "gate_proj",
         "mlp.up_proj": "up_proj", "mlp.down_proj": "down_proj", "fc1": "up_proj", "fc2": "down_proj",
         "mlp.c_fc": "up_proj", "mlp.c_proj": "down_proj"}


def layers_of(model):
    """The decoder layers, wherever the family keeps them."""
    inner = model.model.decoder if hasattr(model.model, "decoder") else model.model
    return inner.layers


def record(name):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.join(HERE, "..", "models", name), torch_dtype=torch.float64, attn_implementation="eager").eval()
    layer = layers_of(model)[LAYER]
    torch.manual_seed(7)
    shape = (SEQUENCES, TOKENS, model.config.hidden_size)
    h = torch.randn(shape).double()  # numbers that F32 holds exactly
    target = torch.randn(shape).double()
    got = {}

    def before(_, args, kwargs):
        if args:
            return (h,) + args[1:], kwargs
        return args, {**kwargs, "hidden_states": h}

    def after(_, args, result):
        got["out"] = result[0] if isinstance(result, tuple) else result

    layer.register_forward_pre_hook(before, with_kwargs=True)
    layer.register_forward_hook(after)
    model(input_ids=torch.zeros(shape[:2], dtype=torch.long), use_cache=False)
    mse = ((got["out"] - target) ** 2).mean()
    mse.backward()
    tensors = {"h": h.float(), "target": target.float(), "out": got["out"].detach().float(),
               "mse": mse.detach().reshape(1).float()}
    for path, short in NAMES.items():
        part = layer
        for step in path.split("."):
            part = getattr(part, step, None)
        if part is not None:
            tensors[short] = part.weight.grad[::STEP].float().contiguous()
    save_file(tensors, os.path.join(HERE, name + ".safetensors"),
              metadata={"reference": f"torch {torch.__version__}, transformers {transformers.__version__}, float64"})
    print(name, float(mse), sorted(tensors))


if __name__ == "__main__":
    for one in MODELS:
        record(one)
