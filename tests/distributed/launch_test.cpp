#include "transformer/training/distributed/launch.h"

#include <unistd.h>

#include "error_of.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/training/distributed/error_file.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;

namespace {

using Launcher = Launch::Launcher;

Environment torchrun_environment() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "6"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "2"},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", "abc"},
          {"TORCHELASTIC_RESTART_COUNT", "3"}};
}

Environment srun_environment() {
  return {{"SLURM_JOB_ID", "1234"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_PROCID", "6"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
          {"SLURM_NTASKS_PER_NODE", "2"},
          {"SLURM_JOB_NODELIST", "gpu[001-009]"},
          {"SLURM_STEP_NODELIST", "gpu[003-006]"}};
}

Environment mpirun_environment() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"PMIX_NAMESPACE", "prterun-host-77@1"}};
}

Environment without(Environment environment, const std::string& name) {
  REQUIRE(environment.erase(name) == 1);
  return environment;
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

}  // namespace

TEST_CASE("A process that nobody launched is alone") {
  const auto launch = read_launch({{"HOME", "/root"}, {"MASTER_ADDR", "left over"}, {"SLURM_CONF", "/etc/slurm"}});
  CHECK_FALSE(launch.distributed());
  CHECK(launch.launcher == Launcher::none);
  CHECK(launch.rank == 0);
  CHECK(launch.world_size == 1);
  CHECK(launch.address.empty());
}

TEST_CASE("torchrun's environment") {
  const auto launch = read_launch(torchrun_environment());
  CHECK(launch.launcher == Launcher::torchrun);
  CHECK(launch.rank == 5);
  CHECK(launch.world_size == 6);
  CHECK(launch.local_rank == 1);
  CHECK(launch.local_world_size == 2);
  CHECK(launch.address == "node1");
  CHECK(launch.port == 29500);
  CHECK(launch.agent_store);
  CHECK(launch.store_outlives_attempts());
  // Agents count restarts each by itself.
  CHECK(launch.run == "abc");
  CHECK(read_launch(with(torchrun_environment(), {{"TORCHELASTIC_RESTART_COUNT", "0"}})).run == launch.run);
  CHECK(launch.distributed());
  CHECK_FALSE(launch.on_one_machine());

  // Another launcher of the same convention, whose rank 0 holds the store.
  auto plain = torchrun_environment();
  for (const char* name : {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    plain = without(plain, name);
  }
  CHECK_FALSE(read_launch(plain).agent_store);
  CHECK_FALSE(read_launch(plain).store_outlives_attempts());
  // run_processes starts none of its copies again.
  CHECK_FALSE(read_launch(with(torchrun_environment(), {{processes_variable, "6"}})).store_outlives_attempts());
  // It wins over the Slurm job that it runs in.
  CHECK(read_launch(with(srun_environment(), torchrun_environment())).launcher == Launcher::torchrun);
}

TEST_CASE("An agent that starts processes again has a name of its own") {
  auto attempt = [](const char* file, const char* count) {
    return with(torchrun_environment(), {{"TORCHELASTIC_ERROR_FILE", file}, {"TORCHELASTIC_RESTART_COUNT", count}});
  };
  const auto name = agent_name(attempt("/tmp/torchelastic_x/abc_k/attempt_0/1/error.json", "0"));
  CHECK(name == "/tmp/torchelastic_x/abc_k");
  CHECK(agent_name(attempt("/tmp/torchelastic_x/abc_k/attempt_2/0/error.json", "2")) == name);
  // One that keeps no logs is this process's parent.
  const auto parent = agent_name(torchrun_environment());
  CHECK_THAT(parent, Contains(fmt::format("/{}/", getppid())));
  CHECK_FALSE(parent.ends_with("/"));
  CHECK(agent_name(attempt("", "7")) == parent);
  CHECK(agent_name(attempt("/somewhere/error.json", "7")) == parent);
  // Others start no process again.
  CHECK(agent_name({}) == "");
  CHECK(agent_name(srun_environment()) == "");
  CHECK(agent_name(without(torchrun_environment(), "TORCHELASTIC_RESTART_COUNT")) == "");
  CHECK(agent_name(with(torchrun_environment(), {{processes_variable, "6"}})) == "");
}

TEST_CASE("A half-set environment is an error that names the variable") {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    CAPTURE(name);
    const auto text = error_of([&] { read_launch(without(torchrun_environment(), name)); });
    CHECK(text.starts_with(fmt::format("{}: is missing", name)));
    CHECK_THAT(text, Contains("torchrun"));
  }
  CHECK(error_of([] { read_launch({{"RANK", "0"}}); }).starts_with("WORLD_SIZE: is missing"));
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    CAPTURE(name);
    CHECK(error_of([&] {
            read_launch(without(mpirun_environment(), name));
          }).starts_with(fmt::format("{}: is missing", name)));
  }
  for (const char* name : {"SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID"}) {
    CAPTURE(name);
    CHECK(error_of([&] {
            read_launch(without(srun_environment(), name));
          }).starts_with(fmt::format("{}: is missing", name)));
  }
}

