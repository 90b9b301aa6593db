/* Residuals of a packed model in memory, and engines that run a script with them. */
#include "compensated.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct tsr_registry    *compensated_registry, *compensated_threaded;
static struct tsr_pool *pool, *three;
const char             *compensated_vault;

int compensated_set_up(void **state)
{
    (void)state;
    compensated_registry = golden_registry(1, compensated_vault, &pool);
    compensated_threaded = golden_registry(3, NULL, &three);
    return 0;
}

int compensated_tear_down(void **state)
{
    (void)state;
    golden_registry_close(compensated_registry, pool);
    golden_registry_close(compensated_threaded, three);
    return 0;
}

/* ---- residuals without a file ---------------------------------------------------------------- */

/* Rows of q, k, v and of gate, up behind each other, as a file has them: the first has the memory of all. */
static void join_rows(const struct tsr_model *m, uint64_t layer,
                      struct tsr_compensate_residual *lin, enum tsr_site site, uint32_t bits)
{
    uint64_t                        row, at = 0;
    unsigned char                  *all = NULL;
    struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
    if (tsr_compensation_row(m, layer, site, bits, &row) < 2)
        return;
    for (uint32_t i = 0; i < of.n; i++) {
        struct tsr_compensate_residual *r = &lin[of.id[i]];
        if (!r->inputs)
            continue;
        assert_non_null(r->codes);
        if (!all)
            assert_int_equal(posix_memalign((void **)&all, 64, r->inputs * row), 0);
        for (uint64_t k = 0; k < r->inputs; k++)
            memcpy(all + k * row + at, r->codes + k * r->stride, r->stride);
        free(r->codes);
        r->codes = all + at;
        at += r->stride;
        r->stride = row;
    }
    assert_int_equal(at, row);
}

/* Joined in every other layer. */
const struct tsr_compensation *compensated_residuals(const struct tsr_model         *m,
                                                     const struct tsr_model_overlay *o,
                                                     uint32_t                        bits)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_compensation *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->bits = bits;
    assert_int_equal(tsr_compensation_new_layers(c, m, NULL), TSR_OK);
    for (uint64_t l = 0; l < c->layers; l++) {
        for (uint64_t i = 0; i < c->linears; i++) {
            struct tsr_compensate_residual_source src = { .w = &m->layers[l].lin[i].w,
                                                          .packed = o->lin[l][i] };
            struct tsr_compensate_residual_report rep;
            if (src.packed && tsr_compensate_residual_make(&c->lin[l][i], NULL, &src, bits, NULL,
                                                           &rep, &err.err) != TSR_OK)
                fail_msg("%s", err.text);
        }
        for (uint64_t s = 0; s < c->sites && l % 2 == 0; s++)
            join_rows(m, l, c->lin[l], (enum tsr_site)s, bits);
        for (uint64_t s = 0; s < c->sites; s++) {
            uint64_t n = tsr_model_layer_site_cols(m, l, (enum tsr_site)s);
            if (!n)
                continue; /* of latent attention */
            float *v = malloc(3 * n * sizeof *v);
            assert_non_null(v);
            for (uint64_t i = 0; i < n; i++) {
                v[i] = 3.0f * (float)(n - i) / (float)n; /* inputs are about 1 */
                v[n + i] = (float)tsr_uniform(5, l * 4 + s, i);
                v[2 * n + i] = (float)tsr_uniform(6, l * 4 + s, i);
            }
            c->site[l][s] = (struct tsr_compensate_site_profile){ n, v, v + n, v + 2 * n };
        }
    }
    return c;
}

/* Joined: the first of a site has the memory of all. */
static void unjoin(const struct tsr_model *m, uint64_t layer, struct tsr_compensate_residual *lin,
                   enum tsr_site site)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
    bool                            seen = false;
    for (uint32_t i = 0; i < of.n; i++) {
        if (seen)
            lin[of.id[i]].codes = NULL;
        seen = seen || lin[of.id[i]].codes;
    }
}

void compensated_residuals_free(const struct tsr_model *m, const struct tsr_compensation *c)
{
    for (uint64_t l = 0; l < c->layers; l++) {
        for (uint64_t s = 0; s < c->sites && l % 2 == 0; s++)
            unjoin(m, l, c->lin[l], (enum tsr_site)s);
        for (uint64_t i = 0; i < c->linears; i++)
            tsr_compensate_residual_free(&c->lin[l][i]);
        for (uint64_t s = 0; s < c->sites; s++)
            free((void *)(uintptr_t)c->site[l][s].top);
    }
    free(c->lin);
    free(c->site);
    free((void *)(uintptr_t)c);
}

/* ---- a script of mixed batches ------------------------------------------------------------------ */

/* Prompts in pieces, then single tokens, which count as generated. */
struct compensated_script compensated_write_script(uint64_t vocab)
{
    static const uint64_t give[COMPENSATED_STEPS][COMPENSATED_SLOTS] = {
        { 7, 1, 0 }, { 4, 3, 9 }, { 1, 1, 5 }, { 1, 1, 1 }
    };
    struct compensated_script s = { .logits = 0 };
    for (uint32_t k = 0; k < COMPENSATED_STEPS; k++)
        for (uint32_t slot = 0; slot < COMPENSATED_SLOTS; slot++)
            for (uint64_t i = 0; i < give[k][slot]; i++) {
                s.token[k][s.n[k]++] = (struct tsr_engine_token){
                    .id = (uint32_t)(tsr_uniform(3, k * 8 + slot, i) * (double)vocab),
                    .slot = slot,
                    .logits = true,
                    .decode = k >= 2 && give[k][slot] == 1
                };
                s.wanted[k]++;
                s.logits++;
            }
    return s;
}

float *compensated_run_script(struct tsr_engine *e, const struct compensated_script *s)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint64_t          vocab = tsr_engine_vocab(e);
    float            *logits = malloc(s->logits * vocab * sizeof *logits), *at = logits;
    assert_non_null(logits);
    for (uint32_t k = 0; k < COMPENSATED_STEPS; k++) {
        if (tsr_engine_forward(e, s->token[k], s->n[k], at, &err.err) != TSR_OK)
            fail_msg("%s", err.text);
        at += s->wanted[k] * vocab;
    }
    tsr_engine_destroy(e);
    return logits;
}

struct tsr_engine *compensated_engine(struct tsr_registry *r, const struct tsr_model *m,
                                      const struct tsr_model_overlay     *o,
                                      const struct tsr_engine_compensate *c, uint64_t chunk,
                                      const char *backend)
{
    return golden_engine(r, m, o,
                         (struct tsr_engine_options){ .on.backend = backend,
                                                      .act = TSR_ACT_F32,
                                                      .kv_dtype = TSR_F32,
                                                      .slots = COMPENSATED_SLOTS,
                                                      .context = 32,
                                                      .chunk = chunk,
                                                      .compensate = c });
}
