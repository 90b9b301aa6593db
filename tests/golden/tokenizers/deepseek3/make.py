"""make.py deepseek3|deepseek|qwen3_5: a small byte-level BPE that cuts texts as DeepSeek-V3's does, as those of DeepSeek LLM
and DeepSeek-V2, or as Qwen3.5's, trained on pages of this project, and the ids that the package `tokenizers` gives for the texts of ../llama3
and more.  It writes the folder next to this one."""
import glob
import json
import os
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

NAME = sys.argv[1]
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", NAME)
DIGITS = [pre_tokenizers.Digits(individual_digits=True)] if NAME == "deepseek" else []
WORDS = ["\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
         "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
         " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
if NAME == "deepseek":
    WORDS = ["[\r\n]",
         "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
         "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
         "\\s+$",
         "[一-龥ࠀ-一가-퟿]+"]
if NAME == "qwen3_5":
    WORDS = ["(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
             "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"]
MORE = ["你好，世界！日本語のテキストとカタカナ。混合text和123数字", "price: $1,234,567.89 (+12%)", "don't #include <a.h> @x\n\n\n  _y",
        "e\u0301te\u0301 नमस्ते 2024-01-02", "\r\n\r\n a\tb  \n", "√2≈1.41421356 ½ ²³ ４５６７"]
if NAME != "deepseek3":
    MORE += ["한국어 문장입니다. ẞtraße Ωmega \U00010412x  ", "end   ", "a\n b\r\n", "ab 12cd  34 ，“ok”。"]
first, last = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
t = Tokenizer(models.BPE())
if NAME == "qwen3_5":
    t.normalizer = normalizers.NFC()
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(w), "isolated") for w in WORDS] + DIGITS +
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
