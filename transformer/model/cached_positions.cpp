#include "transformer/model/cached_positions.h"

#include <algorithm>

namespace transformer {

using torch::Tensor;

namespace {

constexpr int64_t first_room = 16;  // positions

// A tensor of the shape of `like`, but for the sizes given.
Tensor room_like(const Tensor& like, int64_t rows, int64_t positions) {
  return torch::empty({rows, like.size(1), positions, like.size(3)}, like.options());
}

}  // namespace

void CachedPositions::append(const Tensor& newest) {
  const int64_t room = room_.defined() ? room_.size(2) : 0;
  if (next_ == room && room > 0 && room == limit_) next_ = 0;  // over the oldest
  if (next_ == room) {
    const int64_t wanted = std::max(first_room, 2 * room);
    const auto larger = room_like(newest, newest.size(0), limit_ > 0 ? std::min(limit_, wanted) : wanted);
    if (room > 0) larger.narrow(2, 0, room).copy_(room_.narrow(0, 0, newest.size(0)));
    room_ = larger;
  }
  rows_ = newest.size(0);
  room_.narrow(0, 0, rows_).narrow(2, next_, 1).copy_(newest);
  ++next_;
  size_ = std::max(size_, next_);
}

Tensor CachedPositions::positions() const {
  return room_.defined() ? room_.narrow(0, 0, rows_).narrow(2, 0, size_) : Tensor();
}

int64_t CachedPositions::bytes() const {
  return room_.defined() ? static_cast<int64_t>(room_.nbytes()) : 0;
}

void CachedPositions::reorder(const Tensor& rows, Tensor& spare) {
  if (!room_.defined()) return;
  const int64_t count = rows.size(0);
  const bool fits = spare.defined() && spare.size(0) >= count && spare.sizes().slice(1) == room_.sizes().slice(1) &&
                    spare.options().type_equal(room_.options());
  auto moved = fits ? spare : room_like(room_, std::max(count, room_.size(0)), room_.size(2));
  auto into = moved.narrow(0, 0, count).narrow(2, 0, size_);
  at::index_select_out(into, positions(), 0, rows);
  spare = room_;
  room_ = moved;
  rows_ = count;
}

}  // namespace transformer
