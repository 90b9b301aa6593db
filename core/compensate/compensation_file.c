/* Residuals from their files: the folder of a packed model, or a part of a prepacked file. */
#include "compensate/compensation.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/kind.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/prepacked/prepacked.h"
#include "checkpoint/safetensors/folder.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_CAP (UINT64_C(1) << 20)

bool tsr_compensation_there(const char *folder)
{
    char *path = tsr_path_join(folder, TSR_COMPENSATION_INDEX);
    bool  there = path && tsr_path_exists(path);
    free(path);
    return there;
}

/* What the index says: the hashes of the file and of the packed model. */
static tsr_status read_index(const char *folder, char file[TSR_HASH_TEXT],
                             char packed[TSR_HASH_TEXT], struct tsr_err *err)
{
    char       *text, *path;
    uint64_t    len;
    json_t     *j = NULL;
    const char *format = "", *a = "", *b = "";
    if (!tsr_compensation_there(folder))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds no " TSR_COMPENSATION_INDEX ", so nothing can be compensated; "
                        "`tessera compensate ORIGINAL --packed FOLDER --text FILE` makes it",
                        folder);
    TSR_TRY(tsr_checkpoint_folder_slurp(folder, TSR_COMPENSATION_INDEX, INDEX_CAP, &text, &len,
                                        &path, err));
    tsr_status st = tsr_json_parse(&j, path, text, len, 3, err);
    if (st == TSR_OK && !json_is_object(j))
        st = tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", path);
    if (st == TSR_OK)
        st = tsr_json_str(j, path, "format", true, &format, err);
    if (st == TSR_OK && strcmp(format, TSR_COMPENSATION_FORMAT) != 0)
        st = tsr_fail(err, TSR_E_INPUT, "%s: \"format\": \"%.60s\" is not " TSR_COMPENSATION_FORMAT,
                      path, format);
    if (st == TSR_OK)
        st = tsr_json_str(j, path, "file", true, &a, err);
    if (st == TSR_OK)
        st = tsr_json_str(j, path, "packed", true, &b, err);
    if (st == TSR_OK && (strlen(a) != TSR_HASH_TEXT - 1 || strlen(b) != TSR_HASH_TEXT - 1))
        st = tsr_fail(err, TSR_E_INPUT, "%s: \"file\" or \"packed\" is not a hash", path);
    if (st == TSR_OK) {
        memcpy(file, a, TSR_HASH_TEXT);
        memcpy(packed, b, TSR_HASH_TEXT);
    }
    json_decref(j);
    free(text);
    free(path);
    return st;
}

/* The folder's packed model must be the one that the residuals are of. */
static tsr_status check_packed(const char *folder, const char *packed, struct tsr_err *err)
{
    char     now[TSR_HASH_TEXT], *text, *path;
    uint64_t len;
    TSR_TRY(tsr_checkpoint_folder_slurp(folder, TSR_PACKED_INDEX, UINT64_C(64) * INDEX_CAP, &text,
                                        &len, &path, err));
    tsr_hash_bytes(text, len, now);
    free(text);
    free(path);
    tsr_status st = TSR_OK;
    if (st == TSR_OK && strcmp(now, packed) != 0)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: its " TSR_COMPENSATION_INDEX
                      " is of another packed model than " TSR_PACKED_INDEX "; run compensate again",
                      folder);
    return st;
}

static tsr_status open_file(struct tsr_compensation *c, const char *folder,
                            const struct tsr_model *m, struct tsr_err *err)
{
    char file[TSR_HASH_TEXT], packed[TSR_HASH_TEXT], now[TSR_HASH_TEXT];
    TSR_TRY(read_index(folder, file, packed, err));
    TSR_TRY(check_packed(folder, packed, err));
    c->path = tsr_path_join(folder, TSR_COMPENSATION_FILE);
    if (!c->path)
        return tsr_fail_nomem(err, strlen(folder), folder);
    struct tsr_file f;
    TSR_TRY(tsr_checkpoint_folder_open(&f, folder, TSR_COMPENSATION_FILE, err));
    TSR_TRY(tsr_map_file(&c->map, &f, err));
    tsr_map_want(&c->map, 0, c->map.bytes);
    tsr_hash_bytes(c->map.data, c->map.bytes, now);
    if (strcmp(now, file) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its bytes are not those that " TSR_COMPENSATION_INDEX
                        " has the hash of; the file is damaged",
                        c->path);
    char *path = c->path;
    c->path = NULL; /* parse() may close c */
    tsr_status st = tsr_compensation_parse(c, path, c->map.data, c->map.bytes, packed, m, err);
    if (st == TSR_OK) {
        c->path = path;
        memcpy(c->hash, file, sizeof file);
    } else {
        free(path);
    }
    return st;
}

