/* make_experts DENSE OUT EXPERTS USED - a Mixtral of a Llama folder: each expert is the feed-forward of its layer, so that
 * whatever the router says, the model computes what the dense one does.  The rows of a router come in pairs of opposite
 * sign, and the last one is zero: with USED 1 its expert is never taken. */
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
static void write_tensors(const struct tsr_safetensors *st, struct tsr_st_out *o, uint64_t experts,
                          uint64_t hidden)
{
    float *router = router_of(experts, hidden);
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < st->n; i++) {
            const struct tsr_safetensors_tensor *t = &st->tensors[i];
            size_t                               at = 0;
            const struct part                   *p = part_of(t->name, &at);
            void                                *data = malloc(t->end - t->begin);
            char                                 name[256];
            if (!data)
                abort();
            must(tsr_safetensors_read(st, t, data, &err.err));
            for (uint64_t e = 0; e < (p ? experts : 1); e++) {
                if (p)
                    (void)snprintf(name, sizeof name, "%.*s.block_sparse_moe.experts.%d%s", (int)at,
                                   t->name, (int)e, p->expert);
                else
                    (void)snprintf(name, sizeof name, "%s", t->name);
                if (pass == 0)
                    must(tsr_safetensors_declare(o, name, t->dtype, t->rank, t->shape, &err.err));
                else
                    tsr_safetensors_put(o, data, t->end - t->begin);
            }
            free(data);
            if (p != &parts[0]) /* one router for each layer */
                continue;
            const uint64_t shape[2] = { experts, hidden };
            (void)snprintf(name, sizeof name, "%.*s.block_sparse_moe.gate.weight", (int)at,
                           t->name);
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
    if (argc != 5)
        return 2;
    int     experts = atoi(argv[3]), used = atoi(argv[4]);
    json_t *config;
    (void)snprintf(path, sizeof path, "%s/config.json", argv[1]);
    must(tsr_json_load(&config, path, 1 << 20, 16, &err.err));
    if (json_object_set_new(config, "architectures", json_pack("[s]", "MixtralForCausalLM")) ||
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
    write_tensors(&st, o, (uint64_t)experts,
                  (uint64_t)json_integer_value(json_object_get(config, "hidden_size")));
    must(tsr_safetensors_commit(o, &err.err));
    tsr_safetensors_close(&st);
    json_decref(config);
    free(text);
    return 0;
}
