"""older.py IN.gguf OUT.gguf: a file of latent attention in the form that llama.cpp wrote before May 2025: kv_b as one
tensor, key_length and value_length of a head, a key-value head for each head, no groups of experts.  Needs gguf."""
import sys

import gguf
import numpy as np

src = gguf.GGUFReader(sys.argv[1])
arch = src.fields["general.architecture"].contents()
out = gguf.GGUFWriter(sys.argv[2], arch)
value = {k.split(".", 1)[1]: f.contents() for k, f in src.fields.items() if k.startswith(arch + ".")}
replaced = {"attention.key_length": value.pop("attention.key_length_mla"),
            "attention.value_length": value.pop("attention.value_length_mla"),
            "attention.head_count_kv": value["attention.head_count"]}
for key, f in src.fields.items():
    name = key.split(".", 1)[-1]
    if key.startswith("GGUF.") or key == "general.architecture" or name.endswith("_mla") or "expert_group" in name:
        continue
    kind = f.types[0]
    out.add_key_value(key, replaced.get(name, f.contents()) if key.startswith(arch) else f.contents(), kind,
                      f.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
tensors = {t.name: t for t in src.tensors}
for name, t in tensors.items():
    if ".attn_v_b." in name:
        continue
    if ".attn_k_b." in name:
        v = tensors[name.replace("attn_k_b", "attn_v_b")]
        size = t.data.dtype.itemsize * (2 if t.tensor_type == gguf.GGMLQuantizationType.BF16 and
                                        t.data.dtype == np.uint8 else 1)
        kind = {2: np.uint16, 4: np.uint32}[size]
        k = t.data.view(kind).reshape(t.shape[::-1]).transpose(0, 2, 1)
        kv = np.concatenate([k, v.data.view(kind).reshape(v.shape[::-1])], 1)
        kv = np.ascontiguousarray(kv.reshape(-1, kv.shape[-1]))
        out.add_tensor(name.replace("attn_k_b", "attn_kv_b"), kv.view(t.data.dtype), raw_dtype=t.tensor_type)
    else:
        out.add_tensor(name, t.data, raw_dtype=t.tensor_type)
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
