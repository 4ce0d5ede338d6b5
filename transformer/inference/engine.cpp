#include "transformer/inference/engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>

#include "transformer/base/error.h"
#include "transformer/base/memory.h"
#include "transformer/base/threads.h"
#include "transformer/inference/draft_batch.h"
#include "transformer/inference/draft_pace.h"
#include "transformer/inference/ensemble_batch.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

class Engine::Job {
 public:
  Job(std::vector<DecodingRequest> requests, Done done, Progress progress)
      : requests_(std::move(requests)),
        done_(std::move(done)),
        progress_(std::move(progress)),
        told_(progress_ ? requests_.size() : 0),
        left_(requests_.size()) {}

  const DecodingRequest& request(size_t index) const { return requests_[index]; }
  bool cancelled() const { return cancelled_; }

  /// Tells whoever wants to know how far a sentence is. One that was put back and begins anew is told of from where it
  /// was.
  void tell(size_t index, const SentenceSearch& search) {
    if (!progress_) return;
    const auto certain = search.certain();
    auto& told = told_[index];
    if (certain.size() <= told) return;
    const auto tokens = std::span(certain).subspan(std::exchange(told, certain.size()));
    const std::lock_guard telling(telling_);
    if (!cancelled_) progress_(index, tokens);
  }

 private:
  friend class Engine;
  std::vector<DecodingRequest> requests_;
  Done done_;
  Progress progress_;
  std::vector<size_t> told_;  // tokens of each sentence, where there is `progress_`; of the worker that has it
  std::atomic<bool> cancelled_ = false;
  std::recursive_mutex telling_;  // while `done_` or `progress_` is called
  size_t left_;                   // sentences that are neither done nor cancelled; guarded by the engine's mutex
};

namespace {

struct Waiting {
  std::shared_ptr<Engine::Job> job;
  size_t index;
};

}  // namespace

struct Engine::Implementation {
  Implementation(const Ensemble& given, const Options& wanted);

  class Worker;

  /// Throws Error where the draft and the models do not go together.
  void check_draft() const;

  /// The sentence is done: tells of it, unless its job was cancelled meanwhile.
  void finish(Job& job, size_t index, DecodingResult result) {
    {
      const std::lock_guard telling(job.telling_);
      if (!job.cancelled_) job.done_(index, std::move(result));
    }
    const std::lock_guard lock(mutex);
    if (--job.left_ == 0) all_done.notify_all();
  }

  const Ensemble ensemble;
  Options options;

  std::atomic<int64_t> cache_used = 0;                         // by all workers' sentences
  std::atomic<int64_t> steps = 0, proposed = 0, accepted = 0;  // Drafted

  std::mutex mutex;  // of what follows
  std::condition_variable something_waits, all_done;
  std::deque<Waiting> waiting;
  size_t active = 0;  // sentences that workers are at
  bool stopped = false;

  std::vector<std::jthread> workers;  // last: they must end before what they use goes
};

// Of sentences that a worker encodes at once, more than one of them: several long ones would hold up all others, and
// whoever ends them, for as long as all of them take.
constexpr int64_t most_encoded_pieces = 8192;
// Seconds that encoding may take without those noticing whose sentences are under way meanwhile.
constexpr double unnoticed_seconds = 0.1;
// Pieces that are encoded in less than that by most models, and are so by those that owe, too.
constexpr int64_t quick_pieces = 256;

class Engine::Implementation::Worker {
 public:
  explicit Worker(Implementation& engine) : engine_(engine), batch_(engine.ensemble) {
    if (engine_.options.draft) draft_.emplace(*engine_.options.draft, pace_);
  }

  void run() {
    while (true) {
      try {
        if (!take_waiting()) return;
        drop_cancelled();
        if (!active_.empty()) step();
        make_room();
      } catch (...) {
        // Nothing says whose fault it is, so that all who are in the batch are told.
        fail(std::current_exception());
      }
    }
  }

 private:
  struct Active {
    std::shared_ptr<Job> job;
    size_t index;
    int64_t place;  // in the batch
    SentenceSearch search;
    std::optional<int64_t> draft_place = std::nullopt;  // in the draft's batch, if it is there
    // Of the step that is being taken:
    std::vector<int64_t> proposals = {};
    std::vector<double> probabilities = {};  // of each, as the draft has it
    int64_t first_row = 0;
    int64_t accepted = 0;  // of the proposals
    bool open = true;      // whether another row is to be looked at
    bool done = false;
    DecodingResult result = {};
    bool left = false;  // its place in the batch is another's

