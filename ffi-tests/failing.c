/* The system refuses things, one after the other: an error, and nothing is left behind. The
 * program's own definitions come before the C library's, also for the library's calls. argv: a
 * server. */
#include "host.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

/* Which call of a function fails from now on: the first is 1; 0 is none. */
static atomic_int fail_thread, fail_epoll, fail_socket, fail_pair, fail_eventfd, fail_madvise;
static atomic_bool no_memory;

static bool fails(atomic_int *count)
{
    int left = atomic_load(count);
    return left > 0 && atomic_fetch_sub(count, 1) == 1;
}

#define REAL(name) ((__typeof__(name) *)(uintptr_t)dlsym(RTLD_NEXT, #name))

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*body)(void *), void *restrict argument)
{
    if (fails(&fail_thread))
        return EAGAIN;
    return REAL(pthread_create)(thread, attributes, body, argument);
}

int epoll_create1(int flags)
{
    if (fails(&fail_epoll)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(epoll_create1)(flags);
}

int socket(int domain, int type, int protocol)
{
    if (fails(&fail_socket)) {
        errno = ENOBUFS;
        return -1;
    }
    return REAL(socket)(domain, type, protocol);
}

int socketpair(int domain, int type, int protocol, int pair[2])
{
    if (fails(&fail_pair)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(socketpair)(domain, type, protocol, pair);
}

int eventfd(unsigned value, int flags)
{
    if (fails(&fail_eventfd)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(eventfd)(value, flags);
}

int madvise(void *start, size_t size, int advice)
{
    if (advice == 18 /* MADV_WIPEONFORK */ && fails(&fail_madvise)) {
        errno = EINVAL;
        return -1;
    }
    return REAL(madvise)(start, size, advice);
}

void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
    if (atomic_load(&no_memory)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

static lockclient_config *config;

/* Opening with the n-th call of a function failing, for every n that there is. */
static int opening(atomic_int *which)
{
    int failed = 0;
    for (int n = 1; n < 100; n++) {
        int descriptors = open_descriptors(), threads = running_threads();
        lockclient *client = (lockclient *)(uintptr_t)1;
        atomic_store(which, n);
        lockclient_status status = lockclient_open(config, &client);
        bool used = atomic_exchange(which, 0) <= 0;
        if (status == LOCKCLIENT_OK) {
            /* Later calls of it are another matter: the client lives with them. */
            EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
        } else {
            EXPECT(LOCKCLIENT_E_SYSTEM, status);
            CHECK(client == NULL && strlen(lockclient_last_error()) > 0);
            failed++;
        }
        AWAIT_THREADS(threads);
        SAME(descriptors, open_descriptors());
        if (!used)
            return failed;
    }
    fail(__FILE__, __LINE__, "it never stops calling");
}

/* No socket for a while: nothing is sent, and the client recovers. */
static void sockets(void)
{
    lockclient *client = NULL;
    lockclient_grant grant = garbage();
    atomic_store(&fail_socket, 1);
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    EXPECT(LOCKCLIENT_OK, lockclient_acquire(client, "socket", NUL, 20000, 1000, 0, &grant));
    CHECK(atomic_load(&fail_socket) == 0 && stats_of(client).connects_failed >= 1);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
}

/* At the limit of descriptors: errors, not crashes, and all is well when there is room again. */
static void descriptors(const char *endpoint)
{
    struct rlimit before, none;
    lockclient_grant grant = garbage();
    lockclient_ticket *ticket = NULL;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    lockclient *ready = open_ready(endpoint);
    none = before;
    none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);

    lockclient *client = (lockclient *)(uintptr_t)1;
    EXPECT(LOCKCLIENT_E_SYSTEM, lockclient_open(config, &client));
    CHECK(client == NULL && strstr(lockclient_last_error(), "open files") != NULL);
    /* Who is open already is not disturbed. */
    uint64_t token = hold(ready, "limit");
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(ready, "limit", NUL, 20000, 1000, 0, &ticket));
    errno = 4242;
    CHECK(lockclient_ticket_fd(ticket) == -1);
    CHECK(strstr(lockclient_last_error(), "open files") != NULL);
    CHECK(lockclient_completion_fd(ready) == -1);
    EXPECT(LOCKCLIENT_E_SYSTEM, lockclient_open(config, &client));
    SAME(4242, errno); /* and not the EMFILE that this thread has met */
    EXPECT(LOCKCLIENT_OK, lockclient_release(ready, "limit", NUL, token));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_wait(ticket, &grant));

    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(lockclient_ticket_fd(ticket) >= 0 && lockclient_completion_fd(ready) >= 0);
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_close(ready, 5000));
}

/* No memory for a handle. */
static void memory(const char *endpoint)
{
    lockclient *client = (lockclient *)(uintptr_t)1, *ready = open_ready(endpoint);
    lockclient_ticket *ticket = (lockclient_ticket *)(uintptr_t)1;
    atomic_store(&no_memory, true);
    lockclient_config *none = lockclient_config_new();
    lockclient_status opened = lockclient_open(config, &client);
    lockclient_status started =
        lockclient_acquire_start(ready, "memory", NUL, 1000, 1000, 0, &ticket);
    atomic_store(&no_memory, false);
    CHECK(none == NULL && client == NULL && ticket == NULL);
    EXPECT(LOCKCLIENT_E_SYSTEM, opened);
    EXPECT(LOCKCLIENT_E_SYSTEM, started);
    CHECK(strstr(lockclient_last_error(), "memory") != NULL);
    hold(ready, "memory");
    EXPECT(LOCKCLIENT_OK, lockclient_close(ready, 5000));
}

static void a_log(void *user, int32_t level, const char *message)
{
    (void)user, (void)level, (void)message;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    config = lockclient_config_new();
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, argv[1]));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_log(config, a_log, NULL));
    CHECK(opening(&fail_thread) >= 2); /* its own, and the log's */
    CHECK(opening(&fail_epoll) >= 1);
    CHECK(opening(&fail_pair) >= 1);
    CHECK(opening(&fail_madvise) >= 1);
    sockets();
    descriptors(argv[1]);
    memory(argv[1]);
    lockclient_config_free(config);
    return done();
}
