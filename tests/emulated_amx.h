#pragma once

// AMX for processors that have none of it: its instructions as their manual describes them, on tiles in memory, which
// check the shapes they are given. Whoever includes this compiles kernels with them, for AVX-512 F, BW, DQ and VL.

#include <immintrin.h>

namespace {

struct Tile {
  int rows = 0, row_bytes = 0;
  unsigned char bytes[16][64];
};

thread_local Tile tiles[8];
thread_local bool configured = false;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

void load_configuration(const void* from) {
  unsigned char bytes[64];
  __builtin_memcpy(bytes, from, sizeof bytes);
  require(bytes[0] == 1 && bytes[1] == 0);
  for (int i = 2; i < 16; ++i) require(bytes[i] == 0);
  for (int i = 0; i < 16; ++i) {
    const int row_bytes = bytes[16 + 2 * i] + 256 * bytes[17 + 2 * i], rows = bytes[48 + i];
    if (i >= 8) {
      require(row_bytes == 0 && rows == 0);
      continue;
    }
    require(row_bytes >= 1 && row_bytes <= 64 && rows >= 1 && rows <= 16);
    tiles[i].rows = rows;
    tiles[i].row_bytes = row_bytes;
    __builtin_memset(tiles[i].bytes, 0, sizeof tiles[i].bytes);
  }
  configured = true;
}

void release() {
  configured = false;
}

void zero(int tile) {
  require(configured);
  __builtin_memset(tiles[tile].bytes, 0, sizeof tiles[tile].bytes);
}

void load_tile(int tile, const void* from, long stride) {
  require(configured);
  for (int row = 0; row < tiles[tile].rows; ++row) {
    __builtin_memcpy(tiles[tile].bytes[row], static_cast<const char*>(from) + row * stride,
                     static_cast<unsigned long>(tiles[tile].row_bytes));
  }
}

void store_tile(int tile, void* to, long stride) {
  require(configured);
  for (int row = 0; row < tiles[tile].rows; ++row) {
    __builtin_memcpy(static_cast<char*>(to) + row * stride, tiles[tile].bytes[row],
                     static_cast<unsigned long>(tiles[tile].row_bytes));
  }
}

template <class T>
T element(const Tile& tile, int row, int index) {
  T value;
  __builtin_memcpy(&value, tile.bytes[row] + index * static_cast<int>(sizeof value), sizeof value);
  return value;
}

// sum[m][n] += for all k: the terms of a[m][k] and b[k][n], groups of 4 bytes.
template <class Sum, class Terms>
void multiply(int sum, int a, int b, const Terms& terms) {
  require(configured && sum != a && sum != b && a != b);
  require(tiles[a].rows == tiles[sum].rows && tiles[b].row_bytes == tiles[sum].row_bytes &&
          tiles[a].row_bytes == 4 * tiles[b].rows);
  for (int m = 0; m < tiles[sum].rows; ++m) {
    for (int k = 0; k < tiles[b].rows; ++k) {
      for (int n = 0; n < tiles[sum].row_bytes / 4; ++n) {
        const Sum value = terms(element<Sum>(tiles[sum], m, n), m, k, n);
        __builtin_memcpy(tiles[sum].bytes[m] + 4 * n, &value, sizeof value);
      }
    }
  }
}

[[maybe_unused]] void multiply_int8(int sum, int a, int b) {
  multiply<int>(sum, a, b, [&](int value, int m, int k, int n) {
    for (int i = 0; i < 4; ++i) {
      value += element<unsigned char>(tiles[a], m, 4 * k + i) * element<signed char>(tiles[b], k, 4 * n + i);
    }
    return value;
  });
}

float widened_bf16(unsigned short bits) {
  const unsigned whole = static_cast<unsigned>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &whole, sizeof value);
  return value;
}

void multiply_bf16(int sum, int a, int b) {
  multiply<float>(sum, a, b, [&](float value, int m, int k, int n) {
    for (int i = 0; i < 2; ++i) {
      value += widened_bf16(element<unsigned short>(tiles[a], m, 2 * k + i)) *
               widened_bf16(element<unsigned short>(tiles[b], k, 2 * n + i));
    }
    return value;
  });
}

}  // namespace

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#define _tile_loadconfig load_configuration
#define _tile_release release
#define _tile_zero zero
#define _tile_loadd(tile, from, stride) load_tile(tile, from, stride)
#define _tile_stored(tile, to, stride) store_tile(tile, to, static_cast<long>(stride))
#define _tile_dpbusd multiply_int8
#define _tile_dpbf16ps multiply_bf16
