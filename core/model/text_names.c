#include "model/text_names.h"

#include <stddef.h>

static const char *const names[] = {
    "generation_config.json",  "tokenizer.json",      "tokenizer_config.json",
    "tokenizer.model",         "vocab.json",          "merges.txt",
    "added_tokens.json",       "chat_template.jinja", "chat_template.json",
    "special_tokens_map.json",
};

const char *tsr_model_text_name(uint64_t i)
{
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}
