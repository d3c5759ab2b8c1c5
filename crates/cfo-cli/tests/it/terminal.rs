//! Small pictures, on terminals alone.

use std::process::Command;

use crate::util::{Folder, python};

/// Runs a command on a terminal of 60 columns; what it printed, for the environment given.
const SCRIPT: &str = "\
import fcntl, os, pty, struct, sys, termios
variables, program, words = sys.argv[1], sys.argv[2], sys.argv[3:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 60, 0, 0))
    os.environ.pop('NO_COLOR', None)
    os.environ.update(pair.split('=') for pair in variables.split())
    os.execv(program, [program, *words])
text = b''
while True:
    try:
        read = os.read(terminal, 65536)
    except OSError:
        break
    if not read:
        break
    text += read
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, text
sys.stdout.buffer.write(text)
";

#[test]
fn pictures_are_shown_where_a_terminal_can() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    folder.cfo("simulate lorenz --samples 4 --frames 41 --horizon 0.4 --out a.h5").done();
    folder.cfo("simulate burgers --samples 2 --frames 11 --grid 32 --out b.h5").done();
    folder.cfo("simulate shallow-water --samples 2 --frames 5 --grid 16 --out c.h5").done();
    let on_terminal = |variables: &str, line: &str| {
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT, variables, env!("CARGO_BIN_EXE_cfo")]).args(line.split(' '));
        folder.run(&mut command, line).done().stdout
    };
    let full = "TERM=xterm-256color COLORTERM=truecolor";
    for file in ["a.h5", "b.h5", "c.h5"] {
        let line = format!("inspect {file} --plot");
        let shown = on_terminal(full, &line);
        assert!(shown.contains('▀') && shown.contains("\x1b[38;2;"), "{shown}");
        assert!(on_terminal("TERM=xterm-256color COLORTERM=", &line).contains("\x1b[38;5;"));
        for nothing in
            ["TERM=dumb COLORTERM=truecolor", "TERM=xterm COLORTERM=", &format!("{full} NO_COLOR=1")]
        {
            assert!(!on_terminal(nothing, &line).contains('▀'), "{nothing}");
        }
        // Nobody looks at a pipe.
        assert!(!folder.cfo(&line).done().stdout.contains('\x1b'));
    }
    let recipe = "[operator]\nkind = \"mlp\"\nhidden = [16]\n[train]\nsteps = 10\nbatch = 16\n";
    std::fs::write(folder.path("recipe.toml"), recipe).unwrap();
    folder.cfo("train recipe.toml --data a.h5 --out run").done();
    let shown = on_terminal(full, "evaluate run --data a.h5");
    assert!(shown.contains('▀') && shown.contains("the worst trajectory"), "{shown}");
}
