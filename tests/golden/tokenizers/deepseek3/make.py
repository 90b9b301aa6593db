"""make.py: a small byte-level BPE that cuts texts as DeepSeek-V3's does, trained on pages of this project, and the ids
that the package `tokenizers` gives for the texts of ../llama3 and more."""
import glob
import json
import os
import random

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ["\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
         "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
         " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
MORE = ["你好，世界！日本語のテキストとカタカナ。混合text和123数字", "price: $1,234,567.89 (+12%)", "don't #include <a.h> @x\n\n\n  _y",
        "e\u0301te\u0301 नमस्ते 2024-01-02", "\r\n\r\n a\tb  \n", "√2≈1.41421356 ½ ²³ ４５６７"]
first, last = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(w), "isolated") for w in WORDS] +
                                          [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
t.decoder = decoders.ByteLevel()
with open(os.path.join(HERE, "../llama3/cases.json")) as f:
    texts = [c["text"] for c in json.load(f)["encode"]]
pages = [open(p).read() for p in sorted(glob.glob(os.path.join(HERE, "../../../../docs/formats/*.md")))[:6]]
t.train_from_iterator(pages + texts + MORE, trainers.BpeTrainer(
    vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[]))
t.add_special_tokens([AddedToken(first, special=True, normalized=False), AddedToken(last, special=True, normalized=False)])
ids = {s: t.token_to_id(s) for s in (first, last)}
t.post_processor = processors.Sequence([
    processors.ByteLevel(trim_offsets=False),
    processors.TemplateProcessing(single=f"{first} $A", pair=f"{first} $A {first}:1 $B:1",
                                  special_tokens=[(first, ids[first])])])
t.save(os.path.join(HERE, "tokenizer.json"))
encode = []
for text in texts + MORE:
    plain, special = t.encode(text, add_special_tokens=False).ids, t.encode(text).ids
    encode.append({"text": text, "ids": plain, "ids_with_special": special,
                   "decoded": t.decode(plain, skip_special_tokens=False),
                   "decoded_skip_special": t.decode(special, skip_special_tokens=True)})
rng = random.Random(1)
lists = [[rng.randrange(t.get_vocab_size()) for _ in range(rng.randrange(1, 12))] for _ in range(40)]
with open(os.path.join(HERE, "cases.json"), "w") as f:
    json.dump({"reference": f"tokenizers {tokenizers.__version__}", "vocab_size": t.get_vocab_size(), "encode": encode,
               "decode_random_ids": [{"ids": i, "decoded": t.decode(i, skip_special_tokens=False)} for i in lists]}, f)
    f.write("\n")
