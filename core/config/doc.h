/* config/doc.h - what parser, overrides and diagnostics share. */
#ifndef TSR_CONFIG_DOC_H
#define TSR_CONFIG_DOC_H

#include "config/config.h"

#define TSR_YAML_BYTES   (1u << 20)
#define TSR_YAML_NODES   100000u
#define TSR_YAML_DEPTH   32u
#define TSR_YAML_ALIASES 1000u
#define TSR_YAML_KEY     1000u /* bytes; libyaml cannot read longer ones back */
/* Overrides may hang a tree of full depth below a path: nothing is ever deeper. */
#define TSR_TREE_DEPTH 64u

/* Where text came from.  Lives in its doc. */
struct tsr_config_source {
    struct tsr_config_doc    *doc;
    const char               *name; /* path, "--set a.b=c" or "default" */
    const char               *text;
    uint64_t                  len;
    bool                      argument; /* no file: places have no line */
    struct tsr_config_source *next;
};

struct tsr_config_doc {
    struct block             *blocks;   /* arena */
    uint64_t                  used;     /* of the newest block */
    struct tsr_config_source *sources;  /* the newest first */
    struct tsr_config_source *defaults; /* "default", made on first use */
    struct tsr_config_node   *root;
    const char               *path;
    uint64_t                  nodes, aliases;
    struct tsr_config_doc    *also; /* a document whose nodes this one has taken over; owned */
};

/* Zeroed memory that lives as long as the doc; NULL when there is none. */
void *tsr_config_doc_alloc(struct tsr_config_doc *doc, uint64_t bytes);
char *tsr_config_doc_strndup(struct tsr_config_doc *doc, const char *s, uint64_t n);
struct tsr_config_source *tsr_config_doc_source(struct tsr_config_doc *doc, const char *name,
                                                const char *text, uint64_t len, bool argument);
struct tsr_config_node   *tsr_config_doc_node(struct tsr_config_doc *doc, enum tsr_node_kind kind,
                                              const struct tsr_config_mark *mark);
/* Adds a pair to a map or, with key NULL, an item to a list; replaces the value of a key that
 * is there.  False when out of memory. */
bool tsr_config_doc_put(struct tsr_config_doc *doc, struct tsr_config_node *into,
                        struct tsr_config_node *key, struct tsr_config_node *value);

/* Parses source text from byte `from` on into *root (NULL when there is nothing but errors in
 * d).  Returns only TSR_E_NOMEM as an error. */
tsr_status tsr_config_yaml_parse(struct tsr_config_doc *doc, const struct tsr_config_source *source,
                                 uint64_t from, struct tsr_config_node **root, struct tsr_diag *d,
                                 struct tsr_err *err);

/* Checks the text for what YAML cannot contain: byte order marks, NUL, control characters, invalid
 * UTF-8.  False with one error in d. */
bool tsr_config_yaml_check_text(const struct tsr_config_source *source, struct tsr_diag *d);

/* Nesting depth of lists and mappings, 0 for a scalar; examines at most `bound`. */
unsigned tsr_config_node_height(const struct tsr_config_node *n, unsigned bound);

#endif
