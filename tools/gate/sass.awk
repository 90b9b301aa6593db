# tools/gate/sass.awk - what the hot loops of kernels consist of, from cuobjdump -sass on stdin.
#
# A loop is the code from the target of a backward branch to that branch.  A hot loop of a kernel with matrix products
# is a smallest loop with one; of any other kernel, a smallest loop that reads global memory.
#
# Out, by tabs: arch, kernel, hot loops; those with matrix products; those whose global loads include one of
# 16 bytes; accesses to local memory, divisions and byte loads in hot loops; instructions of a step.
# A step is the shortest way through the loop that passes the most copies to shared memory: of the hot loop of weights of
# 4 bits, which are 512 bytes a warp and step; "-": none. Then the same with the longest way, which has the end of a run
# of columns too; then both of the hot loop of 8 bits, 1024 bytes a warp. Of several loops of a width the one with the
# shortest step.  Then the longest way through a hot loop of four steps of 4 bits, 2048 bytes a warp, with the ends of its
# one, two or four runs.  Then the longest way through one of eight steps, 4096 bytes a warp, of weights with zero points, with
# the ends of the one or two runs of each four steps.  After them that of four steps with the ends of three runs.
#
# The width of a loop of int8 products is that of its loads of fragments (tile_bytes() of k_tile_step.h): 4 bits load their
# weights by one LDSM of four matrices and their activations by LDS; 8 bits load weights by two and activations by LDSM
# too; other widths load all by LDS. Loops of four steps (k_tile_run.h, k_tile_cut.h) load scales by LDSM of turned matrices: one of
# two matrices a run; two of four are four runs. Those of eight steps have eight LDSM of four matrices: with zero points (k_tile_zero.h) they
# load scales by LDS of 8 bytes, one a run; of runs of one step (k_tile_fine.h) by LDS of 16 bytes, and half of the way counts as four steps with
# four runs. Copies do not tell: those of scales and activations have a predicate or none as the compiler likes.

function number(hex,   i, n) {
    n = 0
    hex = tolower(hex)
    for (i = 1; i <= length(hex); i++)
        n = n * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
    return n
}

function is_product(i) { return op[i] ~ /^(IMMA|HMMA|HGMMA|IGMMA|BMMA|DMMA)/ }
# LDGSTS of 16 bytes or LDG of 16 bytes, and any that reads global memory
function is_read(i) { return op[i] ~ /^(LDG|LDGSTS|LD|UBLKCP|UTMALDG)(\.|$)/ }
function is_wide(i) { return is_read(i) && (op[i] ~ /\.128/ || op[i] ~ /^(UBLKCP|UTMALDG)/) }
function is_byte(i) { return op[i] ~ /^(LDG|LDS|LD)\..*[US]8(\.|$)/ }
function is_local(i) { return op[i] ~ /^(LDL|STL)/ }
# of floats and of integers both start with a reciprocal; what is left of the first is a call.  ptxas writes some ways out of
# a kernel as calls of EXIT
function is_division(i) { return op[i] ~ /^(MUFU\.RCP|MUFU\.RCP64H|CALL)/ && !(to[i] in at && op[at[to[i]]] == "EXIT" && op[i] ~ /^CALL/) }
function is_copy(i) { return op[i] ~ /^LDGSTS/ }
function is_fragment(i) { return op[i] ~ /^LDSM\..*\.M88/ }
function is_pair(i) { return op[i] ~ /^LDS\.64/ }
function is_quad(i) { return op[i] ~ /^LDS\.128/ }
function is_turned(i) { return op[i] ~ /^LDSM\..*\.MT88/ }

# The shortest way with the most copies, or with longest the longest, from a to b; other ways back are left out.
function way(a, b, longest,   i, j, copies, length_, from) {
    for (i = a; i <= b; i++)
        reached[i] = 0
    reached[a] = 1; w_copies[a] = 0; w_length[a] = 0
    for (i = a; i <= b; i++) {
        if (!reached[i])
            continue
        copies = w_copies[i] + is_copy(i)
        length_ = w_length[i] + 1
        if (i == b)
            return length_
        if (goes_on[i])
            reach(i + 1, copies, length_, longest)
        if (target[i] > i && target[i] <= b)
            reach(target[i], copies, length_, longest)
    }
    return 0
}
function reach(j, copies, length_, longest,   better) {
    better = copies > w_copies[j] || (copies == w_copies[j] && length_ < w_length[j])
    if (longest)
        better = length_ > w_length[j]
    if (!reached[j] || better) {
        reached[j] = 1; w_copies[j] = copies; w_length[j] = length_
    }
}

