#include "plan/file/plan_file_internal.h"

#include "base/file.h"
#include "base/mem.h"
#include "config/doc.h"
#include "plan/cost/memory.h"
#include "plugin/kv_layers.h"
#include "tessera/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct tsr_choice tsr_objective_choices[2] = {
    { "steady", "what the pipeline takes", TSR_OBJECTIVE_STEADY },
    { "paper", "LLM-PQ's formula as printed", TSR_OBJECTIVE_PAPER },
};
const struct tsr_choice tsr_accounting_choices[2] = {
    { "exact", "bytes of real tensors and kernels", TSR_PLAN_ACCOUNT_EXACT },
    { "paper", "LLM-PQ's formulas, embedding and head on the first stage", TSR_PLAN_ACCOUNT_PAPER },
};

const struct tsr_choice tsr_head_choices[2] = {
    { "last", "the last stage, which sends logits", TSR_PLAN_HEAD_LAST },
    { "first", "the first stage, with the embedding; the last one sends hidden rows",
      TSR_PLAN_HEAD_FIRST },
};
/* What has one place alone. */
static const struct tsr_choice embed_choices[] = { { "first", "the first stage", 0 } };
static const struct tsr_choice text_choices[] = {
    { "coordinator", "the process that reads requests and writes answers", 0 },
};

/* ---- tables ---------------------------------------------------------------- */

struct head {
    const char                   *format, *model, *headers;
    int64_t                       layers, replicas, share, objective, accounting;
    const struct tsr_config_node *workload, *micro_batches, *quality, *stages, *predicted,
        *replica_nodes, *ends;
    const struct tsr_config_node *master;
};
struct micro {
    int64_t prefill, decode;
};
struct master {
    int64_t tokenize, embed, head, sample;
};
struct quality {
    const char *source, *table, *hash;
};

