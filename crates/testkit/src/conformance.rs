//! The conformance suite for backends: one check per guarantee of `Store`.
//!
//! A backend passes a function that creates a fresh, empty database and returns how to open it; opening it again
//! after the first store was dropped must show the same data. `conformance!` turns that into one `#[test]`
//! per check, so that a new check reaches every backend and a failure has a name:
//!
//! ```text
//! fn fresh() -> impl AsyncFn() -> Arc<dyn Store> { … }
//! nuncio_testkit::conformance!(fresh);
//! ```
//!
//! Nothing here depends on a clock: all times are arguments, as the trait requires.

mod commit;
mod contention;
mod expiry;
mod fixtures;
mod guards;
mod knowledge_audit;
mod knowledge_memory;
mod knowledge_records;
mod knowledge_search;
mod lease;
mod list;
mod outbox;
mod reading;
mod sessions;
mod tenants;

pub use self::{
    commit::{
        a_change_leaves_what_it_does_not_name, a_created_task_reads_back_whole, journal_keeps_its_order,
    },
    commit::{an_ended_task_rests, unfolded_bytes_are_counted},
    contention::{colliding_creates_make_one_task, sequence_has_no_gaps},
    expiry::{
        aged_tasks_are_found_in_pages, expiry_frees_the_names, expiry_takes_all_of_what_ended,
        only_what_ended_then_is_deleted,
    },
    guards::{a_full_log_refuses, a_refused_change_writes_nothing, create_refuses_what_exists},
    guards::{runner_guard_fences, unknown_tasks_are_gone, version_guard_notices_every_change},
    knowledge_audit::{
        audit_lines_of_many_are_all_kept, audit_lines_of_the_home_tenant_are_found,
        numbers_of_audit_lines_are_not_used_again, the_audit_is_read_backwards, usage_adds_up,
    },
    knowledge_memory::{
        a_page_and_its_counts_are_of_one_moment, an_entry_changes_under_its_version,
        an_entry_reads_back_whole, counts_are_exact_under_contention, many_keys_are_paged_and_cleared,
        memory_is_capped, namespaces_are_capped, namespaces_are_listed, one_of_many_writers_wins,
        pages_go_by_key, what_has_expired_begins_again, what_has_expired_is_gone_from_every_view,
    },
    knowledge_records::{
        a_record_reads_back_whole, records_are_listed_by_id, records_are_written_together_or_not,
        records_expire, records_hold_under_contention,
    },
    knowledge_search::{patterns_find_what_they_mean, words_are_found_in_their_namespace, words_are_ranked},
    lease::{
        a_dead_node_loses_its_tasks, a_living_node_keeps_its_tasks, claims_go_by_owner,
        claims_take_the_oldest_due, descendants_are_counted,
    },
    lease::{concurrent_claims_never_share, load_and_next_due, progress_forgives_attempts},
    list::{list_agrees_with_a_plain_model, list_knows_contexts, list_pages_do_not_overlap},
    outbox::{a_change_adds_its_webhooks_or_nothing, webhooks_are_kept_per_task, webhooks_follow_the_log},
    outbox::{a_dead_letter_blocks_nothing, a_delivery_is_leased, a_replay_stays_beside_the_cursor},
    outbox::{a_failed_delivery_is_replayed_or_discarded, failed_deliveries_are_listed},
    outbox::{a_retry_keeps_its_time, a_settlement_beside_a_commit_loses_nothing},
    reading::{
        children_are_listed, everything_survives_a_reopen, idempotency_keys_belong_to_owners,
        live_children_are_found,
    },
    reading::{log_is_read_in_pages, snapshots_shorten_the_log},
    sessions::{a_session_changes_under_its_version, a_session_reads_back_whole},
    sessions::{a_touched_session_never_goes_back, old_sessions_expire_in_pieces},
    sessions::{sessions_are_limited_per_owner, sessions_survive_a_reopen},
    tenants::{
        a_former_name_of_a_tenant_is_searched_anew, figures_count_what_waits, tasks_are_listed_by_tenant,
        what_a_tenant_has_is_deleted,
    },
    tenants::{a_task_is_deleted_whole, only_identities_of_audit_lines_change},
    tenants::{counters_and_words_of_a_tenant_are_deleted, what_tenants_store_is_measured},
};

