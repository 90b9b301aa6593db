/* compensation.c - selection of channels and compensation: lists and outputs are the bytes of the CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"
#include "tessera/draft/compensate.h"

#define PICK(list) (list)[pair_draw(p, sizeof(list) / sizeof(list)[0])]
#define MOST       3u /* linears */

struct drawn {
    uint64_t           T, n, cols, outputs[MOST];
    uint32_t           k, linears, bits, blocks;
    float              floors[TSR_COMPENSATE_BUCKETS];
    struct pair_tensor x, rows, list, out[MOST];
    uint8_t           *codes[MOST];
    uint16_t          *scales[MOST];
    void              *residual[MOST][2];
};

static const struct tsr_backend_compensate_v1 *table_of(const struct pair *p, int i)
{
    return p->d[i].t->extension(p->d[i].self, TSR_BACKEND_COMPENSATE);
}

static bool failed(struct pair *p, const char *what, const struct drawn *d)
{
    return tsr_err_prefix(&p->err.err, TSR_E_INVAL, "%s of %u linears of %u bits, k %u of %llu",
                          what, d->linears, d->bits, d->k, (unsigned long long)d->cols) == TSR_OK;
}

/* Numbers with ties, now and then with channels that are NaN or, in few, infinite. */
static bool draw_x(struct pair *p, struct drawn *d)
{
    float *x = malloc(d->T * d->cols * sizeof *x);
    if (!x)
        abort();
    for (uint64_t i = 0; i < d->T * d->cols; i++)
        x[i] = pair_draw(p, 4) ? pair_number(p) : 0.25f;
    if (pair_draw(p, 4) == 0)
        for (uint64_t i = 0; i < d->cols; i++)
            x[i] = pair_draw(p, 3) ? NAN : x[i];
    if (pair_draw(p, 8) == 0)
        x[pair_draw(p, d->cols)] = INFINITY;
    bool ok = pair_tensor(p, &d->x, TSR_F32, d->T, d->cols, x);
    free(x);
    return ok;
}

static bool draw_residual(struct pair *p, struct drawn *d, uint32_t j)
{
    static const uint64_t widths[] = { 1, 15, 16, 40, 255, 257, 300, 1025 };
    const uint64_t        n = d->outputs[j] = PICK(widths);
    const uint64_t        stride = ((n * d->bits + 7) / 8 + 63) / 64 * 64 + 64 * pair_draw(p, 3);
    if (posix_memalign((void **)&d->codes[j], 64, d->cols * stride) != 0 ||
        !(d->scales[j] = malloc(n * sizeof **d->scales)))
        abort();
    for (uint64_t i = 0; i < d->cols * stride; i++)
        d->codes[j][i] = (uint8_t)pair_draw(p, 256);
    for (uint64_t i = 1; d->bits == 16 && i < d->cols * stride; i += 2) /* finite */
        d->codes[j][i] = (uint8_t)((pair_draw(p, 2) << 7) | (0x10 + pair_draw(p, 0x28)));
    for (uint64_t i = 0; i < n; i++)
        d->scales[j][i] = (uint16_t)(0x1000 + pair_draw(p, 0x1000));
    struct tsr_residual_desc r = { .struct_size = sizeof r,
                                   .bits = d->bits,
                                   .name = "drawn",
                                   .inputs = d->cols,
                                   .outputs = n,
                                   .stride = stride,
                                   .codes = d->codes[j],
                                   .scales = d->bits == 16 ? NULL : d->scales[j] };
    for (int i = 0; i < 2; i++)
        if (table_of(p, i)->residual_load(p->d[i].self, &r, &d->residual[j][i], &p->err.err) !=
            TSR_OK)
            return false;
    return pair_tensor(p, &d->out[j], TSR_F32, d->T, n, NULL);
}