tsr_status tsr_compensation_open(struct tsr_compensation **out, const char *folder,
                                 const struct tsr_model *m, struct tsr_err *err)
{
    struct tsr_compensation *c = tsr_new(1, sizeof *c);
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "residuals");
    c->st.file.fd = -1;
    c->map.file.fd = -1;
    tsr_status st = open_file(c, folder, m, err);
    if (st != TSR_OK) {
        tsr_compensation_destroy(c);
        return st;
    }
    *out = c;
    return TSR_OK;
}

static tsr_status of_prepacked(struct tsr_compensation **out, const struct tsr_model *m,
                               struct tsr_err *err)
{
    const struct tsr_prepacked *p = m->prepacked;
    if (!p->compensation)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds no residuals, so nothing can be compensated; run compensate on "
                        "the packed model that it was made from, and convert that again",
                        p->path);
    struct tsr_prepacked_place at = tsr_prepacked_place(p->compensation);
    struct tsr_compensation   *c = tsr_new(1, sizeof *c);
    if (!c)
        return tsr_fail_nomem(err, sizeof *c, "residuals");
    tsr_status st = tsr_compensation_parse(c, p->path, p->data + at.at, at.bytes, NULL, m, err);
    if (st != TSR_OK) {
        free(c);
        return st;
    }
    (void)snprintf(c->hash, sizeof c->hash, "%s", at.hash);
    *out = c;
    return TSR_OK;
}

tsr_status tsr_compensation_of_model(struct tsr_compensation **c, const struct tsr_model *m,
                                     struct tsr_err *err)
{
    if (m->prepacked)
        return of_prepacked(c, m, err);
    if (!m->packed_as || strcmp(m->packed_as, TSR_PACKED_FORMAT) != 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: is not a packed model (tessera.packed/1), which residuals need; quantize it "
            "with -o FOLDER and run compensate",
            m->path);
    return tsr_compensation_open(c, m->path, m, err);
}

/* ---- headers alone ---------------------------------------------------------------------------- */

static tsr_status bits_of_prepacked(const char *path, uint32_t *bits, struct tsr_err *err)
{
    struct tsr_prepacked p = { 0 };
    TSR_TRY(tsr_prepacked_open(&p, path, err));
    tsr_status st = TSR_OK;
    if (p.compensation) {
        struct tsr_prepacked_place at = tsr_prepacked_place(p.compensation);
        st = tsr_compensation_parse_bits(path, p.data + at.at, at.bytes, bits, err);
    }
    tsr_prepacked_close(&p);
    return st;
}

tsr_status tsr_compensation_bits(const char *path, uint32_t *bits, struct tsr_err *err)
{
    struct tsr_map           map;
    enum tsr_checkpoint_kind kind;
    *bits = 0;
    TSR_TRY(tsr_checkpoint_kind(path, &kind, err));
    if (kind == TSR_CHECKPOINT_PREPACKED)
        return bits_of_prepacked(path, bits, err);
    if (!tsr_compensation_there(path))
        return TSR_OK;
    char *file = tsr_path_join(path, TSR_COMPENSATION_FILE);
    if (!file)
        return tsr_fail_nomem(err, strlen(path), path);
    tsr_status st = tsr_map_open(&map, file, err);
    if (st == TSR_OK) {
        st = tsr_compensation_parse_bits(file, map.data, map.bytes, bits, err);
        tsr_map_close(&map);
    }
    free(file);
    return st;
}
