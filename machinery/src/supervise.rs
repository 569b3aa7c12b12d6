//! Tasks that must not end.
//!
//! Half a controller is worse than none: a watch or a worker that ended leaves a
//! process that holds the lease and does nothing. So the first task that ends
//! ends the process, and says which one it was.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use tokio::task::{Id, JoinSet};

/// A task that must not end, and its name.
pub struct Task {
    /// Name of the task, for people.
    pub name: String,
    /// Work of the task.
    pub future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Task {
    /// A task.
    pub fn new(name: impl Into<String>, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { name: name.into(), future: Box::pin(future) }
    }
}

/// The tasks of a process.
#[derive(Default)]
pub struct Supervisor {
    tasks: JoinSet<Result<(), String>>,
    names: HashMap<Id, String>,
}

/// A task ended that should not have.
#[derive(Debug, thiserror::Error)]
#[error("the task {task:?} ended: {cause}")]
pub struct TaskEnded {
    /// Name of the task.
    pub task: String,
    /// Reason of the end.
    pub cause: String,
}

impl Supervisor {
    /// Runs `task` for the life of the process.
    pub fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_fallible(name, async {
            task.await;
            Ok(())
        });
    }

    /// Runs a task that says why it ended.
    pub fn spawn_fallible(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name.into());
    }

    /// Waits for all tasks to end, however they do.
    pub async fn all_end(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Waits for the first task to end.
    pub async fn first_end(&mut self) -> TaskEnded {
        let (id, cause) = match self.tasks.join_next_with_id().await {
            None => return TaskEnded { task: "none".to_owned(), cause: "nothing to supervise".to_owned() },
            Some(Ok((id, Ok(())))) => (id, "returned".to_owned()),
            Some(Ok((id, Err(cause)))) => (id, cause),
            Some(Err(error)) => (error.id(), error.to_string()),
        };
        TaskEnded { task: self.names.remove(&id).unwrap_or_default(), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_end_is_named() {
        let mut supervisor = Supervisor::default();
        supervisor.spawn("for ever", std::future::pending());
        supervisor.spawn_fallible("short", async { Err("reason".to_owned()) });
        let end = supervisor.first_end().await;
        assert_eq!((end.task.as_str(), end.cause.as_str()), ("short", "reason"));
        supervisor.spawn("broken", async { panic!("bug") });
        let end = supervisor.first_end().await;
        assert_eq!(end.task, "broken");
        assert!(end.cause.contains("panicked"));
    }
}
