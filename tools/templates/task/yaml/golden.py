#!/usr/bin/env python3
"""golden.py - the golden of a task: what lm-evaluation-harness makes of its rows.

  python3 golden.py > @NAME@.golden.json
  python3 golden.py hf pretrained=MODEL > @NAME@.golden.json

Needs lm-eval 0.4.13 and datasets. Reads @NAME@.harness.yaml, test.jsonl and train.jsonl of this folder. Without a model
the log-likelihoods are random numbers: requests and metrics are the harness's own either way.
"""
import json
import random
import sys

import lm_eval
from lm_eval.tasks import TaskManager

NAME = "@NAME@"
SHOTS = (0, 2)  # a case for each


def rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def case(shots):
    random.seed(1)
    r = lm_eval.simple_evaluate(
        model=sys.argv[1] if len(sys.argv) > 1 else "dummy",
        model_args=sys.argv[2] if len(sys.argv) > 2 else "",
        tasks=[NAME], task_manager=TaskManager(include_path=".", include_defaults=False), num_fewshot=shots, log_samples=True)
    requests, answers = [], []
    for sample in sorted(r["samples"][NAME], key=lambda s: s["doc_id"]):
        for index, (arguments, answer) in enumerate(zip(sample["arguments"], sample["resps"])):
            one = {"doc": sample["doc_id"], "index": index}
            if len(arguments) == 1:
                one["text"], one["loglikelihood"] = arguments[0], answer[0]
            else:
                one["context"], one["continuation"] = arguments
                one["loglikelihood"], one["is_greedy"] = answer[0]
            requests.append(one)
        if isinstance(sample["target"], int) or str(sample["target"]).isdigit():
            answers.append(int(sample["target"]))
    metrics = {k.split(",")[0]: v for k, v in r["results"][NAME].items() if k.endswith(",none") and "_stderr" not in k}
    out = {"shots": shots, "requests": requests, "metrics": metrics}
    if answers:
        out["answers"] = answers
    return out


json.dump({
    "format": "tessera.task-golden/1",
    "by": f"lm-evaluation-harness {lm_eval.__version__}",
    "rows": rows("test.jsonl"),
    "shot_rows": rows("train.jsonl"),
    "cases": [case(n) for n in SHOTS],
}, sys.stdout, ensure_ascii=False, indent=1)
print()
