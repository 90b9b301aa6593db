/* Families: the kind, the rules about the file itself, and the table of all. */
#include "conformance/family/family.h"

#include <string.h>

static void reads(struct tsr_conformance_case *c)
{
    (void)tsr_family_under_check(c);
}

/* The i-th built-in family; NULL past the last. */
static const struct tsr_model_family *built_in(struct tsr_conformance_case *c, uint64_t i)
{
    const struct tsr_model_family *f = NULL;
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    if (tsr_model_family_at(tsr_model_family_added() + i, &f, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "%s", e.text);
    return f && !*f->hash ? f : NULL;
}

static void name(struct tsr_conformance_case *c)
{
    const struct tsr_model_family *f = tsr_family_under_check(c), *other;
    if (!tsr_conformance_text_name_ok(f->name, TSR_FAMILY_WORD))
        tsr_conformance_rule_fail(c, "the name is \"%.60s\"", f->name);
    for (uint64_t i = 0; (other = built_in(c, i)); i++)
        if (strcmp(other->name, f->name) == 0)
            tsr_conformance_rule_fail(c, "the name \"%s\" is that of a built-in family", f->name);
}

static void summary(struct tsr_conformance_case *c)
{
    const struct tsr_model_family *f = tsr_family_under_check(c);
    if (strlen(f->summary) < 3 || strchr(f->summary, '\n'))
        tsr_conformance_rule_fail(c, "the summary is \"%.60s\"", f->summary);
}

static const char *common(const char *const *a, const char *const *b)
{
    for (; *a; a++)
        for (const char *const *other = b; *other; other++)
            if (strcmp(*a, *other) == 0)
                return *a;
    return NULL;
}

static void models(struct tsr_conformance_case *c)
{
    const struct tsr_model_family *f = tsr_family_under_check(c), *other;
    for (uint64_t i = 0; (other = built_in(c, i)); i++) {
        const char *word = common(f->architectures, other->architectures);
        if (!word)
            word = common(f->model_types, other->model_types);
        if (word)
            tsr_conformance_rule_fail(c, "\"%s\" is of the built-in family %s already", word,
                                      other->name);
    }
}

static void golden(struct tsr_conformance_case *c)
{
    struct tsr_family_golden g;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    if (tsr_family_golden_read(&g, c->path, &e.err) != TSR_OK)
        tsr_conformance_rule_fail(c, "%s", e.text);
}

#define RAW (TSR_CONFORMANCE_RULE_FILE | TSR_CONFORMANCE_RULE_RAW)

static const struct tsr_conformance_rule rules[] = {
    { "family-reads", "The file is a family: its keys are known, and what they say fits together.",
      RAW, 0, reads },
    { "family-name",
      "A family's name has 1 to 15 lower-case letters, digits, '_' and '-', a letter first, and is "
      "no built-in family's.",
      RAW, 0, name },
    { "family-summary", "The summary says in one line which models the family is for.", RAW, 0,
      summary },
    { "family-models",
      "No built-in family has one of the architectures or model types: an installed file comes "
      "after those.",
      RAW, 0, models },
    { "family-golden",
      "NAME.golden.json has the author's program, a model, cases of tokens with logits, and a "
      "tolerance with its reason.",
      RAW, 0, golden },
    { "family-binds",
      "The golden's model is one of this family, and the file names or ignores each of its "
      "tensors.",
      RAW, 60, tsr_family_rule_binds },
    { "family-vectors",
      "No norm or bias of the golden's model has equal elements only: such a vector cannot show "
      "that it is used at the wrong place.",
      RAW, 60, tsr_family_rule_vectors },
    { "family-window",
      "A case of the golden has more tokens than the narrowest window of its model.", RAW, 60,
      tsr_family_rule_window },
    { "family-logits",
      "The logits of every case differ from the golden's by at most the tolerance, in parts of "
      "their range.",
      RAW, 120, tsr_family_rule_logits },
};

const struct tsr_conformance_kind_rules tsr_family_rules = {
    .kind = TSR_FAMILY_FORMAT,
    .noun = "family",
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
};
