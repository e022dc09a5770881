/* A host that cancels its threads: none is cancelled inside a call, all are at their own next
 * opportunity. argv: a server. */
#include "host.h"

static lockclient *client;
static uint64_t token;

/* One that was to be cancelled before its first call, or is while it is blocked in one. */
static void *locks(void *beforehand)
{
    lockclient_grant grant;
    if (beforehand != NULL)
        CHECK(pthread_cancel(pthread_self()) == 0);
    else
        EXPECT(LOCKCLIENT_TIMED_OUT, acquire(client, "held", 1000, &grant));
    for (int i = 0; i < 20; i++)
        EXPECT(LOCKCLIENT_OK, lockclient_release(client, "free", NUL, hold(client, "free")));
    token = hold(client, "last");
    pthread_testcancel();
    fail(__FILE__, __LINE__, "it was not cancelled afterwards");
}

static void cancelled(void *beforehand)
{
    pthread_t thread;
    void *result = NULL;
    token = 0;
    CHECK(pthread_create(&thread, NULL, locks, beforehand) == 0);
    if (beforehand == NULL) {
        AWAIT(client, in_flight_now, 1);
        CHECK(pthread_cancel(thread) == 0);
    }
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && token != 0);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "last", NUL, token));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    client = open_ready(argv[1]);
    uint64_t held = hold(client, "held");
    cancelled(&token);
    cancelled(NULL);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "held", NUL, held));
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    return done();
}
