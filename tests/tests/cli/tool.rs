//! Runs the binary, and makes safetensors files for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everstep_tests::binaries::binary_of;
use serde_json::Value;

/// The binary in a folder of its own, without any setting from outside.
pub(crate) struct Tool {
    pub(crate) folder: tempfile::TempDir,
}

/// What a call printed and how it ended.
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn binary() -> PathBuf {
    binary_of("ckpt-inspect")
}

impl Tool {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// A tool with a repository at `repo`.
    pub(crate) fn with_repository() -> Self {
        let tool = Self::new();
        tool.run(&["init", "repo"]).expect_code(0);
        tool
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(&binary(), args)
    }

    /// Runs `ckpt-gc`.
    pub(crate) fn gc(&self, args: &[&str]) -> Answer {
        Answer::of(self.gc_command(args).output().expect("the binary starts"), args)
    }

    pub(crate) fn gc_command(&self, args: &[&str]) -> Command {
        self.command_of(&binary_of("ckpt-gc"), args)
    }

    /// Runs `ckpt-gc` with `--json` and parses what was printed.
    pub(crate) fn gc_json(&self, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        serde_json::from_str(&self.gc(&args).expect_code(0).stdout).expect("one JSON document")
    }

    fn command_of(&self, binary: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(binary);
        command.args(args).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Answer {
        Answer::of(self.command(args).output().expect("the binary starts"), args)
    }

    /// Runs with `--json` and parses what was printed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        let answer = self.run(&args);
        answer.expect_code(0);
        serde_json::from_str(&answer.stdout).expect("one JSON document")
    }

    /// Writes a safetensors file of fp32 tensors: name, and value repeated so often.
    pub(crate) fn model(&self, file: &str, tensors: &[(&str, f32, usize)]) -> PathBuf {
        let path = self.path(file);
        write_model(&path, tensors);
        path
    }

    /// Imports fp32 tensors as a checkpoint of `run`.
    pub(crate) fn import(&self, run: &str, step: u64, tensors: &[(&str, f32, usize)]) -> Value {
        self.model("imported.safetensors", tensors);
        self.json(&["import", "repo", "--run", run, "--step", &step.to_string(), "imported.safetensors"])
    }
}

impl Answer {
    pub(crate) fn of(output: Output, args: &[&str]) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let answer = Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        println!("$ ckpt-inspect {}\n{}{}", args.join(" "), answer.stdout, answer.stderr);
        answer
    }

    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// The error document on stderr.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        assert!(self.stdout.is_empty(), "nothing on stdout: {}", self.stdout);
        let error: Value = serde_json::from_str(&self.stderr).expect("one JSON document on stderr");
        assert_eq!(error["schema"], "everstep.error/1");
        assert_eq!(error["exit"], self.code);
        error
    }
}

/// Writes a safetensors file whose data lies in the given order.
pub(crate) fn write_model(path: &Path, tensors: &[(&str, f32, usize)]) {
    let mut entries = Vec::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, value, count) in tensors {
        let start = data.len();
        data.extend(std::iter::repeat_n(value.to_le_bytes(), *count).flatten());
        // Fields in the order in which the safetensors library writes them.
        let (name, end) = (Value::from(*name), data.len());
        entries.push(format!(r#"{name}:{{"dtype":"F32","shape":[{count}],"data_offsets":[{start},{end}]}}"#));
    }
    let mut header = format!("{{{}}}", entries.join(",")).into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(path, [&length[..], &header, &data].concat()).expect("written");
}
