// The shared library that is not found: see needs_absent_library.cc.

__attribute__((visibility("default"))) int in_absent_library();
int in_absent_library() { return 0; }
