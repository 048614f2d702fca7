//! Which dialect a request speaks.

use nuncio_wire::a2a::{A2aProblem, Dialect, DialectChoice, choose_dialect};

const ANY_0_3: [&str; 7] = [
    "message/send",
    "message/stream",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
];
const ANY_0_1: [&str; 4] =
    ["tasks/send", "tasks/sendSubscribe", "tasks/pushNotification/set", "tasks/pushNotification/get"];
const ANY_1_0: [&str; 11] = [
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
];
const IN_BOTH: [&str; 3] = ["tasks/get", "tasks/cancel", "tasks/resubscribe"];

fn fixed(version: Option<&str>, method: &str, dialect: Dialect) {
    assert_eq!(choose_dialect(version, method), Ok(DialectChoice::Fixed(dialect)), "{version:?} {method}");
}

fn unsupported(version: Option<&str>, method: &str) {
    let unchosen = choose_dialect(version, method).expect_err(&format!("{version:?} {method}"));
    assert_eq!(unchosen.dialect, Dialect::V1);
    assert_eq!((unchosen.fault.problem, unchosen.fault.code), (A2aProblem::VersionNotSupported, -32009));
    assert!(unchosen.fault.message.contains("1.0"), "{}", unchosen.fault.message);
}

#[test]
fn without_a_version_the_method_decides() {
    for absent in [None, Some(""), Some(" ")] {
        ANY_0_1.iter().for_each(|method| fixed(absent, method, Dialect::V0_1));
        ANY_0_3.iter().for_each(|method| fixed(absent, method, Dialect::V0_3));
        ANY_1_0.iter().for_each(|method| unsupported(absent, method));
        for method in IN_BOTH {
            assert_eq!(choose_dialect(absent, method), Ok(DialectChoice::ByTask), "{method}");
        }
        fixed(absent, "tasks/unheardOf", Dialect::V0_3);
    }
}

#[test]
fn what_is_in_both_is_answered_in_the_dialect_of_the_task() {
    for (made_in, expected) in [
        (Some("a2a/0.1"), Dialect::V0_1),
        (Some("a2a/0.3"), Dialect::V0_3),
        (Some("a2a/1.0"), Dialect::V0_3),
        (Some("mcp/2025-11-25"), Dialect::V0_3),
        (None, Dialect::V0_3),
    ] {
        assert_eq!(DialectChoice::ByTask.resolve(made_in), expected, "{made_in:?}");
        assert_eq!(DialectChoice::Fixed(Dialect::V1).resolve(made_in), Dialect::V1);
    }
}

#[test]
fn a_version_decides() {
    for (version, dialect) in [
        ("1.0", Dialect::V1),
        ("1.0.0", Dialect::V1),
        ("1.0.3", Dialect::V1),
        (" 1.0 ", Dialect::V1),
        ("1", Dialect::V1),
        ("0.3", Dialect::V0_3),
        ("0.3.0", Dialect::V0_3),
        ("0.2", Dialect::V0_3),
        ("0.2.6", Dialect::V0_3),
        ("0.1", Dialect::V0_1),
        ("0.1.0", Dialect::V0_1),
    ] {
        IN_BOTH.iter().for_each(|method| fixed(Some(version), method, dialect));
        fixed(Some(version), "unheardOf", dialect);
    }
    ANY_1_0.iter().for_each(|method| fixed(Some("1.0"), method, Dialect::V1));
}

#[test]
fn other_versions_are_refused() {
    for version in
        ["0.4", "0.5", "1.1", "2.0", "0", "0.0", "latest", "1.x", "v1.0", "-1.0", "1..0", "99999999999.0"]
    {
        unsupported(Some(version), "SendMessage");
        unsupported(Some(version), "message/send");
        unsupported(Some(version), "unheardOf");
    }
}

#[test]
fn methods_of_1_0_want_1_0() {
    for version in ["0.1", "0.2", "0.3"] {
        ANY_1_0.iter().for_each(|method| unsupported(Some(version), method));
    }
}

#[test]
fn a_method_of_another_dialect_is_not_found() {
    for (dialect, method) in
        [(Dialect::V1, "message/send"), (Dialect::V0_3, "tasks/send"), (Dialect::V0_1, "message/send")]
    {
        let fault = dialect.read_call(method, None).unwrap_err();
        assert_eq!((fault.problem, fault.code), (A2aProblem::MethodNotFound, -32601), "{method}");
        assert!(
            fault.message.contains(method) && fault.message.contains(dialect.version()),
            "{}",
            fault.message
        );
    }
}

#[test]
fn names_are_stored_and_found_again() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
    }
    assert_eq!(Dialect::from_name("engine"), None);
}
