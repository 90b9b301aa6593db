/* cost_fixture.h - what tests of the cost models share: a registry with all plugins, two shapes, and
 * the clusters that come with the program. */
#ifndef TSR_COST_FIXTURE_H
#define TSR_COST_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/cost/latency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_registry *reg;

static const char opt_30b[] =
    "{\"architectures\": [\"OPTForCausalLM\"], \"model_type\": \"opt\", \"hidden_size\": 7168,"
    " \"ffn_dim\": 28672, \"num_attention_heads\": 56, \"num_hidden_layers\": 48,"
    " \"vocab_size\": 50272, \"max_position_embeddings\": 2048, \"word_embed_proj_dim\": 7168,"
    " \"do_layer_norm_before\": true, \"torch_dtype\": \"float16\"}";
static const char llama_70b[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 8192,"
    " \"intermediate_size\": 28672, \"num_attention_heads\": 64, \"num_key_value_heads\": 8,"
    " \"num_hidden_layers\": 80, \"vocab_size\": 128256, \"max_position_embeddings\": 8192,"
    " \"rms_norm_eps\": 1e-5, \"torch_dtype\": \"bfloat16\"}";

static inline struct tsr_plan_shape *shape(const char *config)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plan_shape *s = NULL;
    if (tsr_plan_shape_config(&s, "config.json", config, strlen(config), &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return s;
}

static inline void print(struct tsr_diag *d)
{
    tsr_config_diag_print(d, stderr, false);
}

static inline struct tsr_plan_cluster *cluster(const char *name)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_diag         *d = NULL;
    struct tsr_plan_cluster *c = NULL;
    char                    *path = NULL;
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    if (tsr_plan_cluster_find(&path, name, NULL, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(tsr_plan_cluster_load(&c, path, d, &e.err), TSR_OK);
    print(d);
    assert_non_null(c);
    tsr_config_diag_destroy(d);
    free(path);
    return c;
}

static inline int open_all(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_plugin_registry_create(&reg, NULL, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(reg, TSR_TEST_PLUGINS, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return 0;
}

static inline int close_all(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(reg);
    return 0;
}

#endif
