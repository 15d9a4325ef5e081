//! Ctrl-C: exit status 130, nothing committed, the next import goes through at once.

use std::process::Stdio;

use crate::tool::Tool;

#[test]
fn an_interrupted_import_exits_with_130_and_leaves_the_old_checkpoint() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, &[("w", 1.0, 1000)]);
    // A named pipe holds the import inside its save: nothing is ever written into it.
    let fifo = tool.path("stuck.safetensors");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs");
    assert!(made.success());
    let mut child = tool
        .command(&["import", "repo", "--run", "gpt", "--step", "2", "stuck.safetensors"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    wait_until_it_catches_sigint(child.id());
    let sent = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(sent.success());
    let status = child.wait().expect("ends");
    assert_eq!(status.code(), Some(130));

    let list = tool.json(&["ls", "repo"]);
    assert_eq!(list["checkpoints"].as_array().map(Vec::len), Some(1));
    tool.import("gpt", 3, &[("w", 2.0, 1000)]);
    tool.run(&["verify", "repo", "--deep"]).expect_code(0);
}

/// Until the process has installed its handler, a signal would end it with the shell's own status.
fn wait_until_it_catches_sigint(pid: u32) {
    const SIGINT_BIT: u64 = 1 << 1;
    for _ in 0..1000 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        if caught & SIGINT_BIT != 0 {
            return;
        }
        std::thread::yield_now();
        std::process::Command::new("sleep").arg("0.01").status().expect("sleep runs");
    }
    panic!("the tool never listened for Ctrl-C");
}
