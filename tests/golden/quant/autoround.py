"""autoround.py FOLDER: records autoround.safetensors by the published functions of auto-round, whose unpacked wheel is
FOLDER.  Only the functions named below run; the rest of the package is not imported.  Needs torch and safetensors.

Each case "bB.gG." has w, v, alpha (max_scale), beta (min_scale), g, the values of quant_tensor_asym(w) with F32 scales,
and by autograd the derivatives of sum(values * g) with respect to v, alpha and beta."""
import ast
import os
import sys
from math import ceil

import torch
from safetensors.torch import save_file

ROWS, COLS = 4, 48


class Torch:
    """torch, but clamp has the derivative 1 at its bounds, too; that of torch 2.15 is 0 there."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def clamp(x, min=None, max=None):
        inside = torch.ones_like(x, dtype=torch.bool)
        inside &= x >= min if min is not None else inside
        inside &= x <= max if max is not None else inside
        return torch.where(inside, x, torch.clamp(x, min, max).detach())


def functions(folder):
    """The published functions, without the decorators that register them."""
    scope = {"torch": Torch(), "ceil": ceil}
    for path, names in (("data_type/utils.py", {"reshape_pad_tensor_by_group_size", "revert_tensor_by_pad",
                                                "round_ste"}), ("data_type/int.py", {"quant_tensor_asym"})):
        with open(os.path.join(folder, "auto_round", path), encoding="utf-8") as f:
            tree = ast.parse(f.read())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in names:
                node.decorator_list = []
                exec(compile(ast.Module([node], []), path, "exec"), scope)
    return scope


def main():
    quantize = functions(sys.argv[1])["quant_tensor_asym"]
    torch.manual_seed(7)
    tensors = {}
    for bits in (2, 3, 4, 8):
        for group in (16, 48):
            n = ROWS * COLS // group
            w = torch.randn(ROWS, COLS)
            v = (torch.rand(n, group) - 0.5).mul(0.9).requires_grad_()
            alpha = (0.7 + 0.25 * torch.rand(n)).requires_grad_()
            beta = (0.7 + 0.25 * torch.rand(n)).requires_grad_()
            g = torch.randn(ROWS, COLS)
            values, _, _ = quantize(w, bits=bits, group_size=group, v=v, min_scale=beta, max_scale=alpha,
                                    scale_dtype=torch.float32)
            (values * g).sum().backward()
            case = f"b{bits}.g{group}."
            tensors.update({case + "w": w, case + "v": v.detach(), case + "alpha": alpha.detach(),
                            case + "beta": beta.detach(), case + "g": g, case + "values": values.detach(),
                            case + "dv": v.grad, case + "dalpha": alpha.grad, case + "dbeta": beta.grad})
    here = os.path.dirname(os.path.abspath(__file__))
    save_file({k: t.contiguous() for k, t in tensors.items()}, os.path.join(here, "autoround.safetensors"),
              metadata={"reference": f"auto-round 0.16.1, torch {torch.__version__}, float32"})


main()
