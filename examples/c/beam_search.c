/*
 * A beam search: keeps the most likely continuations of a text, each a fork of the sequence that
 * it continues, and prints them with the logarithms of their probabilities.
 *
 *     beam_search [TEXT [OPTIONS]]     where OPTIONS are those of gannet_open
 */
#include "gannet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEAMS 3
#define MAX_TOKENS 12
#define MAX_PROMPT 4096
#define MAX_ENDS 16

/* A continuation, which is complete once it has no sequence. */
struct beam {
    gannet_sequence *sequence;
    uint32_t tokens[MAX_TOKENS];
    size_t length;
    double score;
};

/* A beam with one token more. */
struct candidate {
    size_t beam;
    uint32_t token;
    double score;
    int is_new;
};

static void check(gannet_status status)
{
    if (status != GANNET_OK) {
        fprintf(stderr, "%s\n", gannet_last_error());
        exit(1);
    }
}

static int is_end(uint32_t token, const uint32_t *ends, size_t count)
{
    size_t at;
    for (at = 0; at < count; at++)
        if (ends[at] == token)
            return 1;
    return 0;
}

/* Puts a candidate into its place among the best. */
static void offer(struct candidate *best, size_t *count, struct candidate candidate)
{
    size_t at = *count < BEAMS ? (*count)++ : BEAMS;
    while (at > 0 && best[at - 1].score < candidate.score) {
        if (at < BEAMS)
            best[at] = best[at - 1];
        at--;
    }
    if (at < BEAMS)
        best[at] = candidate;
}

/* Offers every continuation of a beam by one token. */
static void offer_all(struct candidate *best, size_t *count, size_t index, double score,
                      const float *logits, size_t vocab)
{
    double most = logits[0], sum = 0;
    size_t token;
    for (token = 1; token < vocab; token++)
        if (logits[token] > most)
            most = logits[token];
    for (token = 0; token < vocab; token++)
        sum += exp(logits[token] - most);
    for (token = 0; token < vocab; token++) {
        struct candidate candidate;
        candidate.beam = index;
        candidate.token = (uint32_t)token;
        candidate.score = score + logits[token] - most - log(sum);
        candidate.is_new = 1;
        offer(best, count, candidate);
    }
}

/* Pushes the last token of each open beam; rows of logits are in the order of the beams. */
static void push(struct beam *beams, size_t count, float *logits, float **rows, size_t vocab)
{
    gannet_sequence *sequences[BEAMS];
    const uint32_t *tokens[BEAMS];
    size_t lengths[BEAMS], at, open = 0;
    for (at = 0; at < count; at++) {
        if (beams[at].sequence == NULL)
            continue;
        sequences[open] = beams[at].sequence;
        tokens[open] = &beams[at].tokens[beams[at].length - 1];
        lengths[open] = 1;
        rows[at] = logits + vocab * open++;
    }
    if (open > 0)
        check(gannet_push_batch(open, sequences, tokens, lengths, NULL, NULL, logits));
}

/* The best continuations as beams; sequences are forks of those that they continue. */
static void choose(struct beam *beams, size_t *count, const struct candidate *best,
                   size_t candidates, const uint32_t *ends, size_t end_count)
{
    struct beam next[BEAMS];
    size_t at;
    for (at = 0; at < candidates; at++) {
        next[at] = beams[best[at].beam];
        next[at].score = best[at].score;
        if (!best[at].is_new)
            continue;
        if (is_end(best[at].token, ends, end_count)) {
            next[at].sequence = NULL;
            continue;
        }
        check(gannet_sequence_fork(beams[best[at].beam].sequence, &next[at].sequence));
        next[at].tokens[next[at].length++] = best[at].token;
    }
    for (at = 0; at < *count; at++)
        if (beams[at].sequence != NULL)
            check(gannet_sequence_free(beams[at].sequence));
    memcpy(beams, next, candidates * sizeof *beams);
    *count = candidates;
}

int main(int arguments, char **argument)
{
    const char *text = arguments > 1 ? argument[1] : "The capital of France is";
    const char *options = arguments > 2 ? argument[2] : "{}";
    static uint32_t prompt[MAX_PROMPT];
    struct beam beams[BEAMS];
    size_t count = 1, length, end_count, step, at;
    uint32_t ends[MAX_ENDS];
    float *rows[BEAMS], *logits;
    gannet_model_info info;
    gannet_engine *engine;

    check(gannet_open(GANNET_API_VERSION, options, strlen(options), &engine));
    info.size = sizeof info;
    check(gannet_describe(engine, &info));
    check(gannet_end_tokens(engine, ends, MAX_ENDS, &end_count));
    check(gannet_tokenize(engine, text, strlen(text), 1, 0, prompt, MAX_PROMPT, &length));
    logits = (float *)malloc(BEAMS * info.vocab_size * sizeof *logits);
    if (logits == NULL)
        return 1;
    memset(beams, 0, sizeof beams);
    check(gannet_sequence_new(engine, NULL, &beams[0].sequence));
    check(gannet_sequence_push(beams[0].sequence, prompt, length, GANNET_WANT_LAST, logits,
                               info.vocab_size, NULL));
    rows[0] = logits;
    for (step = 0; step < MAX_TOKENS; step++) {
        struct candidate best[BEAMS];
        size_t candidates = 0;
        if (step > 0)
            push(beams, count, logits, rows, info.vocab_size);
        for (at = 0; at < count; at++) {
            struct candidate same;
            same.beam = at;
            same.token = 0;
            same.score = beams[at].score;
            same.is_new = 0;
            if (beams[at].sequence == NULL)
                offer(best, &candidates, same);
            else
                offer_all(best, &candidates, at, beams[at].score, rows[at], info.vocab_size);
        }
        choose(beams, &count, best, candidates, ends, end_count);
    }
    for (at = 0; at < count; at++) {
        char continuation[64 * MAX_TOKENS];
        check(gannet_detokenize(engine, beams[at].tokens, beams[at].length, 1, continuation,
                                sizeof continuation, &length));
        printf("%.4f%.*s\n", beams[at].score, (int)length, continuation);
    }
    free(logits);
    check(gannet_close(engine));
    return 0;
}
