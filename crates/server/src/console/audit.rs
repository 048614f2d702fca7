//! The audit in pages, with the filters that `/admin/audit` has.

use serde_json::{Map, Value};

use super::{api::ConsoleRequest, problem::ConsoleProblem};
use crate::audit;

/// The filters, and the page. `cursor` is what the administrators' endpoint calls `before`.
const PARAMETERS: [&str; 9] =
    ["tenant", "caller", "type", "resource", "refused", "since", "until", "limit", "cursor"];

/// `GET /audit`
pub(super) async fn list(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&PARAMETERS)?;
    let mut arguments = Map::new();
    for name in PARAMETERS {
        let Some(value) = request.parameter(name)? else { continue };
        let argument = if name == "cursor" { "before" } else { name };
        let argument = Map::from_iter([(argument.to_owned(), Value::from(value))]);
        // One at a time, so that a refusal names its field.
        audit::read_query(&argument).map_err(|why| ConsoleProblem::bad_request(name, why))?;
        arguments.extend(argument);
    }
    let query = audit::read_query(&arguments).map_err(|why| ConsoleProblem::bad_request("", why))?;
    let mut page = audit::read(request.engine(), &request.caller, query).await?;
    if let Some(next) = page["next"].as_u64() {
        page["next"] = next.to_string().into();
    }
    page["now"] = request.now().into();
    Ok(page)
}
