/* The tokenizer in the metadata of a GGUF file, as a tokenizer.json: so that one reader checks
 * both, and a folder written from the file has one. */
#include "base/json.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/gguf/vocab.h"

#include <stdlib.h>
#include <string.h>

static tsr_status make(struct tsr_gguf_make *k, const char *model)
{
    TSR_TRY(tsr_gguf_put(k, k->j, "version", json_string("1.0")));
    if (strcmp(model, "llama") == 0)
        return tsr_gguf_make_spm(k);
    if (strcmp(model, "gpt2") == 0)
        return tsr_gguf_make_bpe(k);
    if (strcmp(model, "t5") == 0)
        return tsr_gguf_make_unigram(k);
    return tsr_fail(k->err, TSR_E_INPUT,
                    "%s: the tokenizer \"%.40s\" is not supported; of GGUF files \"llama\" "
                    "(SentencePiece), \"t5\" (Unigram) and \"gpt2\" (byte-level BPE) are",
                    k->g->path, model);
}

bool tsr_gguf_has_tokenizer(const struct tsr_gguf *g)
{
    static const char *const   none[] = { "none", "no_vocab" };
    const struct tsr_gguf_key *k = tsr_gguf_key(g, TSR_GGUF_TOKENIZER);
    for (size_t i = 0; k && k->type == TSR_GGUF_STRING && i < sizeof none / sizeof *none; i++)
        if (k->bytes == 8 + strlen(none[i]) &&
            memcmp(g->header + k->at + 8, none[i], k->bytes - 8) == 0)
            return false;
    return k != NULL;
}

tsr_status tsr_gguf_tokenizer(const struct tsr_gguf *g, char **text, uint64_t *len,
                              struct tsr_err *err)
{
    char *model = NULL;
    TSR_TRY(tsr_gguf_str(g, TSR_GGUF_TOKENIZER, true, &model, err));
    struct tsr_gguf_make k = { .g = g, .j = json_object(), .err = err };
    tsr_status           st = k.j ? make(&k, model) : tsr_fail_nomem(err, 64, "a tokenizer");
    if (st == TSR_OK)
        st = tsr_json_text(k.j, JSON_COMPACT, text, len, err);
    json_decref(k.j);
    free(k.v.token);
    free(k.fill);
    free(model);
    return st;
}
