//! The method names of each dialect, and the choice of the dialect of a request.

use super::{
    Dialect,
    call::A2aCall,
    fault::{A2aFault, A2aProblem},
};

/// The operations of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aMethod {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    SetWebhook,
    GetWebhook,
    ListWebhooks,
    DeleteWebhook,
    ExtendedCard,
}

/// Operations with their names in 0.1, 0.3 and 1.0.
#[rustfmt::skip]
const METHODS: [(A2aMethod, [Option<&str>; 3]); 11] = [
    (A2aMethod::Send, [Some("tasks/send"), Some("message/send"), Some("SendMessage")]),
    (A2aMethod::Stream, [Some("tasks/sendSubscribe"), Some("message/stream"), Some("SendStreamingMessage")]),
    (A2aMethod::Get, [Some("tasks/get"), Some("tasks/get"), Some("GetTask")]),
    (A2aMethod::List, [None, None, Some("ListTasks")]),
    (A2aMethod::Cancel, [Some("tasks/cancel"), Some("tasks/cancel"), Some("CancelTask")]),
    (A2aMethod::Subscribe, [Some("tasks/resubscribe"), Some("tasks/resubscribe"), Some("SubscribeToTask")]),
    (A2aMethod::SetWebhook, [Some("tasks/pushNotification/set"), Some("tasks/pushNotificationConfig/set"), Some("CreateTaskPushNotificationConfig")]),
    (A2aMethod::GetWebhook, [Some("tasks/pushNotification/get"), Some("tasks/pushNotificationConfig/get"), Some("GetTaskPushNotificationConfig")]),
    (A2aMethod::ListWebhooks, [None, Some("tasks/pushNotificationConfig/list"), Some("ListTaskPushNotificationConfigs")]),
    (A2aMethod::DeleteWebhook, [None, Some("tasks/pushNotificationConfig/delete"), Some("DeleteTaskPushNotificationConfig")]),
    (A2aMethod::ExtendedCard, [None, Some("agent/getAuthenticatedExtendedCard"), Some("GetExtendedAgentCard")]),
];

impl A2aMethod {
    pub(super) fn of(call: &A2aCall) -> Self {
        match call {
            A2aCall::Send(_) => Self::Send,
            A2aCall::Stream(_) => Self::Stream,
            A2aCall::Get { .. } => Self::Get,
            A2aCall::List(_) => Self::List,
            A2aCall::Cancel { .. } => Self::Cancel,
            A2aCall::Subscribe { .. } => Self::Subscribe,
            A2aCall::SetWebhook { .. } => Self::SetWebhook,
            A2aCall::GetWebhook { .. } => Self::GetWebhook,
            A2aCall::ListWebhooks { .. } => Self::ListWebhooks,
            A2aCall::DeleteWebhook { .. } => Self::DeleteWebhook,
            A2aCall::ExtendedCard => Self::ExtendedCard,
        }
    }

    pub(super) fn name(self, dialect: Dialect) -> Option<&'static str> {
        METHODS.iter().find(|(method, _)| *method == self).and_then(|(_, names)| names[dialect as usize])
    }

    pub(super) fn find(dialect: Dialect, name: &str) -> Option<Self> {
        METHODS.iter().find(|(_, names)| names[dialect as usize] == Some(name)).map(|(method, _)| *method)
    }
}

/// The dialect in which a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialectChoice {
    /// Known from the request.
    Fixed(Dialect),
    /// 0.1 if the task was created in 0.1, else 0.3: both have the method, and the request does not name a
    /// version.
    ByTask,
}

impl DialectChoice {
    /// The dialect, once the task is known. `made_in` is the dialect in which the task was created; `None` if
    /// there is no such task.
    pub fn resolve(self, made_in: Option<&str>) -> Dialect {
        match self {
            Self::Fixed(dialect) => dialect,
            Self::ByTask if made_in == Some(Dialect::V0_1.name()) => Dialect::V0_1,
            Self::ByTask => Dialect::V0_3,
        }
    }
}

/// A request that fits no dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct DialectRefusal {
    /// The dialect to write the fault in.
    pub dialect: Dialect,
    /// The reason of the refusal.
    pub fault: A2aFault,
}

/// Chooses the dialect by the `A2A-Version` header or query parameter, and without one by the method.
///
/// The methods of 1.0 require the header: without it a request means 0.3, which has no such method.
pub fn choose_dialect(version: Option<&str>, method: &str) -> Result<DialectChoice, DialectRefusal> {
    let unsupported = |message: String| {
        let dialect = Dialect::V1;
        let fault = dialect
            .problem(A2aProblem::VersionNotSupported, message)
            .with_detail("supportedVersions", "1.0, 0.3, 0.2, 0.1");
        Err(DialectRefusal { dialect, fault })
    };
    let is_v1 = A2aMethod::find(Dialect::V1, method).is_some();
    match version.map(str::trim).filter(|version| !version.is_empty()) {
        Some(version) => match Dialect::from_version(version) {
            None => unsupported(format!(
                "A2A version {version:?} is not supported here: send A2A-Version 1.0, 0.3, 0.2 or 0.1"
            )),
            Some(dialect) if is_v1 && dialect < Dialect::V1 => unsupported(format!(
                "{method} is a method of A2A 1.0, but the request says A2A-Version {version}: send A2A-Version: 1.0"
            )),
            Some(dialect) => Ok(DialectChoice::Fixed(dialect)),
        },
        None if is_v1 => {
            unsupported(format!("{method} is a method of A2A 1.0: send the header A2A-Version: 1.0 with it"))
        }
        None => match (A2aMethod::find(Dialect::V0_1, method), A2aMethod::find(Dialect::V0_3, method)) {
            (Some(_), Some(_)) => Ok(DialectChoice::ByTask),
            (Some(_), None) => Ok(DialectChoice::Fixed(Dialect::V0_1)),
            _ => Ok(DialectChoice::Fixed(Dialect::V0_3)),
        },
    }
}

impl Dialect {
    /// The dialect of a version. Only major and minor count; for this crate 0.2 does not differ from 0.3.
    pub fn from_version(version: &str) -> Option<Self> {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        match (numbers.next()??, numbers.next().unwrap_or(Some(0))?) {
            (1, 0) => Some(Self::V1),
            (0, 2 | 3) => Some(Self::V0_3),
            (0, 1) => Some(Self::V0_1),
            _ => None,
        }
    }
}
