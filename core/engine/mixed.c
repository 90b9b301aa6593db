/* An engine whose last layers, with the head, run on the default backend: the hidden rows cross host
 * memory at the border, chunk by chunk, and are the same bytes on either side. */
#include "base/log.h"
#include "base/mem.h"
#include "engine/internal.h"

/* Of this part's layers, those that stay with the backend; UINT64_MAX: all. */
static uint64_t kept(const struct tsr_model *m, const struct tsr_engine_options *opt)
{
    uint64_t end = opt->end ? opt->end : m->hp.layers;
    if (!opt->on.layers || opt->on.layers - 1 >= end)
        return UINT64_MAX;
    return opt->on.layers - 1 > opt->first ? opt->on.layers - 1 - opt->first : 0;
}

static tsr_status create_mixed(struct tsr_engine **e, struct tsr_registry *r,
                               const struct tsr_model *m, const struct tsr_model_overlay *o,
                               const struct tsr_engine_options *opt, struct tsr_err *err)
{
    uint64_t                  n = kept(m, opt);
    struct tsr_engine_options front = *opt, rest = *opt;
    struct tsr_engine        *behind = NULL;
    front.on.layers = rest.on.layers = 0;
    rest.on.backend = NULL;
    if (n == UINT64_MAX)
        return tsr_engine_create_whole(e, r, m, o, &front, err);
    if (n == 0)
        return tsr_engine_create_whole(e, r, m, o, &rest, err);
    front.end = rest.first = opt->first + n;
    front.no_head = rest.no_embed = true;
    struct tsr_engine *f = NULL; /* first: a source returns layers in order */
    TSR_TRY(tsr_engine_create_whole(&f, r, m, o, &front, err));
    tsr_status st = tsr_engine_create_whole(&behind, r, m, o, &rest, err);
    if (st != TSR_OK) {
        tsr_engine_destroy(f);
        return st;
    }
    f->behind = behind;
    f->border = tsr_new_aligned(f->chunk, m->hp.hidden * sizeof(float));
    if (!f->border) {
        st = tsr_fail_nomem(err, f->chunk * m->hp.hidden * sizeof(float), "hidden rows");
        tsr_engine_destroy(f);
        return st;
    }
    (void)snprintf(f->text, sizeof f->text, "%s (%llu layers) and %s (%llu)",
                   tsr_engine_device_text(f->dev), (unsigned long long)n,
                   tsr_engine_device_text(behind->dev),
                   (unsigned long long)(behind->end - behind->first));
    tsr_logf(TSR_LOG_INFO, "the model runs on %s", f->text);
    *e = f;
    return TSR_OK;
}

tsr_status tsr_engine_create(struct tsr_engine **e, struct tsr_registry *r,
                             const struct tsr_model *m, const struct tsr_model_overlay *o,
                             const struct tsr_engine_options *opt, struct tsr_err *err)
{
    return opt->on.layers ? create_mixed(e, r, m, o, opt, err)
                          : tsr_engine_create_whole(e, r, m, o, opt, err);
}

tsr_status tsr_engine_stage_mixed(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                  uint64_t n, const float *in, float *out, float *logits,
                                  struct tsr_err *err)
{
    uint64_t hidden = e->model->hp.hidden;
    for (uint64_t first = 0; first < n; first += e->chunk) {
        uint64_t m = n - first < e->chunk ? n - first : e->chunk;
        TSR_TRY(tsr_engine_stage_own(e, tokens + first, m, in ? in + first * hidden : NULL,
                                     e->border, NULL, err));
        TSR_TRY(tsr_engine_stage_own(e->behind, tokens + first, m, e->border,
                                     out ? out + first * hidden : NULL, logits, err));
        for (uint64_t i = 0; logits && i < m; i++)
            logits += tokens[first + i].logits ? e->model->hp.vocab : 0;
    }
    return TSR_OK;
}

bool tsr_engine_is_automatic(const struct tsr_engine *e)
{
    return e->dev->automatic || (e->behind && tsr_engine_is_automatic(e->behind));
}

uint32_t tsr_engine_kv(const struct tsr_engine *e)
{
    return e->kv_dtype;
}
