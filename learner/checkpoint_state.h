#pragma once

// state.json of a checkpoint: all of CheckpointState but the arrays of parameters. Internal to learner/.

#include <map>
#include <string>
#include <string_view>

#include "learner/checkpoint.h"

namespace gristmill {

using FileHashes = std::map<std::string, std::string>;  // by file name

std::string checkpoint_state_text(const CheckpointState& state, const FileHashes& hashes);

// Throws CheckpointError: not JSON, a key missing, unknown, repeated or of another type, or a checksum
// that differs. `origin` stands for the file in messages.
CheckpointState parse_checkpoint_state(std::string_view text, const std::string& origin, FileHashes& hashes);

}  // namespace gristmill
