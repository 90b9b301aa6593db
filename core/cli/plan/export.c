/* A plan in the options of other programs: their partition of layers and their types by bits. */
#include "cli/plan/plan_verb.h"

#include "pipeline/step.h"

#include <stdlib.h>
#include <string.h>

/* "0,3-7": the layers of one candidate with a separator of ranges' numbers; a list of all numbers
 * where dash is 0.  Appends to a JSON string through a buffer that is large enough or cut off. */
static void numbers(const struct tsr_plan_outcome *o, uint32_t candidate, char sep, char *buf,
                    size_t cap)
{
    size_t at = 0;
    buf[0] = '\0';
    for (uint64_t l = 0; l < o->layers; l++)
        if (o->bits[l] == candidate && at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s%llu", at ? (char[2]){ sep, 0 } : "",
                                   (unsigned long long)l);
}

static bool uses(const struct tsr_plan_outcome *o, uint32_t candidate)
{
    for (uint64_t l = 0; l < o->layers; l++)
        if (o->bits[l] == candidate)
            return true;
    return false;
}

static json_t *ranks(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o)
{
    json_t *list = json_array();
    for (uint64_t i = 0; list && i < o->n_stages; i++)
        for (uint32_t t = 0; t < o->stages[i].mesh.tp; t++) {
            const struct tsr_plan_mesh *m = &o->stages[i].mesh;
            if (json_array_append_new(list, json_pack("{s:s, s:s}", "node",
                                                      p->cluster->nodes[m->node].name, "device",
                                                      m->profile->name)) != 0) {
                json_decref(list);
                return NULL;
            }
        }
    return list;
}

/* Layers of each stage, "12,12,12,13"; extra is added to the last. */
static void partition(const struct tsr_plan_outcome *o, uint64_t extra, char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = '\0';
    for (uint64_t i = 0; i < o->n_stages && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%llu", i ? "," : "",
                               (unsigned long long)(o->stages[i].count +
                                                    (i + 1 == o->n_stages ? extra : 0)));
}

/* Experts that a CPU runs: whether there are any, their layers with a separator, and in `first` how many layers from the
 * first have all of theirs there, if no others have; else 0. */
static bool on_cpu(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o, char sep,
                   char *buf, size_t cap, uint64_t *first)
{
    size_t at = 0;
    bool   gap = false, run = true;
    buf[0] = '\0';
    *first = 0;
    for (uint64_t l = 0; l < o->layers; l++) {
        bool here = o->cpu_experts[l];
        gap = gap || (!here && p->shape->layer[p->shape->layer_class[l]].router.rows);
        if (!here)
            continue;
        run = run && !gap;
        *first = l + 1;
        if (at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s%llu", at ? (char[2]){ sep, 0 } : "",
                                   (unsigned long long)l);
    }
    *first = run ? *first : 0;
    return at > 0;
}

/* ---- vLLM ------------------------------------------------------------------------- */

#define TEXT 20000

static tsr_status vllm(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                       json_t **out, struct tsr_err *err)
{
    static char text[TEXT]; /* one at a time: a verb's own output */
    uint32_t    tp = o->stages[0].mesh.tp;
    json_t     *j, *bits, *dynamic;
    for (uint64_t i = 1; i < o->n_stages; i++)
        if (o->stages[i].mesh.tp != tp)
            return tsr_fail(err, TSR_E_INPUT,
                            "vLLM has one tensor-parallel width for all stages, this plan has %u "
                            "and %u; plan with max_tp: 1",
                            tp, o->stages[i].mesh.tp);
    j = json_object();
    bits = json_array();
    dynamic = json_object();
    bool ok = j && bits && dynamic;
    partition(o, 0, text, sizeof text);
    ok = ok && tsr_pipeline_json_put_text(j, "VLLM_PP_LAYER_PARTITION", text) &&
         tsr_pipeline_json_put_int(j, "pipeline_parallel_size", o->n_stages) &&
         tsr_pipeline_json_put_int(j, "tensor_parallel_size", tp) &&
         tsr_pipeline_json_put(j, "ranks", ranks(p, o));
    uint64_t first;
    if (on_cpu(p, o, ',', text, sizeof text, &first))
        ok = ok && tsr_pipeline_json_put_text(j, "cpu_experts", text) &&
             tsr_pipeline_json_put_text(j, "not_exported", "cpu_experts");
    /* a packed model states its bits */
    bool packed = *p->shape->packed != '\0';
    for (uint64_t l = 0; l < o->layers && !packed; l++)
        ok = ok && json_array_append_new(bits, json_integer(p->candidates.v[o->bits[l]].bits)) == 0;
    for (uint32_t c = 0; c < p->candidates.n; c++) {
        static char key[TEXT];
        if (packed || !uses(o, c))
            continue;
        numbers(o, c, '|', text, sizeof text);
        bool keep = !p->candidates.v[c].q.self;
        (void)snprintf(key, sizeof key, "%smodel\\.layers\\.(%.19000s)\\..*",
                       keep ? "-:" : "+:", text);
        ok = ok &&
             tsr_pipeline_json_put(dynamic, key,
                                   keep ? json_object()
                                        : json_pack("{s:i}", "bits", (int)p->candidates.v[c].bits));
    }
    ok = tsr_pipeline_json_put(j, "bits", bits) && ok;
    ok = tsr_pipeline_json_put(j, "gptq_dynamic", dynamic) && ok;
    if (!ok) {
        json_decref(j);
        return tsr_fail_nomem(err, TEXT, "a plan for vLLM");
    }
    *out = j;
    return TSR_OK;
}

