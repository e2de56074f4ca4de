//! A launcher and nothing else, as the service's binary is one when called with the hidden subcommand.

fn main() -> std::process::ExitCode {
    exec::launcher_main()
}
