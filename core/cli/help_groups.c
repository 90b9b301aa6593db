/* Which verbs `tessera help` lists together. */
#include "cli/help.h"

static const struct tsr_verb_group groups[] = {
    { "run a model", { "run", "generate", "logits", "tokenize" } },
    { "quantize", { "quantize", "rotate", "compensate", "tune", "convert" } },
    { "compare", { "compare", "eval", "sweep", "outliers", "roundtrip" } },
    { "plan", { "plan", "indicators", "profile", "search-codec", "doctor" } },
    { "answer requests", { "batch", "serve", "journal" } },
    { "plugins", { "inspect", "plugin" } },
    { "tools", { "config", "bench", "add-outliers", "help" } },
};

const struct tsr_verb_group *tsr_verb_group_at(uint64_t i)
{
    return i < sizeof groups / sizeof *groups ? &groups[i] : NULL;
}
