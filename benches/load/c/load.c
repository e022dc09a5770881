#include "load.h"
#include "histogram.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_KEYS = 64, KEY_SIZE = 32, LIMIT = 300 /* s */ };

static struct {
    const char *server;
    pid_t server_pid;
    int threads;
    int keys; /* that all threads share; 0: each has its own */
    double warm_up, seconds;
    long warm_pairs, pairs; /* of each thread, instead of a time, if not 0 */
    long windows;           /* at most so often, until the pairs are done without allocation */
    long hold_us;
} options = {.threads = 1, .warm_up = 0.2, .seconds = 1, .warm_pairs = 200, .windows = 1};

static const struct contender *contender;

/* What a thread does with a pair: */
enum phase { WARM_UP, MEASURE, END };
static _Atomic int phase = WARM_UP;
static pthread_barrier_t ready, begin;

struct worker {
    pthread_t thread;
    int number;
    struct histogram pairs, hand_over;
} __attribute__((aligned(128)));

/* When the last holder of a shared key began to release it. */
static struct {
    _Atomic uint64_t released;
} __attribute__((aligned(128))) shared[MAX_KEYS];

_Noreturn void load_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _exit(1); /* other threads may be at work */
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) != 0)
        load_fail("the server's clock cannot be read: has it ended?");
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static void sleep_ns(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) != 0)
        ;
}

int load_split(const char *server, char *host, size_t size)
{
    const char *colon = strrchr(server, ':');
    if (colon == NULL || (size_t)(colon - server) >= size)
        load_fail("%s is not HOST:PORT", server);
    memcpy(host, server, (size_t)(colon - server));
    host[colon - server] = '\0';
    return atoi(colon + 1);
}

int load_connect(const char *server)
{
    char host[64];
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)load_split(server, host, sizeof host));
    int on = 1, socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1 || socket_fd < 0 ||
        connect(socket_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        perror(server);
        exit(1);
    }
    return socket_fd;
}

/* As idle between the pairs as within them, where nobody else waits for the key. */
static bool rest(void)
{
    if (options.hold_us == 0 || options.keys > 0)
        return false;
    sleep_ns((uint64_t)options.hold_us * 1000);
    return true;
}

/* One acquire and release. `start` is when it began; returns when it ended. */
static uint64_t pair(struct worker *worker, void *state, const char *key, int key_number,
                     uint64_t start, bool measured)
{
    size_t length = strlen(key);
    uint64_t token = contender->acquire(state, key, length);
    uint64_t held = 0;
    if (options.keys > 0) {
        uint64_t granted = now();
        uint64_t released = atomic_load(&shared[key_number].released);
        /* Only what has waited since before the release is a hand-over. */
        if (measured && released != 0 && start + 100000 < released)
            histogram_add(&worker->hand_over, granted - released);
        held = granted;
    }
    if (options.hold_us > 0) {
        held = now();
        sleep_ns((uint64_t)options.hold_us * 1000);
    }
    if (options.keys > 0 || options.hold_us > 0) {
        uint64_t released = now();
        held = released - held;
        atomic_store(&shared[key_number].released, released);
    }
    contender->release(state, key, length, token);
    uint64_t end = now();
    if (measured)
        histogram_add(&worker->pairs, end - start - held);
    return end;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    void *state = contender->join(worker->number);
    char key[KEY_SIZE];
    int number = options.keys > 0 ? worker->number % options.keys : worker->number;
    snprintf(key, sizeof key, "bench/%s/%04d/lock/name", options.keys > 0 ? "all" : "own", number);
    number %= MAX_KEYS;

    pthread_barrier_wait(&ready);
    if (options.pairs > 0) {
        for (long count = 0; count < options.warm_pairs; count++)
            pair(worker, state, key, number, now(), false);
        pthread_barrier_wait(&ready);
        for (;;) {
            pthread_barrier_wait(&begin);
            if (atomic_load(&phase) == END)
                break;
            memset(&worker->pairs, 0, sizeof worker->pairs);
            for (long count = 0; count < options.pairs; count++) {
                pair(worker, state, key, number, now(), true);
                rest();
            }
            pthread_barrier_wait(&ready);
        }
    } else {
        uint64_t start = now();
        int at_start = WARM_UP;
        while (at_start != END) {
            /* Measured is what began while it was on; the few that end after it do not matter. */
            start = pair(worker, state, key, number, start, at_start == MEASURE);
            at_start = atomic_load_explicit(&phase, memory_order_relaxed);
            if (rest())
                start = now();
        }
    }
    contender->leave(state);
    return NULL;
}

struct usage {
    uint64_t time, client_cpu, server_cpu, client_switches, server_switches, allocations;
};

static uint64_t server_switches(void)
{
    char path[300], line[128];
    uint64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)options.server_pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        load_fail("the server has ended");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)options.server_pid,
                 task->d_name);
        FILE *status = task->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            uint64_t count;
            if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &count) == 1 ||
                sscanf(line, "nonvoluntary_ctxt_switches: %" SCNu64, &count) == 1)
                sum += count;
        }
        if (status != NULL)
            fclose(status);
    }
    closedir(tasks);
    return sum;
}

/* What this process itself uses: to be read right before and right after what is measured. */
static void read_usage(struct usage *usage)
{
    struct rusage self;
    getrusage(RUSAGE_SELF, &self);
    usage->client_switches = (uint64_t)(self.ru_nvcsw + self.ru_nivcsw);
    usage->client_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    usage->allocations = allocations();
    usage->time = now();
}

