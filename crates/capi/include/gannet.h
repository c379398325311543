/*
 * The C interface of Gannet, a library that runs large language models: docs/c.md.
 *
 * Every function that returns a gannet_status gives GANNET_OK or an error, whose text
 * gannet_last_error has for the thread that called. Handles may be used from any thread.
 * Texts are UTF-8 with a length; GANNET_TEXT passes a literal.
 */

#ifndef GANNET_H
#define GANNET_H

/* Made from crates/capi/src/ffi by cbindgen. Changes belong there. */

#include <stddef.h>
#include <stdint.h>

/* A literal as the two arguments of a text: its bytes and their number. */
#define GANNET_TEXT(literal) (literal), (sizeof(literal) - 1)

/**
 * The version of the interface, for gannet_open. It grows when programs must be compiled anew.
 */
#define GANNET_API_VERSION 1

/**
 * A name of a model for gannet_model_text: its name.
 */
#define GANNET_MODEL_NAME 0

/**
 * The name of the family of its architecture, such as "qwen3".
 */
#define GANNET_MODEL_ARCHITECTURE 1

/**
 * The name of its arithmetic: engines of equal names compute equal bits.
 */
#define GANNET_MODEL_ARITHMETIC 2

/**
 * What gannet_sequence_push gives: nothing. The tokens are computed, and stay in the cache.
 */
#define GANNET_WANT_NOTHING 0

/**
 * The logits after the last token.
 */
#define GANNET_WANT_LAST 1

/**
 * The logits after each token.
 */
#define GANNET_WANT_ALL 2

/**
 * The hidden state of each token, after the last norm.
 */
#define GANNET_WANT_HIDDEN 3

/**
 * What a function returns.
 */
enum gannet_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * All went well.
     */
    GANNET_OK = 0,
    /**
     * An argument is not what was expected.
     */
    GANNET_INVALID = 1,
    /**
     * A handle is null, was freed, is of another kind, or is none of this library.
     */
    GANNET_HANDLE = 2,
    /**
     * A buffer is too small; the size that it needs is returned.
     */
    GANNET_TOO_SMALL = 3,
    /**
     * Nothing came in time.
     */
    GANNET_TIMEOUT = 4,
    /**
     * The body of a response has ended.
     */
    GANNET_END = 5,
    /**
     * A model cannot be found or loaded.
     */
    GANNET_MODEL = 6,
    /**
     * A request was refused.
     */
    GANNET_REQUEST = 7,
    /**
     * The engine has ended, or was closed.
     */
    GANNET_STOPPED = 8,
    /**
     * An engine that was closed is still in use by another thread.
     */
    GANNET_IN_USE = 9,
    /**
     * The program was made for another version of the interface.
     */
    GANNET_VERSION = 10,
    /**
     * The system refuses something, or there are too many handles.
     */
    GANNET_SYSTEM = 11,
    /**
     * An error of the library itself. The engine that was used answers nothing more.
     */
    GANNET_INTERNAL = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gannet_status gannet_status;
#else
typedef int32_t gannet_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Bytes that the library has allocated, which gannet_chunk_free frees.
 */
typedef struct gannet_bytes gannet_bytes;

/**
 * A call of a route, which gannet_call_free frees.
 */
typedef struct gannet_call_handle gannet_call_handle;

/**
 * A loaded model. Not an address: only functions of the library can use it.
 */
typedef struct gannet_engine gannet_engine;

/**
 * Chooses tokens from logits; gannet_sampler_free frees it.
 */
typedef struct gannet_sampler gannet_sampler;

/**
 * A sequence of tokens, which gannet_sequence_free frees.
 */
typedef struct gannet_sequence gannet_sequence;

/**
 * What gannet_describe tells of a model.
 */
typedef struct {
    /**
     * The size of this struct in bytes, which the caller sets.
     */
    size_t size;
    /**
     * Number of tokens of the vocabulary, and of logits.
     */
    size_t vocab_size;
    /**
     * Maximum number of tokens of a prompt and its answer together.
     */
    size_t context_length;
    /**
     * Number of tokens that the cache holds for all sequences together.
     */
    size_t cache_tokens;
    /**
     * Number of values of an embedding.
     */
    size_t hidden_size;
    /**
     * Maximum number of sequences that are computed at a time.
     */
    size_t parallel;
    /**
     * Number of compute threads.
     */
    size_t threads;
    /**
     * Bytes of memory of the weights.
     */
    size_t weight_bytes;
    /**
     * Bytes of memory of the cache.
     */
    size_t cache_bytes;
} gannet_model_info;

