#include "transformer/serving/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "transformer/base/atomic_file.h"
#include "transformer/base/memory.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/json_text.h"
#include "transformer/serving/openapi.json.h"
#include "transformer/serving/page.css.h"
#include "transformer/serving/page.html.h"
#include "transformer/serving/page.js.h"
#include "transformer/serving/score_task.h"
#include "transformer/serving/translation_task.h"

namespace transformer {

namespace {

using Json = nlohmann::ordered_json;

// Threads that align words; a client has all but one of them where others wait.
constexpr size_t aligned_at_once = 4;

HttpResponse json_response(const Json& json, int status = 200) {
  return {.status = status, .body = json_text(json)};
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// "2017-06-12T17:57:34.123Z".
std::string time_text() {
  const auto milliseconds = static_cast<int64_t>(seconds_since_1970() * 1000);
  const std::time_t seconds = milliseconds / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03d}Z", text, milliseconds % 1000);
}

/// A part of the page, which may load the others, ask this server, and nothing else.
HttpResponse page_part(const char* content_type, std::string_view text) {
  return {.status = 200,
          .content_type = content_type,
          .body = std::string(text),
          .headers = {{"Cache-Control", "no-cache"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
                       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}}};
}

/// What /spec says of a setting: its value by its type, or any as --set takes it, as text.
Json setting_schema(const SettingField& field) {
  Json schema = {{"description", fmt::format("{} ({})", field.meaning, field.expectation())}};
  Json value = {{"type", "string"}, {"nullable", true}};
  if (const auto* choice = std::get_if<SettingField::Choice>(&field.target)) {
    value["enum"] = choice->names;
    value["enum"].push_back(nullptr);
    schema.update(value);
    return schema;
  }
  const bool is_list = std::holds_alternative<std::vector<std::string>*>(field.target) ||
                       std::holds_alternative<std::vector<double>*>(field.target);
  const bool is_integer =
      std::holds_alternative<int64_t*>(field.target) || std::holds_alternative<uint64_t*>(field.target);
  const bool is_number = is_integer || std::holds_alternative<double*>(field.target);
  if (is_list) {
    value = {{"type", "array"}, {"nullable", true}, {"items", Json::object()}};
  } else if (is_number) {
    value["type"] = is_integer ? "integer" : "number";
    const auto& range = field.range;
    if (std::isfinite(range.lowest)) value["minimum"] = range.lowest;
    if (std::isfinite(range.highest)) value["maximum"] = range.highest;
    if (range.lowest_excluded) value["exclusiveMinimum"] = true;
    if (range.highest_excluded) value["exclusiveMaximum"] = true;
  } else if (std::holds_alternative<bool*>(field.target)) {
    value["type"] = "boolean";
  }
  schema["anyOf"] = {std::move(value), {{"type", "string"}}};
  return schema;
}

/// A language as JSON for clients that show it.
Json language_json(const std::string& code) {
  return {{"code", code}, {"name", language_name(code)}};
}

}  // namespace

struct Service::Route {
  std::string_view path, method;
  HttpResponse (Service::*now)() const;  // null: a task
  bool of_page = false;                  // which may be switched off
};

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> routes = {
      {"/translate", "POST", nullptr},
      {"/v1/translate", "POST", nullptr},
      {"/v1/score", "POST", nullptr},
      {"/detect", "POST", nullptr},
      {"/languages", "GET", &Service::languages},
      {"/frontend/settings", "GET", &Service::frontend_settings},
      {"/health", "GET", &Service::health},
      {"/ready", "GET", &Service::readiness},
      {"/metrics", "GET", &Service::metrics},
      {"/spec", "GET", &Service::specification},
      {"/v1/models", "GET", &Service::models_json},
      {"/", "GET", &Service::page, true},
      {"/page.css", "GET", &Service::page_style, true},
      {"/page.js", "GET", &Service::page_script, true},
  };
  return routes;
}

