#pragma once

// The C interface: a trained model, its translations, its scores, on CPUs. C11 and C++ read it; libtransformer.so
// exports what stands here and nothing else.
//
//     transformer_model* model;
//     transformer_translations* translations;
//     if (transformer_load("runs/en-de", NULL, &model) != TRANSFORMER_OK) return fail(transformer_error());
//     if (transformer_translate(model, lines, count, NULL, &translations) == TRANSFORMER_OK)
//       puts(transformer_translation_text(translations, 0, 0));
//     transformer_translations_free(translations);
//     transformer_model_free(model);
//
// Strings are UTF-8 and end with a NUL. What is handed over stays the caller's, and is read during the call alone. A
// function that fails leaves its results as they were, but for a handle, which it sets to NULL. NULL where something is
// needed is refused, never followed.
//
// Any number of threads may use one model, or one set of translations, at the same time; freeing it is for the last of
// them. Translations do not need the model any more once they are there. A process that fork() made uses a model that
// its parent loaded, and frees it for itself, as long as no call was under way in the parent at that time.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Changes when a program has to be compiled anew: libtransformer.so.1. What is added to an options struct at its end
/// does not change it.
#define TRANSFORMER_ABI 1

/// TRANSFORMER_ABI of the library that runs.
uint32_t transformer_abi(void);
/// The version of the library that runs, such as "0.1.0". Lives as long as the program.
const char* transformer_version(void);

/// How a call went; transformer_error() says more.
typedef enum transformer_status {
  TRANSFORMER_OK = 0,       ///< it did what it was asked
  TRANSFORMER_FAILURE = 1,  ///< while running: out of memory, say
  TRANSFORMER_MISTAKE = 2   ///< in what was given: a folder that is no model, an option, a line
} transformer_status;

/// What the calling thread's last call that returns a status, or a translation, found wrong: a line that names it, and
/// what to do; "" where it did what it was asked. Never NULL; valid until that thread's next such call.
const char* transformer_error(void);

// --- a model ---------------------------------------------------------------------------------------------

/// A model that was loaded: its weights, its vocabularies, its threads.
typedef struct transformer_model transformer_model;

/// How a model computes. Fields that are 0 have their default, so: `transformer_options options = {0};`, then `size`.
typedef struct transformer_options {
  size_t size;            ///< sizeof(transformer_options): which fields the program knows
  const char* precision;  ///< of weights and activations: "float32", "bf16" or "int8"; NULL: as the model is stored
  /// That a call uses, each with lines of its own; 0: as OMP_NUM_THREADS says, else one for each processor.
  size_t threads;
  /// The directory of a small model of the same vocabulary that guesses what the model then checks, several word pieces
  /// at a time: faster where few lines are translated at once, and the same to the last bit. For calls that ask for one
  /// hypothesis a line (beam 1, or search=sampling and n_best 1), with at most as many guesses at once as the setting
  /// `proposals`; other calls do without it. NULL: none.
  const char* draft;
} transformer_options;

/// Loads a model directory: model.safetensors, config.yaml and the vocabularies. `options`: NULL for the defaults. The
/// weights of a packed model are mapped, not copied: while it is in use, put another in its place by renaming, never by
/// writing into its files, which would change translations or end the process (SIGBUS).
transformer_status transformer_load(const char* directory, const transformer_options* options,
                                    transformer_model** model);
/// NULL is nothing to free.
void transformer_model_free(transformer_model* model);

// --- translations ------------------------------------------------------------------------------------------

/// What log-probabilities are divided by before translations of different lengths are compared.
typedef enum transformer_length_penalty {
  TRANSFORMER_LENGTH_PENALTY_GNMT = 0,  ///< ((5 + length) / 6)^alpha (§6.1)
  TRANSFORMER_LENGTH_PENALTY_POWER = 1  ///< length^alpha
} transformer_length_penalty;

/// When the search for a line's translation ends.
typedef enum transformer_stop {
  TRANSFORMER_STOP_EXACT = 0,         ///< a sentence is done when nothing better can follow
  TRANSFORMER_STOP_BEAM_FINISHED = 1  ///< when as many hypotheses have finished as the beam is wide
} transformer_stop;

/// How translations are searched for. Every field but batch_sentences counts, also one that is 0:
/// transformer_search_defaults fills in what the model's config.yaml says.
typedef struct transformer_search {
  size_t size;              ///< sizeof(transformer_search), before anything else
  size_t beam;              ///< hypotheses kept for each line; 1: greedy
  size_t n_best;            ///< translations for each line, at most `beam`
  double alpha;             ///< exponent of the length penalty; 0: log-probabilities alone
  int length_penalty;       ///< a transformer_length_penalty
  int stop;                 ///< a transformer_stop
  size_t max_extra_length;  ///< word pieces by which output may be longer than its line
  size_t batch_sentences;   ///< without effect: calls share the batches of the model's own setting
  const char* settings;     ///< any settings of section `decoding`, NAME=VALUE a line, such as
                            ///< "search=sampling\nseed=7", which come before the fields above; NULL: none
} transformer_search;

/// Sets every field of `search` but its size.
transformer_status transformer_search_defaults(const transformer_model* model, transformer_search* search);

/// What transformer_translate found: translations of several lines, to be asked for one by one.
typedef struct transformer_translations transformer_translations;

/// Translates `count` lines. `search`: NULL for the model's own. A line without text has one translation, "". Refused,
/// by its number from 1, is a line that is not UTF-8, longer than 1 MiB, or of more word pieces than the model takes.
transformer_status transformer_translate(const transformer_model* model, const char* const* lines, size_t count,
                                         const transformer_search* search, transformer_translations** translations);
/// NULL is nothing to free.
void transformer_translations_free(transformer_translations* translations);

/// Lines that were translated; 0 of NULL.
size_t transformer_translations_lines(const transformer_translations* translations);
/// Translations of line `line`, from 0: 1 to n_best, or 0 for a line that there is none of.
size_t transformer_translations_of_line(const transformer_translations* translations, size_t line);

/// Of line `line` the translation of rank `rank`, both from 0, the best first: its text, which lives as long as
/// `translations`. NULL where there is none.
const char* transformer_translation_text(const transformer_translations* translations, size_t line, size_t rank);
/// The score of the same: log probability / length penalty, and what coverage costs. NaN where there is none.
double transformer_translation_score(const transformer_translations* translations, size_t line, size_t rank);
/// The log-probability of the same, in nats. NaN where there is none.
double transformer_translation_log_probability(const transformer_translations* translations, size_t line, size_t rank);

// --- scores --------------------------------------------------------------------------------------------------

/// The log-probability, in nats, that the model gives to `targets[i]` as the whole translation of `sources[i]`, its end
/// included, into `log_probabilities[i]`; and, unless `tokens` is NULL, how many tokens that is the sum of. Lines are
/// refused as by transformer_translate; what is not finite is a failure.
transformer_status transformer_score(const transformer_model* model, const char* const* sources,
                                     const char* const* targets, size_t count, double* log_probabilities,
                                     size_t* tokens);
/// The same with settings as transformer_search::settings has them, NULL for none: what the languages of the text are,
/// for a model of many, "source_language=eng_Latn\ntarget_language=fra_Latn".
transformer_status transformer_score_with(const transformer_model* model, const char* settings,
                                          const char* const* sources, const char* const* targets, size_t count,
                                          double* log_probabilities, size_t* tokens);

#ifdef __cplusplus
}
#endif
