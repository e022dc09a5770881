/* A host that closes every descriptor, the library's too, and then opens files of its own. Calls
 * fail in time, nothing spins, and no byte goes into the host's files. argv: a server. */
#include "host.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define FILES 64

/* Ends in time, without a lock. */
static void fails(lockclient *client, const char *key)
{
    lockclient_grant grant = garbage();
    uint64_t start = now_ms();
    lockclient_status status = acquire(client, key, 1000, &grant);
    CHECK(status == LOCKCLIENT_INDETERMINATE || status == LOCKCLIENT_NOT_SENT ||
          status == LOCKCLIENT_E_SYSTEM);
    ZEROED(grant);
    CHECK(now_ms() - start < 15000);
}

int main(int argc, char **argv)
{
    int files[FILES], pair[2];
    char name[] = "/tmp/lockclient-closefrom-XXXXXX", byte;
    lockclient_grant grant;
    CHECK(argc == 2);
    lockclient *client = open_ready(argv[1]);
    lockclient_ticket *waiting = NULL, *second = NULL;
    uint64_t token = hold(client, "held");
    EXPECT(LOCKCLIENT_OK,
           lockclient_acquire_start(client, "held", NUL, 1000, 30000, 0, &waiting));
    CHECK(lockclient_ticket_fd(waiting) >= 0 && lockclient_completion_fd(client) >= 0);
    AWAIT(client, in_flight_now, 1);

    int its_epoll = epoll_of_the_library();
    closefrom(3);
    /* The numbers are the host's now. */
    int file = mkstemp(name);
    CHECK(file >= 3);
    CHECK(unlink(name) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    int own_epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLONESHOT, .data = {.u32 = 1}};
    CHECK(own_epoll >= 3 && epoll_ctl(own_epoll, EPOLL_CTL_ADD, pair[0], &event) == 0);
    if (own_epoll != its_epoll) {
        /* An epoll of the host's where the library's was; what has that number moves. */
        if (file == its_epoll)
            CHECK((file = dup(file)) >= 3);
        for (int i = 0; i < 2; i++)
            if (pair[i] == its_epoll)
                CHECK((pair[i] = dup(pair[i])) >= 3);
        CHECK(dup2(own_epoll, its_epoll) == its_epoll);
    }
    for (int i = 0; i < FILES; i++) {
        const int own[] = {file, pair[0], own_epoll};
        files[i] = dup(own[i % 3]);
        CHECK(files[i] >= 0);
    }

    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_ticket_wait(waiting, &grant));
    fails(client, "other");
    fails(client, "held");
    lockclient_status status = lockclient_release(client, "held", NUL, token);
    CHECK(status == LOCKCLIENT_INDETERMINATE || status == LOCKCLIENT_E_SYSTEM);
    lockclient_release_start(client, "held", NUL, token);
    if (lockclient_acquire_start(client, "k", NUL, 1000, 30000, 0, &second) == LOCKCLIENT_OK) {
        CHECK(lockclient_ticket_wait(second, &grant) != LOCKCLIENT_OK);
        lockclient_ticket_free(second);
    }

    /* Nobody spins over descriptors that are gone. */
    uint64_t busy = cpu_ms();
    sleep_ms(1000);
    CHECK(cpu_ms() - busy < 500);

    lockclient_ticket_free(waiting);
    uint64_t start = now_ms();
    lockclient_close(client, 1000);
    CHECK(now_ms() - start < 15000);

    /* Every file is still the host's, and nothing was written to it. */
    struct stat status_of;
    CHECK(fstat(file, &status_of) == 0 && status_of.st_size == 0);
    for (int i = 0; i < FILES; i++)
        CHECK(fcntl(files[i], F_GETFD) >= 0);
    CHECK(read(pair[1], &byte, 1) == -1 && errno == EAGAIN);
    /* Nor was its event, which comes once, taken by another. */
    CHECK(epoll_wait(own_epoll, &event, 1, 0) == 1 && event.data.u32 == 1);
    CHECK(epoll_wait(own_epoll, &event, 1, 0) == 0);
    CHECK(write(pair[0], "x", 1) == 1 && read(pair[1], &byte, 1) == 1 && byte == 'x');

    /* A new client is another matter. */
    client = open_ready(argv[1]);
    hold(client, "afterwards");
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    return done();
}
