/* What a packed model says of itself, from bytes: the index, the description of a matrix, and the
 * header of a layer's file against a small model. */
#include "base/mem.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/safetensors/safetensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void expected(tsr_status st, const struct tsr_errbuf *e)
{
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e->text[0] != '\0');
}

static void index_of(const uint8_t *data, size_t size)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_packed_index x;
    tsr_status st = tsr_packed_index_parse(&x, "packed.json", (const char *)data, size, &e.err);
    expected(st, &e);
    for (uint64_t i = 0; st == TSR_OK && i < x.layers; i++)
        must(strlen(x.layer[i]) == TSR_HASH_TEXT - 1);
    if (st == TSR_OK)
        tsr_packed_index_free(&x);
}

/* What is accepted is one of our formats with sizes that its decoder keeps to, or foreign. */
static void check_packed(const struct tsr_model_packed *p)
{
    must(p->format_id && p->plugin && p->cols > 0);
    if (strncmp(p->format_id, "tessera.", 8) != 0)
        return;
    must(tsr_model_format_known(&p->format) && tsr_model_format_fits(&p->format, p->cols));
    must(p->code_stride == tsr_model_format_code_bytes(&p->format, p->cols));
    must(p->meta_stride == tsr_model_format_meta_bytes(&p->format, p->cols));
}

static void matrix_of(const uint8_t *data, size_t size)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_model_packed *p = tsr_new(1, sizeof *p);
    char                    *text = tsr_strndup((const char *)data, size);
    if (p && text) {
        tsr_status st = tsr_packed_understand(p, "input", text, &e.err);
        expected(st, &e);
        if (st == TSR_OK)
            check_packed(p);
    }
    free(text);
    tsr_model_packed_destroy(p);
}

static void layer_of(const uint8_t *data, size_t size, uint64_t file_size)
{
    static const char *const names[TSR_MODEL_LINEARS] = {
        "q", "k", "v", "o", "gate", "up", "down"
    };
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_model_linear   lin[TSR_MODEL_LINEARS] = { 0 };
    struct tsr_model_layer    layer = { .lin = lin };
    struct tsr_model          m = { .path = "m",
                                    .layers = &layer,
                                    .hp.layers = 1,
                                    .hp.linears = TSR_MODEL_LINEARS,
                                    .hp.sites = TSR_MODEL_SITES,
                                    .hp.hidden = 8 };
    struct tsr_model_overlay *o = NULL;
    struct tsr_safetensors    st;
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        layer.lin[i].w.name = names[i];
    m.head.w.name = "lm_head";
    m.embed.name = "model.embed_tokens";
    if (tsr_safetensors_parse(&st, "input", data, size, file_size, &e.err) == TSR_OK) {
        for (uint64_t at = 0;
             at < 2 && tsr_model_overlay_create(&o, 1, TSR_MODEL_LINEARS, &e.err) == TSR_OK; at++) {
            tsr_status s = tsr_packed_layer_check(&st, "input", &m, at, NULL, o, &e.err);
            expected(s, &e);
            for (int i = 0; i < TSR_MODEL_LINEARS && s == TSR_OK; i++)
                if (o->lin[0][i])
                    check_packed(o->lin[0][i]);
            if (s == TSR_OK && o->head)
                check_packed(o->head);
            if (s == TSR_OK && o->embed)
                check_packed(o->embed);
            tsr_model_overlay_destroy(o);
        }
    }
    tsr_safetensors_close(&st);
}

/* The largest second number behind a "data_offsets": the length of a data section that fits. */
static uint64_t section_of(const uint8_t *p, size_t size)
{
    static const char key[] = "\"data_offsets\":[";
    uint64_t          most = 0;
    for (size_t i = 0; i + sizeof key < size; i++) {
        if (memcmp(p + i, key, sizeof key - 1) != 0)
            continue;
        uint64_t v = 0;
        for (size_t k = i + sizeof key - 1; k < size && p[k] != ']'; k++)
            v = p[k] >= '0' && p[k] <= '9' ? v * 10 + (uint64_t)(p[k] - '0') : 0;
        most = v > most ? v : most;
    }
    return most < UINT64_MAX / 2 ? most : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    index_of(data, size);
    matrix_of(data, size);
    uint8_t *b = malloc(size + 8);
    if (!b)
        return 0;
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)((uint64_t)size >> 8 * i);
    if (size > 0)
        memcpy(b + 8, data, size);
    layer_of(b, size + 8, size + 8 + section_of(data, size));
    free(b);
    return 0;
}
