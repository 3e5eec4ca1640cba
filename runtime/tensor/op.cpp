#include "runtime/tensor/op.h"

namespace strata {

std::string_view op_name(Op op) {
  switch (op) {
    case Op::none:
      return "none";
    case Op::view:
      return "view";
    case Op::contiguous:
      return "contiguous";
    case Op::get_rows:
      return "get_rows";
    case Op::add:
      return "add";
    case Op::multiply:
      return "multiply";
    case Op::scale:
      return "scale";
    case Op::sum:
      return "sum";
    case Op::rms_norm:
      return "rms_norm";
    case Op::layer_norm:
      return "layer_norm";
    case Op::mul_mat:
      return "mul_mat";
    case Op::mul_mat_id:
      return "mul_mat_id";
    case Op::rope:
      return "rope";
    case Op::activate:
      return "activate";
    case Op::gated:
      return "gated";
    case Op::soft_cap:
      return "soft_cap";
    case Op::kv_write:
      return "kv_write";
    case Op::attention:
      return "attention";
    case Op::top_k:
      return "top_k";
    case Op::route_weights:
      return "route_weights";
    case Op::combine:
      return "combine";
  }
  return "unknown";
}

bool op_can_work_in_place(Op op) {
  switch (op) {
    case Op::add:
    case Op::multiply:
    case Op::scale:
    case Op::sum:
    case Op::rms_norm:
    case Op::layer_norm:
    case Op::rope:
    case Op::activate:
    case Op::gated:
    case Op::soft_cap:
      return true;
    default:
      return false;
  }
}

}  // namespace strata
