#include "runtime/model/tensor_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/model/architecture.h"

namespace strata {
namespace {

// Written by old converters and computed from the parameters ever since.
bool is_ignored(std::string_view name) { return name.ends_with(".attn_rot_embd.weight"); }

bool in_range(const TensorPart& part, const LayerRange& range) {
  switch (part.kind) {
    case TensorPart::input:
      return range.has_embedding;
    case TensorPart::output:
      return range.has_head;
    case TensorPart::all_layers:
      return range.count() > 0;
    case TensorPart::layer:
      return part.index >= range.begin && part.index < range.end;
  }
  return false;
}

// Types that can be computed with at all; what a device lacks it says itself.
bool is_number_type(DType dtype) {
  switch (dtype) {
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
    case DType::f64:
    case DType::q8_1:
    case DType::q8_k:
      return false;
    default:
      return true;
  }
}

Status check_tensor(const GgufFile& file, const TensorSpec& spec, const TensorInfo& info) {
  if (info.ne != spec.ne) {
    return file.tensor_error(info,
                             fmt::format("does not fit the model: shape wanted {}, shape found {}",
                                         shape_text(spec.ne), shape_text(info)));
  }
  if (spec.use == TensorUse::vector && info.dtype != DType::f32) {
    return file.tensor_error(
        info, fmt::format("is {}, must be F32: shape wanted {}, shape found {}",
                          dtype_name(info.dtype), shape_text(spec.ne), shape_text(info)));
  }
  if (!is_number_type(info.dtype)) {
    return file.tensor_error(
        info, fmt::format("is {}, not a type of weights: shape wanted {}, shape found {}",
                          dtype_name(info.dtype), shape_text(spec.ne), shape_text(info)));
  }
  return ok_status();
}

}  // namespace

void TensorTable::vector(TensorPart part, std::string name, int64_t n) {
  add({std::move(name), {n, 1, 1, 1}, TensorUse::vector, part, false});
}

void TensorTable::matrix(TensorPart part, std::string name, int64_t n_in, int64_t n_out) {
  add({std::move(name), {n_in, n_out, 1, 1}, TensorUse::matrix, part, false});
}

void TensorTable::experts(TensorPart part, std::string name, int64_t n_in, int64_t n_out,
                          int64_t n_expert) {
  add({std::move(name), {n_in, n_out, n_expert, 1}, TensorUse::matrix, part, false});
}

void TensorTable::table(TensorPart part, std::string name, int64_t n, int64_t rows) {
  add({std::move(name), {n, rows, 1, 1}, TensorUse::table, part, false});
}

void TensorTable::optional_vector(TensorPart part, std::string name, int64_t n) {
  add({std::move(name), {n, 1, 1, 1}, TensorUse::vector, part, true});
}

void TensorTable::optional_matrix(TensorPart part, std::string name, int64_t n_in, int64_t n_out) {
  add({std::move(name), {n_in, n_out, 1, 1}, TensorUse::matrix, part, true});
}

void TensorTable::linear(TensorPart part, const std::string& name, int64_t n_in, int64_t n_out,
                         bool bias_required) {
  matrix(part, name + ".weight", n_in, n_out);
  add({name + ".bias", {n_out, 1, 1, 1}, TensorUse::vector, part, !bias_required});
}

void TensorTable::tied_head(int64_t n_embd, int64_t n_vocab) {
  optional_matrix(kOutputPart, "output.weight", n_embd, n_vocab);
}

Status TensorTable::check(const GgufFile& file) const {
  std::unordered_map<std::string_view, const TensorSpec*> known;
  for (const TensorSpec& spec : specs_) {
    known.emplace(spec.name, &spec);
    const TensorInfo* info = file.find_tensor(spec.name);
    if (info != nullptr) {
      TRY(check_tensor(file, spec, *info));
    } else if (!spec.optional) {
      return invalid_argument(
          fmt::format("{}: tensor '{}' is missing: shape wanted {}, shape found: none", file.path(),
                      spec.name, shape_text(spec.ne)),
          "the file is incomplete, or made for another version of the architecture");
    }
  }
  for (const TensorInfo& info : file.tensors()) {
    if (known.contains(info.name) || is_ignored(info.name)) continue;
    return file.tensor_error(
        info, fmt::format("is not one of this architecture's: shape wanted: none, shape found {}",
                          shape_text(info)));
  }
  return ok_status();
}

std::vector<StageTensor> TensorTable::select(const GgufFile& file, const LayerRange& range) const {
  const bool tied = range.has_head && file.find_tensor("output.weight") == nullptr;
  std::vector<StageTensor> selected;
  for (const TensorSpec& spec : specs_) {
    const TensorInfo* info = file.find_tensor(spec.name);
    if (info == nullptr) continue;
    if (in_range(spec.part, range)) {
      selected.push_back({info, spec.use, spec.part});
    } else if (tied && spec.name == "token_embd.weight") {
      selected.push_back({info, TensorUse::matrix, kOutputPart});
    }
  }
  std::sort(selected.begin(), selected.end(), [](const StageTensor& a, const StageTensor& b) {
    return std::pair(a.info->file_index, a.info->offset) <
           std::pair(b.info->file_index, b.info->offset);
  });
  return selected;
}

Result<TensorTable> make_tensor_table(const Hparams& hparams) {
  const Architecture* architecture = TRY(find_architecture(hparams.architecture));
  TensorTable table;
  architecture->declare_tensors(hparams, table);
  return table;
}

}  // namespace strata
