/* Speeds of codecs in a device profile. */
#include "plan/cost/device_internal.h"

#include "base/mem.h"

#include <string.h>

struct codec {
    const char *codec, *encode, *decode, *source;
};

static const struct tsr_option codec_options[] = {
    PROFILE_TEXT(struct codec, codec, "The codec, with its options or without."),
    PROFILE_TEXT(struct codec, encode, "Bytes of F32 rows that are encoded a second."),
    PROFILE_TEXT(struct codec, decode, "Bytes of F32 rows that are decoded a second."),
    PROFILE_TEXT(struct codec, source, "Where the values come from."),
};

void tsr_plan_profile_codec(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map)
{
    struct codec             c = { 0 };
    struct tsr_plan_profile *p = r->p;
    uint64_t                 before = tsr_config_diag_errors(r->d);
    double                   encode, decode;
    PROFILE_FILL(r, codec_options, map, "a codec", &c);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    if (!tsr_plan_quantity_node(tsr_config_node_get(map, "encode"), "encode",
                                TSR_PLAN_QUANTITY_RATE, &encode, r->d) ||
        !tsr_plan_quantity_node(tsr_config_node_get(map, "decode"), "decode",
                                TSR_PLAN_QUANTITY_RATE, &decode, r->d))
        return;
    if (!(encode > 0) || !(decode > 0)) {
        tsr_config_diag_error(r->d, &map->mark, NULL,
                              "'encode' and 'decode' of a codec must be more than 0");
        return;
    }
    struct tsr_plan_codec_speed *to = tsr_renew(p->codecs, p->n_codecs + 1, sizeof *to);
    if (!to) {
        r->nomem = true;
        return;
    }
    p->codecs = to;
    to[p->n_codecs++] = (struct tsr_plan_codec_speed){ c.codec, encode, decode, c.source };
}

const struct tsr_plan_codec_speed *tsr_plan_profile_codec_of(const struct tsr_plan_profile *p,
                                                             const char                    *text)
{
    const struct tsr_plan_codec_speed *by_name = NULL;
    size_t                             name = strcspn(text, ":");
    for (uint64_t i = 0; i < p->n_codecs; i++) {
        if (strcmp(p->codecs[i].codec, text) == 0)
            return &p->codecs[i];
        if (strlen(p->codecs[i].codec) == name && strncmp(p->codecs[i].codec, text, name) == 0)
            by_name = &p->codecs[i];
    }
    return by_name;
}
