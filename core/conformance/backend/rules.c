/* Backends: the kind, what a device does for the rules of every kind, and the table of rules. */
#include "conformance/backend/backend.h"
#include "conformance/wire.h"

static const struct tsr_backend_v1 *table(const struct tsr_conformance_case *c)
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

#define LONG_RUN 10000 /* operations of a device whose waiting takes no processor time */

/* x [T,K] by a matrix of ones [N,K]; an operation that the device declines counts as done. A long run is
 * what an engine does: operation after operation, until the host cancels. Most devices cannot stop inside
 * a single operation, so its size lets even an emulated device finish in a third of the time that the rule
 * allows. */
static tsr_status traffic(struct tsr_conformance_case *c, void *self, uint64_t T, uint64_t K,
                          uint64_t N, bool long_run, struct tsr_err *err)
{
    const struct tsr_backend_v1 *t = table(c);
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    uint64_t          widest = N > T ? N * K : T * K;
    float            *ones = tsr_conformance_rule_room(4 * (widest > T * N ? widest : T * N));
    for (uint64_t i = 0; i < widest; i++)
        ones[i] = 1;
    struct tsr_weight_desc w = { .struct_size = sizeof w,
                                 .name = "w",
                                 .format = &f,
                                 .rows = N,
                                 .cols = K,
                                 .codes = ones,
                                 .code_stride = 4 * K };
    void                  *in = NULL, *out = NULL, *weight = NULL;
    tsr_status             st = t->buffer_alloc(self, 4 * T * K, &in, err);
    if (st == TSR_OK)
        st = t->buffer_alloc(self, 4 * T * N, &out, err);
    if (st == TSR_OK)
        st = t->upload(self, in, 0, ones, 4 * T * K, err);
    if (st == TSR_OK)
        st = t->weight_load(self, &w, &weight, err);
    if (st == TSR_OK) {
        struct tsr_tensor x = { sizeof x, TSR_F32, in, 0, T, K, 4 * K };
        struct tsr_tensor y = { sizeof y, TSR_F32, out, 0, T, N, 4 * N };
        struct tsr_op     op = { .struct_size = sizeof op,
                                 .kind = TSR_OP_LINEAR,
                                 .out = &y,
                                 .in = { &x },
                                 .weight = weight };
        if (long_run)
            tsr_conformance_test_host_start(c->host);
        bool last = !long_run; /* also run one operation after the host's stop */
        for (int i = 0; i < LONG_RUN && st == TSR_OK; i++) {
            st = t->run(self, NULL, &op, err);
            if (st == TSR_OK)
                st = t->sync(self, NULL, err);
            if (last)
                break;
            last = tsr_conformance_test_host_late_ms(c->host) > 0.0;
        }
        if (long_run)
            tsr_conformance_test_host_stop(c->host);
    }
    if (st == TSR_OK)
        st = t->download(self, out, 0, ones, 4 * T * N, err);
    if (weight) /* another rule tests that NULL is accepted */
        t->weight_free(self, weight);
    if (out)
        t->buffer_free(self, out);
    if (in)
        t->buffer_free(self, in);
    tsr_conformance_guarded_free(ones);
    return st == TSR_E_UNSUPPORTED ? TSR_OK : st;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    void      *self = NULL;
    tsr_status st = make(c, &self, err);
    if (st != TSR_OK)
        return st;
    st = long_run ? traffic(c, self, 16, 512, 512, true, err)
                  : traffic(c, self, 3, 130, 20, false, err);
    unmake(c, self);
    return st;
}

#define OPERATION(rule, op, function)                                                              \
    {                                                                                              \
        .name = "backend-" rule,                                                                   \
        .text = op " gives what tessera/backend.h says, within the rounding of the device's "      \
                   "arithmetic, or is declined.",                                                  \
        .run = function                                                                            \
    }

