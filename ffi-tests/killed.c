/* The server ends while an acquire waits there: unknown. argv: a server, which the test stops once
 * it has a waiter. */
#include "check.h"

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    lockclient *client = open_ready(argv[1]);
    uint64_t token = hold(client, "k");
    lockclient_grant grant = garbage();
    uint64_t start = now_ms();
    EXPECT(LOCKCLIENT_INDETERMINATE, acquire(client, "k", 60000, &grant));
    ZEROED(grant);
    CHECK(now_ms() - start < 30000);
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_release(client, "k", NUL, token));
    EXPECT(LOCKCLIENT_NOT_SENT, acquire(client, "k", 0, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 1000));
    return done();
}
