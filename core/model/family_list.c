/* The families that are known: added ones, files of configs/families, which are part of the program, and those that
 * the user installed, in this order.  A built-in one is read when it is first wanted, the installed ones when no other
 * fits; what was read stays for the life of the process. */
#include "model/family.h"
#include "model/family_internal.h"
#include "model/family_text.h"

#include "base/file.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (UINT64_C(1) << 20)
#define ADDED 64

static pthread_mutex_t           lock = PTHREAD_MUTEX_INITIALIZER;
static struct tsr_model_family  *added[ADDED];
static unsigned                  n_added;
static struct tsr_model_family  *read_already[TSR_FAMILY_BUILT_IN];
static struct tsr_model_family **installed; /* NULL: not read yet, or none */
static uint64_t                  n_installed;
static bool                      installed_read;

/* lock is held */
static tsr_status read_installed(struct tsr_err *err)
{
    if (installed_read)
        return TSR_OK;
    TSR_TRY(tsr_model_family_installed(&installed, &n_installed, err));
    installed_read = true;
    return TSR_OK;
}

/* lock is held */
static tsr_status built_in(unsigned i, const struct tsr_model_family **f, struct tsr_err *err)
{
    const struct tsr_model_family_text *t = &tsr_model_family_texts[i];
    if (!read_already[i]) {
        struct tsr_diag *d;
        TSR_TRY(tsr_config_diag_create(&d, err));
        tsr_status st =
            tsr_model_family_read(&read_already[i], t->name, t->text, strlen(t->text), d, err);
        tsr_config_diag_destroy(d);
        TSR_TRY(st);
    }
    *f = read_already[i];
    return TSR_OK;
}

static bool lists(const char *const *list, const char *word)
{
    for (; *list; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

static bool is_for(const struct tsr_model_family *f, const char *architecture, const char *type)
{
    return architecture ? lists(f->architectures, architecture) : lists(f->model_types, type);
}

static tsr_status find(const struct tsr_model_family **f, const char *architecture,
                       const char *type, struct tsr_err *err)
{
    for (unsigned i = n_added; i-- > 0;)
        if (is_for(added[i], architecture, type)) {
            *f = added[i];
            return TSR_OK;
        }
    for (unsigned i = 0; i < TSR_FAMILY_BUILT_IN; i++) {
        const struct tsr_model_family *one;
        /* a file without the word is not read */
        if (!strstr(tsr_model_family_texts[i].text, architecture ? architecture : type))
            continue;
        TSR_TRY(built_in(i, &one, err));
        if (is_for(one, architecture, type)) {
            *f = one;
            return TSR_OK;
        }
    }
    TSR_TRY(read_installed(err));
    for (uint64_t i = 0; i < n_installed; i++)
        if (is_for(installed[i], architecture, type)) {
            *f = installed[i];
            return TSR_OK;
        }
    return TSR_OK;
}

static bool takes_window(const struct tsr_model_family *f)
{
    for (unsigned i = 0; i < f->gguf.n_values; i++)
        if (f->gguf.value[i].key && strcmp(f->gguf.value[i].key, "attention.sliding_window") == 0)
            return true;
    return false;
}

/* How well a family fits a file of that architecture and kind; 0: not at all. */
static int fit(const struct tsr_model_family *one, const char *architecture,
               enum tsr_model_gguf_kind kind, bool windows)
{
    enum tsr_model_gguf_kind own = !one->experts.is ? TSR_MODEL_GGUF_DENSE
                                   : one->experts.router == TSR_MODEL_ROUTER_SIGMOID
                                       ? TSR_MODEL_GGUF_SIGMOID
                                       : TSR_MODEL_GGUF_EXPERTS;
    if (!lists(one->gguf.architectures, architecture))
        return 0;
    return 1 + 2 * (own == kind) + (takes_window(one) == windows);
}

/* The best one, an added one before those built in. */
static tsr_status find_gguf(const struct tsr_model_family **f, const char *architecture,
                            enum tsr_model_gguf_kind kind, bool windows, struct tsr_err *err)
{
    int best = 0;
    for (unsigned i = n_added; i-- > 0;)
        if (fit(added[i], architecture, kind, windows) > best) {
            *f = added[i];
            best = fit(added[i], architecture, kind, windows);
        }
    if (best >= 3) /* an added family of that kind */
        return TSR_OK;
    for (unsigned i = 0; i < TSR_FAMILY_BUILT_IN && best < 4; i++) {
        const struct tsr_model_family *one;
        if (!strstr(tsr_model_family_texts[i].text, architecture))
            continue;
        TSR_TRY(built_in(i, &one, err));
        if (fit(one, architecture, kind, windows) > best) {
            *f = one;
            best = fit(one, architecture, kind, windows);
        }
    }
    if (best > 0)
        return TSR_OK;
    TSR_TRY(read_installed(err));
    for (uint64_t i = 0; i < n_installed; i++)
        if (fit(installed[i], architecture, kind, windows) > best) {
            *f = installed[i];
            best = fit(installed[i], architecture, kind, windows);
        }
    return TSR_OK;
}

tsr_status tsr_model_family_find_gguf(const struct tsr_model_family **f, const char *architecture,
                                      enum tsr_model_gguf_kind kind, bool windows,
                                      struct tsr_err *err)
{
    *f = NULL;
    pthread_mutex_lock(&lock);
    tsr_status st = find_gguf(f, architecture, kind, windows, err);
    pthread_mutex_unlock(&lock);
    return st;
}

tsr_status tsr_model_family_find(const struct tsr_model_family **f, const char *architecture,
                                 const char *model_type, struct tsr_err *err)
{
    *f = NULL;
    pthread_mutex_lock(&lock);
    tsr_status st = find(f, architecture, model_type, err);
    pthread_mutex_unlock(&lock);
    return st;
}

unsigned tsr_model_family_added(void)
{
    pthread_mutex_lock(&lock);
    unsigned n = n_added;
    pthread_mutex_unlock(&lock);
    return n;
}

tsr_status tsr_model_family_at(uint64_t i, const struct tsr_model_family **f, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    *f = NULL;
    pthread_mutex_lock(&lock);
    if (i < n_added)
        *f = added[i];
    else if (i - n_added < TSR_FAMILY_BUILT_IN)
        st = built_in((unsigned)(i - n_added), f, err);
    else if ((st = read_installed(err)) == TSR_OK &&
             i - n_added - TSR_FAMILY_BUILT_IN < n_installed)
        *f = installed[i - n_added - TSR_FAMILY_BUILT_IN];
    pthread_mutex_unlock(&lock);
    return st;
}

tsr_status tsr_model_family_add(const char *path, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_model_family *f;
    char                    *text;
    uint64_t                 len;
    TSR_TRY(tsr_file_slurp(path, BYTES, &text, &len, err));
    tsr_status st = tsr_model_family_read(&f, path, text, len, d, err);
    if (st == TSR_OK)
        tsr_hash_bytes(text, len, f->hash);
    free(text);
    TSR_TRY(st);
    pthread_mutex_lock(&lock);
    if (n_added < ADDED)
        added[n_added++] = f;
    else
        st = tsr_fail(err, TSR_E_INPUT, "%s: more than %d families were added", path, ADDED);
    pthread_mutex_unlock(&lock);
    if (st != TSR_OK)
        tsr_model_family_destroy(f);
    return st;
}