static const struct tsr_option head_options[] = {
    REQUIRED_TEXT(struct head, format, "\"" TSR_PLAN_FORMAT "\"."),
    TSR_OPTION_STRING(struct head, model, "", "Hash of the model that the plan is for."),
    TSR_OPTION_STRING(struct head, headers, "", "Hash of its config.json and tensor headers."),
    REQUIRED_INT(struct head, layers, 1, TSR_PLAN_LAYERS, "Decoder layers of the model."),
    TSR_OPTION_NODE(struct head, workload, "What the plan is to do."),
    TSR_OPTION_NODE(struct head, micro_batches, "Requests in a micro-batch of each phase."),
    TSR_OPTION_NODE(struct head, master, "Who does what no layer does."),
    TSR_OPTION_NODE(struct head, quality, "Where the quality of a width comes from."),
    TSR_OPTION_ENUM(struct head, objective, TSR_OBJECTIVE_STEADY, tsr_objective_choices,
                    "What was minimised."),
    TSR_OPTION_ENUM(struct head, accounting, TSR_PLAN_ACCOUNT_EXACT, tsr_accounting_choices,
                    "How memory was counted."),
    TSR_OPTION_INT(struct head, replicas, 1, 1, 1000000, NULL, "How often the stages exist."),
    TSR_OPTION_INT(struct head, share, 0, 0, 1 << 30, "requests",
                   "What each of them does; 0: an even part of the batch."),
    TSR_OPTION_NODE(struct head, replica_nodes, "A list of nodes for each of them."),
    TSR_OPTION_NODE(struct head, ends, "Rules for embedding and head."),
    TSR_OPTION_NODE(struct head, stages, "Runs of layers, in order."),
    TSR_OPTION_NODE(struct head, predicted, "What is expected of all."),
};
static const struct tsr_option load_options[] = {
    REQUIRED_INT(struct tsr_plan_load, prompt, 1, 1 << 30, "Tokens of a prompt."),
    REQUIRED_INT(struct tsr_plan_load, generate, 1, 1 << 30, "Tokens generated per request."),
    REQUIRED_INT(struct tsr_plan_load, batch, 1, 1 << 30, "Requests."),
    TSR_OPTION_INT(struct tsr_plan_load, concurrency, 0, 0, 1 << 30, NULL,
                   "Requests that run at once; 0: all."),
    TSR_OPTION_INT(struct tsr_plan_load, chunk, 0, 0, 1 << 30, "tokens",
                   "Most tokens of a prompt at once; 0: all."),
    TSR_OPTION_ENUM(struct tsr_plan_load, kv, TSR_F16, tsr_kv_choices, "The cache's type."),
    TSR_OPTION_STRING(struct tsr_plan_load, kv_layers, "", TSR_KV_LAYERS_HELP),
};
static const struct tsr_option micro_options[] = {
    REQUIRED_INT(struct micro, prefill, 1, 1 << 30, "Requests in a prefill micro-batch."),
    REQUIRED_INT(struct micro, decode, 1, 1 << 30, "Requests in a decode micro-batch."),
};
static const struct tsr_option master_options[] = {
    TSR_OPTION_ENUM(struct master, tokenize, 0, text_choices, "Text to tokens."),
    TSR_OPTION_ENUM(struct master, embed, 0, embed_choices, "Tokens to hidden rows."),
    TSR_OPTION_ENUM(struct master, head, TSR_PLAN_HEAD_LAST, tsr_head_choices,
                    "Hidden rows to logits."),
    TSR_OPTION_ENUM(struct master, sample, 0, text_choices, "Logits to tokens."),
};
static const struct tsr_option quality_options[] = {
    REQUIRED_TEXT(struct quality, source, "An indicator file, or prior."),
    TSR_OPTION_STRING(struct quality, table, "", "A table of the file."),
    TSR_OPTION_STRING(struct quality, hash, "", "Hash of the file."),
};
static const struct tsr_option said_options[] = {
    SAID_MS(struct tsr_plan_said, latency_ms, "The whole workload."),
    SAID_MS(struct tsr_plan_said, ttft_ms, "Until all prompts of the first round are done."),
    TSR_OPTION_REAL(struct tsr_plan_said, tokens_per_second, NAN, 0, 1e18, NULL, "Throughput."),
    TSR_OPTION_REAL(struct tsr_plan_said, omega, NAN, 0, 1e300, NULL, "Sum of the indicator."),
    SAID_MS(struct tsr_plan_said, objective_ms, "Latency and theta times omega."),
    TSR_OPTION_REAL(struct tsr_plan_said, bound_ms, NAN, 0, 1e18, "ms", "No plan is below."),
    TSR_OPTION_BOOL(struct tsr_plan_said, proved, 0,
                    "Nothing is better, within the requested gap."),
    TSR_OPTION_STRING(struct tsr_plan_said, solver, "", "Who found it."),
    TSR_OPTION_REAL(struct tsr_plan_said, seconds, NAN, 0, 1e9, "s", "How long it took."),
    TSR_OPTION_REAL(struct tsr_plan_said, kl, NAN, 0, 1e100, NULL,
                    "KL to the original, in nats per token."),
    TSR_OPTION_NODE(struct tsr_plan_said, kl_interval, "Its interval of 95 %: [low, high]."),
    TSR_OPTION_NODE(struct tsr_plan_said, parts, "What omega consists of."),
    TSR_OPTION_REAL(struct tsr_plan_said, slower, NAN, 0, 1e6, NULL,
                    "Share of a decode step's linears that compensation adds."),
    TSR_OPTION_REAL(struct tsr_plan_said, lost, NAN, 0, 1, NULL,
                    "Share of what quantization lost that is left, at most."),
};

