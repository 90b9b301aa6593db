/* The types of tensors in a GGUF file that is written: what is asked for, and what holds a matrix. */
#include "checkpoint/export/gguf_out.h"

#include "base/f16.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    uint32_t    type, ftype; /* general.file_type */
} choices[] = {
    [TSR_EXPORT_GGUF_AUTO] = { "auto", TSR_GGUF_OUT_F16, 1 },
    [TSR_EXPORT_GGUF_F16] = { "f16", TSR_GGUF_OUT_F16, 1 },
    [TSR_EXPORT_GGUF_Q8_0] = { "q8_0", TSR_GGUF_OUT_Q8_0, 7 },
    [TSR_EXPORT_GGUF_Q4_0] = { "q4_0", TSR_GGUF_OUT_Q4_0, 2 },
    [TSR_EXPORT_GGUF_MXFP4] = { "mxfp4", TSR_GGUF_OUT_MXFP4, 38 },
};

tsr_status tsr_export_gguf_choose(struct tsr_export *x, enum tsr_export_gguf_choice *choice)
{
    const char *want = x->opt->type && *x->opt->type ? x->opt->type : "auto";
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (strcasecmp(choices[i].name, want) == 0) {
            *choice = (enum tsr_export_gguf_choice)i;
            return TSR_OK;
        }
    }
    if (toupper((unsigned char)want[0]) == 'Q' && strlen(want) >= 4 && want[2] == '_' &&
        toupper((unsigned char)want[3]) == 'K')
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: type %.20s is a K-quant, which is read but not written; q8_0, q4_0, "
                        "mxfp4 and f16 are, or quantize an f16 file with llama-quantize",
                        x->path, want);
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: type '%.40s' is not known; auto, f16, q8_0, q4_0 and mxfp4 are", x->path,
                    want);
}

uint32_t tsr_export_gguf_ftype(enum tsr_export_gguf_choice choice)
{
    return choices[choice].ftype;
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

static tsr_status not_exact(struct tsr_export *x, enum tsr_export_gguf_choice choice,
                            const struct tsr_export_module *m)
{
    static const char *const what[] = { [TSR_EXPORT_GGUF_AUTO] = "Q4_0, Q8_0, IQ4_NL or MXFP4",
                                        [TSR_EXPORT_GGUF_Q8_0] = "Q8_0",
                                        [TSR_EXPORT_GGUF_Q4_0] = "Q4_0",
                                        [TSR_EXPORT_GGUF_MXFP4] = "MXFP4" };
    char                     name[64];
    unsigned                 i = 0;
    while (i + 1 < m->v->n && !m->v->packed[i])
        i++;
    tsr_model_format_name(&m->v->packed[i]->format, name, sizeof name);
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: \"%s\" is packed as %s, which %s does not hold exactly; "
                    "--allow-requantize quantizes it a second time, --type f16 widens it",
                    x->path, m->v->module, name, what[choice]);
}

tsr_status tsr_export_gguf_matrix_type(struct tsr_export *x, enum tsr_export_gguf_choice choice,
                                       const struct tsr_export_module *m, uint32_t *type,
                                       bool *exact)
{
    bool     packed = m->form != TSR_EXPORT_FORM_DENSE, fits = m->v->cols % TSR_GGUF_OUT_BLOCK == 0;
    uint32_t want = choices[choice].type;
    *exact = false;
    if (m->v->kind == TSR_MODEL_STORED_LINEAR &&
        (m->v->id == TSR_MODEL_ROUTER || m->v->id == TSR_MODEL_SHARED_ROUTER)) {
        *type = TSR_GGUF_OUT_F32; /* as llama.cpp has it, whatever the other types are */
        return TSR_OK;
    }
    if (choice == TSR_EXPORT_GGUF_F16) {
        *type = TSR_GGUF_OUT_F16;
    } else if (!packed) {
        bool keep = choice == TSR_EXPORT_GGUF_AUTO || m->v->kind != TSR_MODEL_STORED_LINEAR;
        if (!keep && !fits)
            return tsr_fail(x->err, TSR_E_INPUT,
                            "%s: \"%s\" has %llu columns, and %s takes them in blocks of 32; "
                            "--type f16 takes any number",
                            x->path, m->v->module, (unsigned long long)m->v->cols,
                            choices[choice].name);
        *type = keep ? tsr_export_gguf_dense_type(m->dtype) : want;
    } else if (choice == TSR_EXPORT_GGUF_AUTO) {
        static const uint32_t order[] = { TSR_GGUF_OUT_MXFP4, TSR_GGUF_OUT_IQ4_NL,
                                          TSR_GGUF_OUT_Q4_0, TSR_GGUF_OUT_Q8_0 };
        for (size_t i = 0; i < 4 && !*exact; i++) {
            *exact = tsr_export_gguf_holds(order[i], m);
            *type = order[i];
        }
    } else {
        *exact = tsr_export_gguf_holds(want, m);
        *type = want;
    }
    if (packed && choice != TSR_EXPORT_GGUF_F16 && !*exact && !(x->opt->allow_requantize && fits))
        return not_exact(x, choice, m);
    return TSR_OK;
}