/**
 * A piece of the body of a response.
 */
typedef struct {
    /**
     * The size of this struct in bytes, which the caller sets.
     */
    size_t size;
    /**
     * What gannet_chunk_free frees.
     */
    gannet_bytes *owner;
    /**
     * The bytes, with a zero after them.
     */
    const char *data;
    /**
     * Number of bytes, without the zero.
     */
    size_t length;
} gannet_chunk;

/**
 * Options of a sequence. Zeros are the defaults.
 */
typedef struct {
    /**
     * The size of this struct in bytes, which the caller sets.
     */
    size_t size;
    /**
     * Maximum number of tokens; 0 for as many as the context holds.
     */
    size_t max_tokens;
    /**
     * Milliseconds without a push after which the sequence ends; 0 for ten minutes.
     */
    uint64_t idle_ms;
    /**
     * Sequences of a higher priority are computed first.
     */
    int32_t priority;
    /**
     * 1 to apply the adapters named below, 0 to apply those of requests that name none.
     */
    int32_t has_adapters;
    /**
     * A text of UTF-8: the sequence shares cached prefixes with requests and sequences of the same
     * one; null for the common cache.
     */
    const char *cache_salt;
    /**
     * Bytes of the text.
     */
    size_t cache_salt_length;
    /**
     * The numbers of the adapters.
     */
    const size_t *adapters;
    /**
     * The factor of each.
     */
    const float *adapter_scales;
    /**
     * Number of the adapters.
     */
    size_t adapter_count;
} gannet_sequence_options;

/**
 * How a sampler chooses. gannet_sampler_defaults fills it.
 */
typedef struct {
    /**
     * The size of this struct in bytes, which the caller sets.
     */
    size_t size;
    /**
     * Divides the logits; 0 takes the most likely token.
     */
    float temperature;
    /**
     * Keeps the most likely tokens whose probabilities add up to this; 1 for all.
     */
    float top_p;
    /**
     * Drops tokens less likely than this share of the most likely one; 0 for none.
     */
    float min_p;
    /**
     * Keeps the locally typical tokens whose probabilities add up to this; 1 for all.
     */
    float typical_p;
    /**
     * Divides the positive logits of tokens seen before, and multiplies the negative; 1 is off.
     */
    float repeat_penalty;
    /**
     * Subtracted once from the logits of generated tokens; 0 is off.
     */
    float presence_penalty;
    /**
     * Subtracted from the logits of generated tokens for each time they occur; 0 is off.
     */
    float frequency_penalty;
    /**
     * 1 to use `seed`, 0 to draw one.
     */
    int32_t has_seed;
    /**
     * Keeps this many of the most likely tokens; 0 for all.
     */
    size_t top_k;
    /**
     * Number of last tokens that the penalties consider; 0 for all.
     */
    size_t penalty_window;
    /**
     * The seed: equal seeds and logits give equal tokens.
     */
    uint64_t seed;
} gannet_sampler_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the interface of this library: GANNET_API_VERSION of its header.
 */
uint32_t gannet_api_version(void);

/**
 * Returns the version of this library, such as "0.1.0".
 */
const char *gannet_version(void);

/**
 * Returns the text of the last error of this thread, which says what was expected and what was
 * found; an empty one if there was none. The text stays where it is until a function fails in this
 * thread again, or the thread ends.
 */
const char *gannet_last_error(void);

/**
 * Loads a model, which may take long. `api_version` is GANNET_API_VERSION of the header that the
 * program is compiled with. `options` is a JSON object whose keys are the program's flags with
 * underscores, such as {"model": "model.gguf", "threads": 4}; an empty text stands for {}.
 * gannet_close frees the engine.
 */
gannet_status gannet_open(uint32_t api_version,
                          const char *options,
                          size_t options_length,
                          gannet_engine **engine);

/**
 * Ends an engine with all its calls and sequences, and waits until its memory is free, at most a
 * minute: GANNET_IN_USE says that another thread still used it after that. The handle is freed in
 * any case.
 */
gannet_status gannet_close(gannet_engine *engine);

/**
 * Returns GANNET_OK if the engine computes, and GANNET_STOPPED if it has ended.
 */
gannet_status gannet_check(gannet_engine *engine);

/**
 * Describes the model. The caller sets the size of the struct before.
 */
gannet_status gannet_describe(gannet_engine *engine, gannet_model_info *info);

