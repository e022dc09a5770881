/* A server in a process of its own, and what a client meets there: who holds a lock, with which
 * fencing token, and every way in which an acquire can end without it.
 *
 * quickstart.sh builds and runs it. By hand: quickstart PATH-OF-LOCKD
 */
#include "lockclient.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEY(text) (text), LOCKCLIENT_NUL_TERMINATED
#define WORK_MS 500 /* what the work under a lock takes at the worst */

static uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void must(lockclient_status status, const char *what)
{
    if (status == LOCKCLIENT_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, lockclient_status_name(status), lockclient_last_error());
    exit(1);
}

/* Starts a lockd and reads where it listens. */
static pid_t start_server(const char *path, char *address, size_t size)
{
    int output[2];
    char line[256];
    if (pipe(output) != 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        /* Room for ten locks, so that "busy" can be shown: it refuses from nine on. */
        dup2(output[1], STDOUT_FILENO);
        close(output[0]);
        close(output[1]);
        execl(path, path, "--listen", "127.0.0.1:0", "--max-locks", "10", "--log", "error",
              (char *)NULL);
        _exit(127);
    }
    close(output[1]);
    FILE *reader = fdopen(output[0], "r");
    if (child < 0 || reader == NULL || fgets(line, sizeof line, reader) == NULL ||
        strncmp(line, "listening on ", 13) != 0) {
        fprintf(stderr, "%s did not start\n", path);
        exit(1);
    }
    line[strcspn(line, "\n")] = '\0';
    snprintf(address, size, "%s", line + 13);
    fclose(reader);
    return child;
}

struct worker {
    lockclient *client;
    const char *name;
    uint64_t start;
};

static void *work(void *argument)
{
    struct worker *me = argument;
    lockclient_grant grant;
    lockclient_status status = lockclient_acquire(me->client, KEY("orders/42"), 20000,
                                                  LOCKCLIENT_DEFAULT_LEASE_MS, WORK_MS, &grant);
    if (status != LOCKCLIENT_OK) {
        printf("  %s: %s\n", me->name, lockclient_status_text(status));
        return NULL;
    }
    printf("  %4" PRIu64 " ms  %s holds it, token %" PRIu64 ", at least %" PRIu64
           " ms of the lease left\n",
           now_ms() - me->start, me->name, grant.token, grant.remaining_ms);
    uint64_t held = now_ms();
    sleep_ms(150); /* the work; what the lock protects is handed grant.token */
    printf("  %4" PRIu64 " ms  %s gives it back, having held it for %" PRIu64 " ms\n",
           now_ms() - me->start, me->name, now_ms() - held);
    must(lockclient_release(me->client, KEY("orders/42"), grant.token), me->name);
    return NULL;
}

static void contend(lockclient *client)
{
    const char *names[] = {"ada", "ben", "cleo", "dan"};
    struct worker workers[4];
    pthread_t threads[4];
    printf("\nFour threads want the lock \"orders/42\":\n");
    uint64_t start = now_ms();
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){client, names[i], start};
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static lockclient_status attempt(lockclient *client, const char *key, uint64_t wait_ms,
                                 lockclient_grant *grant)
{
    return lockclient_acquire(client, KEY(key), wait_ms, LOCKCLIENT_DEFAULT_LEASE_MS, WORK_MS,
                              grant);
}

static void time_out(lockclient *client)
{
    lockclient_grant held, grant;
    printf("\nSomebody else holds \"report\":\n");
    must(attempt(client, "report", 0, &held), "report");
    uint64_t start = now_ms();
    lockclient_status status = attempt(client, "report", 0, &grant);
    printf("  a try at once: %s, after %" PRIu64 " ms\n", lockclient_status_name(status),
           now_ms() - start);
    start = now_ms();
    status = attempt(client, "report", 1000, &grant);
    printf("  a second's wait: %s, after %" PRIu64 " ms\n", lockclient_status_name(status),
           now_ms() - start);
    /* Gives it back without waiting for the answer; what follows on this client comes after it. */
    must(lockclient_release_start(client, KEY("report"), held.token), "release");
    status = attempt(client, "report", 0, &grant);
    printf("  given back, then a try: %s\n", lockclient_status_name(status));
    must(lockclient_release(client, KEY("report"), grant.token), "release");
}

static void give_up(lockclient *client)
{
    lockclient_grant held, grant;
    lockclient_ticket *ticket;
    lockclient_stats stats = {0};
    printf("\nA ticket waits without a thread, until it is cancelled:\n");
    must(attempt(client, "slow", 0, &held), "slow");
    must(lockclient_acquire_start(client, KEY("slow"), 20000, LOCKCLIENT_DEFAULT_LEASE_MS, WORK_MS,
                                  &ticket),
         "start");
    while (stats.in_flight_now == 0) {
        sleep_ms(1);
        must(lockclient_get_stats(client, &stats, sizeof stats), "stats");
    }
    lockclient_status status = lockclient_ticket_poll(ticket, &grant);
    printf("  after it was sent: %s\n", lockclient_status_name(status));
    must(lockclient_ticket_cancel(ticket), "cancel");
    status = lockclient_ticket_poll(ticket, &grant);
    printf("  cancelled: %s, definite: %s, so the work is not begun\n",
           lockclient_status_name(status), lockclient_status_is_definite(status) ? "yes" : "no");
    printf("  why: %s\n", lockclient_last_error());
    lockclient_ticket_free(ticket);
    must(lockclient_release(client, KEY("slow"), held.token), "its holder was not disturbed");
}

static void meet_a_full_server(lockclient *client)
{
    lockclient_grant grants[10];
    char key[32];
    int held = 0;
    printf("\nThe server has room for ten locks, and refuses before it is full:\n");
    for (; held < 10; held++) {
        snprintf(key, sizeof key, "many/%d", held + 1);
        lockclient_status status = attempt(client, key, 1000, &grants[held]);
        if (status != LOCKCLIENT_OK) {
            printf("  lock %d: %s; nothing waits there for it\n", held + 1,
                   lockclient_status_name(status));
            break;
        }
    }
    for (int i = 0; i < held; i++) {
        snprintf(key, sizeof key, "many/%d", i + 1);
        must(lockclient_release(client, KEY(key), grants[i].token), key);
    }
    printf("  %d locks are given back\n", held);
}

static void release_twice(lockclient *client)
{
    lockclient_grant grant;
    printf("\nA token releases its lock once:\n");
    must(attempt(client, "once", 5000, &grant), "once");
    for (int i = 0; i < 2; i++) {
        lockclient_status status = lockclient_release(client, KEY("once"), grant.token);
        printf("  token %" PRIu64 ": %s\n", grant.token, lockclient_status_name(status));
    }
}

int main(int argc, char **argv)
{
    char address[256];
    lockclient *client = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: %s PATH-OF-LOCKD\n", argv[0]);
        return 2;
    }
    pid_t server = start_server(argv[1], address, sizeof address);
    printf("a lockd in a process of its own, at %s\n", address);
    fflush(stdout);

    lockclient_config *config = lockclient_config_new();
    must(lockclient_config_add_endpoint(config, address), address);
    must(lockclient_open(config, &client), "open");
    lockclient_config_free(config);

    contend(client);
    time_out(client);
    give_up(client);
    meet_a_full_server(client);
    release_twice(client);

    printf("\nclosed: %s\n", lockclient_status_name(lockclient_close(client, 5000)));
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
    return 0;
}
