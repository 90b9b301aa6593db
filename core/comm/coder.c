/* A way of summing: names, slices, codec instances, sizes. */
#include "comm/coder.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [TSR_COMM_ALL_GATHER] = "all-gather", [TSR_COMM_TWO_STEP] = "two-step"
};

const char *tsr_comm_algorithm_name(enum tsr_comm_algorithm a)
{
    return (size_t)a < sizeof names / sizeof *names ? names[a] : NULL;
}

tsr_status tsr_comm_algorithm_find(enum tsr_comm_algorithm *a, const char *name,
                                   struct tsr_err *err)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            *a = (enum tsr_comm_algorithm)i;
            return TSR_OK;
        }
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "algorithm '%.80s' is not known; all-gather, two-step or auto", name);
}

bool tsr_comm_is_auto(const char *codec)
{
    return codec && strncmp(codec, "auto", 4) == 0 && (codec[4] == '\0' || codec[4] == ':');
}

uint64_t tsr_comm_instances(enum tsr_comm_algorithm a, uint32_t ranks)
{
    return a == TSR_COMM_TWO_STEP ? 2 * (uint64_t)ranks : 1;
}

void tsr_comm_slice(uint64_t cols, uint32_t ranks, uint32_t r, uint64_t *first, uint64_t *end)
{
    uint64_t units = cols / TSR_COMM_BORDER + (cols % TSR_COMM_BORDER != 0);
    /* units * r / ranks without overflow */
    uint64_t each = units / ranks, over = units % ranks;
    uint64_t a = each * r + over * r / ranks;
    uint64_t b = each * (r + 1) + over * (r + 1) / ranks;
    *first = a < units ? a * TSR_COMM_BORDER : cols;
    *end = b < units ? b * TSR_COMM_BORDER : cols;
}

static tsr_status open_instances(struct tsr_comm_coder *c, const struct tsr_comm_way *way,
                                 struct tsr_err *err)
{
    const struct tsr_codec_v1 *t = c->iface;
    uint64_t                   n = tsr_comm_instances(c->algorithm, c->ranks);
    if (way->states && way->n_states != n)
        return tsr_fail(err, TSR_E_INPUT,
                        "%llu states are given for %llu instances (%s over %u ranks); calibrate "
                        "the codec for this algorithm and width",
                        (unsigned long long)way->n_states, (unsigned long long)n,
                        tsr_comm_algorithm_name(c->algorithm), c->ranks);
    if (way->states && !t->load)
        return tsr_fail(err, TSR_E_INPUT, "it has no calibration, but a state is given");
    c->self = tsr_new(n, sizeof *c->self);
    if (!c->self)
        return tsr_fail_nomem(err, n * sizeof *c->self, "codec instances");
    for (uint64_t i = 0; i < n; i++) {
        TSR_TRY(t->create(c->spec.found.host, c->spec.options, &c->self[i], err));
        if (way->states) {
            tsr_status st = t->load(c->self[i], way->states[i].data, way->states[i].bytes, err);
            if (st != TSR_OK)
                return tsr_err_prefix(err, st, "state %llu of %llu", (unsigned long long)i + 1,
                                      (unsigned long long)n);
        }
    }
    return TSR_OK;
}

/* States of a codec that keeps some, and whether the way may have them. */
static tsr_status open_streams(struct tsr_comm_coder *c, const struct tsr_comm_way *way,
                               struct tsr_err *err)
{
    TSR_TRY(tsr_comm_codec_order(c->iface, c->self[0], &c->order, err));
    if (c->order == TSR_CODEC_ORDER_REQUIRED && way->rows_alone)
        return tsr_fail(err, TSR_E_INPUT,
                        "it requires the order of messages (order: required), and answers would "
                        "depend on the requests before them; take a codec without that");
    if (!c->order)
        return TSR_OK;
    c->streams = tsr_comm_streams_new(c->iface->extension(c->self[0], TSR_CODEC_STREAM), c->order);
    return c->streams ? TSR_OK : tsr_fail_nomem(err, 64, "the streams of a codec");
}

tsr_status tsr_comm_coder_open(struct tsr_comm_coder *c, struct tsr_registry *r,
                               const struct tsr_comm_way *way, uint32_t ranks, struct tsr_err *err)
{
    const char *text = way->codec && *way->codec ? way->codec : "plain";
    memset(c, 0, sizeof *c);
    if (ranks == 0 || ranks > TSR_COMM_MAX_RANKS ||
        (way->algorithm != TSR_COMM_ALL_GATHER && way->algorithm != TSR_COMM_TWO_STEP))
        return tsr_fail(err, TSR_E_INVAL, "a sum over %u ranks by algorithm %d; 1 to %u ranks",
                        ranks, (int)way->algorithm, TSR_COMM_MAX_RANKS);
    c->algorithm = way->algorithm;
    c->ranks = ranks;
    c->piece = way->piece ? way->piece : tsr_comm_piece(way->algorithm, ranks);
    tsr_status st = tsr_plugin_spec_open(&c->spec, r, TSR_KIND_CODEC, text, err);
    if (st == TSR_OK) {
        c->iface = c->spec.found.iface;
        st = open_instances(c, way, err);
    }
    if (st == TSR_OK)
        c->coupled =
            c->iface->extension && c->iface->extension(c->self[0], TSR_CODEC_COUPLED) != NULL;
    if (st == TSR_OK && way->rows_alone && c->coupled && !tsr_comm_coder_exact(c))
        st = tsr_fail(err, TSR_E_INPUT,
                      "what it makes of a row depends on the rows that are sent with it, and so "
                      "would the answers of a batch; take a codec whose rows are independent");
    if (st == TSR_OK)
        st = open_streams(c, way, err);
    if (st != TSR_OK)
        tsr_comm_coder_close(c);
    return st == TSR_OK
               ? st
               : tsr_err_prefix(err, st == TSR_E_CONFIG ? TSR_E_INPUT : st, "codec '%s'", text);
}

