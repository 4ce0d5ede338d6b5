#pragma once

// Catch2, whichever is here: Debian 12 has version 2, later systems have 3, where the matchers of texts are called otherwise.
#if __has_include(<catch2/catch_all.hpp>)
#include <string>

#include <catch2/catch_all.hpp>

using Catch::Approx;
inline auto Contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
#else
#include <catch2/catch.hpp>

using Catch::Matchers::Contains;
#endif

using Catch::Matchers::EndsWith;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;
