#pragma once

// A part as a forked process has it: the object inherited from the fork, or an attachment of its own, as an
// independent process would have.

#include <chrono>
#include <memory>

#include "core/deadline.h"

namespace gristmill::campaign {

template <class PartType>
class Attached {
 public:
  Attached(PartType& inherited, bool own)
      : own_(own ? PartType::attach(inherited.name(), Deadline::in(std::chrono::seconds(10))) : nullptr),
        it_(own_ ? *own_ : inherited) {}

  PartType& operator*() const { return it_; }

 private:
  std::unique_ptr<PartType> own_;
  PartType& it_;
};

}  // namespace gristmill::campaign
