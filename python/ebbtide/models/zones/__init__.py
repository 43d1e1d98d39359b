"""What `ebbtide sim zones` shows: modes of snapshots and programs, on the memory-zone hardware of ICS'19."""
