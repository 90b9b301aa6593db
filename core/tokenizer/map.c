/* map.c - the three tables of the tokenizer: strings, 64-bit keys, prefixes.  Open
 * addressing, at most half full. */
#include "tokenizer/internal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>
#include <string.h>

static tsr_status strmap_rehash(struct tok_strmap *m, struct tsr_err *err)
{
    uint64_t  size = m->mask ? (m->mask + 1) * 2 : 1024;
    uint32_t *slot = tsr_new(size, sizeof *slot);
    if (!slot)
        return tsr_fail_nomem(err, size * sizeof *slot, "a vocabulary");
    for (uint32_t i = 0; i < m->n; i++) {
        const struct tok_entry *e = &m->entry[i];
        uint64_t                h = XXH3_64bits(m->bytes + e->at, e->len);
        while (slot[h & (size - 1)])
            h++;
        slot[h & (size - 1)] = i + 1;
    }
    free(m->slot);
    m->slot = slot;
    m->mask = size - 1;
    return TSR_OK;
}

/* The slot of a key, or the free one for it. */
static uint64_t strmap_find(const struct tok_strmap *m, const char *s, uint64_t n, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    uint64_t h = hash;
    for (;; h++) {
        uint32_t i = m->slot[h & m->mask];
        if (!i)
            return h & m->mask;
        const struct tok_entry *e = &m->entry[i - 1];
        if (e->tag == tag && e->len == n && memcmp(m->bytes + e->at, s, n) == 0)
            return h & m->mask;
    }
}

tsr_status tok_strmap_put(struct tok_strmap *m, const char *s, uint64_t n, uint32_t value,
                          uint32_t *at, struct tsr_err *err)
{
    if (n > UINT32_MAX || m->n == UINT32_MAX - 1)
        return tsr_fail(err, TSR_E_INPUT, "a vocabulary is too large");
    if (!m->mask || (uint64_t)m->n * 2 >= m->mask)
        TSR_TRY(strmap_rehash(m, err));
    uint64_t hash = XXH3_64bits(s, n);
    uint64_t slot = strmap_find(m, s, n, hash);
    if (m->slot[slot]) {
        m->entry[m->slot[slot] - 1].value = value;
        if (at)
            *at = m->slot[slot] - 1;
        return TSR_OK;
    }
    if (m->n == m->cap) {
        uint32_t          cap = m->cap ? m->cap * 2 : 512;
        struct tok_entry *entry = tsr_renew(m->entry, cap, sizeof *entry);
        if (!entry)
            return tsr_fail_nomem(err, cap * sizeof *entry, "a vocabulary");
        m->entry = entry;
        m->cap = cap;
    }
    if (n > m->cap_bytes - m->n_bytes) {
        uint64_t cap = (m->cap_bytes + n + 4096) * 2;
        char    *bytes = tsr_renew(m->bytes, cap, 1);
        if (!bytes)
            return tsr_fail_nomem(err, cap, "a vocabulary");
        m->bytes = bytes;
        m->cap_bytes = cap;
    }
    if (n)
        memcpy(m->bytes + m->n_bytes, s, n);
    m->entry[m->n] = (struct tok_entry){ m->n_bytes, (uint32_t)n, value, (uint32_t)(hash >> 32) };
    m->n_bytes += n;
    m->slot[slot] = ++m->n;
    if (at)
        *at = m->n - 1;
    return TSR_OK;
}

int64_t tok_strmap_get(const struct tok_strmap *m, const char *s, uint64_t n)
{
    if (!m->n)
        return -1;
    uint64_t slot = strmap_find(m, s, n, XXH3_64bits(s, n));
    return m->slot[slot] ? (int64_t)m->entry[m->slot[slot] - 1].value : -1;
}

void tok_strmap_free(struct tok_strmap *m)
{
    free(m->bytes);
    free(m->entry);
    free(m->slot);
    memset(m, 0, sizeof *m);
}

