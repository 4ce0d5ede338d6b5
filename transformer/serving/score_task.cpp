#include "transformer/serving/score_task.h"

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transformer/inference/attention_maps.h"
#include "transformer/inference/perplexity.h"
#include "transformer/serving/json_text.h"
#include "transformer/serving/request_checks.h"
#include "transformer/serving/request_error.h"
#include "transformer/serving/translation_call.h"

namespace transformer {

namespace {

using Json = nlohmann::ordered_json;

class ScoreTask : public HttpTask, public std::enable_shared_from_this<ScoreTask> {
 public:
  ScoreTask(ServingContext context, HttpRequest request, std::shared_ptr<HttpReply> reply)
      : context_(std::move(context)), request_(std::move(request)), reply_(std::move(reply)) {}

  void start() { context_.pool.post(step(&ScoreTask::prepare)); }

  void cancel() override {
    std::optional<TurnQueue::Ticket> ticket;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      ticket = ticket_;
    }
    if (ticket) context_.scoring.cancel(*ticket);
  }

  Served served() override {
    const std::lock_guard lock(mutex_);
    return ticket_ ? served_ : Served();  // else it may be being written
  }

  std::string last_part(const HttpResponse&) override { return {}; }

 private:
  /// Of the work, while somebody waits for it: `method` of this, which is called with `arguments`.
  template <class Method, class... Arguments>
  std::function<void()> step(Method method, Arguments... arguments) {
    return [self = shared_from_this(), method, arguments...] {
      if (self->is_over_) return;
      try {
        ((*self).*method)(arguments...);
      } catch (...) {
        const auto response = answer_of_exception();
        self->cancel();
        self->reply_->send(response, self->served());
      }
    };
  }

  std::vector<std::vector<int64_t>> encoded(const Vocabulary& vocabulary, const std::vector<std::string>& texts,
                                            const char* name) const {
    std::vector<std::vector<int64_t>> result;
    for (const auto& text : texts) {
      if (text.find('\n') != std::string::npos) {
        throw RequestError(400, fmt::format("{} {} has several lines: send each by itself", name, result.size() + 1));
      }
      result.push_back(vocabulary.encode_line(text));
      if (const auto problem = model_->translator().problem(result.back().size()); !problem.empty())
        throw RequestError(413, fmt::format("{} {} {}", name, result.size(), problem));
    }
    return result;
  }

  void prepare() {
    check_is_json(request_);
    auto call = parse_score(request_.body, static_cast<size_t>(context_.settings.max_texts));
    request_.forget_body();
    check_key(context_, request_, call.api_key);
    auto all = call.texts;
    all.insert(all.end(), call.translations.begin(), call.translations.end());
    check_characters(context_.settings, all);
    auto route = context_.models->find(call.source, call.target, call.model);
    model_ = std::move(route.model);
    languages_ = std::move(route.languages);
    const auto& vocabularies = model_->translator().vocabularies();
    sources_ = encoded(*vocabularies.source, call.texts, "text");
    targets_ = encoded(*vocabularies.target, call.translations, "translation");
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (sources_[i].empty()) throw RequestError(400, fmt::format("text {} is blank", i + 1));
    }
    served_.model = model_->name();
    if (context_.settings.log_texts) served_.texts = json_text(Json(all));
    if (sources_.empty()) return answer();
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    ticket_ = context_.scoring.post(request_.client, model_->name(), turns());
  }

  std::vector<TurnQueue::Turn> turns() {
    std::vector<TurnQueue::Turn> turns;
    for (size_t begin = 0, end = 0; begin < sources_.size(); begin = end) {
      for (size_t pieces = 0; end < sources_.size() && (end == begin || pieces < pieces_of_turn); ++end) {
        pieces += sources_[end].size() + targets_[end].size();
      }
      turns.push_back({end - begin, step(&ScoreTask::judge, begin, end)});
    }
    return turns;
  }

  /// A few, on the thread for that.
  void judge(size_t begin, size_t end) {
    const auto turn = [&](const auto& all) { return std::span(all).subspan(begin, end - begin); };
    auto found = model_->translator().score(turn(sources_), turn(targets_), model_->search(languages_));
    std::move(found.begin(), found.end(), std::back_inserter(scores_));
    {
      const std::lock_guard lock(mutex_);
      served_.lines += static_cast<int64_t>(end - begin);
      for (size_t i = begin; i < end; ++i) {
        served_.source_tokens += std::ssize(sources_[i]);
        served_.output_tokens += std::ssize(targets_[i]);
      }
    }
    if (end == sources_.size()) context_.pool.post(step(&ScoreTask::answer));
  }

  void answer() {
    const auto& translator = model_->translator();
    const auto& vocabulary = *translator.vocabularies().target;
    Json list = Json::array();
    for (size_t i = 0; i < scores_.size(); ++i) {
      Json tokens = Json::array();
      for (const auto id : written_tokens(targets_[i])) tokens.push_back(vocabulary.piece(id));
      list.push_back({{"log_probability", std::accumulate(scores_[i].begin(), scores_[i].end(), 0.0)},
                      {"score", normalised_score(scores_[i], translator.settings(), translator.languages_told())},
                      {"tokens", std::move(tokens)},
                      {"token_log_probabilities", scores_[i]}});
    }
    const Json json = {{"model", model_->name()},
                       {"source", languages_.source},
                       {"target", languages_.target},
                       {"scores", std::move(list)}};
    reply_->send({.status = 200, .body = json_text(json)}, served_);
  }

  const ServingContext context_;
  HttpRequest request_;
  const std::shared_ptr<HttpReply> reply_;
  std::atomic<bool> is_over_ = false;  // nobody waits any more
  std::mutex mutex_;                   // of what follows, and so that no turns come after the end
  std::optional<TurnQueue::Ticket> ticket_;
  Served served_;  // of what is done

  // Steps follow each other:
  std::shared_ptr<const ServedModel> model_;
  LanguagePair languages_;
  std::vector<std::vector<int64_t>> sources_, targets_;
  std::vector<std::vector<double>> scores_;
};

}  // namespace

std::shared_ptr<HttpTask> start_scoring(const ServingContext& context, HttpRequest request,
                                        std::shared_ptr<HttpReply> reply) {
  const auto task = std::make_shared<ScoreTask>(context, std::move(request), std::move(reply));
  task->start();
  return task;
}

}  // namespace transformer
