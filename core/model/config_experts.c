/* Experts: how many, how wide, how a router chooses, and what every token takes besides. */
#include "model/config_internal.h"

static bool flag(const struct tsr_model_config *c, int i, bool without)
{
    return i < 0 ? without : (c->has & TSR_HAS_FLAG << 2 * i) != 0;
}

/* Groups of experts in a row, of which a router chooses some before it chooses experts. */
static tsr_status groups(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    uint64_t                       n = 1, used = 1;
    if (!f->experts.grouped || !flag(s->config, f->experts.grouped_if, true))
        return TSR_OK;
    TSR_TRY(tsr_model_config_size(s, &f->experts.groups, MAX_EXPERTS, &n));
    TSR_TRY(tsr_model_config_size(s, &f->experts.groups_used, MAX_EXPERTS, &used));
    if (!n || !used || used > n || hp->experts % n)
        return tsr_fail(
            s->err, TSR_E_INPUT,
            "%s: a router chooses from %llu of %llu groups, which must divide %u experts", s->name,
            (unsigned long long)used, (unsigned long long)n, hp->experts);
    if (hp->experts_used > used * (hp->experts / n))
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: a token takes %u experts, but %llu of %llu groups have %llu", s->name,
                        hp->experts_used, (unsigned long long)used, (unsigned long long)n,
                        (unsigned long long)(used * (hp->experts / n)));
    if (f->experts.group_score == TSR_MODEL_GROUP_TWO_LARGEST && hp->experts / n < 2)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %llu groups of one expert each: a group's score needs two", s->name,
                        (unsigned long long)n);
    if (used == n)
        return TSR_OK; /* of all: a choice without groups */
    hp->router_groups = (uint32_t)n;
    hp->router_groups_used = (uint32_t)used;
    hp->router_group_score = f->experts.group_score;
    return TSR_OK;
}

static tsr_status shared(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    uint64_t                       count, width;
    int64_t                        n = 0; /* 0: none */
    if (!f->experts.shared)
        return TSR_OK;
    TSR_TRY(tsr_model_config_integer(s, &f->experts.shared_count, 0, MAX_EXPERTS, &n));
    count = (uint64_t)n;
    TSR_TRY(tsr_model_config_size(s, &f->experts.shared_width, MAX_WIDTH, &width));
    width = width ? width : hp->expert_ffn;
    if (count * width > (uint64_t)MAX_WIDTH)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %llu shared experts of %llu are wider than the limit of %lld", s->name,
                        (unsigned long long)count, (unsigned long long)width, (long long)MAX_WIDTH);
    hp->shared_ffn = count * width;
    hp->shared_gated = f->experts.shared_gated;
    s->config->has |= hp->shared_ffn ? TSR_HAS_SHARED : 0;
    return TSR_OK;
}

tsr_status tsr_model_config_experts(const struct tsr_model_config_source *s)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_hparams      *hp = &s->config->hp;
    uint64_t                       count, used;
    TSR_TRY(tsr_model_config_size(s, &f->experts.count, MAX_EXPERTS, &count));
    TSR_TRY(tsr_model_config_size(s, &f->experts.used, MAX_EXPERTS, &used));
    TSR_TRY(tsr_model_config_size(s, &f->experts.width, MAX_WIDTH, &hp->expert_ffn));
    TSR_TRY(tsr_model_config_float(s, &f->experts.jitter, 0, 1, &hp->router_jitter));
    TSR_TRY(tsr_model_config_float(s, &f->experts.scale, 1e-9, 1e9, &hp->router_scale));
    if (!count || !used || used > count)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: a token takes %llu of %llu experts", s->name,
                        (unsigned long long)used, (unsigned long long)count);
    if (f->experts.router == TSR_MODEL_ROUTER_THRESHOLD && used > TSR_MODEL_THRESHOLD_MOST)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: a token takes %llu experts; router threshold chooses at most %d",
                        s->name, (unsigned long long)used, TSR_MODEL_THRESHOLD_MOST);
    hp->experts = (uint32_t)count;
    hp->experts_used = (uint32_t)used;
    hp->expert_ffn = hp->expert_ffn ? hp->expert_ffn : hp->ffn;
    hp->router = f->experts.router;
    hp->router_normalize = flag(s->config, f->experts.normalize_if, f->experts.normalize);
    hp->linears = TSR_MODEL_EXPERTS + TSR_EXPERT_LINEARS * count;
    hp->sites = TSR_MODEL_SITE_EXPERTS + 2 * count;
    TSR_TRY(groups(s));
    return shared(s);
}
