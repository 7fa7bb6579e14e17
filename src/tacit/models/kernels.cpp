// The loops of a private step that torch walks through several times, each as one pass over memory.
//
// Plain C functions on pointers and sizes; nothing of Python or torch is included. Vector code is for x86-64 with AVX2,
// FMA and AES, which `tacit_interface` looks for at run time: call nothing else before it has answered with the number
// that __init__.py expects. The number goes up with every change of a signature or of what a function gives.
//
// Errors of the functions below against exact ones, as fractions of the exact: exp, log, tanh, sigmoid below 4e-7. What
// is below 2^-126 becomes zero; NaN stays NaN.

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <vector>

constexpr int INTERFACE = 3;

extern "C" int tacit_interface() {
    __builtin_cpu_init();
    const bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("aes");
    return able ? INTERFACE : 0;
}

#pragma GCC push_options
#pragma GCC target("avx2,fma,aes")

namespace {

constexpr int LANES = 8;

inline __m256 all(float value) { return _mm256_set1_ps(value); }

// The first `count` numbers (at most eight) as lanes that are switched on.
inline __m256i first_lanes(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// e^x = 2^n e^r with |r| <= log(2) / 2; the power series to r^7 leaves 6e-9.
inline __m256 exponential(__m256 x) {
    const __m256 least = all(-87.33654f);
    const __m256 vanishes = _mm256_cmp_ps(x, least, _CMP_LT_OQ);
    x = _mm256_min_ps(all(89.0f), _mm256_max_ps(least, x));  // a NaN in the second place is passed on
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, all(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, all(0.693359375f), x);  // log(2) in two parts, the first exact in products with n
    r = _mm256_fnmadd_ps(n, all(-2.12194440e-4f), r);
    __m256 sum = all(1.0f / 5040.0f);
    sum = _mm256_fmadd_ps(sum, r, all(1.0f / 720.0f));
    sum = _mm256_fmadd_ps(sum, r, all(1.0f / 120.0f));
    sum = _mm256_fmadd_ps(sum, r, all(1.0f / 24.0f));
    sum = _mm256_fmadd_ps(sum, r, all(1.0f / 6.0f));
    sum = _mm256_fmadd_ps(sum, r, all(0.5f));
    sum = _mm256_fmadd_ps(sum, r, all(1.0f));
    sum = _mm256_fmadd_ps(sum, r, all(1.0f));
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(vanishes, _mm256_mul_ps(sum, _mm256_castsi256_ps(power)));
}

inline __m256 sigmoid(__m256 x) {
    const __m256 one = all(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, exponential(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

// 1 - 2 / (e^2|x| + 1) with the sign of x; near zero, where that cancels, the continued fraction
// x / (1 + x^2 / (3 + x^2 / (5 + x^2 / (7 + x^2 / 9)))), whose error is below 1e-9 there.
inline __m256 hyperbolic_tangent(__m256 x) {
    const __m256 sign_bit = all(-0.0f), one = all(1.0f);
    const __m256 size = _mm256_andnot_ps(sign_bit, x);
    const __m256 grown = exponential(_mm256_add_ps(size, size));
    const __m256 far = _mm256_sub_ps(one, _mm256_div_ps(all(2.0f), _mm256_add_ps(grown, one)));
    const __m256 q = _mm256_mul_ps(x, x);
    const __m256 above = _mm256_fmadd_ps(q, _mm256_add_ps(q, all(105.0f)), all(945.0f));
    const __m256 below = _mm256_fmadd_ps(q, _mm256_fmadd_ps(q, all(15.0f), all(420.0f)), all(945.0f));
    const __m256 near = _mm256_mul_ps(size, _mm256_div_ps(above, below));
    const __m256 found = _mm256_blendv_ps(far, near, _mm256_cmp_ps(size, all(0.55f), _CMP_LT_OQ));
    return _mm256_or_ps(found, _mm256_and_ps(sign_bit, x));
}

// log(2^e m) = e log 2 + 2 atanh(s), s = (m - 1) / (m + 1), for positive normal numbers up to 1; the series to s^11
// leaves 2e-9. `complement` is 1 - x, to its own last digit: from 3/4 on it is taken for the difference, which x lacks.
inline __m256 logarithm(__m256 x, __m256 complement) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i shifted = _mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3));  // from the root of one half
    const __m256i e = _mm256_srai_epi32(shifted, 23);
    const __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
    const __m256 exact = _mm256_sub_ps(_mm256_setzero_ps(), complement);
    const __m256 above = _mm256_cmp_ps(x, all(0.75f), _CMP_GE_OQ);
    const __m256 difference = _mm256_blendv_ps(_mm256_sub_ps(m, all(1.0f)), exact, above);
    const __m256 s = _mm256_div_ps(difference, _mm256_add_ps(m, all(1.0f)));
    const __m256 q = _mm256_mul_ps(s, s);
    __m256 sum = all(2.0f / 11.0f);
    sum = _mm256_fmadd_ps(sum, q, all(2.0f / 9.0f));
    sum = _mm256_fmadd_ps(sum, q, all(2.0f / 7.0f));
    sum = _mm256_fmadd_ps(sum, q, all(2.0f / 5.0f));
    sum = _mm256_fmadd_ps(sum, q, all(2.0f / 3.0f));
    const __m256 tail = _mm256_mul_ps(_mm256_mul_ps(s, q), sum);
    const __m256 exponent = _mm256_cvtepi32_ps(e);
    const __m256 small = _mm256_fmadd_ps(exponent, all(-2.12194440e-4f), _mm256_fmadd_ps(s, all(2.0f), tail));
    return _mm256_fmadd_ps(exponent, all(0.693359375f), small);
}

// Sine and cosine of a whole turn times turn / 2^32; an eighth of a turn to either side of a quarter, so x <= pi / 4.
inline void circle(__m256i turn, __m256* cosine, __m256* sine) {
    const __m256i quarter = _mm256_srli_epi32(_mm256_add_epi32(turn, _mm256_set1_epi32(1 << 29)), 30);
    const __m256i rest = _mm256_sub_epi32(turn, _mm256_slli_epi32(quarter, 30));
    const __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(rest), all(1.46291808e-9f));  // 2 pi / 2^32
    const __m256 q = _mm256_mul_ps(x, x);
    __m256 s = all(1.0f / 362880.0f);
    s = _mm256_fmadd_ps(s, q, all(-1.0f / 5040.0f));
    s = _mm256_fmadd_ps(s, q, all(1.0f / 120.0f));
    s = _mm256_fmadd_ps(s, q, all(-1.0f / 6.0f));
    s = _mm256_fmadd_ps(_mm256_mul_ps(s, q), x, x);
    __m256 c = all(-1.0f / 3628800.0f);
    c = _mm256_fmadd_ps(c, q, all(1.0f / 40320.0f));
    c = _mm256_fmadd_ps(c, q, all(-1.0f / 720.0f));
    c = _mm256_fmadd_ps(c, q, all(1.0f / 24.0f));
    c = _mm256_fmadd_ps(c, q, all(-0.5f));
    c = _mm256_fmadd_ps(c, q, all(1.0f));
    const __m256 odd = _mm256_castsi256_ps(_mm256_slli_epi32(quarter, 31));
    const __m256i two = _mm256_set1_epi32(2);
    const __m256i sine_sign = _mm256_slli_epi32(_mm256_and_si256(quarter, two), 30);
    const __m256i turned = _mm256_and_si256(_mm256_add_epi32(quarter, _mm256_set1_epi32(1)), two);
    const __m256i cosine_sign = _mm256_slli_epi32(turned, 30);
    *cosine = _mm256_xor_ps(_mm256_blendv_ps(c, s, odd), _mm256_castsi256_ps(cosine_sign));
    *sine = _mm256_xor_ps(_mm256_blendv_ps(s, c, odd), _mm256_castsi256_ps(sine_sign));
}

inline float largest_lane(__m256 values) {
    float lanes[LANES];
    _mm256_storeu_ps(lanes, values);
    return *std::max_element(lanes, lanes + LANES);
}

inline double sum_of_lanes(__m256 values) {
    float lanes[LANES];
    _mm256_storeu_ps(lanes, values);
    double sum = 0.0;
    for (float lane : lanes) sum += lane;
    return sum;
}

// Eight scores with their bias; lanes beyond the end are minus infinity.
struct Scores {
    const float* values;
    const float* bias;

