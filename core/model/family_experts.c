/* The section `experts` of a family file. */
#include "model/family_internal.h"

#include <string.h>

struct experts {
    const struct tsr_config_node *count, *used, *width, *jitter, *normalize, *layers;
    int64_t                       router;
};
static const struct tsr_choice router_words[] = {
    { "softmax", "the largest of softmax(scores)", TSR_MODEL_ROUTER_SOFTMAX },
    { "chosen", "softmax over the largest scores", TSR_MODEL_ROUTER_CHOSEN },
    { "threshold", "one by one, by a softmax over the scores near the largest",
      TSR_MODEL_ROUTER_THRESHOLD }
};
static const struct tsr_option expert_options[] = {
    TSR_OPTION_NODE(struct experts, count, "Experts of a layer."),
    TSR_OPTION_NODE(struct experts, used, "Experts that a token takes."),
    TSR_OPTION_NODE(struct experts, width, "Width of an expert; absent: that of the feed-forward."),
    TSR_OPTION_ENUM(struct experts, router, TSR_MODEL_ROUTER_SOFTMAX, router_words,
                    "How scores choose experts and weigh them."),
    TSR_OPTION_NODE(struct experts, normalize,
                    "true, false or a flag: weights are divided by their sum."),
    TSR_OPTION_NODE(struct experts, jitter, "Half of the distance that router threshold allows."),
    TSR_OPTION_NODE(struct experts, layers, "Layers with experts."),
};

static struct tsr_model_value of_key(const char *key)
{
    return (struct tsr_model_value){ .keys = { key }, .n_keys = 1 };
}

void tsr_family_experts(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct experts           e = { .router = TSR_MODEL_ROUTER_SOFTMAX };
    f->experts.normalize_if = -1;
    if (!map)
        return;
    TSR_FAMILY_FILL(r, expert_options, map, "'experts'", &e);
    f->experts.is = true;
    f->experts.count = of_key("num_local_experts");
    f->experts.used = of_key("num_experts_per_tok");
    f->experts.width = (struct tsr_model_value){ .has_def = true };
    f->experts.jitter = (struct tsr_model_value){ .has_def = true };
    f->experts.router = (enum tsr_model_router)e.router;
    tsr_family_value(r, e.count, "count", false, &f->experts.count);
    tsr_family_value(r, e.used, "used", false, &f->experts.used);
    tsr_family_value(r, e.width, "width", false, &f->experts.width);
    tsr_family_value(r, e.jitter, "jitter", false, &f->experts.jitter);
    tsr_family_rule(r, e.layers, "layers", &f->experts.layers);
    if (!e.normalize)
        return;
    const char *word = e.normalize->kind == TSR_NODE_SCALAR ? e.normalize->text : "";
    f->experts.normalize = strcmp(word, "true") == 0;
    if (!f->experts.normalize && strcmp(word, "false") != 0) {
        f->experts.normalize_if = tsr_family_flag(r, &e.normalize->mark, word);
        if (!*word)
            tsr_config_diag_error(r->d, &e.normalize->mark, NULL,
                                  "'normalize' is true, false or the name of a flag");
    }
}
