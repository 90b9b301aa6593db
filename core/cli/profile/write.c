/* tessera profile: the file tessera.device/1. */
#include "base/json.h"
#include "cli/profile/profile.h"
#include "plan/cost/device.h"
#include "plan/cost/quantity.h"
#include "quant/quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A string as YAML: JSON's form is one.  false here and below: memory ran out. */
static bool put_string(FILE *f, const char *text)
{
    json_t  *j = json_stringn_nocheck(text, strlen(text));
    char    *s = NULL;
    uint64_t n;
    bool     ok = tsr_json_text(j, JSON_ENCODE_ANY | JSON_ENSURE_ASCII, &s, &n, NULL) == TSR_OK;
    if (ok)
        (void)fputs(s, f);
    free(s);
    json_decref(j);
    return ok;
}

static bool put_source(FILE *f, const struct profile *p, const struct profile_model *m,
                       const char *scheme)
{
    char      line[512], day[32] = "";
    time_t    now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t))
        (void)strftime(day, sizeof day, "%Y-%m-%d", &t);
    (void)snprintf(line, sizeof line,
                   "tessera profile " TSR_VERSION " on %.60s, %u threads, %s; %.120s%s%.120s; "
                   "%lld rounds, medians of %lld",
                   p->bench.device, p->bench.threads, day, m->path, *scheme ? ", " : "", scheme,
                   (long long)p->o->rounds, (long long)p->o->repeats);
    return put_string(f, line);
}

static void put_points(FILE *f, const struct profile_scheme *s, enum tsr_phase phase)
{
    unsigned n = 0;
    (void)fprintf(f, "    %s: [", phase == TSR_PLAN_PREFILL ? "prefill" : "decode");
    for (uint64_t i = 0; i < s->n_grid; i++) {
        const struct profile_point *q = &s->points[i];
        if (q->phase != phase)
            continue;
        (void)fprintf(f, "%s", n == 0 ? "" : n % 4 == 0 ? ",\n      " : ", ");
        if (phase == TSR_PLAN_PREFILL)
            (void)fprintf(f, "[%llu, %llu, %llu, %.5g, %.2g]", (unsigned long long)q->v,
                          (unsigned long long)q->s, (unsigned long long)q->t, q->ms, q->spread);
        else
            (void)fprintf(f, "[%llu, %llu, %.5g, %.2g]", (unsigned long long)q->v,
                          (unsigned long long)q->t, q->ms, q->spread);
        n++;
    }
    (void)fprintf(f, "]\n");
}

/* Shares of the peaks that the points themselves reach: of the longest prompt, and of one sequence. */
static void put_kernel(FILE *f, const struct profile *p, const struct profile_model *m,
                       const struct profile_scheme *s)
{
    double weights = (double)tsr_plan_shape_weights(m->shape, m->cls), compute[2] = { 0 }, read = 0;
    double expert = 0; /* weights of one */
    for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
        const struct tsr_plan_shape_matrix *w = &m->shape->layer[m->cls].lin[i];
        expert += w->count > 1 ? (double)w->rows * (double)w->cols : 0;
    }
    double experts = expert > 0 ? m->shape->experts : 0; /* none in a dense layer between */
    double used = weights - expert * (experts - m->shape->experts_used);
    bool   dense = s->kernel[0] == 'f' || s->kernel[0] == 'b' || strchr(s->kernel, '.');
    double ops = 2 * (dense || p->dot <= 0 ? p->fma : p->dot);
    char   text[TSR_PLAN_QUANTITY_TEXT];
    for (uint64_t i = 0; i < s->n_grid; i++) {
        const struct profile_point *q = &s->points[i];
        double reached = 2 * used * (double)(q->v * q->s) / (q->ms * 1e-3 * ops);
        double left = experts - tsr_plan_shape_reached(m->shape, m->cls, (double)q->v);
        double share = 1 - (expert > 0 ? left * expert / weights : 0); /* of the layer's weights */
        compute[q->phase] = fmax(compute[q->phase], reached);
        if (q->phase == TSR_PLAN_DECODE)
            read = fmax(read, share * (double)s->layer_bytes / (q->ms * 1e-3 * q->probe));
    }
    (void)fprintf(
        f,
        "  - kernel: %s\n    ops: %s\n    prefill: {compute: %.3g, read: %.3g}\n"
        "    decode: {compute: %.3g, read: %.3g}\n    bytes_per_weight: %.4g\n"
        "    source: \"ops: the %s probe; bytes: as packed; shares of ops and of the bandwidth "
        "above: the most that the points below reach\"\n",
        s->kernel, tsr_plan_quantity_text(ops, TSR_PLAN_QUANTITY_OPERATIONS, text, sizeof text),
        fmin(compute[0], 1), fmin(read, 1), fmin(compute[1], 1), fmin(read, 1),
        (double)s->layer_bytes / weights, dense || p->dot <= 0 ? "FMA" : "int8");
}

