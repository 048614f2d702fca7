//! The audit: who reads it, its filters and its pages.

use serde_json::Value;

use crate::guests::{self, As, site, site_with};

#[tokio::test]
async fn the_audit_is_filtered_and_read_in_pages_by_administrators_of_its_tenant() {
    let site = site().await;
    let begun = [("acme/ada", "hello"), ("acme/bob", "hello"), ("evil/eve", "hello")];
    let mut tasks = vec![];
    for (token, text) in begun {
        let task = As { site: &site, token }.begin(text).await;
        let path = format!("tasks/{task}");
        site.console(&path, &[("authorization", &format!("Bearer {token}"))]).await;
        tasks.push(task);
    }
    let shown = async |token: &str, query: &str| -> Vec<Value> {
        let path = format!("audit?limit=1000{query}");
        let answer = site.console(&path, &[("authorization", &format!("Bearer {token}"))]).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()["entries"].as_array().unwrap().clone()
    };
    let (root, boss) = ("root;read:admin:audit", "acme/boss;read:admin:audit");
    let all = shown(root, "").await;
    assert!(all.iter().any(|line| line["caller"] == "evil/eve"), "{all:?}");
    let own = shown(boss, "").await;
    assert!(!own.is_empty() && own.iter().all(|line| line["tenant"] == "acme"), "{own:?}");
    assert_eq!(shown(boss, &format!("&resource={}", tasks[2])).await, Vec::<Value>::new());
    assert_eq!(shown(boss, "&tenant=evil").await, Vec::<Value>::new());

    let of_task = shown(root, &format!("&resource={}", tasks[0])).await;
    assert!(!of_task.is_empty(), "{all:?}");
    assert!(of_task.iter().all(|line| line["resource"].as_str().unwrap().contains(&tasks[0])));
    let of_bob = shown(root, "&caller=acme/bob").await;
    assert!(!of_bob.is_empty() && of_bob.iter().all(|line| line["caller"] == "acme/bob"));
    let middle = all[all.len() / 2]["at"].as_str().unwrap();
    let (until, since) =
        (shown(root, &format!("&until={middle}")).await, shown(root, &format!("&since={middle}")).await);
    assert!(until.iter().all(|line| line["at"].as_str().unwrap() < middle));
    assert!(since.iter().all(|line| line["at"].as_str().unwrap() >= middle));
    assert_eq!(
        until,
        all.iter().filter(|line| line["at"].as_str().unwrap() < middle).cloned().collect::<Vec<_>>()
    );

    let (mut pages, mut cursor) = (vec![], String::new());
    loop {
        let path = format!("audit?limit=2&until={middle}{cursor}");
        let page = site.console(&path, &[("authorization", &format!("Bearer {root}"))]).await.json();
        pages.extend(page["entries"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(pages, until, "page by page");

    let plain = [("authorization", "Bearer acme/ada;read:a2a")];
    let refusal = site.console_refuses("audit", &plain, 403, "scope_missing").await;
    assert_eq!(refusal["scope"], "read:admin:audit");
    let headers = [("authorization", "Bearer root;read:admin:audit")];
    for (query, field) in [
        ("until=yesterday", "until"),
        ("since=x", "since"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=x", "cursor"),
        ("type=odd", "type"),
        ("before=3", "before"),
        ("resource=a&resource=b", "resource"),
    ] {
        let refusal = site.console_refuses(&format!("audit?{query}"), &headers, 400, "bad_request").await;
        assert_eq!(refusal["field"], field, "{query}");
    }
}

/// A filter that few lines pass is no way to have the whole audit read by one request.
#[tokio::test]
async fn a_page_reads_no_more_lines_than_it_may_and_says_where_the_next_begins() {
    const READ: usize = 5;
    let site = site_with(|setup| setup.options.limits.audit_lines_read = READ).await;
    let (task, ada) = (As { site: &site, token: "acme/ada" }.begin("hello").await, "Bearer acme/ada");
    site.console(&format!("tasks/{task}"), &[("authorization", ada)]).await;
    for _ in 0..4 * READ {
        site.console("tasks/none", &[("authorization", ada)]).await;
    }
    site.engine.flush_audit().await;
    let all = guests::audit(&site).await;
    let about = all.iter().filter(|line| line.resource.contains(&task)).count();
    assert!(about > 0 && all.len() > 4 * READ, "{all:?}");
    let headers = [("authorization", "Bearer root;read:admin:audit")];
    let (mut lines, mut sizes, mut cursor) = (vec![], vec![], String::new());
    loop {
        let page = site.console(&format!("audit?resource={task}{cursor}"), &headers).await.json();
        let entries = page["entries"].as_array().unwrap();
        sizes.push(entries.len());
        lines.extend(entries.iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(lines.len(), about, "each once: {lines:?}");
    assert_eq!(sizes[0], 0, "the newest lines are about something else");
    assert!(sizes.len() > all.len() / READ && sizes.iter().all(|size| *size <= READ), "{sizes:?}");
}
