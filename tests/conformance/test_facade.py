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
    "XSEM-DISC-006": "facade/discovery: of_several_none_is_chosen the_backend_is_never_chosen "
                     "what_nobody_has_is_refused_with_the_candidates",
    "XSEM-DISC-007": "facade/discovery: a_uuid_finds_its_device a_luid_finds_its_device a_device_is_opened_by_its_id; "
                     "data/uuids: every_form_gives_the_same_uuid",
    "XSEM-DISC-008": "plugins: a_plugin_that_fails_to_import_disturbs_nobody "
                     "a_hook_that_raises_is_reported_and_what_it_registered_before_works",
    "XSEM-DISC-009": "plugins: another_version_of_the_interface_is_reported",
    "XSEM-DISC-010": "facade/discovery: a_native_context_is_adopted; backends/cuda/device: "
                     "lent_context_is_used_and_left_alone",
    "XSEM-CAP-007": "facade/bad_input: nothing_declared_nothing_taken "
                    "a_type_that_host_does_not_declare_is_unsupported",
    "XSEM-CAP-008": "plugins: a_device_that_declares_what_it_does_not_implement_is_refused",
    "XSEM-CAP-009": "conformance/facade: capabilities_promise_nothing_that_is_not_said",
    "XSEM-IMP-012": "backends/cuda/structs: semaphore_descriptor_of_each_type memory_descriptor_of_each_type "
                    "dedicated_flag_is_set_when_asked_for; runtime/handle_import: "
                    "what_has_no_fd_reaches_the_driver_without_a_duplicate",
    "XSEM-DESC-001": "data/descriptors: a_negative_fd_is_refused_but_for_a_sync_file_that_is_signalled "
                     "an_fd_may_be_an_object_with_fileno",
    "XSEM-DESC-002": "data/descriptors: nt_types_take_exactly_one_of_the_two a_null_handle_is_refused "
                     "invalid_handle_value_of_windows_is_refused",
    "XSEM-DESC-003": "data/descriptors: a_handle_is_needed a_null_handle_is_refused no_other_type_takes_a_name",
    "XSEM-DESC-004": "data/descriptors: what_is_no_pointer_is_refused a_null_handle_is_refused "
                     "no_other_type_takes_a_name",
    "XSEM-DESC-005": "data/descriptors: a_name_is_text_that_windows_can_take no_other_type_takes_a_name",
    "XSEM-DESC-006": "data/descriptors: memory_has_a_size memory_must_say_its_size",
    "XSEM-DESC-007": "data/descriptors: dedicated_is_implied_for_d3d_resources_and_refused_for_a_dmabuf",
    "XSEM-DESC-008": "data/descriptors: dedicated_is_implied_for_d3d_resources_and_refused_for_a_dmabuf",
    "XSEM-DESC-009": "data/handle_types: semaphore_type_has_its_kind_carrier_and_names "
                     "memory_type_has_its_carrier_dedication_and_names every_name_of_a_vendor_has_a_home",
    "XSEM-DESC-010": "data/descriptors: every_member_has_a_constructor_of_its_name "
                     "a_descriptor_is_frozen_and_equal_by_its_fields; project/imports: "
                     "every_module_imports_where_linux_is_missing",
    "XSEM-DESC-011": "data/descriptors: the_type_is_the_enums_own_member a_bool_is_no_handle "
                     "an_fd_may_be_nothing_else",
    "XSEM-DESC-012": "data/params: beyond_the_range_is_refused what_is_not_an_int_is_refused; facade/command_list: "
                     "parameter_that_cannot_be_is_refused field_that_a_kind_does_not_have_is_refused",
    "XSEM-DESC-013": "data/params: beyond_the_range_is_refused; facade/command_list: "
                     "parameter_that_cannot_be_is_refused field_that_a_kind_does_not_have_is_refused",
    "XSEM-DESC-014": "data/params: timeout_of_a_keyed_mutex_is_32_bits infinite_is_the_number_of_windows; "
                     "facade/command_list: timeout_is_for_keyed_mutexes; backends/cuda/structs: wait_parameters",
    "XSEM-DESC-015": "facade/command_list: parameter_that_cannot_be_is_refused "
                     "field_that_a_kind_does_not_have_is_refused; backends/cuda/structs: signal_parameters "
                     "wait_parameters",
    "XSEM-DESC-016": "data/descriptors: images_that_cuda_would_refuse_are_refused "
                     "every_shape_that_cuda_knows_is_taken levels_end_at_one_element other_formats_are_refused",
    "XSEM-DESC-017": "backends/cuda/structs: mipmapped_array_descriptor",
    "XSEM-OWN-001": "runtime/handle_import: every_sort_of_handle_is_borrowed what_the_driver_took_stays_open "
                    "the_driver_gets_a_duplicate_of_its_own any_other_exception_means_unknown; facade/bad_input: "
                    "a_refusal_of_the_driver_loses_nothing",
    "XSEM-OWN-002": "data/handles: many_threads_close_it_once of_close_and_detach_exactly_one_wins "
                    "closed_or_detached_it_has_no_number",
    "XSEM-OWN-003": "runtime/handle_import: unknown_and_still_ours_the_duplicate_is_closed "
                    "unknown_and_closed_nothing_is_closed unknown_and_nobody_to_ask_the_number_is_leaked",
    "XSEM-BIN-005": "facade/command_list: second_wait_needs_the_exporters_reset",
    "XSEM-BIN-006": "facade/command_list: sync_file_is_waited_for_and_not_signalled",
    "XSEM-BIN-007": "facade/sync_files: a_signal_is_for_one_export_or_one_wait "
                    "a_signal_that_is_done_has_the_handle_minus_one",
    "XSEM-TL-010": "facade/command_list: value_not_above_the_last_one_is_refused value_may_go_back_where_that_is_said "
                   "value_far_above_the_last_one_is_refused",
    "XSEM-BATCH-005": "facade/command_list: batch_of_another_shape_is_refused",
    "XSEM-BATCH-006": "facade/command_list: batch_with_one_bad_member_is_not_appended_at_all "
                      "batch_with_a_bad_event_or_memory_or_driver_changes_nothing",
    "XSEM-EVT-006": "facade/event: event_bound_to_nothing_cannot_be_asked bound_event_is_not_bound_again "
                    "wait_keeps_the_binding_it_was_appended_with",
    "XSEM-EVT-007": "facade/command_list: things_of_another_device_are_refused; facade/event: "
                    "foreign_event_is_nobodys_signal_event",
    "XSEM-EVT-008": "facade/event: callback_is_called_once_on_a_thread_of_xsems "
                    "callback_of_what_is_done_already_is_called_on_that_thread_too; facade/event_asyncio: "
                    "await_returns_when_the_work_is_done",
    "XSEM-ORD-011": "facade/command_list: work_is_called_at_once_and_in_order "
                    "work_that_raises_stops_its_list_and_no_other; backends/host/scenarios: "
                    "work_runs_on_the_worker_in_its_turn",
    "XSEM-WBS-004": "runtime/timeouts: message_names_what_is_stuck message_of_a_host_wait_names_who_could_signal; "
                    "runtime/diagnostics: nobody_can_signal_what_was_never_given_away",
    "XSEM-WBS-005": "facade/command_list: event_that_is_not_appended_cannot_be_waited_for",
    "XSEM-LIST-004": "facade/bad_input: everything_released_is_refused; backends/host/lists: "
                     "list_runs_in_order_behind_a_wait; backends/cuda/lists: "
                     "own_stream_is_destroyed_once_and_a_borrowed_one_is_not",
    "XSEM-DEV-001": "facade/bad_input: what_another_device_stamped_is_refused_where_that_matters "
                    "what_another_driver_stamped_is_refused_where_both_are_known",
    "XSEM-DEV-002": "facade/bad_input: host_refuses_what_a_gpu_stamped "
                    "what_the_device_itself_stamped_or_nobody_did_is_taken",
    "XSEM-DEV-003": "facade/bad_input: what_another_device_stamped_is_refused_where_that_matters; data/descriptors: "
                    "constructors_of_device_bound_types_must_be_told_the_device",
    "XSEM-DEV-004": "facade/bad_input: another_devices_objects_are_refused; facade/command_list: "
                    "things_of_another_device_are_refused",
    "XSEM-PROC-004": "ipc/ipc: everything_sent_arrives_in_order_as_owned_cloexec_handles",
    "XSEM-PROC-005": "ipc/ipc: bad_message_is_refused_and_its_fds_closed no_bytes_crash_the_receiver_or_leak",
    "XSEM-PROC-006": "data/pickling: descriptors_reach_a_spawned_process pickling_at_any_other_time_is_refused",
    "XSEM-BUF-007": "facade/bad_input: a_range_beyond_the_allocation_is_refused; facade/buffer: "
                    "ranges_side_by_side_are_mapped_and_overlapping_ones_refused",
    "XSEM-BUF-008": "facade/buffer: a_view_is_a_part_with_another_shape what_does_not_fit_is_refused",
    "XSEM-BUF-009": "backends/cuda/structs: buffer_descriptor; runtime/lifetime: "
                    "buffers_go_before_memory_before_the_device; backends/cuda/device: "
                    "everything_is_destroyed_once_by_its_own_function",
    "XSEM-MIP-005": "facade/buffer: an_image_that_the_memory_cannot_be_is_refused",
    "XSEM-MIP-006": "facade/buffer: a_released_image_has_no_levels_any_more; backends/cuda/device: "
                    "everything_is_destroyed_once_by_its_own_function",
    "XSEM-LIFE-001": "runtime/lifetime: release_twice_frees_once use_of_what_was_released_is_refused "
                     "release_returns_while_a_wait_is_pending_and_takes_effect_at_the_marker",
    "XSEM-LIFE-009": "runtime/lifetime: release_takes_effect_when_all_its_lists_have_reached_their_markers "
                     "buffers_go_before_memory_before_the_device memory_released_first_goes_when_its_buffer_goes",
    "XSEM-LIFE-010": "runtime/lifetime: exit_makes_no_driver_call "
                     "dropped_point_goes_back_to_the_driver_with_a_later_call "
                     "finalizer_of_the_application_may_release_inside_any_lock "
                     "other_calls_go_on_while_an_unmap_blocks; backends/cuda/failures: no_driver_call_at_exit",
    "XSEM-LIFE-011": "facade/buffer: an_array_outlives_everything_that_it_came_from; runtime/lifetime: "
                     "objects_keep_their_device objects_of_a_capture_stay_until_the_device_goes",
    "XSEM-ERR-003": "backends/cuda/failures: each_code_of_the_driver_has_its_error; backends/cuda/call: "
                    "documented_code_does_not_blame_earlier_work",
    "XSEM-ERR-004": "backends/cuda/call: undocumented_code_is_from_earlier_work",
    "XSEM-ERR-005": "errors: pickle_keeps_class_fields_and_text; project/errors: page_tells_every_reason",
    "XSEM-ERR-006": "runtime/timeouts: error_has_the_pending_operations_as_data",
    "XSEM-ERR-007": "runtime/queue: append_is_refused_exactly_where_the_driver_would_hold_it "
                    "refused_append_leaves_everything_as_it_was",
    "XSEM-ERR-008": "backends/cuda/device: driver_that_does_not_start_says_why "
                    "missing_library_is_told_from_an_old_one",
    "XSEM-THR-005": "runtime/queue: appends_of_many_threads_reach_the_driver_one_at_a_time; facade/many_threads: "
                    "appends_queries_and_releases_of_one_list_at_once",
    "XSEM-FORK-001": "runtime/forks: in_the_child_every_method_raises_and_calls_no_driver "
                     "a_child_that_ends_as_programs_do_calls_no_driver",
    "XSEM-FORK-003": "data/pickling: descriptors_reach_a_spawned_process",
    "XSEM-INT-001": "runtime/timeouts: signal_ends_a_wait_and_leaves_all_usable",
    "XSEM-INT-003": "runtime/timeouts: ctrl_c_raised_inside_the_driver_comes_through; runtime/lifetime: "
                    "interrupted_call_holds_nothing",
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
