/* A process that forks with clients, tickets and a lock in use. argv: a server, a server that lets
 * three connections in. */
#include "host.h"

#include <fcntl.h>
#include <signal.h>

#define FORKED LOCKCLIENT_E_FORKED

/* Everything says so, at once, and frees cleanly. */
static void child_of(lockclient *client, lockclient_ticket *waiting, lockclient_ticket *granted,
                     uint64_t token)
{
    lockclient_grant grant = garbage();
    lockclient_ticket *ticket = (lockclient_ticket *)(uintptr_t)1;
    lockclient_stats stats;
    memset(&stats, 0xa5, sizeof stats);
    uint64_t start = now_ms();
    EXPECT(FORKED, lockclient_acquire(client, "other", NUL, 60000, 1000, 0, &grant));
    ZEROED(grant);
    EXPECT(FORKED, lockclient_acquire_start(client, "other", NUL, 60000, 1000, 0, &ticket));
    CHECK(ticket == NULL);
    EXPECT(FORKED, lockclient_release(client, "held", NUL, token));
    EXPECT(FORKED, lockclient_release_start(client, "held", NUL, token));
    EXPECT(FORKED, lockclient_wait_ready(client, 60000));
    EXPECT(FORKED, lockclient_shutdown(client, 60000));
    EXPECT(FORKED, lockclient_get_stats(client, &stats, sizeof stats));
    ZEROED(stats);
    CHECK(lockclient_completion_fd(client) == -1);
    CHECK(lockclient_next_completed(client) == NULL);
    grant = garbage();
    EXPECT(FORKED, lockclient_ticket_wait(waiting, &grant));
    ZEROED(grant);
    EXPECT(FORKED, lockclient_ticket_poll(granted, &grant));
    EXPECT(FORKED, lockclient_ticket_cancel(waiting));
    CHECK(lockclient_ticket_fd(waiting) == -1);
    CHECK(strstr(lockclient_last_error(), "fork") != NULL);
    lockclient_ticket_free(waiting);
    lockclient_ticket_free(granted);
    EXPECT(FORKED, lockclient_close(client, 60000));
    /* All of it: one call that waits for anything takes longer. */
    CHECK(now_ms() - start < 5000);
}

static void with_everything_in_use(const char *endpoint)
{
    lockclient_grant grant = garbage();
    lockclient *client = open_ready(endpoint);
    uint64_t token = hold(client, "held");
    lockclient_ticket *waiting = NULL, *granted = NULL;
    EXPECT(LOCKCLIENT_OK,
           lockclient_acquire_start(client, "held", NUL, 100000, 30000, 0, &waiting));
    EXPECT(LOCKCLIENT_OK,
           lockclient_acquire_start(client, "free", NUL, 100000, 30000, 0, &granted));
    CHECK(readable(lockclient_ticket_fd(granted), 30000));
    int fd = lockclient_ticket_fd(waiting);
    CHECK(fd >= 0 && !readable(fd, 0));
    int completions = lockclient_completion_fd(client);
    CHECK(readable(completions, 30000));
    AWAIT(client, in_flight_now, 1);

    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            child_of(client, waiting, granted, token);
            if (i % 2 == 0)
                _exit(0);
            /* Its own client works in the child. */
            lockclient *own = open_ready(endpoint);
            EXPECT(LOCKCLIENT_TIMED_OUT, acquire(own, "held", 0, &grant));
            uint64_t mine = hold(own, "child");
            EXPECT(LOCKCLIENT_OK, lockclient_release(own, "child", NUL, mine));
            EXPECT(LOCKCLIENT_OK, lockclient_close(own, 5000));
            _exit(0);
        }
        reap(child);
    }

    /* What a child frees tells the parent nothing: the descriptors are the same files in both. */
    CHECK(!readable(fd, 0) && readable(completions, 0));
    /* The parent was not disturbed: the lock is still held, the ticket still waits, on the same
     * connection, and gets its grant. */
    EXPECT(LOCKCLIENT_PENDING, lockclient_ticket_poll(waiting, &grant));
    SAME(0, stats_of(client).connections_closed);
    SAME(0, stats_of(client).released);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "held", NUL, token));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_wait(waiting, &grant));
    CHECK(grant.token > token);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "held", NUL, grant.token));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_poll(granted, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "free", NUL, grant.token));
    lockclient_ticket_free(waiting);
    lockclient_ticket_free(granted);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
}