static void read_server(struct usage *usage)
{
    clockid_t clock;
    if (options.server_pid == 0)
        return;
    if (clock_getcpuclockid(options.server_pid, &clock) != 0)
        load_fail("the server has ended");
    usage->server_cpu = clock_ns(clock);
    usage->server_switches = server_switches();
}

static void parse(int count, char **arguments)
{
    static const struct option names[] = {
        {"server", 1, NULL, 's'}, {"server-pid", 1, NULL, 'p'}, {"threads", 1, NULL, 't'},
        {"keys", 1, NULL, 'k'},   {"warm-up", 1, NULL, 'w'},    {"seconds", 1, NULL, 'd'},
        {"pairs", 1, NULL, 'n'},  {"warm-pairs", 1, NULL, 'm'}, {"hold-us", 1, NULL, 'h'},
        {"windows", 1, NULL, 'r'},
        {NULL, 0, NULL, 0}};
    for (int name; (name = getopt_long(count, arguments, "", names, NULL)) != -1;) {
        switch (name) {
        case 's': options.server = optarg; break;
        case 'p': options.server_pid = (pid_t)atoi(optarg); break;
        case 't': options.threads = atoi(optarg); break;
        case 'k': options.keys = atoi(optarg); break;
        case 'w': options.warm_up = atof(optarg); break;
        case 'd': options.seconds = atof(optarg); break;
        case 'n': options.pairs = atol(optarg); break;
        case 'm': options.warm_pairs = atol(optarg); break;
        case 'h': options.hold_us = atol(optarg); break;
        case 'r': options.windows = atol(optarg); break;
        default: exit(2);
        }
    }
    if (options.server == NULL || options.threads < 1 || options.keys > MAX_KEYS)
        load_fail("usage: --server HOST:PORT [--server-pid PID] [--threads N] [--keys N] "
                  "[--warm-up S] [--seconds S] [--pairs N] [--warm-pairs N] [--windows N] "
                  "[--hold-us N]");
    options.pairs = (options.pairs + options.threads - 1) / options.threads;
}

static void print(const struct worker *workers, struct usage before, struct usage after)
{
    static struct histogram pairs, hand_over;
    for (int number = 0; number < options.threads; number++) {
        histogram_merge(&pairs, &workers[number].pairs);
        histogram_merge(&hand_over, &workers[number].hand_over);
    }
    printf("{\"pairs\": %" PRIu64 ", \"seconds\": %.6f, \"p50_ns\": %" PRIu64
           ", \"p99_ns\": %" PRIu64 ", \"p999_ns\": %" PRIu64 ", \"hand_overs\": %" PRIu64
           ", \"hand_over_p50_ns\": %" PRIu64 ", \"hand_over_p99_ns\": %" PRIu64
           ", \"client_cpu_ns\": %" PRIu64 ", \"server_cpu_ns\": %" PRIu64
           ", \"client_switches\": %" PRIu64 ", \"server_switches\": %" PRIu64
           ", \"allocations\": %" PRIu64 "}\n",
           pairs.total, (double)(after.time - before.time) / 1e9, histogram_quantile(&pairs, 0.5),
           histogram_quantile(&pairs, 0.99), histogram_quantile(&pairs, 0.999), hand_over.total,
           histogram_quantile(&hand_over, 0.5), histogram_quantile(&hand_over, 0.99),
           after.client_cpu - before.client_cpu, after.server_cpu - before.server_cpu,
           after.client_switches - before.client_switches,
           after.server_switches - before.server_switches,
           after.allocations - before.allocations);
}

int load_main(int count, char **arguments, const struct contender *the_contender)
{
    contender = the_contender;
    parse(count, arguments);
    /* A run that hangs ends, and fails, by this signal. */
    alarm(LIMIT + (unsigned)(options.warm_up + options.seconds));
    contender->open(options.server);

    struct worker *workers = aligned_alloc(128, (size_t)options.threads * sizeof *workers);
    if (workers == NULL)
        load_fail("no memory");
    /* Touched now, so that no page fault is timed. */
    memset(workers, 0, (size_t)options.threads * sizeof *workers);
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 256 * 1024);
    pthread_barrier_init(&ready, NULL, (unsigned)options.threads + 1);
    pthread_barrier_init(&begin, NULL, (unsigned)options.threads + 1);
    for (int number = 0; number < options.threads; number++) {
        workers[number].number = number;
        if (pthread_create(&workers[number].thread, &small_stack, work, &workers[number]) != 0)
            load_fail("no thread");
    }

    struct usage before = {0}, after = {0};
    pthread_barrier_wait(&ready);
    if (options.pairs > 0) {
        pthread_barrier_wait(&ready);
        do {
            read_server(&before);
            read_usage(&before);
            pthread_barrier_wait(&begin);
            pthread_barrier_wait(&ready);
            read_usage(&after);
            read_server(&after);
        } while (before.allocations != after.allocations && --options.windows > 0);
        atomic_store(&phase, END);
        pthread_barrier_wait(&begin);
    } else {
        sleep_ns((uint64_t)(options.warm_up * 1e9));
        read_server(&before);
        read_usage(&before);
        atomic_store(&phase, MEASURE);
        sleep_ns((uint64_t)(options.seconds * 1e9));
        atomic_store(&phase, END);
        read_usage(&after);
        read_server(&after);
    }
    for (int number = 0; number < options.threads; number++)
        pthread_join(workers[number].thread, NULL);
    contender->close();
    print(workers, before, after);
    free(workers);
    return 0;
}