    const DecodingRequest& request() const { return job->request(index); }
  };

  /// Takes up sentences where there is room. False: the engine ends.
  bool take_waiting() {
    std::vector<Waiting> taken;
    {
      std::unique_lock lock(engine_.mutex);
      if (active_.empty()) {
        engine_.something_waits.wait(lock, [&] { return engine_.stopped || !engine_.waiting.empty(); });
      }
      if (engine_.stopped) return false;
      const auto most = static_cast<size_t>(engine_.options.batch_sentences);
      // Sentences are encoded several at a time, where that can be had without starving the batch.
      if (active_.size() + std::max<size_t>(1, most / 8) > most && !active_.empty()) return true;
      // A few sentences are shared out among all workers.
      const auto threads = static_cast<size_t>(engine_.options.threads);
      const size_t share = (engine_.waiting.size() + engine_.active + threads - 1) / threads;
      const size_t wanted = std::min(most, std::max<size_t>(share, 1));
      taken.reserve(wanted);  // none is lost on its way where memory runs out
      const bool owes = owed_seconds_ > 0 && !active_.empty();
      int64_t bytes = 0, pieces = 0;
      while (!engine_.waiting.empty() && active_.size() + taken.size() < wanted) {
        const auto& request = engine_.waiting.front().job->request(engine_.waiting.front().index);
        const auto size = static_cast<int64_t>(request.source.size());
        pieces += size;
        if (pieces > most_encoded_pieces && !taken.empty()) break;
        if (pieces > quick_pieces && owes) break;
        bytes += EnsembleBatch::expected_bytes(engine_.ensemble, size, request.hypotheses());
        if (draft_) bytes += InferenceBatch::expected_bytes(*engine_.options.draft, size, 1);
        const bool fits = engine_.cache_used + bytes <= engine_.options.cache_bytes;
        if (!fits && active_.size() + taken.size() > 0) break;
        taken.push_back(std::move(engine_.waiting.front()));
        engine_.waiting.pop_front();
      }
      engine_.active += taken.size();
    }
    if (!taken.empty()) begin(std::move(taken));
    return true;
  }

  void begin(std::vector<Waiting> taken) {
    const bool others_wait = !active_.empty();
    const CpuClock clock;
    try {
      active_.reserve(active_.size() + taken.size());
      std::vector<InferenceBatch::Source> sources;
      std::vector<Active> begun;
      sources.reserve(taken.size());
      begun.reserve(taken.size());
      // What a sentence's own wishes make fail, fails before the batch knows of it, and fails alone.
      for (auto each = taken.begin(); each != taken.end();) {
        const auto [job, index] = *each;
        try {
          const auto& request = job->request(index);
          auto candidates = request.candidates();
          begun.push_back({.job = job, .index = index, .place = 0, .search = SentenceSearch(request)});
          sources.push_back({request.source, request.hypotheses(), request.constraint, std::move(candidates)});
          ++each;
        } catch (...) {
          each = taken.erase(each);
          leave(*job, index, {.hypotheses = {}, .error = std::current_exception()});
        }
      }
      const auto places = batch_.add(sources);
      for (size_t i = 0; i < begun.size(); ++i) begun[i].place = places[i];
      // All or none: what fails on the way is told of once.
      std::move(begun.begin(), begun.end(), std::back_inserter(active_));
      count_cache();
      const double seconds = clock.seconds();
      if (!others_wait) owed_seconds_ = 0;
      if (others_wait && seconds > unnoticed_seconds) owed_seconds_ = std::max(owed_seconds_, 0.0) + seconds;
    } catch (...) {
      for (const auto& [job, index] : taken) leave(*job, index, {.hypotheses = {}, .error = std::current_exception()});
      fail(std::current_exception());  // what the batch was left in is not known
    }
  }