void tsr_comm_coder_close(struct tsr_comm_coder *c)
{
    uint64_t n = c->self ? tsr_comm_instances(c->algorithm, c->ranks) : 0;
    for (uint64_t i = 0; i < n; i++)
        if (c->self[i])
            c->iface->destroy(c->self[i]);
    free(c->self);
    tsr_comm_streams_free(c->streams);
    tsr_plugin_spec_close(&c->spec);
    memset(c, 0, sizeof *c);
}

bool tsr_comm_coder_exact(const struct tsr_comm_coder *c)
{
    uint64_t n = tsr_comm_instances(c->algorithm, c->ranks);
    for (uint64_t i = 0; i < n; i++)
        if (c->iface->exactness(c->self[i]) != TSR_CODEC_EXACT)
            return false;
    return true;
}

bool tsr_comm_coder_ordered(const struct tsr_comm_coder *c)
{
    return c->order == TSR_CODEC_ORDER_REQUIRED;
}

uint64_t tsr_comm_piece(enum tsr_comm_algorithm a, uint32_t ranks)
{
    const uint64_t slice = UINT64_C(128) << 10;
    uint32_t       slices = a != TSR_COMM_TWO_STEP || ranks < 2 ? 2 : ranks < 8 ? ranks : 8;
    return slices * slice;
}

uint64_t tsr_comm_piece_rows(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols)
{
    uint64_t n = cols ? c->piece / sizeof(float) / cols : rows;
    if (n == 0)
        n = 1;
    return c->coupled || n > rows ? rows : n;
}

void *tsr_comm_instance(const struct tsr_comm_coder *c, bool second, uint32_t slice)
{
    return c->self[(second ? c->ranks : 0) + slice];
}

tsr_status tsr_comm_wire_bytes(const struct tsr_comm_coder *c, bool second, uint32_t slice,
                               uint64_t rows, uint64_t cols, uint64_t *bytes, struct tsr_err *err)
{
    *bytes = 0;
    if (rows == 0 || cols == 0)
        return TSR_OK;
    return c->iface->wire_bytes(tsr_comm_instance(c, second, slice), rows, cols, bytes, err);
}

/* What one rank sends of a piece of `rows` rows. */
static tsr_status piece_bytes(const struct tsr_comm_coder *c, uint32_t rank, uint64_t rows,
                              uint64_t cols, uint64_t *bytes, struct tsr_err *err)
{
    uint64_t one, first, end;
    *bytes = 0;
    if (c->algorithm == TSR_COMM_ALL_GATHER) {
        TSR_TRY(tsr_comm_wire_bytes(c, false, 0, rows, cols, &one, err));
        if (!tsr_mul(one, c->ranks - 1, bytes))
            return tsr_fail(err, TSR_E_INVAL, "a message of %llu bytes is too large",
                            (unsigned long long)one);
        return TSR_OK;
    }
    for (uint32_t i = 0; i < c->ranks; i++) {
        tsr_comm_slice(cols, c->ranks, i, &first, &end);
        TSR_TRY(tsr_comm_wire_bytes(c, i == rank, i, rows, end - first, &one, err));
        if (!tsr_mul(one, i == rank ? c->ranks - 1 : 1, &one) || !tsr_add(*bytes, one, bytes))
            return tsr_fail(err, TSR_E_INVAL, "a message of %llu x %llu is too large",
                            (unsigned long long)rows, (unsigned long long)cols);
    }
    return TSR_OK;
}

tsr_status tsr_comm_sent_bytes(const struct tsr_comm_coder *c, uint32_t rank, uint64_t rows,
                               uint64_t cols, uint64_t *bytes, struct tsr_err *err)
{
    uint64_t each = tsr_comm_piece_rows(c, rows, cols), whole, last;
    *bytes = 0;
    if (rows == 0 || cols == 0 || c->ranks == 1)
        return TSR_OK;
    TSR_TRY(piece_bytes(c, rank, each, cols, &whole, err));
    TSR_TRY(piece_bytes(c, rank, rows % each, cols, &last, err));
    if (!tsr_mul(whole, rows / each, bytes) || !tsr_add(*bytes, last, bytes))
        return tsr_fail(err, TSR_E_INVAL, "a message of %llu x %llu is too large",
                        (unsigned long long)rows, (unsigned long long)cols);
    return TSR_OK;
}
