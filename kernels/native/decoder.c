/* The lean decoder: one call runs a whole forward pass of a Llama-style model for R rows.
 *
 * Two ideas carry it.
 *
 * 1. Decoding one token reads every weight once and does two operations with it, so the pass can be
 *    no faster than memory delivers the weights. They are kept as bfloat16 (half the bytes of
 *    float32) and widened in registers: a bfloat16 is the upper half of a float32.
 *
 * 2. Every output is one chain of fused multiply-adds over the input index, in order:
 *        y[n] = fma(x[K-1], w[n][K-1], … fma(x[1], w[n][1], fma(x[0], w[n][0], 0)))
 *    A vector register holds neighbouring *outputs*, never parts of one sum, so the order of
 *    additions does not depend on how many rows run together, on the number of threads, or on the
 *    width of the registers. A row's logits are therefore the same bits alone, in a verification
 *    of five rows, or inside a prefill of two hundred: greedy speculative decoding returns exactly
 *    what plain decoding returns, by construction. -ffp-contract=off keeps the compiler from
 *    choosing where to fuse.
 *
 * Weights lie in panels of PW outputs: for each input index k the PW weights of the panel are
 * neighbours, so a panel is read front to back. Keys are cached in panels too (outputs = positions)
 * and values as well (outputs = dimensions of the head), so attention uses the same kernel.
 *
 * Rows may belong to different caches and stand at different positions.
 *
 * Long file: one translation unit on purpose. The kernels are inlined into each loop that uses them,
 * and any C compiler builds it with one command.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* ---- vectors: W lanes of float ------------------------------------------------------------- */

#define INLINE static inline __attribute__((always_inline))

#if defined(SD_LANES) /* any width, without special instructions: the tests compare widths */
#define W SD_LANES
#define NOT_FUSED
#elif defined(__AVX512F__)
#define W 16
#define FMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define SPLAT(s) ((vf)_mm512_set1_ps(s))
#elif defined(__AVX2__) && defined(__FMA__)
#define W 8
#define FMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define SPLAT(s) ((vf)_mm256_set1_ps(s))
#elif defined(__ARM_NEON)
#define W 4
#define FMA(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define SPLAT(s) ((vf)vdupq_n_f32(s))
#else
#define W 4
#define NOT_FUSED
#endif
#ifdef NOT_FUSED /* no fused instruction: multiply, then add; just as fixed an order */
#define FMA(a, b, c) ((a) * (b) + (c))
#define SPLAT(s) ((s) - (vf){0}) /* not 0 + s, which would lose the sign of -0 */
#endif
#define PW (2 * W) /* outputs in a panel: two registers */

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef float vf_any __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(4 * W), aligned(4), may_alias));

