/* Steps: the results, the configuration and the options of the rules' job, and how a step reads them. */
#include "conformance/step/step.h"

#include "base/json.h"

#include <string.h>

/* ---- canned ----------------------------------------------------------------------------------- */

/* A comparison of two arms and the original, and an evaluation, as docs/formats/results.md has them. */
static const char results[] =
    "{\"eval\":{\"protocol\":\"gptq-2048\",\"perplexity\":12.5,\"tokens\":128,\"mean_nll\":2.525},"
    "\"compare\":{\"alpha\":0.05,\"reference\":\"original\",\"arms\":["
    "{\"name\":\"original\",\"bits_per_weight\":16,\"perplexity\":50},"
    "{\"name\":\"a\",\"bits_per_weight\":4,\"perplexity\":55,"
    "\"ratio\":{\"value\":1.1,\"low\":1.08,\"high\":1.12},\"kl\":{\"mean\":0.1},"
    "\"delta\":{\"mean\":0.0953,\"low\":0.077,\"high\":0.113,\"detectable\":0.02}},"
    "{\"name\":\"b\",\"failed\":\"no\"}],"
    "\"pairs\":[{\"arm\":\"b\",\"against\":\"a\",\"failed\":\"one of the two has no result\"}]}}";

static const char config[] = "{\"model_type\":\"rules\",\"hidden_size\":8,\"intermediate_size\":16,"
                             "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"vocab_size\":32}";

static json_t *parse(const char *text)
{
    json_t *j = NULL;
    return tsr_json_parse(&j, "a rule", text, strlen(text), 16, NULL) == TSR_OK ? j : NULL;
}

json_t *tsr_step_rules_canned_results(void)
{
    return parse(results);
}

json_t *tsr_step_rules_canned_config(void)
{
    return parse(config);
}

/* ---- options ----------------------------------------------------------------------------------- */

static json_t *text_option(const struct tsr_option *o, const char *text)
{
    if (!(o->flags & TSR_OPT_JSON))
        return json_string(text);
    if (!*text)
        return NULL; /* left out */
    json_t *j = parse(text);
    return j ? j : json_string(text);
}

static json_t *option(const struct tsr_option *o, const void *block)
{
    const char *at = (const char *)block + o->offset, *text;
    int32_t     flag;
    int64_t     n;
    double      r;
    switch (o->type) {
    case TSR_OPT_BOOL:
        memcpy(&flag, at, sizeof flag);
        return json_boolean(flag);
    case TSR_OPT_INT:
        memcpy(&n, at, sizeof n);
        return json_integer(n);
    case TSR_OPT_REAL:
        memcpy(&r, at, sizeof r);
        return json_real(r);
    case TSR_OPT_ENUM:
        memcpy(&n, at, sizeof n);
        for (uint64_t i = 0; i < o->n_choices; i++)
            if (o->choices[i].value == n)
                return json_string(o->choices[i].name);
        return NULL;
    default:
        memcpy(&text, at, sizeof text);
        return text_option(o, text ? text : "");
    }
}

json_t *tsr_step_rules_options_tree(const struct tsr_conformance_case *c)
{
    json_t *tree = json_object();
    for (uint64_t i = 0; i < c->component->n_options; i++) {
        const struct tsr_option *o = &c->component->options[i];
        json_t                  *v = option(o, c->options);
        if (v)
            tsr_json_set(&tree, o->name, v);
    }
    return tree;
}

/* ---- reading ------------------------------------------------------------------------------------ */

void tsr_step_rules_show(const json_t *j, const char *key, struct tsr_step_value *v)
{
    uint32_t size = v->struct_size;
    memset(v, 0, size < sizeof *v ? size : sizeof *v);
    v->struct_size = size;
    if (!j)
        return;
    v->node = j;
    v->key = key;
    v->type = json_is_object(j)    ? TSR_STEP_MAP
              : json_is_array(j)   ? TSR_STEP_LIST
              : json_is_string(j)  ? TSR_STEP_TEXT
              : json_is_number(j)  ? TSR_STEP_NUMBER
              : json_is_boolean(j) ? TSR_STEP_BOOL
                                   : TSR_STEP_NULL;
    v->n = json_is_object(j)  ? json_object_size(j)
           : json_is_array(j) ? json_array_size(j)
                              : json_string_length(j);
    v->text = json_string_value(j);
    v->number = json_is_boolean(j) ? json_is_true(j) : json_number_value(j);
}

static void member(void *ctx, const struct tsr_step_value *of, const char *key,
                   struct tsr_step_value *v)
{
    (void)ctx;
    tsr_step_rules_show(of->type == TSR_STEP_MAP && key ? json_object_get(of->node, key) : NULL,
                        NULL, v);
}

static void item(void *ctx, const struct tsr_step_value *of, uint64_t i, struct tsr_step_value *v)
{
    const json_t *j = of->node;
    const char   *key;
    json_t       *one;
    (void)ctx;
    if (of->type == TSR_STEP_LIST) {
        tsr_step_rules_show(json_array_get(j, i), NULL, v);
        return;
    }
    uint32_t kind = of->type;
    tsr_step_rules_show(NULL, NULL, v);
    json_object_foreach ((json_t *)(uintptr_t)(kind == TSR_STEP_MAP ? j : NULL), key, one)
        if (i-- == 0)
            tsr_step_rules_show(one, key, v);
}

void tsr_step_rules_tree_functions(struct tsr_step_job *j)
{
    j->member = member;
    j->item = item;
}
