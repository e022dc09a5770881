/* echo CONNECTIONS: answers frames with frames of the right size. One thread; with one connection
 * it blocks on that, with more it waits for all of them with epoll: whichever is cheaper.
 */
#include "frames.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256 };

struct peer {
    int fd;
    size_t have;
    char bytes[4096];
};

static struct peer *accept_peer(int listener)
{
    int on = 1;
    struct peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL || (peer->fd = accept(listener, NULL, NULL)) < 0 ||
        setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        perror("accept");
        exit(1);
    }
    return peer;
}

/* Reads once, and answers every frame that is whole. Returns 0 at the end of the stream. */
static int serve(struct peer *peer)
{
    char answers[sizeof peer->bytes * 2];
    size_t used = 0, size = 0;
    ssize_t count = recv(peer->fd, peer->bytes + peer->have, sizeof peer->bytes - peer->have, 0);
    if (count <= 0)
        return 0;
    peer->have += (size_t)count;
    while (peer->have > used) {
        const char *frame = peer->bytes + used;
        size_t frame_size = frame[0] == 'A' ? ACQUIRE_SIZE : RELEASE_SIZE;
        size_t answer_size = frame[0] == 'A' ? ACQUIRED_SIZE : RELEASED_SIZE;
        if (peer->have - used < frame_size)
            break;
        char *answer = answers + size;
        memset(answer, 0, answer_size);
        answer[0] = frame[0];
        memcpy(answer + answer_size - 1 - KEY_LENGTH, frame + frame_size - 1 - KEY_LENGTH,
               KEY_LENGTH + 1);
        used += frame_size;
        size += answer_size;
    }
    memmove(peer->bytes, peer->bytes + used, peer->have - used);
    peer->have -= used;
    return size == 0 || send(peer->fd, answers, size, MSG_NOSIGNAL) == (ssize_t)size;
}

int main(int count, char **arguments)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connections = count == 2 ? atoi(arguments[1]) : 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (connections < 1 || listener < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1024) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        perror("echo CONNECTIONS");
        return 1;
    }
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);

    if (connections == 1) {
        struct peer *peer = accept_peer(listener);
        while (serve(peer))
            ;
        return 0;
    }
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, events[EVENTS];
    for (int number = 0; number < connections; number++) {
        struct peer *peer = accept_peer(listener);
        event.data.ptr = peer;
        if (epoll_ctl(poll, EPOLL_CTL_ADD, peer->fd, &event) != 0)
            return 1;
    }
    while (connections > 0) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int at = 0; at < ready; at++) {
            struct peer *peer = events[at].data.ptr;
            if (!serve(peer)) {
                close(peer->fd);
                free(peer);
                connections--;
            }
        }
    }
    return 0;
}