function analyze(   i, j, k, t, loops, products, a, b, inner, hot, tensor, wide, loc, div, bytes, step, whole, step8, whole8, run, zero, ints, four, fragments, turned, pairs, quads, has, w) {
    if (n == 0)
        return
    products = 0
    for (i = 0; i < n; i++) {
        products += is_product(i)
        target[i] = to[i] == "" ? -1 : (to[i] in at ? at[to[i]] : -1)
    }
    loops = 0
    for (i = 0; i < n; i++)
        if (target[i] >= 0 && target[i] < i && op[i] ~ /^BRA/) {
            has = 0
            for (j = target[i]; j <= i && !has; j++)
                has = products ? is_product(j) : is_read(j)
            if (has) { first[loops] = target[i]; last[loops] = i; loops++ }
        }
    hot = tensor = wide = loc = div = bytes = 0
    step = whole = step8 = whole8 = run[1] = run[2] = run[3] = run[4] = zero[1] = zero[2] = "-"
    for (k = 0; k < loops; k++) {
        inner = 1
        for (j = 0; j < loops; j++)
            if (j != k && first[j] >= first[k] && last[j] <= last[k] && !(first[j] == first[k] && last[j] == last[k] && j > k))
                inner = 0
        if (!inner)
            continue
        hot++
        has = w = ints = four = fragments = turned = pairs = quads = 0
        for (j = first[k]; j <= last[k]; j++) {
            if (is_product(j)) has = 1
            if (is_wide(j)) w = 1
            ints += op[j] ~ /^IMMA/
            loc += is_local(j); div += is_division(j); bytes += is_byte(j)
            four += is_fragment(j) && op[j] ~ /\.M88\.4$/
            fragments += is_fragment(j)
            pairs += is_pair(j)
            quads += is_quad(j)
            turned += is_turned(j) * (op[j] ~ /\.4$/ ? 2 : 1)
        }
        tensor += has
        wide += w
        if (ints && four == 1 && fragments == 1 && !turned) {
            t = way(first[k], last[k], 0)
            if (t > 0 && (step == "-" || t < step)) { step = t; whole = way(first[k], last[k], 1) }
        }
        if (ints && four == 4 && fragments == 4 && turned in run) {
            t = way(first[k], last[k], 1)
            if (t > 0 && (run[turned] == "-" || t > run[turned])) run[turned] = t
        }
        if (ints && four == 8 && fragments == 8 && quads == 8) {
            t = way(first[k], last[k], 1) / 2
            if (t > 0 && (run[4] == "-" || t > run[4])) run[4] = t
        }
        if (ints && four == 8 && fragments == 8 && !turned && pairs / 2 in zero) {
            t = way(first[k], last[k], 1)
            if (t > 0 && (zero[pairs / 2] == "-" || t > zero[pairs / 2])) zero[pairs / 2] = t
        }
        if (ints && four >= 2 && four < 8 && fragments >= 3 && !turned) {
            t = way(first[k], last[k], 0)
            if (t > 0 && (step8 == "-" || t < step8)) { step8 = t; whole8 = way(first[k], last[k], 1) }
        }
    }
    print arch "\t" kernel "\t" hot "\t" tensor "\t" wide "\t" loc "\t" div "\t" bytes "\t" step "\t" whole "\t" step8 "\t" whole8 "\t" run[1] "\t" run[2] "\t" run[4] "\t" zero[1] "\t" zero[2] "\t" run[3]
}

function begin() {
    analyze()
    n = 0
    split("", at); split("", to); split("", target)
}

/^arch = / { begin(); arch = $3; next }
/Function : / { begin(); kernel = $3; next }
/^[ \t]+\/\*[0-9a-f]+\*\// {
    line = $0
    sub(/^[ \t]+\/\*/, "", line)
    address = line
    sub(/\*\/.*/, "", address)
    sub(/^[0-9a-f]+\*\/[ \t]*/, "", line)
    sub(/[ \t]*;.*/, "", line)
    guarded[n] = 0
    if (line ~ /^@/) {
        guarded[n] = 1
        sub(/^@!?U?P[T0-9]+[ \t]+/, "", line)
    }
    op[n] = line
    sub(/[ \t].*/, "", op[n])
    at[number(address)] = n
    to[n] = ""
    # BRA.DIV leads to code for lanes that are apart, which comes back
    if (op[n] ~ /^(BRA|CALL)(\.|$)/ && op[n] !~ /^BRA\.DIV/ && match(line, /0x[0-9a-f]+$/))
        to[n] = number(substr(line, RSTART + 2, RLENGTH - 2))
    goes_on[n] = !(op[n] ~ /^(BRA|EXIT|RET|BRX|JMP)(\.|$)/ && op[n] !~ /^BRA\.DIV/) || guarded[n] || line ~ /BRA(\.[A-Z]+)* !?U?P[0-9]/
    n++
}
END { begin() }