/* A fork that copies the sanitizer's memory too takes long. */
#ifdef __SANITIZE_ADDRESS__
#define FORKS 10
#else
#define FORKS 150
#endif

/* Another thread may hold any of the library's locks when the process forks: in the child it is
 * held for ever, and nothing there may wait for it. */
static void while_others_hold_locks(const char *endpoint)
{
    pthread_t threads[3];
    lockclient_ticket *ticket = NULL;
    lockclient *client = open_ready(endpoint);
    hold(client, "kept");
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, "kept", NUL, 200000, 1000, 0, &ticket));
    atomic_store(&busy_enough, false);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, keeps_busy, client) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30); /* ends it if it hangs */
            lockclient_ticket_free(ticket);
            EXPECT(FORKED, lockclient_close(client, 60000));
            _exit(0);
        }
        reap(child);
    }
    atomic_store(&busy_enough, true);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    lockclient_ticket_free(ticket);
    lockclient_close(client, 5000);
}

/* How often the client's background thread has gone to sleep. */
static unsigned long sleeps(void)
{
    unsigned long count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], line[256];
        bool its = false;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            its |= strcmp(line, "Name:\tlockclient-io\n") == 0;
            if (its)
                sscanf(line, "voluntary_ctxt_switches: %lu", &count);
        }
        if (status != NULL)
            fclose(status);
    }
    closedir(tasks);
    return count;
}

/* A child that frees its copies leaves the parent's background thread asleep. */
static void wakes_nobody(const char *endpoint)
{
    lockclient *client = open_ready(endpoint);
    lockclient_ticket *ticket = NULL;
    lockclient_grant grant;
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, "idle", NUL, 9000, 90000, 0, &ticket));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_wait(ticket, &grant));
    sleep_ms(1500); /* the last of its connections is made */
    unsigned long before = sleeps();
    CHECK(before > 0);
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            lockclient_ticket_free(ticket);
            EXPECT(FORKED, lockclient_close(client, 60000));
            _exit(0);
        }
        reap(child);
    }
    CHECK(sleeps() - before < 30); /* it probes idle connections now and then */
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
}

/* A child that just lives on, with every descriptor inherited, holds up no close of the parent, and
 * keeps no connection open: what waited on it is gone. */
static void closes_while_a_child_lives(const char *endpoint)
{
    int gate[2];
    lockclient *client = open_ready(endpoint), *other = open_ready(endpoint);
    lockclient_ticket *ghost = NULL;
    uint64_t token = hold(other, "dangling");
    EXPECT(LOCKCLIENT_OK,
           lockclient_acquire_start(client, "dangling", NUL, 200000, 200000, 0, &ghost));
    AWAIT(client, in_flight_now, 1);
    CHECK(pipe(gate) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(gate[1]);
        _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(gate[0]);
    uint64_t start = now_ms();
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 20000));
    CHECK(now_ms() - start < 15000);
    lockclient_ticket_free(ghost);

    /* The server grants it to whoever asks next, and not to a connection that only the child holds. */
    EXPECT(LOCKCLIENT_OK, lockclient_release(other, "dangling", NUL, token));
    hold(other, "dangling");
    EXPECT(LOCKCLIENT_OK, lockclient_close(other, 5000));
    close(gate[1]);
    reap(child);
}

/* The same for connections that nothing waits on: the server sees each of them end, though a child
 * holds them all. */
static void leaves_nothing_connected(const char *endpoint)
{
    int gate[2];
    pid_t children[8];
    lockclient_config *config = lockclient_config_new();
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, endpoint));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_connections(config, 1));
    CHECK(pipe(gate) == 0);
    for (int i = 0; i < 8; i++) {
        lockclient *client = NULL;
        EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
        EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(client, 20000));
        children[i] = fork();
        if (children[i] == 0) {
            char byte;
            close(gate[1]);
            _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
        }
        EXPECT(LOCKCLIENT_OK, lockclient_close(client, 20000));
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < 8; i++)
        reap(children[i]);
    lockclient_config_free(config);
}

