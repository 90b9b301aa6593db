/* Accuracy on multiple-choice questions, with McNemar's test against the original. */
#include "base/json.h"
#include "base/mem.h"
#include "compare/compare.h"

#include <stdlib.h>

json_t *tsr_compare_choices_json(const struct tsr_eval_choice_marks *a,
                                 const struct tsr_eval_choice_marks *b, double alpha)
{
    json_t  *j = json_object(), *normalized = json_object();
    double   low, high, n = (double)a->n;
    uint64_t only, others;
    tsr_eval_wilson(a->right, a->n, alpha, &low, &high);
    bool ok = tsr_pipeline_json_put_int(j, "questions", a->n) &&
              tsr_pipeline_json_put_int(j, "right", a->right) &&
              tsr_pipeline_json_put_real(j, "accuracy", (double)a->right / n) &&
              tsr_pipeline_json_put_real(j, "low", low) &&
              tsr_pipeline_json_put_real(j, "high", high) &&
              tsr_pipeline_json_put_int(normalized, "right", a->right_normalized) &&
              tsr_pipeline_json_put_real(normalized, "accuracy", (double)a->right_normalized / n);
    ok = tsr_pipeline_json_put(j, "normalized", normalized) && ok;
    if (b) {
        tsr_eval_marks_discordant(a->marks, b->marks, &only, &others);
        ok = ok && tsr_pipeline_json_put_int(j, "only_arm", only) &&
             tsr_pipeline_json_put_int(j, "only_reference", others) &&
             tsr_pipeline_json_put_real(j, "p", tsr_eval_mcnemar(only, others));
    }
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

bool compare_put_answers(json_t *j, const struct compare *c, const struct compare_arm *a)
{
    const json_t *o = json_object_get(c->arms[0].json, "choices");
    json_t       *mine = tsr_json_copy(json_object_get(j, "choices"));
    const char   *marks = json_string_value(json_object_get(mine, "marks"));
    const char   *others = json_string_value(json_object_get(o, "marks"));
    uint64_t      only, other;
    bool          ok = mine && json_object_set_new(j, "choices", mine) == 0;
    if (ok && a != &c->arms[0] && marks && others) {
        tsr_eval_marks_discordant(marks, others, &only, &other);
        ok = tsr_pipeline_json_put_int(mine, "only_arm", only) &&
             tsr_pipeline_json_put_int(mine, "only_reference", other) &&
             tsr_pipeline_json_put_real(mine, "p", tsr_eval_mcnemar(only, other));
    }
    (void)json_object_del(mine, "marks");
    return ok;
}

bool compare_correct_choices(json_t *arms)
{
    size_t    n = json_array_size(arms), k = 0, i;
    double   *p = tsr_new(n, sizeof *p), *adjusted = tsr_new(n, sizeof *adjusted);
    uint64_t *order = tsr_new(n, sizeof *order);
    json_t   *a, *v;
    bool      ok = p && adjusted && order;
    json_array_foreach (arms, i, a)
        if (ok && (v = json_object_get(json_object_get(a, "choices"), "p")))
            p[k++] = json_number_value(v);
    if (ok)
        tsr_eval_holm(p, k, adjusted, order);
    k = 0;
    json_array_foreach (arms, i, a)
        if (ok && json_object_get(json_object_get(a, "choices"), "p"))
            ok = tsr_pipeline_json_put_real(json_object_get(a, "choices"), "p_holm", adjusted[k++]);
    free(p);
    free(adjusted);
    free(order);
    return ok;
}