static tsr_status print_vllm(const json_t *j, struct tsr_err *err)
{
    const json_t *one;
    size_t        i;
    char         *dynamic;
    uint64_t      n;
    TSR_TRY(tsr_json_text(json_object_get(j, "gptq_dynamic"), JSON_INDENT(1), &dynamic, &n, err));
    (void)printf("# ranks in this order:");
    json_array_foreach (json_object_get(j, "ranks"), i, one)
        (void)printf("%s %s:%s", i ? "," : "", json_string_value(json_object_get(one, "node")),
                     json_string_value(json_object_get(one, "device")));
    (void)printf("\nexport VLLM_PP_LAYER_PARTITION=%s\n"
                 "# vllm serve ... --pipeline-parallel-size %lld --tensor-parallel-size %lld\n"
                 "# bits of each layer, as \"dynamic\" of a GPTQ quantization_config:\n%s\n",
                 json_string_value(json_object_get(j, "VLLM_PP_LAYER_PARTITION")),
                 (long long)json_integer_value(json_object_get(j, "pipeline_parallel_size")),
                 (long long)json_integer_value(json_object_get(j, "tensor_parallel_size")),
                 dynamic);
    if (json_object_get(j, "not_exported"))
        (void)printf("# vLLM has no option for experts on the CPU: it puts those of the layers %s "
                     "on the devices, too\n",
                     json_string_value(json_object_get(j, "cpu_experts")));
    free(dynamic);
    return TSR_OK;
}

/* ---- llama.cpp ------------------------------------------------------------------------ */

static const char *ggml_float(uint32_t dtype)
{
    return dtype == TSR_F32 ? "f32" : dtype == TSR_BF16 ? "bf16" : "f16";
}

/* The type of that bit width; ggml quantizes from the original weights. */
static const char *ggml_type(const struct tsr_plan_candidate *c, const struct tsr_plan_shape *s)
{
    uint32_t                 bits = c->bits;
    static const char *const types[] = { "q2_K", "q2_K", "q2_K", "q3_K", "q4_0",
                                         "q5_0", "q6_K", "q8_0", "q8_0" };
    if (!c->q.self || bits > 8)
        return ggml_float(s->layer[0].lin[TSR_MODEL_O].dtype);
    return types[bits];
}