    __m256 at(int64_t i) const {
        const __m256 score = _mm256_loadu_ps(values + i);
        return bias ? _mm256_add_ps(score, _mm256_loadu_ps(bias + i)) : score;
    }
    __m256 end(int64_t i, __m256i lanes) const {
        __m256 score = _mm256_maskload_ps(values + i, lanes);
        if (bias) score = _mm256_add_ps(score, _mm256_maskload_ps(bias + i, lanes));
        return _mm256_blendv_ps(all(-INFINITY), score, _mm256_castsi256_ps(lanes));
    }
};

// A NaN is passed over here; it comes back with the exponentials.
float largest(const Scores& scores, int64_t size) {
    __m256 most[4] = {all(-INFINITY), all(-INFINITY), all(-INFINITY), all(-INFINITY)};
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES)
        for (int k = 0; k < 4; ++k) most[k] = _mm256_max_ps(scores.at(i + k * LANES), most[k]);
    for (; i + LANES <= size; i += LANES) most[0] = _mm256_max_ps(scores.at(i), most[0]);
    if (i < size) most[1] = _mm256_max_ps(scores.end(i, first_lanes(size - i)), most[1]);
    return largest_lane(_mm256_max_ps(_mm256_max_ps(most[0], most[1]), _mm256_max_ps(most[2], most[3])));
}

