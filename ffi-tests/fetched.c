/* A ticket that another thread fetches and frees before lockclient_acquire_start has returned, at
 * the moment that is hardest on it: the call learns only then that the thread it woke cannot be
 * woken. The test has the C library overwrite what is freed. The program's own send comes before
 * the C library's, also for the library's calls. argv: a server. */
#include "host.h"

#include <dlfcn.h>
#include <sys/socket.h>

#define ROUNDS 5

static lockclient *client;
/* 1: the next wake is held up; 2: it is held up; 3: the ticket is gone. */
static atomic_int stage;
static _Thread_local bool starting;

ssize_t send(int socket, const void *bytes, size_t length, int flags)
{
    ssize_t (*real)(int, const void *, size_t, int) =
        (__typeof__(real))(uintptr_t)dlsym(RTLD_NEXT, "send");
    ssize_t sent = real(socket, bytes, length, flags);
    int armed = 1;
    if (!starting || !atomic_compare_exchange_strong(&stage, &armed, 2))
        return sent;
    while (atomic_load(&stage) != 3)
        sleep_ms(1);
    errno = EPIPE;
    return -1;
}

static void *fetches(void *unused)
{
    (void)unused;
    while (atomic_load(&stage) != 2)
        sleep_ms(1);
    lockclient_ticket *ticket;
    while ((ticket = lockclient_next_completed(client)) == NULL)
        sleep_ms(1);
    lockclient_ticket_free(ticket);
    atomic_store(&stage, 3);
    return NULL;
}

/* The background thread sleeps, unless the system is slow: then the call needs no wake, and the
 * next one is another chance. */
static bool held_up(void)
{
    lockclient_ticket *ticket = NULL;
    sleep_ms(20);
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, "k", NUL, 20000, 1000, 0, &ticket));
    CHECK(ticket != NULL);
    if (atomic_load(&stage) == 3)
        return true;
    lockclient_ticket_free(ticket);
    return false;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    starting = true;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        client = open_ready(argv[1]);
        CHECK(pthread_create(&thread, NULL, fetches, NULL) == 0);
        atomic_store(&stage, 1);
        uint64_t until = now_ms() + 30000;
        while (!held_up())
            CHECK(now_ms() < until);
        CHECK(pthread_join(thread, NULL) == 0);
        lockclient_close(client, 100);
    }
    return done();
}