INLINE vf load(const float *p) { return (vf) * (const vf_any *)p; }
INLINE void store(float *p, vf v) { *(vf_any *)p = (vf_any)v; }
INLINE vf choose(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

/* e^x to about 2 units in the last place; NaN stays NaN. 2^n is made by adding n to an exponent. */
INLINE vf exponential(vf x) {
    const vf magic = SPLAT(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    x = choose((vi)(x < SPLAT(-87.0f)), SPLAT(-87.0f), x);
    x = choose((vi)(x > SPLAT(88.0f)), SPLAT(88.0f), x);
    const vf t = FMA(x, SPLAT(1.44269504f), magic), n = t - magic;
    vf r = FMA(n, SPLAT(-0.693359375f), x); /* ln 2 in two parts, the first exact */
    r = FMA(n, SPLAT(2.12194440e-4f), r);
    vf p = SPLAT(1.0f / 5040);
    p = FMA(p, r, SPLAT(1.0f / 720));
    p = FMA(p, r, SPLAT(1.0f / 120));
    p = FMA(p, r, SPLAT(1.0f / 24));
    p = FMA(p, r, SPLAT(1.0f / 6));
    p = FMA(p, r, SPLAT(0.5f));
    p = FMA(p, r, SPLAT(1.0f));
    p = FMA(p, r, SPLAT(1.0f));
    return p * (vf)(((vu)t << 23) + 0x3f800000u);
}

/* ---- the model, as Python fills it in (kernels/native/library.py mirrors these) -------------- */

enum { BF16 = 0, F32 = 1 };

typedef struct {
    const void *qkv, *o, *gate_up, *down; /* panels; gate and up panels alternate */
    const float *attention_norm, *ffn_norm;
    const float *qkv_bias, *q_norm, *k_norm; /* NULL where the model has none */
} Layer;

typedef struct {
    int32_t layers, width, heads, kv_heads, head_dim, ffn, vocabulary, head_rows;
    int32_t weight_type;
    float epsilon;
    const void *embedding, *head; /* panels */
    const float *final_norm;
    const float *cosine, *sine; /* (positions, head_dim / 2) */
    const Layer *layer;
} Model;

typedef struct {
    int32_t token, position;
    int32_t capacity;   /* of the row's cache, a multiple of PW */
    int32_t logits_row; /* where its logits go, or -1 */
    float *cache;
} Row;

int sd_panel_width(void) { return PW; }

const char *sd_instructions(void) {
#if defined(NOT_FUSED)
    return "plain vectors";
#elif defined(__AVX512F__)
    return "AVX-512";
#elif defined(__x86_64__)
    return "AVX2+FMA";
#else
    return "NEON";
#endif
}

INLINE size_t panels_of(size_t n) { return (n + PW - 1) / PW; }
INLINE size_t element_size(int type) { return type == BF16 ? 2 : 4; }

/* ---- packing ------------------------------------------------------------------------------ */

INLINE float bf16_to_float(uint16_t h) {
    union { uint32_t u; float f; } v = {(uint32_t)h << 16};
    return v.f;
}

INLINE uint16_t float_to_bf16(float f) { /* to nearest, ties to even; NaN stays NaN */
    union { float f; uint32_t u; } v = {f};
    if (f != f) return (uint16_t)((v.u >> 16) | 0x40);
    return (uint16_t)((v.u + 0x7fff + ((v.u >> 16) & 1)) >> 16);
}

/* src (rows, columns) row-major becomes panels `first`, `first + step`, … of dst. In a bfloat16
 * panel, word j of step k holds outputs j (low half) and j + W (high half). */
void sd_pack(void *dst, int dst_type, const void *src, int src_type, int64_t rows, int64_t columns,
             int64_t first, int64_t step) {
    const size_t panel = (size_t)columns * PW;
    for (int64_t p = 0; p < (int64_t)panels_of(rows); p++) {
        const size_t base = (first + p * step) * panel;
        for (int64_t lane = 0; lane < PW; lane++) {
            const int64_t row = p * PW + lane;
            const int64_t at = dst_type == BF16 ? 2 * (lane % W) + lane / W : lane;
            for (int64_t k = 0; k < columns; k++) {
                const size_t to = base + k * PW + at, from = row * columns + k;
                if (dst_type == BF16) {
                    uint16_t v = 0;
                    if (row < rows)
                        v = src_type == BF16 ? ((const uint16_t *)src)[from]
                                             : float_to_bf16(((const float *)src)[from]);
                    ((uint16_t *)dst)[to] = v;
                } else {
                    float v = 0;
                    if (row < rows)
                        v = src_type == BF16 ? bf16_to_float(((const uint16_t *)src)[from])
                                             : ((const float *)src)[from];
                    ((float *)dst)[to] = v;
                }
            }
        }
    }
}

static void embed(const Model *m, int token, float *x) {
    const size_t panel = (size_t)m->width * PW, lane = token % PW;
    const size_t base = token / PW * panel;
    for (int k = 0; k < m->width; k++) {
        if (m->weight_type == BF16)
            x[k] = bf16_to_float(
                ((const uint16_t *)m->embedding)[base + (size_t)k * PW + 2 * (lane % W) + lane / W]);
        else
            x[k] = ((const float *)m->embedding)[base + (size_t)k * PW + lane];
    }
}

/* ---- the one product kernel ------------------------------------------------------------------
 * NR rows of x times NP panels. The accumulators stay in registers: 2 · NR · NP of them.
 *
 * While it computes, it fetches what its thread will need next into the second-level cache: with
 * several rows the arithmetic would otherwise wait for memory, and memory for the arithmetic. Four
 * streams, `quarter` bytes apart, because one alone does not keep memory busy. */

#define UNROLL (64 / W) /* four lines of bfloat16 a panel */
#define STEP(TYPE, NR, NP, k)                                                                      \
    _Pragma("GCC unroll 8") for (int p = 0; p < NP; p++) {                                         \
        vf low, high;                                                                              \
        LOAD_##TYPE(w + p * panel, k, low, high);                                                  \
        _Pragma("GCC unroll 8") for (int r = 0; r < NR; r++) {                                     \
            const vf xs = SPLAT(x[r * ldx + (k)]);                                                 \
            sum[r][p][0] = FMA(xs, low, sum[r][p][0]);                                             \
            sum[r][p][1] = FMA(xs, high, sum[r][p][1]);                                            \
        }                                                                                          \
    }
#define KERNEL(TYPE, NR, NP)                                                                       \
    static void kernel_##TYPE##_##NR##_##NP(const float *x, size_t ldx, const char *w,             \
                                            size_t panel, int K, float *y, size_t ldy,             \
                                            const char *ahead, size_t quarter) {                   \
        enum { LINES = NP * UNROLL * PW * SIZE_##TYPE / 64 };                                      \
        vf sum[NR][NP][2];                                                                         \
        _Pragma("GCC unroll 8") for (int r = 0; r < NR; r++)                                       \
            _Pragma("GCC unroll 8") for (int p = 0; p < NP; p++)                                   \
                sum[r][p][0] = sum[r][p][1] = SPLAT(0.0f);                                         \
        int k = 0;                                                                                 \
        for (; k + UNROLL <= K; k += UNROLL) {                                                     \
            _Pragma("GCC unroll 32") for (int i = 0; i < LINES; i++)                               \
                __builtin_prefetch(ahead + i % 4 * quarter + i / 4 * 64, 0, 1);                    \
            ahead += LINES / 4 * 64;                                                               \
            _Pragma("GCC unroll 16") for (int i = 0; i < UNROLL; i++) STEP(TYPE, NR, NP, k + i)     \
        }                                                                                          \
        for (; k < K; k++) STEP(TYPE, NR, NP, k)                                                   \
        _Pragma("GCC unroll 8") for (int r = 0; r < NR; r++)                                       \
            _Pragma("GCC unroll 8") for (int p = 0; p < NP; p++) {                                 \
                store(y + r * ldy + p * PW, sum[r][p][0]);                                         \
                store(y + r * ldy + p * PW + W, sum[r][p][1]);                                     \
            }                                                                                      \
    }

enum { SIZE_BF16 = 2, SIZE_F32 = 4 };
#define LOAD_BF16(w, k, low, high)                                                                 \
    do {                                                                                           \
        const vu pair = (vu) * (const vu_any *)((w) + (size_t)(k) * (PW * 2));                     \
        low = (vf)(pair << 16);                                                                    \
        high = (vf)(pair & 0xffff0000u);                                                           \
    } while (0)
#define LOAD_F32(w, k, low, high)                                                                  \
    do {                                                                                           \
        low = load((const float *)(w) + (size_t)(k) * PW);                                         \
        high = load((const float *)(w) + (size_t)(k) * PW + W);                                    \
    } while (0)

/* How many panels run together with NR rows: enough accumulators to hide the latency of a fused
 * multiply-add (8), few enough to stay in the registers (16 with AVX2, 32 otherwise). */
#if W == 8
#define NP1 4
#define NP2 2
#define NP3 1
#define NP4 1
#define NP5 1
#define NP6 1
#else
#define NP1 4
#define NP2 4
#define NP3 2
#define NP4 2
#define NP5 2
#define NP6 2
#endif
#define MAX_ROWS 6
#define MAX_VECTORS 64 /* query heads that share a key-value head, at most */
#define KERNELS_OF(TYPE)                                                                           \
    KERNEL(TYPE, 1, 1) KERNEL(TYPE, 2, 1) KERNEL(TYPE, 3, 1)                                       \
    KERNEL(TYPE, 4, 1) KERNEL(TYPE, 5, 1) KERNEL(TYPE, 6, 1)                                       \
    KERNEL(TYPE, 1, 4)
KERNELS_OF(BF16)
KERNELS_OF(F32)
#if W == 8
KERNEL(BF16, 2, 2)
KERNEL(F32, 2, 2)
#else
KERNEL(BF16, 2, 4) KERNEL(BF16, 3, 2) KERNEL(BF16, 4, 2) KERNEL(BF16, 5, 2) KERNEL(BF16, 6, 2)
KERNEL(F32, 2, 4) KERNEL(F32, 3, 2) KERNEL(F32, 4, 2) KERNEL(F32, 5, 2) KERNEL(F32, 6, 2)
#endif

typedef struct { /* what to fetch: four streams from `at`, `quarter` bytes apart; or nothing */
    const char *at;
    size_t quarter;
} Ahead;
static const Ahead nothing = {NULL, 0};

typedef void (*Kernel)(const float *, size_t, const char *, size_t, int, float *, size_t,
                       const char *, size_t);
#define PASTE(a, b, c, d) a##_##b##_##c##_##d
#define NAME(type, nr, np) PASTE(kernel, type, nr, np)
static const Kernel wide[2][MAX_ROWS] = {
    {NAME(BF16, 1, NP1), NAME(BF16, 2, NP2), NAME(BF16, 3, NP3), NAME(BF16, 4, NP4),
     NAME(BF16, 5, NP5), NAME(BF16, 6, NP6)},
    {NAME(F32, 1, NP1), NAME(F32, 2, NP2), NAME(F32, 3, NP3), NAME(F32, 4, NP4),
     NAME(F32, 5, NP5), NAME(F32, 6, NP6)}};
static const Kernel narrow[2][MAX_ROWS] = {
    {NAME(BF16, 1, 1), NAME(BF16, 2, 1), NAME(BF16, 3, 1), NAME(BF16, 4, 1), NAME(BF16, 5, 1),
     NAME(BF16, 6, 1)},
    {NAME(F32, 1, 1), NAME(F32, 2, 1), NAME(F32, 3, 1), NAME(F32, 4, 1), NAME(F32, 5, 1),
     NAME(F32, 6, 1)}};
static const int panels_together[MAX_ROWS] = {NP1, NP2, NP3, NP4, NP5, NP6};

/* y (R, panels · PW) = x (R, K) · panels. A group of panels is read from memory once; further
 * blocks of rows find it in the cache. As many bytes as these panels have are fetched ahead. */
static void product(int type, const void *weights, int panels, const float *x, size_t ldx, int R,
                    int K, float *y, size_t ldy, Ahead ahead) {
    const size_t panel = (size_t)K * PW * element_size(type);
    const int blocks = (R + MAX_ROWS - 1) / MAX_ROWS;
    int group = panels_together[(R + blocks - 1) / blocks - 1];
    if (R / blocks && panels_together[R / blocks - 1] > group)
        group = panels_together[R / blocks - 1];
    for (int p = 0; p < panels; p += group) {
        for (int b = 0; b < blocks; b++) {
            const int from = b * R / blocks, rows = (b + 1) * R / blocks - from;
            const int together = panels_together[rows - 1];
            const int end = p + group < panels ? p + group : panels;
            for (int q = p; q < end;) {
                const int all = q + together <= end, fetch = ahead.at && b == 0;
                (all ? wide : narrow)[type][rows - 1](
                    x + from * ldx, ldx, (const char *)weights + q * panel, panel, K,
                    y + from * ldy + (size_t)q * PW, ldy,
                    /* what is in the first-level cache already costs nothing to fetch */
                    fetch ? ahead.at + q * panel / 256 * 64 : (const char *)x,
                    fetch ? ahead.quarter : 0);
                q += all ? together : 1;
            }
        }
    }
}

/* One product on the calling thread: the decoder's inner loop alone, for measuring a machine. */
void sd_product(int type, const void *weights, int panels, const float *x, int R, int K, float *y) {
    product(type, weights, panels, x, (size_t)K, R, K, y, (size_t)panels * PW, nothing);
}

/* ---- threads ---------------------------------------------------------------------------------
 * A pass is a list of phases, each a number of tasks. A thread takes the tasks of its own range in
 * order (so it knows what to fetch ahead), then those that others have left: a thread that lost its
 * core for a while holds up one task, not its share. Waiting spins for a bounded time, then sleeps,
 * so an idle server burns nothing. */

typedef struct {
    float *memory; /* grows, never shrinks */
    size_t size;
} Scratch;

typedef struct Pool Pool;
struct Pool {
    int threads;
    pthread_t *thread;
    Scratch *own; /* one a thread */
    Scratch shared, counters;
    pthread_mutex_t one_job; /* several callers take turns */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_int sleepers, generation, finished;
    void (*job)(Pool *, int id); /* what all threads run now, and on what */
    void *subject;
};

static void pause_briefly(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until *value differs from `old`. */
static void wait_change(Pool *pool, atomic_int *value, int old, int64_t spin_ns) {
    const int64_t end = nanoseconds() + spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load(value) != old) return;
            pause_briefly();
        }
    } while (nanoseconds() < end);
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(value) == old) pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void notify(Pool *pool) {
    if (atomic_load(&pool->sleepers)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

#define SPIN_IN_PASS 50000   /* ns: longer than any fair wait within a pass */
#define SPIN_BETWEEN 300000  /* ns: the caller's work between two passes */

/* All threads have finished the phase when this returns. */
static void barrier(Pool *pool, atomic_int *arrived) {
    if (atomic_fetch_add(arrived, 1) + 1 == pool->threads) notify(pool);
    for (int seen; (seen = atomic_load(arrived)) < pool->threads;)
        wait_change(pool, arrived, seen, SPIN_IN_PASS);
}

static float *reserve(Scratch *s, size_t floats) {
    if (s->size < floats) {
        free(s->memory);
        s->memory = NULL;
        s->size = 0;
        void *p = NULL;
        if (posix_memalign(&p, 64, floats * sizeof(float))) return NULL;
        memset(p, 0, floats * sizeof(float));
        s->memory = p;
        s->size = floats;
    }
    return s->memory;
}

/* ---- one pass ------------------------------------------------------------------------------ */

typedef struct {
    const Model *model;
    const Row *row;
    int rows;
    int wanted;               /* rows whose logits are asked for */
    float *logits;
    size_t logits_stride;
    float *x, *q, *attended, *hidden; /* (rows, …), shared */
    atomic_int *counter; /* (threads + 1, phases): tasks taken of each thread's range; arrivals */
    int phases;
    atomic_int not_finite;
} Pass;

typedef struct { /* what one thread holds during a pass */
    Pool *pool;
    Pass *pass;
    int id, phase;
    float *normed, *tile, *scores, *mixed;
} Thread;

INLINE int range_start(int tasks, int threads, int id) { return (int)((int64_t)tasks * id / threads); }

/* The next task of this phase for this thread, or -1. */
static int claim(Thread *t, int tasks) {
    const int threads = t->pool->threads;
    for (int i = 0; i < threads; i++) {
        const int id = (t->id + i) % threads;
        const int start = range_start(tasks, threads, id), end = range_start(tasks, threads, id + 1);
        atomic_int *taken = &t->pass->counter[(size_t)id * t->pass->phases + t->phase];
        if (atomic_load(taken) >= end - start) continue;
        const int task = start + atomic_fetch_add(taken, 1);
        if (task < end) return task;
    }
    return -1;
}

static void end_phase(Thread *t) {
    barrier(t->pool, &t->pass->counter[(size_t)t->pool->threads * t->pass->phases + t->phase]);
    t->phase++;
}

/* A matrix cut into tasks. */
typedef struct {
    const char *weights;
    size_t panel; /* bytes */
    int panels, per_task, tasks;
} Cut;

#define TASK_PANELS 4
#define TASK_BYTES (128 * 1024) /* what is fetched ahead has to fit the second-level cache */

static Cut cut(const Pass *pass, const void *weights, int rows, int columns, int multiple) {
    Cut c = {.weights = weights, .panel = (size_t)columns * PW * element_size(pass->model->weight_type),
             .panels = (int)panels_of(rows), .per_task = TASK_PANELS};
    if (pass->rows > 1)
        while (c.per_task > multiple && c.per_task * c.panel > TASK_BYTES) c.per_task /= 2;
    c.tasks = (c.panels + c.per_task - 1) / c.per_task;
    return c;
}

INLINE int panels_in(const Cut *c, int task) {
    const int left = c->panels - task * c->per_task;
    return left < c->per_task ? left : c->per_task;
}

INLINE const char *task_weights(const Cut *c, int task) {
    return c->weights + (size_t)task * c->per_task * c->panel;
}

/* A task's weights as something to fetch. */
static Ahead fetch_task(const Cut *c, int task) {
    const size_t bytes = panels_in(c, task) * c->panel;
    return (Ahead){task_weights(c, task), bytes / 256 * 64};
}

static Ahead fetch_first(const Thread *t, const Cut *c) {
    return fetch_task(c, range_start(c->tasks, t->pool->threads, t->id));
}

/* What this thread will read after `task`: its next one, else what `then` says. For one row the
 * panels of a task are four streams already, so only the change to another matrix is bridged. */
static Ahead ahead_of(const Thread *t, const Cut *c, int task, Ahead then) {
    const int threads = t->pool->threads, next = task + 1;
    const int own = next > range_start(c->tasks, threads, t->id) &&
                    next < range_start(c->tasks, threads, t->id + 1);
    if (!own) return then;
    return t->pass->rows > 1 ? fetch_task(c, next) : nothing;
}

/* Sixteen partial sums whatever the register width, folded in one fixed order. */
static float sum16(const float *partial) {
    float s[16];
    memcpy(s, partial, sizeof s);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

static void rms_norm(const float *x, const float *weight, float epsilon, int n, float *y) {
    vf sum[16 / W];
    float partial[16];
    for (int i = 0; i < 16 / W; i++) sum[i] = SPLAT(0.0f);
    for (int k = 0; k < n; k += 16)
        for (int i = 0; i < 16 / W; i++) {
            const vf v = load(x + k + i * W);
            sum[i] = FMA(v, v, sum[i]);
        }
    for (int i = 0; i < 16 / W; i++) store(partial + i * W, sum[i]);
    const vf scale = SPLAT(1.0f / sqrtf(sum16(partial) / (float)n + epsilon));
    for (int k = 0; k < n; k += W) store(y + k, load(x + k) * scale * load(weight + k));
}

static void norm_rows(Thread *t, const float *weight) {
    const Model *m = t->pass->model;
    for (int r = 0; r < t->pass->rows; r++)
        rms_norm(t->pass->x + (size_t)r * m->width, weight, m->epsilon, m->width,
                 t->normed + (size_t)r * m->width);
}

static float *keys_of(const Model *m, const Row *row, int layer, int kv_head) {
    const size_t one = (size_t)row->capacity * m->head_dim;
    return row->cache + ((size_t)layer * 2 * m->kv_heads + kv_head) * one;
}

static float *values_of(const Model *m, const Row *row, int layer, int kv_head) {
    return keys_of(m, row, layer, kv_head + m->kv_heads);
}

/* Rotary position: dimension i turns with dimension i + head_dim / 2. */
static void rotate(const Model *m, int position, float *v) {
    const int half = m->head_dim / 2;
    const float *c = m->cosine + (size_t)position * half, *s = m->sine + (size_t)position * half;
    for (int i = 0; i < half; i += W) {
        const vf a = load(v + i), b = load(v + i + half), cv = load(c + i), sv = load(s + i);
        store(v + i, FMA(a, cv, -(b * sv)));
        store(v + i + half, FMA(b, cv, a * sv));
    }
}

/* The matrices of a layer in the order of use. */
typedef struct {
    Cut qkv, o, gate_up, down;
} Cuts;

static Cut cut_head(const Pass *pass) {
    return cut(pass, pass->model->head, pass->model->head_rows, pass->model->width, 1);
}

static Cuts cuts_of(const Pass *pass, int l) {
    const Model *m = pass->model;
    const Layer *layer = &m->layer[l];
    const int heads = m->heads + 2 * m->kv_heads, attention = m->heads * m->head_dim;
    Cuts c;
    c.qkv = cut(pass, layer->qkv, heads * m->head_dim, m->width, 1);
    c.qkv.per_task = m->head_dim / PW; /* a task is a head */
    c.qkv.tasks = heads;
    c.o = cut(pass, layer->o, m->width, attention, 1);
    c.gate_up = cut(pass, layer->gate_up, (int)panels_of(m->ffn) * 2 * PW, m->width, 2);
    c.down = cut(pass, layer->down, m->width, m->ffn, 1);
    return c;
}

/* Rows in one task of attention: enough query vectors for a full kernel. */
INLINE int rows_attended(const Pass *pass) {
    const int group = pass->model->heads / pass->model->kv_heads;
    return group < MAX_ROWS ? MAX_ROWS / group : 1;
}

INLINE int attention_tasks(const Pass *pass) {
    const int each = rows_attended(pass);
    return (pass->rows + each - 1) / each * pass->model->kv_heads;
}

INLINE int first_attended(const Thread *t) {
    return range_start(attention_tasks(t->pass), t->pool->threads, t->id);
}

/* The keys that a task of attention begins with. */
static Ahead fetch_keys(const Thread *t, int l, int task) {
    const Pass *pass = t->pass;
    const int each = rows_attended(pass), blocks = (pass->rows + each - 1) / each;
    if (task >= blocks * pass->model->kv_heads) return nothing;
    const Row *row = &pass->row[task % blocks * each];
    const size_t bytes = (size_t)row->position * pass->model->head_dim * sizeof(float);
    return (Ahead){(const char *)keys_of(pass->model, row, l, task / blocks), bytes / 256 * 64};
}

/* One task is one head: its part of the product, then bias, norm, rotation, and for keys and
 * values the write into each row's cache. */
static void project_qkv(Thread *t, int l, const Cut *c) {
    const Pass *pass = t->pass;
    const Model *m = pass->model;
    const Layer *layer = &m->layer[l];
    const int hd = m->head_dim, group = m->heads / m->kv_heads;
    const Ahead then = fetch_keys(t, l, first_attended(t));
    norm_rows(t, layer->attention_norm);
    for (int head; (head = claim(t, c->tasks)) >= 0;) {
        product(m->weight_type, task_weights(c, head), c->per_task, t->normed, m->width, pass->rows,
                m->width, t->tile, hd, ahead_of(t, c, head, then));
        const int is_query = head < m->heads, is_key = !is_query && head < m->heads + m->kv_heads;
        const float *norm = is_query ? layer->q_norm : is_key ? layer->k_norm : NULL;
        for (int r = 0; r < pass->rows; r++) {
            const Row *row = &pass->row[r];
            float *v = t->tile + (size_t)r * hd;
            if (layer->qkv_bias)
                for (int i = 0; i < hd; i += W)
                    store(v + i, load(v + i) + load(layer->qkv_bias + (size_t)head * hd + i));
            if (norm) rms_norm(v, norm, m->epsilon, hd, v);
            if (is_query || is_key) rotate(m, row->position, v);
            if (is_query) {
                const size_t kv_head = head / group, g = head % group;
                memcpy(pass->q + ((kv_head * pass->rows + r) * group + g) * hd, v,
                       hd * sizeof(float));
            } else if (is_key) { /* panels of positions: [position / PW][dimension][position % PW] */
                float *to = keys_of(m, row, l, head - m->heads) +
                            (size_t)(row->position / PW) * hd * PW + row->position % PW;
                for (int i = 0; i < hd; i++) to[(size_t)i * PW] = v[i];
            } else { /* panels of dimensions: [dimension / PW][position][dimension % PW] */
                float *to = values_of(m, row, l, head - m->heads - m->kv_heads) +
                            (size_t)row->position * PW;
                for (int i = 0; i < hd; i++)
                    to[(size_t)(i / PW) * row->capacity * PW + i % PW] = v[i];
            }
        }
    }
    end_phase(t);
}

/* scores (in place) become e^(score − largest); returns 1 / their sum. Lanes past `length`, which
 * may hold anything, become 0. */
static float soften(float *scores, int length, int stride, float scale) {
    const int padded = (int)panels_of(length) * PW;
    for (int i = length; i < padded; i++) scores[i] = scores[0];
    vf most = load(scores);
    for (int i = W; i < padded; i += W) {
        const vf v = load(scores + i);
        most = choose((vi)(v > most), v, most);
    }
    float largest = most[0];
    for (int i = 1; i < W; i++)
        if (most[i] > largest) largest = most[i];
    for (int i = 0; i < padded; i += W)
        store(scores + i, exponential((load(scores + i) - SPLAT(largest)) * SPLAT(scale)));
    for (int i = length; i < stride; i++) scores[i] = 0.0f;
    vf sum[16 / W];
    float partial[16];
    for (int i = 0; i < 16 / W; i++) sum[i] = SPLAT(0.0f);
    for (int i = 0; i < padded; i += W) sum[i / W % (16 / W)] += load(scores + i);
    for (int i = 0; i < 16 / W; i++) store(partial + i * W, sum[i]);
    return 1.0f / sum16(partial);
}

/* Rows [from, to) of one cache and one key-value head, with the query heads that share it. Scores
 * past a row's own position are 0, which adds nothing to its sums. */
static void attend_rows(Thread *t, int l, int kv_head, int from, int to, Ahead then) {
    const Pass *pass = t->pass;
    const Model *m = pass->model;
    const int hd = m->head_dim, group = m->heads / m->kv_heads, vectors = (to - from) * group;
    const Row *row = &pass->row[from];
    const int longest = pass->row[to - 1].position + 1, panels = (int)panels_of(longest);
    const size_t stride = (size_t)panels * PW, values_panel = (size_t)row->capacity * PW;
    const float *keys = keys_of(m, row, l, kv_head), *values = values_of(m, row, l, kv_head);
    const float *q = pass->q + ((size_t)kv_head * pass->rows + from) * group * hd;
    const float scale = 1.0f / sqrtf((float)hd);
    float norm[MAX_VECTORS];
    product(F32, keys, panels, q, hd, vectors, hd, t->scores, stride,
            (Ahead){(const char *)values, values_panel * sizeof(float)});
    for (int v = 0; v < vectors; v++)
        norm[v] = soften(t->scores + v * stride, pass->row[from + v / group].position + 1,
                         (int)stride, scale);
    for (int p = 0; p < hd / PW; p++) {
        product(F32, values + p * values_panel, 1, t->scores, stride, vectors, longest,
                t->mixed + (size_t)p * PW, hd, then);
        if (then.at) then.at += (size_t)longest * PW * sizeof(float) / 256 * 64;
    }
    for (int v = 0; v < vectors; v++) {
        float *out = pass->attended + ((size_t)(from + v / group) * m->heads +
                                       (size_t)kv_head * group + v % group) * hd;
        for (int i = 0; i < hd; i += W)
            store(out + i, load(t->mixed + (size_t)v * hd + i) * SPLAT(norm[v]));
    }
}

/* One task is one key-value head and a few rows. */
static void attend(Thread *t, int l, const Cut *o) {
    const Pass *pass = t->pass;
    const int each = rows_attended(pass), blocks = (pass->rows + each - 1) / each;
    const int tasks = blocks * pass->model->kv_heads;
    for (int task; (task = claim(t, tasks)) >= 0;) {
        const int kv_head = task / blocks, end = task % blocks * each + each;
        const int last = task + 1 >= range_start(tasks, t->pool->threads, t->id + 1);
        const Ahead then = last ? fetch_first(t, o) : fetch_keys(t, l, task + 1);
        for (int from = end - each, to; from < end && from < pass->rows; from = to) {
            for (to = from + 1; to < end && to < pass->rows; to++)
                if (pass->row[to].cache != pass->row[from].cache) break;
            attend_rows(t, l, kv_head, from, to, then);
        }
    }
    end_phase(t);
}

/* x += input · weights, where input is (rows, K). */
static void project_residual(Thread *t, const Cut *c, const float *input, int K, Ahead then) {
    const Pass *pass = t->pass;
    const Model *m = pass->model;
    const size_t wide = (size_t)c->per_task * PW;
    for (int task; (task = claim(t, c->tasks)) >= 0;) {
        const int n = panels_in(c, task);
        product(m->weight_type, task_weights(c, task), n, input, K, pass->rows, K, t->tile, wide,
                ahead_of(t, c, task, then));
        const size_t at = task * wide;
        const size_t columns = at + n * PW < (size_t)m->width ? (size_t)n * PW : m->width - at;
        for (int r = 0; r < pass->rows; r++) {
            float *x = pass->x + (size_t)r * m->width + at;
            for (size_t i = 0; i < columns; i++) x[i] += t->tile[r * wide + i];
        }
    }
    end_phase(t);
}

/* hidden = gate / (1 + e^−gate) · up */
static void gate_up(Thread *t, const Layer *layer, const Cuts *cuts) {
    const Pass *pass = t->pass;
    const Model *m = pass->model;
    const Cut *c = &cuts->gate_up;
    const size_t wide = (size_t)c->per_task * PW;
    const Ahead then = fetch_first(t, &cuts->down);
    norm_rows(t, layer->ffn_norm);
    for (int task; (task = claim(t, c->tasks)) >= 0;) {
        const int n = panels_in(c, task);
        product(m->weight_type, task_weights(c, task), n, t->normed, m->width, pass->rows, m->width,
                t->tile, wide, ahead_of(t, c, task, then));
        for (int r = 0; r < pass->rows; r++)
            for (int p = 0; p < n; p += 2) {
                const float *g = t->tile + r * wide + (size_t)p * PW, *u = g + PW;
                float h[PW];
                for (int i = 0; i < PW; i += W) {
                    const vf gate = load(g + i);
                    store(h + i, gate / (SPLAT(1.0f) + exponential(-gate)) * load(u + i));
                }
                const int at = (task * c->per_task + p) / 2 * PW;
                const int columns = at + PW < m->ffn ? PW : m->ffn - at;
                memcpy(pass->hidden + (size_t)r * m->ffn + at, h, columns * sizeof(float));
            }
    }
    end_phase(t);
}

static void head(Thread *t) {
    Pass *pass = t->pass;
    const Model *m = pass->model;
    const Cut c = cut_head(pass);
    int n = 0, first = 0;
    for (int r = 0; r < pass->rows; r++) {
        if (pass->row[r].logits_row < 0) continue;
        if (!n) first = pass->row[r].logits_row;
        rms_norm(pass->x + (size_t)r * m->width, m->final_norm, m->epsilon, m->width,
                 t->normed + (size_t)n++ * m->width);
    }
    for (int task; (task = claim(t, c.tasks)) >= 0;) {
        const int count = panels_in(&c, task);
        float *y = pass->logits + (size_t)first * pass->logits_stride + (size_t)task * c.per_task * PW;
        product(m->weight_type, task_weights(&c, task), count, t->normed, m->width, n, m->width, y,
                pass->logits_stride, ahead_of(t, &c, task, nothing));
        vf bad = SPLAT(0.0f); /* NaN once a logit is not finite: inf − inf and NaN − NaN are NaN */
        for (int r = 0; r < n; r++)
            for (int i = 0; i < count * PW; i += W) {
                const vf v = load(y + (size_t)r * pass->logits_stride + i);
                bad += v - v;
            }
        for (int i = 0; i < W; i++)
            if (bad[i] != 0.0f) atomic_store(&pass->not_finite, 1);
    }
    end_phase(t);
}

/* Floats that a thread's tile takes for each row: the outputs of its largest task. */
static size_t tile_width(const Model *m) {
    return TASK_PANELS * PW > m->head_dim ? TASK_PANELS * PW : m->head_dim;
}

static size_t vectors_attended(const Pass *pass) {
    return (size_t)rows_attended(pass) * (pass->model->heads / pass->model->kv_heads);
}

static void forward(Pool *pool, int id) {
    Pass *pass = pool->subject;
    const Model *m = pass->model;
    Thread t = {.pool = pool, .pass = pass, .id = id, .normed = pool->own[id].memory};
    t.tile = t.normed + (size_t)pass->rows * m->width;
    t.mixed = t.tile + pass->rows * tile_width(m);
    t.scores = t.mixed + (size_t)vectors_attended(pass) * m->head_dim;
    for (int r; (r = claim(&t, pass->rows)) >= 0;)
        embed(m, pass->row[r].token, pass->x + (size_t)r * m->width);
    end_phase(&t);
    for (int l = 0; l < m->layers; l++) {
        const int last = l + 1 == m->layers;
        const Cuts cuts = cuts_of(pass, l);
        const Cut next = last ? cut_head(pass) : cuts_of(pass, l + 1).qkv;
        project_qkv(&t, l, &cuts.qkv);
        attend(&t, l, &cuts.o);
        project_residual(&t, &cuts.o, pass->attended, m->heads * m->head_dim,
                         fetch_first(&t, &cuts.gate_up));
        gate_up(&t, &m->layer[l], &cuts);
        project_residual(&t, &cuts.down, pass->hidden, m->ffn, fetch_first(&t, &next));
    }
    if (pass->wanted) head(&t);
}

/* All threads, the caller's among them, run the job; returns when all have. */
static void run(Pool *pool, void (*job)(Pool *, int), void *subject) {
    pool->job = job;
    pool->subject = subject;
    atomic_store(&pool->finished, 0);
    atomic_fetch_add(&pool->generation, 1);
    notify(pool);
    job(pool, 0);
    for (int seen; (seen = atomic_load(&pool->finished)) < pool->threads - 1;)
        wait_change(pool, &pool->finished, seen, SPIN_IN_PASS);
}

typedef struct {
    Pool *pool;
    int id;
} Worker;

static void *work(void *argument) {
    const Worker worker = *(Worker *)argument;
    free(argument);
    Pool *pool = worker.pool;
    for (int seen = 0;;) {
        wait_change(pool, &pool->generation, seen, SPIN_BETWEEN);
        seen = atomic_load(&pool->generation);
        pool->job(pool, worker.id);
        if (atomic_fetch_add(&pool->finished, 1) + 2 == pool->threads) notify(pool);
    }
    return NULL;
}

/* A pool of `threads`, the caller's among them; fewer if the system refuses some. It lives as long
 * as the process. */
Pool *sd_pool_new(int threads) {
    Pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->thread = calloc(threads, sizeof *pool->thread);
    pool->own = calloc(threads, sizeof *pool->own);
    if (!pool->thread || !pool->own) return NULL;
    pthread_mutex_init(&pool->one_job, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->threads = 1;
    for (int i = 1; i < threads; i++) {
        Worker *worker = malloc(sizeof *worker);
        if (!worker) break;
        *worker = (Worker){pool, i};
        if (pthread_create(&pool->thread[i], NULL, work, worker)) {
            free(worker);
            break;
        }
        pool->threads++;
    }
    return pool;
}

int sd_pool_threads(const Pool *pool) { return pool->threads; }

enum { OK = 0, NO_MEMORY = 1, NOT_FINITE = 2 };

#define ROWS_AT_ONCE 128 /* longer inputs go through the layers in parts */

/* logits: (rows asked for, stride ≥ head_rows rounded up to PW). Rows of one cache come in order of
 * position, and logits_row counts up from 0. */
int sd_forward(Pool *pool, const Model *m, int rows, const Row *row, float *logits, int64_t stride) {
    int status = OK;
    pthread_mutex_lock(&pool->one_job);
    for (int from = 0; from < rows && status == OK; from += ROWS_AT_ONCE) {
        const size_t n = rows - from < ROWS_AT_ONCE ? rows - from : ROWS_AT_ONCE;
        Pass pass = {.model = m, .row = row + from, .rows = (int)n, .logits = logits,
                     .logits_stride = stride,
                     .phases = (5 * m->layers + 2 + 15) / 16 * 16}; /* whole cache lines */
        int longest = 0;
        for (size_t r = 0; r < n; r++) {
            pass.wanted += pass.row[r].logits_row >= 0;
            if (pass.row[r].position >= longest) longest = pass.row[r].position + 1;
        }
        const size_t attention = (size_t)m->heads * m->head_dim;
        const size_t own = n * (m->width + tile_width(m)) +
                           vectors_attended(&pass) * (m->head_dim + panels_of(longest) * PW);
        const size_t counters = (size_t)(pool->threads + 1) * pass.phases;
        pass.x = reserve(&pool->shared, n * (m->width + 2 * attention + m->ffn));
        pass.counter = (atomic_int *)reserve(&pool->counters, counters);
        if (!pass.x || !pass.counter) status = NO_MEMORY;
        for (int i = 0; i < pool->threads; i++)
            if (!reserve(&pool->own[i], own)) status = NO_MEMORY;
        if (status != OK) break;
        pass.q = pass.x + n * m->width;
        pass.attended = pass.q + n * attention;
        pass.hidden = pass.attended + n * attention;
        for (size_t i = 0; i < counters; i++) atomic_init(&pass.counter[i], 0);
        run(pool, forward, &pass);
        if (atomic_load(&pass.not_finite)) status = NOT_FINITE;
    }
    pthread_mutex_unlock(&pool->one_job);
    return status;
}

typedef struct {
    const char *memory;
    size_t bytes; /* each thread reads its share as four streams of whole cache lines */
    atomic_uint sum;
} Reading;

static void read_share(Pool *pool, int id) {
    Reading *reading = pool->subject;
    const size_t stream = reading->bytes / pool->threads / 256 * 64;
    const char *from = reading->memory + (size_t)id * 4 * stream;
    vu sum[8] = {{0}};
    for (size_t i = 0; i < stream; i += 64)
        for (int s = 0; s < 4; s++)
            for (size_t lane = 0; lane < 64; lane += 4 * W)
                sum[(2 * s + lane / 32) % 8] ^= (vu) * (const vu_any *)(from + s * stream + i + lane);
    for (int i = 1; i < 8; i++) sum[0] ^= sum[i];
    atomic_fetch_xor(&reading->sum, sum[0][0]);
}

/* Read so many bytes with all threads, for measuring; the result only keeps the reads alive. */
unsigned sd_read(Pool *pool, const void *memory, int64_t bytes) {
    Reading reading = {.memory = memory, .bytes = bytes};
    pthread_mutex_lock(&pool->one_job);
    run(pool, read_share, &reading);
    pthread_mutex_unlock(&pool->one_job);
    return atomic_load(&reading.sum);
}

/* 0 if every kernel gives the bits of the chain that the head of this file promises. Run once after
 * a build, in its own process, so that a miscompiled library is never used. */
int sd_self_test(void) {
    enum { K = 37, N = 7 * PW, ROWS = 2 * MAX_ROWS + 1 };
    static float weights[N][K], x[ROWS][K], y[ROWS][N];
    static float panels[N * K];
    uint32_t seed = 1;
    for (int type = BF16; type <= F32; type++) {
        for (int i = 0; i < (N + ROWS) * K; i++) {
            seed = seed * 1664525u + 1013904223u;
            const float v = (float)(int32_t)seed / 2147483648.0f;
            if (i < N * K) weights[i / K][i % K] = type == BF16 ? bf16_to_float(float_to_bf16(v)) : v;
            else x[i / K - N][i % K] = v;
        }
        sd_pack(panels, type, weights, F32, N, K, 0, 1);
        for (int rows = 1; rows <= ROWS; rows++) {
            product(type, panels, N / PW, &x[0][0], K, rows, K, &y[0][0], N, nothing);
            for (int r = 0; r < rows; r++)
                for (int n = 0; n < N; n++) {
                    volatile float sum = 0.0f;
                    for (int k = 0; k < K; k++) {
#ifdef NOT_FUSED
                        volatile float one = x[r][k] * weights[n][k];
                        sum += one;
#else
                        sum = fmaf(x[r][k], weights[n][k], sum);
#endif
                    }
                    if (sum != y[r][n]) return 1;
                }
        }
    }
    return 0;
}
