/* What a system may do to a program's sockets, done on purpose. For LD_PRELOAD.
 *
 * Told by the environment; what is not there does not happen:
 *
 *   SHIM_SEED=N         seeds what happens at random
 *   SHIM_SHORT=P        of 1000 sends, P are cut short
 *   SHIM_AGAIN=P        of 1000 sends, P fail with EAGAIN
 *   SHIM_INTR=P         of 1000 sends, receives and epoll waits, P fail with EINTR
 *   SHIM_RESET=P        of 1000 sends, P really send some bytes, after which the connection is dead
 *   SHIM_CUT=K          the first send of SHIM_CUT_FROM bytes or more really sends K of them, and
 *                       then the connection is dead (SHIM_CUT_THEN=reset), or the socket is full
 *                       for that once and goes on (SHIM_CUT_THEN=again)
 *   SHIM_CONNECT=N      the first N connects fail with ECONNREFUSED
 *   SHIM_FULL=N         every socket's send buffer is set to N bytes when it connects
 *   SHIM_FORK=1         after the first send of SHIM_CUT_FROM bytes or more the process forks; the
 *                       copy does nothing, and ends with its maker
 *   SHIM_NAME=NAME      looking up NAME takes for ever
 *   SHIM_REPORT=FILE    at the end, what was done is written there
 *
 * Only TCP sockets are touched. A send of such a socket without MSG_NOSIGNAL ends the program: in a
 * host that kept the default disposition it would be killed by SIGPIPE.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FDS 4096

struct watch {
    int epoll;
    struct epoll_event event;
    int dead;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct watch watches[FDS];
static uint64_t state;
static int64_t short_per_mille, again_per_mille, intr_per_mille, reset_per_mille;
static int64_t cut_at = -1, cut_from = 1, connects_to_fail;
static int64_t send_buffer;
static int cut_then_again, forks;
static const char *hanging_name;
static uint64_t shorts, agains, intrs, resets, cuts, refusals;

static ssize_t (*real_send)(int, const void *, size_t, int);
static ssize_t (*real_recv)(int, void *, size_t, int);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static int (*real_epoll_ctl)(int, int, int, struct epoll_event *);
static int (*real_epoll_wait)(int, struct epoll_event *, int, int);
static int (*real_getaddrinfo)(const char *, const char *, const struct addrinfo *,
                               struct addrinfo **);

static void find(void *slot, const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    if (symbol == NULL) {
        fprintf(stderr, "shim: no %s\n", name);
        abort();
    }
    memcpy(slot, &symbol, sizeof symbol);
}

static int64_t number(const char *name, int64_t fallback) {
    const char *text = getenv(name);
    return text == NULL ? fallback : strtoll(text, NULL, 10);
}

__attribute__((constructor)) static void begin(void) {
    find(&real_send, "send");
    find(&real_recv, "recv");
    find(&real_connect, "connect");
    find(&real_epoll_ctl, "epoll_ctl");
    find(&real_epoll_wait, "epoll_wait");
    find(&real_getaddrinfo, "getaddrinfo");
    state = (uint64_t)number("SHIM_SEED", 1) * 0x9e3779b97f4a7c15u | 1;
    short_per_mille = number("SHIM_SHORT", 0);
    again_per_mille = number("SHIM_AGAIN", 0);
    intr_per_mille = number("SHIM_INTR", 0);
    reset_per_mille = number("SHIM_RESET", 0);
    cut_at = number("SHIM_CUT", -1);
    cut_from = number("SHIM_CUT_FROM", 1);
    connects_to_fail = number("SHIM_CONNECT", 0);
    send_buffer = number("SHIM_FULL", 0);
    forks = (int)number("SHIM_FORK", 0);
    hanging_name = getenv("SHIM_NAME");
    const char *then = getenv("SHIM_CUT_THEN");
    cut_then_again = then != NULL && strcmp(then, "again") == 0;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("SHIM_REPORT");
    FILE *file = path == NULL ? NULL : fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "short=%llu again=%llu intr=%llu reset=%llu cut=%llu refused=%llu\n",
                (unsigned long long)shorts, (unsigned long long)agains, (unsigned long long)intrs,
                (unsigned long long)resets, (unsigned long long)cuts,
                (unsigned long long)refusals);
        fclose(file);
    }
}

/* With the lock held. */
static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static int happens(int64_t per_mille) {
    return per_mille > 0 && (int64_t)draw(1000) < per_mille;
}

