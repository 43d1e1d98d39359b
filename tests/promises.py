"""Which promise each suite guards: a section of a page, by its heading, and the suites that fail when it is broken.

A suite is a file of tests; a pattern may name several. tests/style/test_suites.py fails when a suite has no promise, a
section has no suite or does not exist, and when a pattern names nothing.
"""

GUARDS: dict[str, list[str]] = {
    # --- what a program may rely on
    "README.md: Two commands": [
        "python/test_demo_*", "style/test_install.py", "python/test_googletest.py", "style/test_apart.py",
    ],
    "README.md: From Python": [
        "python/test_store.py", "python/test_store_machine.py", "python/test_arrays.py", "python/test_stubs.py",
        "python/test_wait.py", "python/test_process.py", "python/test_interrupts.py", "docs/test_examples.py",
        "python/test_containers.py", "python/test_kinds.py", "python/test_odd_values.py", "python/test_targets.py",
    ],
    "README.md: On a GPU": [
        "python/test_gpu_*", "python/test_device_option.py", "python/test_streams.py", "platform/*device*_test.cpp",
        "platform/cuda_*", "runtime/gpu_*", "runtime/several_devices_test.cpp", "platform/copy_bytes_test.cpp",
    ],
    "README.md: From C++ and C": [
        "capi/*.c", "runtime/contract_test.cpp",
        "runtime/refusals_test.cpp",
    ],
    "README.md: After a crash": ["runtime/failure_test.cpp", "docs/test_restart.py", "runtime/kept_restart_test.cpp"],
    "README.md: Tiers": ["config/*", "runtime/tiers_test.cpp", "storage/scratch_file_test.cpp", "transfer/*"],
    # --- stores that are kept
    "docs/durability.md: What is promised, fault by fault": [
        "storage/kept_*", "storage/storage_contract_test.cpp", "storage/unreadable_test.cpp", "runtime/kept_*",
        "runtime/verify_test.cpp", "python/test_durability*", "style/test_promises.py", "platform/power_loss_test.cpp",
        "platform/faulty_files_test.cpp", "platform/memory_files_test.cpp",
        "python/test_window.py",
    ],
    "docs/format.md: The directory": ["storage/store_directory_test.cpp", "platform/*files*_test.cpp"],
    "docs/format.md: Records": ["storage/record_test.cpp", "storage/hostile_test.cpp", "fuzz/*", "style/test_fuzz_corpus.py"],
    "docs/format.md: What a scan does": ["storage/scan_test.cpp", "storage/newest_test.cpp"],
    "docs/format.md: `index`": ["storage/index_test.cpp"],
    "docs/format.md: What a store looks like on the disk (format 1)": ["python/test_format.py", "storage/golden_test.cpp"],
    "docs/format.md: How it is written, and why a reader may trust it": [
        "storage/extent_allocator_test.cpp", "storage/space_keeper_test.cpp", "platform/ring_test.cpp",
    ],
    "docs/reliability.md: *": ["python/test_reliability.py", "reliability/*"],
    "docs/commands.md: How they end": [
        "python/test_commands_refusals.py", "python/test_commands_store.py",
        "python/test_commands_usage.py",
    ],
    "docs/commands.md: `ls`": ["python/test_commands_look.py", "storage/inspect_test.cpp"],
    "docs/commands.md: `verify`": ["python/test_commands_look.py"],
    "docs/commands.md: `export`": ["python/test_commands_export.py"],
    "docs/commands.md: `gc`": ["python/test_commands_gc.py", "storage/collect*"],
    # --- how it is made
    "ARCHITECTURE.md: The one decision": ["runtime/event_log_test.cpp", "sim/*", "python/test_planner_machine.py"],
    "CONTRIBUTING.md: Contributing": ["style/test_layout.py"],
    "ARCHITECTURE.md: Rooms": ["style/test_rooms.py", "style/test_suites.py"],
    "ARCHITECTURE.md: Threads": [
        "runtime/wait*_test.cpp", "runtime/no_threads_test.cpp", "runtime/*process_test.cpp", "runtime/pitfalls_test.cpp",
    ],
    "docs/lifecycle.md: The life cycle of a replica": ["policy/lifecycle_test.cpp", "docs/test_generated.py"],
    "docs/design/planner.md: What it knows": ["policy/links_test.cpp", "policy/version_set_test.cpp"],
    "docs/design/planner.md: Who gets which room": [
        "policy/arena_test.cpp", "policy/eviction_test.cpp", "policy/restore_order_test.cpp", "policy/planner_shrink_test.cpp",
    ],
    "docs/design/planner.md: What moves when": ["policy/planner_test.cpp", "policy/planner_links_test.cpp"],
    "docs/design/planner.md: Stores that keep": [
        "policy/planner_kept_test.cpp", "policy/retention_test.cpp",
        "policy/keeping_test.cpp",
    ],
    "docs/design/planner.md: No stall": ["policy/planner_random_test.cpp", "policy/planner_wait_test.cpp"],
    "docs/design/planner.md: What it costs": ["runtime/gpu_sizes_test.cpp", "runtime/long_use_test.cpp"],
    "docs/design/views.md: Ordinary memory: the program gets pages of its own": [
        "python/test_views.py", "platform/lent_pages_test.cpp",
    ],
    "docs/design/views.md: On a GPU: it cannot be prevented, and can be found out": [
        "runtime/commit_check_test.cpp", "platform/digest_test.cpp",
    ],
    "docs/design/streams.md: What a call promises": [
        "runtime/stream*_test.cpp", "policy/planner_stream_*", "python/test_gpu_order.py", "capi/streams.c",
    ],
    "docs/design/streams.md: How memory is handed back": ["python/test_gpu_memory.py", "runtime/gpu_freed_test.cpp"],
    "docs/design/arenas.md: What happens at open": ["memory/*", "platform/pages_test.cpp", "python/test_arena_option.py"],
    "docs/design/arenas.md: What is touched, and when": ["policy/growth_*", "policy/growth_test.cpp", "platform/processors_test.cpp"],
    "docs/design/arenas.md: One at a time on a node": ["platform/node_lock_test.cpp", "memory/node_turn_test.cpp"],
    "docs/design/arenas.md: What can go wrong": ["runtime/memory_*", "policy/growth_failures_test.cpp"],
    "docs/design/bound.md: How it is proved": ["sim/bound_test.cpp", "sim/exhaustive.cpp"],
    # --- what is measured
    "docs/bench.md: A shot": ["python/test_bench_*"],
    "docs/bench.md: Figures on a GPU": ["python/test_gpu_check.py"],
    "docs/doctor.md: The doctor": ["python/test_doctor.py", "platform/clock_test.cpp"],
}  # fmt: skip
