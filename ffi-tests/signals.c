/* Signals by the thousand: their handlers run on the host's threads alone, blocking calls are not
 * cut short, and what debuggers, crash handlers and profilers need stays unblocked in the library's
 * threads. argv: a server. */
#include "host.h"

#include <signal.h>

#define SIGNALS 5000

static atomic_int handled, strangers;
static int main_thread;

static void handler(int number)
{
    int saved = errno;
    (void)number;
    atomic_fetch_add(&handled, 1);
    if (thread_id() != main_thread)
        atomic_fetch_add(&strangers, 1);
    errno = saved;
}

/* Signals for the process as a whole: the kernel gives them to any thread that does not block them. */
static void *storm(void *unused)
{
    (void)unused;
    for (int i = 0; i < SIGNALS; i++) {
        CHECK(kill(getpid(), i % 2 == 0 ? SIGUSR1 : SIGCHLD) == 0);
        if (i % 16 == 0)
            sleep_ms(1);
    }
    return NULL;
}

/* The signals that a thread blocks. */
static unsigned long long blocked_by(const char *task)
{
    char path[300], line[256];
    unsigned long long mask = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *status = fopen(path, "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "SigBlk: %llx", &mask) == 1)
            found = true;
    fclose(status);
    CHECK(found);
    return mask;
}

static void masks_of_the_librarys_threads(void)
{
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == main_thread)
            continue;
        unsigned long long mask = blocked_by(entry->d_name);
        const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
        const int closed[] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGTERM, SIGINT, SIGHUP,
                              SIGQUIT, SIGALRM, SIGPIPE, SIGIO,   SIGWINCH};
        for (size_t i = 0; i < sizeof open / sizeof *open; i++)
            CHECK((mask >> (open[i] - 1) & 1) == 0);
        for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
            CHECK((mask >> (closed[i] - 1) & 1) == 1);
        found++;
    }
    closedir(tasks);
    CHECK(found >= 1);
}

static void a_log(void *user, int32_t level, const char *message)
{
    (void)user, (void)level, (void)message;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    main_thread = thread_id();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler; /* and no SA_RESTART */
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGCHLD, &action, NULL) == 0);

    lockclient_config *config = lockclient_config_new();
    lockclient *client = NULL;
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, argv[1]));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_log(config, a_log, NULL));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    lockclient_config_free(config);
    EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(client, 30000));
    masks_of_the_librarys_threads();

    /* The storm's own thread blocks them, so that main and the library's threads are left. */
    pthread_t thread;
    sigset_t ours, before, now;
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    sigaddset(&ours, SIGCHLD);
    CHECK(pthread_sigmask(SIG_BLOCK, &ours, &before) == 0);
    CHECK(pthread_create(&thread, NULL, storm, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);

    lockclient_grant grant;
    uint64_t token = hold(client, "stormy"), start = now_ms();
    EXPECT(LOCKCLIENT_TIMED_OUT, acquire(client, "stormy", 1000, &grant));
    CHECK(now_ms() - start >= 1000);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "stormy", NUL, token));
    for (int i = 0; i < 500; i++)
        EXPECT(LOCKCLIENT_OK, lockclient_release(client, "stormy", NUL, hold(client, "stormy")));
    CHECK(pthread_join(thread, NULL) == 0);

    CHECK(atomic_load(&handled) > 100);
    SAME(0, atomic_load(&strangers));
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    for (int i = 1; i < 64; i++)
        CHECK(sigismember(&before, i) == sigismember(&now, i));
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    return done();
}
