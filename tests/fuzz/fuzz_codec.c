/* What comes from another rank or from a file: a message and a state of any bytes through every codec, and
 * a table of increases (from '{' on).  Bytes: codec, rows, columns, flags, then the message or the state. */
#include "base/err.h"
#include "base/mem.h"
#include "eval/codec_search.h"
#include "tessera/codec.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct tsr_plugin tsr_builtin_mx_codec, tsr_builtin_int4_bf16,
    tsr_builtin_int4_channel, tsr_builtin_topk, tsr_builtin_plain;

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void no_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)msg;
}
static void *get(void *ctx, uint64_t size, uint64_t align)
{
    (void)ctx;
    (void)align;
    return size > UINT64_C(1) << 28 ? NULL : tsr_new_aligned(size, 1);
}
static void drop(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}
static int32_t never(void *ctx)
{
    (void)ctx;
    return 0;
}
static const struct tsr_host host = { .struct_size = sizeof host,
                                      .abi_major = TSR_ABI_MAJOR,
                                      .abi_minor = TSR_ABI_MINOR,
                                      .log = no_log,
                                      .alloc = get,
                                      .release = drop,
                                      .cancelled = never };

/* The defaults of a component, but for the widths that the flags choose. */
static void *options_of(const struct tsr_component *c, uint8_t flags)
{
    unsigned char *o = tsr_new(1, c->options_size);
    must(o != NULL);
    for (uint64_t i = 0; i < c->n_options; i++) {
        const struct tsr_option *k = &c->options[i];
        int64_t                  v = k->def.i;
        if (strcmp(k->name, "bits") == 0)
            v = 2 + flags % 7;
        else if (strcmp(k->name, "one_in") == 0)
            v = 1 + flags % 9;
        else if (strcmp(k->name, "scale_bits") == 0)
            v = 4 + flags % 5;
        else if (strcmp(k->name, "block") == 0)
            v = 1 + flags % 40;
        else if (strcmp(k->name, "element") == 0)
            v = k->choices[flags % k->n_choices].value;
        if (k->type == TSR_OPT_REAL)
            memcpy(o + k->offset, &k->def.r, sizeof k->def.r);
        else
            memcpy(o + k->offset, &v, sizeof v);
    }
    return o;
}

static void calibrate(const struct tsr_codec_v1 *t, void *self, uint64_t cols)
{
    float *x = tsr_new(cols, sizeof *x);
    must(x != NULL);
    for (uint64_t i = 0; i < cols; i++)
        x[i] = (float)(i % 5) - 2;
    struct tsr_codec_job j = { .struct_size = sizeof j, .rows = 1, .cols = cols, .src = x };
    must(t->observe(self, &j, NULL) == TSR_OK && t->freeze(self, NULL) == TSR_OK);
    free(x);
}

/* What a device would be told: every feature once, in lists that are there. */
static void look_at_wire(const struct tsr_codec_v1 *t, const void *self, uint64_t cols)
{
    const struct tsr_codec_wire_v1 *f = t->extension ? t->extension(self, TSR_CODEC_WIRE) : NULL;
    struct tsr_codec_wire           w = { .struct_size = sizeof w };
    uint8_t                         seen[200] = { 0 };
    uint64_t                        bytes;
    if (!f || f->wire(self, 0, 0, cols, &w, NULL) != TSR_OK)
        return;
    must(t->wire_bytes(self, 1, cols, &bytes, NULL) == TSR_OK && bytes == w.row_bytes);
    must(w.cols == cols && w.kept <= cols);
    for (uint64_t i = 0; w.kind == TSR_WIRE_SCALED && i < cols; i++) {
        uint32_t at = i < w.kept ? w.feature[i] : w.place[i - w.kept];
        must(at < cols && !seen[at]++);
        must(i < w.kept || (w.scale[i - w.kept] >= 0 && w.inv[i - w.kept] >= 0));
    }
}

static void take_message(const struct tsr_codec_v1 *t, const void *self, uint64_t rows,
                         uint64_t cols, const uint8_t *data, size_t size)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = { .struct_size = sizeof j, .rows = rows, .cols = cols };
    must(t->wire_bytes(self, rows, cols, &j.wire_bytes, &e.err) == TSR_OK);
    /* exactly as large as declared, so that a byte beyond is seen */
    unsigned char *wire = malloc(j.wire_bytes);
    float         *y = malloc(rows * cols * sizeof *y), *z = malloc(rows * cols * sizeof *z);
    must(wire && y && z);
    for (uint64_t i = 0; i < j.wire_bytes; i++)
        wire[i] = size ? data[i % size] : 0;
    j.wire = wire;
    j.dst = memset(y, 0, rows * cols * sizeof *y);
    e.text[0] = '\0';
    tsr_status st = t->decode(self, &j, &e.err);
    must(st == TSR_OK || (st == TSR_E_INVAL && e.text[0] != '\0'));
    j.dst = memset(z, 0xff, rows * cols * sizeof *z);
    must(t->decode(self, &j, NULL) == st);
    must(st != TSR_OK || memcmp(y, z, rows * cols * sizeof *y) == 0);
    must(t->decode_add(self, &j, NULL) == st);
    free(wire);
    free(y);
    free(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tsr_plugin *const all[] = { &tsr_builtin_mx_codec, &tsr_builtin_int4_bf16,
                                                    &tsr_builtin_int4_channel, &tsr_builtin_topk,
                                                    &tsr_builtin_plain };
    if (size < 4)
        return 0;
    if (data[0] == '{') { /* a table of increases */
        struct tsr_errbuf           e = TSR_ERRBUF(e);
        struct tsr_eval_codec_table table;
        tsr_status                  st =
            tsr_eval_codec_table_parse(&table, "input", (const char *)data, size, &e.err);
        must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
        if (st == TSR_OK)
            must(tsr_eval_codec_choose(table.cell, table.rows, 3) <= table.rows);
        if (st == TSR_OK)
            tsr_eval_codec_table_free(&table);
        return 0;
    }
    const struct tsr_component *c = all[data[0] % 5]->components[0];
    const struct tsr_codec_v1  *t = c->iface;
    uint64_t                    rows = 1 + data[1] % 5, cols = 1 + data[2] % 200;
    void                       *o = options_of(c, data[3]), *self = NULL;
    must(t->create(&host, o, &self, NULL) == TSR_OK);
    if (t->load && data[0] & 0x80) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        void             *state = malloc(size - 4 ? size - 4 : 1);
        must(state != NULL);
        memcpy(state, data + 4, size - 4);
        e.text[0] = '\0';
        tsr_status st = t->load(self, state, size - 4, &e.err);
        must(st == TSR_OK || (e.text[0] != '\0' && (st == TSR_E_INVAL || st == TSR_E_NOMEM)));
        free(state);
    } else {
        if (t->observe)
            calibrate(t, self, cols);
        take_message(t, self, rows, cols, data + 4, size - 4);
    }
    look_at_wire(t, self, cols);
    t->destroy(self);
    free(o);
    return 0;
}
