//! The commands of Markdown pages: those that a reader is told to run.

/// First words of a command.
const PROGRAMS: [&str; 5] = ["cargo ", "kubectl ", "helm ", "dragoman ", "opm "];
/// The blocks of commands of a page, and the commands that stand outside one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The blocks, each with its lines.
    pub blocks: Vec<Vec<String>>,
    /// The commands outside a block.
    pub outside: Vec<String>,
}

impl Page {
    /// Commands are in blocks of the language `sh`. A line with a prompt shows what a command prints.
    pub fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut language = None::<&str>;
        for line in text.lines() {
            match (line.strip_prefix("```"), language) {
                (Some(of), None) => {
                    language = Some(of);
                    page.blocks.extend((of == "sh").then(Vec::new));
                }
                (Some(_), Some(_)) => language = None,
                (None, Some("sh")) => {
                    if let Some(block) = page.blocks.last_mut() {
                        block.push(line.to_owned());
                    }
                }
                (None, Some(_)) if PROGRAMS.iter().any(|program| line.starts_with(program)) => {
                    page.outside.push(line.to_owned());
                }
                (None, _) => {}
            }
        }
        page
    }
}

/// The commands of a page: its blocks of the language `sh`.
pub fn commands(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_blocks_of_their_own() {
        let page = "a\n```sh\nkubectl get pods\nhelm list\n```\n```\n$ kubectl get nadcs\nNODE\nkubectl delete x\n```\n";
        let block = vec!["kubectl get pods".to_owned(), "helm list".to_owned()];
        assert_eq!(
            Page::read(page),
            Page { blocks: vec![block], outside: vec!["kubectl delete x".to_owned()] }
        );
    }

    #[test]
    fn the_commands_of_a_page_are_in_its_blocks() {
        assert_eq!(commands("a\n```sh\nb\n```\nc\n```\nd\n```\n```sh\ne\nf\n```\n"), "b\ne\nf\n");
    }
}