static bool draw(struct pair *p, struct drawn *d)
{
    static const uint64_t channels[] = { 7, 64, 100, 1024, 1030, 2100, 3072 };
    static const uint32_t widths[] = { 2, 4, 4, 8, 16 };
    static const uint32_t ks[] = { 1, 8, 32, 64, 400, 1024 };
    uint32_t              rows[3];
    d->T = 1 + pair_draw(p, 3);
    d->cols = PICK(channels);
    d->bits = PICK(widths);
    d->k = PICK(ks);
    d->linears = 1 + (uint32_t)pair_draw(p, MOST);
    d->blocks = (uint32_t)pair_draw(p, 4);               /* 0: the device chooses */
    d->n = pair_draw(p, 2) ? 1 + pair_draw(p, d->T) : 0; /* 0: no rows */
    for (uint32_t i = 0; i < TSR_COMPENSATE_BUCKETS; i++)
        d->floors[i] = (float)(TSR_COMPENSATE_BUCKETS - 1 - i) / 16;
    for (uint32_t i = 0, row = 0; i < d->n; i++, row++)
        rows[i] = row += (uint32_t)pair_draw(p, d->T - row - (d->n - 1 - i));
    const uint64_t room = d->cols / 1024 * d->k + d->cols % 1024 * d->k / 1024;
    uint32_t      *none = calloc((d->n ? d->n : d->T) * (1 + room), sizeof *none);
    if (!none)
        abort();
    bool ok = draw_x(p, d) && (!d->n || pair_tensor(p, &d->rows, TSR_U32, 1, d->n, rows)) &&
              pair_tensor(p, &d->list, TSR_U32, d->n ? d->n : d->T, 1 + room, none);
    free(none);
    for (uint32_t j = 0; ok && j < d->linears; j++)
        ok = draw_residual(p, d, j);
    return ok;
}

static tsr_status run(struct pair *p, const struct drawn *d, int i)
{
    const struct tsr_backend_compensate_v1 *t = table_of(p, i);
    struct tsr_select_op                    select = { .struct_size = sizeof select,
                                                       .k = d->k,
                                                       .x = &d->x.t[i],
                                                       .rows = d->n ? &d->rows.t[i] : NULL,
                                                       .floors = d->floors,
                                                       .list = &d->list.t[i] };
    struct tsr_compensate_op                add = { .struct_size = sizeof add,
                                                    .n = d->linears,
                                                    .x = select.x,
                                                    .rows = select.rows,
                                                    .list = select.list,
                                                    .blocks = d->blocks };
    for (uint32_t j = 0; j < d->linears; j++) {
        add.residual[j] = d->residual[j][i];
        add.out[j] = &d->out[j].t[i];
    }
    tsr_status st = t->select(p->d[i].self, NULL, &select, &p->err.err);
    return st == TSR_OK ? t->compensate(p->d[i].self, NULL, &add, &p->err.err) : st;
}

static bool one(struct pair *p)
{
    struct drawn d = { 0 };
    bool         ok = draw(p, &d) && run(p, &d, 0) == TSR_OK && run(p, &d, 1) == TSR_OK;
    if (!ok)
        (void)failed(p, "compensation", &d);
    ok = ok && (pair_compare(p, "SELECT", &d.list) || failed(p, "a selection", &d));
    for (uint32_t j = 0; ok && j < d.linears; j++)
        ok = pair_compare(p, "COMPENSATE", &d.out[j]) || failed(p, "compensation", &d);
    for (uint32_t j = 0; j < d.linears; j++) {
        for (int i = 0; i < 2; i++)
            table_of(p, i)->residual_free(p->d[i].self, d.residual[j][i]);
        pair_tensor_free(p, &d.out[j]);
        free(d.codes[j]);
        free(d.scales[j]);
    }
    pair_tensor_free(p, &d.x);
    pair_tensor_free(p, &d.list);
    if (d.n)
        pair_tensor_free(p, &d.rows);
    return ok;
}

/* ---- what the host gives ---------------------------------------------------------------------------- */

/* One token of 64 channels and 16 outputs, and a list of at most 4 channels that the host has uploaded. */
#define CHANNELS 64u
#define ROOM     4u

/* Both devices say the same of it; NULL: they take it, and give the same bytes. */
static bool host_list(struct pair *p, struct drawn *d, const uint32_t list[1 + ROOM],
                      const char *want)
{
    bool ok = pair_tensor(p, &d->list, TSR_U32, 1, 1 + ROOM, list);
    for (int i = 0; i < 2 && ok; i++) {
        struct tsr_compensate_op op = { .struct_size = sizeof op,
                                        .n = 1,
                                        .x = &d->x.t[i],
                                        .list = &d->list.t[i],
                                        .residual = { d->residual[0][i] },
                                        .out = { &d->out[0].t[i] } };
        p->err.text[0] = '\0';
        tsr_status st = table_of(p, i)->compensate(p->d[i].self, NULL, &op, &p->err.err);
        if (want && (st != TSR_E_INVAL || strcmp(p->err.text, want) != 0))
            ok = tsr_fail(&p->err.err, TSR_E_INVAL, "device %d of a list: \"%.200s\" instead of %s",
                          i, p->err.text, want) == TSR_OK;
        ok = ok && (want || st == TSR_OK);
    }
    ok = ok && (want || pair_compare(p, "COMPENSATE", &d->out[0]));
    pair_tensor_free(p, &d->list);
    return ok;
}