/// Expands to one test per check of the suite. See the module.
#[macro_export]
macro_rules! conformance {
    ($fresh:path) => {
        $crate::for_each_check! { $crate::conformance_tests, $fresh }
    };
}

/// Passes something and the names of all checks to a macro, for backends whose tests need more than `fresh`.
#[macro_export]
macro_rules! for_each_check {
    ($tests:path, $given:path) => {
        $tests! { $given:
            a_change_leaves_what_it_does_not_name
            a_created_task_reads_back_whole
            a_dead_letter_blocks_nothing
            a_dead_node_loses_its_tasks
            a_delivery_is_leased
            a_full_log_refuses
            a_living_node_keeps_its_tasks
            a_page_and_its_counts_are_of_one_moment
            a_record_reads_back_whole
            a_refused_change_writes_nothing
            a_replay_stays_beside_the_cursor
            a_retry_keeps_its_time
            a_session_changes_under_its_version
            a_session_reads_back_whole
            a_settlement_beside_a_commit_loses_nothing
            a_task_is_deleted_whole
            a_touched_session_never_goes_back
            aged_tasks_are_found_in_pages
            an_ended_task_rests
            an_entry_changes_under_its_version
            an_entry_reads_back_whole
            audit_lines_of_many_are_all_kept
            audit_lines_of_the_home_tenant_are_found
            children_are_listed
            claims_go_by_owner
            claims_take_the_oldest_due
            colliding_creates_make_one_task
            concurrent_claims_never_share
            counts_are_exact_under_contention
            create_refuses_what_exists
            descendants_are_counted
            everything_survives_a_reopen
            expiry_frees_the_names
            expiry_takes_all_of_what_ended
            idempotency_keys_belong_to_owners
            journal_keeps_its_order
            list_agrees_with_a_plain_model
            list_knows_contexts
            list_pages_do_not_overlap
            live_children_are_found
            load_and_next_due
            log_is_read_in_pages
            many_keys_are_paged_and_cleared
            memory_is_capped
            namespaces_are_capped
            namespaces_are_listed
            numbers_of_audit_lines_are_not_used_again
            old_sessions_expire_in_pieces
            one_of_many_writers_wins
            only_what_ended_then_is_deleted
            only_identities_of_audit_lines_change
            pages_go_by_key
            patterns_find_what_they_mean
            progress_forgives_attempts
            records_are_listed_by_id
            records_are_written_together_or_not
            records_expire
            records_hold_under_contention
            runner_guard_fences
            sequence_has_no_gaps
            sessions_are_limited_per_owner
            sessions_survive_a_reopen
            snapshots_shorten_the_log
            tasks_are_listed_by_tenant
            the_audit_is_read_backwards
            unfolded_bytes_are_counted
            unknown_tasks_are_gone
            usage_adds_up
            version_guard_notices_every_change
            a_failed_delivery_is_replayed_or_discarded
            failed_deliveries_are_listed
            figures_count_what_waits
            webhooks_are_kept_per_task
            webhooks_follow_the_log
            a_change_adds_its_webhooks_or_nothing
            what_a_tenant_has_is_deleted
            a_former_name_of_a_tenant_is_searched_anew
            what_tenants_store_is_measured
            counters_and_words_of_a_tenant_are_deleted
            what_has_expired_begins_again
            what_has_expired_is_gone_from_every_view
            words_are_found_in_their_namespace
            words_are_ranked
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($fresh:path: $($check:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                $crate::conformance::$check($fresh()).await;
            }
        )*
    };
}
