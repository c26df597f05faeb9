// A program that the dynamic loader cannot start: it is built without a path to its library.

int in_absent_library();

int main() { return in_absent_library(); }
