// What `strata ps --json` and `GET /cluster` say of a cluster.
//
// Threads: any.
#pragma once

#include <string>

#include "backends/remote/client_records.h"

namespace strata::serve {

// One JSON object, without a line's end.
std::string cluster_status_json(const remote::ClusterStatus& status);

}  // namespace strata::serve
