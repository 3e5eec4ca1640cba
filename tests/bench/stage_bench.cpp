// Speed of one whole model in this process, without a coordinator: prefill and decode of random
// tokens, for finding what bounds a step (perf) and for trying kernel changes.
//
// Usage: stage_bench MODEL [--threads N] [--isa NAME] [--kv f16] [--prompt N] [--gen N] [--depth N]
//        [--batch N] [--repeat N]
// Prints one line per repeat: prefill and decode tokens per second.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/backends.h"
#include "runtime/model/hparams.h"
#include "runtime/model/stage_model.h"

namespace strata {
namespace {

struct Options {
  std::string model;
  std::string isa;
  std::string kv = "f16";
  int threads = 1;
  int prompt = 512;
  int gen = 64;
  int depth = 0;
  int batch = 1;
  int repeat = 1;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor time of the whole process: on a shared machine the steadier measure.
double cpu_now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Sequences of which each owns a run of blocks.
class Sequences {
 public:
  Sequences(StageModel& model, int count, int context)
      : model_(model), blocks_((context + 15) / 16) {
    for (int s = 0; s < count; ++s) {
      std::vector<int32_t>& table = tables_.emplace_back();
      for (int b = 0; b < blocks_; ++b) table.push_back(s * blocks_ + b);
    }
    const size_t groups = model.hparams().kv_groups.size();
    for (const auto& table : tables_) {
      BatchSequence& sequence = sequences_.emplace_back();
      sequence.tables.assign(groups, std::span<const int32_t>(table));
    }
  }

  // `count` tokens of each sequence at `position`, logits of the last.
  Status step(int position, int count) {
    std::vector<int32_t> tokens;
    std::vector<int32_t> positions;
    std::vector<int32_t> owner;
    std::vector<int32_t> outputs;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int i = 0; i < count; ++i) {
        tokens.push_back((position + i) * 7919 % 32000 + static_cast<int>(s));
        positions.push_back(position + i);
        owner.push_back(static_cast<int32_t>(s));
      }
      outputs.push_back(static_cast<int32_t>(tokens.size()) - 1);
    }
    StageBatch batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.sequence = owner;
    batch.sequences = sequences_;
    batch.outputs = outputs;
    TRY(model_.run(batch));
    return ok_status();
  }

 private:
  StageModel& model_;
  int blocks_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<BatchSequence> sequences_;
};

Status run(const Options& options) {
  DeviceRegistry registry;
  TRY(register_all(registry, {.isa = options.isa}));
  auto file = TRY(GgufFile::open(options.model));
  const Hparams hparams = TRY(read_hparams(*file));
  const int context = std::max(options.prompt, options.depth) + options.gen + 16;
  StageOptions stage;
  stage.range = {0, hparams.n_layer, true, true};
  stage.devices = registry.devices();
  stage.max_context = context;
  stage.max_sequences = options.batch;
  stage.max_batch_tokens = std::max(512, options.batch);
  stage.backend.threads = options.threads;
  stage.kv.type = dtype_from_name(options.kv).value();
  stage.kv.group_blocks.assign(hparams.kv_groups.size(), options.batch * ((context + 15) / 16));
  const double load_start = now();
  auto model = TRY(StageModel::load(std::move(file), stage));
  fmt::print("loaded in {:.3f} s\n", now() - load_start);
  Sequences one(*model, 1, context);
  Sequences all(*model, options.batch, context);
  for (int round = 0; round < options.repeat; ++round) {
    double prefill = 0;
    double prefill_cpu = 0;
    if (options.prompt > 0) {
      const double start = now();
      const double cpu_start = cpu_now();
      for (int at = 0; at < options.prompt; at += 512) {
        TRY(one.step(at, std::min(512, options.prompt - at)));
      }
      prefill = options.prompt / (now() - start);
      prefill_cpu = options.prompt / (cpu_now() - cpu_start);
    }
    // What stands in the cache before `depth` does not matter for speed.
    TRY(all.step(options.depth, 1));
    const double start = now();
    const double cpu_start = cpu_now();
    for (int i = 1; i <= options.gen; ++i) TRY(all.step(options.depth + i, 1));
    const double decode = options.gen * options.batch / (now() - start);
    const double decode_cpu = options.gen * options.batch / (cpu_now() - cpu_start);
    fmt::print("prefill {:.1f} decode {:.1f} tokens/s; per processor second {:.1f} and {:.1f}\n",
               prefill, decode, prefill_cpu, decode_cpu);
  }
  return ok_status();
}

Options parse(int argc, char** argv) {
  Options options;
  options.model = argc > 1 ? argv[1] : "";
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--isa") options.isa = value;
    if (name == "--kv") options.kv = value;
    if (name == "--threads") options.threads = std::atoi(value.c_str());
    if (name == "--prompt") options.prompt = std::atoi(value.c_str());
    if (name == "--gen") options.gen = std::atoi(value.c_str());
    if (name == "--depth") options.depth = std::atoi(value.c_str());
    if (name == "--batch") options.batch = std::atoi(value.c_str());
    if (name == "--repeat") options.repeat = std::atoi(value.c_str());
  }
  return options;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  const strata::Status status = strata::run(strata::parse(argc, argv));
  if (!status.ok()) fmt::print(stderr, "stage_bench: {}\n", status.to_string());
  return status.ok() ? 0 : 1;
}
