# results.json of tools/peer/quality, with $bits of the files as stored: two series of points, ours and llama.cpp's.
def digits($n): . * pow(10; $n) | round | . / pow(10; $n);
def short: if . == 0 then 0 else (log10 | floor) as $e | digits(3 - $e) end;
def point($name): {name: $name, bits_per_weight: (.bits_per_weight | digits(3)),
    perplexity: (.perplexity | digits(4)), kl: (.kl.mean | short), top1: (.top1 | digits(4)),
    low: (.delta.low | digits(5)), high: (.delta.high | digits(5))};
.results.compare.arms as $arms
| ($bits | map({key: .name, value: .bits_per_weight}) | from_entries) as $stored
| {original: ($arms[] | select(.name == "original") | .perplexity | digits(4)),
   series: [
     {name: "Tessera, gptq and int8",
      points: [$arms[] | select(.name | test("^(gptq|int)[0-9]$")) | point(.name | sub("^gptq"; "gptq "))]
              | sort_by(.bits_per_weight)},
     {name: "llama.cpp types",
      points: [$arms[] | select($stored[.name]) | .bits_per_weight = $stored[.name] | point(.name)]
              | sort_by(.bits_per_weight)}]}
