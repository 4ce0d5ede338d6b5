#include "transformer/base/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "catch.h"

using namespace transformer;

namespace {

size_t count(const std::string& text, char character) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), character));
}

}  // namespace

TEST_CASE("a line of progress has a bar, speed and time left, and fits into the terminal") {
  const WorkProgress first{.what = "training", .done = 100, .total = 500, .unit = "steps", .share = 0.2};
  auto work = first;
  work.done = 200;
  work.share = 0.4;
  work.detail = "loss 3.21";
  // 100 steps in 50 s: two a second, and three times as many are to come.
  const std::string figures = "  40 %  200/500 steps, 2.0 steps/s, 2:30 left, loss 3.21";
  const auto wide = progress_text(work, first, 50, 200);
  CHECK(wide == "training [" + std::string(16, '#') + std::string(24, '.') + "]" + figures);
  const auto narrower = progress_text(work, first, 50, 80);
  CHECK(narrower.size() == 79);
  CHECK(narrower.ends_with("]" + figures));
  CHECK(count(narrower, '#') == 4);
  CHECK(count(narrower, '.') - count(figures, '.') == 8);
  // The bar goes before figures do, and details before the bar.
  const auto without = figures.substr(0, figures.find(", loss"));
  CHECK(progress_text(work, first, 50, 70) == "training [####......]" + without);
  CHECK(progress_text(work, first, 50, 60) == "training" + without);
  CHECK(progress_text(work, first, 50, 20) == ("training" + without).substr(0, 19));
  work.detail = "loss 3.21, 17147 tokens/s";
  CHECK(progress_text(work, first, 50, 80) == "training [####......]" + figures);
  CHECK(progress_text(work, first, 50, 1).empty());
  CHECK(progress_text(work, first, 50, 0).empty());
}

TEST_CASE("a line of progress says no more than is known") {
  const WorkProgress learning{.what = "learning 8000 word pieces"};
  CHECK(progress_text(learning, learning, 12, 80) == "learning 8000 word pieces  0:12");
  CHECK(progress_text(learning, learning, 3600 + 62, 80) == "learning 8000 word pieces  1:01:02");

  const WorkProgress begins{.what = "translate", .unit = "lines"};
  auto lines = begins;
  lines.done = 30;
  CHECK(progress_text(lines, begins, 60, 80) == "translate  30 lines, 0.50 lines/s, 1:00");
  // Nothing follows from no time.
  lines.share = 0.5;
  const auto soon = progress_text(lines, begins, 0, 80);
  CHECK(soon.find("left") == std::string::npos);
  CHECK(soon.find("/s") == std::string::npos);
  CHECK(soon.find(" 50 %") != std::string::npos);

  WorkProgress sweep{.what = "sweep", .done = 1, .total = 3, .unit = "runs", .share = 0.5, .seconds_left = 90.0};
  CHECK(progress_text(sweep, sweep, 10, 80).find("50 %  1/3 runs, 1:30 left") != std::string::npos);
  sweep.share = 1;
  CHECK(progress_text(sweep, sweep, 10, 80).find("100 %  1/3 runs, 0:10") != std::string::npos);

  // What cannot be is drawn as what can.
  for (const double share : {-1.0, 2.0, 1e300}) {
    lines.share = share;
    CHECK(progress_text(lines, begins, 60, 80).size() <= 79);
  }
}

TEST_CASE("where there is no terminal there is no line of progress") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  {
    ProgressLine line(ends[1]);
    CHECK_FALSE(line.live());
    line.show({.what = "training", .done = 1, .unit = "steps", .share = 0.5});
    bool called = false;
    line.above([&] { called = true; });
    CHECK(called);
    line.leave();
    line.clear();
  }
  close(ends[1]);
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 0);
  close(ends[0]);
}
