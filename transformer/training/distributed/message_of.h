#pragma once

#include <exception>
#include <string>

namespace transformer {

/// What an exception says, without the pages of context that LibTorch appends.
std::string message_of(const std::exception& error);

}  // namespace transformer