Service::Service(const ServingSettings& settings)
    : settings_(settings),
      start_seconds_(seconds_since_1970()),
      keys_come_once_(!settings.api_keys.empty() && is_stream(settings.api_keys)),
      models_(std::make_shared<ServedModels>(ServedModels::Models())),
      keys_(settings.api_keys.empty() ? std::make_shared<ApiKeys>() : std::make_shared<ApiKeys>(settings.api_keys)),
      scoring_(pool_, static_cast<size_t>(settings.max_waiting), static_cast<size_t>(settings.max_waiting_of_client)),
      aligning_(pool_, static_cast<size_t>(settings.max_waiting), static_cast<size_t>(settings.max_waiting_of_client),
                aligned_at_once),
      pool_(2, 1 + aligned_at_once) {
  model_places(settings_);
}

Service::~Service() {
  std::unique_lock lock(mutex_);
  auto models = std::move(models_);
  lock.unlock();
  models = nullptr;
  // They end on the pool, which is still there. The last to let go of one may be one of its own workers.
  lock.lock();
  model_gone_.wait(lock, [this] { return models_left_ == 0; });
}

void Service::load() {
  std::shared_ptr<const ApiKeys> keys;  // none: those that the constructor has read stay
  if (std::exchange(has_loaded_, true) && !settings_.api_keys.empty() && !keys_come_once_) {
    keys = std::make_shared<ApiKeys>(settings_.api_keys);
  }
  ServedModels::Models loaded;
  for (const auto& place : model_places(settings_)) {
    auto model = std::make_unique<ServedModel>(
        place, settings_, [this](const std::string& name, size_t running) { metrics_.count_running(name, running); });
    {
      const std::lock_guard lock(mutex_);
      ++models_left_;
    }
    // The last to use it may be one of its own workers, which cannot wait for itself.
    loaded.push_back(
        {model.release(), [this](const ServedModel* done) { pool_.post([this, done] { forget(done); }); }});
  }
  const auto models = std::make_shared<const ServedModels>(std::move(loaded));
  auto replaced = models;
  {
    const std::lock_guard lock(mutex_);
    models_.swap(replaced);
    if (keys) keys_ = std::move(keys);
  }
  replaced->drain();
  if (draining_) models->drain();
}

void Service::drain() {
  draining_ = true;
  models()->drain();
}

void Service::forget(const ServedModel* model) {
  delete model;
  const std::lock_guard lock(mutex_);
  if (--models_left_ == 0) model_gone_.notify_all();
}

std::shared_ptr<const ServedModels> Service::models() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

void Service::log(const std::string& event, const std::vector<std::pair<std::string, std::string>>& fields) {
  Json line = {{"time", time_text()}, {"event", event}};
  for (const auto& [name, value] : fields) line[name] = value;
  log_.write(json_text(line));
}

const Service::Route* Service::find(std::string_view path) const {
  const auto found =
      std::find_if(routes().begin(), routes().end(), [&](const Route& route) { return route.path == path; });
  return found == routes().end() || (found->of_page && !settings_.page) ? nullptr : &*found;
}