/* Finalizer of MurmurHash3: all input bits reach the low ones. */
static uint64_t mix(uint64_t k)
{
    k ^= k >> 33;
    k *= 0xff51afd7ed558ccdull;
    k ^= k >> 33;
    k *= 0xc4ceb9fe1a85ec53ull;
    return k ^ k >> 33;
}

static uint64_t map_find(const uint64_t *key, uint64_t mask, uint64_t k)
{
    uint64_t h = mix(k) & mask;
    while (key[h] != k && key[h] != UINT64_MAX)
        h = (h + 1) & mask;
    return h;
}

tsr_status tok_map_put(struct tok_map *m, uint64_t key, uint64_t value, struct tsr_err *err)
{
    if (!m->mask || m->n * 2 >= m->mask) {
        uint64_t  size = m->mask ? (m->mask + 1) * 2 : 1024;
        uint64_t *keys = tsr_new(size, sizeof *keys);
        uint64_t *values = tsr_new(size, sizeof *values);
        if (!keys || !values) {
            free(keys);
            free(values);
            return tsr_fail_nomem(err, size * 16, "a vocabulary");
        }
        memset(keys, 0xff, size * sizeof *keys);
        for (uint64_t i = 0; m->mask && i <= m->mask; i++) {
            if (m->key[i] == UINT64_MAX)
                continue;
            uint64_t h = map_find(keys, size - 1, m->key[i]);
            keys[h] = m->key[i];
            values[h] = m->value[i];
        }
        free(m->key);
        free(m->value);
        m->key = keys;
        m->value = values;
        m->mask = size - 1;
    }
    uint64_t h = map_find(m->key, m->mask, key);
    m->n += m->key[h] == UINT64_MAX;
    m->key[h] = key;
    m->value[h] = value;
    return TSR_OK;
}

bool tok_map_get(const struct tok_map *m, uint64_t key, uint64_t *value)
{
    if (!m->n)
        return false;
    uint64_t h = map_find(m->key, m->mask, key);
    *value = m->value[h];
    return m->key[h] == key;
}

void tok_map_free(struct tok_map *m)
{
    free(m->key);
    free(m->value);
    memset(m, 0, sizeof *m);
}

static tsr_status trie_node(struct tok_trie *t, uint32_t *node, struct tsr_err *err)
{
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 256;
        int32_t *value = cap > t->cap ? tsr_renew(t->value, cap, sizeof *value) : NULL;
        if (!value)
            return tsr_fail_nomem(err, (uint64_t)cap * sizeof *value, "a vocabulary");
        t->value = value;
        t->cap = cap;
    }
    t->value[t->n] = -1;
    *node = t->n++;
    return TSR_OK;
}

uint32_t tok_trie_step(const struct tok_trie *t, uint32_t node, unsigned char byte)
{
    uint64_t child;
    return tok_map_get(&t->edges, (uint64_t)node << 8 | byte, &child) ? (uint32_t)child : 0;
}

tsr_status tok_trie_put(struct tok_trie *t, const char *s, uint64_t n, int32_t value, int32_t *old,
                        struct tsr_err *err)
{
    uint32_t node = 0;
    if (!t->n)
        TSR_TRY(trie_node(t, &node, err));
    node = 0;
    if (n)
        t->first[(unsigned char)s[0]] = true;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t child = tok_trie_step(t, node, (unsigned char)s[i]);
        if (!child) {
            TSR_TRY(trie_node(t, &child, err));
            TSR_TRY(tok_map_put(&t->edges, (uint64_t)node << 8 | (unsigned char)s[i], child, err));
        }
        node = child;
    }
    if (old)
        *old = t->value[node];
    t->value[node] = value;
    return TSR_OK;
}

void tok_trie_free(struct tok_trie *t)
{
    tok_map_free(&t->edges);
    free(t->value);
    memset(t, 0, sizeof *t);
}
