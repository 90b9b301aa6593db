/* The table of writers. */
#include "checkpoint/import/import.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const struct tsr_importer *const table[] = { &tsr_importer_gptq,  &tsr_importer_awq,
                                                    &tsr_importer_ct,    &tsr_importer_bnb,
                                                    &tsr_importer_mxfp4, &tsr_importer_fp8 };
#define N_TABLE (sizeof table / sizeof *table)

const char *tsr_model_checkpoint_get(uint64_t i, const char **summary)
{
    if (i >= N_TABLE)
        return NULL;
    *summary = table[i]->summary;
    return table[i]->method;
}

static tsr_status unknown_method(const char *file, const char *method, struct tsr_err *err)
{
    char   known[160] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_TABLE && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
                               table[i]->method);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: \"quantization_config\": \"quant_method\" \"%.40s\" cannot be read; known "
                    "are %s; use the original model's folder and quantize it here",
                    file, method, known);
}

tsr_status tsr_import_open(struct tsr_import *im, const json_t *config, const char *file,
                           struct tsr_checkpoint_shards *shards, struct tsr_err *err)
{
    /* the first writers named no method; all of them wrote GPTQ */
    const char *method = "gptq";
    *im = (struct tsr_import){ .config = config, .shards = shards, .err = err };
    if (!json_is_object(config))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"quantization_config\" is not an object", file);
    TSR_TRY(tsr_json_str(config, file, "quant_method", false, &method, err));
    for (size_t i = 0; i < N_TABLE; i++)
        if (strcmp(table[i]->method, method) == 0)
            im->kind = table[i];
    if (!im->kind)
        return unknown_method(file, method, err);
    size_t n = strlen(file) + strlen(method) + 40;
    if (!(im->where = tsr_new(n, 1)))
        return tsr_fail_nomem(err, n, file);
    (void)snprintf(im->where, n, "%s: \"quantization_config\" (%s)", file, method);
    return im->kind->open(im);
}

void tsr_import_say(struct tsr_import *im)
{
    for (unsigned i = 0; i < TSR_IMPORT_REASONS && im->reason[i].text; i++)
        tsr_logf(TSR_LOG_WARN, "%s: of %llu quantized linears %llu: %s", im->where,
                 (unsigned long long)im->linears, (unsigned long long)im->reason[i].n,
                 im->reason[i].text);
}

void tsr_import_close(struct tsr_import *im)
{
    if (im->own && im->kind->close)
        im->kind->close(im->own);
    free(im->where);
    *im = (struct tsr_import){ 0 };
}

tsr_status tsr_import_linear(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             struct tsr_model_packed **out)
{
    *out = NULL;
    tsr_status st = im->kind->read(im, name, rows, cols, out);
    if (st != TSR_OK) {
        tsr_model_packed_destroy(*out);
        *out = NULL;
        return st;
    }
    im->linears += *out != NULL && !im->again;
    return TSR_OK;
}
