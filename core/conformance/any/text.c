/* The texts of the descriptor. */
#include "conformance/any/any.h"
#include "plugin/semver.h"

#include <string.h>

static bool alnum(char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

void tsr_any_semver(struct tsr_conformance_case *c)
{
    if (!tsr_plugin_semver_valid(c->plugin->version))
        tsr_conformance_rule_fail(c, "its version is \"%.80s\"; write MAJOR.MINOR.PATCH",
                                  c->plugin->version);
}

/* ---- licences --------------------------------------------------------------------------- */

/* expression = term { (AND | OR) term }; term = "(" expression ")" | id ["+"] ["WITH" id] */
struct spdx {
    const char *at;
    int         depth;
};

static void blanks(struct spdx *p)
{
    while (*p->at == ' ')
        p->at++;
}

static bool word(struct spdx *p, const char *w)
{
    size_t n = strlen(w);
    blanks(p);
    if (strncmp(p->at, w, n) != 0 || alnum(p->at[n]) || p->at[n] == '-' || p->at[n] == '.')
        return false;
    p->at += n;
    return true;
}

static bool id(struct spdx *p)
{
    size_t n = 0;
    blanks(p);
    while (alnum(p->at[n]) || p->at[n] == '-' || p->at[n] == '.' || (p->at[n] == ':' && n > 0))
        n++;
    if (n == 0 || word(p, "AND") || word(p, "OR") || word(p, "WITH"))
        return false;
    p->at += n;
    return true;
}

static bool expression(struct spdx *p);

static bool term(struct spdx *p)
{
    blanks(p);
    if (*p->at == '(') {
        p->at++;
        if (++p->depth > 16 || !expression(p))
            return false;
        blanks(p);
        p->depth--;
        return *p->at == ')' && *p->at++;
    }
    if (!id(p))
        return false;
    if (*p->at == '+')
        p->at++;
    return !word(p, "WITH") || id(p);
}

static bool expression(struct spdx *p)
{
    do {
        if (!term(p))
            return false;
    } while (word(p, "AND") || word(p, "OR"));
    return true;
}

void tsr_any_spdx(struct tsr_conformance_case *c)
{
    struct spdx p = { c->plugin->license, 0 };
    bool        ok = expression(&p);
    blanks(&p);
    if (!ok || *p.at)
        tsr_conformance_rule_fail(
            c,
            "its license is \"%.80s\", which ends to be an SPDX expression at byte "
            "%llu; spdx.org/licenses lists the ids, LicenseRef-NAME is for others",
            c->plugin->license, (unsigned long long)(p.at - c->plugin->license));
}

/* ---- sentences -------------------------------------------------------------------------- */

#define MAX_SENTENCE 240u

static void sentence(struct tsr_conformance_case *c, const char *what, const char *name,
                     const char *s)
{
    size_t n = strlen(s);
    if (n == 0)
        tsr_conformance_rule_fail(c, "the %s%s%s is empty", what, *name ? " of " : "", name);
    if (s[n - 1] != '.' || n > MAX_SENTENCE)
        tsr_conformance_rule_fail(c, "the %s%s%s is not a sentence of at most %u bytes: \"%.60s\"",
                                  what, *name ? " of " : "", name, MAX_SENTENCE, s);
}

void tsr_any_sentences(struct tsr_conformance_case *c)
{
    sentence(c, "summary", "", c->component->summary);
    for (uint64_t i = 0; i < c->component->n_options; i++)
        sentence(c, "help", c->component->options[i].name, c->component->options[i].help);
}