// Writes e^(score - most) over the values; returns their sum.
double exponentials(const Scores& scores, float* values, int64_t size, float most) {
    const __m256 shift = all(most);
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES)
        for (int k = 0; k < 4; ++k) {
            const __m256 found = exponential(_mm256_sub_ps(scores.at(i + k * LANES), shift));
            _mm256_storeu_ps(values + i + k * LANES, found);
            sums[k] = _mm256_add_ps(sums[k], found);
        }
    for (; i < size; i += LANES) {
        const __m256i lanes = size - i < LANES ? first_lanes(size - i) : _mm256_set1_epi32(-1);
        const __m256 found = exponential(_mm256_sub_ps(scores.end(i, lanes), shift));
        _mm256_maskstore_ps(values + i, lanes, found);
        sums[0] = _mm256_add_ps(sums[0], _mm256_and_ps(found, _mm256_castsi256_ps(lanes)));
    }
    double sum = 0.0;
    for (const __m256& part : sums) sum += sum_of_lanes(part);
    return sum;
}

void scale(float* values, int64_t size, float factor) {
    for (int64_t i = 0; i < size; ++i) values[i] *= factor;
}

void scale_and_add(float* __restrict values, float* __restrict total, int64_t size, float factor) {
    for (int64_t i = 0; i < size; ++i) {
        values[i] *= factor;
        total[i] += values[i];
    }
}

// The scores of one position become the gradient of its weighted loss, which is returned unweighted.
float replace_position(float* values, const float* bias, int64_t target, float weight, float* total, int64_t size) {
    const Scores scores{values, bias};
    const float wanted = bias ? values[target] + bias[target] : values[target];
    const float most = largest(scores, size);
    const double sum = exponentials(scores, values, size, most);
    const float factor = static_cast<float>(weight / sum);
    if (total) {
        scale_and_add(values, total, size, factor);
        total[target] -= weight;
    } else {
        scale(values, size, factor);
    }
    values[target] -= weight;
    return static_cast<float>(static_cast<double>(most) - wanted + std::log(sum));
}

}  // namespace

// scores (rows, places, size) plus bias (size; may be null) become weight (p - onehot(target)); losses (rows, places)
// are -log p(target). sums (rows, size; may be null) are over the places of a row. Returns 0, or 1 if a target is out
// of range, and then nothing was written.
extern "C" int tacit_softmax_gradient(float* scores, const float* bias, const int64_t* targets, const float* weights,
                                      float* losses, float* sums, int64_t rows, int64_t places, int64_t size,
                                      int threads) {
    for (int64_t i = 0; i < rows * places; ++i)
        if (targets[i] < 0 || targets[i] >= size) return 1;
    if (sums) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t row = 0; row < rows; ++row) {
            float* total = sums + row * size;
            std::fill(total, total + size, 0.0f);
            for (int64_t i = row * places; i < (row + 1) * places; ++i)
                losses[i] = replace_position(scores + i * size, bias, targets[i], weights[i], total, size);
        }
    } else {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t i = 0; i < rows * places; ++i)
            losses[i] = replace_position(scores + i * size, bias, targets[i], weights[i], nullptr, size);
    }
    return 0;
}

namespace {

// Up to eight numbers of each of several arrays at the same place.
struct Lanes {
    bool whole;  // masked stores are slow on some machines
    __m256i on;

