#include "core/field_spec.h"