  void step() {
    const CpuClock whole;
    propose();
    list_rows();
    int64_t width = 1;
    for (const auto& sentence : active_) {
      const auto& search = sentence.search;
      width = std::max(width, search.wants_whole_rows() ? search.best_wanted() : search.width());
    }
    const CpuClock clock;
    InferenceBatch::Failures failures;
    const auto take_row = [&](size_t row, const RowScores& scores) {
      const auto& [place, live] = whole_rows_[row];
      auto& sentence = active_[place];
      if (sentence.done || failures.contains(sentence.place)) return;
      if (sentence.proposals.empty()) {
        sentence.search.take_row(live, scores);
      } else if (sentence.open) {
        sentence.search.take_row(0, scores);
        advance(sentence, {}, 0);
      }
    };
    const auto continuations = batch_.step(rows_, width, take_row, &failures);
    pace_.model().observe(std::ssize(rows_), clock.seconds());
    for (auto& sentence : active_) {
      if (const auto failure = failures.find(sentence.place); failure != failures.end()) {
        sentence.result = {.hypotheses = {}, .error = failure->second};
        sentence.done = true;
      }
      if (sentence.done) sentence.open = false;
      const bool taken = !sentence.proposals.empty() && rows_[static_cast<size_t>(sentence.first_row)].whole;
      for (int64_t row = sentence.first_row; !taken && sentence.open; ++row) advance(sentence, continuations, row);
    }
    for (auto& sentence : active_) {
      count_proposals(sentence);
      if (sentence.done) {
        end(sentence, std::move(sentence.result));
        continue;
      }
      const auto wrong = std::ssize(sentence.proposals) - sentence.accepted;
      if (wrong > 0) batch_.take_back(sentence.place, wrong);
      sentence.job->tell(sentence.index, sentence.search);
    }
    forget_those_that_left();
    count_cache();
    owed_seconds_ -= whole.seconds();
  }

  /// Fills in what is proposed of each sentence.
  void propose() {
    for (auto& sentence : active_) {
      sentence.proposals.clear();
      sentence.accepted = 0;
      sentence.open = true;
    }
    if (!draft_) return;
    std::vector<Active*> chosen;
    int64_t most = 0, others = 0;
    for (auto& sentence : active_) {
      const auto& request = sentence.request();
      // What is guessed is read several positions a step, of which attention is not told.
      if (request.hypotheses() == 1 && request.settings.proposals > 0 && !sentence.search.wants_attention() &&
          is_free(sentence)) {
        chosen.push_back(&sentence);
        most = std::max(most, request.settings.proposals);
      } else {
        others += std::ssize(sentence.search.live());
      }
    }
    if (chosen.empty()) return;
    engine_.steps += std::ssize(chosen);
    const auto& model = *engine_.ensemble.models.front();
    const double weight = static_cast<double>(engine_.options.draft->bytes()) / static_cast<double>(model.bytes());
    if (engine_.options.adapt_proposals) most = pace_.proposals(std::ssize(chosen), others, most, weight);
    if (most == 0) return;
    std::vector<Active*> unknown;
    std::vector<const DecodingRequest*> requests;
    for (auto* sentence : chosen) {
      if (sentence->draft_place) continue;
      unknown.push_back(sentence);
      requests.push_back(&sentence->request());
    }
    const auto places = draft_->add(requests);
    for (size_t i = 0; i < unknown.size(); ++i) unknown[i]->draft_place = places[i];
    std::vector<DraftBatch::Guess> guesses;
    for (const auto* sentence : chosen) {
      auto read = sentence->search.certain();
      read.insert(read.begin(), Vocabulary::begin);
      guesses.push_back({*sentence->draft_place, sentence->search, std::move(read),
                         std::min(most, sentence->request().settings.proposals)});
    }
    draft_->propose(guesses);
    for (size_t i = 0; i < chosen.size(); ++i) {
      auto& sentence = *chosen[i];
      sentence.proposals = std::move(guesses[i].proposals);
      sentence.probabilities = std::move(guesses[i].probabilities);
      // Rows of a step are wanted whole all or none.
      const bool whole = sentence.search.wants_whole_rows();
      int64_t alike = 0;
      const std::span<const int64_t> ahead = sentence.proposals;
      while (alike < std::ssize(ahead) &&
             sentence.search.wants_whole_rows(ahead.first(static_cast<size_t>(alike + 1))) == whole) {
        ++alike;
      }
      sentence.proposals.resize(static_cast<size_t>(alike));
      sentence.probabilities.resize(static_cast<size_t>(alike));
    }
  }

  /// A constraint that throws has the last word: its sentence is done with this step.
  bool is_free(Active& sentence) const {
    try {
      return batch_.free(sentence.place);
    } catch (...) {
      sentence.result.error = std::current_exception();
      sentence.done = true;
      return false;
    }
  }

  /// Takes a sentence a token further, by the next row of its step.
  void advance(Active& sentence, const Continuations& continuations, int64_t row) {
    try {
      sentence.done = sentence.search.advance(continuations, row);
      if (sentence.done) sentence.result.hypotheses = sentence.search.take_result();
    } catch (...) {
      sentence.result.error = std::current_exception();
      sentence.done = true;
    }
    const auto next = static_cast<size_t>(sentence.accepted);
    sentence.open = !sentence.done && next < sentence.proposals.size() &&
                    sentence.search.live().front().token == sentence.proposals[next];
    if (sentence.open) ++sentence.accepted;
  }