static const struct tsr_conformance_rule rules[] = {
    { .name = "backend-properties",
      .text = "properties() names the device, has deterministic 0 or 1, and no more free memory "
              "than there is.",
      .run = tsr_backend_rule_properties },
    { .name = "backend-buffers-zeroed",
      .text = "A buffer is zeroed, also when its memory was used before.",
      .run = tsr_backend_rule_zeroed },
    { .name = "backend-copies",
      .text = "upload() and download() copy exactly the range that they are given.",
      .run = tsr_backend_rule_copies },
    { .name = "backend-ranges",
      .text = "A range that does not lie inside the buffer is TSR_E_INVAL.",
      .run = tsr_backend_rule_ranges },
    { .name = "backend-free-null",
      .text = "buffer_free() and weight_free() accept NULL.",
      .run = tsr_backend_rule_free_null },
    { .name = "backend-weight-formats",
      .text = "Weights of every format are read as docs/formats has it, or TSR_E_UNSUPPORTED.",
      .limit_s = 60,
      .run = tsr_backend_rule_formats },
    { .name = "backend-unknown-format",
      .text = "A format of another name is TSR_E_UNSUPPORTED.",
      .run = tsr_backend_rule_unknown_format },
    { .name = "backend-weights-borrowed",
      .text = "weight_load() keeps no pointer into the host's matrix.",
      .run = tsr_backend_rule_borrowed },
    { .name = "backend-weight-bytes",
      .text = "weight_bytes() of a loaded matrix is more than zero and of its size.",
      .run = tsr_backend_rule_weight_bytes },
    { .name = "backend-layout",
      .text =
          "weight_layout() states one id and revision, and sizes and alignments; the same weight "
          "has the same bytes each time.",
      .run = tsr_backend_rule_layout },
    { .name = "backend-layout-borrow",
      .text =
          "A weight over the bytes of weight_read() gives what the loaded one gives, to the bit, "
          "and does not write to them.",
      .run = tsr_backend_rule_layout_borrow },
    { .name = "backend-layout-ranges",
      .text = "A range outside of a weight's bytes, and bytes of another length, are TSR_E_INVAL.",
      .run = tsr_backend_rule_layout_ranges },
    { .name = "backend-codec",
      .text = "Messages that are coded on the device hold the numbers that the wire's description "
              "makes, and are decoded and added to the bit, on a stream, or the wire is declined.",
      .run = tsr_conformance_backend_rule_codec },
    { .name = "backend-codec-ranges",
      .text =
          "A message or a view that does not lie inside its buffer is TSR_E_INVAL, a wire of an "
          "unknown kind TSR_E_UNSUPPORTED.",
      .run = tsr_conformance_backend_rule_codec_ranges },
    { .name = "backend-candidates",
      .text =
          "find() gives the best tokens of each row in order, equal ones by ascending id, the sum "
          "within 1e-4 and the number of logits that are not finite, and leaves the logits alone.",
      .run = tsr_backend_rule_candidates },
    { .name = "backend-candidates-ranges",
      .text = "find() of more rows or a larger vocabulary than reserved is TSR_E_INVAL, or right.",
      .run = tsr_backend_rule_candidates_ranges },
    OPERATION("linear", "LINEAR", tsr_backend_rule_linear),
    { .name = "backend-linear-act",
      .text = "LINEAR with act a16 or a8 differs from f32 by the rounding of the activations only, "
              "or is declined.",
      .run = tsr_backend_rule_act },
    { .name = "backend-segments",
      .text = "Parts of a matrix that was cut at its segments add up to the whole's LINEAR, to the "
              "bit, where the backend says deterministic.",
      .run = tsr_backend_rule_segments },
    OPERATION("embed", "EMBED", tsr_backend_rule_embed),
    OPERATION("norm", "NORM", tsr_backend_rule_norm),
    OPERATION("rope", "ROPE", tsr_backend_rule_rope),
    OPERATION("kv-store", "KV_STORE", tsr_backend_rule_kv_store),
    OPERATION("attention", "ATTENTION", tsr_backend_rule_attention),
    OPERATION("act", "ACT", tsr_backend_rule_act_func),
    OPERATION("add", "ADD", tsr_backend_rule_add),
    OPERATION("scale", "SCALE", tsr_backend_rule_scale),
    OPERATION("gather", "GATHER", tsr_backend_rule_gather),
    OPERATION("mix", "MIX", tsr_backend_rule_mix),
    OPERATION("columns", "COLUMNS", tsr_backend_rule_columns),
    OPERATION("hadamard", "HADAMARD", tsr_backend_rule_hadamard),
    { .name = "backend-writes",
      .text = "An operation writes the rows of its output and nothing else, and leaves its "
              "inputs alone.",
      .run = tsr_backend_rule_writes },
    { .name = "backend-in-place",
      .text = "Where backend.h allows the output in place of an input, the result is the same.",
      .run = tsr_backend_rule_in_place },
    { .name = "backend-order",
      .text = "Operations on a stream run in order, and sync() waits for all of them.",
      .run = tsr_backend_rule_order },
    { .name = "backend-unknown-op",
      .text = "An operation that the backend does not know is TSR_E_UNSUPPORTED.",
      .run = tsr_backend_rule_unknown_op },
    { .name = "backend-shapes",
      .text = "A shape or dtype that backend.h does not allow, or a view outside of its buffer, is "
              "TSR_E_INVAL.",
      .run = tsr_backend_rule_shapes },
    { .name = "backend-repeats",
      .text =
          "A backend that says deterministic gives the same bytes each time, whatever the number "
          "of threads.",
      .run = tsr_backend_rule_repeats },
    { .name = "backend-numerics",
      .text = "A backend that says deterministic keeps the order of operations of "
              "docs/decisions/numerics.md, to the bit.",
      .run = tsr_backend_rule_numerics },
};

const struct tsr_conformance_kind_rules tsr_backend_rules = {
    .kind = TSR_KIND_BACKEND,
    .noun = "backend",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
