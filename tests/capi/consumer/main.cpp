#include <ebbtide/store.hpp>
#include <iostream>

int main() {
  try {
    ebb::parse_bytes("disk", "4 potatoes").value();
  } catch (const ebb::BadResult& bad) {  // thrown here, its class shared with the library
    std::cout << ebb::name_of(bad.error().code) << ": " << bad.what() << "\n";
    ebb::Options options{.directory = "/nowhere/at/all", .device_cache = 0, .host_cache = 0, .disk = 0};
    return ebb::Store::open(options) ? 1 : 0;  // a store without any tier is refused
  }
  return 1;
}
