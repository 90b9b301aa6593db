/* checkpoint/gguf/words.h - patterns that cut a text into words one after the other, and what llama.cpp calls them; for
 * reading and for writing.
 */
#ifndef TSR_CHECKPOINT_GGUF_WORDS_H
#define TSR_CHECKPOINT_GGUF_WORDS_H

#define TSR_GGUF_SPLITS 3
struct tsr_gguf_splits {
    const char *name; /* value of tokenizer.ggml.pre */
    const char *words[TSR_GGUF_SPLITS];
};

/* Digits by three; Chinese characters and kana; the rest. */
static const struct tsr_gguf_splits tsr_gguf_three_splits = {
    "deepseek-v3",
    { "\\p{N}{1,3}",
      "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
      "[!\"#$%&'()*+,\\-./"
      ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+" }
};

#endif