static const struct tsr_option parts_options[] = {
    TSR_OPTION_REAL(struct tsr_plan_quality_parts, weights, 0, 0, 1e100, NULL, "Of the layers."),
    TSR_OPTION_REAL(struct tsr_plan_quality_parts, kv, 0, 0, 1e100, NULL, "Of the KV cache."),
    TSR_OPTION_REAL(struct tsr_plan_quality_parts, links, 0, 0, 1e100, NULL, "Between stages."),
    TSR_OPTION_REAL(struct tsr_plan_quality_parts, sums, 0, 0, 1e100, NULL, "Inside stages."),
    TSR_OPTION_REAL(struct tsr_plan_quality_parts, ends, 0, 0, 1e100, NULL,
                    "Of embedding and head."),
    TSR_OPTION_REAL(struct tsr_plan_quality_parts, compensation, 0, -1e100, 0, NULL,
                    "What error compensation takes off that of the layers."),
};

/* ---- reading ----------------------------------------------------------------- */

/* [low, high], in order. */
static void read_interval(struct tsr_plan_reading *r, struct tsr_plan_said *said)
{
    const struct tsr_config_node *n = said->kl_interval;
    double                        v[2] = { NAN, NAN };
    said->kl_low = said->kl_high = NAN;
    if (!n || n->kind == TSR_CONFIG_NODE_NULL)
        return;
    for (uint64_t i = 0; i < 2 && n->kind == TSR_CONFIG_NODE_LIST && n->n == 2; i++) {
        char *end = NULL;
        bool  text = n->items[i]->kind == TSR_CONFIG_NODE_SCALAR;
        v[i] = text ? strtod(n->items[i]->text, &end) : (double)NAN;
        v[i] = text && end != n->items[i]->text && !*end ? v[i] : (double)NAN;
    }
    if (v[0] >= 0 && v[0] <= v[1] && v[1] <= 1e100) {
        said->kl_low = v[0];
        said->kl_high = v[1];
        return;
    }
    tsr_config_diag_error(r->d, &n->mark, "write kl_interval: [0.028, 0.034]",
                          "'kl_interval' is not two numbers from 0 on, in order");
}

static tsr_status read_stages(struct tsr_plan_reading *r, const struct tsr_config_node *stages,
                              struct tsr_err *err)
{
    r->p->stages = tsr_new(stages->n, sizeof *r->p->stages);
    if (!r->p->stages)
        return tsr_fail_nomem(err, stages->n * sizeof *r->p->stages, "the stages of a plan");
    for (uint64_t i = 0; i < stages->n && !tsr_plan_failed(r); i++)
        TSR_TRY(tsr_plan_read_stage(r, stages->items[i], err));
    if (!tsr_plan_failed(r) && r->next < r->p->layers)
        tsr_config_diag_error(r->d, &stages->mark, NULL, "no stage has layer %llu of %llu",
                              (unsigned long long)r->next, (unsigned long long)r->p->layers);
    return TSR_OK;
}

/* Rules for the head and the embedding by their whole names. */
static void read_ends(struct tsr_plan_reading *r, const struct tsr_config_node *list)
{
    if (!list || list->kind == TSR_CONFIG_NODE_NULL ||
        !tsr_plan_is_list(list, &list->mark, "ends", r->d))
        return;
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_config_node *e = list->items[i], *t = NULL;
        if (e->kind == TSR_CONFIG_NODE_MAP)
            t = tsr_config_node_get(e, "tensors");
        if (!t || t->kind != TSR_CONFIG_NODE_SCALAR ||
            (strcmp(t->text, "lm_head") != 0 && strcmp(t->text, "model.embed_tokens") != 0))
            tsr_config_diag_error(r->d, &e->mark, "write {tensors: lm_head, use: rtn, bits: 8}",
                                  "an entry of ends is not about lm_head or model.embed_tokens");
    }
    r->p->ends = list;
}

