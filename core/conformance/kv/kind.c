/* KV-cache codecs: the kind, what a codec does for the rules of every kind, and the table of rules. */
#include "conformance/kv/kv.h"

static const struct tsr_kv_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

static tsr_status make(struct tsr_conformance_case *c, void **self, struct tsr_err *err)
{
    return table(c)->create(c->host->give, c->options, self, err);
}

static void unmake(struct tsr_conformance_case *c, void *self)
{
    table(c)->destroy(self);
}

static const void *extension(struct tsr_conformance_case *c, void *self, const char *id)
{
    return table(c)->extension ? table(c)->extension(self, id) : NULL;
}

/* A unit there and back. */
static tsr_status one_unit(struct tsr_conformance_case *c, void *self, uint32_t side, bool long_run,
                           struct tsr_err *err)
{
    const struct tsr_kv_v1 *t = table(c);
    struct tsr_kv_layout    l = { .struct_size = sizeof l };
    tsr_status              st = t->layout(self, side, 64, &l, err);
    if (st != TSR_OK || l.positions == 0 || l.positions > TSR_KV_BLOCK || l.bytes > 1u << 20)
        return st;
    size_t elements = (size_t)64 * l.positions;
    float *x = tsr_conformance_rule_room(elements * sizeof(float));
    void  *units = tsr_conformance_rule_room(l.bytes);
    tsr_conformance_rule_normal(c, 1, x, elements);
    if (long_run)
        tsr_conformance_test_host_start(c->host);
    for (int i = 0; st == TSR_OK && i < (long_run ? 200 : 1); i++)
        st = t->encode(self, side, 64, 1, x, units, err);
    if (st == TSR_OK)
        st = t->decode(self, side, 64, 1, units, x, err);
    tsr_conformance_guarded_free(x);
    tsr_conformance_guarded_free(units);
    return st;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    void      *self = NULL;
    tsr_status st = make(c, &self, err);
    if (st != TSR_OK)
        return st;
    st = one_unit(c, self, TSR_KV_KEYS, false, err);
    if (st == TSR_OK)
        st = one_unit(c, self, TSR_KV_VALUES, long_run, err);
    unmake(c, self);
    return st;
}

static const struct tsr_conformance_rule rules[] = {
    { .name = "kv-layout",
      .text = "layout() gives units of 1 or TSR_KV_BLOCK positions, with bytes and error in range, "
              "the same each time and in every instance.",
      .run = tsr_kv_rule_layout },
    { .name = "kv-encode-writes",
      .text = "encode() writes the bytes of its units, and nothing else.",
      .run = tsr_kv_rule_encode_writes },
    { .name = "kv-decode-writes",
      .text = "decode(), score() and mix() write their output, and nothing else.",
      .run = tsr_kv_rule_decode_writes },
    { .name = "kv-every-byte",
      .text = "encode() writes every byte of a unit, whatever was there before.",
      .run = tsr_kv_rule_every_byte },
    { .name = "kv-repeats",
      .text = "The same elements give the same bytes, and the same bytes the same elements, each "
              "time and in every instance.",
      .run = tsr_kv_rule_repeats },
    { .name = "kv-alone",
      .text = "A unit has the bytes and elements that it has alone, whatever other units are in "
              "the call and wherever it lies.",
      .run = tsr_kv_rule_alone },
    { .name = "kv-error",
      .text = "Decoded elements are as near to the given ones as layout() says.",
      .run = tsr_kv_rule_error },
    { .name = "kv-type",
      .text = "Where layout() states a type of tessera/kv_cache.h, units have its sizes and its "
              "bytes, and decode() gives its elements.",
      .run = tsr_kv_rule_type },
    { .name = "kv-not-finite",
      .text = "An element that is not finite decodes to one that is not finite.",
      .run = tsr_kv_rule_not_finite },
    { .name = "kv-damaged",
      .text = "decode(), score() and mix() survive any bytes.",
      .run = tsr_kv_rule_damaged },
    { .name = "kv-threads",
      .text = "encode(), decode(), score() and mix() may run on several threads at once on one "
              "instance.",
      .run = tsr_kv_rule_threads },
    { .name = "kv-score",
      .text = "score() gives the products of the query and the decoded keys, but for rounding.",
      .run = tsr_kv_rule_score },
    { .name = "kv-mix",
      .text = "mix() adds the weighted decoded values, but for rounding, and nothing of a unit of "
              "one position with weight 0.",
      .run = tsr_kv_rule_mix },
};

const struct tsr_conformance_kind_rules tsr_kv_rules = {
    .kind = TSR_KIND_KV,
    .noun = "kv",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
