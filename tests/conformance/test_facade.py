"""The tests of each facade requirement. They run in `make test`, not on devices."""

from __future__ import annotations

import ast
import functools

import pytest
from support.paths import TESTS

from xsem.types import Capabilities
from xsem_conformance import load

FACADE = {name: each for name, each in load().requirements.items() if each.subject == "facade"}

# Files below tests/ without "test_" and ".py", tests without "test_".
TESTED = {
    "XSEM-DISC-006": "facade/discovery: ambiguous_device_is_refused_with_the_candidates the_backend_is_never_chosen "
                     "unknown_uuid_or_luid_is_refused_with_the_candidates",
    "XSEM-DISC-007": "facade/discovery: a_uuid_finds_its_device a_luid_finds_its_device a_device_is_opened_by_its_id; "
                     "data/uuids: every_form_gives_the_same_uuid",
    "XSEM-DISC-008": "plugins_loading: failing_plugin_import_does_not_affect_others; plugins: "
                     "raising_hook_is_reported_and_its_earlier_backends_stay",
    "XSEM-DISC-009": "plugins: another_version_of_the_interface_is_reported",
    "XSEM-DISC-010": "facade/discovery: native_context_selects_its_device; backends/cuda/device: "
                     "borrowed_context_is_used_and_left_alone",
    "XSEM-CAP-007": "facade/bad_input_types: import_is_unsupported_when_nothing_is_declared "
                    "a_type_that_host_does_not_declare_is_unsupported",
    "XSEM-CAP-008": "plugins_declarations: device_without_its_declared_calls_is_refused",
    "XSEM-CAP-009": "conformance/facade: capabilities_declare_nothing_by_default",
    "XSEM-IMP-012": "backends/cuda/bytes: descriptor_of_each_type_of_semaphore "
                    "descriptor_of_each_type_of_memory_and_of_its_buffer memory_is_dedicated_where_that_is_said; "
                    "runtime/handle_import: "
                    "import_without_fd_makes_no_duplicate",
    "XSEM-DESC-001": "data/descriptors_handles: negative_fd_is_refused_except_for_a_signalled_sync_file "
                     "an_fd_may_be_an_object_with_fileno",
    "XSEM-DESC-002": "data/descriptors_handles: nt_types_take_exactly_one_of_name_and_handle a_null_handle_is_refused "
                     "invalid_handle_value_of_windows_is_refused",
    "XSEM-DESC-003": "data/descriptors_handles: a_handle_is_needed a_null_handle_is_refused no_other_type_takes_a_name",
    "XSEM-DESC-004": "data/descriptors_handles: handle_wider_than_a_pointer_is_refused a_null_handle_is_refused "
                     "no_other_type_takes_a_name",
    "XSEM-DESC-005": "data/descriptors_handles: a_name_is_text_that_windows_can_take no_other_type_takes_a_name",
    "XSEM-DESC-006": "data/descriptors: memory_has_a_size memory_must_say_its_size",
    "XSEM-DESC-007": "data/descriptors: dedicated_is_set_for_d3d_and_refused_for_dmabuf",
    "XSEM-DESC-008": "data/descriptors: dedicated_is_set_for_d3d_and_refused_for_dmabuf",
    "XSEM-DESC-009": "data/handle_types: semaphore_type_has_its_kind_handle_kind_and_names "
                     "memory_type_has_its_handle_kind_dedication_and_names every_vendor_name_belongs_to_a_type",
    "XSEM-DESC-010": "data/descriptors: every_member_has_a_constructor_of_its_name "
                     "a_descriptor_is_frozen_and_equal_by_its_fields; project/imports: "
                     "every_module_imports_without_linux_modules",
    "XSEM-DESC-011": "data/descriptors: the_type_is_the_enums_own_member; data/descriptors_handles: "
                     "bool_is_refused_as_handle other_objects_are_refused_as_fd",
    "XSEM-DESC-012": "data/params: value_beyond_the_range_is_refused non_int_is_refused; facade/command_list: "
                     "bad_parameter_is_refused field_that_a_kind_does_not_have_is_refused",
    "XSEM-DESC-013": "data/params: value_beyond_the_range_is_refused; facade/command_list: bad_parameter_is_refused "
                     "field_that_a_kind_does_not_have_is_refused",
    "XSEM-DESC-014": "data/params: timeout_of_a_keyed_mutex_is_32_bits infinite_is_the_number_of_windows; "
                     "facade/command_list: timeout_is_for_keyed_mutexes; "
                     "backends/cuda/bytes: timeout_of_a_keyed_mutex_is_the_given_one_or_infinite",
    "XSEM-DESC-015": "facade/command_list: bad_parameter_is_refused field_that_a_kind_does_not_have_is_refused; "
                     "backends/cuda/bytes: batch_of_all_of_windows_types_gives_each_its_own "
                     "fences_and_flags_of_nvscisync_are_each_objects_own",
    "XSEM-DESC-016": "data/images: images_that_cuda_would_refuse_are_refused "
                     "every_shape_that_cuda_knows_is_taken levels_end_at_one_element other_formats_are_refused",
    "XSEM-DESC-017": "backends/cuda/structs: mipmapped_array_descriptor",
    "XSEM-OWN-001": "runtime/handle_import: every_form_of_handle_is_borrowed "
                    "number_that_the_driver_took_stays_open the_driver_gets_a_duplicate_of_its_own "
                    "any_other_exception_means_unknown; facade/bad_input_failures: "
                    "refusal_of_the_driver_leaks_no_handle",
    "XSEM-OWN-002": "data/handles: many_threads_close_handle_once exactly_one_of_close_and_detach_wins "
                    "closed_or_detached_handle_has_no_number",
    "XSEM-OWN-003": "runtime/handle_import: duplicate_is_closed_when_state_is_unknown_and_file_same "
                    "nothing_is_closed_when_state_is_unknown_and_fd_closed "
                    "number_is_leaked_when_state_cannot_be_determined",
    "XSEM-BIN-005": "facade/command_list_values: second_wait_needs_the_exporters_reset",
    "XSEM-BIN-006": "facade/command_list: sync_file_is_waited_for_and_not_signalled",
    "XSEM-BIN-007": "facade/sync_files: a_signal_is_for_one_export_or_one_wait "
                    "a_signal_that_is_done_has_the_handle_minus_one",
    "XSEM-TL-010": "facade/command_list_values: value_not_above_the_last_one_is_refused "
                   "value_may_go_back_with_allow_rewind value_far_above_the_last_one_is_refused",
    "XSEM-BATCH-005": "facade/command_list: batch_of_another_shape_is_refused",
    "XSEM-BATCH-006": "facade/command_list: batch_with_one_bad_member_is_not_appended_at_all "
                      "failed_batch_changes_nothing",
    "XSEM-EVT-006": "facade/event: event_bound_to_nothing_cannot_be_asked bound_event_is_not_bound_again "
                    "wait_keeps_the_binding_it_was_appended_with",
    "XSEM-EVT-007": "facade/command_list: objects_of_another_device_are_refused; facade/event: "
                    "borrowed_event_is_refused_as_signal_event",
    "XSEM-EVT-008": "facade/event: callback_is_called_once_on_the_notifier_thread "
                    "callback_of_a_done_event_is_called_on_the_notifier; facade/event_asyncio: "
                    "await_returns_when_the_work_is_done",
    "XSEM-ORD-011": "facade/command_list_work: work_is_called_at_once_and_in_order "
                    "work_that_raises_stops_its_list_and_no_other; facade/applications: "
                    "work_may_append_to_lists",
    "XSEM-WBS-004": "runtime/timeouts: message_names_the_stuck_operation "
                    "message_of_a_host_wait_names_who_could_signal; runtime/diagnostics: "
                    "unexported_semaphore_has_no_possible_signaller",
    "XSEM-WBS-005": "facade/command_list: event_that_is_not_appended_cannot_be_waited_for",
    "XSEM-LIST-004": "facade/bad_input: released_objects_are_refused; backends/cuda/queue: "
                     "own_stream_is_destroyed_and_a_borrowed_one_is_not",
    "XSEM-DEV-001": "facade/bad_input_types: device_bound_import_from_another_device_is_refused "
                    "import_from_another_driver_is_refused_when_both_known",
    "XSEM-DEV-002": "facade/bad_input_types: host_refuses_a_descriptor_of_a_gpu "
                    "matching_or_missing_device_uuid_is_accepted",
    "XSEM-DEV-003": "facade/bad_input_types: device_bound_import_from_another_device_is_refused; data/descriptors: "
                    "constructors_of_device_bound_types_need_device_uuid",
    "XSEM-DEV-004": "facade/bad_input: objects_of_another_device_are_refused; facade/command_list: "
                    "objects_of_another_device_are_refused",
    "XSEM-PROC-004": "ipc/ipc: descriptors_arrive_in_order_as_owned_cloexec_handles",
    "XSEM-PROC-005": "ipc/ipc: bad_message_is_refused_and_its_fds_closed no_bytes_crash_the_receiver_or_leak",
    "XSEM-PROC-006": "data/pickling: descriptors_reach_a_spawned_process "
                     "any_other_pickler_is_refused_with_the_alternatives",
    "XSEM-BUF-007": "facade/bad_input: a_range_beyond_the_allocation_is_refused; facade/buffer: "
                    "adjacent_ranges_are_mapped_and_overlapping_ones_refused",
    "XSEM-BUF-008": "facade/buffer: a_view_is_a_part_with_another_shape range_or_shape_that_does_not_fit_is_refused",
    "XSEM-BUF-009": "backends/cuda/bytes: descriptor_of_each_type_of_memory_and_of_its_buffer; "
                    "runtime/lifetime_threads: "
                    "buffers_are_freed_before_memory_before_the_device; backends/cuda/device: "
                    "everything_is_destroyed_by_its_own_function",
    "XSEM-MIP-005": "facade/buffer_images: image_unsuitable_for_the_memory_is_refused",
    "XSEM-MIP-006": "facade/buffer_images: a_released_image_has_no_levels_any_more; backends/cuda/device: "
                    "everything_is_destroyed_by_its_own_function",
    "XSEM-MIP-014": "facade/image_copies: bad_regions_are_refused_before_the_driver "
                    "bad_regions_between_levels_are_refused buffers_without_the_shape_are_refused "
                    "levels_with_elements_of_other_sizes_are_refused regions_of_one_level_must_not_overlap "
                    "images_and_buffers_over_the_same_bytes_are_refused release_waits_for_the_copies_of_an_image",
    "XSEM-LIFE-001": "runtime/lifetime: release_twice_frees_once use_of_a_released_object_is_refused "
                     "release_returns_at_once_and_frees_at_the_marker",
    "XSEM-LIFE-009": "runtime/lifetime: object_is_freed_when_all_its_lists_reach_their_markers; "
                     "runtime/lifetime_threads: buffers_are_freed_before_memory_before_the_device "
                     "memory_released_first_is_freed_after_its_buffer",
    "XSEM-LIFE-010": "runtime/lifetime: exit_makes_no_driver_call; runtime/lifetime_dropped: "
                     "dropped_fence_is_released_by_a_later_call finalizer_may_release_while_any_lock_is_held; "
                     "runtime/lifetime_threads: other_calls_go_on_while_an_unmap_blocks; backends/cuda/failures: "
                     "no_driver_call_at_exit",
    "XSEM-LIFE-011": "facade/buffer_arrays: an_array_outlives_everything_that_it_came_from; runtime/lifetime_dropped: "
                     "objects_keep_their_device; runtime/lifetime_holds: "
                     "objects_of_a_capture_stay_until_the_device_closes",
    "XSEM-ERR-003": "backends/cuda/codes: each_listed_code_of_each_call_has_its_class; "
                    "backends/cuda/call: code_of_bad_arguments_is_not_from_earlier_work",
    "XSEM-ERR-004": "backends/cuda/call: undocumented_code_is_from_earlier_work",
    "XSEM-ERR-005": "errors: pickle_keeps_class_fields_and_text; project/errors: page_has_every_reason",
    "XSEM-ERR-006": "runtime/timeouts: error_has_the_pending_operations_as_data",
    "XSEM-ERR-007": "runtime/queue_limit: append_is_refused_exactly_when_the_driver_would_block "
                    "refused_append_leaves_everything_as_it_was",
    "XSEM-ERR-008": "backends/cuda/starting: each_code_of_each_call_of_the_start_has_its_class_and_cause; "
                    "backends/cuda/device: "
                    "missing_library_is_told_apart_from_an_old_one",
    "XSEM-THR-005": "runtime/queue: appends_of_many_threads_reach_the_driver_one_at_a_time; facade/many_threads: "
                    "appends_queries_and_releases_of_one_list_at_once",
    "XSEM-THR-006": "conformance/watched: xsem_keeps_the_rules_of_the_interface",
    "XSEM-FORK-001": "runtime/forks: in_the_child_every_method_raises_and_calls_no_driver "
                     "child_that_exits_normally_calls_no_driver",
    "XSEM-FORK-003": "data/pickling: descriptors_reach_a_spawned_process",
    "XSEM-INT-001": "runtime/timeouts: os_signal_ends_a_wait_and_leaves_objects_usable",
    "XSEM-INT-003": "runtime/timeouts: ctrl_c_raised_inside_the_driver_comes_through; facade/interrupts: "
                    "ctrl_c_leaves_each_object_usable_or_releasable",
    "XSEM-KILL-005": "ipc/ipc: end_of_the_stream_between_and_within_messages",
}


def test_every_requirement_of_the_facade_has_its_tests() -> None:
    assert set(TESTED) == set(FACADE)


@pytest.mark.parametrize("name", FACADE)
def test_tests_of_every_requirement_exist(name: str) -> None:
    listed = [part.partition(":") for part in TESTED[name].split(";")]
    missing = [f"{file.strip()}: {test}" for file, _, tests in listed for test in tests.split()
               if f"test_{test}" not in functions(file.strip())]
    assert missing == []
    assert all(tests.split() for _, _, tests in listed)


@functools.cache
def functions(file: str) -> frozenset[str]:
    """Return the names of the functions of a test module."""
    folder, _, name = file.rpartition("/")
    tree = ast.parse((TESTS / folder / f"test_{name}.py").read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_capabilities_declare_nothing_by_default() -> None:
    nothing = Capabilities()
    for field in ("semaphore_import", "semaphore_export", "memory_import", "memory_export", "features",
                  "wait_before_signal"):
        assert getattr(nothing, field) == frozenset()
    for field in ("resets_on_wait", "append_never_blocks", "release_never_blocks"):
        assert getattr(nothing, field) is False
    assert nothing.independent_lists == 1
    assert nothing.max_pending is None
