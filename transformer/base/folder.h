#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace transformer {

// Looking at a folder whose owner is somebody else. std::filesystem's own functions call a file that cannot be looked
// at "not there", and what is not there may be made: over somebody's files, or beside a disk that is not mounted.

/// Whether `error` says that there can be no such path: too long a name, a file where a folder would have to be, links
/// in a circle. Whoever named it made a mistake; what else a file system refuses is none.
bool is_no_path(const std::error_code& error);
/// Throws what was refused at `path`: Error where there can be no such path, Failure elsewhere.
[[noreturn]] void throw_refused(const std::filesystem::path& path, const std::string& what,
                                const std::error_code& error);

/// Whether there is anything at `path`: a link that leads nowhere is something. Throws as throw_refused where that
/// cannot be found out.
bool something_at(const std::filesystem::path& path);

/// What `path` leads to: regular, directory, or unknown for everything else; not_found where nothing is there, or can
/// be by too long a name. Throws as throw_refused where that cannot be found out.
std::filesystem::file_type kind_behind(const std::filesystem::path& path);
/// Whether a symbolic link is at `path`. Throws as kind_behind.
bool is_link(const std::filesystem::path& path);

/// What the folder holds, in the order of names; nothing where nothing is at its path. Throws Error where something
/// else than a folder is there (a link that leads nowhere, a file), and as throw_refused where the folder cannot be
/// read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// What `folder` holds besides what has the names `known`, and what killed processes left of such files (AtomicFile):
/// somebody else's. A folder in it that is not empty is, too, whatever its name. Throws as entries_of.
std::vector<std::filesystem::path> strange_entries(const std::filesystem::path& folder,
                                                   const std::set<std::string>& known);
/// Deletes those files, and the folder where it holds nothing else. Returns whether it is gone. Throws as entries_of,
/// and Failure where something cannot be deleted.
bool remove_known(const std::filesystem::path& folder, const std::set<std::string>& known);

/// Makes durable which names the folder holds: without it a crash of the machine could lose one that was just given.
/// File systems that cannot do it, and folders that may be written but not read, are left alone. Throws Failure.
void sync_folder(const std::filesystem::path& folder);

/// The folder that `path` lies in: "." where it is a name alone.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// The name of `path`, as part of the name of something that lies beside it: where the `more` bytes of the other part
/// would make that longer than names can be, the name's checksum.
std::string name_beside(const std::filesystem::path& path, size_t more);

/// Whether `path` is `folder` or lies in it, links followed as far as they lead. Throws as throw_refused.
bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace transformer
