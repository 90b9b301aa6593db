/* A model of which only config.json is there: its family and sizes. */
#include "cli/inspect/inspect.h"

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"

#include <stdlib.h>

#define CONFIG_CAP   (UINT64_C(16) << 20)
#define CONFIG_DEPTH 64

tsr_status tsr_inspect_config(const char *path, json_t **out, struct tsr_err *err)
{
    struct tsr_model_config c;
    json_t                 *config = NULL, *j;
    char                   *text;
    uint64_t                len;
    TSR_TRY(tsr_file_slurp(path, CONFIG_CAP, &text, &len, err));
    tsr_status st = tsr_json_parse(&config, path, text, len, CONFIG_DEPTH, err);
    if (st == TSR_OK)
        st = tsr_model_config_parse(&c, path, text, len, err);
    free(text);
    if (st != TSR_OK) {
        json_decref(config);
        return st;
    }
    const struct tsr_model_hparams *h = &c.hp;
    j = json_pack("{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "path", path,
                  "config_alone", 1, "family", c.family->name, "layers", (json_int_t)h->layers,
                  "hidden", (json_int_t)h->hidden, "ffn", (json_int_t)h->ffn, "heads",
                  (json_int_t)h->heads, "kv_heads", (json_int_t)h->kv_heads, "head_dim",
                  (json_int_t)h->head_dim, "vocab", (json_int_t)h->vocab, "max_positions",
                  (json_int_t)h->max_positions, "tied", h->tied);
    st = j ? tsr_inspect_config_family(&c, config, j, err) : tsr_fail_nomem(err, 0, path);
    json_decref(config);
    tsr_model_config_free(&c);
    if (st == TSR_OK)
        *out = j;
    else
        json_decref(j);
    return st;
}