    explicit Lanes(int64_t left) : whole(left >= LANES), on(first_lanes(std::min<int64_t>(left, LANES))) {}
    __m256 load(const float* from) const { return whole ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, on); }
    void store(float* to, __m256 values) const {
        if (whole)
            _mm256_storeu_ps(to, values);
        else
            _mm256_maskstore_ps(to, on, values);
    }
};

void cell_forward(float* gates, const float* earlier, float* cell, float* squashed, float* hidden, int64_t size) {
    for (int64_t i = 0; i < size; i += LANES) {
        const Lanes lanes(size - i);
        float *o = gates + i, *e = gates + size + i, *f = gates + 2 * size + i, *g = gates + 3 * size + i;
        const __m256 output = sigmoid(lanes.load(o)), entry = sigmoid(lanes.load(e)), keep = sigmoid(lanes.load(f));
        const __m256 candidate = hyperbolic_tangent(lanes.load(g));
        const __m256 before = earlier ? lanes.load(earlier + i) : _mm256_setzero_ps();
        const __m256 now = _mm256_fmadd_ps(entry, candidate, _mm256_mul_ps(keep, before));
        const __m256 flat = hyperbolic_tangent(now);
        lanes.store(o, output);
        lanes.store(e, entry);
        lanes.store(f, keep);
        lanes.store(g, candidate);
        lanes.store(cell + i, now);
        lanes.store(squashed + i, flat);
        lanes.store(hidden + i, _mm256_mul_ps(output, flat));
    }
}

void cell_backward(const float* gates, const float* earlier, const float* squashed, const float* gradient,
                   float* cell_gradient, float* slopes, int64_t size) {
    const __m256 one = all(1.0f);
    for (int64_t i = 0; i < size; i += LANES) {
        const Lanes lanes(size - i);
        const __m256 output = lanes.load(gates + i), entry = lanes.load(gates + size + i);
        const __m256 keep = lanes.load(gates + 2 * size + i), candidate = lanes.load(gates + 3 * size + i);
        const __m256 before = earlier ? lanes.load(earlier + i) : _mm256_setzero_ps();
        const __m256 flat = lanes.load(squashed + i), of_hidden = lanes.load(gradient + i);
        const __m256 through = _mm256_mul_ps(output, _mm256_fnmadd_ps(flat, flat, one));
        const __m256 of_cell = _mm256_fmadd_ps(of_hidden, through, lanes.load(cell_gradient + i));
        const __m256 output_slope = _mm256_mul_ps(_mm256_fnmadd_ps(output, output, output), flat);
        const __m256 entry_slope = _mm256_mul_ps(_mm256_fnmadd_ps(entry, entry, entry), candidate);
        const __m256 keep_slope = _mm256_mul_ps(_mm256_fnmadd_ps(keep, keep, keep), before);
        const __m256 candidate_slope = _mm256_mul_ps(entry, _mm256_fnmadd_ps(candidate, candidate, one));
        lanes.store(slopes + i, _mm256_mul_ps(output_slope, of_hidden));
        lanes.store(slopes + size + i, _mm256_mul_ps(entry_slope, of_cell));
        lanes.store(slopes + 2 * size + i, _mm256_mul_ps(keep_slope, of_cell));
        lanes.store(slopes + 3 * size + i, _mm256_mul_ps(candidate_slope, of_cell));
        lanes.store(cell_gradient + i, _mm256_mul_ps(of_cell, keep));
    }
}

}  // namespace

// Step `now` of an LSTM layer. gates (rows, time, 4 size) hold z of this step, in the order o, i, f, g, and afterwards
// the gates; cells, squashed = tanh(cells) and hidden (rows, time, size) of this step are written.
extern "C" void tacit_lstm_forward(float* gates, float* cells, float* squashed, float* hidden, int64_t rows,
                                   int64_t time, int64_t size, int64_t now, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = (row * time + now) * size;
        cell_forward(gates + 4 * at, now ? cells + at - size : nullptr, cells + at, squashed + at, hidden + at, size);
    }
}

// The same step backward. gradient (rows, size) is that of this step's hidden state; slopes (rows, time, 4 size)
// receive that of z; cell_gradient (rows, size) is that of this step's cell from the step after, and becomes that of
// the one before.
extern "C" void tacit_lstm_backward(const float* gates, const float* cells, const float* squashed,
                                    const float* gradient, float* cell_gradient, float* slopes, int64_t rows,
                                    int64_t time, int64_t size, int64_t now, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = (row * time + now) * size;
        cell_backward(gates + 4 * at, now ? cells + at - size : nullptr, squashed + at, gradient + row * size,
                      cell_gradient + row * size, slopes + 4 * at, size);
    }
}

