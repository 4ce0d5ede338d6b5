#include "transformer/training/profile.h"

#include <torch/types.h>

#include "support.h"
#include "transformer/base/error.h"
#include "transformer/model/transformer.h"
#include "transformer/training/adam.h"
#include "transformer/training/label_smoothing_loss.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

Transformer small_model() {
  ModelSettings settings;
  settings.d_model = 16;
  settings.d_ff = 36;
  settings.heads = 4;
  settings.encoder_layers = settings.decoder_layers = 1;
  settings.vocabulary_size = 23;
  return Transformer(settings);
}

Adam optimizer_of(const Transformer& model) {
  std::vector<std::pair<std::string, Tensor>> parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  return Adam(parameters, {});
}

// A step as the trainer makes one, its parts named.
void training_step(Transformer& model, Adam& adam) {
  const auto source = torch::randint(1, 23, {3, 7}, torch::kLong), target = torch::randint(1, 23, {3, 5}, torch::kLong);
  adam.clear_gradients();
  Tensor hidden, loss;
  {
    const ProfiledRange range("forward");
    hidden = model->decode(target, model->encode(source)).values;
  }
  {
    const ProfiledRange range("loss");
    loss = projected_label_smoothing_loss(hidden, model->projection_weight(), target, 0.1, 0, torch::kFloat).loss;
  }
  {
    const ProfiledRange range("backward");
    loss.backward();
  }
  const ProfiledRange range("optimizer");
  adam.step(1e-3);
}

size_t files_in(const TemporaryDirectory& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory.path()), {}));
}

}  // namespace

TEST_CASE("a profile holds the operators of the steps between start and stop, inside their named ranges") {
  TemporaryDirectory directory;
  auto model = small_model();
  auto adam = optimizer_of(model);
  training_step(model, adam);
  torch::erfinv(torch::rand({4}));  // before the profile, and found nowhere else
  Profile profile(directory / "profile.json", torch::kCPU);
  CHECK_FALSE(profile.running());
  profile.start();
  CHECK(profile.running());
  for (int step = 0; step < 2; ++step) training_step(model, adam);
  profile.stop();
  CHECK_FALSE(profile.running());
  torch::digamma(torch::rand({4}));  // after it
  CHECK(files_in(directory) == 1);   // no temporary file is left
  run_reference("profile_check.py", fmt::format("'{}' 2", (directory / "profile.json").string()));
}

TEST_CASE("a profile replaces an older one, and one that is never stopped writes nothing") {
  TemporaryDirectory directory;
  const auto file = directory / "profile.json";
  write_file(file, "older");
  {
    Profile dropped(file, torch::kCPU);
    dropped.start();
    torch::ones({2}).exp();
  }
  CHECK(read_file(file) == "older");
  CHECK(files_in(directory) == 1);

  auto model = small_model();
  auto adam = optimizer_of(model);
  Profile profile(file, torch::kCPU);
  profile.start();
  training_step(model, adam);
  profile.stop();
  run_reference("profile_check.py", fmt::format("'{}' 1", file.string()));
}

TEST_CASE("only one profile is recorded at a time, and one that cannot be written is named") {
  TemporaryDirectory directory;
  const auto file = directory / "missing" / "profile.json";
  Profile profile(file, torch::kCPU), other(directory / "other.json", torch::kCPU);
  CHECK_THROWS_AS(profile.stop(), Failure);
  profile.start();
  CHECK_THROWS_WITH(profile.start(), Contains("another profile"));
  CHECK_THROWS_WITH(other.start(), Contains("other.json") && Contains("another profile"));
  torch::ones({2}).exp();
  CHECK_THROWS_WITH(profile.stop(), Contains("cannot write " + file.string()) && Contains("No such file"));
  CHECK_FALSE(profile.running());
  other.start();
  other.stop();
  CHECK(files_in(directory) == 1);
}

TEST_CASE("a named range changes nothing where no profile is recorded") {
  const auto x = torch::randn({3, 3}, torch::requires_grad());
  const auto plain = x.exp().sum();
  const ProfiledRange outer("outer"), inner("inner");
  CHECK(torch::equal(x.exp().sum(), plain));
}
