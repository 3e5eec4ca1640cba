// What those who run a server look at: health, properties, slots and figures.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "serve/openai/api.h"
#include "serve/openai/api_error.h"

namespace strata::serve {
namespace {

void send_health(const ModelService& service, HttpReply& reply) {
  const Status health = service.health();
  if (health.ok()) {
    reply.send({.body = R"({"status":"ok"})"});
  } else {
    reply.send(api_error(health));
  }
}

void send_props(const ModelService::Open& model, const ModelService& service, HttpReply& reply) {
  const Vocab& vocab = model.generator.tokenizer().vocab();
  const auto text = [&vocab](int32_t id) {
    return vocab.contains(id) ? std::string(vocab.text(id)) : std::string();
  };
  const coordinator::ChatFormat* chat = model.generator.chat_format();
  const Json props = {
      {"default_generation_settings", {{"n_ctx", model.facts.context}, {"params", Json::object()}}},
      {"total_slots", model.facts.slots},
      {"model_alias", service.name()},
      {"model_path", model.generator.model_name()},
      {"chat_template", chat == nullptr ? "" : chat->chat_template().source()},
      {"bos_token", text(vocab.special().bos)},
      {"eos_token", text(vocab.special().eos)},
      {"modalities", {{"vision", false}, {"audio", false}}},
      {"build_info", "strata"}};
  reply.send({.body = dump_json(props)});
}

// Which sequence has which slot is the engine's secret; how many there are is not.
void send_slots(const ModelService::Open& model, HttpReply& reply) {
  const uint32_t live = model.engine.counters().live;
  Json slots = Json::array();
  for (uint32_t i = 0; i < model.facts.slots; ++i) {
    slots.push_back({{"id", i}, {"n_ctx", model.facts.context}, {"is_processing", i < live}});
  }
  reply.send({.body = dump_json(slots)});
}

std::string label_value(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void send_metrics(const Router& router, const ModelService& service, HttpReply& reply) {
  std::string text;
  const auto add = [&text](std::string_view name, std::string_view type, std::string_view help,
                           double value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  add("strata_ready", "gauge", "Whether requests can be answered now.",
      service.health().ok() ? 1 : 0);
  if (const ModelService::Open* model = service.get()) {
    const coordinator::EngineCounters counters = model->engine.counters();
    add("strata_requests_queued", "gauge", "Requests that wait for a slot.", counters.queued);
    add("strata_requests_live", "gauge", "Requests that are being answered.", counters.live);
    add("strata_slots", "gauge", "Requests that can be answered at once.", model->facts.slots);
    add("strata_steps_in_flight", "gauge", "Steps on their way through the pipeline.",
        counters.steps_in_flight);
    const auto total = [&add](std::string_view name, std::string_view help, uint64_t value) {
      add(name, "counter", help, static_cast<double>(value));
    };
    total("strata_steps_total", "Steps that came back whole.", counters.steps_done);
    total("strata_prompt_tokens_total", "Prompt tokens computed.", counters.prompt_tokens);
    total("strata_generated_tokens_total", "Tokens sampled.", counters.tokens_sampled);
    total("strata_pushed_out_total", "Sequences that gave up their slot for want of memory.",
          counters.pushed_out);
    add("strata_busy_seconds_total", "counter", "Time that all stages together have computed.",
        static_cast<double>(counters.busy_ns) / 1e9);
  }
  text +=
      "# HELP strata_http_responses_total Responses by path and status.\n"
      "# TYPE strata_http_responses_total counter\n";
  for (const Router::Count& count : router.counts()) {
    text += fmt::format("strata_http_responses_total{{path=\"{}\",status=\"{}\"}} {}\n",
                        label_value(count.path), count.status, count.requests);
  }
  reply.send({.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = text});
}

}  // namespace

void add_operation_routes(Router& router, ModelService& service) {
  const auto with_model = [&service](auto send) {
    return [&service, send](const auto&, const std::shared_ptr<HttpReply>& reply) {
      const ModelService::Open* model = service.get();
      if (model == nullptr) {
        reply->send(api_error(service.health()));
      } else {
        send(*model, *reply);
      }
    };
  };
  router.add(
      "GET", "/v1/health",
      [&service](const auto&, const auto& reply) { send_health(service, *reply); },
      Router::Access::open);
  router.add("GET", "/props", with_model([&service](const auto& model, HttpReply& reply) {
               send_props(model, service, reply);
             }));
  router.add("GET", "/slots",
             with_model([](const auto& model, HttpReply& reply) { send_slots(model, reply); }));
  router.add("GET", "/metrics", [&router, &service](const auto&, const auto& reply) {
    send_metrics(router, service, *reply);
  });
}

}  // namespace strata::serve
