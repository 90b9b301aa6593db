/* Codecs: the kind, what a codec does for the rules of every kind, and the table of rules. */
#include "conformance/codec/codec.h"
#include "conformance/wire.h"

static const struct tsr_codec_v1 *table(const struct tsr_conformance_case *c)
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

/* A message there and back; the long one is a single encode() of 32 MiB. */
static tsr_status traffic(struct tsr_conformance_case *c, const void *self, bool long_run,
                          struct tsr_err *err)
{
    const struct tsr_codec_v1 *t = table(c);
    uint64_t                   bytes = 0, rows = long_run ? 65536 : 5, cols = 130;
    tsr_status                 st = t->wire_bytes(self, rows, cols, &bytes, err);
    if (st != TSR_OK)
        return st;
    float               *x = tsr_conformance_rule_room(rows * cols * sizeof *x);
    void                *wire = tsr_conformance_rule_room(bytes);
    struct tsr_codec_job j = tsr_codec_job_of(rows, cols, wire, bytes);
    tsr_conformance_rule_normal(c, 1, x, long_run ? 1000 : rows * cols);
    j.src = x;
    if (long_run)
        tsr_conformance_test_host_start(c->host);
    st = t->encode(self, &j, err);
    j.dst = x;
    j.src = NULL;
    if (st == TSR_OK && !long_run)
        st = t->decode(self, &j, err);
    if (st == TSR_OK && !long_run)
        st = t->decode_add(self, &j, err);
    tsr_conformance_guarded_free(x);
    tsr_conformance_guarded_free(wire);
    return st;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    void      *self = NULL;
    tsr_status st = make(c, &self, err);
    if (st != TSR_OK)
        return st;
    st = tsr_codec_calibrate(c, self, 130, err);
    if (st == TSR_OK)
        st = traffic(c, self, long_run, err);
    unmake(c, self);
    return st;
}

static const struct tsr_conformance_rule rules[] = {
    { .name = "codec-exactness",
      .text = "exactness() is TSR_CODEC_EXACT or TSR_CODEC_LOSSY, a function of the options.",
      .run = tsr_codec_rule_exactness },
    { .name = "codec-wire-bytes",
      .text = "wire_bytes() is a function of shape and options; a shape that is not carried is "
              "TSR_E_UNSUPPORTED with the reason.",
      .run = tsr_codec_rule_wire_bytes },
    { .name = "codec-huge-shape",
      .text = "A shape whose wire bytes do not fit into 64 bits is TSR_E_UNSUPPORTED.",
      .run = tsr_codec_rule_huge_shape },
    { .name = "codec-encode-writes",
      .text = "encode() writes every one of the declared wire bytes and no others.",
      .run = tsr_codec_rule_encode_writes },
    { .name = "codec-decode-writes",
      .text = "decode() writes every number of the message and no others.",
      .run = tsr_codec_rule_decode_writes },
    { .name = "codec-inputs-untouched",
      .text = "encode() leaves the numbers alone that it reads, decode() the wire.",
      .run = tsr_codec_rule_inputs_untouched },
    { .name = "codec-repeats",
      .text = "The same message gives the same wire bytes, each time and in every instance.",
      .run = tsr_codec_rule_repeats },
    { .name = "codec-ranks-identical",
      .text = "Every rank that decodes the same bytes gets the same floats, to the bit.",
      .run = tsr_codec_rule_ranks },
    { .name = "codec-threads",
      .text = "encode() and decode() may run on several threads at once on one instance.",
      .run = tsr_codec_rule_threads },
    { .name = "codec-exact",
      .text = "A codec that says TSR_CODEC_EXACT gives back every number to the bit, NaN payloads "
              "too.",
      .run = tsr_codec_rule_exact },
    { .name = "codec-nonfinite",
      .text = "A message with NaN or infinities is TSR_E_NUMERIC, or decodes to the same numbers "
              "each time.",
      .run = tsr_codec_rule_nonfinite },
    { .name = "codec-tails",
      .text = "Rows that no block divides are carried to their end: ones come back nearer to one "
              "than to zero.",
      .run = tsr_codec_rule_tails },
    { .name = "codec-rows",
      .text = "A row decodes to what it decodes to in a message of its own, in a codec that does "
              "not state "
              "tessera.codec.coupled/1.",
      .run = tsr_codec_rule_rows },
    { .name = "codec-damaged",
      .text =
          "Bytes that no encode() wrote decode to the same numbers each time or are TSR_E_INVAL, "
          "and nothing outside the message is written.",
      .run = tsr_codec_rule_damaged },
    { .name = "codec-decode-add",
      .text = "decode_add() is one F32 addition of what decode() gives, to the bit.",
      .run = tsr_codec_rule_decode_add },
    { .name = "codec-wire",
      .text = "A wire that is described as plain data makes the numbers of encode()'s bytes that "
              "decode() makes, and carries numbers as encode() does.",
      .run = tsr_conformance_codec_rule_wire },
    { .name = "codec-calibration-whole",
      .text = "observe, freeze, state_bytes, save and load are all there, or all NULL.",
      .run = tsr_codec_rule_calibration_whole },
    { .name = "codec-state-exact",
      .text = "save() writes every one of state_bytes() bytes and no others.",
      .run = tsr_codec_rule_state_exact },
    { .name = "codec-state-loads",
      .text = "An instance that loads a saved state encodes like the one that saved it.",
      .run = tsr_codec_rule_state_loads },
    { .name = "codec-state-damaged",
      .text = "load() refuses a state of another size with a sentence.",
      .run = tsr_codec_rule_state_damaged },
    { .name = "codec-stream-state",
      .text = "The state of a stream has the bytes of state_bytes(), and nothing outside of it is "
              "written.",
      .run = tsr_codec_rule_stream_state },
    { .name = "codec-stream-replay",
      .text = "The messages of a stream have the same bytes each time that it begins with zero "
              "bytes, in every instance, and decode in step.",
      .run = tsr_codec_rule_stream_replay },
    { .name = "codec-stream-rows",
      .text = "Rows of a message with a state decode as in messages of one row each, in the "
              "declared order.",
      .run = tsr_codec_rule_stream_rows },
    { .name = "codec-stream-first",
      .text = "Without a state a row is coded as the first of a stream.",
      .run = tsr_codec_rule_stream_first },
    { .name = "codec-stream-damaged",
      .text =
          "decode() with a state survives bytes that no encode() wrote: it gives any numbers or "
          "TSR_E_INVAL, and writes nothing outside the message and the state.",
      .run = tsr_codec_rule_stream_damaged },
};

const struct tsr_conformance_kind_rules tsr_codec_rules = {
    .kind = TSR_KIND_CODEC,
    .noun = "codec",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