  void count_proposals(const Active& sentence) {
    if (sentence.proposals.empty()) return;
    engine_.proposed += std::ssize(sentence.proposals);
    engine_.accepted += sentence.accepted;
    pace_.observe(sentence.probabilities, sentence.accepted);
  }

  void remove(const Active& sentence) {
    batch_.remove(sentence.place);
    if (sentence.draft_place) draft_->remove(*sentence.draft_place);
  }

  void drop_cancelled() {
    for (auto& sentence : active_) {
      if (sentence.job->cancelled()) end(sentence, {});
    }
    forget_those_that_left();
  }

  /// Nothing is left out of `active_` before all of a step have ended: where memory runs out on the way, `fail` tells
  /// the others.
  void end(Active& sentence, DecodingResult result) {
    remove(sentence);
    sentence.left = true;
    leave(*sentence.job, sentence.index, std::move(result));
  }

  void forget_those_that_left() {
    std::erase_if(active_, [](const Active& sentence) { return sentence.left; });
  }

  /// Puts sentences that came last back while keys and values take more than they may.
  void make_room() {
    while (engine_.cache_used > engine_.options.cache_bytes && active_.size() > 1) {
      const auto& last = active_.back();
      remove(last);
      {
        const std::lock_guard lock(engine_.mutex);
        engine_.waiting.push_front({last.job, last.index});
        --engine_.active;
        engine_.something_waits.notify_one();
      }
      active_.pop_back();
      batch_.release();
      if (draft_) draft_->release();
      count_cache();
    }
  }

  void list_rows() {
    rows_.clear();
    whole_rows_.clear();
    for (size_t i = 0; i < active_.size(); ++i) {
      auto& sentence = active_[i];
      const bool whole = sentence.search.wants_whole_rows();
      sentence.first_row = std::ssize(rows_);
      const auto add = [&](InferenceBatch::Row row, size_t live) {
        if (whole) {
          whole_rows_.resize(rows_.size() + 1);
          whole_rows_.back() = {i, live};
        }
        rows_.push_back(row);
      };
      const auto& all = sentence.search.live();
      for (size_t k = 0; k < all.size(); ++k) {
        const auto& live = all[k];
        add({.place = sentence.place,
             .parent = live.parent,
             .token = live.node < 0 ? Vocabulary::begin : live.token,
             .whole = whole,
             .attention = sentence.search.wants_attention()},
            k);
      }
      for (const int64_t token : sentence.proposals) add({sentence.place, 0, token, whole, /*follows=*/true}, 0);
    }
  }

  void count_cache() {
    const int64_t now = batch_.cache_bytes() + (draft_ ? draft_->cache_bytes() : 0);
    engine_.cache_used += now - counted_;
    counted_ = now;
  }

  void leave(Job& job, size_t index, DecodingResult result) {
    {
      const std::lock_guard lock(engine_.mutex);
      --engine_.active;
    }
    engine_.finish(job, index, std::move(result));
  }

  void fail(const std::exception_ptr& error) {
    forget_those_that_left();
    for (const auto& sentence : active_) leave(*sentence.job, sentence.index, {.hypotheses = {}, .error = error});
    active_.clear();
    batch_.clear();
    if (draft_) draft_->clear();
    count_cache();
  }

  Implementation& engine_;
  EnsembleBatch batch_;
  DraftPace pace_;
  std::optional<DraftBatch> draft_;
  std::vector<Active> active_;             // in the order of their coming
  std::vector<InferenceBatch::Row> rows_;  // of the step that is being taken, in the order of `active_`
  /// Of rows that are wanted whole: whose they are among `active_`, and which of its hypotheses.
  std::vector<std::pair<size_t, size_t>> whole_rows_;
  int64_t counted_ = 0;  // of the engine's `cache_used`
  /// That sentences under way are decoded for before long ones are encoded: as long as they waited for the last of
  /// these.
  double owed_seconds_ = 0;
};

Engine::Implementation::Implementation(const Ensemble& given, const Options& wanted)
    : ensemble(given.validated()), options(wanted) {
  if (options.threads < 1 || options.batch_sentences < 1 || options.cache_bytes < 0) {
    throw std::invalid_argument("Engine: one worker and one sentence at least");
  }
  if (options.draft) check_draft();
  if (options.cache_bytes == 0) options.cache_bytes = available_bytes() / 2;
  start_threads(
      workers, static_cast<size_t>(options.threads),
      [this](size_t) { return [worker = std::make_shared<Worker>(*this)] { worker->run(); }; },
      [this] {
        const std::lock_guard lock(mutex);
        stopped = true;
        something_waits.notify_all();
      });
}

