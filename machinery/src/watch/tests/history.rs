//! An API server whose store was restored from a backup.

use super::*;

/// Waits until it is noticed.
async fn noticed(journal: &Journal) -> String {
    tokio::time::timeout(Duration::from_hours(1), journal.went_back()).await.expect("it is not noticed")
}

/// A store that was restored from a backup has none of what was seen after it. A watch from there would be silent.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_gone_back_is_found_out() {
    let list = || Answer::Page(Ok((vec![("a", "1")], None, "10")));
    let cut = || Answer::Watch(vec![Ok(Step::Bookmark("12".to_owned())), Ok(Step::Cut)]);
    let broken = || Answer::Watch(vec![Err(Failure::Other("down".to_owned()))]);
    // Silent, and then closed in good order: what a watch is from a version that the server does not have yet.
    let silent = || Answer::Watch(vec![]);
    for (script, newest) in
        [(vec![list(), cut()], "11"), (vec![list(), broken()], "9"), (vec![list(), silent()], "9")]
    {
        let (driver, journal) = driven(
            [script, vec![Answer::Newest(newest), list(), Answer::Open]].into_iter().flatten().collect(),
        );
        let why = noticed(&journal).await;
        assert!(
            why.starts_with("Pod: the API server was at version 1")
                && why.contains(&format!("is at {newest}")),
            "{why}"
        );
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(journal.blind(), None);
        assert!(journal.dump().contains("2 complete lists begun"), "{}", journal.dump());
        driver.abort();
    }
}

/// A new leader asks whether its index is of the history that goes on, also where no watch has ended.
#[tokio::test(start_paused = true)]
async fn a_standby_that_is_to_lead_finds_out_that_the_server_has_gone_back() {
    let (driver, journal) = driven(vec![
        Answer::Page(Ok((vec![("a", "1")], None, "10"))),
        Answer::Open,
        Answer::Newest("9"),
        Answer::Page(Ok((vec![], None, "9"))),
        Answer::Open,
    ]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(journal.blind(), None);
    journal.renew();
    assert_eq!(
        noticed(&journal).await,
        "Pod: the API server was at version 10 and is at 9: its store was restored from a backup"
    );
    driver.abort();
}

/// The same version is no other history, and versions that are no numbers are not compared.
#[tokio::test(start_paused = true)]
async fn a_server_that_goes_on_is_not_suspected() {
    for newest in ["12", "13", "4000000000", "abc", ""] {
        let (driver, journal) = driven(vec![
            Answer::Page(Ok((vec![("a", "1")], None, "10"))),
            Answer::Watch(vec![Ok(Step::Bookmark("12".to_owned())), Ok(Step::Cut)]),
            Answer::Newest(newest),
            Answer::Open,
        ]);
        let suspected = tokio::time::timeout(Duration::from_hours(1), journal.went_back()).await;
        assert!(suspected.is_err(), "{suspected:?}");
        driver.abort();
    }
}

/// A restored store may have forgotten the position as well (410), so that the watch is followed by a list.
#[tokio::test(start_paused = true)]
async fn a_list_of_an_older_state_shows_that_the_server_has_gone_back() {
    let (driver, journal) = driven(vec![
        Answer::Page(Ok((vec![("a", "1")], None, "10"))),
        Answer::NoWatch(Failure::Expired),
        Answer::Page(Err(Failure::Other("down".to_owned()))),
        Answer::Page(Ok((vec![], None, "9"))),
        Answer::Open,
    ]);
    assert_eq!(
        noticed(&journal).await,
        "Pod: the API server was at version 10 and is at 9: its store was restored from a backup"
    );
    driver.abort();
}