TEST_CASE("Numbers that make no sense are errors that name the variable") {
  const std::vector<std::pair<std::string, std::string>> wrong{{"RANK", "6"},        {"RANK", "-1"},
                                                               {"RANK", "x"},        {"RANK", ""},
                                                               {"RANK", "1 "},       {"WORLD_SIZE", "0"},
                                                               {"WORLD_SIZE", "5"},  {"LOCAL_RANK", "2"},
                                                               {"LOCAL_RANK", "?"},  {"LOCAL_WORLD_SIZE", "7"},
                                                               {"MASTER_PORT", "0"}, {"MASTER_PORT", "65536"},
                                                               {"MASTER_ADDR", ""}};
  for (const auto& [name, value] : wrong) {
    CAPTURE(name, value);
    // Too small a world makes the rank wrong.
    const std::string named = name == "WORLD_SIZE" && value == "5" ? "RANK" : name;
    const auto environment = with(torchrun_environment(), {{name, value}});
    CHECK(error_of([&] { read_launch(environment); }).starts_with(named + ": is "));
  }
  CHECK(error_of([] {
          read_launch(with(torchrun_environment(), {{"RANK", "6"}}));
        }) == "RANK: is '6', expected a whole number from 0 to 5");
}

TEST_CASE("srun's environment") {
  const auto launch = read_launch(srun_environment());
  CHECK(launch.launcher == Launcher::srun);
  CHECK(launch.rank == 6);
  CHECK(launch.world_size == 7);
  CHECK(launch.local_rank == 0);
  CHECK(launch.local_world_size == 1);
  CHECK(launch.address == "gpu003");
  CHECK(launch.port >= 20000);
  CHECK(launch.port < 32768);
  CHECK_FALSE(launch.agent_store);

  SECTION("all ranks of a step find the same port, the next step another") {
    const auto other = with(srun_environment(), {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}});
    CHECK(read_launch(other).port == launch.port);
    CHECK(read_launch(other).run == launch.run);
    CHECK(read_launch(other).local_world_size == 2);
    CHECK(read_launch(with(other, {{"SLURM_STEP_ID", "3"}})).port != launch.port);
  }
  SECTION("the meeting place can be set") {
    const auto set = read_launch(with(srun_environment(), {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "5000"}}));
    CHECK(set.address == "10.0.0.1");
    CHECK(set.port == 5000);
  }
  SECTION("an allocation without srun is no launch") {
    const auto batch = with(without(srun_environment(), "SLURM_STEP_ID"), {{"SLURM_PROCID", "0"}});
    CHECK_FALSE(read_launch(batch).distributed());
    CHECK(read_launch(batch).launcher == Launcher::none);
    // The numbers of the batch script's and of an interactive shell's own step.
    for (const char* step : {"4294967291", "4294967290"}) {
      CHECK_FALSE(read_launch(with(batch, {{"SLURM_STEP_ID", step}})).distributed());
    }
  }
  SECTION("one task is not distributed, in however large an allocation") {
    const auto one = read_launch(with(srun_environment(), {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}));
    CHECK_FALSE(one.distributed());
    CHECK_FALSE(read_launch({{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}).distributed());
  }
  SECTION("without the tasks of each machine, their number on every one") {
    const auto older = with(without(srun_environment(), "SLURM_STEP_TASKS_PER_NODE"), {{"SLURM_LOCALID", "1"}});
    CHECK(read_launch(older).local_world_size == 2);
    CHECK(error_of([&] {
            read_launch(without(older, "SLURM_NTASKS_PER_NODE"));
          }).starts_with("SLURM_NTASKS_PER_NODE: is missing"));
  }
  SECTION("contradictions") {
    CHECK(error_of([] {
            read_launch(with(srun_environment(), {{"SLURM_PROCID", "7"}}));
          }) == "SLURM_PROCID: is '7', expected a whole number from 0 to 6");
    CHECK(error_of([] {
            read_launch(with(srun_environment(), {{"SLURM_NODEID", "4"}}));
          }).starts_with("SLURM_STEP_TASKS_PER_NODE: "));
    CHECK(error_of([] {
            read_launch(with(srun_environment(), {{"SLURM_STEP_NODELIST", "gpu["}}));
          }).starts_with("SLURM_STEP_NODELIST: "));
  }
}

