/* GGUF from bytes: the header, and what a model makes of it.  Every input is read twice: as a whole
 * file, and, since a mutated size rarely fits, as the start of a larger one. */
#include "checkpoint/gguf/gguf.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void said(tsr_status r, const struct tsr_errbuf *e)
{
    must(r == TSR_OK || r == TSR_E_INPUT || r == TSR_E_NOMEM);
    must(r == TSR_OK || e->text[0] != '\0');
}

/* Blocks whose bytes are there. */
static void blocks(const struct tsr_gguf_tensor *t, const uint8_t *data, size_t size)
{
    unsigned char codes[1024], meta[1024];
    float         wide[256];
    uint32_t      n = 0, bytes = 0;
    must(tsr_gguf_block(t->type, &n, &bytes) && t->dims[0] % n == 0);
    for (uint64_t at = t->at; at + bytes <= size && at < t->at + t->bytes; at += bytes) {
        struct tsr_format f;
        tsr_gguf_widen(t->type, data + at, n, wide);
        if (tsr_gguf_format(t->type, &f)) {
            must(tsr_model_format_known(&f));
            (void)tsr_gguf_pack_row(t->type, data + at, n, codes, meta);
        }
    }
}

static void tensors(const struct tsr_gguf *g, const struct tsr_model_family *f, const uint8_t *data,
                    size_t size, uint64_t file_size)
{
    const struct tsr_model_hparams hp = { .heads = 4, .kv_heads = 2, .norm_gain_offset = 1 };
    for (uint64_t i = 0; i < g->n; i++) {
        const struct tsr_gguf_tensor *t = &g->tensors[i];
        struct tsr_errbuf             e = TSR_ERRBUF(e);
        struct tsr_gguf_map           map;
        bool                          is;
        must(tsr_gguf_find(g, t->name) == t && t->rank >= 1 && t->rank <= TSR_GGUF_MAX_RANK);
        must(t->at <= file_size && t->bytes <= file_size - t->at);
        said(tsr_gguf_map(g, f, &hp, t, &map, &is, &e.err), &e);
        must(tsr_gguf_row(&map, 64, 63) < 64);
        blocks(t, data, size);
    }
}

static void texts(const struct tsr_gguf *g)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_model_config c;
    struct tsr_tokenizer   *t = NULL;
    char                   *text = NULL;
    uint64_t                len = 0;
    tsr_status              r = tsr_gguf_config(g, &text, &len, &e.err);
    said(r, &e);
    if (r == TSR_OK) {
        r = tsr_model_config_parse(&c, "input", text, len, &e.err);
        said(r, &e);
        if (r == TSR_OK)
            tsr_model_config_free(&c);
    }
    free(text);
    text = NULL;
    r = tsr_gguf_tokenizer(g, &text, &len, &e.err);
    said(r, &e);
    if (r == TSR_OK)
        said(tsr_tokenizer_parse(&t, "input", text, len, NULL, 0, &e.err), &e);
    tsr_tokenizer_destroy(t);
    free(text);
}

static void parse(const uint8_t *data, size_t size, uint64_t file_size)
{
    static const struct {
        const char              *arch;
        enum tsr_model_gguf_kind kind;
    } archs[] = {
        { "llama", TSR_MODEL_GGUF_DENSE },       { "gemma2", TSR_MODEL_GGUF_DENSE },
        { "phi3", TSR_MODEL_GGUF_DENSE },        { "bloom", TSR_MODEL_GGUF_DENSE },
        { "llama", TSR_MODEL_GGUF_EXPERTS },     { "gpt-oss", TSR_MODEL_GGUF_EXPERTS },
        { "deepseek2", TSR_MODEL_GGUF_EXPERTS }, { "deepseek2", TSR_MODEL_GGUF_SIGMOID }
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_gguf   g;
    bool              more;
    tsr_status        r = tsr_gguf_parse(&g, "input", data, size, file_size, &more, &e.err);
    said(r, &e);
    must(!more || (r == TSR_OK && size < file_size));
    if (r == TSR_OK && !more) {
        for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
            const struct tsr_model_family *f;
            must(tsr_model_family_find_gguf(&f, archs[i].arch, archs[i].kind, false, NULL) ==
                     TSR_OK &&
                 f && f->experts.is == (archs[i].kind != TSR_MODEL_GGUF_DENSE));
            tensors(&g, f, data, size, file_size);
        }
        texts(&g);
    }
    tsr_gguf_close(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size, size);
    parse(data, size, (uint64_t)size + (UINT64_C(1) << 24));
    return 0;
}