static bool bad_scale(struct pair *p, const struct drawn *d, uint16_t scale, const char *want)
{
    uint16_t                 scales[16] = { [3] = scale };
    struct tsr_residual_desc r = { .struct_size = sizeof r,
                                   .bits = 4,
                                   .name = "drawn",
                                   .inputs = CHANNELS,
                                   .outputs = 16,
                                   .stride = 64,
                                   .codes = d->codes[0],
                                   .scales = scales };
    for (int i = 0; i < 2; i++) {
        void *h = NULL;
        p->err.text[0] = '\0';
        tsr_status st = table_of(p, i)->residual_load(p->d[i].self, &r, &h, &p->err.err);
        if (st != TSR_E_INVAL || strcmp(p->err.text, want) != 0)
            return tsr_fail(&p->err.err, TSR_E_INVAL, "device %d: \"%.200s\" instead of %s", i,
                            p->err.text, want) == TSR_OK;
    }
    return true;
}

/* Lists and scales of the host: what is wrong is one sentence before anything runs. */
static bool from_host(struct pair *p)
{
    static const struct {
        uint32_t    list[1 + ROOM];
        const char *want;
    } lists[] = {
        { { 4, 0, 7, 62, 63 }, NULL },
        { { 0 }, NULL },
        { { 5, 0, 1, 2, 3 }, "COMPENSATE: list 0 has 5 channels, and room for 4" },
        { { 3, 0, 1, 64 }, "COMPENSATE: list 0, place 2: channel 64 is not below 64" },
        { { 1, UINT32_MAX }, "COMPENSATE: list 0, place 0: channel 4294967295 is not below 64" },
        { { 3, 0, 5, 5 }, "COMPENSATE: list 0, place 2: channel 5 after 5; channels ascend" },
    };
    struct drawn d = { .T = 1, .cols = CHANNELS, .linears = 1, .bits = 4, .outputs = { 16 } };
    uint16_t     scales[2][16];
    for (int i = 0; i < 2; i++)
        if (posix_memalign((void **)&d.codes[i], 64, CHANNELS * 64) != 0)
            abort();
    for (uint64_t i = 0; i < CHANNELS * 64; i++)
        d.codes[0][i] = d.codes[1][i] = (uint8_t)pair_draw(p, 256);
    for (int i = 0; i < 16; i++)
        scales[0][i] = scales[1][i] = (uint16_t)(0x1000 + pair_draw(p, 0x1000));
    struct tsr_residual_desc r = { .struct_size = sizeof r,
                                   .bits = 4,
                                   .name = "drawn",
                                   .inputs = CHANNELS,
                                   .outputs = 16,
                                   .stride = 64 };
    bool                     ok = pair_tensor(p, &d.x, TSR_F32, 1, CHANNELS, NULL) &&
              pair_tensor(p, &d.out[0], TSR_F32, 1, 16, NULL);
    for (int i = 0; i < 2; i++) { /* a device that copies reads nothing of the host's later */
        r.codes = d.codes[i];
        r.scales = scales[i];
        ok = ok && table_of(p, i)->residual_load(p->d[i].self, &r, &d.residual[0][i],
                                                 &p->err.err) == TSR_OK;
        if (table_of(p, i)->copies) {
            memset(d.codes[i], 0, CHANNELS * 64);
            memset(scales[i], 0, sizeof scales[i]);
        }
    }
    for (uint64_t i = 0; ok && i < sizeof lists / sizeof *lists; i++)
        ok = host_list(p, &d, lists[i].list, lists[i].want);
    ok = ok &&
         bad_scale(p, &d, 0x7e00,
                   "residual 'drawn': the scale of output channel 3 is nan; a finite number was "
                   "expected") &&
         bad_scale(p, &d, 0xfc00,
                   "residual 'drawn': the scale of output channel 3 is -inf; a finite number was "
                   "expected");
    for (int i = 0; i < 2; i++)
        table_of(p, i)->residual_free(p->d[i].self, d.residual[0][i]);
    pair_tensor_free(p, &d.x);
    pair_tensor_free(p, &d.out[0]);
    free(d.codes[0]);
    free(d.codes[1]);
    return ok;
}

bool pair_check_compensation(struct pair *p, uint64_t count)
{
    for (int i = 0; i < 2; i++)
        if (!table_of(p, i))
            return tsr_fail(&p->err.err, TSR_E_UNSUPPORTED, "device %d has no %s", i,
                            TSR_BACKEND_COMPENSATE) == TSR_OK;
    if (!from_host(p))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!one(p))
            return false;
    return true;
}