/* A place without its other half is an error. */
static void check_places(struct tsr_plan_reading *r, const struct head *h)
{
    const struct tsr_config_node *root = tsr_config_doc_root(r->p->doc);
    bool                          any = h->workload || h->micro_batches;
    for (uint64_t i = 0; i < r->p->n_stages; i++)
        any = any || *r->p->stages[i].node || *r->p->stages[i].device;
    if (!any)
        return;
    if (!h->workload || !h->micro_batches)
        tsr_config_diag_error(r->d, &root->mark,
                              "a plan with places needs workload and micro_batches",
                              "the plan has no '%s'", h->workload ? "micro_batches" : "workload");
    for (uint64_t i = 0; i < r->p->n_stages; i++) {
        const struct tsr_plan_stage *s = &r->p->stages[i];
        if (!*s->node || !*s->device)
            tsr_config_diag_error(r->d, &s->map->mark,
                                  "a plan with places needs them for each stage",
                                  "stage %llu has no '%s'", (unsigned long long)i,
                                  *s->node ? "device" : "node");
    }
    r->p->placed = !tsr_plan_failed(r);
}

static void read_load(struct tsr_plan_reading *r, const struct head *h)
{
    struct tsr_plan_file *p = r->p;
    struct micro          m = { 0 };
    if (h->workload)
        TSR_PLAN_FILL(r, load_options, &p->load, h->workload, "workload");
    if (h->micro_batches)
        TSR_PLAN_FILL(r, micro_options, &m, h->micro_batches, "micro_batches");
    if (tsr_plan_failed(r) || !h->workload || !h->micro_batches)
        return;
    p->prefill_mb = m.prefill;
    p->decode_mb = m.decode;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_plugin_kv_layers(p->load.kv_layers, 0, p->layers, NULL, &e.err) != TSR_OK)
        tsr_config_diag_error(r->d, &tsr_config_node_get(h->workload, "kv_layers")->mark, NULL,
                              "%s", e.text);
    int64_t once = p->load.concurrency ? p->load.concurrency : p->load.batch;
    if (once > p->load.batch)
        tsr_config_diag_error(r->d, &h->workload->mark, NULL,
                              "workload: concurrency %lld is more than the batch %lld",
                              (long long)once, (long long)p->load.batch);
    else if (m.prefill > m.decode || m.decode > once)
        tsr_config_diag_error(
            r->d, &h->micro_batches->mark, NULL,
            "micro_batches: prefill %lld, decode %lld and the %lld requests that run "
            "at once are not in ascending order",
            (long long)m.prefill, (long long)m.decode, (long long)once);
}

/* Lists of names, one for each replica. */
static void read_replicas(struct tsr_plan_reading *r, const struct head *h)
{
    struct tsr_plan_file         *p = r->p;
    const struct tsr_config_node *root = tsr_config_doc_root(p->doc), *list = h->replica_nodes;
    const struct tsr_config_node *at = tsr_config_node_get(root, h->share ? "share" : "replicas");
    uint64_t batch = (uint64_t)p->load.batch, all, copies = (uint64_t)h->replicas;
    p->replicas = h->replicas;
    p->share = h->share;
    if (tsr_plan_failed(r) || (copies == 1 && !h->share && !list))
        return;
    if (!h->workload) {
        tsr_config_diag_error(r->d, at ? &at->mark : &list->mark, NULL,
                              "replicas share a batch, and the plan has no 'workload'");
        return;
    }
    if (!h->share)
        p->share = (int64_t)(batch / copies + (batch % copies != 0));
    if (!tsr_mul(copies, (uint64_t)p->share, &all) || all >= batch + copies)
        tsr_config_diag_error(
            r->d, at ? &at->mark : &list->mark, NULL,
            "%llu replicas with %lld requests each are more than the batch of %llu",
            (unsigned long long)copies, (long long)p->share, (unsigned long long)batch);
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return;
    bool ok = list->kind == TSR_CONFIG_NODE_LIST && list->n == copies;
    for (uint64_t i = 0; ok && i < list->n; i++) {
        const struct tsr_config_node *one = list->items[i];
        ok = one->kind == TSR_CONFIG_NODE_LIST && one->n > 0;
        for (uint64_t k = 0; ok && k < one->n; k++)
            ok = one->items[k]->kind == TSR_CONFIG_NODE_SCALAR;
    }
    if (!ok)
        tsr_config_diag_error(r->d, &list->mark, "as in [[node-a, node-b], [node-c, node-d]]",
                              "'replica_nodes' is not a list of nodes for each of %llu replicas",
                              (unsigned long long)copies);
    p->replica_nodes = list;
}

