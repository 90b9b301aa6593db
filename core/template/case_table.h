/* template/case_table.h - upper and title case of several characters. */
#ifndef TSR_TEMPLATE_CASE_TABLE_H
#define TSR_TEMPLATE_CASE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct tpl_case_row {
    uint32_t    ch;
    const char *upper, *title; /* UTF-8 */
};
/* NULL: it has none. */
const struct tpl_case_row *tpl_case_find(uint32_t ch);

#endif
