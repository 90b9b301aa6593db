/* Steps: what the functions of the rules' job do at each call, and the faults that they note. */
#include "conformance/step/internal.h"

#include "base/json.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

#define BURN_US 2000u /* that a function takes in a long run */

void tsr_step_rules_note(struct tsr_step_rules_test *x, enum tsr_step_rules_wrong which,
                         const char *fmt, ...)
{
    va_list ap;
    if (x->wrong[which][0])
        return;
    va_start(ap, fmt);
    (void)vsnprintf(x->wrong[which], sizeof x->wrong[which], fmt, ap);
    va_end(ap);
}

/* ---- each call ----------------------------------------------------------------------------------- */

void tsr_step_rules_burn(void)
{
    struct timespec t;
    uint64_t        now, until = 0;
    do {
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
        until = until ? until : now + BURN_US;
    } while (now < until);
}

tsr_status tsr_step_rules_enter(struct tsr_step_rules_test *x, const char *function, uint64_t need,
                                bool running, struct tsr_err *err)
{
    if (!x->open || !pthread_equal(x->thread, pthread_self())) {
        tsr_step_rules_note(x, TSR_STEP_WRONG_WINDOW,
                            "%s was called outside of check() and run(), or on another thread",
                            function);
        return tsr_fail(err, TSR_E_INVAL, "%s outside of run()", function);
    }
    if (running && x->checking)
        tsr_step_rules_note(x, TSR_STEP_WRONG_CHECK, "check() called %s, which is for run()",
                            function);
    if (need & ~x->t->needs)
        tsr_step_rules_note(x, TSR_STEP_WRONG_NEED, "%s was called, and needs lacks %s", function,
                            need & TSR_STEP_TOKENIZER ? "TSR_STEP_TOKENIZER" : "TSR_STEP_MODEL");
    if (x->slow)
        tsr_step_rules_burn();
    json_int_t n = json_integer_value(json_object_get(x->calls, function)) + 1;
    tsr_json_set(&x->calls, function, json_integer(n));
    if (x->fail_in && strcmp(x->fail_in, function) == 0 && n == x->fail_at) {
        x->failed = true;
        return tsr_fail(err, TSR_E_UNSUPPORTED, "the rule makes this call of %s fail", function);
    }
    return TSR_OK;
}

tsr_status tsr_step_rules_record(struct tsr_step_rules_test *x, const char *what, const char *name,
                                 json_t *v)
{
    json_t *one = json_array();
    tsr_json_add(&one, json_string(what));
    tsr_json_add(&one, json_string(name ? name : ""));
    tsr_json_add(&one, v ? v : json_null());
    tsr_json_add(&x->made, one);
    return TSR_OK;
}