namespace {

// A tile is the inner products of three steps with four others: twelve sums and four factors fill the sixteen
// registers, and seven loads feed twelve products. Lanes are added up at the end, so nothing need be transposed.
constexpr int64_t TILE_ROWS = 3, TILE_COLUMNS = 4;
constexpr int64_t DEPTH = 512;  // numbers of each step at a time: four steps stay in the first cache, all in the second
constexpr int64_t LINE = 16, STRIDE = DEPTH + LINE;  // an odd number of cache lines: steps do not displace each other

struct alignas(LINE * sizeof(float)) Line {
    float numbers[LINE];
};

inline int64_t rounded_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

// Numbers from..from + size of each step of values (time, width), zeros up to a multiple of eight, steps STRIDE apart.
void copy_depth(const float* values, int64_t time, int64_t width, int64_t from, int64_t size, float* copy) {
    for (int64_t t = 0; t < time; ++t) {
        float* step = copy + t * STRIDE;
        std::copy_n(values + t * width + from, size, step);
        std::fill(step + size, step + rounded_up(size, LANES), 0.0f);
    }
}

void tile(const float* left, const float* right, int64_t size, __m128* products) {
    __m256 sums[TILE_ROWS][TILE_COLUMNS];
    for (auto& row : sums)
        for (__m256& sum : row) sum = _mm256_setzero_ps();
    for (int64_t k = 0; k < size; k += LANES) {
        const __m256 first = _mm256_load_ps(left + k), second = _mm256_load_ps(left + STRIDE + k);
        const __m256 third = _mm256_load_ps(left + 2 * STRIDE + k);
#pragma GCC unroll 4
        for (int64_t j = 0; j < TILE_COLUMNS; ++j) {
            const __m256 factor = _mm256_load_ps(right + j * STRIDE + k);
            sums[0][j] = _mm256_fmadd_ps(first, factor, sums[0][j]);
            sums[1][j] = _mm256_fmadd_ps(second, factor, sums[1][j]);
            sums[2][j] = _mm256_fmadd_ps(third, factor, sums[2][j]);
        }
    }
    for (int64_t i = 0; i < TILE_ROWS; ++i) {
        const __m256* sum = sums[i];
        const __m256 four = _mm256_hadd_ps(_mm256_hadd_ps(sum[0], sum[1]), _mm256_hadd_ps(sum[2], sum[3]));
        products[i] = _mm_add_ps(_mm256_castps256_ps128(four), _mm256_extractf128_ps(four, 1));
    }
}

// Puts the products of step t with four steps from s on, or adds them to what is there; pairs above the diagonal not.
inline void put(float* pairs, int64_t t, int64_t s, __m128 products, bool added) {
    float* to = pairs + t * (t + 1) / 2 + s;
    if (s + TILE_COLUMNS <= t + 1) {
        _mm_storeu_ps(to, added ? _mm_add_ps(_mm_loadu_ps(to), products) : products);
        return;
    }
    float lanes[TILE_COLUMNS];
    _mm_storeu_ps(lanes, products);
    for (int64_t j = 0; s + j <= t; ++j) to[j] = added ? to[j] + lanes[j] : lanes[j];
}

// Every `parts`th column of tiles, from column `part` on, of the Gram matrix of values (time, width). `copy` has room
// for the steps and one tile's more, which are zero.
void gram(const float* values, float* pairs, int64_t time, int64_t width, int64_t part, int64_t parts, float* copy) {
    const int64_t depths = std::max<int64_t>(1, (width + DEPTH - 1) / DEPTH);
    const int64_t depth = rounded_up((width + depths - 1) / depths, LANES);
    for (int64_t done = 0; done < depths; ++done) {
        const int64_t size = std::min(depth, width - done * depth);
        copy_depth(values, time, width, done * depth, size, copy);
        for (int64_t s = part * TILE_COLUMNS; s < time; s += parts * TILE_COLUMNS)
            for (int64_t t = s; t < time; t += TILE_ROWS) {
                __m128 products[TILE_ROWS];
                tile(copy + t * STRIDE, copy + s * STRIDE, rounded_up(size, LANES), products);
                for (int64_t i = 0; i < std::min(TILE_ROWS, time - t); ++i) put(pairs, t + i, s, products[i], done > 0);
            }
    }
}

}  // namespace