TEST_CASE("Open MPI's environment") {
  const auto launch = read_launch(mpirun_environment());
  CHECK(launch.launcher == Launcher::mpirun);
  CHECK(launch.rank == 1);
  CHECK(launch.world_size == 2);
  CHECK(launch.address == "127.0.0.1");
  CHECK(read_launch(with(mpirun_environment(), {{"OMPI_COMM_WORLD_RANK", "0"}})).port == launch.port);
  CHECK(read_launch(with(mpirun_environment(), {{"PMIX_NAMESPACE", "prterun-host-78@1"}})).port != launch.port);

  // On several machines, nobody but the user knows where rank 0 is.
  const auto two =
      with(mpirun_environment(), {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  CHECK(error_of([&] { read_launch(two); }).starts_with("MASTER_ADDR: is missing"));
  CHECK(error_of([&] { read_launch(with(two, {{"MASTER_ADDR", "a"}})); }).starts_with("MASTER_PORT: is missing"));
  CHECK(read_launch(with(two, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "77"}})).address == "a");
}

TEST_CASE("The first of Slurm's machines") {
  const std::vector<std::pair<std::string, std::string>> lists{{"gpu1", "gpu1"},
                                                               {"gpu1,gpu2", "gpu1"},
                                                               {"gpu[003-006,9],login", "gpu003"},
                                                               {"gpu[9,11]", "gpu9"},
                                                               {"rack[2-4]node[07,09].example", "rack2node07.example"},
                                                               {"login,gpu[1-2]", "login"},
                                                               {"a-b[5]-c", "a-b5-c"}};
  for (const auto& [list, host] : lists) {
    CAPTURE(list);
    CHECK(first_host(list, "NODES") == host);
  }
  for (const char* list : {"", "gpu[", "gpu[]", ",a"}) {
    CAPTURE(list);
    CHECK(error_of([&] { first_host(list, "NODES"); }).starts_with("NODES: "));
  }
}

TEST_CASE("Every process on a machine takes a GPU of its own") {
  Launch launch;
  launch.rank = 5;
  launch.world_size = 8;
  launch.local_rank = 1;
  launch.local_world_size = 4;
  CHECK(local_device("cuda", launch, 4) == "cuda:1");
  CHECK(local_device("cuda", launch, 1) == "cuda:0");
  CHECK(local_device("cuda:3", launch, 4) == "cuda:3");
  CHECK(local_device("cpu", launch, 0) == "cpu");
  CHECK(local_device("cuda", {}, 4) == "cuda");
  launch.local_rank = 3;
  CHECK_THAT(error_of([&] { local_device("cuda", launch, 2); }), Contains("4 processes, but 2 GPUs"));
}

TEST_CASE("torchrun's settings without torchrun are explained; a single process needs none") {
  for (const char* name : {"PET_NNODES", "PET_NPROC_PER_NODE"}) {
    const auto message = error_of([&] { read_launch({{name, "2:4"}, {"PET_RDZV_BACKEND", "c10d"}}); });
    CHECK(message == std::string(name) +
                         ": is '2:4', a setting of torchrun's, but torchrun did not start this process; start it by "
                         "torchrun --no-python, which reads it, or unset it");
    CHECK_FALSE(read_launch({{name, "1"}}).distributed());
    // torchrun leaves them to its processes.
    CHECK(read_launch(with(torchrun_environment(), {{name, "2:4"}})).world_size == 6);
  }
}

TEST_CASE("the agent of a launcher is told what a process fails of, unless it is another's failure") {
  TemporaryDirectory folder;
  const auto file = folder / "error.json";
  setenv("TORCHELASTIC_ERROR_FILE", file.c_str(), 1);
  CHECK_THROWS_AS(with_error_file([] { throw OtherRankFailure("rank 0", "stopped, because of rank 1"); }), Failure);
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_NOTHROW(with_error_file([] {}));
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_THROWS_AS(with_error_file([] { throw Error("training.steps", "is \"many\""); }), Error);
  CHECK_THAT(read_file(file), StartsWith(R"({"message":{"message":"training.steps: is \"many\"",)"));
  setenv("TORCHELASTIC_ERROR_FILE", (folder / "nowhere/error.json").c_str(), 1);
  CHECK_THROWS_AS(with_error_file([] { throw Failure("disk", "full"); }), Failure);
  unsetenv("TORCHELASTIC_ERROR_FILE");
  CHECK_THROWS_AS(with_error_file([] { throw Failure("disk", "full"); }), Failure);
  CHECK(error_file_text("a\xffz", 12) ==
        "{\"message\":{\"message\":\"a\xef\xbf\xbdz\",\"extraInfo\":{\"timestamp\":\"12\"}}}\n");
}
