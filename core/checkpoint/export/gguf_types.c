/* The types of tensors in a GGUF file that is written: what is asked for, and what holds a matrix. */
#include "checkpoint/export/gguf_out.h"

#include "base/f16.h"
#include "checkpoint/export/gguf_super.h"
#include "checkpoint/gguf/gguf.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    uint32_t    type, ftype; /* general.file_type */
} choices[] = {
    [TSR_EXPORT_GGUF_AUTO] = { "auto", TSR_GGUF_OUT_F16, 0 }, /* that of its tensors */
    [TSR_EXPORT_GGUF_F16] = { "f16", TSR_GGUF_OUT_F16, 1 },
    [TSR_EXPORT_GGUF_Q8_0] = { "q8_0", TSR_GGUF_OUT_Q8_0, 7 },
    [TSR_EXPORT_GGUF_Q4_0] = { "q4_0", TSR_GGUF_OUT_Q4_0, 2 },
    [TSR_EXPORT_GGUF_MXFP4] = { "mxfp4", TSR_GGUF_OUT_MXFP4, 38 },
    [TSR_EXPORT_GGUF_Q3_K_M] = { "q3_k_m", TSR_GGUF_T_Q3_K, 12 },
    [TSR_EXPORT_GGUF_Q4_K_M] = { "q4_k_m", TSR_GGUF_T_Q4_K, 15 },
    [TSR_EXPORT_GGUF_Q5_K_M] = { "q5_k_m", TSR_GGUF_T_Q5_K, 17 },
    [TSR_EXPORT_GGUF_Q6_K] = { "q6_k", TSR_GGUF_T_Q6_K, 18 },
    [TSR_EXPORT_GGUF_MXFP4_MOE] = { "mxfp4_moe", TSR_GGUF_T_MXFP4, 38 },
};

tsr_status tsr_export_gguf_choose(const char *type, enum tsr_export_gguf_choice *choice,
                                  struct tsr_err *err)
{
    const char *want = type && *type ? type : "auto";
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (strcasecmp(choices[i].name, want) == 0) {
            *choice = (enum tsr_export_gguf_choice)i;
            return TSR_OK;
        }
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "type '%.40s' is not known; auto, f16, q8_0, q4_0, mxfp4, q3_k_m, q4_k_m, "
                    "q5_k_m, q6_k and mxfp4_moe are",
                    want);
}

/* general.file_type of a file whose matrices have the type; of types with several mixes, that of M. */
static uint32_t ftype_of(uint32_t type)
{
    static const struct {
        uint32_t type, ftype;
    } types[] = {
        { TSR_GGUF_OUT_F32, 0 },   { TSR_GGUF_OUT_F16, 1 },   { TSR_GGUF_T_Q4_0, 2 },
        { TSR_GGUF_T_Q4_1, 3 },    { TSR_GGUF_T_Q8_0, 7 },    { TSR_GGUF_T_Q5_0, 8 },
        { TSR_GGUF_T_Q5_1, 9 },    { TSR_GGUF_T_Q2_K, 10 },   { TSR_GGUF_T_Q3_K, 12 },
        { TSR_GGUF_T_Q4_K, 15 },   { TSR_GGUF_T_Q5_K, 17 },   { TSR_GGUF_T_Q6_K, 18 },
        { TSR_GGUF_T_IQ4_NL, 25 }, { TSR_GGUF_OUT_BF16, 32 }, { TSR_GGUF_OUT_MXFP4, 38 }
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return types[i].ftype;
    return 1024; /* llama.cpp's number for one that the tensors tell */
}

uint32_t tsr_export_gguf_ftype(enum tsr_export_gguf_choice         choice,
                               const struct tsr_export_gguf_entry *v, uint64_t n)
{
    double   weights[TSR_GGUF_T_MXFP4 + 1] = { 0 };
    uint32_t most = TSR_GGUF_OUT_F32;
    if (choice != TSR_EXPORT_GGUF_AUTO)
        return choices[choice].ftype;
    for (uint64_t i = 0; i < n; i++)
        if (v[i].rank > 1)
            weights[v[i].type] += (double)v[i].dims[0] * (double)v[i].dims[1] *
                                  (double)(v[i].rank > 2 ? v[i].dims[2] : 1);
    for (uint32_t t = 0; t < sizeof weights / sizeof *weights; t++)
        most = weights[t] > weights[most] ? t : most;
    return ftype_of(most);
}

uint32_t tsr_export_gguf_dense_type(uint32_t dtype)
{
    return dtype == TSR_F16    ? TSR_GGUF_OUT_F16
           : dtype == TSR_BF16 ? TSR_GGUF_OUT_BF16
                               : TSR_GGUF_OUT_F32;
}

static uint32_t dtype_of(uint32_t type)
{
    return type == TSR_GGUF_OUT_F16    ? TSR_F16
           : type == TSR_GGUF_OUT_BF16 ? TSR_BF16
           : type == TSR_GGUF_OUT_F32  ? TSR_F32
                                       : 0;
}

bool tsr_export_gguf_is_float(uint32_t type)
{
    return dtype_of(type) != 0;
}

tsr_status tsr_export_gguf_not_held(struct tsr_export *x, const char *name, uint64_t row)
{
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: \"%s\": row %llu has a value that is not finite or too large for the "
                    "format; --type auto keeps what is not packed in its own dtype",
                    x->path, name, (unsigned long long)row);
}

