"""Which promise each suite guards: a section of a page, by its heading, and the suites that fail when it is broken.

A suite is a file of tests; a pattern may name several. tests/style/test_suites.py fails when a suite has no promise, a
section has no suite or does not exist, and when a pattern names nothing.
"""

GUARDS: dict[str, list[str]] = {
    # --- what a program may rely on
    "README.md: Two commands": [
        "python/test_demo_*", "style/test_install.py", "python/test_googletest.py", "python/test_run_tests.py",
        "style/test_apart.py",
    ],
    "README.md: From Python": [
        "python/test_store.py", "python/test_store_machine.py", "python/test_arrays.py", "python/test_stubs.py",
        "python/test_wait.py", "python/test_process.py", "python/test_interrupts.py", "docs/test_examples.py",
        "python/test_containers.py", "python/test_kinds.py", "python/test_odd_values.py", "python/test_targets.py",
        "python/test_version_containers.py", "python/test_plots.py",
    ],
    "README.md: On a GPU": [
        "python/test_gpu_*", "python/test_device_option.py", "python/test_streams.py", "device/*device*_test.cpp",
        "device/cuda_*", "store/gpu_*", "store/several_devices_test.cpp", "device/copy_bytes_test.cpp",
    ],
    "README.md: From C++ and C": [
        "capi/*.c", "store/contract_test.cpp",
        "store/refusals_test.cpp",
    ],
    "README.md: After a crash": ["store/failure_test.cpp", "docs/test_restart.py", "store/kept_restart_test.cpp"],
    "README.md: In PyTorch": ["python/test_import.py"],
    "docs/torch.md: A training run that may be killed": [
        "python/test_torch_manager.py", "python/test_torch_state.py", "python/test_torch_lazy.py", "python/test_torch_described.py",
    ],
    "docs/torch.md: Activations in a store": ["python/test_torch_offload.py"],
    "docs/torch.md: torch.distributed.checkpoint": ["python/test_torch_distributed.py"],
    "docs/jax.md: The gradient of many steps": ["python/test_jax_adjoint.py"],
    "docs/jax.md: A run that may be killed": ["python/test_jax_manager.py"],
    "docs/recompute-or-store.md: The rule": ["python/test_recompute_or_store.py"],
    "docs/seismic.md: An image with deepwave": ["python/test_seismic_deepwave.py"],
    "docs/seismic.md: Checkpoints of pyrevolve and Devito": ["python/test_seismic_devito.py"],
    "README.md: Tiers": [
        "options/*", "base/*", "store/tiers_test.cpp", "storage/scratch_file_test.cpp", "transfer/*", "python/test_memory.py",
    ],
    "docs/files.md: What is promised": ["files/*_test.cpp", "python/test_files.py"],
    "docs/snapshots.md: Arrays on a GPU": [
        "snapshots/gpu_snapshots_test.cpp", "device/zones_test.cpp", "python/test_gpu_snapshots.py",
    ],
    "docs/snapshots.md: Memory that moves": ["python/test_snapshots_moved.py"],
    "docs/snapshots.md: How writes are found": ["snapshots/*_test.cpp", "planner/track_choice_test.cpp", "python/test_snapshots.py"],
    "docs/hpc.md: A job that must make way": [
        "store/suspend_test.cpp", "os/signal_wake_test.cpp", "python/test_suspend.py",
    ],
    # --- persistent stores
    "docs/durability.md: What is promised, fault by fault": [
        "storage/segment_store_*", "storage/storage_contract_test.cpp", "storage/unreadable_test.cpp", "store/kept_*",
        "store/verify_test.cpp", "store/refused_memory_test.cpp", "store/refused_calls_test.cpp", "python/test_refused_memory.py", "os/memory_guard_test.cpp", "python/test_durability*", "style/test_promises.py", "os/power_loss_test.cpp",
        "os/faulty_files_test.cpp", "os/memory_files_test.cpp",
        "python/test_window.py",
    ],
    "docs/format.md: The directory": ["storage/store_directory_test.cpp", "os/*files*_test.cpp"],
    "docs/format.md: Records": ["storage/record_test.cpp", "storage/hostile_test.cpp", "fuzz/*", "style/test_fuzz_corpus.py"],
    "docs/format.md: What a scan does": ["storage/scan_test.cpp", "storage/newest_test.cpp"],
    "docs/format.md: `index`": ["storage/index_test.cpp"],
    "docs/format.md: What a store looks like on the disk (format 1)": ["python/test_format.py", "storage/golden_test.cpp"],
    "docs/format.md: What Python writes as metadata": ["python/test_trees.py"],
    "docs/format.md: Snapshots": ["store/snapshot_*_test.cpp"],
    "docs/format.md: The zone map": ["storage/zone_map_test.cpp", "storage/snapshot_layout_test.cpp", "fuzz/*"],
    "docs/format.md: How it is written, and why a reader may trust it": [
        "storage/extent_allocator_test.cpp", "storage/preallocator_test.cpp", "os/ring_test.cpp",
    ],
    # --- the pool of a node
    "docs/node.md: Who shares a pool": ["node/job_test.cpp", "node/start_agent_test.cpp", "os/shared_memory_test.cpp", "os/local_socket_test.cpp"],
    "docs/durability.md: In a node's pool": [
        "store/node_test.cpp", "node/node_storage_test.cpp", "node/node_contract_test.cpp", "python/test_node_pool.py",
        "python/test_node_model.py",
    ],
    "docs/node.md: Layout (version 1)": ["node/pool_*_test.cpp"],
    "docs/node.md: What they say to each other": [
        "node/agent_ends_test.cpp", "node/messages_test.cpp", "node/hostile_process_test.cpp", "fuzz/*"],
    "docs/node.md: What counts": ["node/handover_list_test.cpp", "fuzz/*"],
    "docs/node.md: The life of a slab": ["node/pool_tables_test.cpp"],
    "docs/node.md: Leases": ["planner/pool_shares_test.cpp", "node/leases_test.cpp", "store/node_test.cpp"],
    "docs/node.md: What each death leaves": [
        "node/pool_file_test.cpp", "node/handover_list_test.cpp", "node/node_storage_test.cpp",
        "node/node_killed_test.cpp", "node/node_trials_test.cpp",
    ],
    "docs/defer-fsync.md: What is promised": ["python/test_defer_fsync.py"],
    "docs/defer-fsync.md: What each death leaves": ["python/test_defer_fsync.py"],
    "docs/defer-fsync.md: Calls": ["python/test_defer_fsync.py"],
    "docs/reliability.md: *": ["python/test_reliability.py", "reliability/*"],
    "docs/commands.md: Exit codes and errors": [
        "python/test_commands_refusals.py", "python/test_commands_store.py",
        "python/test_commands_usage.py",
    ],
    "docs/commands.md: `ls`": ["python/test_commands_look.py", "storage/inspect_test.cpp"],
    "docs/commands.md: `verify`": ["python/test_commands_look.py"],
    "docs/commands.md: `export`": ["python/test_commands_export.py", "python/test_commands_snapshots.py", "python/test_commands_ranks.py"],
    "docs/commands.md: `gc`": ["python/test_commands_gc.py", "storage/collect*"],
    "docs/commands.md: `node`": ["python/test_commands_node.py", "node/dead_pools_test.cpp", "node/elsewhere_test.cpp"],
    # --- how it is made
    "ARCHITECTURE.md: The one decision": ["store/event_log_test.cpp", "sim/*", "python/test_planner_machine.py",
        "python/test_sim_memory.py",
    ],
    "CONTRIBUTING.md: Contributing": ["style/test_layout.py", "python/test_instructions.py"],
    "ARCHITECTURE.md: Rooms": ["style/test_rooms.py", "style/test_layers.py", "style/test_suites.py"],
    "ARCHITECTURE.md: Threads": [
        "store/wait*_test.cpp", "store/no_threads_test.cpp", "store/*process_test.cpp", "store/pitfalls_test.cpp",
    ],
    "docs/lifecycle.md: The life cycle of a replica": ["planner/lifecycle_test.cpp", "docs/test_generated.py"],
    "docs/zones.md: The life of a zone": ["planner/zones_test.cpp", "docs/test_generated.py"],
    "docs/leases.md: The life of a lease": ["planner/lease_ledger_test.cpp", "docs/test_generated.py"],
    "docs/design/snapshots.md: A cut": ["planner/snapshot_plan_test.cpp", "planner/snapshot_plan_random_test.cpp"],
    "docs/design/snapshots.md: The double buffer": ["planner/zone_buffer_test.cpp"],
    "docs/design/snapshots.md: Several cuts at once": ["planner/snapshot_plan_random_test.cpp"],
    "docs/design/snapshots.md: Failure": ["planner/snapshot_plan_test.cpp"],
    "docs/design/snapshots.md: What a snapshot leans on": ["planner/snapshot_chain_test.cpp", "storage/repack_test.cpp"],
    "docs/design/snapshots.md: What it costs": ["planner/snapshot_plan_memory_test.cpp"],
    "docs/design/planner.md: What it knows": ["planner/topology_test.cpp", "store/topology_test.cpp", "planner/version_set_test.cpp"],
    "docs/design/planner.md: Who gets which room": [
        "planner/fragment_map_test.cpp", "planner/eviction_test.cpp", "planner/restore_order_test.cpp", "planner/planner_shrink_test.cpp",
        "planner/segments_test.cpp", "planner/room_test.cpp",
    ],
    "docs/design/planner.md: What moves when": [
        "planner/planner_test.cpp", "planner/planner_links_test.cpp", "planner/pacer_test.cpp",
    ],
    "docs/design/planner.md: Persistent stores": [
        "planner/planner_kept_test.cpp", "planner/retention_test.cpp",
        "planner/keeping_test.cpp",
    ],
    "docs/design/tiers.md: What goes where": ["planner/file_tiers_test.cpp"],
    "docs/design/tiers.md: What stays where": ["planner/file_tiers_test.cpp", "sim/random_programs_test.cpp"],
    "docs/design/tiers.md: When a lower file fails or hangs": ["planner/file_tiers_test.cpp"],
    "docs/design/planner.md: No stall": ["planner/planner_random_test.cpp", "planner/planner_wait_test.cpp"],
    "docs/design/planner.md: What it costs": ["store/gpu_sizes_test.cpp", "store/long_use_test.cpp", "planner/recycled_test.cpp"],
    "docs/design/views.md: Ordinary memory: the program gets pages of its own": [
        "python/test_views.py", "os/lent_pages_test.cpp",
    ],
    "docs/design/views.md: On a GPU: writes cannot be prevented, but can be detected": [
        "store/commit_check_test.cpp", "device/digest_test.cpp", "device/zones_test.cpp",
    ],
    "docs/design/streams.md: What a call promises": [
        "store/stream*_test.cpp", "planner/planner_stream_*", "python/test_gpu_order.py", "capi/streams.c",
    ],
    "docs/design/streams.md: How memory is handed back": ["python/test_gpu_memory.py", "store/gpu_freed_test.cpp"],
    "docs/design/provisioning.md: What happens in `open`": ["cache/*", "os/pages_test.cpp", "python/test_arena_option.py"],
    "docs/design/provisioning.md: What is touched, and when": ["planner/provisioner_test.cpp", "planner/provisioner_world_test.cpp", "os/processors_test.cpp"],
    "docs/design/provisioning.md: One at a time on a node": ["os/pin_queue_test.cpp", "planner/provisioner_world_test.cpp", "store/memory_growth_test.cpp"],
    "docs/design/provisioning.md: What can go wrong": ["store/memory_*", "planner/provisioner_test.cpp", "cache/provisioned_throwing_test.cpp"],
    "docs/design/write_watch.md: What each form notices": ["os/write_watch_test.cpp", "os/system_write_watch_test.cpp"],
    "docs/design/write_watch.md: What the fault thread may do": ["os/system_write_watch_test.cpp"],
    "docs/commands.md: `lend`": ["python/test_lending.py"],
    "docs/peers.md: *": ["python/test_lending.py", "leases/*_test.cpp"],
    "docs/commands.md: `estimate`": ["python/test_estimate.py"],
    "docs/commands.md: `plan`": ["python/test_plan_command.py", "python/test_plan_paper.py"],
    "docs/planning.md: *": ["python/test_plan_model.py", "python/test_plan_paper.py", "python/test_zones.py"],
    "docs/planning.md: The machine that does not exist": ["models/zone_machine_test.cpp", "snapshots/write_recorder_test.cpp"],
    "docs/commands.md: `sim zones`": ["python/test_zones.py"],
    "docs/planning.md: A large machine for a day": ["python/test_cluster.py"],
    "docs/planning.md: A job that is needed at once": ["python/test_preempt.py"],
    "docs/commands.md: `sim spill`": ["python/test_spill.py"],
    "docs/commands.md: `sim lent`": ["python/test_lent.py"],
    "docs/design/peers.md: Four strategies": ["models/flow_test.cpp", "python/test_spill.py"],
    "docs/comparison.md: What was measured": ["docs/test_generated.py"],
    "docs/hpc.md: A job that is killed": ["python/test_node_pool.py", "python/test_node_model.py"],
    "docs/design/peers.md: What comes out": ["docs/test_generated.py"],
    "docs/design/peers.md: How it is tested": ["models/flow_random_test.cpp"],
    "docs/design/peers.md: Bandwidth": ["planner/pacer_test.cpp", "python/test_lending.py"],
    "docs/design/peers.md: Leases": ["leases/*_test.cpp", "planner/lease_ledger_test.cpp"],
    "docs/design/peers.md: Moving bytes between GPUs": ["device/peer_memory_test.cpp"],
    "docs/design/bound.md: How it is proved": ["sim/bound_test.cpp", "sim/exhaustive.cpp"],
    # --- what is measured
    "docs/bench.md: A shot": ["python/test_bench_*"],
    "docs/bench.md: Memory that others lend": ["python/test_bench_lend.py"],
    "docs/bench.md: Figures on a GPU": ["python/test_gpu_check.py"],
    "docs/doctor.md: The doctor": ["python/test_doctor.py", "os/clock_test.cpp"],
}  # fmt: skip
