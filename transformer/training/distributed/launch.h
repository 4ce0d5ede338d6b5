#pragma once

#include <map>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

/// What a rank ends with because another one failed, died or hung: the message names that one, whose own is the cause.
class OtherRankFailure : public Failure {
 public:
  using Failure::Failure;
};

/// Where processes of one machine meet.
inline constexpr const char* loopback = "127.0.0.1";

/// Variables of an environment, by name.
using Environment = std::map<std::string, std::string>;

/// Those of this process.
Environment process_environment();

/// Which of a run's processes this one is, and where they meet.
struct Launch {
  /// What started the processes.
  enum class Launcher {
    none,       // a single process
    processes,  // run_processes
    torchrun,   // torchrun, or who sets its variables
    mpirun,     // Open MPI
    srun        // Slurm
  };

  Launcher launcher = Launcher::none;  // whose variables were read
  int rank = 0;                        // among all processes
  int world_size = 1;                  // how many there are
  int local_rank = 0;                  // among those on this machine
  int local_world_size = 1;            // how many those are
  std::string address;                 // where the store is that the processes meet at; empty: one process, no store
  int port = 0;                        // of the store
  bool agent_store = false;            // the launcher holds the store; otherwise rank 0 does
  std::string run;                     // tells runs that share a store apart

  /// Whether there is anybody to talk to.
  bool distributed() const { return world_size > 1; }
  /// All processes are on this machine.
  bool on_one_machine() const { return local_world_size == world_size; }
  /// Whether the store is older than the processes, which the launcher starts again where one fails: it may hold what
  /// an earlier attempt has left there.
  bool store_outlives_attempts() const { return agent_store && launcher == Launcher::torchrun; }
};

/// Set for the copies that run_processes starts, which look like torchrun's otherwise.
inline constexpr const char* processes_variable = "TRANSFORMER_PROCESSES";

/// "torchrun", as it is typed.
std::string launcher_name(Launch::Launcher launcher);

/// Reads what the launcher left in the environment. The first that is there counts:
///
/// - `torchrun --no-python train ..`, `train --processes N`, or any other launcher that sets RANK, WORLD_SIZE,
///   LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT: all of them are needed as soon as one of the first
///   four is there.
/// - `mpirun train ..` (Open MPI): OMPI_COMM_WORLD_RANK and its siblings, and MASTER_ADDR and MASTER_PORT where the
///   processes are on several machines.
/// - `srun train ..`: SLURM_PROCID and its siblings. The meeting place is the step's first machine and a port that
///   follows from the job's number; MASTER_ADDR and MASTER_PORT override them. An allocation alone (sbatch or salloc
///   without srun) is no launcher, however many tasks it was made for.
///
/// Without any, or for a single process, the result is not distributed().
/// Throws Error naming the variable that is missing, is no number, or contradicts another; and where torchrun's own
/// settings are in the environment (PET_NNODES, PET_NPROC_PER_NODE), as Kubernetes' training operator puts them, but
/// not torchrun: every process would train a model by itself.
Launch read_launch(const Environment& environment);

/// Who starts this process again, with the same arguments, where it or another of its run fails: torchrun's agent on
/// this machine, by a name that is its own for as long as it lives and that no other has. Empty: nobody does.
std::string agent_name(const Environment& environment);

/// The first machine of a list as Slurm writes it: "gpu[003-006,9],login" -> "gpu003". Throws Error (naming `where`)
/// for a list that cannot be read.
std::string first_host(const std::string& list, const std::string& where);

/// The device of this process where every process is told the same one: "cuda" becomes "cuda:LOCAL_RANK", unless this
/// process is shown one GPU only (as Slurm may do); everything else stays. Throws Error when there are fewer of the
/// `gpus` this process sees than processes on this machine.
std::string local_device(const std::string& device, const Launch& launch, int gpus);

}  // namespace transformer