static tsr_status read_head(struct tsr_plan_reading *r, struct tsr_err *err)
{
    struct tsr_plan_file         *p = r->p;
    struct head                   h = { 0 };
    struct quality                q = { 0 };
    struct master                 m = { 0 };
    const struct tsr_config_node *root = tsr_config_doc_root(p->doc);
    TSR_PLAN_FILL(r, head_options, &h, root, "a plan");
    if (tsr_plan_failed(r))
        return TSR_OK;
    if (strcmp(h.format, TSR_PLAN_FORMAT) != 0) {
        tsr_config_diag_error(r->d, &tsr_config_node_get(root, "format")->mark, NULL,
                              "the format is '%s', not " TSR_PLAN_FORMAT, h.format);
        return TSR_OK;
    }
    if (!tsr_plan_is_list(h.stages, &root->mark, "stages", r->d))
        return TSR_OK;
    p->layers = (uint64_t)h.layers;
    p->model = h.model;
    p->headers = h.headers;
    p->objective = h.objective;
    p->accounting = h.accounting;
    if (h.master)
        TSR_PLAN_FILL(r, master_options, &m, h.master, "master");
    p->head = m.head;
    if (h.quality)
        TSR_PLAN_FILL(r, quality_options, &q, h.quality, "quality");
    p->quality = q.source ? q.source : "";
    p->table = q.table ? q.table : "";
    p->quality_hash = q.hash ? q.hash : "";
    TSR_PLAN_FILL(r, said_options, &p->said, h.predicted, "predicted");
    read_interval(r, &p->said);
    TSR_PLAN_FILL(r, parts_options, &p->said.of, p->said.parts, "parts");
    read_load(r, &h);
    read_replicas(r, &h);
    r->in = tsr_new(p->layers, sizeof *r->in);
    r->covered = tsr_new(p->layers, sizeof *r->covered);
    p->cpu_experts = tsr_new(p->layers, 1);
    if (!r->in || !r->covered || !p->cpu_experts)
        return tsr_fail_nomem(err, 2 * p->layers, "the layers of a plan");
    if (!tsr_plan_failed(r))
        TSR_TRY(read_stages(r, h.stages, err));
    read_ends(r, h.ends);
    if (!tsr_plan_failed(r))
        check_places(r, &h);
    return TSR_OK;
}

tsr_status tsr_plan_file_load(struct tsr_plan_file *p, const char *path, struct tsr_diag *d,
                              struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    *p = (struct tsr_plan_file){ 0 };
    TSR_TRY(tsr_file_slurp(path, TSR_YAML_BYTES, &text, &len, err));
    tsr_status st = tsr_plan_file_parse(p, path, text, len, d, err);
    free(text);
    return st;
}

tsr_status tsr_plan_file_parse(struct tsr_plan_file *p, const char *name, const char *text,
                               uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_plan_reading r = { .p = p, .d = d, .before = tsr_config_diag_errors(d) };
    *p = (struct tsr_plan_file){ 0 };
    tsr_status st = tsr_config_doc_parse(&p->doc, name, text, len, d, err);
    if (st != TSR_OK || tsr_plan_failed(&r))
        return st;
    st = read_head(&r, err);
    free(r.in);
    free(r.covered);
    return st;
}

void tsr_plan_file_free(struct tsr_plan_file *p)
{
    free(p->stages);
    free(p->cpu_experts);
    free(p->entries);
    tsr_config_doc_destroy(p->doc);
    *p = (struct tsr_plan_file){ 0 };
}