// The Gram matrix of each of `rows` values (time, width): pairs (rows, time (time + 1) / 2) are its lower triangle, row
// by row. Rows too few for the threads are done in parts; no number depends on that.
extern "C" void tacit_gram(const float* values, float* pairs, int64_t rows, int64_t time, int64_t width, int threads) {
    if (rows == 0) return;
    const int64_t parts = (threads + rows - 1) / rows;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        std::vector<Line> copy((time + TILE_COLUMNS) * STRIDE / LINE);
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < rows * parts; ++piece) {
            const int64_t row = piece / parts;
            gram(values + row * time * width, pairs + row * (time * (time + 1) / 2), time, width, piece % parts, parts,
                 copy.data()->numbers);
        }
    }
}

namespace {

// Products of two numbers of single precision are exact in double precision.
double dot(const float* a, const float* b, int64_t size) {
    __m256d sums[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int half = 0; half < 2; ++half) {
            const int64_t at = i + half * LANES / 2;
            const __m256d left = _mm256_cvtps_pd(_mm_loadu_ps(a + at));
            const __m256d right = _mm256_cvtps_pd(_mm_loadu_ps(b + at));
            sums[half] = _mm256_fmadd_pd(left, right, sums[half]);
        }
    double lanes[LANES / 2];
    _mm256_storeu_pd(lanes, _mm256_add_pd(sums[0], sums[1]));
    double sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
    for (; i < size; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
}

}  // namespace

// For each of `rows` pairs of symmetric matrices, stored as above: the sum of the products of all their elements, and
// that of the roots of their diagonals.
extern "C" void tacit_gram_dot(const float* pairs, const float* others, float* products, float* lengths, int64_t rows,
                               int64_t time, int threads) {
    const int64_t size = time * (time + 1) / 2;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; ++row) {
        const float *a = pairs + row * size, *b = others + row * size;
        double diagonal = 0.0, along = 0.0;
        for (int64_t t = 0; t < time; ++t) {
            const double square = a[t * (t + 3) / 2], other = b[t * (t + 3) / 2];
            diagonal += square * other;
            along += std::sqrt(square * other);
        }
        products[row] = static_cast<float>(2.0 * dot(a, b, size) - diagonal);
        lengths[row] = static_cast<float>(along);
    }
}

namespace {

constexpr int ROUNDS = 10;
constexpr int CIPHERED = 64;  // blocks at a time, four numbers each

struct Cipher {
    __m128i keys[ROUNDS + 1];

    template <int constant>
    void expand(int round) {
        const __m128i mixed = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(keys[round - 1], constant), 0xff);
        __m128i key = keys[round - 1];
        for (int k = 0; k < 3; ++k) key = _mm_xor_si128(key, _mm_slli_si128(keys[round - 1], 4 * (k + 1)));
        keys[round] = _mm_xor_si128(key, mixed);
    }

    explicit Cipher(const uint8_t* key) {  // FIPS 197, section 5.2
        keys[0] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
        expand<0x01>(1), expand<0x02>(2), expand<0x04>(3), expand<0x08>(4), expand<0x10>(5);
        expand<0x20>(6), expand<0x40>(7), expand<0x80>(8), expand<0x1b>(9), expand<0x36>(10);
    }

    template <int count>
    void apply(__m128i* blocks) const {
        for (int k = 0; k < count; ++k) blocks[k] = _mm_xor_si128(blocks[k], keys[0]);
        for (int round = 1; round < ROUNDS; ++round)
            for (int k = 0; k < count; ++k) blocks[k] = _mm_aesenc_si128(blocks[k], keys[round]);
        for (int k = 0; k < count; ++k) blocks[k] = _mm_aesenclast_si128(blocks[k], keys[ROUNDS]);
    }
};

// Where in the stream: the cipher is applied to (draw, counter), 64 bits each.
struct Place {
    uint64_t draw, counter;

    __m128i block(uint64_t k) const { return _mm_set_epi64x(static_cast<int64_t>(draw), counter + k); }
};

// (word + 1/2) / 2^32, rounded once.
inline __m256 uniforms(__m256i words) {
    const __m256 high = _mm256_cvtepi32_ps(_mm256_srli_epi32(words, 16));
    const __m256 low = _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)));
    return _mm256_mul_ps(_mm256_fmadd_ps(high, all(65536.0f), _mm256_add_ps(low, all(0.5f))), all(0x1p-32f));
}

