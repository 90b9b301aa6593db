/* make_experts DENSE OUT EXPERTS USED [FORM] - a Mixtral of a Llama folder: each expert is the feed-forward of its layer, so
 * that whatever the router says, the model computes what the dense one does.  The rows of a router come in pairs of
 * opposite sign, and the last one is zero: with USED 1 its expert is never taken.  FORM shared and gated: a model of the
 * family MadeExperts of that form.  Its first layer is dense; in the others an expert that every token takes has all of
 * the feed-forward, twice of it with the form gated, whose score is 0, and the experts say nothing. */
#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "checkpoint/safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_errbuf err;

static void must(tsr_status st)
{
    if (st == TSR_OK)
        return;
    (void)fprintf(stderr, "make_experts: %s\n", err.text);
    exit(1);
}

static const struct part {
    const char *dense, *expert;
} parts[] = { { ".mlp.gate_proj.weight", ".w1.weight" },
              { ".mlp.up_proj.weight", ".w3.weight" },
              { ".mlp.down_proj.weight", ".w2.weight" } };

enum form { MIXTRAL, SHARED, GATED };
struct made {
    uint64_t  experts, hidden;
    enum form form;
};

/* The name of expert e's tensor; e == experts: that of the shared one. */
static void name_expert(const struct made *m, const char *dense, size_t at, const struct part *p,
                        uint64_t e, char name[256])
{
    const char *as = p->dense + sizeof ".mlp." - 1;
    if (m->form == MIXTRAL)
        (void)snprintf(name, 256, "%.*s.block_sparse_moe.experts.%d%s", (int)at, dense, (int)e,
                       p->expert);
    else if (e == m->experts)
        (void)snprintf(name, 256, "%.*s.mlp.shared.%s", (int)at, dense, as);
    else
        (void)snprintf(name, 256, "%.*s.mlp.experts.%d.%s", (int)at, dense, (int)e, as);
}

/* The feed-forward's floats times a factor. */
static void scale(void *data, uint64_t bytes, float factor)
{
    float *v = data;
    for (uint64_t i = 0; i < bytes / sizeof *v; i++)
        v[i] *= factor;
}

/* The part that a name has, or NULL; *at: where it begins. */
static const struct part *part_of(const char *name, size_t *at)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t n = strlen(name), k = strlen(parts[i].dense);
        if (n > k && strcmp(name + n - k, parts[i].dense) == 0) {
            *at = n - k;
            return &parts[i];
        }
    }
    return NULL;
}

static float *router_of(uint64_t experts, uint64_t hidden)
{
    float   *v = calloc(experts * hidden, sizeof *v);
    uint64_t seed = 88172645463325252u;
    if (!v)
        abort();
    for (uint64_t e = 0; e + 1 < experts; e++)
        for (uint64_t c = 0; c < hidden; c++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            v[e * hidden + c] =
                e % 2 ? -v[(e - 1) * hidden + c] : (float)(seed >> 40) * 0x1p-23f - 1.0f;
        }
    return v;
}

/* Two passes over the tensors: declarations, then bytes. */
static void write_tensors(const struct tsr_safetensors *st, struct tsr_st_out *o,
                          const struct made *m)
{
    uint64_t experts = m->experts, hidden = m->hidden;
    float   *router = router_of(experts, hidden);
    float    zero[4096] = { 0 };
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < st->n; i++) {
            const struct tsr_safetensors_tensor *t = &st->tensors[i];
            size_t                               at = 0;
            const struct part                   *p = part_of(t->name, &at);
            if (m->form != MIXTRAL && strncmp(t->name, "model.layers.0.", 15) == 0)
                p = NULL;
            void *data = malloc(t->end - t->begin);
            char  name[256];
            if (!data)
                abort();
            must(tsr_safetensors_read(st, t, data, &err.err));
            if (p == &parts[2] && m->form != MIXTRAL)
                scale(data, t->end - t->begin, 0);
            for (uint64_t e = 0; e < (p ? experts + (m->form != MIXTRAL) : 1); e++) {
                if (p)
                    name_expert(m, t->name, at, p, e, name);
                else
                    (void)snprintf(name, sizeof name, "%s", t->name);
                if (p == &parts[2] && e == experts) {
                    must(tsr_safetensors_read(st, t, data, &err.err));
                    scale(data, t->end - t->begin, m->form == GATED ? 2 : 1);
                }
                if (pass == 0)
                    must(tsr_safetensors_declare(o, name, t->dtype, t->rank, t->shape, &err.err));
                else
                    tsr_safetensors_put(o, data, t->end - t->begin);
            }
            free(data);
            if (p != &parts[0]) /* one router for each layer */
                continue;
            const uint64_t shape[2] = { experts, hidden }, one[2] = { 1, hidden };
            (void)snprintf(name, sizeof name, "%.*s.mlp.shared_gate.weight", (int)at, t->name);
            if (m->form == GATED && pass == 0)
                must(tsr_safetensors_declare(o, name, TSR_F32, 2, one, &err.err));
            else if (m->form == GATED)
                tsr_safetensors_put(o, zero, hidden * sizeof *zero);
            (void)snprintf(name, sizeof name, "%.*s.%s.weight", (int)at, t->name,
                           m->form == MIXTRAL ? "block_sparse_moe.gate" : "mlp.gate");
            if (pass == 0)
                must(tsr_safetensors_declare(o, name, TSR_F32, 2, shape, &err.err));
            else
                tsr_safetensors_put(o, router, experts * hidden * sizeof *router);
        }
        if (pass == 0)
            must(tsr_safetensors_begin(o, &err.err));
    }
    free(router);
}

int main(int argc, char **argv)
{
    struct tsr_safetensors st;
    struct tsr_st_out     *o;
    char                   path[512];
    err = (struct tsr_errbuf)TSR_ERRBUF(err);
    if (argc != 5 && argc != 6)
        return 2;
    int         experts = atoi(argv[3]), used = atoi(argv[4]);
    struct made made = { .experts = (uint64_t)experts };
    made.form = argc == 5 ? MIXTRAL : strcmp(argv[5], "gated") == 0 ? GATED : SHARED;
    const char *const names[] = { "MixtralForCausalLM", "MadeExpertsForCausalLM",
                                  "MadeExpertsForCausalLM" };
    json_t           *config;
    (void)snprintf(path, sizeof path, "%s/config.json", argv[1]);
    must(tsr_json_load(&config, path, 1 << 20, 16, &err.err));
    if (json_object_set_new(config, "architectures", json_pack("[s]", names[made.form])) ||
        json_object_set_new(config, "model_type", json_string("mixtral")) ||
        json_object_set_new(config, "num_local_experts", json_integer(experts)) ||
        json_object_set_new(config, "num_experts_per_tok", json_integer(used)))
        abort();
    must(tsr_make_dirs(argv[2], &err.err));
    char *text = json_dumps(config, JSON_INDENT(2));
    must(tsr_file_store_in(argv[2], "config.json", text, strlen(text), &err.err));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    must(tsr_safetensors_open(&st, path, &err.err));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", argv[2]);
    must(tsr_safetensors_create(&o, path, &err.err));
    made.hidden = (uint64_t)json_integer_value(json_object_get(config, "hidden_size"));
    write_tensors(&st, o, &made);
    must(tsr_safetensors_commit(o, &err.err));
    tsr_safetensors_close(&st);
    json_decref(config);
    free(text);
    return 0;
}
