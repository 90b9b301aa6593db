/* tessera.indicators/1 as JSON. */
#include "base/json.h"
#include "quant/indicator.h"

#include <math.h>

#define FORMAT "tessera.indicators/1"

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* [n][widths] */
static json_t *rows_json(const struct tsr_quant_indicators *t, const double *omega, uint64_t n)
{
    json_t *rows = json_array();
    for (uint64_t l = 0; rows && l < n; l++) {
        json_t *row = json_array();
        bool    ok = row != NULL;
        for (uint32_t b = 0; ok && b < t->n_bits; b++)
            ok = json_array_append_new(row, number(omega[l * t->n_bits + b])) == 0;
        if (json_array_append_new(rows, row) != 0 || !ok) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

/* [layers][experts][widths]; null for a layer without experts */
static json_t *experts_json(const struct tsr_quant_indicators *t, const struct tsr_model *m,
                            const double *omega)
{
    json_t *layers = json_array();
    for (uint64_t l = 0; layers && l < t->layers; l++) {
        bool    has = m->hp.sparse && m->hp.sparse[l];
        json_t *one =
            has ? rows_json(t, omega + l * t->experts * t->n_bits, t->experts) : json_null();
        if (json_array_append_new(layers, one) != 0) {
            json_decref(layers);
            return NULL;
        }
    }
    return layers;
}

/* Takes v; false: out of memory. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static json_t *tau_json(const struct tsr_quant_indicators *t, enum tsr_indicator kind)
{
    json_t *o = json_object(), *by = json_array();
    bool    ok = o && by && put(o, "all", number(tsr_quant_indicators_tau(t, kind, -1)));
    for (uint32_t b = 0; ok && b < t->n_bits; b++)
        ok = json_array_append_new(by, number(tsr_quant_indicators_tau(t, kind, (int)b))) == 0;
    if (!o || !put(o, "by_bits", by) || !ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *table_json(const struct tsr_quant_indicators *t, const struct tsr_model *m,
                          enum tsr_indicator kind, const struct tsr_quant_indicator_options *opt,
                          const json_t *quantizer)
{
    json_t *o = json_object();
    bool    ok = o && put(o, "name", json_string(tsr_quant_indicator_name(kind)));
    if (kind == TSR_QUANT_IND_VARIANCE || kind == TSR_QUANT_IND_VARIANCE_STOCHASTIC)
        ok = ok &&
             put(o, "step", json_string(opt->step == TSR_QUANT_STEP_ROW ? "row" : "tensor")) &&
             put(o, "symmetric", json_boolean(opt->symmetric));
    if (kind == TSR_QUANT_IND_HESSIAN || kind == TSR_QUANT_IND_MEASURED)
        ok = ok && put(o, "quantizer", tsr_json_copy(quantizer));
    if (kind == TSR_QUANT_IND_RANDOM)
        ok = ok && put(o, "seed", json_integer((json_int_t)opt->seed));
    if (kind == TSR_QUANT_IND_MEASURED)
        ok = ok && put(o, "loss", number(t->loss)) &&
             put(o, "sequences", json_integer((json_int_t)t->sequences)) &&
             put(o, "tokens", json_integer((json_int_t)t->tokens));
    else if (t->omega[TSR_QUANT_IND_MEASURED])
        ok = ok && put(o, "tau", tau_json(t, kind));
    ok = ok && put(o, "seconds", number(t->seconds[kind])) &&
         put(o, "omega", rows_json(t, t->omega[kind], t->layers)) &&
         (!t->expert[kind] || put(o, "experts", experts_json(t, m, t->expert[kind])));
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

json_t *tsr_quant_indicators_json(const struct tsr_quant_indicators *t, const struct tsr_model *m,
                                  const struct tsr_quant_calibration       *c,
                                  const struct tsr_quant_indicator_options *opt,
                                  const json_t                             *quantizer)
{
    json_t *o = json_object(), *bits = json_array(), *tables = json_array();
    json_t *cal = json_pack("{s:s, s:I, s:I}", "hash", c->hash, "sequences",
                            (json_int_t)c->sequences, "seqlen", (json_int_t)c->seqlen);
    bool    ok = o && bits && tables && cal && put(o, "format", json_string(FORMAT)) &&
              put(o, "model", json_string(m->hash)) &&
              put(o, "layers", json_integer((json_int_t)t->layers));
    for (uint32_t b = 0; ok && b < t->n_bits; b++)
        ok = json_array_append_new(bits, json_integer(t->bits[b])) == 0;
    for (int i = 0; ok && i < TSR_QUANT_INDICATORS; i++)
        if (t->omega[i])
            ok = json_array_append_new(tables, table_json(t, m, (enum tsr_indicator)i, opt,
                                                          quantizer)) == 0;
    /* put() takes the references in any case */
    ok = put(o, "calibration", cal) && ok;
    ok = put(o, "bits", bits) && ok;
    ok = put(o, "tables", tables) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}
