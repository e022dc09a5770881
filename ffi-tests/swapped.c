/* A host that closes one descriptor too many, the library's epoll, and whose own epoll gets its
 * number. The library finds out and ends: nothing spins, nothing of the library's gets into the
 * host's epoll, and none of its events is taken. argv: a server. */
#include "host.h"

#include <sys/epoll.h>
#include <sys/socket.h>

/* What is registered in an epoll. */
static int registered(int epoll)
{
    char path[64], line[256];
    int count = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll);
    FILE *info = fopen(path, "r");
    CHECK(info != NULL);
    while (fgets(line, sizeof line, info) != NULL)
        count += strncmp(line, "tfd:", 4) == 0;
    fclose(info);
    return count;
}

int main(int argc, char **argv)
{
    int pair[2];
    lockclient_grant grant;
    CHECK(argc == 2);
    lockclient *client = open_ready(argv[1]);
    uint64_t token = hold(client, "held");
    int its_epoll = epoll_of_the_library();

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    int own = epoll_create1(EPOLL_CLOEXEC);
    /* Ready all the time. */
    struct epoll_event event = {.events = EPOLLOUT, .data = {.u64 = 0}};
    CHECK(own >= 0 && epoll_ctl(own, EPOLL_CTL_ADD, pair[0], &event) == 0);
    CHECK(dup2(own, its_epoll) == its_epoll);

    for (int i = 0; i < 3; i++) {
        uint64_t start = now_ms();
        lockclient_status status = acquire(client, "other", 1000, &grant);
        CHECK(status == LOCKCLIENT_INDETERMINATE || status == LOCKCLIENT_E_SYSTEM);
        CHECK(now_ms() - start < 15000);
    }
    lockclient_status status = lockclient_release(client, "held", NUL, token);
    CHECK(status == LOCKCLIENT_E_SYSTEM);

    uint64_t busy = cpu_ms();
    sleep_ms(1000);
    CHECK(cpu_ms() - busy < 200);
    CHECK(registered(own) == 1);

    lockclient_close(client, 1000);
    CHECK(epoll_wait(its_epoll, &event, 1, 0) == 1 && event.data.u64 == 0);
    CHECK(registered(its_epoll) == 1);
    return done();
}
