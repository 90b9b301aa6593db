/* A document from a file or a text: what it must be at its top. */
#include "config/doc.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>

static tsr_status parse(struct tsr_config_doc *doc, const char *name, const char *text,
                        uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_config_source *s = tsr_config_doc_source(doc, name, text, len, false);
    if (!s)
        return tsr_fail_nomem(err, len, name);
    doc->path = s->name;
    uint64_t                before = tsr_config_diag_errors(d);
    struct tsr_config_node *root = NULL;
    struct tsr_config_mark  top = { s, 1, 1, 1 };
    if (tsr_config_yaml_check_text(s, d))
        TSR_TRY(tsr_config_yaml_parse(doc, s, 0, &root, d, err));
    if (tsr_config_diag_errors(d) == before && (!root || root->kind == TSR_CONFIG_NODE_NULL))
        tsr_config_diag_error(d, &top, "a job begins with 'version: 1'", "the file is empty");
    else if (root && root->kind != TSR_CONFIG_NODE_MAP)
        tsr_config_diag_error(d, &root->mark, "a job begins with 'version: 1'",
                              "the file must be a mapping of keys to values, not a %s",
                              root->kind == TSR_CONFIG_NODE_LIST ? "list" : "single value");
    if (tsr_config_diag_errors(d) != before)
        return tsr_config_diag_status(d, err);
    doc->root = root;
    return TSR_OK;
}

tsr_status tsr_config_doc_parse(struct tsr_config_doc **out, const char *name, const char *text,
                                uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    *out = NULL;
    if (len > TSR_YAML_BYTES)
        return tsr_fail(err, TSR_E_INPUT, "%s: %llu bytes, more than the limit of %u", name,
                        (unsigned long long)len, TSR_YAML_BYTES);
    struct tsr_config_doc *doc = tsr_new(1, sizeof *doc);
    if (!doc)
        return tsr_fail_nomem(err, sizeof *doc, name);
    tsr_status st = parse(doc, name, text, len, d, err);
    if (st == TSR_OK)
        *out = doc;
    else
        tsr_config_doc_destroy(doc);
    return st;
}

tsr_status tsr_config_doc_load(struct tsr_config_doc **doc, const char *path, struct tsr_diag *d,
                               struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    *doc = NULL;
    TSR_TRY(tsr_file_slurp(path, TSR_YAML_BYTES, &text, &len, err));
    tsr_status st = tsr_config_doc_parse(doc, path, text, len, d, err);
    free(text);
    return st;
}