/* Descriptors of the library that an exec'ed program would see. */
static void nothing_survives_exec(const char *endpoint)
{
    static bool inherited[1024]; /* not ours: whoever started this process left them open */
    for (int fd = 0; fd < 1024; fd++)
        inherited[fd] = fcntl(fd, F_GETFD) >= 0;
    lockclient *client = open_ready(endpoint);
    lockclient_ticket *ticket = NULL;
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, "exec", NUL, 10000, 1000, 0, &ticket));
    CHECK(lockclient_ticket_fd(ticket) >= 0 && lockclient_completion_fd(client) >= 0);
    int found = 0;
    for (int fd = 3; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !inherited[fd]) {
            found++;
            CHECK((flags & FD_CLOEXEC) != 0);
        }
    }
    CHECK(found >= 4); /* a socket, an epoll, and the two above at the least */
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
}

/* The classic way to become a daemon: the client belongs to the grandchild that opens it. */
static void daemons(const char *endpoint)
{
    lockclient_config *config = lockclient_config_new();
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, endpoint));
    lockclient *early = open_ready(endpoint);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setsid() > 0);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            lockclient_grant grant;
            EXPECT(FORKED, acquire(early, "daemon", 0, &grant));
            EXPECT(FORKED, lockclient_close(early, 0));
            /* A configuration is plain data, and may come from before. */
            lockclient *late = NULL;
            EXPECT(LOCKCLIENT_OK, lockclient_open(config, &late));
            lockclient_config_free(config);
            uint64_t token = hold(late, "daemon");
            EXPECT(LOCKCLIENT_OK, lockclient_release(late, "daemon", NUL, token));
            EXPECT(LOCKCLIENT_OK, lockclient_close(late, 5000));
            _exit(0);
        }
        reap(grandchild);
        _exit(0);
    }
    reap(child);
    hold(early, "daemon");
    EXPECT(LOCKCLIENT_OK, lockclient_close(early, 5000));
    lockclient_config_free(config);
}

#ifdef __SANITIZE_ADDRESS__
/* Before the leak checker, which looks at exit. */
static void leave(void)
{
    _exit(0);
}
#endif

/* What the log callback is given: the first child that it makes. */
static void fork_once(void *user, int32_t level, const char *message)
{
    _Atomic pid_t *child = user;
    (void)level;
    (void)message;
    if (*child != 0)
        return;
    pid_t made = fork();
    if (made != 0)
        *child = made;
#ifdef __SANITIZE_ADDRESS__
    else /* it has the memory of threads that it has not got: nothing of that has leaked */
        atexit(leave);
#endif
    /* The child returns from the callback, like its parent. */
}

/* Its only thread is a copy of the one that calls back, which nobody will ever wake again. */
static void a_child_that_leaves_the_log_callback_ends(const char *endpoint)
{
    static _Atomic pid_t child;
    lockclient_config *config = lockclient_config_new();
    lockclient *client = NULL;
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, endpoint));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_log(config, fork_once, (void *)&child));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    lockclient_config_free(config);
    EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(client, 30000));
    uint64_t until = now_ms() + 30000;
    int status = 0;
    while (child == 0 || waitpid(child, &status, WNOHANG) == 0) {
        if (now_ms() > until && child != 0)
            kill(child, SIGKILL); /* it would keep our output open; the check below fails */
        CHECK(child != 0 || now_ms() < until);
        sleep_ms(1);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    hold(client, "afterwards");
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    with_everything_in_use(argv[1]);
    while_others_hold_locks(argv[1]);
    wakes_nobody(argv[1]);
    closes_while_a_child_lives(argv[1]);
    leaves_nothing_connected(argv[2]);
    nothing_survives_exec(argv[1]);
    daemons(argv[1]);
    a_child_that_leaves_the_log_callback_ends(argv[1]);
    return done();
}