static void put_shape(FILE *f, const struct tsr_plan_shape *s, const struct tsr_plan_shape_layer *l)
{
    const struct tsr_model_delta  *d = &s->delta;
    const struct tsr_model_latent *a = &s->latent;
    (void)fprintf(f, "    shape: {hidden: %llu, ffn: %llu, ", (unsigned long long)s->hidden,
                  (unsigned long long)(l->router.rows ? s->expert_ffn : s->ffn));
    if (l->recurrent)
        (void)fprintf(f,
                      "delta: {key_heads: %u, value_heads: %u, key_dim: %u, value_dim: %u, kernel: "
                      "%u}, ",
                      d->key_heads, d->value_heads, d->key_dim, d->value_dim, d->kernel);
    else if (a->rank)
        (void)fprintf(f, "heads: %u, latent: {q_rank: %u, rank: %u, nope: %u, rope: %u, v: %u}, ",
                      s->heads, a->q_rank, a->rank, a->nope, a->rope, a->v);
    else
        (void)fprintf(f, "heads: %u, kv_heads: %u, head_dim: %u, %s", s->heads, s->kv_heads,
                      s->head_dim, s->attn_gate ? "attention_gate: true, " : "");
    (void)fprintf(f, "gated: %s", s->gated ? "true" : "false");
    if (l->router.rows)
        (void)fprintf(f, ", experts: %u, used: %u", s->experts, s->experts_used);
    if (l->router.rows && s->shared_ffn)
        (void)fprintf(f, ", shared: %llu", (unsigned long long)s->shared_ffn);
    (void)fprintf(f, "}\n");
}

static bool put_layers(FILE *f, const struct profile *p, const struct profile_model *m)
{
    for (uint64_t i = 0; i < p->n_schemes; i++) {
        (void)fprintf(f, "  - kernel: %s\n", m->schemes[i].kernel);
        put_shape(f, m->shape, &m->shape->layer[m->cls]);
        put_points(f, &m->schemes[i], TSR_PLAN_PREFILL);
        put_points(f, &m->schemes[i], TSR_PLAN_DECODE);
        (void)fprintf(f, "    source: ");
        if (!put_source(f, p, m, m->schemes[i].text))
            return false;
        (void)fprintf(f, "\n");
    }
    return true;
}

static bool put_ends(FILE *f, const struct profile *p, const struct profile_model *m)
{
    const struct tsr_plan_shape *s = m->shape;
    for (int head = 0; head < 2; head++) {
        const struct tsr_plan_shape_matrix *w = head ? &s->head : &s->embed;
        struct tsr_format                   of;
        uint64_t                            bytes;
        char                                kernel[TSR_PLAN_KERNEL_TEXT];
        struct tsr_errbuf                   e = TSR_ERRBUF(e);
        unsigned                            n = 0;
        if (tsr_plan_candidate_matrix(NULL, w, &of, &bytes, &e.err) != TSR_OK)
            continue; /* an unpacked matrix always has a size */
        tsr_plan_kernel_name(&of, kernel);
        (void)fprintf(
            f, "  - part: %s\n    kernel: %s\n    vocab: %llu\n    width: %llu\n    points: [",
            head ? "head" : "embed", kernel, (unsigned long long)s->vocab,
            (unsigned long long)s->embed_dim);
        for (uint64_t i = 0; i < m->n_ends; i++)
            if (m->ends[i].head == (head == 1))
                (void)fprintf(f, "%s[%llu, %.5g, %.2g]", n++ ? ", " : "",
                              (unsigned long long)m->ends[i].tokens, m->ends[i].ms,
                              m->ends[i].spread);
        (void)fprintf(f, "]\n    source: ");
        if (!put_source(f, p, m, ""))
            return false;
        (void)fprintf(f, "\n");
    }
    return true;
}

