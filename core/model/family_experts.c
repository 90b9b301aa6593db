/* The section `experts` of a family file. */
#include "model/family_internal.h"

#include <string.h>

struct experts {
    const struct tsr_config_node *count, *used, *width, *jitter, *normalize, *layers, *scale,
        *groups, *shared;
    int64_t router;
};
struct groups {
    const struct tsr_config_node *count, *used;
    int64_t                       score;
    const char                   *when;
};
struct shared {
    const struct tsr_config_node *count, *width;
};
static const struct tsr_choice router_words[] = {
    { "softmax", "the largest of softmax(scores) + correction", TSR_MODEL_ROUTER_SOFTMAX },
    { "chosen", "softmax over the largest scores", TSR_MODEL_ROUTER_CHOSEN },
    { "threshold", "one by one, by a softmax over the scores near the largest",
      TSR_MODEL_ROUTER_THRESHOLD },
    { "sigmoid", "the largest of sigmoid(score) + correction", TSR_MODEL_ROUTER_SIGMOID }
};
static const struct tsr_choice score_words[] = {
    { "largest", "the largest of its experts", TSR_MODEL_GROUP_LARGEST },
    { "two_largest", "the sum of the two largest", TSR_MODEL_GROUP_TWO_LARGEST }
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
    TSR_OPTION_NODE(struct experts, scale, "Factor of the weights."),
    TSR_OPTION_NODE(struct experts, groups, "Experts in a row of which only some are chosen from."),
    TSR_OPTION_NODE(struct experts, shared, "An expert that every token takes."),
    TSR_OPTION_NODE(struct experts, layers, "Layers with experts."),
};
static const struct tsr_option group_options[] = {
    TSR_OPTION_NODE(struct groups, count, "Groups of a layer."),
    TSR_OPTION_NODE(struct groups, used, "Groups that experts are chosen from."),
    TSR_OPTION_ENUM(struct groups, score, TSR_MODEL_GROUP_LARGEST, score_words,
                    "What of its experts says whether a group is one of them."),
    { .name = "when",
      .help = "Flag: there are groups.",
      .type = TSR_OPT_STRING,
      .offset = TSR_FIELD(struct groups, when, const char *),
      .def = { .s = "" } },
};
static const struct tsr_option shared_options[] = {
    TSR_OPTION_NODE(struct shared, count, "Shared experts that are stored as one; default 1."),
    TSR_OPTION_NODE(struct shared, width, "Width of each; absent: that of an expert."),
};

static struct tsr_model_value of_key(const char *key)
{
    return (struct tsr_model_value){ .keys = { key }, .n_keys = 1 };
}

static struct tsr_model_value of_default(double def)
{
    return (struct tsr_model_value){ .has_def = true, .def = def };
}

static void read_groups(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct groups            g = { .score = TSR_MODEL_GROUP_LARGEST };
    f->experts.groups = of_key("n_group");
    f->experts.groups_used = of_key("topk_group");
    f->experts.grouped_if = -1;
    if (!map)
        return;
    TSR_FAMILY_FILL(r, group_options, map, "'groups'", &g);
    f->experts.grouped = true;
    f->experts.group_score = (enum tsr_model_group_score)g.score;
    f->experts.grouped_if = tsr_family_flag(r, &map->mark, g.when);
    tsr_family_value(r, g.count, "count", false, &f->experts.groups);
    tsr_family_value(r, g.used, "used", false, &f->experts.groups_used);
    if (f->experts.router != TSR_MODEL_ROUTER_SOFTMAX &&
        f->experts.router != TSR_MODEL_ROUTER_SIGMOID)
        tsr_config_diag_error(r->d, &map->mark, NULL, "'groups' needs router softmax or sigmoid");
}

static void read_shared(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct shared            s = { 0 };
    f->experts.shared_count = of_default(1);
    f->experts.shared_width = of_default(0);
    if (!map)
        return;
    TSR_FAMILY_FILL(r, shared_options, map, "'shared'", &s);
    f->experts.shared = true;
    tsr_family_value(r, s.count, "count", false, &f->experts.shared_count);
    tsr_family_value(r, s.width, "width", false, &f->experts.shared_width);
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
    f->experts.width = of_default(0);
    f->experts.jitter = of_default(0);
    f->experts.scale = of_default(1);
    f->experts.router = (enum tsr_model_router)e.router;
    tsr_family_value(r, e.count, "count", false, &f->experts.count);
    tsr_family_value(r, e.used, "used", false, &f->experts.used);
    tsr_family_value(r, e.width, "width", false, &f->experts.width);
    tsr_family_value(r, e.jitter, "jitter", false, &f->experts.jitter);
    tsr_family_value(r, e.scale, "scale", false, &f->experts.scale);
    tsr_family_rule(r, e.layers, "layers", &f->experts.layers);
    read_groups(r, e.groups);
    read_shared(r, e.shared);
    if (!e.normalize)
        return;
    const char *word = e.normalize->kind == TSR_CONFIG_NODE_SCALAR ? e.normalize->text : "";
    f->experts.normalize = strcmp(word, "true") == 0;
    if (!f->experts.normalize && strcmp(word, "false") != 0) {
        f->experts.normalize_if = tsr_family_flag(r, &e.normalize->mark, word);
        if (!*word)
            tsr_config_diag_error(r->d, &e.normalize->mark, NULL,
                                  "'normalize' is true, false or the name of a flag");
    }
}
