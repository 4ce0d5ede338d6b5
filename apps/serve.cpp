#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/program.h"
#include "apps/setting_options.h"
#include "apps/settings_listing.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/described.h"
#include "transformer/base/process.h"
#include "transformer/serving/http_server.h"
#include "transformer/serving/service.h"
#include "transformer/serving/settings.h"

namespace transformer {

namespace {

/// Serves until a signal ends it, and returns the exit status. `without_keys`: keys were asked for, from no file.
int serve(const ServingSettings& settings, bool without_keys) {
  ignore_broken_pipes();
  // Before anything starts threads: signals are to arrive in one place.
  const BlockedSignals signals{SIGINT, SIGTERM, SIGHUP};
  Service service(settings);
  HttpServer server(settings, service);
  service.count_connections_by([&] { return server.connections(); });
  service.log("listening", {{"address", server.address()}});
  if (without_keys) {
    service.log("no keys",
                {{"reason", "--api-keys is empty, as an unset variable of a shell gives it: none is asked for"}});
  }
  if (const auto most = server.connections_at_most(); most < static_cast<size_t>(settings.max_connections)) {
    service.log("fewer connections",
                {{"connections", std::to_string(most)}, {"reason", "the limit of open files (ulimit -n) is too low"}});
  }

  std::exception_ptr failed;
  std::atomic<bool> has_ended = false;
  std::jthread answering([&] {
    try {
      server.run();
    } catch (...) {
      failed = std::current_exception();
    }
    has_ended = true;
  });
  struct Stop {  // whatever ends this: the thread above must end
    HttpServer& server;
    ~Stop() { server.stop(); }
  } stop{server};

  // On a thread of its own, as signals come meanwhile, too. The server answers that it is not ready.
  const auto load = [&] { return std::async(std::launch::async, [&] { service.load(); }); };
  auto loading = load();
  const auto not_reloaded = [&] { service.log("not reloaded", {{"reason", described_exception().text}}); };
  const auto load_again = [&] {
    try {
      loading = load();
    } catch (...) {  // no thread can be started
      not_reloaded();
    }
  };
  std::chrono::steady_clock::time_point asked_to_end;
  bool is_ready = false, is_draining = false, loads_again = false;
  while (!has_ended) {
    const int signal = signals.next(100);
    if (loading.valid() && loading.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      try {
        loading.get();
        service.log(std::exchange(is_ready, true) ? "reloaded" : "ready");
      } catch (...) {
        if (!is_ready) throw;
        not_reloaded();
      }
      if (std::exchange(loads_again, false) && !is_draining) load_again();
    }
    if (signal == SIGHUP && !is_draining) {
      // What is being loaded may have been read before the change that this is about.
      if (loading.valid()) {
        loads_again = true;
      } else {
        load_again();
      }
    } else if (signal == SIGINT || signal == SIGTERM) {
      const auto now = std::chrono::steady_clock::now();
      if (!is_draining) asked_to_end = now;
      // `timeout` sends its signal twice.
      const bool at_once = now - asked_to_end > std::chrono::seconds(SignalWishes::seconds_together(signal));
      if (at_once) server.stop();
      if (std::exchange(is_draining, true) && !at_once) continue;
      service.log(at_once ? "stopping" : "draining");
      service.drain();
      server.drain();
    }
  }
  answering.join();
  // What is being loaded is of use to nobody, and may take minutes.
  const bool still_loads = loading.valid() && loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  if (failed) {
    try {
      std::rethrow_exception(failed);
    } catch (...) {
      const auto reason = described_exception();
      service.log("failed", {{"reason", reason.text}});
      if (!still_loads) throw;
      service.end_log();
      std::_Exit(reason.mistake ? 2 : 1);
    }
  }
  service.log("ended");
  if (still_loads) {
    service.end_log();
    std::_Exit(0);
  }
  return 0;
}

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Serves translations over HTTP: LibreTranslate's interface, one of its own with scores, word pieces and "
        "alignments (/v1/translate), a page at /, and figures at /metrics. It logs a line of JSON for each request. "
        "SIGTERM ends it when what was asked is answered, SIGHUP loads the models anew.");
    std::string configuration;
    std::vector<std::string> models, languages, drafts, overrides;
    app.add_option("config", configuration, "Settings (YAML), in a section `serving`")->type_name("FILE");
    app.add_option("--model", models, "Model directory, as train writes it (repeatable)")
        ->type_name("DIR")
        ->allow_extra_args(false);
    app.add_option(
           "--languages", languages,
           "What a model translates, once for each --model: en:de; ? is as the names of its training files end, and "
           "all that a model of many languages knows")
        ->type_name("PAIR")
        ->allow_extra_args(false);
    app.add_option("--draft", drafts,
                   "A small model of the same vocabulary that guesses what the model then checks, several word pieces "
                   "at a time, once for each --model; none for one without. For requests that have one hypothesis a "
                   "line: decoding.beam 1, or one sample; their answers stay the same")
        ->type_name("DIR")
        ->allow_extra_args(false);
    app.add_option("--set", overrides, "Override a setting: --set serving.key=value (repeatable)")
        ->type_name("SERVING.KEY=VALUE")
        ->allow_extra_args(false);
    SettingsListing listing(app, "Write all settings as Markdown to a file, and end");
    SettingOptions<ServingSettings> options(app, "Settings", {}, /*tells_defaults=*/true);
    parse();

    ServingSettings settings;
    Settings all;
    all.section("serving", settings, "What is served, to whom, and how much of it");
    if (listing.asked()) {
      listing.show(all);
      return 0;
    }
    if (!configuration.empty()) all.load(configuration);
    all.set(overrides);
    settings = options.over(settings);
    if (!models.empty()) {
      settings.models = models;
      settings.languages.clear();
      settings.drafts.clear();
    }
    if (!languages.empty()) settings.languages = languages;
    if (!drafts.empty()) settings.drafts = drafts;
    return serve(settings.validated(), /*without_keys=*/app.count("--api-keys") > 0 && settings.api_keys.empty());
  });
}
