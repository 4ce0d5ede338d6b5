#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/serving/api_keys.h"
#include "transformer/serving/http.h"
#include "transformer/serving/metrics.h"
#include "transformer/serving/request_log.h"
#include "transformer/serving/served_models.h"
#include "transformer/serving/settings.h"
#include "transformer/serving/task_pool.h"
#include "transformer/serving/turn_queue.h"

namespace transformer {

/// What the server answers: LibreTranslate's interface, its own (/v1), what operators ask (/health, /ready, /metrics)
/// and the page.
class Service : public HttpHandler {
 public:
  /// Settings must be validated. Throws Error for keys that cannot be read and models whose places are none; weights
  /// are for `load`.
  explicit Service(const ServingSettings& settings);
  /// Waits for whoever still uses its models.
  ~Service() override;

  /// Loads all models, and from the second time on the keys anew, unless they came through a pipe, and serves them from
  /// then on; who uses others until then keeps them for as long. Throws what is wrong with them, and goes on with what
  /// there was. To be called once at a time.
  void load();
  /// Requests go on being answered, none of which waits for others any more (Dispatcher::drain); whoever asks is told
  /// that the server is not ready for more.
  void drain();
  /// Connections that are open, for metrics; called from any thread.
  void count_connections_by(std::function<size_t()> count) { connections_ = std::move(count); }
  /// A line of the log: {"time": ..., "event": event, ...}.
  void log(const std::string& event, const std::vector<std::pair<std::string, std::string>>& fields = {});

  /// Writes what waits of the log, and nothing from then on: for who ends without ending this.
  void end_log() { log_.end(); }

  HttpResponse refusal(const std::string& method, const std::string& path) override;
  std::shared_ptr<HttpTask> handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  void record(const HttpRecord& record) override;

 private:
  struct Route;
  static const std::vector<Route>& routes();
  const Route* find(std::string_view path) const;
  std::shared_ptr<const ServedModels> models() const;
  void forget(const ServedModel* model);

  HttpResponse languages() const;
  HttpResponse frontend_settings() const;
  HttpResponse health() const;
  HttpResponse readiness() const;
  HttpResponse metrics() const;
  HttpResponse specification() const;
  HttpResponse models_json() const;
  HttpResponse page() const;
  HttpResponse page_style() const;
  HttpResponse page_script() const;

  const ServingSettings settings_;
  RequestLog log_;
  ServingMetrics metrics_;
  std::function<size_t()> connections_;
  const double start_seconds_;  // since 1970
  const bool keys_come_once_;   // through a pipe
  std::atomic<bool> draining_ = false;
  bool has_loaded_ = false;   // of `load`, which is called once at a time
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable model_gone_;
  size_t models_left_ = 0;  // of all that were loaded, those that are not deleted
  std::shared_ptr<const ServedModels> models_;
  std::shared_ptr<const ApiKeys> keys_;

  TurnQueue scoring_, aligning_;
  TaskPool pool_;  // last: what it is at uses the rest
};

}  // namespace transformer
