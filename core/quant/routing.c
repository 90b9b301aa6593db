#include "quant/routing.h"

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT "tessera.calibration/1"

static const char *meta(const struct tsr_safetensors *st, const char *key)
{
    for (uint64_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta_keys[i], key) == 0)
            return st->meta_values[i];
    return NULL;
}

static bool number(const struct tsr_safetensors *st, const char *key, uint64_t *v)
{
    const char *text = meta(st, key);
    char       *end = NULL;
    if (!text || *text < '0' || *text > '9' || strlen(text) > 18)
        return false;
    *v = strtoull(text, &end, 10);
    return *end == '\0';
}

/* Tokens that an expert took; false: the file has no such expert. */
static bool tokens_of(const struct tsr_safetensors *st, uint64_t expert, uint64_t *tokens)
{
    enum tsr_site site = tsr_model_expert_site(expert, TSR_MODEL_SITE_FFN_IN);
    char          key[64];
    (void)snprintf(key, sizeof key, "%s.borrowed", TSR_MODEL_SITE_NAME(site));
    *tokens = 0;
    if (meta(st, key))
        return true;
    (void)snprintf(key, sizeof key, "%s.tokens", TSR_MODEL_SITE_NAME(site));
    return number(st, key, tokens);
}

static tsr_status read_shares(const struct tsr_safetensors *st, uint64_t layer, uint32_t experts,
                              uint32_t used, double *share, struct tsr_err *err)
{
    const char *format = meta(st, "format");
    uint64_t    at, sequences, seqlen, total, taken = 0, n = 0;
    if (!format || strcmp(format, FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a %s file", st->file.path, FORMAT);
    if (!number(st, "layer", &at) || at != layer || !number(st, "sequences", &sequences) ||
        !number(st, "seqlen", &seqlen) || !tsr_mul(sequences, seqlen, &total) || total == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its metadata are not those of layer %llu; calibrate again",
                        st->file.path, (unsigned long long)layer);
    for (uint32_t e = 0; e < experts; e++) {
        if (!tokens_of(st, e, &n) || n > total)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: has no count of tokens for expert %u of %u; calibrate this model",
                            st->file.path, e, experts);
        share[e] = (double)n / (double)total;
        taken += n;
    }
    if (tokens_of(st, experts, &n) || taken / used != total || taken % used)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its counts are not of %u experts of which each of %llu tokens took "
                        "%u; calibrate this model",
                        st->file.path, experts, (unsigned long long)total, used);
    return TSR_OK;
}

tsr_status tsr_quant_routing_read(const char *folder, uint64_t layer, uint32_t experts,
                                  uint32_t used, double *share, struct tsr_err *err)
{
    struct tsr_safetensors st;
    char                   name[48];
    (void)snprintf(name, sizeof name, "layer-%05llu.safetensors", (unsigned long long)layer);
    char *path = tsr_path_join(folder, name);
    if (!path)
        return tsr_fail_nomem(err, sizeof name, "a path");
    tsr_status rc = tsr_safetensors_open(&st, path, err);
    free(path);
    if (rc != TSR_OK)
        return rc;
    rc = read_shares(&st, layer, experts, used, share, err);
    tsr_safetensors_close(&st);
    return rc;
}