static tsr_status llamacpp(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                           json_t **out, struct tsr_err *err)
{
    static char text[TEXT], rule[TEXT];
    for (uint64_t i = 0; i < o->n_stages; i++)
        if (o->stages[i].mesh.tp > 1)
            return tsr_fail(err, TSR_E_INPUT,
                            "llama.cpp gives whole layers to devices, this plan cuts some in %u; "
                            "plan with max_tp: 1",
                            o->stages[i].mesh.tp);
    json_t *j = json_object(), *types = json_array();
    bool    ok = j && types;
    /* the output layer counts as one more layer, after the last */
    partition(o, 1, text, sizeof text);
    ok = ok && tsr_pipeline_json_put_text(j, "tensor_split", text) &&
         tsr_pipeline_json_put_int(j, "gpu_layers", o->layers + 1) &&
         tsr_pipeline_json_put(j, "devices", ranks(p, o));
    uint64_t first;
    if (on_cpu(p, o, '|', text, sizeof text, &first)) {
        (void)snprintf(rule, sizeof rule,
                       "blk\\.(%.19000s)\\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU", text);
        ok = ok && tsr_pipeline_json_put_text(j, "override_tensor", rule) &&
             (!first || tsr_pipeline_json_put_int(j, "n_cpu_moe", first));
    }
    for (uint32_t c = 0; c < p->candidates.n; c++) {
        if (*p->shape->packed || !uses(o, c))
            continue;
        numbers(o, c, '|', text, sizeof text);
        (void)snprintf(rule, sizeof rule, "blk\\.(%.19000s)\\.(attn|ffn)_.*=%s", text,
                       ggml_type(&p->candidates.v[c], p->shape));
        ok = ok && json_array_append_new(types, json_string(rule)) == 0;
    }
    ok = ok && tsr_pipeline_json_put_text(j, "embedding_type", ggml_float(p->shape->embed.dtype)) &&
         tsr_pipeline_json_put_text(j, "output_type", ggml_float(p->shape->head.dtype));
    ok = tsr_pipeline_json_put(j, "tensor_types", types) && ok;
    if (!ok) {
        json_decref(j);
        return tsr_fail_nomem(err, TEXT, "a plan for llama.cpp");
    }
    *out = j;
    return TSR_OK;
}

static void print_llamacpp(const json_t *j)
{
    const json_t *one;
    size_t        i;
    (void)printf("# devices in this order:");
    json_array_foreach (json_object_get(j, "devices"), i, one)
        (void)printf("%s %s:%s", i ? "," : "", json_string_value(json_object_get(one, "node")),
                     json_string_value(json_object_get(one, "device")));
    if (json_array_size(json_object_get(j, "tensor_types")))
        (void)printf("\n# quantize from the original, the nearest type of each width:\n"
                     "llama-quantize --token-embedding-type %s --output-tensor-type %s",
                     json_string_value(json_object_get(j, "embedding_type")),
                     json_string_value(json_object_get(j, "output_type")));
    json_array_foreach (json_object_get(j, "tensor_types"), i, one)
        (void)printf(" --tensor-type '%s'%s", json_string_value(one),
                     i + 1 == json_array_size(json_object_get(j, "tensor_types"))
                         ? " IN.gguf OUT.gguf q4_0"
                         : "");
    (void)printf("\n"
                 "llama-cli -m OUT.gguf --split-mode layer --tensor-split %s --n-gpu-layers %lld",
                 json_string_value(json_object_get(j, "tensor_split")),
                 (long long)json_integer_value(json_object_get(j, "gpu_layers")));
    if (json_object_get(j, "n_cpu_moe"))
        (void)printf(" --n-cpu-moe %lld",
                     (long long)json_integer_value(json_object_get(j, "n_cpu_moe")));
    else if (json_object_get(j, "override_tensor"))
        (void)printf(" --override-tensor '%s'",
                     json_string_value(json_object_get(j, "override_tensor")));
    (void)printf("\n");
}

tsr_status tsr_cli_plan_export(struct tsr_cli *c, int64_t to, const struct tsr_plan_problem *p,
                               const struct tsr_plan_outcome *o, struct tsr_err *err)
{
    json_t *j = NULL;
    bool    v = to == TSR_PLAN_EXPORT_VLLM;
    if (o->goes_back)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s has the head on the last stage, this plan on the first; plan with "
                        "head: last",
                        v ? "vLLM" : "llama.cpp");
    for (uint64_t l = 0; l < o->layers; l++)
        if (p->candidates.v[o->bits[l]].mixed)
            return tsr_fail(err, TSR_E_INPUT,
                            "layer %llu has several schemes; what is exported has one for each "
                            "layer",
                            (unsigned long long)l);
    TSR_TRY(v ? vllm(p, o, &j, err) : llamacpp(p, o, &j, err));
    if (c->json)
        return tsr_cli_print_json(j, err);
    tsr_status st = TSR_OK;
    if (v)
        st = print_vllm(j, err);
    else
        print_llamacpp(j);
    json_decref(j);
    return st == TSR_OK ? tsr_cli_flush(err) : st;
}