static int option(int fd, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

static int is_tcp(int fd) {
    if (fd < 0 || fd >= FDS || option(fd, SO_TYPE) != SOCK_STREAM) {
        return 0;
    }
    int domain = option(fd, SO_DOMAIN);
    return domain == AF_INET || domain == AF_INET6;
}

/* A socket that was said to be full has to be reported writable again, as the system would. */
static void arm(int fd) {
    struct watch *watch = &watches[fd];
    if (watch->epoll > 0) {
        struct epoll_event event = watch->event;
        real_epoll_ctl(watch->epoll, EPOLL_CTL_MOD, fd, &event);
    }
}

static void kill_connection(int fd) {
    watches[fd].dead = 1;
    shutdown(fd, SHUT_RDWR);
}

static ssize_t fail(int error) {
    errno = error;
    return -1;
}

/* A copy of the process, with all its descriptors but the standard ones. */
static void leave_a_copy(void) {
    pid_t maker = getpid();
    if (fork() == 0) {
        for (int fd = 0; fd < 3; fd++) {
            close(fd);
        }
        /* It ends with its maker, or by itself after a minute. Signals may be blocked here. */
        for (int turn = 0; turn < 6000 && getppid() == maker; turn++) {
            struct timespec pause = {0, 10 * 1000 * 1000};
            nanosleep(&pause, NULL);
        }
        _exit(0);
    }
}

/* With the lock held. */
static ssize_t send_badly(int fd, const void *bytes, size_t length, int flags) {
    struct watch *watch = &watches[fd];
    if (watch->dead) {
        return fail(ECONNRESET);
    }
    if (cut_at >= 0 && (int64_t)length >= cut_from && cut_at <= (int64_t)length) {
        size_t most = (size_t)cut_at;
        cut_at = -1;
        cuts += 1;
        ssize_t sent = most == 0 ? 0 : real_send(fd, bytes, most, flags);
        if (cut_then_again) {
            arm(fd);
            return sent > 0 ? sent : fail(EAGAIN);
        }
        kill_connection(fd);
        arm(fd);
        return sent > 0 ? sent : fail(ECONNRESET);
    }
    if (happens(intr_per_mille)) {
        intrs += 1;
        return fail(EINTR);
    }
    if (happens(again_per_mille)) {
        agains += 1;
        arm(fd);
        return fail(EAGAIN);
    }
    if (happens(reset_per_mille)) {
        size_t most = (size_t)draw(length + 1);
        resets += 1;
        ssize_t sent = most == 0 ? 0 : real_send(fd, bytes, most, flags);
        kill_connection(fd);
        arm(fd);
        return sent > 0 ? sent : fail(ECONNRESET);
    }
    if (length > 1 && happens(short_per_mille)) {
        shorts += 1;
        ssize_t sent = real_send(fd, bytes, 1 + (size_t)draw(length - 1), flags);
        arm(fd);
        return sent;
    }
    return real_send(fd, bytes, length, flags);
}

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    if (!is_tcp(fd)) {
        return real_send(fd, bytes, length, flags);
    }
    if ((flags & MSG_NOSIGNAL) == 0) {
        fputs("shim: a send that may raise SIGPIPE\n", stderr);
        abort();
    }
    pthread_mutex_lock(&lock);
    ssize_t sent = send_badly(fd, bytes, length, flags);
    int error = errno;
    int copy = forks && sent >= cut_from;
    forks = forks && !copy;
    pthread_mutex_unlock(&lock);
    if (copy) {
        leave_a_copy();
    }
    errno = error;
    return sent;
}

static int interrupted(void) {
    pthread_mutex_lock(&lock);
    int yes = happens(intr_per_mille);
    intrs += (uint64_t)yes;
    pthread_mutex_unlock(&lock);
    return yes;
}

ssize_t recv(int fd, void *bytes, size_t length, int flags) {
    if (is_tcp(fd) && interrupted()) {
        return fail(EINTR);
    }
    return real_recv(fd, bytes, length, flags);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    if (interrupted()) {
        return (int)fail(EINTR);
    }
    return real_epoll_wait(epoll, events, most, timeout);
}

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event) {
    if (fd >= 0 && fd < FDS) {
        pthread_mutex_lock(&lock);
        struct watch *watch = &watches[fd];
        watch->epoll = op == EPOLL_CTL_DEL ? 0 : epoll;
        if (event != NULL) {
            watch->event = *event;
        }
        if (op == EPOLL_CTL_ADD) {
            watch->dead = 0;
        }
        pthread_mutex_unlock(&lock);
    }
    return real_epoll_ctl(epoll, op, fd, event);
}

/* With GNU's extensions the system declares this one with a union, which ISO C does not know. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
int connect(int fd, const struct sockaddr *address, socklen_t length) {
    if (is_tcp(fd)) {
        pthread_mutex_lock(&lock);
        int refuse = connects_to_fail > 0;
        if (refuse) {
            connects_to_fail -= 1;
            refusals += 1;
        }
        pthread_mutex_unlock(&lock);
        if (refuse) {
            return (int)fail(ECONNREFUSED);
        }
        if (send_buffer > 0) {
            int size = (int)send_buffer;
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        }
    }
    return real_connect(fd, address, length);
}
#pragma GCC diagnostic pop

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **result) {
    if (hanging_name != NULL && node != NULL && strcmp(node, hanging_name) == 0) {
        /* Longer than any test waits; and then over. */
        struct timespec minutes = {300, 0};
        nanosleep(&minutes, NULL);
        return EAI_AGAIN;
    }
    return real_getaddrinfo(node, service, hints, result);
}
