/* The lock protocol, version 1, for C programs that speak it by themselves. Written from
 * docs/protocol.md alone, so that two readings of that text can be compared. C99. */
#ifndef WIRE_DECODER_H
#define WIRE_DECODER_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_FROM_CLIENT_LIMIT 192u /* what a server reads at most */
#define WIRE_FROM_SERVER_LIMIT 146u /* what a client reads at most */
#define WIRE_BLOCK 32u              /* a nonce or a proof */
#define WIRE_MAX_KEY 128u

enum wire_sender { WIRE_CLIENT, WIRE_SERVER };

enum wire_status {
    WIRE_MORE,  /* the frame goes on */
    WIRE_FRAME, /* that byte ended a frame */
    /* The stream is malformed; close the connection. */
    WIRE_UNKNOWN_OP,
    WIRE_OVERSIZED,
    WIRE_TRUNCATED,
    WIRE_UNEXPECTED_TEXT,
    WIRE_ZERO_LEASE,
    WIRE_ZERO_OWNER,
    WIRE_ZERO_TOKEN
};

/* Only the fields that the sender's op has are set. */
struct wire_frame {
    enum wire_sender sender;
    unsigned char op;
    unsigned char wait, lease;
    uint64_t owner, token;
    unsigned char nonce[WIRE_BLOCK], proof[WIRE_BLOCK];
    size_t text_len;
    unsigned char text[WIRE_FROM_CLIENT_LIMIT]; /* key, leader or code */
};

struct wire_decoder {
    enum wire_sender sender;
    size_t len;
    unsigned char bytes[WIRE_FROM_CLIENT_LIMIT];
};

void wire_decoder_init(struct wire_decoder *decoder, enum wire_sender sender);

/* Takes one byte of the stream. *frame is set on WIRE_FRAME. */
enum wire_status wire_decoder_push(struct wire_decoder *decoder, unsigned char byte,
                                   struct wire_frame *frame);

/* The stream has ended: WIRE_TRUNCATED inside a frame, else WIRE_MORE. */
enum wire_status wire_decoder_end(const struct wire_decoder *decoder);

/* Writes the frame to out and returns its length; 0 if its sender has no such op, or if it does not
 * fit. Whether the text is allowed is the caller's to check. */
size_t wire_encode(const struct wire_frame *frame, unsigned char out[WIRE_FROM_CLIENT_LIMIT]);

enum wire_key {
    WIRE_KEY_OK,
    WIRE_KEY_EMPTY,
    WIRE_KEY_TOO_LONG,
    WIRE_KEY_NOT_UTF8,
    WIRE_KEY_SPACE,
    WIRE_KEY_NEWLINE,
    WIRE_KEY_CR
};

/* The key rule as a client applies it. */
enum wire_key wire_check_key(const unsigned char *key, size_t len);

#endif
