//! Published libraries of Kubernetes as judges of Dragoman's pure crates: both sides answer the same
//! random questions, and the answers are compared.

mod devices;
mod expressions;
mod pods;
mod quantities;
mod schema;
mod shapes;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use dragoman_e2e::go;

/// Intended differences: the reason of each, and how often it occurred.
type Declared = BTreeMap<&'static str, usize>;

/// Runs the comparisons whose name contains `filter`.
pub(crate) async fn run(
    repository: &Path,
    filter: &str,
    count: Option<usize>,
    seed: u64,
) -> anyhow::Result<()> {
    let judge = |program: &'static str| Judge::build(repository, program);
    if "quantities".contains(filter) {
        let judge = judge("quantity").await?;
        told("quantities", seed, quantities::compare(&judge, count.unwrap_or(1_000_000), seed)?);
    }
    if "pods".contains(filter) {
        let judge = judge("pods").await?;
        told("pods", seed, pods::compare(&judge, count.unwrap_or(100_000), seed)?);
    }
    if "devices".contains(filter) {
        let judge = judge("allocator").await?;
        told("devices", seed, devices::compare(&judge, count.unwrap_or(20_000), seed)?);
    }
    if "expressions".contains(filter) {
        let judge = judge("allocator").await?.with("cel");
        told("expressions", seed, expressions::compare(&judge, count.unwrap_or(20_000), seed)?);
    }
    if "schema".contains(filter) {
        let (fields, signed) = schema::compare(repository, &judge("schema").await?).await?;
        println!("ok      schema: {fields} fields; {signed} differences are signed off");
    }
    if "shapes".contains(filter) {
        let judge = judge("shapes").await?;
        told("shapes", seed, shapes::compare(&judge, count.unwrap_or(100_000), seed)?);
    }
    Ok(())
}

fn told(name: &str, seed: u64, (agreed, declared): (usize, Declared)) {
    println!("ok      {name}: {agreed} answers agree (seed {seed})");
    for (why, count) in declared {
        println!("        differs as intended, {count} times: {why}");
    }
}

/// A Go program that answers each line with one line.
pub(crate) struct Judge {
    program: PathBuf,
    argument: Option<&'static str>,
}

impl Judge {
    pub(crate) async fn build(repository: &Path, program: &str) -> anyhow::Result<Self> {
        let module = repository.join("lab/instruments/oracle");
        let sources = std::fs::read_dir(module.join(program)).context("judge")?;
        let mut files = vec!["go.mod".to_owned(), "go.sum".to_owned()];
        for source in sources {
            files.push(format!("{program}/{}", source?.file_name().to_string_lossy()));
        }
        files.sort();
        let directory = go::cache()?.join("oracle").join(go::digest(&module, &files)?);
        let target = directory.join(program);
        if !target.exists() {
            std::fs::create_dir_all(&directory).context("cache")?;
            // The program gets its name only once it is complete, so that an interrupted build leaves no
            // broken program.
            let unfinished = directory.join(format!("{program}.{}", std::process::id()));
            let out = unfinished.display().to_string();
            go::build(&module, "-s -w", &["-o", &out, &format!("./{program}")]).await?;
            std::fs::rename(&unfinished, &target).context("cache")?;
        }
        Ok(Self { program: target, argument: None })
    }

    /// The same program with an argument.
    fn with(self, argument: &'static str) -> Self {
        Self { argument: Some(argument), ..self }
    }

    /// Fills a cluster with the judge, and returns its figures.
    pub(crate) fn fill(&self, scenario: &Path, arguments: &[String]) -> anyhow::Result<String> {
        let scenario = std::fs::File::open(scenario).context("scenario")?;
        let out = Command::new(&self.program).arg("fill").args(arguments).stdin(scenario).output();
        let out = out.context("judge")?;
        ensure!(out.status.success(), "the judge failed: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).context("answer")
    }

    /// Returns what the program prints about a file.
    fn read(&self, file: &Path) -> anyhow::Result<String> {
        let out = Command::new(&self.program).arg(file).output().context("judge")?;
        ensure!(out.status.success(), "the judge failed: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).context("answer")
    }

    /// Measures the speed of the judge on the lines of a file, and returns its figure.
    pub(crate) fn time(&self, lines: &Path) -> anyhow::Result<String> {
        let lines = std::fs::File::open(lines).context("lines")?;
        let out = Command::new(&self.program).arg("time").stdin(lines).output().context("judge")?;
        ensure!(out.status.success(), "the judge failed: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).context("answer")
    }

    /// The answers to `questions`, in order.
    fn answer(&self, questions: &[String]) -> anyhow::Result<Vec<String>> {
        let mut child = Command::new(&self.program)
            .args(self.argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| self.program.display().to_string())?;
        let (stdin, stdout) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
        let answers = std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let mut stdin = BufWriter::new(stdin);
                questions.iter().try_for_each(|question| writeln!(stdin, "{question}"))?;
                stdin.flush()
            });
            let answers = BufReader::new(stdout).lines().collect::<Result<Vec<_>, _>>().context("answers");
            // A judge that ends early breaks the pipe. Its exit status says more.
            writer.join().ok();
            answers
        })?;
        let status = child.wait().context("judge")?;
        ensure!(status.success(), "the judge failed: {status}");
        ensure!(answers.len() == questions.len(), "{} answers to {}", answers.len(), questions.len());
        Ok(answers)
    }
}
