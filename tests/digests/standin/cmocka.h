/* cmocka.h - what tests/unit/cpu_fixture.h needs of cmocka, for a cross compiler that has no library but the C library:
 * a check that fails ends the program with its place. */
#ifndef TSR_STANDIN_CMOCKA_H
#define TSR_STANDIN_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>

#define standin_check(holds)                                                                       \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define assert_true(x)         standin_check(x)
#define assert_non_null(x)     standin_check((x) != NULL)
#define assert_int_equal(a, b) standin_check((a) == (b))
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        exit(1);                                                                                   \
    } while (0)

#endif