/* "Tessera's own: cpu, NAME of the device", cut to what a profile may have. */
static bool put_measured_on(FILE *f, const struct profile *p)
{
    char text[TSR_PLAN_KERNELS_TEXT];
    (void)snprintf(text, sizeof text, "Tessera's own: %.16s, %.40s", p->o->backend,
                   p->bench.device);
    return put_string(f, text);
}

/* The entry of a kernel comes from the first model that has it. */
static void put_kernels(FILE *f, const struct profile *p)
{
    for (uint64_t i = 0; i < p->n_schemes; i++) {
        bool again = false;
        for (uint64_t k = 0; k < i; k++)
            again = again ||
                    strcmp(p->models[0].schemes[k].kernel, p->models[0].schemes[i].kernel) == 0;
        if (!again)
            put_kernel(f, p, &p->models[0], &p->models[0].schemes[i]);
    }
}

static bool put_codecs(FILE *f, const struct profile *p)
{
    bool ok = true;
    (void)fprintf(f, "codecs:\n");
    for (uint64_t i = 0; i < p->n_codecs; i++) {
        const struct profile_codec *c = &p->codecs[i];
        char                        a[TSR_PLAN_QUANTITY_TEXT], b[TSR_PLAN_QUANTITY_TEXT];
        (void)fprintf(f, "  - codec: ");
        ok = put_string(f, c->text) && ok;
        if (c->above)
            (void)fprintf(f, "\n    above: %llu KiB", (unsigned long long)(c->above >> 10));
        (void)fprintf(f,
                      "\n    encode: %s\n    decode: %s\n    source: \"tessera profile " TSR_VERSION
                      ", the fastest of %lld: messages of %llu KiB\"\n",
                      tsr_plan_quantity_text(c->encode, TSR_PLAN_QUANTITY_RATE, a, sizeof a),
                      tsr_plan_quantity_text(c->decode, TSR_PLAN_QUANTITY_RATE, b, sizeof b),
                      (long long)p->o->repeats * 8, (unsigned long long)(c->bytes >> 10));
    }
    return ok;
}

static bool put_all(FILE *f, const struct profile *p, uint64_t memory)
{
    char a[TSR_PLAN_QUANTITY_TEXT], b[TSR_PLAN_QUANTITY_TEXT];
    (void)fprintf(
        f, "# Written by `tessera profile`; times in ms, with the interquartile range of the "
           "repeats over\n# the median, last in each point.\nformat: tessera.device/1\nname: ");
    bool ok = put_string(f, p->o->name);
    (void)fprintf(f, "\nbackend: ");
    ok = put_string(f, p->o->backend) && ok;
    (void)fprintf(f, "\nmeasured_on: ");
    ok = put_measured_on(f, p) && ok;
    (void)
        fprintf(f,
                "\nmemory: {total: %s, usable: 0.9, source: \"the backend; 0.9: assumed, for the "
                "system and the program\"}\nbandwidth: {peak: %s, source: \"read probe, median of "
                "%llu\"}\nknots: {prefill: [96], decode: [4, 16]}\nkernels:\n",
                tsr_plan_quantity_text((double)memory, TSR_PLAN_QUANTITY_BYTES, a, sizeof a),
                tsr_plan_quantity_text(p->bandwidth, TSR_PLAN_QUANTITY_RATE, b, sizeof b),
                (unsigned long long)p->n_probes);
    put_kernels(f, p);
    (void)fprintf(f, "layers:\n");
    for (uint64_t i = 0; i < p->n_models; i++)
        ok = put_layers(f, p, &p->models[i]) && ok;
    (void)fprintf(f, "ends:\n");
    for (uint64_t i = 0; i < p->n_models; i++)
        ok = (p->models[i].again || put_ends(f, p, &p->models[i])) && ok;
    ok = put_codecs(f, p) && ok;
    return ok;
}

tsr_status profile_text(const struct profile *p, char **text, size_t *len, struct tsr_err *err)
{
    struct tsr_backend_props props = { .struct_size = sizeof props };
    TSR_TRY(p->bench.iface->properties(p->bench.self, &props, err));
    FILE *f = open_memstream(text, len);
    if (!f)
        return tsr_fail_nomem(err, 1 << 16, "a device profile");
    bool bad = !put_all(f, p, props.memory_bytes) || ferror(f) != 0;
    if (fclose(f) == 0 && !bad && *text)
        return TSR_OK;
    free(*text);
    *text = NULL;
    return tsr_fail_nomem(err, 1 << 16, "a device profile");
}
