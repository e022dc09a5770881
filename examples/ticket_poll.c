/* One lock in an event loop that watches other things too: the ticket has a descriptor of its own.
 *
 *   ticket_poll HOST:PORT KEY
 *
 * Waits for the lock, and does not sleep meanwhile: standard input, and a tick every 100 ms, are
 * served as well. Ends when the lock was had and given back, or with the end of the input.
 */
#include "lockclient.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    lockclient *client = NULL;
    lockclient_ticket *ticket = NULL;
    lockclient_grant grant;
    char byte;
    if (argc != 3) {
        fprintf(stderr, "usage: %s HOST:PORT KEY\n", argv[0]);
        return 2;
    }
    lockclient_config *config = lockclient_config_new();
    if (lockclient_config_add_endpoint(config, argv[1]) != LOCKCLIENT_OK ||
        lockclient_open(config, &client) != LOCKCLIENT_OK ||
        lockclient_acquire_start(client, argv[2], LOCKCLIENT_NUL_TERMINATED, 60000,
                                 LOCKCLIENT_DEFAULT_LEASE_MS, 1000, &ticket) != LOCKCLIENT_OK) {
        fprintf(stderr, "%s\n", lockclient_last_error());
        return 1;
    }
    lockclient_config_free(config);

    lockclient_status status = LOCKCLIENT_PENDING;
    while (status == LOCKCLIENT_PENDING) {
        struct pollfd polled[2] = {
            {.fd = lockclient_ticket_fd(ticket), .events = POLLIN},
            {.fd = STDIN_FILENO, .events = POLLIN},
        };
        int ready = poll(polled, 2, 100);
        if (ready == 0) {
            printf("tick\n");
            fflush(stdout);
        }
        if (polled[1].revents != 0 && read(STDIN_FILENO, &byte, 1) <= 0)
            lockclient_ticket_cancel(ticket); /* then there is a result, which the next line takes */
        status = lockclient_ticket_poll(ticket, &grant);
    }
    if (status == LOCKCLIENT_OK) {
        printf("held %s token %" PRIu64 "\n", argv[2], grant.token);
        lockclient_release_start(client, argv[2], LOCKCLIENT_NUL_TERMINATED, grant.token);
    } else {
        printf("not held: %s\n", lockclient_status_name(status));
    }
    lockclient_ticket_free(ticket);
    return lockclient_close(client, 5000) == LOCKCLIENT_OK ? 0 : 1;
}