tsr_status tsr_export_gguf_put_floats(struct tsr_export *x, const char *name, uint32_t type,
                                      uint64_t row, const float *v, uint64_t n, unsigned char *dst)
{
    uint32_t dtype = dtype_of(type);
    uint64_t size = tsr_dtype_size(dtype);
    for (uint64_t k = 0; k < n; k++)
        if (!tsr_export_put(dst + k * size, dtype, v[k], &x->report->rounded))
            return tsr_export_gguf_not_held(x, name, row);
    return TSR_OK;
}

bool tsr_export_gguf_is_mix(enum tsr_export_gguf_choice choice)
{
    return choice >= TSR_EXPORT_GGUF_Q3_K_M;
}

static tsr_status not_exact(struct tsr_export *x, uint32_t type, const struct tsr_export_module *m)
{
    char     name[64], buf[16];
    unsigned i = 0;
    while (i + 1 < m->v->n && !m->v->packed[i])
        i++;
    tsr_model_format_name(&m->v->packed[i]->format, name, sizeof name);
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: \"%s\" is packed as %s, which %s%s exactly; "
                    "--allow-requantize quantizes it a second time, --type f16 widens it",
                    x->path, m->v->module, name,
                    type == TSR_GGUF_OUT_F16 ? "no type of gguf" : tsr_gguf_type_name(type, buf),
                    type == TSR_GGUF_OUT_F16 ? " holds" : " does not hold");
}

/* The type of gguf that holds a packed matrix exactly, or F16. */
static uint32_t type_that_holds(const struct tsr_export_module *m)
{
    static const uint32_t order[] = { TSR_GGUF_OUT_MXFP4, TSR_GGUF_OUT_IQ4_NL, TSR_GGUF_OUT_Q4_0,
                                      TSR_GGUF_T_Q5_0,    TSR_GGUF_OUT_Q8_0,   TSR_GGUF_T_Q4_K,
                                      TSR_GGUF_T_Q5_K,    TSR_GGUF_T_Q6_K,     TSR_GGUF_T_Q3_K,
                                      TSR_GGUF_T_Q2_K,    TSR_GGUF_T_Q4_1,     TSR_GGUF_T_Q5_1 };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (tsr_export_gguf_holds(order[i], m))
            return order[i];
    return TSR_GGUF_OUT_F16;
}

/* What is asked for; *fits: the columns are whole blocks of it. */
static uint32_t type_of(const struct tsr_export *x, enum tsr_export_gguf_choice choice,
                        const struct tsr_export_module *m, const char *name, bool tied, bool *fits)
{
    bool packed = m->form != TSR_EXPORT_FORM_DENSE, linear = m->v->kind == TSR_MODEL_STORED_LINEAR;
    *fits = true;
    if (linear && (m->v->id == TSR_MODEL_ROUTER || m->v->id == TSR_MODEL_SHARED_ROUTER))
        return TSR_GGUF_OUT_F32; /* as llama.cpp has it, whatever the other types are */
    if (tsr_export_gguf_is_mix(choice))
        return tsr_export_gguf_mix_type(x, choice, name, m->v->layer, m->v->cols, tied);
    if (choice == TSR_EXPORT_GGUF_F16)
        return TSR_GGUF_OUT_F16;
    if (!packed && (choice == TSR_EXPORT_GGUF_AUTO || !linear))
        return tsr_export_gguf_dense_type(m->dtype);
    *fits = m->v->cols % TSR_GGUF_OUT_BLOCK == 0;
    return choice == TSR_EXPORT_GGUF_AUTO ? type_that_holds(m) : choices[choice].type;
}

tsr_status tsr_export_gguf_matrix_type(struct tsr_export *x, enum tsr_export_gguf_choice choice,
                                       const struct tsr_export_module *m, const char *name,
                                       bool tied, struct tsr_export_gguf_entry *e)
{
    bool packed = m->form != TSR_EXPORT_FORM_DENSE, fits;
    e->type = type_of(x, choice, m, name, tied, &fits);
    e->exact = false;
    if (!fits && !packed)
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: \"%s\" has %llu columns, and %s takes them in blocks of 32; "
                        "--type f16 takes any number",
                        x->path, m->v->module, (unsigned long long)m->v->cols,
                        choices[choice].name);
    if (tsr_export_gguf_is_float(e->type) && choice != TSR_EXPORT_GGUF_AUTO)
        return TSR_OK;
    e->exact = packed && tsr_export_gguf_holds(e->type, m);
    e->fit = !e->exact && tsr_export_gguf_levels(e->type) &&
             (tsr_export_gguf_is_mix(choice) || tsr_export_gguf_has_inputs(x));
    if (packed && !e->exact && !(x->opt->allow_requantize && fits))
        return not_exact(x, e->type, m);
    return TSR_OK;
}
