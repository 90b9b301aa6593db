/* Questions to a component's own functions, by kind.  The samples are arbitrary but usual. */
#include "cli/inspect/facts.h"
#include "cli/inspect/probe.h"

#include "base/json.h"
#include "plugin/spec.h"
#include "quant/quant.h"
#include "tessera/backend.h"
#include "tessera/codec.h"
#include "tessera/kv.h"
#include "tessera/quantizer_block.h"
#include "tessera/sampler.h"
#include "tessera/solver.h"
#include "tessera/step.h"
#include "tessera/transport.h"

#include <string.h>

#define ROWS UINT64_C(512)
#define COLS UINT64_C(1024)

/* The first supported type from F32 on, else F32: the sample does not need the narrowest type. */
static uint32_t sample_dtype(const struct tsr_quantizer_v1 *q)
{
    for (uint32_t d = TSR_F32; d <= TSR_BF16; d++)
        if (q->src_dtypes & 1u << d)
            return d;
    return TSR_F32;
}

static json_t *quantizer_json(const struct tsr_quantizer_v1 *q, const void *self,
                              const struct tsr_quant_plan *p)
{
    char     format[300];
    uint64_t rows = p->rows_per_unit ? p->rows_per_unit : ROWS;
    bool     ours = tsr_model_format_known(&p->format);
    double   bits =
        8.0 * ((double)p->code_bytes + (double)p->meta_bytes) / ((double)rows * (double)COLS);
    if (ours)
        tsr_model_format_name(&p->format, format, sizeof format);
    else
        (void)snprintf(format, sizeof format, "%s", p->format.id ? p->format.id : "?");
    json_t *j = json_pack("{s:[I, I], s:o, s:o, s:s, s:f, s:b}", "sample", (json_int_t)ROWS,
                          (json_int_t)COLS, "needs", tsr_inspect_needs(p->need), "needs_if_there",
                          tsr_inspect_needs(p->need >> 32), "packs_as", format, "bits_per_weight",
                          bits, "whole_tensor", p->rows_per_unit == 0);
    const struct tsr_quantizer_block_v1 *b =
        q->extension ? q->extension(self, TSR_QUANTIZER_BLOCK) : NULL;
    bool ok = j != NULL;
    if (ok && b && TSR_HAS(struct tsr_quantizer_block_v1, b, block_need))
        ok = json_object_set_new(j, "needs_of_block", tsr_inspect_needs(b->block_need(self))) == 0;
    if (ok && q->max_error_steps)
        ok = json_object_set_new(j, "max_error_steps", json_real(q->max_error_steps(self))) == 0;
    if (ok && q->columns_alone)
        ok = json_object_set_new(j, "columns_alone",
                                 json_integer((json_int_t)q->columns_alone(self))) == 0;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status ask_quantizer(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                                struct tsr_err *err)
{
    const struct tsr_quantizer_v1 *q = f->iface;
    void                          *self = NULL;
    TSR_TRY(q->create(f->host, opts, &self, err));
    uint32_t              dtype = sample_dtype(q);
    struct tsr_matrix     w = { .struct_size = sizeof w,
                                .dtype = dtype,
                                .name = "sample",
                                .rows = ROWS,
                                .cols = COLS,
                                .row_stride = COLS * (dtype == TSR_F32 ? 4u : 2u) };
    struct tsr_quant_plan p = { .struct_size = sizeof p };
    p.format.struct_size = sizeof p.format;
    tsr_status st = q->plan(self, &w, &p, err);
    if (st == TSR_OK)
        *out = quantizer_json(q, self, &p);
    q->destroy(self);
    return st;
}

static tsr_status ask_codec(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                            struct tsr_err *err)
{
    const struct tsr_codec_v1 *t = f->iface;
    void                      *self = NULL;
    uint64_t                   bytes = 0;
    TSR_TRY(t->create(f->host, opts, &self, err));
    bool       exact = t->exactness(self) == TSR_CODEC_EXACT;
    tsr_status st = t->wire_bytes(self, 1, COLS, &bytes, err);
    if (st == TSR_OK)
        *out = json_pack("{s:[I, I], s:b, s:I, s:f}", "sample", (json_int_t)1, (json_int_t)COLS,
                         "exact", exact, "wire_bytes", (json_int_t)bytes, "bits_per_value",
                         8.0 * (double)bytes / (double)COLS);
    t->destroy(self);
    return st;
}

static tsr_status ask_transport(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                                struct tsr_err *err)
{
    const struct tsr_transport_v1 *t = f->iface;
    (void)err;
    *out = json_pack("{s:{s:I, s:I}}", "shared_bytes", "2", (json_int_t)t->world_bytes(opts, 2),
                     "8", (json_int_t)t->world_bytes(opts, 8));
    return TSR_OK;
}

static tsr_status ask_solver(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                             struct tsr_err *err)
{
    const struct tsr_solver_v1 *t = f->iface;
    void                       *self = NULL;
    TSR_TRY(t->create(f->host, opts, &self, err));
    t->destroy(self);
    *out = json_object();
    return TSR_OK;
}

static tsr_status ask_backend(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                              struct tsr_err *err)
{
    const struct tsr_backend_v1 *t = f->iface;
    struct tsr_backend_props     p = { .struct_size = sizeof p };
    void                        *self = NULL;
    TSR_TRY(t->create(f->host, opts, &self, err));
    tsr_status st = t->properties(self, &p, err);
    if (st == TSR_OK)
        *out = json_pack("{s:s, s:I, s:b}", "device", p.device ? p.device : "", "memory_bytes",
                         (json_int_t)p.memory_bytes, "deterministic", p.deterministic != 0);
    t->destroy(self);
    return st;
}

/* The texts of tokens belong to a model. */
static tsr_status ask_sampler(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                              struct tsr_err *err)
{
    const struct tsr_sampler_v1 *t = f->iface;
    void                        *self = NULL;
    TSR_TRY(t->create(f->host, opts, &self, err));
    t->destroy(self);
    *out = json_pack("{s:b}", "needs_tokens", (t->needs & TSR_SAMPLER_TOKENS) != 0);
    return TSR_OK;
}

/* All that a step says without a job is data of its table. */
static tsr_status ask_step(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                           struct tsr_err *err)
{
    const struct tsr_step_v1 *t = f->iface;
    void                     *self = NULL;
    TSR_TRY(t->create(f->host, opts, &self, err));
    t->destroy(self);
    *out = json_pack("{s:b}", "needs_model", (t->needs & TSR_STEP_MODEL) != 0);
    return TSR_OK;
}

/* Units of a head of 128 elements. */
static tsr_status ask_kv(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                         struct tsr_err *err)
{
    const struct tsr_kv_v1 *t = f->iface;
    void                   *self = NULL;
    struct tsr_kv_layout    l[2] = { { .struct_size = sizeof *l }, { .struct_size = sizeof *l } };
    TSR_TRY(t->create(f->host, opts, &self, err));
    tsr_status st = t->layout(self, TSR_KV_KEYS, 128, &l[0], err);
    if (st == TSR_OK)
        st = t->layout(self, TSR_KV_VALUES, 128, &l[1], err);
    t->destroy(self);
    if (st != TSR_OK)
        return st;
    *out = json_object();
    for (int i = 0; i < 2 && *out && l[i].positions; i++)
        tsr_json_set(out, i ? "values" : "keys",
                     json_pack("{s:I, s:I, s:f, s:f}", "positions", (json_int_t)l[i].positions,
                               "bytes", (json_int_t)l[i].bytes, "bits",
                               8 * (double)l[i].bytes / (128.0 * l[i].positions), "error",
                               l[i].error));
    return TSR_OK;
}

tsr_status tsr_inspect_ask(const struct tsr_plugin_found *f, json_t **out, struct tsr_err *err)
{
    static const struct {
        const char *kind;
        tsr_status (*ask)(const struct tsr_plugin_found *f, const void *opts, json_t **out,
                          struct tsr_err *err);
    } kinds[] = {
        { TSR_KIND_QUANTIZER, ask_quantizer }, { TSR_KIND_CODEC, ask_codec },
        { TSR_KIND_TRANSPORT, ask_transport }, { TSR_KIND_SOLVER, ask_solver },
        { TSR_KIND_BACKEND, ask_backend },     { TSR_KIND_SAMPLER, ask_sampler },
        { TSR_KIND_STEP, ask_step },           { TSR_KIND_KV, ask_kv },
    };
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plugin_spec spec;
    *out = NULL;
    tsr_status st = tsr_plugin_spec_defaults(&spec, f, &e.err);
    for (size_t i = 0; st == TSR_OK && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, f->component->kind) == 0)
            st = kinds[i].ask(f, spec.options, out, &e.err);
    tsr_plugin_spec_close(&spec);
    if (st == TSR_E_NOMEM) /* a failure of the host, not an answer of the plugin */
        return tsr_err_copy(err, st, &e.err);
    if (st != TSR_OK)
        *out = json_pack("{s:s}", "error", *e.text ? e.text : "it failed with no message");
    if (!*out) /* strings that are not UTF-8, numbers that are not finite */
        *out = json_pack("{s:s}", "error", "it answers with what cannot be printed");
    return *out ? TSR_OK : tsr_fail_nomem(err, 0, "a plugin's answer");
}
