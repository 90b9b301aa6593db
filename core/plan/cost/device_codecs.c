/* Speeds of codecs in a device profile. */
#include "plan/cost/device_internal.h"

#include "base/mem.h"

#include <string.h>

struct codec {
    const char *codec, *encode, *decode, *source, *above;
};

static const struct tsr_option codec_options[] = {
    PROFILE_TEXT(struct codec, codec, "The codec, with its options or without."),
    PROFILE_TEXT(struct codec, encode, "Bytes of F32 rows that are encoded a second."),
    PROFILE_TEXT(struct codec, decode, "Bytes of F32 rows that are decoded a second."),
    TSR_OPTION_STRING(
        struct codec, above, "0 B",
        "For messages of more bytes of F32 rows; an entry without it for smaller ones."),
    PROFILE_TEXT(struct codec, source, "Where the values come from."),
};

void tsr_plan_profile_codec(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map)
{
    struct codec             c = { 0 };
    struct tsr_plan_profile *p = r->p;
    uint64_t                 before = tsr_config_diag_errors(r->d);
    double                   encode, decode, above = 0;
    PROFILE_FILL(r, codec_options, map, "a codec", &c);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    if (!tsr_plan_quantity_node(tsr_config_node_get(map, "encode"), "encode",
                                TSR_PLAN_QUANTITY_RATE, &encode, r->d) ||
        !tsr_plan_quantity_node(tsr_config_node_get(map, "decode"), "decode",
                                TSR_PLAN_QUANTITY_RATE, &decode, r->d))
        return;
    const struct tsr_config_node *from = tsr_config_node_get(map, "above");
    if (from && !tsr_plan_quantity_node(from, "above", TSR_PLAN_QUANTITY_BYTES, &above, r->d))
        return;
    for (uint64_t i = 0; i < p->n_codecs; i++)
        if (strcmp(p->codecs[i].codec, c.codec) == 0 && p->codecs[i].above == (uint64_t)above) {
            tsr_config_diag_error(r->d, &map->mark, "entries for larger messages say 'above'",
                                  "the codec '%.60s' is there twice", c.codec);
            return;
        }
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
    to[p->n_codecs++] =
        (struct tsr_plan_codec_speed){ c.codec, encode, decode, c.source, (uint64_t)above };
}

/* Whether entry b is nearer to a message than a, which may be NULL: for the largest messages below it, else for the
 * smallest. */
static bool nearer(const struct tsr_plan_codec_speed *a, const struct tsr_plan_codec_speed *b,
                   double bytes)
{
    if (!a)
        return true;
    bool fits[2] = { bytes > (double)a->above, bytes > (double)b->above };
    return fits[0] == fits[1] ? (b->above > a->above) == fits[0] : fits[1];
}

const struct tsr_plan_codec_speed *tsr_plan_profile_codec_of(const struct tsr_plan_profile *p,
                                                             const char *text, double bytes)
{
    const struct tsr_plan_codec_speed *same = NULL, *by_name = NULL;
    size_t                             name = strcspn(text, ":");
    for (uint64_t i = 0; i < p->n_codecs; i++) {
        const struct tsr_plan_codec_speed *c = &p->codecs[i];
        if (strcmp(c->codec, text) == 0 && nearer(same, c, bytes))
            same = c;
        if (strlen(c->codec) == name && strncmp(c->codec, text, name) == 0 &&
            nearer(by_name, c, bytes))
            by_name = c;
    }
    return same ? same : by_name;
}
