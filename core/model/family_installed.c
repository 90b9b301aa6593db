/* The families that the user installed: FOLDER/families/NAME.yaml (base/user.h). */
#include "model/family_internal.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/user.h"

#include <stdlib.h>

#define BYTES (UINT64_C(1) << 20)

static tsr_status read_one(struct tsr_model_family **f, const char *name, struct tsr_err *err)
{
    char            *path = NULL, *text = NULL;
    uint64_t         len = 0;
    struct tsr_diag *d = NULL;
    *f = NULL;
    TSR_TRY(tsr_user_file(&path, TSR_USER_FAMILIES, name, err));
    if (!path) /* it went since the folder was read */
        return TSR_OK;
    tsr_status st = tsr_config_diag_create(&d, err);
    if (st == TSR_OK)
        st = tsr_file_slurp(path, BYTES, &text, &len, err);
    if (st == TSR_OK)
        st = tsr_model_family_read(f, path, text, len, d, err);
    if (st == TSR_OK)
        tsr_hash_bytes(text, len, (*f)->hash);
    tsr_config_diag_destroy(d);
    free(text);
    free(path);
    return st;
}

tsr_status tsr_model_family_installed(struct tsr_model_family ***v, uint64_t *n,
                                      struct tsr_err *err)
{
    char   **names;
    uint64_t n_names;
    *v = NULL;
    *n = 0;
    TSR_TRY(tsr_user_files(&names, &n_names, TSR_USER_FAMILIES, err));
    tsr_status st = TSR_OK;
    if (n_names && !(*v = tsr_new(n_names, sizeof **v)))
        st = tsr_fail_nomem(err, n_names * sizeof **v, "the user's families");
    for (uint64_t i = 0; i < n_names; i++) {
        struct tsr_model_family *f = NULL;
        if (st == TSR_OK)
            st = read_one(&f, names[i], err);
        if (f)
            (*v)[(*n)++] = f;
        free(names[i]);
    }
    free(names);
    if (st == TSR_OK)
        return TSR_OK;
    for (uint64_t i = 0; i < *n; i++)
        tsr_model_family_destroy((*v)[i]);
    free(*v);
    *v = NULL;
    *n = 0;
    return st;
}