void Engine::Implementation::check_draft() const {
  if (ensemble.models.size() > 1) {
    throw Error("draft", "proposes for one model, and several decode together", "leave the draft or the others out");
  }
  const auto &model = *ensemble.models.front(), &draft = *options.draft;
  if (model.projection().outputs() != draft.projection().outputs() ||
      model.settings().source_vocabulary_size != draft.settings().source_vocabulary_size) {
    throw Error("draft", "has a vocabulary of another size than the model", "take one of the same vocabulary");
  }
  using Positions = ModelSettings::Positions;
  const auto &of_model = model.settings(), &of_draft = draft.settings();
  if (of_draft.positions == Positions::learned &&
      (of_model.positions != Positions::learned || of_model.max_positions > of_draft.max_positions)) {
    throw Error("draft", fmt::format("has learned {} positions, and the model has more", of_draft.max_positions),
                "take one with as many");
  }
}

Engine::Engine(std::shared_ptr<const InferenceModel> model, const Options& options)
    : Engine(Ensemble{.models = {std::move(model)}}, options) {}

Engine::Engine(const Ensemble& ensemble, const Options& options)
    : implementation_(std::make_unique<Implementation>(ensemble, options)), process_(::getpid()) {}

Engine::Implementation& Engine::here() const {
  if (process_ == ::getpid()) return *implementation_;
  const std::lock_guard lock(starting_);
  if (process_ == ::getpid()) return *implementation_;
  auto fresh = std::make_unique<Implementation>(implementation_->ensemble, implementation_->options);
  // Left as it is: its locks may be held, and threads that this process has not cannot be waited for.
  static_cast<void>(implementation_.release());
  implementation_ = std::move(fresh);
  process_ = ::getpid();
  return *implementation_;
}

Engine::~Engine() {
  if (process_ != ::getpid()) {
    static_cast<void>(implementation_.release());
    return;
  }
  {
    const std::lock_guard lock(implementation_->mutex);
    implementation_->stopped = true;
    implementation_->something_waits.notify_all();
  }
  const auto& workers = implementation_->workers;
  const bool by_worker = std::any_of(workers.begin(), workers.end(), [](const std::jthread& worker) {
    return worker.get_id() == std::this_thread::get_id();
  });
  if (!by_worker) return;
  // With a callback its last owner went. No thread waits for itself: another one waits for all of them.
  auto* const left = implementation_.release();
  try {
    std::thread([left] { delete left; }).detach();
  } catch (...) {  // without one, it stays
  }
}

const Engine::Options& Engine::options() const {
  return here().options;
}

Engine::Drafted Engine::drafted() const {
  const auto& engine = here();
  return {engine.steps, engine.proposed, engine.accepted};
}

std::shared_ptr<Engine::Job> Engine::submit(std::vector<DecodingRequest> requests, Done done, Progress progress) {
  auto& engine = here();
  // Here, where it harms nobody: sentences of others would share a batch with it.
  for (const auto& request : requests) {
    request.check(engine.ensemble.models.front()->projection().outputs());
    for (const auto& model : engine.ensemble.models) {
      model->check(request.source, request.told + request.most_tokens());
    }
  }
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // What is left for the end, when workers run out of sentences, is short.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].source.size() > requests[b].source.size(); });
  const auto job = std::make_shared<Job>(std::move(requests), std::move(done), std::move(progress));
  const std::lock_guard lock(engine.mutex);
  try {
    for (const size_t index : order) engine.waiting.push_back({job, index});
  } catch (...) {  // whoever submits them is told, and may be gone before a worker would take them
    std::erase_if(engine.waiting, [&](const Waiting& waiting) { return waiting.job == job; });
    throw;
  }
  engine.something_waits.notify_all();
  return job;
}

void Engine::wait(const Job& job) {
  auto& engine = here();
  std::unique_lock lock(engine.mutex);
  engine.all_done.wait(lock, [&] { return job.left_ == 0; });
}

void Engine::cancel(Job& job) {
  auto& engine = here();
  job.cancelled_ = true;
  {
    const std::lock_guard lock(engine.mutex);
    job.left_ -= std::erase_if(engine.waiting, [&](const Waiting& waiting) { return waiting.job.get() == &job; });
    if (job.left_ == 0) engine.all_done.notify_all();
  }
  const std::lock_guard telling(job.telling_);  // a call that is under way ends first
}

}  // namespace transformer