/**
 * Writes a text about the model, one of GANNET_MODEL_NAME and the others, into `buffer`. Its
 * length in bytes goes to `needed`, unless that is null.
 */
gannet_status gannet_model_text(gannet_engine *engine,
                                int32_t which,
                                char *buffer,
                                size_t capacity,
                                size_t *needed);

/**
 * Calls a route of the server, such as "/v1/chat/completions": with POST and a body of JSON, or
 * with GET where `body` is null. Returns at once; gannet_call_next waits for the response. Errors
 * of a request are a response as well, with the status and the body that HTTP has.
 */
gannet_status gannet_call(gannet_engine *engine,
                          const char *path,
                          size_t path_length,
                          const char *body,
                          size_t body_length,
                          gannet_call_handle **call);

/**
 * The same with another method than these: "GET", "POST" or "DELETE".
 */
gannet_status gannet_call_method(gannet_engine *engine,
                                 const char *method,
                                 size_t method_length,
                                 const char *path,
                                 size_t path_length,
                                 const char *body,
                                 size_t body_length,
                                 gannet_call_handle **call);

/**
 * Waits for the next chunk of the body, at most `timeout_ms`, or without a limit where that is
 * negative: the whole body, or the data of one event of a stream. GANNET_END says that the body
 * is complete or was cancelled, GANNET_STOPPED that the engine ended before, GANNET_TIMEOUT that
 * nothing came. The caller sets the size of the struct before, and frees the chunk with
 * gannet_chunk_free. Threads may wait for the same call; each chunk goes to one of them.
 */
gannet_status gannet_call_next(gannet_call_handle *call, int64_t timeout_ms, gannet_chunk *chunk);

/**
 * Frees the bytes of a chunk, and empties the struct.
 */
gannet_status gannet_chunk_free(gannet_chunk *chunk);

/**
 * Waits for the status of the response, such as 200, at most `timeout_ms`, or without a limit
 * where that is negative. Whether the body is a stream, with a chunk for each event, goes to
 * `is_stream` as 0 or 1, unless that is null. GANNET_END says that the call was cancelled before.
 */
gannet_status gannet_call_status(gannet_call_handle *call,
                                 int64_t timeout_ms,
                                 int32_t *status,
                                 int32_t *is_stream);

/**
 * Gives a descriptor that is readable while gannet_call_next need not wait, for poll and its kin;
 * at times it is readable for nothing. It is the library's, and valid until gannet_call_free: the
 * caller neither reads nor closes it.
 */
gannet_status gannet_call_fd(gannet_call_handle *call, int32_t *descriptor);

/**
 * Cancels a call, from any thread: its sequence ends within a step, and gannet_call_next gives
 * GANNET_END from now on. The handle stays.
 */
gannet_status gannet_call_cancel(gannet_call_handle *call);

/**
 * Cancels a call that has not ended, and frees its handle. Threads that wait for it get
 * GANNET_END.
 */
gannet_status gannet_call_free(gannet_call_handle *call);

/**
 * Begins a sequence without tokens. `sequence_options` may be null. While nothing is pushed, the
 * sequence delays no other, and what was computed of it may be computed again later.
 */
gannet_status gannet_sequence_new(gannet_engine *engine,
                                  const gannet_sequence_options *sequence_options,
                                  gannet_sequence **sequence);

/**
 * Appends tokens to a sequence, computes them and writes their outputs as `want` says, one of
 * GANNET_WANT_NOTHING and the others, into `rows`, a row after another: of as many values as the
 * vocabulary has tokens, or as a hidden state has. The number of floats goes to `needed`, unless
 * that is null; nothing is pushed where `capacity` is smaller. If the push fails, the sequence has
 * the tokens that it had before.
 */
gannet_status gannet_sequence_push(gannet_sequence *sequence,
                                   const uint32_t *tokens,
                                   size_t count,
                                   int32_t want,
                                   float *rows,
                                   size_t capacity,
                                   size_t *needed);

/**
 * Makes a second sequence with the same tokens. Both share what is computed.
 */
gannet_status gannet_sequence_fork(gannet_sequence *sequence, gannet_sequence **copy);

/**
 * Shortens a sequence to its first `length` tokens.
 */
gannet_status gannet_sequence_truncate(gannet_sequence *sequence, size_t length);

/**
 * Writes the tokens of a sequence into `tokens`, and their number to `needed`, unless that is
 * null.
 */
