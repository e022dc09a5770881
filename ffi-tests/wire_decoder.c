#include "wire_decoder.h"

#include <string.h>

#define UNKNOWN ((size_t)-1)

/* The bytes between the op and the text. */
static size_t header_len(enum wire_sender sender, unsigned char op)
{
    if (sender == WIRE_CLIENT) {
        switch (op) {
        case 'A': return 1 + 1 + 8; /* wait, lease, owner */
        case 'R': return 8 + 8;     /* owner, token */
        case 'H': return 32 + 32;   /* nonce, proof */
        default: return UNKNOWN;
        }
    }
    switch (op) {
    case 'A': return 8 + 8; /* owner, token */
    case 'T':
    case 'B':
    case 'R':
    case 'N': return 8; /* owner */
    case 'M':
    case 'L':
    case 'E': return 0;
    case 'C':
    case 'H': return 32; /* nonce or proof */
    default: return UNKNOWN;
    }
}

static uint64_t get_u64(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

static unsigned char *put_u64(unsigned char *out, uint64_t value)
{
    for (unsigned shift = 64; shift > 0; shift -= 8)
        *out++ = (unsigned char)(value >> (shift - 8) & 0xff);
    return out;
}

static unsigned char *put(unsigned char *out, const unsigned char *bytes, size_t len)
{
    memcpy(out, bytes, len);
    return out + len;
}

static enum wire_status parse(enum wire_sender sender, const unsigned char *bytes, size_t len,
                              struct wire_frame *frame)
{
    const unsigned char *header = bytes + 1;
    size_t text_at = 1 + header_len(sender, bytes[0]);
    size_t text_len = len - text_at - 1;

    if (sender == WIRE_CLIENT && text_len > 0 && bytes[text_at + text_len - 1] == '\r')
        text_len--;

    memset(frame, 0, sizeof *frame);
    frame->sender = sender;
    frame->op = bytes[0];
    frame->text_len = text_len;
    memcpy(frame->text, bytes + text_at, text_len);

    switch (frame->op) {
    case 'A':
        if (sender == WIRE_CLIENT) {
            frame->wait = header[0];
            frame->lease = header[1];
            frame->owner = get_u64(header + 2);
            if (frame->owner == 0)
                return WIRE_ZERO_OWNER;
            return frame->lease == 0 ? WIRE_ZERO_LEASE : WIRE_FRAME;
        }
        frame->owner = get_u64(header);
        frame->token = get_u64(header + 8);
        return frame->token == 0 ? WIRE_ZERO_TOKEN : WIRE_FRAME;
    case 'R':
        frame->owner = get_u64(header);
        if (sender == WIRE_SERVER)
            return WIRE_FRAME;
        frame->token = get_u64(header + 8);
        return frame->owner == 0 ? WIRE_ZERO_OWNER : WIRE_FRAME;
    case 'T':
    case 'B':
    case 'N':
        frame->owner = get_u64(header);
        return WIRE_FRAME;
    case 'C':
        memcpy(frame->nonce, header, WIRE_BLOCK);
        return text_len > 0 ? WIRE_UNEXPECTED_TEXT : WIRE_FRAME;
    case 'H':
        if (sender == WIRE_CLIENT) {
            memcpy(frame->nonce, header, WIRE_BLOCK);
            header += WIRE_BLOCK;
        }
        memcpy(frame->proof, header, WIRE_BLOCK);
        return text_len > 0 ? WIRE_UNEXPECTED_TEXT : WIRE_FRAME;
    default: /* M, L, E: text and nothing else */
        return WIRE_FRAME;
    }
}

void wire_decoder_init(struct wire_decoder *decoder, enum wire_sender sender)
{
    memset(decoder, 0, sizeof *decoder);
    decoder->sender = sender;
}

enum wire_status wire_decoder_push(struct wire_decoder *decoder, unsigned char byte,
                                   struct wire_frame *frame)
{
    size_t limit =
        decoder->sender == WIRE_CLIENT ? WIRE_FROM_CLIENT_LIMIT : WIRE_FROM_SERVER_LIMIT;
    size_t header;

    decoder->bytes[decoder->len++] = byte;
    header = header_len(decoder->sender, decoder->bytes[0]);
    if (header == UNKNOWN) {
        decoder->len = 0;
        return WIRE_UNKNOWN_OP;
    }
    /* The op and the header are passed over by count: any of their bytes may be an LF. */
    if (byte == '\n' && decoder->len > 1 + header) {
        size_t len = decoder->len;
        decoder->len = 0;
        return parse(decoder->sender, decoder->bytes, len, frame);
    }
    if (decoder->len == limit) {
        decoder->len = 0;
        return WIRE_OVERSIZED;
    }
    return WIRE_MORE;
}

enum wire_status wire_decoder_end(const struct wire_decoder *decoder)
{
    return decoder->len > 0 ? WIRE_TRUNCATED : WIRE_MORE;
}

size_t wire_encode(const struct wire_frame *frame, unsigned char out[WIRE_FROM_CLIENT_LIMIT])
{
    unsigned char *at = out;
    int client = frame->sender == WIRE_CLIENT;
    size_t header = header_len(frame->sender, frame->op);

    if (header == UNKNOWN || frame->text_len > WIRE_FROM_CLIENT_LIMIT - header - 2)
        return 0;
    *at++ = frame->op;
    switch (frame->op) {
    case 'A':
        if (client) {
            *at++ = frame->wait;
            *at++ = frame->lease;
        }
        at = put_u64(at, frame->owner);
        if (!client)
            at = put_u64(at, frame->token);
        break;
    case 'R':
        at = put_u64(at, frame->owner);
        if (client)
            at = put_u64(at, frame->token);
        break;
    case 'T':
    case 'B':
    case 'N':
        at = put_u64(at, frame->owner);
        break;
    case 'C':
        at = put(at, frame->nonce, WIRE_BLOCK);
        break;
    case 'H':
        if (client)
            at = put(at, frame->nonce, WIRE_BLOCK);
        at = put(at, frame->proof, WIRE_BLOCK);
        break;
    default:
        break;
    }
    at = put(at, frame->text, frame->text_len);
    *at++ = '\n';
    return (size_t)(at - out);
}

/* The length of the character at the start of key; 0 if it is not UTF-8 (RFC 3629, section 4). */
static size_t character(const unsigned char *key, size_t len)
{
    unsigned char first = key[0], low = 0x80, high = 0xbf;
    size_t more;

    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        more = 1;
    else if (first >= 0xe0 && first <= 0xef)
        more = 2;
    else if (first >= 0xf0 && first <= 0xf4)
        more = 3;
    else
        return 0;
    if (len <= more)
        return 0;
    /* No overlong form, no surrogate, nothing beyond U+10FFFF. */
    if (first == 0xe0)
        low = 0xa0;
    else if (first == 0xed)
        high = 0x9f;
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f;
    if (key[1] < low || key[1] > high)
        return 0;
    for (size_t i = 2; i <= more; i++)
        if (key[i] < 0x80 || key[i] > 0xbf)
            return 0;
    return 1 + more;
}

enum wire_key wire_check_key(const unsigned char *key, size_t len)
{
    if (len == 0)
        return WIRE_KEY_EMPTY;
    if (len > WIRE_MAX_KEY)
        return WIRE_KEY_TOO_LONG;
    for (size_t at = 0; at < len;) {
        size_t step = character(key + at, len - at);
        if (step == 0)
            return WIRE_KEY_NOT_UTF8;
        at += step;
    }
    if (memchr(key, ' ', len) != NULL)
        return WIRE_KEY_SPACE;
    if (memchr(key, '\n', len) != NULL)
        return WIRE_KEY_NEWLINE;
    if (memchr(key, '\r', len) != NULL)
        return WIRE_KEY_CR;
    return WIRE_KEY_OK;
}