HttpResponse Service::refusal(const std::string& method, const std::string& path) {
  const auto* route = find(path);
  if (!route) return error_response(404, fmt::format("there is nothing at {}", printable(path)));
  if (route->method == (method == "HEAD" ? "GET" : method)) return {.status = 0};
  const auto allowed = fmt::format("{}{}", route->method == "GET" ? "GET, HEAD" : route->method,
                                   settings_.allow_origin.empty() ? "" : ", OPTIONS");
  if (method == "OPTIONS" && !settings_.allow_origin.empty()) {
    return {.status = 204,
            .content_type = "",
            .body = "",
            .headers = {{"Access-Control-Allow-Methods", allowed},
                        {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-API-Key, X-Request-Id"}}};
  }
  auto response = error_response(405, fmt::format("{} takes {}", path, allowed));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

std::shared_ptr<HttpTask> Service::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const auto* route = find(request.path);
  if (route->now) {
    reply->send((this->*route->now)(), {});
    return nullptr;
  }
  if (route->path == "/detect") {
    reply->send(error_response(501, "languages are not detected here: name the source"), {});
    return nullptr;
  }
  std::unique_lock lock(mutex_);
  const ServingContext context{settings_, pool_, scoring_, aligning_, models_, keys_};
  lock.unlock();
  if (context.models->all().empty()) {
    reply->send(error_response(503, "the models are being loaded", 1), {});
    return nullptr;
  }
  if (route->path == "/v1/score") return start_scoring(context, std::move(request), std::move(reply));
  return start_translation(
      context, route->path == "/translate" ? TranslationInterface::libretranslate : TranslationInterface::own,
      std::move(request), std::move(reply));
}

void Service::record(const HttpRecord& record) {
  const auto* route = find(record.path);
  metrics_.count(std::string(route ? route->path : "other"), record);
  Json line = {{"time", time_text()},
               {"event", "request"},
               {"id", record.id},
               {"client", record.client},
               {"method", printable(record.method, 20)},
               {"path", printable(record.path)},
               {"status", record.status},
               {"milliseconds", std::round(record.seconds * 1e6) / 1e3}};
  if (!record.served.model.empty()) {
    line["model"] = record.served.model;
    line["lines"] = record.served.lines;
    line["source_tokens"] = record.served.source_tokens;
    line["output_tokens"] = record.served.output_tokens;
  }
  if (!record.served.texts.empty()) line["texts"] = Json::parse(record.served.texts);
  log_.write(json_text(line));
}

HttpResponse Service::languages() const {
  return {.status = 200, .body = models()->languages_json()};
}

HttpResponse Service::frontend_settings() const {
  const auto all = models();
  Json language = {{"source", nullptr}, {"target", nullptr}};
  if (!all->all().empty()) {
    const auto& first = all->all().front()->languages();
    const auto offered = [&](const std::string& code) {
      return code.empty() ? Json() : language_json(first.tag(code));
    };
    language = {{"source", offered(first.usual().source)}, {"target", offered(first.usual().target)}};
  }
  return json_response({{"apiKeys", !settings_.api_keys.empty()},
                        {"charLimit", settings_.max_characters},
                        {"filesTranslation", false},
                        {"frontendTimeout", 500},
                        {"keyRequired", !settings_.api_keys.empty()},
                        {"language", std::move(language)},
                        {"suggestions", false},
                        {"supportedFilesFormat", Json::array()}});
}

HttpResponse Service::health() const {
  return json_response({{"status", "ok"}});
}

HttpResponse Service::readiness() const {
  if (draining_) return json_response({{"status", "draining"}}, 503);
  if (models()->all().empty()) return json_response({{"status", "loading"}}, 503);
  return json_response({{"status", "ready"}});
}

HttpResponse Service::metrics() const {
  using Gauge = ServingMetrics::Gauge;
  const auto all = models();
  std::vector<Gauge> gauges = {
      {"process_start_time_seconds", "When the server began, in seconds since 1970.", "", start_seconds_},
      {"process_resident_memory_bytes", "Memory that the server holds.", "", static_cast<double>(resident_bytes())},
      {"transformer_ready", "1 while models are loaded and the server does not end.", "",
       all->all().empty() || draining_ ? 0.0 : 1.0},
      {"transformer_log_lines_left_out_total", "Lines of the log that nobody read in time.", "",
       static_cast<double>(log_.left_out()), /*counts=*/true},
      {"transformer_connections", "Open connections.", "", connections_ ? static_cast<double>(connections_()) : 0.0}};
  using Value = std::function<std::optional<int64_t>(const ServedModel& model)>;  // none: it has none
  const auto of_each = [&](const char* name, const char* meaning, bool counts, const Value& value) {
    for (const auto& model : all->all()) {
      const auto found = value(*model);
      if (!found) continue;
      gauges.push_back(
          {name, meaning, ServingMetrics::label("model", model->name()), static_cast<double>(*found), counts});
    }
  };
  of_each("transformer_waiting_lines", "Lines that wait for a worker.", false, [this](const ServedModel& model) {
    return static_cast<int64_t>(model.dispatcher().waiting() + scoring_.waiting(model.name()) +
                                aligning_.waiting(model.name()));
  });
  of_each("transformer_running_lines", "Lines that the workers have.", false,
          [](const ServedModel& model) { return static_cast<int64_t>(model.dispatcher().running()); });
  // Counted by the engine: those of a model that is loaded anew begin at nothing.
  const auto drafted = [](int64_t Engine::Drafted::*member) -> Value {
    return [member](const ServedModel& model) {
      return model.draft().empty() ? std::nullopt : std::optional(model.translator().engine()->drafted().*member);
    };
  };
  of_each("transformer_draft_proposed_tokens_total", "Word pieces that drafts proposed.", true,
          drafted(&Engine::Drafted::proposed));
  of_each("transformer_draft_accepted_tokens_total", "Of these, those that the model wrote.", true,
          drafted(&Engine::Drafted::accepted));
  return {.status = 200, .content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text(gauges)};
}

HttpResponse Service::models_json() const {
  Json list = Json::array();
  for (const auto& model : models()->all()) {
    auto search = model->translator().settings();
    Settings settings;
    settings.section("decoding", search, "");
    Json decoding;
    for (const auto& [name, value] : settings.values()) decoding[name.substr(name.find('.') + 1)] = value;
    const auto& languages = model->languages();
    Json json = {{"name", model->name()},
                 {"source", languages.usual().source},
                 {"target", languages.usual().target},
                 {"longest_line_tokens", model->translator().longest_source()},
                 {"most_translations", model->limits().translations},
                 {"draft", model->draft().empty() ? Json() : Json(model->draft())},
                 {"decoding", std::move(decoding)}};
    if (languages.many()) {
      json["languages"] = languages.codes();
      json["language_codes"] = languages.tags();
    }
    list.push_back(std::move(json));
  }
  return json_response({{"models", std::move(list)}});
}

HttpResponse Service::page() const {
  return page_part("text/html; charset=utf-8", embedded::page_html);
}

HttpResponse Service::page_style() const {
  return page_part("text/css; charset=utf-8", embedded::page_css);
}

HttpResponse Service::page_script() const {
  return page_part("text/javascript; charset=utf-8", embedded::page_js);
}

HttpResponse Service::specification() const {
  static const Json described = [] {
    auto specification = Json::parse(embedded::openapi_json);
    specification["info"]["version"] = TRANSFORMER_VERSION;
    // What a request may set is what was declared, but for what TranslationTask refuses.
    DecodingSettings decoding;
    std::vector<SettingField> fields;
    Fields<DecodingSettings> declared(decoding, fields);
    DecodingSettings::describe(declared);
    Json properties;
    for (const auto& field : fields) {
      if (field.name != "batch_sentences" && field.name != "source_language" && field.name != "target_language")
        properties[field.name] = setting_schema(field);
    }
    specification["components"]["schemas"]["Decoding"]["properties"] = std::move(properties);
    // What the HTTP server says itself, whatever was asked for.
    for (auto& [path, methods] : specification["paths"].items()) {
      for (auto& [method, operation] : methods.items()) {
        for (const char* status : {"400", "408", "413", "415", "431", "500", "503"}) {
          auto& responses = operation["responses"];
          if (!responses.contains(status)) responses[status] = {{"$ref", "#/components/responses/Error"}};
        }
      }
    }
    return specification;
  }();
  auto specification = described;
  auto& decoding = specification["components"]["schemas"]["Decoding"]["properties"];
  const auto all = models();
  const auto allow = [&](const char* setting, int64_t ServedModel::Limits::*limit) {
    int64_t most = 0;
    for (const auto& model : all->all()) most = std::max(most, model->limits().*limit);
    if (!all->all().empty()) decoding[setting]["anyOf"][0]["maximum"] = most;
  };
  allow("beam", &ServedModel::Limits::beam);
  allow("n_best", &ServedModel::Limits::translations);
  allow("max_extra_length", &ServedModel::Limits::extra_length);
  return {.status = 200, .body = specification.dump()};
}

}  // namespace transformer