gannet_status gannet_sequence_tokens(gannet_sequence *sequence,
                                     uint32_t *tokens,
                                     size_t capacity,
                                     size_t *needed);

/**
 * Ends a sequence and frees its handle.
 */
gannet_status gannet_sequence_free(gannet_sequence *sequence);

/**
 * Fills options of a sampler with what the server takes where a request says nothing: the model's
 * own recommendations. The caller sets the size of the struct before.
 */
gannet_status gannet_sampler_defaults(gannet_engine *engine,
                                      gannet_sampler_options *sampler_options);

/**
 * Makes a sampler. With null `sampler_options` it has the defaults. A sampler serves one sequence:
 * it draws a random number for each token.
 */
gannet_status gannet_sampler_new(gannet_engine *engine,
                                 const gannet_sampler_options *sampler_options,
                                 gannet_sampler **sampler);

/**
 * Frees a sampler.
 */
gannet_status gannet_sampler_free(gannet_sampler *sampler);

/**
 * Appends `lengths[i]` tokens at `tokens[i]` to `sequences[i]`, for `count` different sequences of
 * one engine, which share its steps. `samplers[i]` chooses `out_tokens[i]` from the logits after
 * the last token; it is not pushed. `out_logits` gets these logits, a row of as many values as the
 * vocabulary has tokens for each sequence. `out_logits` may be null, and so may `samplers` with
 * `out_tokens`. Tokens before the first that a sampler chose are the prompt of a sequence, the
 * others count as generated. If the function fails, the sequences have the tokens that they had
 * before.
 */
gannet_status gannet_push_batch(size_t count,
                                gannet_sequence *const *sequences,
                                const uint32_t *const *tokens,
                                const size_t *lengths,
                                gannet_sampler *const *samplers,
                                uint32_t *out_tokens,
                                float *out_logits);

/**
 * Writes the tokens of a text into `tokens`. Their number goes to `needed`, unless that is null,
 * and GANNET_TOO_SMALL says that `capacity` is smaller. `add_special` is 1 to add the tokens that
 * the model puts around a text, else 0; `parse_special` is 1 to read the text of a special token
 * as that token.
 */
gannet_status gannet_tokenize(gannet_engine *engine,
                              const char *text_utf8,
                              size_t text_length,
                              int32_t add_special,
                              int32_t parse_special,
                              uint32_t *tokens,
                              size_t capacity,
                              size_t *needed);

/**
 * Writes the text of tokens into `buffer`, without a zero after it. Its length in bytes goes to
 * `needed`, unless that is null. `skip_special` is 1 to leave out special tokens, else 0.
 */
gannet_status gannet_detokenize(gannet_engine *engine,
                                const uint32_t *tokens,
                                size_t count,
                                int32_t skip_special,
                                char *buffer,
                                size_t capacity,
                                size_t *needed);

/**
 * Writes the tokens that end an answer of the model into `tokens`, and their number to `needed`,
 * unless that is null.
 */
gannet_status gannet_end_tokens(gannet_engine *engine,
                                uint32_t *tokens,
                                size_t capacity,
                                size_t *needed);

/**
 * Writes the prompt that the chat template makes of a conversation into `buffer`, without a zero
 * after it. `request` is the JSON of a request to "/v1/chat/completions", of which "messages" and
 * what the template reads count. The length of the prompt in bytes goes to `needed`, unless that
 * is null.
 */
gannet_status gannet_render(gannet_engine *engine,
                            const char *request,
                            size_t request_length,
                            char *buffer,
                            size_t capacity,
                            size_t *needed);

/**
 * Computes the embeddings of `count` texts together, and writes their vectors of length 1 into
 * `vectors`, one after another. The number of floats goes to `needed`, unless that is null: it is
 * `count` times the hidden size of gannet_describe for most models. With a null `vectors` only
 * that is computed.
 */
gannet_status gannet_embed(gannet_engine *engine,
                           size_t count,
                           const char *const *inputs,
                           const size_t *lengths,
                           float *vectors,
                           size_t capacity,
                           size_t *needed);

/**
 * Computes how relevant `count` documents are for a query, from 0 to 1, and writes that into
 * `scores`, which has space for as many floats.
 */
gannet_status gannet_score(gannet_engine *engine,
                           const char *query,
                           size_t query_length,
                           size_t count,
                           const char *const *documents,
                           const size_t *lengths,
                           float *scores,
                           size_t capacity,
                           size_t *needed);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GANNET_H */
