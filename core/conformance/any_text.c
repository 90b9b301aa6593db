/* What the descriptor says about itself. */
#include "conformance/any.h"

#include <string.h>

static bool alnum(char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

/* ---- semantic versions ------------------------------------------------------------------ */

/* A number without leading zeros. */
static const char *number(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n == 0 || (n > 1 && *s == '0') ? NULL : s + n;
}

/* Identifiers between dots; numeric: those of digits only have no leading zero. */
static const char *identifiers(const char *s, bool numeric)
{
    for (;; s++) {
        size_t n = 0;
        while (alnum(s[n]) || s[n] == '-')
            n++;
        if (n == 0 || (numeric && n > 1 && *s == '0' && strspn(s, "0123456789") >= n))
            return NULL;
        s += n;
        if (*s != '.')
            return s;
    }
}

static bool semver(const char *s)
{
    for (int i = 0; i < 3; i++) {
        s = number(s);
        if (!s || (i < 2 && *s++ != '.'))
            return false;
    }
    if (*s == '-' && !(s = identifiers(s + 1, true)))
        return false;
    if (*s == '+' && !(s = identifiers(s + 1, false)))
        return false;
    return *s == '\0';
}

void tsr_any_semver(struct tsr_case *c)
{
    if (!semver(c->plugin->version))
        tsr_rule_fail(c, "its version is \"%.80s\"; write MAJOR.MINOR.PATCH", c->plugin->version);
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

void tsr_any_spdx(struct tsr_case *c)
{
    struct spdx p = { c->plugin->license, 0 };
    bool        ok = expression(&p);
    blanks(&p);
    if (!ok || *p.at)
        tsr_rule_fail(c,
                      "its license is \"%.80s\", which ends to be an SPDX expression at byte "
                      "%llu; spdx.org/licenses lists the ids, LicenseRef-NAME is for others",
                      c->plugin->license, (unsigned long long)(p.at - c->plugin->license));
}

/* ---- sentences -------------------------------------------------------------------------- */

#define MAX_SENTENCE 240u

static void sentence(struct tsr_case *c, const char *what, const char *name, const char *s)
{
    size_t n = strlen(s);
    if (n == 0)
        tsr_rule_fail(c, "the %s%s%s is empty", what, *name ? " of " : "", name);
    if (s[n - 1] != '.' || n > MAX_SENTENCE)
        tsr_rule_fail(c, "the %s%s%s is no sentence of at most %u bytes: \"%.60s\"", what,
                      *name ? " of " : "", name, MAX_SENTENCE, s);
}

void tsr_any_sentences(struct tsr_case *c)
{
    sentence(c, "summary", "", c->component->summary);
    for (uint64_t i = 0; i < c->component->n_options; i++)
        sentence(c, "help", c->component->options[i].name, c->component->options[i].help);
}