// The same with 64 bits where a word is below 2^16: the other 32 are those in the same place of the blocks whose
// counters have their top bit set.
__attribute__((noinline)) __m256 with_tails(const Cipher& cipher, Place at, __m256i words, __m256 values) {
    const Place beyond{at.draw, at.counter | 1ull << 63};
    __m128i blocks[2] = {beyond.block(0), beyond.block(1)};
    cipher.apply<2>(blocks);
    uint32_t word[LANES], more[LANES];
    float value[LANES];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(word), words);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(more), _mm256_set_m128i(blocks[1], blocks[0]));
    _mm256_storeu_ps(value, values);
    for (int k = 0; k < LANES; ++k)
        if (word[k] < 1u << 16) value[k] = static_cast<float>((word[k] * 0x1p32 + more[k] + 0.5) * 0x1p-64);
    return _mm256_loadu_ps(value);
}

// Sixteen normal numbers of sixteen words (Box and Muller 1958); `at` is where their blocks come from.
inline void normals(const Cipher& cipher, Place at, const __m128i* blocks, float deviation, __m256* first,
                    __m256* second) {
    const __m256i radial = _mm256_set_m128i(blocks[1], blocks[0]), turn = _mm256_set_m128i(blocks[3], blocks[2]);
    const __m256i small = _mm256_cmpeq_epi32(_mm256_srli_epi32(radial, 16), _mm256_setzero_si256());
    __m256 uniform = uniforms(radial);
    if (!_mm256_testz_si256(small, small)) uniform = with_tails(cipher, at, radial, uniform);
    const __m256 complement = uniforms(_mm256_xor_si256(radial, _mm256_set1_epi32(-1)));
    const __m256 square = _mm256_mul_ps(logarithm(uniform, complement), all(-2.0f));
    const __m256 radius = _mm256_mul_ps(_mm256_sqrt_ps(square), all(deviation));
    __m256 cosine, sine;
    circle(turn, &cosine, &sine);
    *first = _mm256_mul_ps(radius, cosine);
    *second = _mm256_mul_ps(radius, sine);
}

void add_to(float* numbers, int64_t left, __m256 added) {
    const Lanes lanes(left);
    lanes.store(numbers, _mm256_add_ps(lanes.load(numbers), added));
}

void add_block(const Cipher& cipher, Place at, float* numbers, int64_t length, float deviation) {
    __m128i words[CIPHERED];  // all are ciphered before any is used: two short loops overlap better than a long one
    for (int64_t i = 0; i < length; i += 4 * CIPHERED) {
        for (int k = 0; k < CIPHERED; ++k) words[k] = at.block(k);
        for (int k = 0; k < CIPHERED; k += 8) cipher.apply<8>(words + k);
        const __m128i* four = words;
        const int64_t end = std::min<int64_t>(length, i + 4 * CIPHERED);
        for (int64_t to = i; to < end; to += 2 * LANES, four += 4) {
            __m256 first, second;
            const Place here{at.draw, at.counter + static_cast<uint64_t>(four - words)};
            normals(cipher, here, four, deviation, &first, &second);
            add_to(numbers + to, end - to, first);
            if (end - to > LANES) add_to(numbers + to + LANES, end - to - LANES, second);
        }
        at.counter += CIPHERED;
    }
}

}  // namespace

// Adds normal numbers to `count` blocks of memory of at most 2^17 numbers each. The cipher of `key` (16 bytes) is
// applied to (draw, 2^15 block + position), 64 bits each, and to those with the top bit set: no input comes twice.
extern "C" void tacit_add_normal(const uint8_t* key, uint64_t draw, float* const* blocks, const int64_t* lengths,
                                 int64_t count, float deviation, int threads) {
    const Cipher cipher(key);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < count; ++block)
        add_block(cipher, {draw, static_cast<uint64_t>(block) << 15}, blocks[block], lengths[block], deviation);
}

// One block of 16 bytes under a key of 16 bytes, for the known answers of the standard.
extern "C" void tacit_cipher(const uint8_t* key, uint8_t* text) {
    __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text));
    Cipher(key).apply<1>(&block);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(text), block);
}

#pragma GCC pop_options

#else

extern "C" int tacit_interface() { return 0; }

#endif
